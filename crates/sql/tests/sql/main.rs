//! Tests of the public interface of the crate `sql`. They are one program, so that they are linked once and
//! run in parallel.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod alter_system;
mod as_of;
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
mod tablespaces;
mod upserts;
mod waiting;
mod watching;
