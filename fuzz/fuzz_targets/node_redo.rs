//! Fuzzes `varve_fuzzing::node_redo`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::node_redo(bytes));
