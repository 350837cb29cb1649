//! The target of a workload: a database that runs SQL statements with parameters.
//!
//! 1. A workload passes all its statements once, to [`MeasuredDatabase::connect`]. Later it runs them by
//!    number. So a target need not parse statements during the measured time.
//! 2. A `run` that is not between BEGIN and COMMIT is a transaction. It is durable when `run` returns.

use crate::Result;

/// The text of a statement, with `$1`, `$2`, ... for its parameters.
pub type Statement = String;

/// A parameter of a statement. The target converts it to the type that the statement expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Param<'a> {
    /// A value of type smallint, integer or bigint.
    Int(i64),
    /// A value of type numeric, as a number of ten-thousandths.
    Decimal(i64),
    /// A value of any text type.
    Text(&'a str),
    /// A value of type bytea.
    Bytes(&'a [u8]),
}

/// A value of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// NULL of any type.
    Null,
    /// A value of type smallint, integer or bigint.
    Int(i64),
    /// A value of type numeric with at most four digits after the point, as a number of ten-thousandths.
    Decimal(i64),
    /// A value of any text type.
    Text(String),
    /// A value of type bytea.
    Bytes(Vec<u8>),
    /// A value of a type that no workload reads.
    Other,
}

/// A row of a result.
pub type Row = Vec<Value>;

/// A database that can be measured.
pub trait MeasuredDatabase: Send + Sync {
    /// Returns the name of the target in reports: `embedded`, `wire`.
    fn name(&self) -> &'static str;

    /// Returns a description of the target and its configuration, for the configuration hash.
    fn describe(&self) -> String;

    /// Opens a session and prepares these statements in it.
    fn connect(&self, statements: &[Statement]) -> Result<Box<dyn Connection>>;
}

/// One session with the database. Only one thread at a time uses it.
pub trait Connection: Send {
    /// Runs a text of one or more statements without parameters. Workloads use it to make and load tables.
    fn simple(&mut self, sql: &str) -> Result<()>;

    /// Runs a statement and returns the first column of its first row as text. Workloads use it for checks
    /// outside the measured time.
    fn scalar(&mut self, sql: &str) -> Result<String>;

    /// Runs a statement, and returns how many rows it returned. `number` is its index in the list that was
    /// passed to [`MeasuredDatabase::connect`].
    fn run(&mut self, number: usize, params: &[Param<'_>]) -> Result<u64>;

    /// Runs a statement like [`Connection::run`], but returns its rows. Workloads use it if later statements
    /// depend on the rows.
    fn rows(&mut self, number: usize, params: &[Param<'_>]) -> Result<Vec<Row>>;
}
