//! Fuzzes `varve_fuzzing::row`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::row(bytes));
