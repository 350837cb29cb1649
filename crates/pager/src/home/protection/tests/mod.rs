//! Tests of protection against torn pages that need its insides.
//!
//! What it does not know: how the program uses it.

mod crashes;
