//! A session: statements with and without parameters, prepared statements, transactions.
//!
//! Invariants
//! 1. While an iterator over rows is open, the session belongs to the thread of its query. The next call waits
//!    until that thread has given the session back.

use std::sync::Arc;

use varve_engine::{Datum, Value};
use varve_sql::oid::Oid;
use varve_sql::{Column, CommandTag, Portal, Prepared, Progress, Session, Sink, SqlError, SqlState};

use super::convert::{ToSql, fit};
use super::row::Row;
use super::rows::{Rows, Stream};
use super::transaction::{SqlTransaction, TransactionBuilder};

/// A session: one client of the database, with at most one transaction at a time.
///
/// A statement outside of a transaction is a transaction of its own. When its call returns `Ok`, its changes
/// are durable.
pub struct SqlSession(State);

enum State {
    Ready(Box<Session>),
    /// An iterator over rows was opened.
    Streaming(Stream),
    /// Only inside of `ready` and `stream`.
    Moving,
}

/// A prepared statement. It belongs to the database of its session, and can be used as often as needed.
#[derive(Clone)]
pub struct Statement(pub(super) Arc<Prepared>);

/// The text of one statement, or a prepared statement.
pub trait IntoStatement {
    /// Returns the prepared statement.
    fn into_statement(self, session: &mut SqlSession) -> Result<Statement, SqlError>;
}

impl IntoStatement for &str {
    fn into_statement(self, session: &mut SqlSession) -> Result<Statement, SqlError> {
        session.prepare(self)
    }
}

impl IntoStatement for &String {
    fn into_statement(self, session: &mut SqlSession) -> Result<Statement, SqlError> {
        session.prepare(self)
    }
}

impl IntoStatement for &Statement {
    fn into_statement(self, _: &mut SqlSession) -> Result<Statement, SqlError> {
        Ok(self.clone())
    }
}

impl Statement {
    /// Returns the types of the parameters as OIDs of PostgreSQL, `$1` first.
    pub fn param_types(&self) -> &[Oid] {
        self.0.param_types()
    }

    /// Returns the columns of the result. Empty if the statement returns no rows.
    pub fn columns(&self) -> &[Column] {
        self.0.columns().unwrap_or_default()
    }
}

impl SqlSession {
    pub(super) fn new(session: Session) -> SqlSession {
        SqlSession(State::Ready(Box::new(session)))
    }

    /// Runs statements for their effect, without parameters. Several statements are separated by semicolons,
    /// and are one transaction. Returns the number of rows that the last one affected.
    pub fn run(&mut self, sql: &str) -> Result<u64, SqlError> {
        self.gather(sql).map(|gathered| gathered.affected)
    }

