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
#[cfg(test)]
mod cache_tests;
mod cleaning;
mod design;
mod heap;
mod heat;
mod reading;
mod report;
mod store;
mod table;
mod taking;
mod writes;

pub(crate) use cache::{FlashCache, Opened, Place};
pub use design::FlashDesign;
pub use store::FLASH_FILE;
pub(crate) use store::HEADER_BYTES;
pub use table::CleanOrder;
