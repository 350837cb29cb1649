//! A client for MySQL's protocol 10: log-in without a password, text queries, prepared statements.
//!
//! The source is "Client/Server Protocol" in the MariaDB Knowledge Base. Numbers are little endian. A result
//! consists of columns, an end packet, rows, and another end packet.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

use varve_bench::database::{Param, Row, Value};
use varve_bench::{BenchError, Result};

/// The capabilities that the client announces: protocol 4.1, transactions, several statements in a text,
/// several results, and the names of a database and of a plug-in at log-in.
const CAPABILITIES: u32 = 0x0001 | 0x0008 | 0x0200 | 0x2000 | 0x8000 | 0x1_0000 | 0x2_0000 | 0x8_0000;
const PACKET_BYTES_MAX: u32 = 1 << 24;
/// The character set of the session: utf8mb4_general_ci.
const CHARACTER_SET: u8 = 45;

const QUERY: u8 = 0x03;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;

const OK: u8 = 0x00;
const END: u8 = 0xFE;
const ERROR: u8 = 0xFF;
const MORE_RESULTS: u16 = 0x0008;

// The types of columns and parameters.
const TINY: u8 = 1;
const SHORT: u8 = 2;
const LONG: u8 = 3;
const FLOAT: u8 = 4;
const DOUBLE: u8 = 5;
const LONGLONG: u8 = 8;
const INT24: u8 = 9;
const YEAR: u8 = 13;
const BLOB: u8 = 252;
const STRING: u8 = 254;
/// Column types whose values are times. Such a value begins with a byte that has its length.
const TIMES: [u8; 4] = [7, 10, 11, 12];
/// The character set of columns that contain bytes.
const BINARY: u16 = 63;

/// Error numbers for which the other databases have an SQLSTATE: a duplicate key, and a wait for a lock that
/// took too long.
const DUPLICATE: u16 = 1062;
const LOCK_TIMEOUT: u16 = 1205;

/// A prepared statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prepared {
    id: u32,
    params: u16,
}

/// A session with the server.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
    sequence: u8,
}

impl Client {
    /// Logs in without a password.
    pub(super) fn connect(address: &str, user: &str, database: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut client = Self { stream: BufReader::new(stream), sequence: 0 };
        client.receive()?;
        let mut login = Vec::new();
        login.extend(CAPABILITIES.to_le_bytes());
        login.extend(PACKET_BYTES_MAX.to_le_bytes());
        login.push(CHARACTER_SET);
        login.extend([0; 23]);
        for text in [user, "", database, "mysql_native_password"] {
            // The second text is the answer to the server's challenge. It is empty, so only its length 0 is
            // sent.
            login.extend(text.as_bytes());
            login.push(0);
        }
        client.send(&login)?;
        if client.receive()?.first() == Some(&END) {
            // The server prefers another plug-in. In every plug-in, an empty answer means that there is no
            // password.
            client.send(&[])?;
            client.receive()?;
        }
        Ok(client)
    }

    /// Runs a text of statements. Returns the first column of the first row of the first result that has
    /// rows.
    pub(super) fn query(&mut self, sql: &str) -> Result<Option<String>> {
        self.command(QUERY, sql.as_bytes())?;
        let mut first = None;
        loop {
            let packet = self.receive()?;
            let mut head = PacketReader(&packet);
            let status = match packet.first() {
                Some(&OK) => {
                    head.skip(1)?;
                    head.length()?;
                    head.length()?;
                    head.u16()?
                }
                _ => {
                    let columns = head.length()?;
                    self.columns(columns)?;
                    let (rows, status) = self.packets_to_end()?;
                    if let (None, Some(row)) = (&first, rows.first()) {
                        first = PacketReader(row).text()?;
                    }
                    status
                }
            };
            if status & MORE_RESULTS == 0 {
                return Ok(first);
            }
        }
    }

