//! Receives the results of an SQL session and turns rows into messages. For COPY, it passes the client's data
//! to the session.
//!
//! Invariants
//! 1. The buffer has whole messages only. If a value cannot be encoded, the unfinished message is removed
//!    from the buffer.
//! 2. The first row of a statement is only put into the buffer. A read by key returns its one row under the
//!    latch of a page, so waiting for a slow client would block other threads. Later rows come from scans,
//!    which hold no latch.
//! 3. If the connection ends during COPY, or a write fails, the session gets an error. The field `broken`
//!    then holds the reason, and nothing more is written.

use pgwire::messages::copy::{CopyInResponse, CopyOutResponse};
use smallvec::SmallVec;
use varve_engine::{Datum, planted_panic};
use varve_sql::encoding::Encoding;
use varve_sql::oid;
use varve_sql::{Column, CommandTag, CopyShape, Severity, Sink, SqlError, SqlState};

use crate::codec;
use crate::error::WireError;
use crate::frame::{FrameEnd, FrameReader};
use crate::message::{Format, Formats, Message, decode};
use crate::out::Out;
use crate::stream::Stream;
use varve_sql::TimeForms;

type Result<T, E = SqlError> = std::result::Result<T, E>;

/// The format of each result column.
#[derive(Debug, Clone, Default)]
pub struct ColumnFormats(SmallVec<[Format; 8]>);

impl ColumnFormats {
    /// Returns the formats of a Bind message for this many columns.
    pub fn new(formats: &Formats<'_>, column_count: usize) -> Result<Self, WireError> {
        if formats.count() > 1 && formats.count() != column_count {
            let message = format!(
                "bind message has {} result formats but query has {column_count} columns",
                formats.count()
            );
            return Err(WireError::protocol(message));
        }
        (0..column_count).map(|index| formats.get(index)).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the same format for all columns.
    pub fn all(is_binary: bool, column_count: usize) -> Self {
        let format = if is_binary { Format::Binary } else { Format::Text };
        Self(std::iter::repeat_n(format, column_count).collect())
    }

    #[inline]
    fn get(&self, index: usize) -> Format {
        self.0.get(index).copied().unwrap_or_default()
    }
}

/// The sink of one call of a session.
pub struct Results<'a> {
    /// The output for messages.
    pub out: &'a mut Out<Stream>,
    /// The source of COPY input.
    pub reader: &'a mut FrameReader<Stream>,
    /// Formats of the columns. Columns without a format here are text.
    pub formats: &'a ColumnFormats,
    /// The columns, if they are known before the rows.
    pub columns: &'a [Column],
    /// Time zone and styles of the session.
    pub forms: TimeForms,
    /// The columns of a result in which all columns are binary, regardless of `formats`.
    pub binary: Option<Vec<Column>>,
    /// The reason why the connection must end.
    pub broken: Option<FrameEnd>,
}

impl Results<'_> {
    #[inline]
    fn value(&mut self, index: usize, datum: Datum<'_>) -> Result<(), WireError> {
        if datum.is_null() {
            self.out.buffer().extend_from_slice(&(-1_i32).to_be_bytes());
            return Ok(());
        }
        let (columns, format) = match &self.binary {
            None => (self.columns, self.formats.get(index)),
            Some(columns) => (&**columns, Format::Binary),
        };
        let oid = columns.get(index).map_or(oid::TEXT, |column| column.type_oid);
        let at = self.out.begin_value();
        planted_panic("panic at row");
        let start = self.out.buffer().len();
        codec::write(datum, format, oid, &self.forms, self.out.buffer())?;
        let encoding = self.out.encoding();
        if encoding.converts() {
            codec::encode(self.out.buffer(), start, format, oid, encoding)?;
        }
        self.out.end_value(at);
        Ok(())
    }

    fn flush_if_full(&mut self) -> Result<()> {
        self.out.flush_if_full().map_err(|error| self.lost(error.into()))
    }

    fn lost(&mut self, end: FrameEnd) -> SqlError {
        self.broken = Some(end);
        SqlError::new(SqlState("08006"), "the connection to the client is lost")
    }

    /// Returns the next part of COPY input, or `None` at its end.
    fn copy_piece(&mut self) -> Result<Option<&[u8]>> {
        loop {
            // The kind is read first, because the borrow of a returned frame would last for the whole loop.
            let kind = match self.reader.peek_kind() {
                Ok(kind) => kind,
                Err(end) => return Err(self.lost(end)),
            };
            match kind {
                b'd' => break,
                b'c' => return self.skip_frame().map(|()| None),
                b'f' => return Err(self.copy_failed()),
                // Clients may send these together with Execute, before they know that COPY has begun.
                b'H' | b'S' => self.skip_frame()?,
                _ => return Err(self.unexpected(kind)),
            }
        }
        match self.reader.frame() {
            Ok(frame) => Ok(Some(frame.body)),
            Err(end) => {
                self.broken = Some(end);
                Err(SqlError::new(SqlState("08006"), "the connection to the client is lost"))
            }
        }
    }

    fn skip_frame(&mut self) -> Result<()> {
        match self.reader.frame() {
            Ok(_) => Ok(()),
            Err(end) => Err(self.lost(end)),
        }
    }

    fn copy_failed(&mut self) -> SqlError {
        let reason = match self.reader.frame() {
            Ok(frame) => decode(frame).map(|message| match message {
                Message::CopyFail(reason) => reason.to_owned(),
                _ => String::new(),
            }),
            Err(end) => return self.lost(end),
        };
        match reason {
            Ok(reason) => {
                SqlError::new(SqlState::QUERY_CANCELED, format!("COPY from stdin failed: {reason}"))
            }
            Err(error) => error.into(),
        }
    }

    fn unexpected(&mut self, kind: u8) -> SqlError {
        let message = format!("unexpected message type 0x{kind:02X} during COPY from stdin");
        self.lost(FrameEnd::Broken(WireError::fatal("08P01", message)))
    }
}

