//! Tests of the buffer pool that use its private functions.
//!
//! What it does not know: how the program uses it.

mod races;
