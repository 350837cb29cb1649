//! Tests of the crate `device`, by its public interface, in one program: they link once and run side by side.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod accounting_counts;
mod common;
mod crash_images;
mod directories_behave_alike;
mod directory_errors;
mod faults_hit;
mod files_behave_alike;
mod region_files;
