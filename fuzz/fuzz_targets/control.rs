//! Fuzzes `varve_fuzzing::control`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::control(bytes));
