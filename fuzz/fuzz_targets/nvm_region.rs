//! Fuzzes `varve_fuzzing::nvm_region`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::nvm_region(bytes));
