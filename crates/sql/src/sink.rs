//! The interface through which a session sends results: columns, rows, tags and notices. COPY data goes in
//! and out through it, too.
//!
//! Invariants
//! 1. For one statement the calls are `columns? row* complete`. If the statement fails, the session returns
//!    an error instead of `complete`.
//! 2. A `Datum` that is passed to `row` is valid only during the call.
//!
//! This module knows nothing about the wire format. The crate `server` implements `Sink` with its encoder.

use varve_engine::Datum;

use crate::encoding::Encoding;
use crate::error::{Result, SqlError};
use crate::oid::Oid;
use crate::time::TimeForms;

/// The column of a table or view that a result column shows as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// OID of the table or view.
    pub relation: Oid,
    /// Number of the column there, from 1.
    pub number: i16,
}

/// One result column as RowDescription shows it.
#[derive(Debug, Clone, Eq)]
pub struct Column {
    /// Name shown to the client.
    pub name: Box<str>,
    /// Type.
    pub type_oid: Oid,
    /// Type modifier, -1 for none.
    pub typmod: i32,
    /// What it shows, if that is a column as it is.
    pub origin: Option<Origin>,
}

/// Whether a client may take one for the other: the same values, whatever table they come from.
impl PartialEq for Column {
    fn eq(&self, other: &Column) -> bool {
        self.name == other.name && self.type_oid == other.type_oid && self.typmod == other.typmod
    }
}

/// What CommandComplete says.
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
    /// The text was empty: EmptyQueryResponse takes the place of a tag.
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

/// How an `execute` ended without an error.
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

/// Shape of a COPY that is about to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyShape {
    /// How many columns CopyInResponse or CopyOutResponse announces.
    pub column_count: usize,
    /// Whether all of them are in binary format; else all in text.
    pub is_binary: bool,
}

/// Receiver of the results of one statement. Results without a method of their own are dropped; COPY is
/// refused.
pub trait Sink {
    /// The result has these columns. Called by `Session::simple` only; with `execute` the caller has
    /// `Prepared::columns` already.
    fn columns(&mut self, columns: &[Column]) -> Result<()> {
        let _ = columns;
        Ok(())
    }
    /// The result whose columns come next is in binary format, as a BINARY cursor's is in the simple
    /// protocol.
    fn binary_columns(&mut self) {}
    /// Whether a column of the result that comes next is wanted in binary: an OID with a name is an OID then.
    fn is_binary(&self, column: usize) -> bool {
        let _ = column;
        false
    }
    /// The session's time zone and styles, in which the rows of the next statement are shown; called where a
    /// statement of `Session::simple` may have changed it.
    fn forms(&mut self, forms: &TimeForms) {
        let _ = forms;
    }
    /// The encoding of texts for the client from now on; called with `forms`.
    fn encoding(&mut self, encoding: Encoding) {
        let _ = encoding;
    }
    /// One row, in column order.
    fn row(&mut self, row: &[Datum<'_>]) -> Result<()>;
    /// A statement of `Session::simple` is done (never called by `execute`, which returns the tag).
    fn complete(&mut self, tag: &CommandTag) -> Result<()> {
        let _ = tag;
        Ok(())
    }
    /// `Session::simple` was given nothing to do.
    fn empty(&mut self) -> Result<()> {
        Ok(())
    }
    /// A warning or notice.
    fn notice(&mut self, severity: Severity, notice: &SqlError) {
        let _ = (severity, notice);
    }
    /// Runs the client's side of COPY FROM STDIN: announce it (CopyInResponse), then pass the payload of each
    /// CopyData to `feed` in order, until CopyDone (return `Ok`) or CopyFail (return its error, SQLSTATE
    /// 57014). If `feed` fails, stop feeding and return its error; the rest of the copy stream is the
    /// caller's to skip.
    fn copy_in(&mut self, shape: CopyShape, feed: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let _ = (shape, feed);
        Err(SqlError::unsupported("COPY FROM STDIN on this connection"))
    }
    /// COPY TO STDOUT begins: announce it (CopyOutResponse).
    fn copy_out(&mut self, shape: CopyShape) -> Result<()> {
        let _ = shape;
        Err(SqlError::unsupported("COPY TO STDOUT on this connection"))
    }
    /// The next piece of COPY TO STDOUT, one row (CopyData).
    fn copy_data(&mut self, piece: &[u8]) -> Result<()> {
        let _ = piece;
        Err(SqlError::unsupported("COPY TO STDOUT on this connection"))
    }
    /// COPY TO STDOUT has no more pieces (CopyDone).
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
