//! The cache's file, and the queue of pages on their way to it.
//!
//! What it does not know: which pages they are.

pub(crate) mod drive;
pub(crate) mod store;
pub(crate) mod writes;
