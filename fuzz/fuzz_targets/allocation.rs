//! Fuzzes `varve_fuzzing::allocation`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::allocation(bytes));
