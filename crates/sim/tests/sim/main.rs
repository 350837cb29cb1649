//! Tests of the public interface of the crate `sim`. They are one program, so that they are linked once and
//! run in parallel.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod compression_survives_crashes;
mod crowd_survives_crashes;
mod damage_at_rest;
mod engine_survives_crashes;
mod faults_at_run_time;
mod files_survive_crashes;
mod moves_survive_crashes;
mod nvm_survives_crashes;
mod packed_survives_crashes;
mod page_sizes;
mod pages_survive_crashes;
mod parts_survive_crashes;
mod planted_faults;
mod planted_list;
mod region_is_another;
mod toy_is_judged;
mod trees_survive_crashes;
