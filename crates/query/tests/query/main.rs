//! Tests of general queries. They are one program, because each program with DataFusion takes 170 MB and 10 s
//! to link.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "a test may stop at the first surprise; each file uses a part of the helpers"
)]

mod cancel;
mod costs;
mod held_partitions;
mod joins;
mod kept;
mod leaves;
mod plans;
mod recursion;
mod rows_in;
mod runtime_filters;
#[path = "../../../sql/tests/sql/support/mod.rs"]
mod shared;
mod slt;
mod smart;
mod spilled_joins;
mod spilling;
mod support;
mod threads;
mod waits;
