//! Fuzzes the decoding of stored definitions of schemas, tables and sequences, and the engine's root page.
//!
//! The input is a definition as it is stored.

use varve_engine::fuzzing;

use crate::input::Input;

/// Checks that bytes are refused, or are the same after decoding and encoding.
pub fn catalog(bytes: &[u8]) {
    if fuzzing::definition(bytes) {
        return;
    }
    std::hint::black_box(fuzzing::root_page(&Input::new(bytes).page()));
}
