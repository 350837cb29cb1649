//! Fuzzes `varve_fuzzing::smart_program`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::smart_program(bytes));
