//! Fuzzes `varve_fuzzing::types`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::types(bytes));
