//! Fuzzes `varve_fuzzing::sql_run`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_fuzzing::sql_run(bytes));
