//! Fuzzes `varve_fuzzing::undo_record`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::undo_record(bytes));
