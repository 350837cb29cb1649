//! Tests of the buffer pool that use its private functions.
//!
//! This module does not know how the program uses the buffer pool.

mod races;
