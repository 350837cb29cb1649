//! Fuzzes `varve_fuzzing::packed_map`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::packed_map(bytes));
