//! Decodes messages of the client. Each field is read once and checked.
//!
//! The crate `pgwire` is not used to decode messages. It panics on bodies that are too short (decision 0701),
//! and copies names and values. The decoded messages here borrow from the frame instead.
//!
//! Invariants
//! 1. Decoding reads every byte of the body and no byte outside it.
//! 2. All text is UTF-8 without zero bytes.
//! 3. An iterator over a decoded message cannot fail, because its range was checked when the message was
//!    decoded.

use crate::error::WireError;
use crate::frame::Frame;

/// One message of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// A simple query with one or more statements.
    Query(&'a str),
    /// Parses a statement.
    Parse(Parse<'a>),
    /// Binds parameters to a statement.
    Bind(Bind<'a>),
    /// Runs a portal, with a limit of rows (0 means all rows).
    Execute(&'a str, u32),
    /// Describes a statement or a portal.
    Describe(StatementOrPortal<'a>),
    /// Closes a statement or a portal.
    Close(StatementOrPortal<'a>),
    /// Sends pending answers.
    Flush,
    /// Ends a group of extended-protocol messages.
    Sync,
    /// Ends the connection.
    Terminate,
    /// A part of COPY input.
    CopyData(&'a [u8]),
    /// The COPY input is complete.
    CopyDone,
    /// The client ends its COPY with an error.
    CopyFail(&'a str),
    /// The fast-path function call of old clients, which is not supported.
    FunctionCall,
}

/// A statement or a portal, by name. The empty name means the unnamed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementOrPortal<'a> {
    /// A prepared statement.
    Statement(&'a str),
    /// A portal.
    Portal(&'a str),
}

/// `Parse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parse<'a> {
    /// Name of the statement to make.
    pub name: &'a str,
    /// Its text.
    pub sql: &'a str,
    type_oids: &'a [u8],
}

impl Parse<'_> {
    /// Returns the parameter types from the client. 0 means that the type is unknown.
    pub fn type_oids(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.type_oids.chunks_exact(4).map(|raw| u32::from_be_bytes([raw[0], raw[1], raw[2], raw[3]]))
    }
}

/// `Bind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bind<'a> {
    /// Name of the portal to make.
    pub portal: &'a str,
    /// Name of the statement.
    pub statement: &'a str,
    /// Formats of the parameters.
    pub parameter_formats: Formats<'a>,
    /// Number of parameters.
    pub parameter_count: usize,
    values: &'a [u8],
    /// Formats of the result columns.
    pub result_formats: Formats<'a>,
}

impl<'a> Bind<'a> {
    /// Returns the parameters as the client sent them. `None` is NULL.
    pub fn values(&self) -> Values<'a> {
        Values { rest: Fields { rest: self.values }, left: self.parameter_count }
    }
}

/// Iterator over the parameters of a `Bind`.
pub struct Values<'a> {
    rest: Fields<'a>,
    left: usize,
}

impl<'a> Iterator for Values<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        self.rest.value().ok()
    }
}

/// The format codes of a message. There is none (all values are text), one for all values, or one for each
/// value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Formats<'a>(&'a [u8]);

/// The format of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// SQL text.
    #[default]
    Text,
    /// The binary format of PostgreSQL's send and receive functions.
    Binary,
}

impl Formats<'_> {
    /// Returns the number of codes in the message.
    pub fn count(&self) -> usize {
        self.0.len() / 2
    }

    /// Returns the format of the value with this number.
    pub fn get(&self, index: usize) -> Result<Format, WireError> {
        let at = match self.count() {
            0 => return Ok(Format::Text),
            1 => 0,
            _ => index * 2,
        };
        match self.0.get(at..at + 2) {
            Some([0, 0]) => Ok(Format::Text),
            Some([0, 1]) => Ok(Format::Binary),
            Some(&[high, low]) => {
                let code = i16::from_be_bytes([high, low]);
                Err(WireError::error("22023", format!("unsupported format code: {code}")))
            }
            _ => Err(WireError::protocol("there are fewer format codes than values")),
        }
    }
}