    /// Prepares a statement.
    pub(super) fn prepare(&mut self, sql: &str) -> Result<Prepared> {
        self.command(PREPARE, sql.as_bytes())?;
        let packet = self.receive()?;
        let mut head = PacketReader(&packet);
        head.skip(1)?;
        let (id, columns, params) = (head.u32()?, head.u16()?, head.u16()?);
        for count in [params, columns] {
            if count > 0 {
                self.columns(u64::from(count))?;
            }
        }
        Ok(Prepared { id, params })
    }

    /// Runs a prepared statement, and returns its rows.
    pub(super) fn execute(&mut self, prepared: &Prepared, params: &[Param<'_>]) -> Result<Vec<Row>> {
        if params.len() != usize::from(prepared.params) {
            let (given, wanted) = (params.len(), prepared.params);
            return Err(BenchError::Arguments(format!("{given} parameters for {wanted} places")));
        }
        self.command(EXECUTE, &execution(prepared.id, params))?;
        let packet = self.receive()?;
        if packet.first() == Some(&OK) {
            return Ok(Vec::new());
        }
        let count = PacketReader(&packet).length()?;
        let columns = self.columns(count)?;
        let (rows, _) = self.packets_to_end()?;
        rows.iter().map(|row| binary_row(row, &columns)).collect()
    }

    /// Receives the descriptions of this many columns or parameters, and the packet that ends them.
    fn columns(&mut self, count: u64) -> Result<Vec<Column>> {
        let columns = (0..count).map(|_| Column::read(&self.receive()?)).collect::<Result<_>>()?;
        self.receive()?;
        Ok(columns)
    }

    /// Receives packets up to the end packet. Returns them, and the status in the end packet.
    fn packets_to_end(&mut self) -> Result<(Vec<Vec<u8>>, u16)> {
        let mut packets = Vec::new();
        loop {
            let packet = self.receive()?;
            if packet.first() == Some(&END) && packet.len() < 9 {
                let mut end = PacketReader(&packet);
                end.skip(3)?;
                return Ok((packets, end.u16()?));
            }
            packets.push(packet);
        }
    }

    fn command(&mut self, code: u8, body: &[u8]) -> Result<()> {
        self.sequence = 0;
        let mut packet = Vec::with_capacity(body.len() + 1);
        packet.push(code);
        packet.extend(body);
        self.send(&packet)
    }

    fn send(&mut self, payload: &[u8]) -> Result<()> {
        if payload.len() >= PACKET_BYTES_MAX as usize - 1 {
            return Err(BenchError::Arguments(format!("a statement of {} bytes", payload.len())));
        }
        let mut packet = (payload.len() as u32).to_le_bytes();
        packet[3] = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        let whole = [&packet[..], payload].concat();
        Ok(self.stream.get_mut().write_all(&whole)?)
    }

    /// Receives the next packet. If it reports an error, returns this error.
    fn receive(&mut self) -> Result<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        self.sequence = head[3].wrapping_add(1);
        let len = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let mut payload = vec![0; len as usize];
        self.stream.read_exact(&mut payload)?;
        if payload.first() == Some(&ERROR) { Err(refusal(&payload)?) } else { Ok(payload) }
    }
}

/// Returns the body of the command that runs a prepared statement. It contains the types of the parameters.
/// None of them is NULL.
fn execution(id: u32, params: &[Param<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(id.to_le_bytes());
    body.push(0);
    body.extend(1u32.to_le_bytes());
    if params.is_empty() {
        return body;
    }
    body.extend(vec![0; params.len().div_ceil(8)]);
    body.push(1);
    for param in params {
        let kind = match param {
            Param::Int(_) => LONGLONG,
            Param::Decimal(_) | Param::Text(_) => STRING,
            Param::Bytes(_) => BLOB,
        };
        body.extend([kind, 0]);
    }
    for param in params {
        match param {
            Param::Int(value) => body.extend(value.to_le_bytes()),
            Param::Decimal(value) => push_bytes(&mut body, decimal(*value).as_bytes()),
            Param::Text(text) => push_bytes(&mut body, text.as_bytes()),
            Param::Bytes(bytes) => push_bytes(&mut body, bytes),
        }
    }
    body
}

/// Returns a number of ten-thousandths as a decimal number.
fn decimal(value: i64) -> String {
    let (sign, value) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    format!("{sign}{}.{:04}", value / 10_000, value % 10_000)
}

fn push_bytes(body: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        len @ 0..=250 => body.push(len as u8),
        len @ 251..=0xFFFF => {
            body.push(0xFC);
            body.extend((len as u16).to_le_bytes());
        }
        len => {
            body.push(0xFD);
            body.extend(&(len as u32).to_le_bytes()[..3]);
        }
    }
    body.extend(bytes);
}

