//! Persistent memory beside the files: the region that a database may keep its log and its doublewrite copies in.
//!
//! Not known here: what is in the log, what copies are for.

mod attach;
pub(crate) mod layout;

pub(crate) use attach::{NvmRegion, find, make, wanted};
