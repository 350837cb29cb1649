//! varve-query runs general queries with the library DataFusion on the tables of the engine. A general query
//! is a query that the executor of `varve-sql` cannot run, such as most joins.
//!
//! First, the binder of `varve-sql` resolves all names and types of a query and checks it. Then DataFusion
//! moves columns, joins, groups, sorts and spills. The code of `varve-sql` computes expressions, casts,
//! aggregates and most comparisons (decision 0606). DataFusion compares only values for which Arrow has
//! PostgreSQL's order, such as bytes and integers.
//!
//! The entry point is [`Queries`], which `SqlDatabase::with_general` gives to a database.

mod aggregate;
mod analyze;
mod append;
mod apply;
mod budget;
mod built_once;
mod cancel;
mod cells;
mod children;
mod collected;
mod columns;
mod computed;
mod conditions;
mod constants;
mod costs;
mod error;
mod estimate;
mod expand;
mod failing;
mod filtered_scans;
mod fold;
mod gather;
mod groups;
mod identity;
mod join_inputs;
mod join_order;
mod join_rows;
mod kept;
mod key_set;
mod large_limits;
mod leaves;
mod members;
mod memory;
mod merge_joins;
mod numbers;
mod observed;
mod ordered_set;
mod outer_joins;
mod padded;
mod partition;
mod pipelines;
mod pushed;
mod rows;
mod rules;
mod run;
mod runtime_filter;
mod scan;
mod shared;
mod sieve;
mod smart_groups;
mod smart_program;
mod smart_rule;
mod smart_scan;
mod spill;
mod spill_join;
mod steps;
mod stop;
mod stored_rows;
mod subquery_scan;
mod table;
mod temporary;
mod translate;
mod vector;
mod window;

pub use run::{Queries, QueryOptions};
pub use smart_scan::SmartOptions;
pub use temporary::EmulatedDrive;
