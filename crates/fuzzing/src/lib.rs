//! The code of the fuzz targets. A target is a function that takes any bytes, and panics only if the tested
//! code is wrong.
//!
//! The programs in `fuzz/fuzz_targets` only call these functions. So the targets are built and linted with
//! the other crates. Every `cargo test` runs them on the stored inputs (`tests/corpus.rs`). `fuzz/README.md`
//! describes how to search for new inputs.
//!
//! Invariants
//! 1. The result of a target depends only on its input, so a failure can be repeated with the same input.
//! 2. A wrong checksum would reject nearly every input. So a target can correct the checksum, in order to
//!    reach the code after the check.
//! 3. If the input can be decoded, the target encodes the result again and compares.

mod allocation;
mod archive;
mod backup;
mod catalog;
mod config;
mod control;
mod conversation;
mod copy;
mod database;
mod doublewrite;
mod frames;
mod input;
mod interval;
mod key;
mod log_reader;
mod log_records;
mod node;
mod node_columns;
mod node_model;
mod numeric;
mod nvm_region;
mod opening;
mod overflow;
mod packed_map;
mod page;
mod row;
mod seeds;
mod smart;
mod spill;
mod sql;
mod starts;
mod stored;
mod types;
mod undo;

pub use input::{Input, page_runs};

/// A target, which takes any bytes.
pub type FuzzTarget = fn(&[u8]);

/// All targets, with the name of their program and of the folder with their inputs.
pub const TARGETS: &[(&str, FuzzTarget)] = &[
    ("allocation", allocation),
    ("archive", archive),
    ("backup", backup),
    ("catalog", catalog),
    ("config", config),
    ("control", control),
    ("conversation", conversation),
    ("copy", copy),
    ("doublewrite", doublewrite),
    ("frames", frames),
    ("interval", interval),
    ("key", key),
    ("log_reader", log_reader),
    ("log_records", log_records),
    ("node", node),
    ("node_columns", node_columns),
    ("node_model", node_model),
    ("node_redo", node_redo),
    ("numeric", numeric),
    ("nvm_region", nvm_region),
    ("opening", opening),
    ("overflow", overflow),
    ("packed_map", packed_map),
    ("page", page),
    ("page_redo", page_redo),
    ("row", row),
    ("smart_program", smart_program),
    ("smart_protocol", smart_protocol),
    ("spill_file", spill_file),
    ("sql_bind", sql_bind),
    ("sql_parse", sql_parse),
    ("sql_run", sql_run),
    ("starts", starts),
    ("stored_page", stored_page),
    ("types", types),
    ("undo_page", undo_page),
    ("undo_record", undo_record),
];

pub use allocation::allocation;
pub use archive::archive;
pub use backup::backup;
pub use catalog::catalog;
pub use config::config;
pub use control::control;
pub use conversation::conversation;
pub use copy::copy;
pub use doublewrite::doublewrite;
pub use frames::frames;
pub use interval::interval;
pub use key::key;
pub use log_reader::log_reader;
pub use log_records::log_records;
pub use node::{node, node_redo};
pub use node_columns::node_columns;
pub use node_model::node_model;
pub use numeric::numeric;
pub use nvm_region::nvm_region;
pub use opening::opening;
pub use overflow::overflow;
pub use packed_map::packed_map;
pub use page::{page, page_redo};
pub use row::row;
pub use seeds::{Seed, seeds};
pub use smart::{smart_program, smart_protocol};
pub use spill::spill_file;
pub use sql::{sql_bind, sql_parse, sql_run};
pub use starts::starts;
pub use stored::stored_page;
pub use types::types;
pub use undo::{undo_page, undo_record};
