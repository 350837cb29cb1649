//! Persistent memory beside the files: the region that a database may keep its log in.
//!
//! Not known here: what is in the log.

mod attach;
pub(crate) mod layout;

pub(crate) use attach::{NvmRegion, find, make, wanted};
