//! Fuzzes `varve_fuzzing::sql_parse`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::sql_parse(bytes));
