//! Fuzzes `varve_fuzzing::sql_bind`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::sql_bind(bytes));
