//! The flash cache: pages on flash, between the buffer pool and the data files (Do 2012, chapter 3; decision
//! 0270). If there is also an NVM page buffer (persistent memory), it is between the pool and this cache.
//!
//! ```text
//!  pool --offer (clean), put (dirty)--> cache/admission.rs --chosen pages--> io/writes.rs --> io/store.rs
//!   ^                                      |
//!   |                                      '--put: other pages--> data files <--dirty-- cache/cleaning.rs
//!   '-------- cache/reading.rs <--pages that are not on flash-------- data files
//! ```
//!
//! | folder | what is in it |
//! |---|---|
//! | `policy/` | which pages are taken, and how fast: designs, temperatures, scans, throttle, daily limit |
//! | `table/` | the slot table: which page is in which slot |
//! | `cache/` | the level itself: reading, admission, cleaning, filling, change of size, errors of the drive |
//! | `restart/` | use of the cache after a restart: lazy verification, memory-mapped, log-based, the seal |
//! | `io/` | the file, and the queue of writes |
//!
//! This module does not know frames of the pool, or how the data files store pages.

mod cache;
mod config;
mod io;
mod policy;
mod restart;
mod table;
#[cfg(test)]
mod tests;

pub use crate::flash::io::store::FLASH_FILE;
pub(crate) use crate::flash::io::store::remove_of;
pub(crate) use crate::flash::policy::daily_writes::running;
pub use crate::flash::policy::design::FlashDesign;
pub use crate::flash::policy::scans::FlashScans;
pub(crate) use crate::flash::restart::log_based::Noted;
pub(crate) use crate::flash::restart::seal::is_sealed;
pub(crate) use crate::flash::restart::start::Earlier;
pub(crate) use cache::{FlashCache, Opened, Owner, Surroundings};
pub use config::{FlashConfig, FlashFill, FlashRestart, FlashSettings};
pub use table::CleanOrder;
