//! The cache's file, and the queue of pages on their way to it.
//!
//! This module does not know which pages are in the file and in the queue.

pub(crate) mod drive;
pub(crate) mod store;
pub(crate) mod writes;
