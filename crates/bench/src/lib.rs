//! varve-bench: workloads, the targets on which they run, and reports of the results.
//!
//! 1. A workload is written once, as SQL with parameters ([`workload::Workload`]). It runs on any
//!    [`database::MeasuredDatabase`]: embedded, in this process, or over the wire.
//! 2. Every figure is a row with the hash of its configuration. A median is always reported with its spread
//!    ([`report`]).
//! 3. The gates ([`gates`]) use the embedded API below SQL, and measure the device's own figure in the same
//!    run.
//!
//! This crate uses only the public interfaces of `engine` and `sql`, and opens a database like an embedding
//! program. Experiments are in the crate `lab`, which is built on this one.

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
