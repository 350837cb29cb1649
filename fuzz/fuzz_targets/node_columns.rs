//! Fuzzes `varve_fuzzing::node_columns`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::node_columns(bytes));
