//! Fuzzes `varve_fuzzing::catalog`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::catalog(bytes));
