//! Fuzzes `varve_fuzzing::config`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::config(bytes));