fn refusal(packet: &[u8]) -> Result<BenchError> {
    let mut reader = PacketReader(packet);
    reader.skip(1)?;
    let code = reader.u16()?;
    let text = String::from_utf8_lossy(reader.0).into_owned();
    let state = text.strip_prefix('#').and_then(|rest| rest.split_at_checked(5));
    let (sqlstate, message) = state.unwrap_or(("HY000", &text));
    let sqlstate = match code {
        DUPLICATE => "23505",
        LOCK_TIMEOUT => "40P01",
        _ => sqlstate,
    };
    Ok(BenchError::Statement { sqlstate: sqlstate.to_owned(), message: format!("{message} ({code})") })
}

/// The parts of a column's description that are needed to read its values.
struct Column {
    kind: u8,
    is_binary: bool,
}

impl Column {
    fn read(packet: &[u8]) -> Result<Self> {
        let mut reader = PacketReader(packet);
        for _ in 0..6 {
            reader.bytes()?;
        }
        reader.skip(1)?;
        let set = reader.u16()?;
        reader.skip(4)?;
        Ok(Self { kind: reader.u8()?, is_binary: set == BINARY })
    }
}

fn binary_row(packet: &[u8], columns: &[Column]) -> Result<Row> {
    // The bitmap of NULLs begins with two unused bits.
    let nulls_bytes = (columns.len() + 2).div_ceil(8);
    let mut reader = PacketReader(packet);
    reader.skip(1)?;
    let nulls = reader.take(nulls_bytes)?;
    let is_null = |at: usize| nulls[(at + 2) / 8] >> ((at + 2) % 8) & 1 == 1;
    let value = |(at, column): (usize, &Column)| {
        if is_null(at) { Ok(Value::Null) } else { binary_value(&mut reader, column) }
    };
    columns.iter().enumerate().map(value).collect()
}

fn binary_value(reader: &mut PacketReader<'_>, column: &Column) -> Result<Value> {
    Ok(match column.kind {
        TINY => Value::Int(i64::from(reader.u8()? as i8)),
        SHORT | YEAR => Value::Int(i64::from(reader.u16()? as i16)),
        LONG | INT24 => Value::Int(i64::from(reader.u32()? as i32)),
        LONGLONG => Value::Int(reader.number(8)? as i64),
        FLOAT => skipped(reader, 4)?,
        DOUBLE => skipped(reader, 8)?,
        kind if TIMES.contains(&kind) => {
            let len = usize::from(reader.u8()?);
            skipped(reader, len)?
        }
        _ => {
            let bytes = reader.bytes()?.unwrap_or_default().to_vec();
            match (column.is_binary, String::from_utf8(bytes)) {
                (true, bytes) => {
                    Value::Bytes(bytes.map_or_else(|error| error.into_bytes(), String::into_bytes))
                }
                (false, Ok(text)) => Value::Text(text),
                (false, Err(_)) => Value::Other,
            }
        }
    })
}

/// Skips a value that no workload reads.
fn skipped(reader: &mut PacketReader<'_>, len: usize) -> Result<Value> {
    reader.skip(len)?;
    Ok(Value::Other)
}

