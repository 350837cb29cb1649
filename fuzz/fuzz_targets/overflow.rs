//! Fuzzes `varve_fuzzing::overflow`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::overflow(bytes));
