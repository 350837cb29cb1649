//! The embedded database as a target of workloads: this module opens an engine in its own process, with the
//! SQL layer above it.

use std::path::Path;
use std::sync::Arc;

use varve_device::{FileDirectory, FileOptions};
use varve_engine::{ColumnType, Database, Datum, Numeric, Options};
use varve_pager::PagerConfig;
use varve_sql::general::General;
use varve_sql::{
    Column, CommandTag, Portal, Prepared, Session, SessionParams, Severity, Sink, SqlDatabase, SqlError,
};

use crate::database::{Connection, MeasuredDatabase, Param, Row, Statement, Value};
use crate::numeric::DECIMAL_PLACES;
use crate::{BenchError, Result};

/// Opens or creates a database in a directory of this machine, with the defaults and a pool of this size.
pub fn open(directory: &Path, pool_bytes: usize) -> Result<Arc<Database>> {
    let files =
        FileDirectory::open_or_create(directory, FileOptions::default()).map_err(std::io::Error::other)?;
    let mut pager = PagerConfig::new(files);
    pager.pool_bytes = pool_bytes;
    open_with(pager)
}

/// Opens or creates a database as the configuration says.
pub fn open_with(pager: PagerConfig) -> Result<Arc<Database>> {
    Ok(Database::open(Options::new(pager))?)
}

/// An open database in this process, as a target of workloads.
pub struct Embedded {
    shared: Arc<SqlDatabase>,
    settings: String,
}

impl Embedded {
    /// Makes a target of a database that [`open`] returned. The target refuses general queries.
    pub fn new(database: Arc<Database>, settings: &str) -> Self {
        Self { shared: Arc::new(SqlDatabase::new(database)), settings: settings.to_owned() }
    }

    /// Makes a target like [`Embedded::new`] that runs general queries with `general`.
    pub fn with_general(database: Arc<Database>, general: Arc<dyn General>, settings: &str) -> Self {
        let shared = Arc::new(SqlDatabase::new(database).with_general(general));
        Self { shared, settings: settings.to_owned() }
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

impl MeasuredDatabase for Embedded {
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
        // Preparing has begun a transaction. It ends here: otherwise the first measured transaction would run
        // in it, and at its isolation level.
        session.sync()?;
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
        let mut counter = Counter::default();
        self.run_into(number, params, &mut counter)?;
        Ok(counter.rows)
    }

    fn rows(&mut self, number: usize, params: &[Param<'_>]) -> Result<Vec<Row>> {
        let mut gathered = Gathered::default();
        self.run_into(number, params, &mut gathered)?;
        Ok(gathered.0)
    }
}

impl EmbeddedConnection {
    fn run_into(&mut self, number: usize, params: &[Param<'_>], sink: &mut dyn Sink) -> Result<()> {
        let prepared = &self.prepared[number];
        let numerics: Vec<Numeric> = params.iter().filter_map(numeric).collect();
        let mut rest = numerics.iter();
        let typed: Vec<Datum<'_>> = params
            .iter()
            .enumerate()
            .map(|(at, param)| datum(*param, prepared.param_column_type(at), &mut rest))
            .collect();
        let done = self.session.execute(prepared, &typed, &mut Portal::default(), 0, sink);
        let synced = self.session.sync();
        done?;
        Ok(synced?)
    }
}

/// Returns the numeric value of a parameter, if it has one. It is made before the [`Datum`] of the parameter,
/// because a [`Datum`] only borrows its numeric value.
fn numeric(param: &Param<'_>) -> Option<Numeric> {
    match param {
        Param::Decimal(value) => Some(Numeric::from_unscaled(*value, DECIMAL_PLACES)),
        Param::Int(_) | Param::Text(_) | Param::Bytes(_) => None,
    }
}

fn datum<'a>(
    param: Param<'a>,
    kind: ColumnType,
    numerics: &mut impl Iterator<Item = &'a Numeric>,
) -> Datum<'a> {
    match param {
        Param::Text(text) => Datum::Text(text),
        Param::Bytes(bytes) => Datum::Bytea(bytes),
        Param::Decimal(_) => numerics.next().map_or(Datum::Null, |value| Datum::Numeric(value.as_ref())),
        Param::Int(value) => match kind {
            ColumnType::Int2 => Datum::Int2(value as i16),
            ColumnType::Int4 => Datum::Int4(value as i32),
            _ => Datum::Int8(value),
        },
    }
}

fn value(datum: &Datum<'_>) -> Value {
    match datum {
        Datum::Null => Value::Null,
        Datum::Text(text) => Value::Text((*text).to_owned()),
        Datum::Bytea(bytes) => Value::Bytes(bytes.to_vec()),
        Datum::Numeric(numeric) => match numeric.to_unscaled() {
            Some((unscaled, scale)) => in_ten_thousandths(unscaled, scale),
            None => Value::Other,
        },
        other => other.as_integer().map_or(Value::Other, Value::Int),
    }
}

fn in_ten_thousandths(unscaled: i64, scale: u16) -> Value {
    let missing = DECIMAL_PLACES.checked_sub(scale).map(|places| 10i64.pow(u32::from(places)));
    missing.and_then(|factor| unscaled.checked_mul(factor)).map_or(Value::Other, Value::Decimal)
}

/// A sink that keeps all rows.
#[derive(Default)]
struct Gathered(Vec<Row>);

impl Sink for Gathered {
    fn columns(&mut self, _columns: &[Column]) -> varve_sql::Result<()> {
        Ok(())
    }

    fn row(&mut self, row: &[Datum<'_>]) -> varve_sql::Result<()> {
        self.0.push(row.iter().map(value).collect());
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

/// A sink that counts rows and keeps the first column of the first row.
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