impl Sink for Results<'_> {
    fn columns(&mut self, columns: &[Column]) -> Result<()> {
        match &mut self.binary {
            None => describe_row(self.out, columns, self.formats)?,
            Some(known) => {
                *known = columns.to_vec();
                describe_row(self.out, columns, &ColumnFormats::all(true, columns.len()))?;
            }
        }
        Ok(())
    }

    fn binary_columns(&mut self) {
        self.binary = Some(Vec::new());
    }

    fn forms(&mut self, forms: &TimeForms) {
        self.forms.clone_from(forms);
    }

    fn encoding(&mut self, encoding: Encoding) {
        self.out.set_encoding(encoding);
    }

    fn is_binary(&self, column: usize) -> bool {
        self.binary.is_some() || self.formats.get(column) == Format::Binary
    }

    fn row(&mut self, row: &[Datum<'_>]) -> Result<()> {
        // The buffer is written before the row and not after it. The one row of a read by key is passed under
        // the latch of its page, where waiting for a slow client would block other threads. A statement
        // begins with a buffer that is not full, so only later rows write. They come from scans, which hold
        // no latch.
        self.flush_if_full()?;
        let message = self.out.begin(b'D');
        self.out.buffer().extend_from_slice(&(row.len() as u16).to_be_bytes());
        for (index, datum) in row.iter().enumerate() {
            // The check is after each value, so that the buffer exceeds the limit by at most one value.
            let added = self.value(index, *datum);
            if let Err(error) = added.and_then(|()| Ok(self.out.check_length(message)?)) {
                self.out.abandon(message);
                return Err(error.into());
            }
        }
        self.out.end(message);
        Ok(())
    }

    fn complete(&mut self, tag: &CommandTag) -> Result<()> {
        self.binary = None;
        complete(self.out, tag);
        self.flush_if_full()
    }

    fn empty(&mut self) -> Result<()> {
        complete(self.out, &CommandTag::Empty);
        Ok(())
    }

    fn notice(&mut self, severity: Severity, notice: &SqlError) {
        tell(self.out, severity, notice.clone());
    }

    fn copy_in(&mut self, shape: CopyShape, feed: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (format, formats) = copy_formats(shape);
        self.out.message(&CopyInResponse::new(format, formats.len() as i16, formats));
        self.out.flush().map_err(|error| self.lost(error.into()))?;
        while let Some(piece) = self.copy_piece()? {
            feed(piece)?;
        }
        Ok(())
    }

    fn copy_out(&mut self, shape: CopyShape) -> Result<()> {
        let (format, formats) = copy_formats(shape);
        self.out.message(&CopyOutResponse::new(format, formats.len() as i16, formats));
        Ok(())
    }

    fn copy_data(&mut self, piece: &[u8]) -> Result<()> {
        // The buffer is written before the data, as for rows.
        self.flush_if_full()?;
        let message = self.out.begin(b'd');
        self.out.buffer().extend_from_slice(piece);
        if let Err(error) = self.out.check_length(message) {
            self.out.abandon(message);
            return Err(error);
        }
        self.out.end(message);
        Ok(())
    }

    fn copy_done(&mut self) -> Result<()> {
        self.out.bare(b'c');
        Ok(())
    }
}

/// Returns the format of a COPY, and that of each column.
fn copy_formats(shape: CopyShape) -> (i8, Vec<i16>) {
    (i8::from(shape.is_binary), vec![i16::from(shape.is_binary); shape.column_count])
}

/// Appends a `RowDescription`. The error is 22P05 if the client's encoding cannot express a character of a
/// name.
pub fn describe_row(
    out: &mut Out<Stream>,
    columns: &[Column],
    formats: &ColumnFormats,
) -> Result<(), WireError> {
    let message = out.begin(b'T');
    out.buffer().extend_from_slice(&(columns.len() as u16).to_be_bytes());
    for (index, column) in columns.iter().enumerate() {
        if let Err(error) = out.name(&column.name) {
            out.abandon(message);
            return Err(error);
        }
        let format = match formats.get(index) {
            Format::Text => 0_u16,
            Format::Binary => 1,
        };
        let buffer = out.buffer();
        let (relation, number) = column.origin.map_or((0, 0), |origin| (origin.relation, origin.number));
        buffer.extend_from_slice(&relation.to_be_bytes());
        buffer.extend_from_slice(&number.to_be_bytes());
        buffer.extend_from_slice(&column.type_oid.to_be_bytes());
        buffer.extend_from_slice(&oid::type_len(column.type_oid).to_be_bytes());
        buffer.extend_from_slice(&column.typmod.to_be_bytes());
        buffer.extend_from_slice(&format.to_be_bytes());
    }
    out.end(message);
    Ok(())
}

/// Appends `CommandComplete` or `EmptyQueryResponse`.
pub fn complete(out: &mut Out<Stream>, tag: &CommandTag) {
    if *tag == CommandTag::Empty {
        return out.bare(b'I');
    }
    let message = out.begin(b'C');
    tag.write(out.buffer());
    out.buffer().push(0);
    out.end(message);
}

/// Appends `NoticeResponse`.
pub fn tell(out: &mut Out<Stream>, severity: Severity, notice: SqlError) {
    let word = match severity {
        Severity::Notice => "NOTICE",
        Severity::Warning => "WARNING",
    };
    out.notice(word, &notice.into());
}
