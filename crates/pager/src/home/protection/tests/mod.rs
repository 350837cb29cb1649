//! Tests of the protection against torn pages that use its private functions.
//!
//! What it does not know: how the program uses it.

mod crashes;
