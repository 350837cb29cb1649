//! varve-models: the house's concurrent code under model checkers that choose who runs next.
//!
//! The code is not rewritten for it: the build script copies the sources of the pager, and of the engine's registry, status table and locks, into this
//! crate, where `std::sync::atomic`, `parking_lot` and `std::thread` mean shuttle's (`sync`), or loom's for what depends on memory orders
//! (`loom_sync`). Shuttle tries random and adversarial schedules under sequential consistency; loom tries all, with weak orders, of what is small enough.
//!
//! Invariants
//! 1. Each model finds nothing, and finds each of the planted flaws that it names (`flaws.rs`); every flaw is named by one.
//! 2. A failure prints a schedule or a seed that repeats it.
//!
//! What it does not know: devices that fail in the middle, crashes (`varve-sim`).

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

use checker::flaw;
pub use checker::{MODELS, Model};

/// The copied sources. Their own house checks them for style.
#[allow(
    warnings,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    reason = "checked where it is at home"
)]
mod modelled {
    include!(concat!(env!("OUT_DIR"), "/modelled.rs"));
}
use modelled::{engine, loomed, pager};
