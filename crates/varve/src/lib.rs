//! Varve, a transactional SQL database for the whole memory hierarchy.

pub mod config;

/// Pages, log and recovery.
pub use varve_pager as pager;
