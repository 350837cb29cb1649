//! The messages between host and device. The host asks, and the device answers each request once.
//!
//! | request | bytes |
//! |---|---|
//! | OPEN | 1; the scan; file and program; the leaves |
//! | GET | 2; session u32 |
//! | CLOSE | 3; session u32 |
//!
//! | part of OPEN | bytes |
//! |---|---|
//! | the scan | owner u32; bound u64; floor u64; page size u32; identity of the file u64 (0: not known) |
//! | file and program | length u32 and name of the file; length u32 and bytes of the program (JSON) |
//! | the leaves | their number u32; for each leaf its page u64 and the hash of its fences u64 |
//!
//! | answer | bytes |
//! |---|---|
//! | opened | 1; session u32 |
//! | part | 2; leaves done so far u32; is it the end u8; the deferred leaves; the batch |
//! | closed | 3 |
//! | error | 4; text |
//!
//! The deferred leaves of a part are their number u32, then the number u32 of each of them in OPEN. The batch
//! is an Arrow IPC stream with one batch, or nothing.
//!
//! Numbers are little endian. A part without a batch means that no row was kept yet, or that states of groups
//! come with the last part.
//!
//! This module does not know connections.

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::SchemaRef;
use varve_pager::PageId;

use crate::error::{Result, SmartError};
use crate::program::Program;
use crate::wire::Cut;

const OPEN: u8 = 1;
const GET: u8 = 2;
const CLOSE: u8 = 3;
const OPENED: u8 = 1;
const PART: u8 = 2;
const CLOSED: u8 = 3;
const FAILED: u8 = 4;
/// The bytes of a leaf in OPEN.
const LEAF_BYTES: usize = 16;
/// The largest number of bytes of a program.
pub(crate) const PROGRAM_BYTES_MAX: usize = 1 << 20;
/// The largest number of bytes of a file's name.
const NAME_BYTES_MAX: usize = 255;

/// A leaf in OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedLeaf {
    /// The page.
    pub page: PageId,
    /// The hash of its fences.
    pub fences: u64,
}

/// The contents of OPEN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The owner of the tree's pages.
    pub owner: u32,
    /// The highest page LSN of a leaf that may be used.
    pub bound: u64,
    /// The floor: row versions of transactions with lower ids are visible.
    pub floor: u64,
    /// The bytes of a page.
    pub page_bytes: u32,
    /// A number that no copy of the data file has; 0 if it is not known.
    pub identity: u64,
    /// The name of the data file.
    pub file: String,
    /// What is done with the rows.
    pub program: Program,
    /// The leaves.
    pub leaves: Vec<ListedLeaf>,
}

/// A request of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Begins a scan.
    Open(Box<OpenRequest>),
    /// Asks for the next part of a scan.
    Get(u32),
    /// Ends a scan.
    Close(u32),
}

/// A part of a scan's result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// The number of leaves that are done now, with those of earlier parts.
    pub done: u32,
    /// Whether this is the last part.
    pub is_end: bool,
    /// The deferred leaves among those that are done now: the host must read their rows.
    pub deferred: Vec<u32>,
    /// Rows, or states of groups, as an Arrow IPC stream.
    pub batch: Vec<u8>,
}

/// An answer of the device.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A scan has begun.
    Opened(u32),
    /// A part of the result.
    Part(Part),
    /// A scan has ended.
    Closed,
    /// The request failed.
    Failed(String),
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

impl Request {
    /// Returns the bytes of the message.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let short = |kind: u8, session: u32| [&[kind][..], &session.to_le_bytes()].concat();
        match self {
            Request::Get(session) => Ok(short(GET, *session)),
            Request::Close(session) => Ok(short(CLOSE, *session)),
            Request::Open(open) => open.encode(),
        }
    }

    /// Reads a message.
    pub fn decode(bytes: &[u8]) -> Result<Request> {
        let mut cut = Cut(bytes);
        let request = match cut.u8()? {
            OPEN => Request::Open(Box::new(OpenRequest::decode(&mut cut)?)),
            GET => Request::Get(cut.u32()?),
            CLOSE => Request::Close(cut.u32()?),
            other => return Err(SmartError::Malformed(format!("no request has the number {other}"))),
        };
        cut.end()?;
        Ok(request)
    }
}

impl OpenRequest {
    fn encode(&self) -> Result<Vec<u8>> {
        let program = serde_json::to_vec(&self.program).map_err(|e| SmartError::Program(e.to_string()))?;
        let mut out = vec![OPEN];
        out.extend_from_slice(&self.owner.to_le_bytes());
        out.extend_from_slice(&self.bound.to_le_bytes());
        out.extend_from_slice(&self.floor.to_le_bytes());
        out.extend_from_slice(&self.page_bytes.to_le_bytes());
        out.extend_from_slice(&self.identity.to_le_bytes());
        put_bytes(&mut out, self.file.as_bytes());
        put_bytes(&mut out, &program);
        out.extend_from_slice(&(self.leaves.len() as u32).to_le_bytes());
        for leaf in &self.leaves {
            out.extend_from_slice(&leaf.page.to_u64().to_le_bytes());
            out.extend_from_slice(&leaf.fences.to_le_bytes());
        }
        Ok(out)
    }

