//! Tests of the flash cache that use its private functions.
//!
//! This module does not know how the program uses the flash cache.

pub(in crate::flash) mod cache;
pub(in crate::flash) mod filling;
mod lazy_verification;
mod trouble;
