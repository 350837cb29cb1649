//! Fuzzes SQL: any text is parsed, bound, and run on a small database in memory.
//!
//! The input is the text.

use std::cell::RefCell;
use std::sync::Arc;

use varve_engine::{Datum, Value};
use varve_sql::{Portal, SqlDatabase, SqlError, text};

use crate::database::{self, Shown};

/// The number of inputs that run on one database before a new one is made.
const RUNS_MAX: u32 = 300;

thread_local! {
    static DATABASE: RefCell<Option<(u32, Arc<SqlDatabase>)>> = const { RefCell::new(None) };
}

/// Returns the database. After some runs a new one is made, because earlier inputs leave objects in it.
fn shared() -> Arc<SqlDatabase> {
    DATABASE.with_borrow_mut(|place| {
        let (runs, shared) =
            place.take().filter(|(runs, _)| *runs < RUNS_MAX).unwrap_or_else(|| (0, database::open()));
        *place = Some((runs + 1, shared.clone()));
        shared
    })
}

/// Checks that an error has an SQLSTATE and a message.
fn told(error: &SqlError) {
    assert_eq!(error.sqlstate.to_string().len(), 5);
    assert!(!error.message.is_empty(), "an error without words");
    assert_ne!(error.sqlstate.to_string(), "XX001", "a sound database is called damaged: {}", error.message);
}

/// Checks that a text is refused, or that its statement has a type for every parameter and column.
pub fn sql_bind(bytes: &[u8]) {
    let Ok(sql) = std::str::from_utf8(bytes) else { return };
    let mut session = database::session(&shared());
    match session.prepare(sql, &[]) {
        Ok(prepared) => {
            let count = prepared.param_types().len();
            let types: Vec<_> = (0..count).map(|index| prepared.param_column_type(index)).collect();
            std::hint::black_box((types, prepared.columns().map(<[_]>::len)));
        }
        Err(error) => told(&error),
    }
}

/// Checks that a text is refused with a message and a position, or is parsed, and that the stored text of its
/// definition can be parsed again. Bytes that are not UTF-8 are replaced.
pub fn sql_parse(bytes: &[u8]) {
    let sql = String::from_utf8_lossy(bytes);
    if let Err(error) = varve_sql::fuzzing::read_statement(&sql) {
        told(&error);
        let end = sql.chars().count() as u32 + 1;
        assert!(error.position.is_none_or(|at| (1..=end).contains(&at)), "{error} is not in the text");
    }
}

/// Checks that a text runs or is refused, as a simple query and as a prepared statement, and that the session
/// can be used after both.
pub fn sql_run(bytes: &[u8]) {
    let Ok(sql) = std::str::from_utf8(bytes) else { return };
    let shared = shared();
    let mut session = database::session(&shared);
    let simple = session.simple(sql, &mut Shown::default());
    simple.err().iter().for_each(told);
    // Ends a transaction that the text has left open.
    let _ = session.simple("rollback; reset all", &mut Shown::default());
    extended(&mut session, sql).err().iter().for_each(told);
    // An error of the commit was already checked.
    let _ = session.sync();
    let _ = session.simple("rollback", &mut Shown::default());
    let mut after = Shown::default();
    let alive = session.simple("select 41 + 1", &mut after);
    assert!(alive.is_ok() && after.lines[1] == "42|", "the session is no use any more: {alive:?}");
}

fn extended(session: &mut varve_sql::Session, sql: &str) -> Result<(), SqlError> {
    let prepared = session.prepare(sql, &[])?;
    let count = prepared.param_types().len();
    let value = |index| {
        let column = prepared.param_column_type(index);
        ["3", "2020-02-29", "x"].iter().find_map(|given| text::parse_text(given, &column).ok())
    };
    let values: Vec<Value> = (0..count).map(|index| value(index).unwrap_or(Value::Null)).collect();
    let data: Vec<Datum<'_>> = values.iter().map(Value::as_datum).collect();
    let mut portal = Portal::default();
    for _ in 0..20 {
        let progress = session.execute(&prepared, &data, &mut portal, 2, &mut Shown::default())?;
        if matches!(progress, varve_sql::Progress::Complete(_)) {
            break;
        }
    }
    Ok(())
}
