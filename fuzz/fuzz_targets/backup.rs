//! Fuzzes `varve_fuzzing::backup`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::backup(bytes));
