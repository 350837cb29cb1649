//! Tests of the buffer pool that need its insides.
//!
//! What it does not know: how the program uses it.

mod races;
