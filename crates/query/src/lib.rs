//! varve-query runs general queries with DataFusion over the engine. General queries are those that the
//! executor of `varve-sql` cannot run.
//!
//! The binder of `varve-sql` has resolved all names and types of a query and checked it. DataFusion then
//! moves columns, joins, groups, sorts and spills. The code of `varve-sql` computes expressions, casts,
//! aggregates and most comparisons (decision 0606). DataFusion compares only values for which Arrow's order
//! is PostgreSQL's, such as bytes and integers.
//!
//! Entry point: [`Queries`], which `SqlDatabase::with_general` gives to a database.

mod aggregate;
mod analyze;
mod append;
mod apply;
mod cancel;
mod cells;
mod columns;
mod computed;
mod conditions;
mod constants;
mod error;
mod estimate;
mod expand;
mod failing;
mod fold;
mod groups;
mod identity;
mod join_order;
mod kept;
mod memory;
mod merge_joins;
mod numbers;
mod ordered_set;
mod padded;
mod partition;
mod pushed;
mod rows;
mod rules;
mod run;
mod scan;
mod shared;
mod sieve;
mod spill;
mod statistics;
mod steps;
mod table;
mod translate;
mod vector;
mod window;

pub use run::{Queries, QueryOptions};
