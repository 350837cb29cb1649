//! The crate varve-sim simulates crashes of the database and of its devices, and checks the recovered state.
//! Only tests use it.
//!
//! A [`Subject`] is a small program that uses a part of the database. It runs a workload from a seed, on a
//! device that records all writes. The [`search`] then chooses moments of the recording. For each moment it
//! builds crash images (see `varve_device::Timeline`), each with a different subset of the writes that were
//! not yet durable. The subject recovers each image.
//!
//! The recovered state is compared with the [`History`] of commits. It must be a prefix of the commit order.
//! The prefix must have every acknowledged commit, and may end with commits that had begun. Recovery itself
//! is recorded and crashed, too. Some recovered databases continue with the workload and are crashed later.
//!
//! Invariants
//! 1. Everything follows from the seed. A failure names the seed and the number of the image, and the two
//!    repeat it.
//! 2. The tests must be able to find faults. So they also run with faults that were built in on purpose.

mod caches;
mod choice;
pub mod crowd;
mod cuts;
mod damage;
mod devices;
pub mod engine;
mod faults;
mod history;
mod model;
mod moves;
pub mod nvm;
pub mod pages;
mod parts;
pub mod planted;
mod regions;
mod relief;
mod rng;
mod search;
pub mod sweep;
pub mod toy;
pub mod trees;
mod trial;
mod within;

pub use choice::choices;
pub use damage::{Verdicts, damage};
pub use devices::{Devices, Medium};
pub use faults::{Tried, some_rule, try_fault, try_relieved_fault};
pub use history::{History, Span};
pub use parts::Part;
pub use regions::{Swap, swap_regions};
pub use relief::{LATE, Relief};
pub use rng::Rng;
pub use search::{
    Failure, PANIC, Plan, Recovered, Run, STOPPED, SearchResult, Subject, WRONG, Workbench, run, search,
    search_run,
};
