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
pub(crate) use cache::{FlashCache, Opened, Place};
pub use config::{FlashConfig, FlashFill, FlashRestart};
pub use table::CleanOrder;
