//! Fuzzes `varve_fuzzing::opening`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::opening(bytes));
