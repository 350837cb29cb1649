//! The use of the flash cache's pages after a restart: the three schemes of Do 2012 (chapter 4), and the seal
//! of a clean shutdown.
//!
//! This module does not know which pages the cache takes.

mod keeping;
pub(crate) mod lazy_verification;
pub(crate) mod log_based;
pub(crate) mod memory_mapped;
pub(crate) mod mirror;
pub(crate) mod notes;
pub(crate) mod record;
pub(crate) mod records;
pub(crate) mod rounds;
pub(crate) mod seal;
pub(crate) mod start;
