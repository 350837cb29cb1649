//! Fuzzes `varve_fuzzing::interval`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::interval(bytes));
