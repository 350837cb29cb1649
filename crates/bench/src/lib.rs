//! The crate varve-bench has workloads, the databases that are measured with them (targets), and the results.
//!
//! 1. A workload is written once, as SQL with parameters ([`workload::Workload`]). It runs on any
//!    [`database::MeasuredDatabase`]: a database in this process, or a server.
//! 2. Every figure is stored in a row that has the hash of its configuration. A median is always reported
//!    with its spread ([`report`]).
//! 3. The measurements in [`gates`] use the embedded API below SQL. They measure the device alone in the same
//!    run, for comparison.
//!
//! This crate uses only the public interfaces of `engine` and `sql`, and opens a database as an embedding
//! program does. The crate `lab` has the experiments, and uses this crate.

pub mod check;
pub mod cli;
pub mod database;
pub mod driver;
pub mod embedded;
mod error;
pub mod gates;
pub mod measure;
mod numeric;
pub mod random;
pub mod report;
pub mod sysbench;
pub mod tpcb;
pub mod tpcc;
pub mod values;
pub mod wire;
pub mod workload;
pub mod ycsb;

pub use error::{BenchError, Result};
