//! Experiments of Arulraj, Pavlo and Dulloor ("Let's Talk About Storage & Recovery Methods for Non-Volatile
//! Memory Database Systems", SIGMOD 2015) on the memory-oriented engines.
//!
//! 1. Engines are compared on regions of ordinary memory. The time that persistent memory would take beyond
//!    that is computed from exact counts of a modelled cache (decision 0110).
//! 2. The modelled cache of a partition is an eighth of the paper's cache: that one has 20 MB for 2 million
//!    tuples in eight partitions. With fewer tuples the modelled cache is smaller in the same ratio.

mod breakdown;
mod claims;
mod cost_model;
mod counts;
mod interfaces;
mod measure;
mod node_size;
mod partitions;
mod persist;
mod recovery;
mod rows;
mod sizes;
mod tpcc;
mod ycsb;
mod ycsb_claims;

pub use breakdown::nvm_breakdown;
pub use cost_model::nvm_cost_model;
pub use counts::{nvm_footprint, nvm_wear};
pub use interfaces::nvm_interfaces;
pub use node_size::node_size;
pub use partitions::nvm_partitions;
pub use persist::persist_latency;
pub use recovery::nvm_recovery;
pub use tpcc::tpcc_engines;
pub use ycsb::ycsb_engines;
