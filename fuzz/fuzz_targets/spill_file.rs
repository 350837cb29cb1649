//! Fuzzes `varve_fuzzing::spill_file`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::spill_file(bytes));
