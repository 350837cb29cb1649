//! varve-bench: workloads, the targets they run against, and what they measured.
//!
//! 1. A workload is written once, as SQL with parameters ([`workload::Workload`]). It runs against any
//!    [`target::Target`]: embedded, in this process, or over the wire.
//! 2. Every figure is a row with the hash of its configuration. A median never travels without its spread
//!    ([`report`]).
//! 3. The gates ([`gates`]) use the embedded API below SQL, and measure the device's own figure in the same run.
//!
//! It does not know any internals: it uses the public interfaces of `engine` and `sql`, and opens a database like
//! an embedder does. It does not know experiments either: they are in the crate `lab`, which is built on this one.

pub mod check;
pub mod cli;
pub mod driver;
pub mod embedded;
mod error;
pub mod gates;
pub mod measure;
mod numeric;
pub mod random;
pub mod report;
pub mod sysbench;
pub mod target;
pub mod tpcb;
pub mod tpcc;
pub mod values;
pub mod wire;
pub mod workload;
pub mod ycsb;

pub use error::{BenchError, Result};
