//! Fuzzes `varve_fuzzing::starts`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::starts(bytes));
