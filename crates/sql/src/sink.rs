//! The interface through which a session sends results: columns, rows, tags and notices. COPY data goes in
//! and out through it, too.
//!
//! Invariants
//! 1. The calls for one statement are `columns? row* complete`. If the statement fails, the session returns
//!    an error instead of `complete`.
//! 2. A `Datum` that is passed to `row` is valid only during the call.
//!
//! This module does not know the wire format. The crate `server` implements `Sink` with its encoder.

use varve_engine::Datum;

use crate::encoding::Encoding;
use crate::error::{Result, SqlError};
use crate::oid::Oid;
use crate::time::TimeForms;

/// The column of a table or view that a result column shows unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// OID of the table or view.
    pub relation: Oid,
    /// Number of the column in it, from 1.
    pub number: i16,
}

/// A result column as in RowDescription.
#[derive(Debug, Clone, Eq)]
pub struct Column {
    /// Name shown to the client.
    pub name: Box<str>,
    /// Type.
    pub type_oid: Oid,
    /// Type modifier, -1 for none.
    pub typmod: i32,
    /// The column of a relation that it shows unchanged, if it shows one.
    pub origin: Option<Origin>,
}

/// Two columns are equal if a client cannot distinguish them. Their tables do not matter.
impl PartialEq for Column {
    fn eq(&self, other: &Column) -> bool {
        self.name == other.name && self.type_oid == other.type_oid && self.typmod == other.typmod
    }
}

/// The tag in CommandComplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandTag {
    /// `SELECT n`
    Select(u64),
    /// `INSERT 0 n`
    Insert(u64),
    /// `UPDATE n`
    Update(u64),
    /// `DELETE n`
    Delete(u64),
    /// `COPY n`
    Copy(u64),
    /// `FETCH n`
    Fetch(u64),
    /// `MOVE n`
    Move(u64),
    /// A fixed tag such as `BEGIN`.
    Plain(&'static str),
    /// The text was empty. EmptyQueryResponse replaces the tag.
    Empty,
}

impl CommandTag {
    /// Appends the tag's text, without a terminator.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (verb, count) = match *self {
            CommandTag::Select(n) => ("SELECT ", n),
            CommandTag::Insert(n) => ("INSERT 0 ", n),
            CommandTag::Update(n) => ("UPDATE ", n),
            CommandTag::Delete(n) => ("DELETE ", n),
            CommandTag::Copy(n) => ("COPY ", n),
            CommandTag::Fetch(n) => ("FETCH ", n),
            CommandTag::Move(n) => ("MOVE ", n),
            CommandTag::Plain(text) => return out.extend_from_slice(text.as_bytes()),
            CommandTag::Empty => return,
        };
        out.extend_from_slice(verb.as_bytes());
        out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    }
}

impl std::fmt::Display for CommandTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = Vec::new();
        self.write(&mut out);
        f.write_str(&String::from_utf8_lossy(&out))
    }
}

/// The result of an `execute` without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The statement is done.
    Complete(CommandTag),
    /// `max_rows` rows were sent and more may follow: PortalSuspended.
    Suspended,
}

/// Severity of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// NOTICE
    Notice,
    /// WARNING
    Warning,
}

/// The columns and the format of a COPY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyShape {
    /// The number of columns in CopyInResponse or CopyOutResponse.
    pub column_count: usize,
    /// Whether all of them are in binary format. Otherwise all are text.
    pub is_binary: bool,
}

/// Receives the results of one statement. By default, results are dropped, and COPY is refused.
pub trait Sink {
    /// Receives the columns of the result. Only `Session::simple` calls it. With `execute` the caller already
    /// has `Prepared::columns`.
    fn columns(&mut self, columns: &[Column]) -> Result<()> {
        let _ = columns;
        Ok(())
    }
    /// Says that the next result is in binary format, as for a BINARY cursor in the simple protocol.
    fn binary_columns(&mut self) {}
    /// Returns whether a column of the next result is requested in binary. Then an OID that has a name is
    /// sent as an OID.
    fn is_binary(&self, column: usize) -> bool {
        let _ = column;
        false
    }
    /// Sets the time zone and styles for the rows of the next statement. It is called when a statement of
    /// `Session::simple` may have changed them.
    fn forms(&mut self, forms: &TimeForms) {
        let _ = forms;
    }
    /// Sets the encoding of texts for the client. It is called together with `forms`.
    fn encoding(&mut self, encoding: Encoding) {
        let _ = encoding;
    }
    /// Returns whether the sink wants no more rows. If `row` fails with `SqlState::ENOUGH_ROWS` and
    /// this is true, `Session::execute` ends a query without an error, as a suspended portal. Statements that change rows run to their end.
    fn has_enough(&self) -> bool {
        false
    }
    /// Receives a row, in column order.
    fn row(&mut self, row: &[Datum<'_>]) -> Result<()>;
    /// Receives the tag when a statement of `Session::simple` is done. (`execute` does not call it, but
    /// returns the tag.)
    fn complete(&mut self, tag: &CommandTag) -> Result<()> {
        let _ = tag;
        Ok(())
    }
    /// Is called when `Session::simple` has got an empty text.
    fn empty(&mut self) -> Result<()> {
        Ok(())
    }
    /// Receives a warning or notice.
    fn notice(&mut self, severity: Severity, notice: &SqlError) {
        let _ = (severity, notice);
    }
    /// Runs the client's side of COPY FROM STDIN. It announces the copy (CopyInResponse), and then passes the
    /// payload of each CopyData to `feed` in order. It returns `Ok` after CopyDone, and the error of the
    /// client (SQLSTATE 57014) after CopyFail. If `feed` fails, it stops feeding and returns the error of
    /// `feed`. Then the caller skips the rest of the copy stream.
    fn copy_in(&mut self, shape: CopyShape, feed: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let _ = (shape, feed);
        Err(SqlError::unsupported("COPY FROM STDIN on this connection"))
    }
    /// Announces COPY TO STDOUT to the client (CopyOutResponse).
    fn copy_out(&mut self, shape: CopyShape) -> Result<()> {
        let _ = shape;
        Err(SqlError::unsupported("COPY TO STDOUT on this connection"))
    }
    /// Receives the next row of COPY TO STDOUT (CopyData).
    fn copy_data(&mut self, piece: &[u8]) -> Result<()> {
        let _ = piece;
        Err(SqlError::unsupported("COPY TO STDOUT on this connection"))
    }
    /// Ends COPY TO STDOUT (CopyDone).
    fn copy_done(&mut self) -> Result<()> {
        Err(SqlError::unsupported("COPY TO STDOUT on this connection"))
    }
}

/// Drops all results of a statement, for callers that need only its effect.
#[derive(Debug, Clone, Copy)]
pub struct Nowhere;

impl Sink for Nowhere {
    fn row(&mut self, _: &[Datum<'_>]) -> Result<()> {
        Ok(())
    }
}
