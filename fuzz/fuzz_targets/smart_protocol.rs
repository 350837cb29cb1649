//! Fuzzes `varve_fuzzing::smart_protocol`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::smart_protocol(bytes));