/// Reads the values of a packet one after another. It has the bytes that are not read yet.
struct PacketReader<'a>(&'a [u8]);

impl<'a> PacketReader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let cut = || BenchError::Connection("a packet ends in the middle of a value".to_owned());
        let (taken, rest) = self.0.split_at_checked(len).ok_or_else(cut)?;
        self.0 = rest;
        Ok(taken)
    }

    fn skip(&mut self, len: usize) -> Result<()> {
        self.take(len).map(drop)
    }

    fn number(&mut self, len: usize) -> Result<u64> {
        Ok(self.take(len)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.number(1)? as u8)
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(self.number(2)? as u16)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(self.number(4)? as u32)
    }

    /// Reads a number of variable length. Its first byte is the number itself, or says how many bytes follow.
    /// NULL counts as 0.
    fn length(&mut self) -> Result<u64> {
        match self.u8()? {
            0xFB => Ok(0),
            0xFC => self.number(2),
            0xFD => self.number(3),
            0xFE => self.number(8),
            small => Ok(u64::from(small)),
        }
    }

    /// Reads bytes with their length before them. Returns `None` for NULL.
    fn bytes(&mut self) -> Result<Option<&'a [u8]>> {
        if self.0.first() == Some(&0xFB) {
            self.skip(1)?;
            return Ok(None);
        }
        let len = self.length()?;
        Ok(Some(self.take(len as usize)?))
    }

    fn text(&mut self) -> Result<Option<String>> {
        Ok(self.bytes()?.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_has_types_and_values() {
        let body = execution(7, &[Param::Int(-2), Param::Text("ab"), Param::Decimal(-12_345)]);
        assert_eq!(&body[..9], [7, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(&body[9..11], [0, 1], "no NULLs, types follow");
        assert_eq!(&body[11..17], [LONGLONG, 0, STRING, 0, STRING, 0]);
        assert_eq!(&body[17..25], (-2i64).to_le_bytes());
        assert_eq!(&body[25..28], [2, b'a', b'b']);
        assert_eq!(&body[28..], [&[7][..], b"-1.2345"].concat());
        assert_eq!(execution(1, &[]).len(), 9);
    }

    #[test]
    fn long_values_have_long_lengths() {
        for (len, head) in [(250, 1), (251, 3), (70_000, 4)] {
            let mut body = Vec::new();
            push_bytes(&mut body, &vec![1; len]);
            assert_eq!(body.len(), len + head);
            assert_eq!(PacketReader(&body).bytes().expect("whole").map(<[u8]>::len), Some(len));
        }
    }

    #[test]
    fn rows_are_read_by_type() {
        let column = |kind, is_binary| Column { kind, is_binary };
        let columns =
            [column(SHORT, true), column(LONGLONG, true), column(BLOB, true), column(STRING, false)];
        // The second value is NULL, which the fourth bit of the bitmap says.
        let row = [&[0, 0b1000][..], &(-1i16).to_le_bytes(), &[2, 0xFF, 0], &[1, b'x']].concat();
        let read = binary_row(&row, &columns).expect("a row");
        let wanted = [Value::Int(-1), Value::Null, Value::Bytes(vec![0xFF, 0]), Value::Text("x".to_owned())];
        assert_eq!(read, wanted);
        assert!(binary_row(&row[..4], &columns).is_err());
    }

    #[test]
    fn refusals_have_the_other_targets_states() {
        let refused = |code: u16, rest: &str| {
            let packet = [&[ERROR][..], &code.to_le_bytes(), rest.as_bytes()].concat();
            refusal(&packet).expect("a refusal")
        };
        assert!(refused(1062, "#23000Duplicate entry").is_retryable());
        assert!(refused(1213, "#40001Deadlock found").is_retryable());
        assert!(refused(1205, "#HY000Lock wait timeout").is_retryable());
        assert_eq!(refused(1146, "#42S02no table").to_string(), "42S02: no table (1146)");
    }
}
