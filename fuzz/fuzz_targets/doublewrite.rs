//! Fuzzes `varve_fuzzing::doublewrite`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::doublewrite(bytes));
