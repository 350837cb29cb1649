//! The crate varve-models runs Varve's concurrent code under model checkers, which choose the thread that
//! runs next.
//!
//! The build script copies the tested sources into this crate, so the code is not written a second time. The
//! sources are those of the pager, and of the engine's registry, status table and locks. In the copies, the
//! build script replaces `std::sync::atomic`, `parking_lot` and `std::thread` by modules of this crate. Most
//! code uses the module `sync`, which is built on shuttle. Code that depends on memory orders uses
//! `loom_sync`, which is built on loom.
//!
//! Shuttle tries random and adversarial schedules, under sequential consistency. Loom tries all schedules of
//! a small piece of code, under weak memory orders.
//!
//! Invariants
//! 1. A model finds no fault in the real code, and finds each of its planted bugs (`flaws.rs`). Every planted
//!    bug has a model.
//! 2. A failure prints a schedule or a seed that repeats it.
//!
//! Failing devices and crashes are tested by `varve-sim`.

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
