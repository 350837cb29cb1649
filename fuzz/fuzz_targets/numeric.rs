//! Fuzzes `varve_fuzzing::numeric`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::numeric(bytes));
