//! varve-models: runs Varve's concurrent code under model checkers, which choose the thread that runs next.
//!
//! The build script copies the sources of the pager, and of the engine's registry, status table and locks,
//! into this crate. In the copies it replaces `std::sync::atomic`, `parking_lot` and `std::thread` by the
//! types of a model checker. Most code is run by shuttle (`sync`), which tries random and adversarial
//! schedules under sequential consistency. Small code that depends on memory orders is run by loom
//! (`loom_sync`), which tries all schedules with weak memory orders.
//!
//! Invariants
//! 1. A model finds no fault in the real code, and finds each of its planted bugs (`flaws.rs`). Every planted
//!    bug has a model.
//! 2. A failure prints a schedule or a seed that repeats it.
//!
//! What it does not know: failing devices and crashes (see `varve-sim`).

mod all;
pub mod checker;
mod flash;
#[path = "flaws.rs"]
pub mod flaws;
mod frames;
mod latch;
mod locks;
mod log;
mod loom_sync;
mod orders;
mod pages;
mod sync;
mod visibility;
mod workers;

/// The copied sources. The crates that they come from check them for style.
#[allow(
    warnings,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    reason = "checked in the crates that they come from"
)]
mod modelled;

pub use all::MODELS;
pub use checker::Model;
// The copied sources use these paths.
pub(crate) use checker::flaw;
pub(crate) use modelled::{engine, loomed, pager};
