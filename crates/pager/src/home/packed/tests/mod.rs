//! Tests of the packed layout that use its private functions.
//!
//! What it does not know: how the program uses it.

mod crashes;
mod hunts;
mod on_device;
