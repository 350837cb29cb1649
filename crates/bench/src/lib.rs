//! varve-bench: workloads, the targets they run against, and what they measured.
//!
//! 1. A workload is written once, as SQL with parameters ([`workload::Workload`]), and runs against any [`target::Target`]: embedded, in this
//!    process, or over the wire.
//! 2. Every figure is a row with the hash of its configuration; a median never travels without its spread ([`report`]).
//! 3. A published figure is re-run by a command that knows its points, its scale and the published values ([`experiment`]).
//! 4. The gates ([`gates`]) use the embedded API below SQL and measure the device's own figure in the same run.
//!
//! It does not know any internals: it uses the public interfaces of `engine` and `sql`, and opens a database like an embedder does.

pub mod check;
pub mod cli;
pub mod driver;
pub mod embedded;
mod error;
pub mod experiment;
pub mod gates;
pub mod linkbench;
pub mod mysql;
mod numeric;
pub mod random;
pub mod report;
pub mod sysbench;
pub mod target;
pub mod tpcb;
pub mod tpcc;
pub mod tpce_like;
pub mod tpch_like;
pub mod updates;
pub mod values;
pub mod wire;
pub mod workload;
pub mod ycsb;

pub use error::{BenchError, Result};
