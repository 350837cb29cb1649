//! The lowest layer of the crate: identities, LSNs, pages and spaces as bytes, errors. Nothing here uses
//! files or threads.
//!
//! This module does not know the log, the levels or the pool.

pub(crate) mod chunks;
pub(crate) mod compression;
pub(crate) mod error;
pub(crate) mod ids;
pub(crate) mod image;
pub(crate) mod latch;
pub(crate) mod log_error;
pub(crate) mod lsn;
pub(crate) mod moment;
pub mod page;
pub(crate) mod refuse;
pub(crate) mod setting;
pub(crate) mod space_format;
pub(crate) mod space_table;
pub(crate) mod start_progress;
pub(crate) mod times;
