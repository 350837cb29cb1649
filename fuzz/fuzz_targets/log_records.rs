//! Fuzzes `varve_fuzzing::log_records`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::log_records(bytes));
