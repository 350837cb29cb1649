//! Tests of the packed layout that use its private functions.
//!
//! This module does not know how the program uses the packed layout.

mod crashes;
mod hunts;
mod on_device;
