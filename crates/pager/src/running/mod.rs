//! The background work of an open pager: writing pages, taking checkpoints, returning space to the device.
//!
//! This module does not know how a database is opened, or which code calls it.

pub(crate) mod background;
pub(crate) mod checkpoint;
mod forms;
pub(crate) mod journal;
pub(crate) mod restart_bound;
pub(crate) mod shared;
pub(crate) mod workers;
