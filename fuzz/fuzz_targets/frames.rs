//! Fuzzes `varve_fuzzing::frames`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::frames(bytes));
