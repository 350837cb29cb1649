//! Fuzzes `varve_fuzzing::page`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::page(bytes));