/// Decodes one frame. The connection can continue after an error here, because the limits of the frame are
/// known.
pub fn decode<'a>(frame: Frame<'a>) -> Result<Message<'a>, WireError> {
    let mut fields = Fields { rest: frame.body };
    let message = match frame.kind {
        b'Q' => Message::Query(fields.text()?),
        b'P' => Message::Parse(parse(&mut fields)?),
        b'B' => Message::Bind(bind(&mut fields)?),
        b'E' => Message::Execute(fields.text()?, fields.row_limit()?),
        b'D' => Message::Describe(target(&mut fields, "DESCRIBE")?),
        b'C' => Message::Close(target(&mut fields, "CLOSE")?),
        b'H' => Message::Flush,
        b'S' => Message::Sync,
        b'X' => Message::Terminate,
        b'd' => return Ok(Message::CopyData(frame.body)),
        b'c' => Message::CopyDone,
        b'f' => Message::CopyFail(fields.text()?),
        b'F' => return Ok(Message::FunctionCall),
        kind => unreachable!("frame.rs let a message of kind {kind} through"),
    };
    fields.end()?;
    Ok(message)
}

fn parse<'a>(fields: &mut Fields<'a>) -> Result<Parse<'a>, WireError> {
    let name = fields.text()?;
    let sql = fields.text()?;
    let count = fields.count()?;
    Ok(Parse { name, sql, type_oids: fields.bytes(count * 4)? })
}

fn bind<'a>(fields: &mut Fields<'a>) -> Result<Bind<'a>, WireError> {
    let portal = fields.text()?;
    let statement = fields.text()?;
    let parameter_formats = fields.formats()?;
    let parameter_count = fields.count()?;
    let from = fields.rest;
    for _ in 0..parameter_count {
        fields.value()?;
    }
    let values = &from[..from.len() - fields.rest.len()];
    let result_formats = fields.formats()?;
    Ok(Bind { portal, statement, parameter_formats, parameter_count, values, result_formats })
}

fn target<'a>(fields: &mut Fields<'a>, what: &str) -> Result<StatementOrPortal<'a>, WireError> {
    let subtype = fields.bytes(1)?[0];
    let name = fields.text()?;
    match subtype {
        b'S' => Ok(StatementOrPortal::Statement(name)),
        b'P' => Ok(StatementOrPortal::Portal(name)),
        other => Err(WireError::protocol(format!("invalid {what} message subtype {other}"))),
    }
}

/// Reads the fields in the body of a message one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Returns the remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    fn u16(&mut self) -> Result<u16, WireError> {
        let raw = self.bytes(2)?;
        Ok(u16::from_be_bytes([raw[0], raw[1]]))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, WireError> {
        let raw = self.bytes(4)?;
        Ok(i32::from_be_bytes([raw[0], raw[1], raw[2], raw[3]]))
    }

    fn count(&mut self) -> Result<usize, WireError> {
        self.u16().map(usize::from)
    }

    /// Reads a limit of rows. In PostgreSQL, zero and negative numbers mean no limit.
    fn row_limit(&mut self) -> Result<u32, WireError> {
        self.i32().map(|limit| u32::try_from(limit).unwrap_or(0))
    }

    fn formats(&mut self) -> Result<Formats<'a>, WireError> {
        let count = self.count()?;
        self.bytes(count * 2).map(Formats)
    }

    #[inline]
    fn value(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        match self.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length)
                    .map_err(|_| WireError::protocol(format!("invalid length of a parameter: {length}")))?;
                self.bytes(length).map(Some)
            }
        }
    }

    /// Reads text up to its zero byte.
    pub(crate) fn text(&mut self) -> Result<&'a str, WireError> {
        if let Some((0, rest)) = self.rest.split_first() {
            self.rest = rest;
            return Ok("");
        }
        let end = memchr::memchr(0, self.rest);
        let end = end.ok_or_else(|| WireError::protocol("invalid string in message"))?;
        let raw = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        utf8(raw)
    }

    pub(crate) fn end(&self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::protocol("invalid message format")) }
    }
}

fn short() -> WireError {
    WireError::protocol("insufficient data left in message")
}

/// Checks that bytes are UTF-8. The error is 22021 with the first wrong bytes.
pub(crate) fn utf8(raw: &[u8]) -> Result<&str, WireError> {
    std::str::from_utf8(raw).map_err(|error| {
        let bad = &raw[error.valid_up_to()..];
        let count = error.error_len().unwrap_or(bad.len()).min(4);
        let shown: Vec<String> = bad[..count].iter().map(|byte| format!("0x{byte:02x}")).collect();
        let message = format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" "));
        WireError::error("22021", message)
    })
}
