//! A target in this process: the SQL layer over an engine that this module opens.

use std::path::Path;
use std::sync::Arc;

use varve_device::{FileDirectory, FileOptions};
use varve_engine::{ColumnType, Database, Datum, Options};
use varve_pager::PagerConfig;
use varve_sql::{
    Column, CommandTag, Portal, Prepared, Session, SessionParams, Severity, Sink, SqlDatabase, SqlError,
};

use crate::target::{Connection, Param, Statement, Target};
use crate::{BenchError, Result};

/// Opens or creates a database in a directory of this machine, with the defaults and a pool of so many bytes.
pub fn open(directory: &Path, pool_bytes: usize) -> Result<Arc<Database>> {
    let files =
        FileDirectory::open_or_create(directory, FileOptions::default()).map_err(std::io::Error::other)?;
    let mut pager = PagerConfig::new(files);
    pager.pool_bytes = pool_bytes;
    Ok(Database::open(Options::new(pager))?)
}

/// An open database as a target.
pub struct Embedded {
    shared: Arc<SqlDatabase>,
    settings: String,
}

impl Embedded {
    /// Over a database that [`open`] gave.
    pub fn new(database: Arc<Database>, settings: &str) -> Self {
        Self { shared: Arc::new(SqlDatabase::new(database)), settings: settings.to_owned() }
    }

    fn session(&self) -> Result<Session> {
        let params = SessionParams {
            user: "postgres".into(),
            database: "postgres".into(),
            ..SessionParams::default()
        };
        Ok(Session::new(Arc::clone(&self.shared), params)?)
    }
}

impl Target for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn describe(&self) -> String {
        self.settings.clone()
    }

    fn connect(&self, statements: &[Statement]) -> Result<Box<dyn Connection>> {
        let mut session = self.session()?;
        let prepared =
            statements.iter().map(|sql| session.prepare(sql, &[])).collect::<std::result::Result<_, _>>()?;
        Ok(Box::new(EmbeddedConnection { session, prepared }))
    }
}

struct EmbeddedConnection {
    session: Session,
    prepared: Vec<Arc<Prepared>>,
}

impl Connection for EmbeddedConnection {
    fn simple(&mut self, sql: &str) -> Result<()> {
        Ok(self.session.simple(sql, &mut Counter::default())?)
    }

    fn scalar(&mut self, sql: &str) -> Result<String> {
        let mut counter = Counter::default();
        self.session.simple(sql, &mut counter)?;
        counter.first.ok_or_else(|| BenchError::Wrong(format!("no value from {sql}")))
    }

    fn run(&mut self, number: usize, params: &[Param<'_>]) -> Result<u64> {
        let prepared = &self.prepared[number];
        let typed: Vec<Datum<'_>> = params
            .iter()
            .enumerate()
            .map(|(at, param)| datum(*param, prepared.param_column_type(at)))
            .collect();
        let mut counter = Counter::default();
        let done = self.session.execute(prepared, &typed, &mut Portal::default(), 0, &mut counter);
        let synced = self.session.sync();
        done?;
        synced?;
        Ok(counter.rows)
    }
}

fn datum(param: Param<'_>, kind: ColumnType) -> Datum<'_> {
    match param {
        Param::Text(text) => Datum::Text(text),
        Param::Int(value) => match kind {
            ColumnType::Int2 => Datum::Int2(value as i16),
            ColumnType::Int4 => Datum::Int4(value as i32),
            _ => Datum::Int8(value),
        },
    }
}

/// Counts rows and keeps the first value.
#[derive(Default)]
struct Counter {
    rows: u64,
    first: Option<String>,
}

impl Sink for Counter {
    fn columns(&mut self, _columns: &[Column]) -> varve_sql::Result<()> {
        Ok(())
    }

    fn row(&mut self, row: &[Datum<'_>]) -> varve_sql::Result<()> {
        if self.rows == 0 {
            let mut text = Vec::new();
            if let Some(value) = row.first() {
                varve_sql::text::write_text(*value, &mut text);
            }
            self.first = Some(String::from_utf8_lossy(&text).into_owned());
        }
        self.rows += 1;
        Ok(())
    }

    fn complete(&mut self, _tag: &CommandTag) -> varve_sql::Result<()> {
        Ok(())
    }

    fn empty(&mut self) -> varve_sql::Result<()> {
        Ok(())
    }

    fn notice(&mut self, _severity: Severity, _notice: &SqlError) {}
}
