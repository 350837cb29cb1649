//! The flash cache: pages on flash between the buffer pool and the data files (Do 2012, chapter 3; decision
//! 0270). If pages lie in persistent memory too, that level is between the pool and this one.
//!
//! ```text
//!   pool --offer (clean), put (dirty)--> cache/admission.rs --pages that the design takes--> io/writes.rs --> io/store.rs (flash.varve)
//!    ^                                       |                                                                     |
//!    |                                       '--put: all other pages--> data files <--dirty pages-- cache/cleaning.rs
//!    '--------- cache/reading.rs <--pages that are not on flash-------- data files
//! ```
//!
//! | folder | what is in it |
//! |---|---|
//! | `policy/` | which pages are taken, and how fast: designs, temperatures, scans, throttle, daily limit |
//! | `table/` | the frame table: which page is in which frame |
//! | `cache/` | the level itself: reading, admission, cleaning, filling, change of size, errors of the drive |
//! | `restart/` | lazy verification, memory-mapped and log-based restart; the seal of a clean shutdown; restoring at a start |
//! | `io/` | the file, and the queue of writes |
//!
//! What it does not know: frames of the pool, how the data files store pages.

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
