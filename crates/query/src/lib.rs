//! varve-query: runs general queries with DataFusion over the engine.
//!
//! The binder of `varve-sql` has named, typed and checked everything before a query comes here. DataFusion moves columns,
//! joins, groups, sorts and spills; every expression, cast, aggregate and comparison that is not the same for bytes and
//! numbers in Arrow as in PostgreSQL is computed by `varve-sql`'s own code (docs/decisions, 0606).
//!
//! Entry point: [`Queries`], which a database gets by `SqlDatabase::with_general`.

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
