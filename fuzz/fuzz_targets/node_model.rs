//! Fuzzes `varve_fuzzing::node_model`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::node_model(bytes));
