//! Tests of the NVM page buffer that use its private functions.
//!
//! What it does not know: how the program uses it.

mod book;
mod buffer;
mod races;
mod rig;
