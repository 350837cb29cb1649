//! Fuzzes `varve_fuzzing::stored_page`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::stored_page(bytes));
