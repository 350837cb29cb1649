//! Tests of the operators on inputs that do not fit in memory.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod bench;
mod costs;
mod groups;
mod joins;
mod sorts;
