//! The crate varve-lab repeats published results with Varve. It has the workloads and charts that only these
//! experiments need.
//!
//! 1. A command repeats each published figure. The command knows the figure's points, the sizes and the
//!    published values ([`experiment`]).
//! 2. The workloads of this crate are written like those of the crate `bench`, and run on the same kinds of
//!    databases. In addition, they can run on MariaDB ([`mysql`]).
//! 3. The memory-oriented engines are compared below SQL, over their common interface ([`stores`]).
//!
//! A measured variant is a configuration that a user can choose, so this crate uses no internals of the
//! database. Only the experiment `smart-scan` runs general queries, which need DataFusion.

pub mod cli;
pub mod experiment;
pub mod linkbench;
pub mod mysql;
pub mod picture;
pub mod stores;
pub mod tpce_like;
pub mod tpch_like;
pub mod updates;
