//! The functions that the engine calls: pages, mini-transactions, settings, statistics.
//!
//! This module does not know keys, rows or transactions.

pub(crate) mod durability;
pub(crate) mod mark;
pub(crate) mod mtr;
pub(crate) mod pager;
mod segments;
pub(crate) mod stats;
pub(crate) mod tablespaces;
