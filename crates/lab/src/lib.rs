//! varve-lab: published results run again on this program, and the workloads and charts that only they need.
//!
//! 1. A published figure is re-run by a command that knows its points, its scale and the published values
//!    ([`experiment`]).
//! 2. A workload here is written like those of `bench` and runs against the same targets. MariaDB is a target too
//!    ([`mysql`]).
//!
//! It does not know any internals: a variant is a configuration that a user can choose. It does not know general
//! queries: no experiment runs one, so `varve-lab` is built without DataFusion.

pub mod cli;
pub mod experiment;
pub mod linkbench;
pub mod mysql;
pub mod tpce_like;
pub mod tpch_like;
pub mod updates;
