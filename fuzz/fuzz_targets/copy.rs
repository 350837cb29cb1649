//! Fuzzes `varve_fuzzing::copy`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::copy(bytes));
