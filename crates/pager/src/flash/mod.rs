//! The flash cache: pages on flash between the buffer pool, or the NVM page buffer, and home (Do 2012, chapter 3; decision 0270).
//!
//! ```text
//!   pool --offer (clean), put (dirty)--> taking.rs --what the design takes--> writes.rs --> store.rs (flash.varve)
//!    ^                                       |                                                     |
//!    |                                       '--put, what is not taken or not kept back--> home <--+ cleaning.rs
//!    '----------- reading.rs <--pages that are not on flash------------------------------- home
//! ```
//!
//! Not known here: frames of the pool, how home stores pages.

mod budget;
mod cache;
#[cfg(test)]
mod cache_tests;
mod cleaning;
mod config;
mod counters;
mod design;
mod hardening;
#[cfg(test)]
mod hardening_tests;
mod heap;
mod heat;
mod keeping;
mod mirror;
mod noted;
mod notes;
mod reading;
mod record;
mod report;
mod resizing;
mod restart;
mod rounds;
mod scans;
mod sealing;
mod shape;
mod store;
mod table;
mod taking;
mod throttle;
mod trouble;
#[cfg(test)]
mod trouble_tests;
mod underway;
mod watched;
mod widening;
#[cfg(test)]
mod widening_tests;
mod writes;

pub(crate) use budget::running;
pub(crate) use cache::{FlashCache, Opened, Place};
pub use config::{FlashConfig, FlashFill, FlashRestart};
pub use design::FlashDesign;
pub(crate) use noted::Noted;
pub(crate) use restart::Earlier;
pub use scans::FlashScans;
pub(crate) use sealing::is_sealed;
pub use store::FLASH_FILE;
pub(crate) use store::remove_of;
pub use table::CleanOrder;
