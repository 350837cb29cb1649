//! Fuzzes `varve_fuzzing::archive`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::archive(bytes));
