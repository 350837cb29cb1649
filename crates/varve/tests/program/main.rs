//! Tests of the program `varve` and its commands. They are one program, so that they are linked once and run
//! in parallel.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod archive;
mod backup;
mod check;
mod command_line;
mod config_file;
mod data_directory;
mod described;
mod embedded;
mod io_trace;
mod log;
mod log_capacity;
mod metrics;
mod panics;
mod readme;
mod serve;
mod shell;
mod system_file;
mod tables_file;
mod tablespaces;
mod types;
mod workloads;
