//! Tests of the protection against torn pages that use its private functions.
//!
//! This module does not know how the program uses the protection.

mod crashes;
