//! Tests of the NVM page buffer that use its private functions.
//!
//! This module does not know how the program uses the page buffer.

mod book;
mod buffer;
mod races;
mod rig;
