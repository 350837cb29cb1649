//! Helpers for the tests of this crate: a database in memory that can run general queries, and results as
//! lines.

use std::sync::Arc;

use varve_device::MemoryDirectory;
use varve_engine::{Database, Datum, MemoryTables, Options};
use varve_pager::PagerConfig;
use varve_query::{Queries, QueryOptions};
use varve_sql::{
    Column, CommandTag, Result, Session, SessionParams, Severity, Sink, SqlDatabase, SqlError, text,
};

pub fn database() -> Arc<SqlDatabase> {
    database_with(&QueryOptions { memory_bytes: 64 << 20, ..QueryOptions::default() })
}

pub fn database_with(options: &QueryOptions) -> Arc<SqlDatabase> {
    database_of(Arc::new(Queries::new(options).unwrap()))
}

/// Makes a database with this runner.
pub fn database_of(queries: Arc<Queries>) -> Arc<SqlDatabase> {
    let mut pager = PagerConfig::new(MemoryDirectory::new());
    pager.pool_bytes = 16 << 20;
    pager.log_segment_bytes = 1 << 20;
    pager.log_capacity_bytes = 16 << 20;
    pager.background = false;
    let memory = Some(MemoryTables { directory: pager.data.clone(), size_bytes: 8 << 20, partitions: 1 });
    let sql = SqlDatabase::new(
        Database::open(Options { derive: Some(varve_sql::deriver()), memory, ..Options::new(pager) })
            .unwrap(),
    );
    Arc::new(sql.with_general(queries))
}

/// Makes a database whose runner gets each query that it can run.
pub fn forced() -> Arc<SqlDatabase> {
    forced_with(&QueryOptions { memory_bytes: 64 << 20, ..QueryOptions::default() })
}

/// Does the same with these options.
pub fn forced_with(options: &QueryOptions) -> Arc<SqlDatabase> {
    let mut pager = PagerConfig::new(MemoryDirectory::new());
    pager.pool_bytes = 16 << 20;
    pager.log_segment_bytes = 1 << 20;
    pager.log_capacity_bytes = 16 << 20;
    pager.background = false;
    let memory = Some(MemoryTables { directory: pager.data.clone(), size_bytes: 8 << 20, partitions: 1 });
    let queries = Queries::new(options).unwrap();
    let sql = SqlDatabase::new(
        Database::open(Options { derive: Some(varve_sql::deriver()), memory, ..Options::new(pager) })
            .unwrap(),
    );
    Arc::new(sql.with_forced_general(Arc::new(queries)))
}

pub fn session(db: &Arc<SqlDatabase>) -> Session {
    let params = SessionParams {
        user: "postgres".into(),
        database: "postgres".into(),
        proved: None,
        process_id: 7,
        peer: None,
        settings: Vec::new(),
    };
    Session::new(db.clone(), params).unwrap()
}

/// Returns what a simple query gives: rows, tags, errors.
pub fn lines(session: &mut Session, sql: &str) -> Vec<String> {
    let mut recorder = Recorder::default();
    if let Err(e) = session.simple(sql, &mut recorder) {
        recorder.0.push(format!("! {} {}", e.sqlstate, e.message));
    }
    recorder.0
}

/// Returns the error of a simple query that must fail.
pub fn error_of(session: &mut Session, sql: &str) -> SqlError {
    session.simple(sql, &mut Recorder::default()).unwrap_err()
}

#[derive(Default)]
struct Recorder(Vec<String>);

impl Sink for Recorder {
    fn columns(&mut self, _: &[Column]) -> Result<()> {
        Ok(())
    }

    fn row(&mut self, row: &[Datum<'_>]) -> Result<()> {
        let cell = |d: &Datum<'_>| {
            let mut out = Vec::new();
            text::write_text(*d, &mut out);
            if d.is_null() { "NULL".to_owned() } else { String::from_utf8(out).unwrap() }
        };
        let cells: Vec<String> = row.iter().map(cell).collect();
        self.0.push(cells.join("|"));
        Ok(())
    }

    fn complete(&mut self, tag: &CommandTag) -> Result<()> {
        self.0.push(format!("= {tag}"));
        Ok(())
    }

    fn empty(&mut self) -> Result<()> {
        Ok(())
    }

    fn notice(&mut self, _: Severity, _: &SqlError) {}
}
