//! Tests of the public interface of the crate `device`. They are one program, so that they are linked once
//! and run in parallel.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod accounting_counts;
mod common;
mod crash_images;
mod directories_behave_alike;
mod directory_errors;
mod faults_hit;
mod files_behave_alike;
mod mapped_in_memory;
mod region_files;
