//! The flash cache: pages on flash between the buffer pool, or the NVM page buffer, and home (Do 2012, chapter 3; decision 0270).
//!
//! ```text
//!   pool --offer (clean), put (dirty)--> cache.rs --what the design takes--> writes.rs --> store.rs (flash.varve)
//!    ^                                      |  \
//!    '------------- read <------------------+   '--put, and reads that miss--> home
//! ```
//!
//! Not known here: frames of the pool, how home stores pages.

mod cache;
#[cfg(test)]
mod cache_tests;
mod design;
mod heap;
mod store;
mod table;
mod writes;

pub(crate) use cache::{FlashCache, Opened};
pub use design::FlashDesign;
pub use store::FLASH_FILE;
pub(crate) use store::HEADER_BYTES;
