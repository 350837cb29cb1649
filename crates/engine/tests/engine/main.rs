//! Tests of the public interface of the crate `engine`. They are one program, so that they are linked once
//! and run in parallel.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod as_of;
mod bank;
mod common;
mod database;
mod database_crash;
mod ddl;
mod ddl_columns;
mod ddl_crash;
mod ddl_objects;
mod deadlock;
mod delete_runs;
mod derived_indexes;
mod engine_concurrent;
mod engine_model;
mod estimates;
mod failed_flush;
mod in_memory;
mod index_only;
mod key_cycle;
mod key_order;
mod large_rows;
mod leaf_scans;
mod long_reader;
mod no_space;
mod node_columns;
mod node_model;
mod numeric_semantics;
mod overflow_chains;
mod persistence;
mod rollback_of_delete_and_insert;
mod row_codec;
mod savepoints;
mod sequences;
mod storage;
mod tree_bulk;
mod tree_concurrent;
mod tree_damage;
mod tree_layout;
mod tree_model;
mod tree_recovery;
mod undo_out_of_reach;
mod uniqueness;
mod visibility;
mod write_conflicts;
