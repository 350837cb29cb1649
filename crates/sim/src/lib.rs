//! varve-sim: simulates crashes of the database and its devices, and checks what recovery makes of them. For
//! tests only.
//!
//! A [`Subject`] runs a seeded workload on a recorded device. [`search`] then cuts the recording at
//! many moments, builds crash images (see `varve_device::Timeline`), lets the subject recover each of
//! them, and compares with the [`History`]: the recovered state must be a prefix of the commit order
//! that holds every acknowledged commit and nothing that was not at least in flight. Recovery is
//! recorded and crashed again; and some databases go on working after theirs and are crashed later.
//!
//! Invariants
//! 1. Everything follows from the seed: a failure names the seed and the image, and they replay it.
//! 2. A harness that finds nothing must be able to find something: planted faults are part of the tests.
//!
//! What it does not know: how the database recovers.

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
