//! Fuzzes `varve_fuzzing::log_reader`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::log_reader(bytes));
