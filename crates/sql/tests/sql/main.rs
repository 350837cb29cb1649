//! Tests of the crate `sql`, by its public interface, in one program: they link once and run side by side.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod alter_system;
mod concurrent;
mod databases;
mod defaults;
mod explain;
mod generated;
mod redefined;
mod references;
mod serializable;
mod session;
mod slt;
mod statistics;
mod stopped;
mod support;
mod upserts;
mod waiting;
