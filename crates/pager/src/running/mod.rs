//! What an open pager does beside its callers: writing pages, taking checkpoints, giving room back.
//!
//! What it does not know: how a database is opened, and who calls.

pub(crate) mod background;
pub(crate) mod checkpoint;
mod forms;
pub(crate) mod shared;
pub(crate) mod workers;
