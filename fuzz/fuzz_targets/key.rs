//! Fuzzes `varve_fuzzing::key`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::key(bytes));
