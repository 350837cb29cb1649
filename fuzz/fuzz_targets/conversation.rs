//! Fuzzes `varve_fuzzing::conversation`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::conversation(bytes));
