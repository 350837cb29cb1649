//! Tests of the flash cache that use its private functions.
//!
//! What it does not know: how the program uses it.

pub(in crate::flash) mod cache;
pub(in crate::flash) mod filling;
mod lazy_verification;
mod trouble;
