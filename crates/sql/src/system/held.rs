//! System tables about the prepared statements and cursors of a session.

use std::sync::Arc;

use varve_engine::{ColumnType, Datum, Value};

use super::{Fill, Rows, SystemContext, list, text};

/// The prepared statements of a session, as `pg_prepared_statements` shows them.
pub(crate) trait ShownStatements: Send + Sync {
    /// Calls `show` for each named statement.
    fn each(&self, show: &mut dyn FnMut(ShownStatement<'_>));
}

/// A prepared statement as `pg_prepared_statements` shows it.
pub(crate) struct ShownStatement<'s> {
    pub(crate) name: &'s str,
    /// The client's message that prepared the statement. If it was a Parse message, this is the statement
    /// itself.
    pub(crate) statement: &'s str,
    /// The time when it was prepared, in microseconds since 2000-01-01 UTC.
    pub(crate) at_us: i64,
    /// The OIDs of its parameters' types.
    pub(crate) parameter_types: &'s [u32],
    /// Whether PREPARE made the statement, and not the protocol.
    pub(crate) from_sql: bool,
    /// The number of times that the statement was bound.
    pub(crate) uses: u64,
}

/// The prepared statements and cursors of a session.
pub struct HeldObjects {
    /// Prepared statements.
    pub(crate) statements: Arc<dyn ShownStatements>,
    /// Cursors, including the portals of the protocol.
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
    /// The time of its creation, in microseconds since 2000-01-01 UTC.
    pub(crate) at_us: i64,
}

/// Returns the code for the tables of this file.
pub fn fill(name: &str) -> Option<Fill> {
    Some(match name {
        "pg_prepared_statements" => pg_prepared_statements,
        "pg_cursors" => pg_cursors,
        _ => return None,
    })
}

/// Shows the prepared statements. Varve makes each plan for all values of the parameters, so it counts as a
/// generic plan.
fn pg_prepared_statements(world: &SystemContext, rows: &mut Rows<'_>) {
    world.held.statements.each(&mut |shown| {
        let types = shown.parameter_types.iter().map(|oid| Datum::Int8(i64::from(*oid)));
        rows.add([
            ("name", text(shown.name)),
            ("statement", text(shown.statement)),
            ("prepare_time", Value::TimestampTz(shown.at_us)),
            ("parameter_types", list(ColumnType::Oid, types)),
            ("from_sql", Value::Bool(shown.from_sql)),
            ("generic_plans", Value::Int8(shown.uses.cast_signed())),
            ("custom_plans", Value::Int8(0)),
        ]);
    });
}

fn pg_cursors(world: &SystemContext, rows: &mut Rows<'_>) {
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