    fn decode(cut: &mut Cut<'_>) -> Result<OpenRequest> {
        let (owner, bound, floor) = (cut.u32()?, cut.u64()?, cut.u64()?);
        let (page_bytes, identity) = (cut.u32()?, cut.u64()?);
        let name_bytes = bounded(cut.u32()?, NAME_BYTES_MAX, "the name of the file")?;
        let file = std::str::from_utf8(cut.bytes(name_bytes)?)
            .map_err(|_| SmartError::Malformed("the name of the file is no text".into()))?
            .to_owned();
        let program_bytes = bounded(cut.u32()?, PROGRAM_BYTES_MAX, "the program")?;
        let program = serde_json::from_slice(cut.bytes(program_bytes)?)
            .map_err(|error| SmartError::Program(error.to_string()))?;
        let count = cut.u32()? as usize;
        let raw = cut.bytes(count.saturating_mul(LEAF_BYTES))?;
        let leaves = raw.chunks_exact(LEAF_BYTES).map(|raw| leaf(&mut Cut(raw))).collect::<Result<_>>()?;
        Ok(OpenRequest { owner, bound, floor, page_bytes, identity, file, program, leaves })
    }
}

fn leaf(cut: &mut Cut<'_>) -> Result<ListedLeaf> {
    let (page, fences) = (cut.u64()?, cut.u64()?);
    let missing = || SmartError::Malformed(format!("{page} is no page"));
    Ok(ListedLeaf { page: PageId::from_u64(page).ok_or_else(missing)?, fences })
}

fn bounded(found: u32, limit: usize, what: &str) -> Result<usize> {
    let found = found as usize;
    if found <= limit {
        return Ok(found);
    }
    Err(SmartError::Limit { what: format!("{what} has {found} bytes"), limit })
}

impl Answer {
    /// Returns the bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Answer::Opened(session) => [&[OPENED][..], &session.to_le_bytes()].concat(),
            Answer::Closed => vec![CLOSED],
            Answer::Failed(text) => [&[FAILED], text.as_bytes()].concat(),
            Answer::Part(part) => {
                let mut out = vec![PART];
                out.extend_from_slice(&part.done.to_le_bytes());
                out.push(u8::from(part.is_end));
                out.extend_from_slice(&(part.deferred.len() as u32).to_le_bytes());
                part.deferred.iter().for_each(|leaf| out.extend_from_slice(&leaf.to_le_bytes()));
                out.extend_from_slice(&part.batch);
                out
            }
        }
    }

    /// Reads a message.
    pub fn decode(bytes: &[u8]) -> Result<Answer> {
        let mut cut = Cut(bytes);
        let answer = match cut.u8()? {
            OPENED => Answer::Opened(cut.u32()?),
            CLOSED => Answer::Closed,
            FAILED => return Ok(Answer::Failed(String::from_utf8_lossy(cut.0).into_owned())),
            PART => {
                let (done, is_end) = (cut.u32()?, cut.u8()? != 0);
                let count = cut.u32()? as usize;
                let raw = cut.bytes(count.saturating_mul(4))?;
                let deferred = raw.chunks_exact(4).map(|raw| Cut(raw).u32()).collect::<Result<_>>()?;
                return Ok(Answer::Part(Part { done, is_end, deferred, batch: cut.0.to_vec() }));
            }
            other => return Err(SmartError::Malformed(format!("no answer has the number {other}"))),
        };
        cut.end()?;
        Ok(answer)
    }
}

/// Returns a batch as an Arrow IPC stream.
pub(crate) fn encode_batch(batch: &RecordBatch) -> Result<Vec<u8>> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    writer.write(batch)?;
    Ok(writer.into_inner()?)
}

/// Reads an Arrow IPC stream with one batch of these columns. The library checks the bytes. If it still
/// panics because of them, that is an error, too.
pub(crate) fn decode_batch(bytes: &[u8], schema: &SchemaRef) -> Result<RecordBatch> {
    let read = || {
        let mut reader = StreamReader::try_new(bytes, None)?;
        reader.next().transpose()
    };
    let malformed = |what: &str| SmartError::Malformed(what.into());
    let batch = std::panic::catch_unwind(read).map_err(|_| malformed("a damaged stream"))??;
    let batch = batch.ok_or_else(|| malformed("a stream without a batch"))?;
    if batch.schema().fields() != schema.fields() {
        return Err(malformed("a batch with other columns than the program's"));
    }
    Ok(batch)
}
