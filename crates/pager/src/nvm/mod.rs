//! Persistent memory beside the files: a region that may hold the log and doublewrite copies (`attach.rs`), and newest versions of
//! pages on their way home (`buffer.rs`, the level).
//!
//! Not known here: what is in log and pages, what copies are for.

mod area;
mod attach;
mod book;
#[cfg(test)]
mod book_tests;
mod buffer;
#[cfg(test)]
mod buffer_tests;
mod flush;
pub(crate) mod layout;
mod recover;

pub use attach::NVM_FILE;
pub(crate) use attach::{NvmRegion, attach, find, make, wanted};
pub(crate) use buffer::NvmBuffer;
