//! System tables about prepared statements and cursors of a session.
//!
//! Does not know: how these are made (`crate::session`).

use std::sync::Arc;

use rustc_hash::FxHashMap;
use varve_engine::{ColumnType, Datum, Value};

use super::{Fill, Rows, World, list, text};
use crate::session::Named;

/// What a session holds.
#[derive(Default)]
pub struct Held {
    /// Prepared statements by name.
    pub(crate) statements: Arc<FxHashMap<String, Arc<Named>>>,
    /// Cursors, those of the protocol among them.
    pub(crate) cursors: Vec<Arc<HeldCursor>>,
}

/// A cursor as `pg_cursors` shows it.
#[derive(Debug)]
pub(crate) struct HeldCursor {
    pub(crate) name: String,
    /// The message that declared it.
    pub(crate) statement: Box<str>,
    pub(crate) is_holdable: bool,
    pub(crate) is_binary: bool,
    pub(crate) is_scrollable: bool,
    /// When it was made, in microseconds since 2000-01-01 UTC.
    pub(crate) at_us: i64,
}

/// The code for the tables of this file.
pub fn fill(name: &str) -> Option<Fill> {
    Some(match name {
        "pg_prepared_statements" => pg_prepared_statements,
        "pg_cursors" => pg_cursors,
        _ => return None,
    })
}

/// A plan of Varve's is always made for all parameters: it is what PostgreSQL calls a generic one.
fn pg_prepared_statements(world: &World, rows: &mut Rows<'_>) {
    for (name, named) in world.held.statements.iter().filter(|(name, _)| !name.is_empty()) {
        let types = named.prepared.param_types().iter().map(|oid| Datum::Int8(i64::from(*oid)));
        rows.add([
            ("name", text(name)),
            ("statement", text(named.message.as_deref().unwrap_or(named.prepared.sql()))),
            ("prepare_time", Value::TimestampTz(named.at_us)),
            ("parameter_types", list(ColumnType::Oid, types)),
            ("from_sql", Value::Bool(named.message.is_some())),
            ("generic_plans", Value::Int8(named.uses().cast_signed())),
            ("custom_plans", Value::Int8(0)),
        ]);
    }
}

fn pg_cursors(world: &World, rows: &mut Rows<'_>) {
    for cursor in &world.held.cursors {
        rows.add([
            ("name", text(&cursor.name)),
            ("statement", text(&*cursor.statement)),
            ("is_holdable", Value::Bool(cursor.is_holdable)),
            ("is_binary", Value::Bool(cursor.is_binary)),
            ("is_scrollable", Value::Bool(cursor.is_scrollable)),
            ("creation_time", Value::TimestampTz(cursor.at_us)),
        ]);
    }
}