    /// Runs statements without parameters. Returns the rows of the last one that has a result.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Row>, SqlError> {
        self.gather(sql).map(|gathered| gathered.rows)
    }

    /// Runs one statement with parameters. Returns the number of rows that it affected or returned.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let db = varve::Embedded::open(directory.path())?;
    /// # let mut session = db.session()?;
    /// session.run("create table item (id integer primary key, name text, price numeric(8, 2))")?;
    /// let count = session.execute("insert into item values ($1, $2, $3)", &[&1, &"lamp", &"12.50"])?;
    /// assert_eq!(count, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn execute(&mut self, statement: impl IntoStatement, params: &[&dyn ToSql]) -> Result<u64, SqlError> {
        self.collect(statement, params).map(|gathered| gathered.affected)
    }

    /// Runs one statement with parameters. Returns all of its rows.
    pub fn query_with(
        &mut self,
        statement: impl IntoStatement,
        params: &[&dyn ToSql],
    ) -> Result<Vec<Row>, SqlError> {
        self.collect(statement, params).map(|gathered| gathered.rows)
    }

    /// Runs one statement with parameters that returns exactly one row. The error is 02000 if there is no row,
    /// and 21000 if there are several.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let db = varve::Embedded::open(directory.path())?;
    /// # let mut session = db.session()?;
    /// let row = session.query_one("select $1 + 1 as next, $2 as note", &[&41, &None::<&str>])?;
    /// let next: i64 = row.get("next")?;
    /// let note: Option<String> = row.get(1)?;
    /// assert_eq!((next, note), (42, None));
    /// let error = row.get::<bool>("next").unwrap_err();
    /// assert_eq!(&*error.message, "column \"next\" has the type integer, which is not read as bool");
    /// # Ok(())
    /// # }
    /// ```
    pub fn query_one(
        &mut self,
        statement: impl IntoStatement,
        params: &[&dyn ToSql],
    ) -> Result<Row, SqlError> {
        let none = || SqlError::new(NO_DATA, "the query returned no row, but one was expected");
        self.query_opt(statement, params)?.ok_or_else(none)
    }

    /// Runs one statement with parameters that returns at most one row. The error is 21000 if there are
    /// several.
    pub fn query_opt(
        &mut self,
        statement: impl IntoStatement,
        params: &[&dyn ToSql],
    ) -> Result<Option<Row>, SqlError> {
        let mut rows = self.query_with(statement, params)?;
        if rows.len() > 1 {
            let message = format!("the query returned {} rows, but at most one was expected", rows.len());
            return Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message));
        }
        Ok(rows.pop())
    }

    /// Runs one statement with parameters, and returns an iterator over its rows. The statement runs in a
    /// thread of its own while the rows are read, a few hundred rows ahead. So the result may be larger than
    /// the memory. If a query is dropped before its end, it is stopped. A statement that changes rows always
    /// runs to its end.
    ///
    /// For few rows, `query_with` is faster, because it starts no thread.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let db = varve::Embedded::open(directory.path())?;
    /// # let mut session = db.session()?;
    /// let mut sum = 0;
    /// for row in session.query_iter("select n from generate_series(1, $1::bigint) n", &[&1000])? {
    ///     sum += row?.get::<i64>("n")?;
    /// }
    /// assert_eq!(sum, 500_500);
    /// # Ok(())
    /// # }
    /// ```
    pub fn query_iter(
        &mut self,
        statement: impl IntoStatement,
        params: &[&dyn ToSql],
    ) -> Result<Rows<'_>, SqlError> {
        let statement = statement.into_statement(self)?;
        let params = self.bind(&statement, params)?;
        self.ready();
        let State::Ready(session) = std::mem::replace(&mut self.0, State::Moving) else {
            unreachable!("the session was made ready")
        };
        match Stream::start(session, statement, params) {
            Ok(stream) => {
                self.0 = State::Streaming(stream);
                Ok(Rows::new(self))
            }
            Err((session, error)) => {
                self.0 = State::Ready(session);
                Err(error)
            }
        }
    }

    /// Prepares a statement, so that it is parsed and planned once for many executions.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let db = varve::Embedded::open(directory.path())?;
    /// # let mut session = db.session()?;
    /// session.run("create table item (id integer primary key, name text)")?;
    /// let insert = session.prepare("insert into item values ($1, $2)")?;
    /// for (id, name) in [(1, "lamp"), (2, "chair")] {
    ///     session.execute(&insert, &[&id, &name])?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn prepare(&mut self, sql: &str) -> Result<Statement, SqlError> {
        let session = self.ready();
        let prepared = session.prepare(sql, &[]);
        let ended = session.sync();
        let prepared = prepared?;
        ended?;
        Ok(Statement(prepared))
    }

    /// Begins a transaction at the default level, READ COMMITTED. It is rolled back if the guard is dropped
    /// without `commit`.
    pub fn transaction(&mut self) -> Result<SqlTransaction<'_>, SqlError> {
        self.build_transaction().start()
    }

    /// Returns a builder of a transaction with another isolation level, or of a read-only one.
    pub fn build_transaction(&mut self) -> TransactionBuilder<'_> {
        TransactionBuilder::new(self)
    }

    /// Returns the SQL session, for portals, COPY, notices, settings and cancel requests.
    pub fn inner(&mut self) -> &mut Session {
        self.ready()
    }

    /// Returns the session. If an iterator over rows was not ended, ends it.
    pub(super) fn ready(&mut self) -> &mut Session {
        if matches!(self.0, State::Streaming(_))
            && let State::Streaming(stream) = std::mem::replace(&mut self.0, State::Moving)
        {
            self.0 = State::Ready(stream.end());
        }
        match &mut self.0 {
            State::Ready(session) => session,
            State::Streaming(_) | State::Moving => unreachable!("a stream was ended"),
        }
    }

    /// Returns the open iterator's stream.
    pub(super) fn stream(&mut self) -> Option<&mut Stream> {
        match &mut self.0 {
            State::Streaming(stream) => Some(stream),
            State::Ready(_) | State::Moving => None,
        }
    }

    fn gather(&mut self, sql: &str) -> Result<Gathered, SqlError> {
        let mut gathered = Gathered { columns: Arc::from([]), rows: Vec::new(), affected: 0 };
        self.ready().simple(sql, &mut gathered)?;
        Ok(gathered)
    }

    fn collect(
        &mut self,
        statement: impl IntoStatement,
        params: &[&dyn ToSql],
    ) -> Result<Gathered, SqlError> {
        let statement = statement.into_statement(self)?;
        let params = self.bind(&statement, params)?;
        let columns = Arc::from(statement.columns());
        let mut gathered = Gathered { columns, rows: Vec::new(), affected: 0 };
        gathered.affected = run_bound(self.ready(), &statement, &params, &mut gathered)?;
        Ok(gathered)
    }

    /// Converts parameters to the types that the statement expects.
    fn bind(&mut self, statement: &Statement, params: &[&dyn ToSql]) -> Result<Vec<Value>, SqlError> {
        let types = statement.param_types();
        if types.len() != params.len() {
            let message =
                format!("the statement has {} parameters, but {} were given", types.len(), params.len());
            return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message));
        }
        let session = self.ready();
        let reading = session.reading();
        let numbered = params.iter().zip(types).enumerate();
        numbered.map(|(number, (param, oid))| fit(param.to_sql(), *oid, number + 1, &reading)).collect()
    }
}

