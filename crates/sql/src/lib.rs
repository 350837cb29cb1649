//! varve-sql: PostgreSQL's SQL on top of the engine. It parses, binds and plans statements, and runs those
//! that need no DataFusion.
//!
//! The entry points are [`SqlDatabase`] (shared), [`Session`] (one client) and [`Sink`] (receives results).

mod access;
mod activity;
mod advisory;
pub mod array;
mod ast;
pub mod binary;
mod bind;
mod cache;
mod copy;
mod derived;
pub mod encoding;
mod error;
mod eval;
mod exec;
mod explain;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod general;
mod join_method;
mod json;
mod kept;
mod lexeme;
pub mod log;
mod loops;
mod made_name;
mod moment;
mod names;
mod nextval;
pub mod oid;
mod output_name;
pub mod panics;
mod parse;
mod partition;
mod path;
mod plan;
mod planted;
mod prepared;
mod qualify;
mod rights;
mod scan;
pub mod scram;
mod sequence_memory;
mod session;
mod settings;
mod sink;
mod smart_mode;
mod statement_stats;
pub mod statistics;
mod system;
mod system_settings;
mod table_method;
pub mod text;
pub mod time;
mod ty;
mod utility;
mod value_bytes;

pub use activity::Ender;
pub use derived::deriver;
pub use error::{Result, SqlError, SqlState, Subject};
pub use planted::planted;
pub use prepared::{Portal, Prepared};
pub use session::{
    CancelToken, Probing, Session, SessionParams, SessionState, SqlDatabase, StatementState, TableState,
    TemporaryLimit, without_literals,
};
pub use sink::{Column, CommandTag, CopyShape, Nowhere, Origin, Progress, Severity, Sink};
pub use statement_stats::{ENTRIES as STATEMENT_ENTRIES, StatementStats, StatementSums, StatementTotals};
pub use system::show::type_name;
pub use system_settings::{SystemSetting, SystemSettings};
pub use time::{Reading, TimeForms, Zone};