/// The SQLSTATE of a missing row.
const NO_DATA: SqlState = SqlState("02000");

/// Runs a statement, and commits if no transaction is open. Returns the number of rows.
pub(super) fn run_bound(
    session: &mut Session,
    statement: &Statement,
    params: &[Value],
    sink: &mut dyn Sink,
) -> Result<u64, SqlError> {
    let params: Vec<Datum<'_>> = params.iter().map(Value::as_datum).collect();
    let done = session.execute(&statement.0, &params, &mut Portal::default(), 0, sink);
    let committed = session.sync();
    let progress = done?;
    committed?;
    Ok(match progress {
        Progress::Complete(tag) => affected(&tag),
        Progress::Suspended => 0,
    })
}

fn affected(tag: &CommandTag) -> u64 {
    match *tag {
        CommandTag::Select(count)
        | CommandTag::Insert(count)
        | CommandTag::Update(count)
        | CommandTag::Delete(count)
        | CommandTag::Copy(count)
        | CommandTag::Fetch(count)
        | CommandTag::Move(count) => count,
        CommandTag::Plain(_) | CommandTag::Empty => 0,
    }
}

/// All rows of a result.
struct Gathered {
    columns: Arc<[Column]>,
    rows: Vec<Row>,
    affected: u64,
}

impl Sink for Gathered {
    fn columns(&mut self, columns: &[Column]) -> Result<(), SqlError> {
        self.columns = columns.into();
        self.rows.clear();
        Ok(())
    }

    fn row(&mut self, row: &[Datum<'_>]) -> Result<(), SqlError> {
        self.rows.push(Row::new(self.columns.clone(), row));
        Ok(())
    }

    fn complete(&mut self, tag: &CommandTag) -> Result<(), SqlError> {
        self.affected = affected(tag);
        Ok(())
    }
}
