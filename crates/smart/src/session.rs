//! One scan in the device.
//!
//! Invariants
//! 1. A part of the result has exactly the rows of the leaves that are done, except for the deferred ones.
//! 2. The collected values take at most the bytes of a batch and those of one leaf.
//! 3. A read that fails defers its leaves. So a file that has become shorter does no harm.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use varve_device::{AlignedBuf, BlockFile, Purpose, ReadOp};

use crate::decode::RowSource;
use crate::error::{Result, SmartError};
use crate::evaluate::Evaluator;
use crate::leaf::{Deferred, LeafReader, LeafTest};
use crate::profile::Work;
use crate::protocol::{ListedLeaf, OpenRequest, Part, encode_batch};

/// The largest number of leaves that are read together.
const READ_LEAVES: usize = 64;
/// The largest number of bytes that are read together.
const READ_BYTES: usize = 1 << 20;
/// The largest number of leaves whose rows are collected before they are evaluated.
const COLLECTED_LEAVES_MAX: usize = 256;
/// The longest time until the host gets an answer, if no row is kept.
const PART_TIME: Duration = Duration::from_millis(100);
/// The memory of a session in addition to its list of leaves and its groups.
const SESSION_BYTES: usize = 8 << 20;

/// A file that the device reads for the host.
#[derive(Clone)]
pub(crate) struct DataFile {
    pub(crate) name: String,
    /// A number that no copy of the file has, if the file system knows one.
    pub(crate) identity: Option<u64>,
    pub(crate) file: Arc<dyn BlockFile>,
}

/// The memory that all sessions share.
pub(crate) struct Memory {
    pub(crate) used: AtomicUsize,
    pub(crate) limit_bytes: usize,
}

/// A part of the memory. It is given back when the share is dropped.
struct Share {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Share {
    fn take(memory: &Arc<Memory>, bytes: usize) -> Result<Share> {
        let fits = |used: usize| used.checked_add(bytes).filter(|total| *total <= memory.limit_bytes);
        match memory.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits) {
            Ok(_) => Ok(Share { memory: Arc::clone(memory), bytes }),
            Err(used) => {
                let what = format!("its sessions have {used} bytes, and this one needs {bytes} more");
                Err(SmartError::Limit { what, limit: memory.limit_bytes })
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// A scan.
pub(crate) struct Session {
    request: OpenRequest,
    file: Arc<dyn BlockFile>,
    reader: LeafReader,
    /// The evaluator, or `None` after the last part.
    evaluator: Option<Evaluator>,
    /// The number of leaves that are done.
    done: usize,
    buffer: AlignedBuf,
    _memory: Share,
}

impl Session {
    /// Begins a scan. Its groups may take `group_bytes`.
    pub(crate) fn open(
        request: OpenRequest,
        files: &[DataFile],
        memory: &Arc<Memory>,
        group_bytes: usize,
    ) -> Result<Session> {
        let page_bytes = request.page_bytes as usize;
        if !page_bytes.is_power_of_two() || !(4096..=65536).contains(&page_bytes) {
            return Err(SmartError::Malformed(format!("pages of {page_bytes} bytes")));
        }
        let unknown = || SmartError::Malformed(format!("no file {:?} is served here", request.file));
        let file = files.iter().find(|file| file.name == request.file).ok_or_else(unknown)?;
        if file.identity.is_some_and(|identity| request.identity != 0 && identity != request.identity) {
            return Err(SmartError::Malformed(format!("{} is another file than the host's", file.name)));
        }
        let evaluator = Evaluator::new(&request.program, group_bytes)?;
        let bytes = SESSION_BYTES + group_bytes + request.leaves.len() * size_of::<ListedLeaf>();
        Ok(Session {
            _memory: Share::take(memory, bytes)?,
            file: Arc::clone(&file.file),
            reader: LeafReader::new(&request.program),
            evaluator: Some(evaluator),
            done: 0,
            buffer: AlignedBuf::new(READ_LEAVES.min(READ_BYTES / page_bytes) * page_bytes),
            request,
        })
    }

    /// Returns the next part of the result, and the work that it took.
    pub(crate) fn get(&mut self) -> Result<(Part, Work)> {
        let Some(mut evaluator) = self.evaluator.take() else {
            return Err(SmartError::Malformed("the scan has ended".into()));
        };
        let (mut part, mut work, began) = (Part::default(), Work::default(), Instant::now());
        let mut collected = 0;
        let mut batch = None;
        while self.done < self.request.leaves.len() && batch.is_none() {
            collected += self.read_some(&mut evaluator, &mut part.deferred, &mut work);
            if began.elapsed() >= PART_TIME {
                break;
            }
            if evaluator.is_full() || collected >= COLLECTED_LEAVES_MAX {
                batch = evaluator.evaluate()?;
                collected = 0;
            }
        }
        part.is_end = self.done == self.request.leaves.len();
        part.done = self.done as u32;
        // Rows of leaves that are done must not wait for a later part.
        if batch.is_none() {
            batch = evaluator.evaluate()?;
        }
        if !part.is_end {
            self.evaluator = Some(evaluator);
        } else if batch.is_none() {
            batch = evaluator.finish()?;
        }
        if let Some(batch) = &batch {
            work.returned_rows = batch.num_rows() as u64;
            part.batch = encode_batch(batch)?;
        }
        Ok((part, work))
    }

    /// Reads the next leaves. Returns the number of those that are done.
    fn read_some(&mut self, evaluator: &mut Evaluator, deferred: &mut Vec<u32>, work: &mut Work) -> usize {
        let page_bytes = self.request.page_bytes as usize;
        let count = (self.request.leaves.len() - self.done).min(self.buffer.len() / page_bytes);
        let leaves = &self.request.leaves[self.done..self.done + count];
        let is_read = read_leaves(&*self.file, leaves, page_bytes, &mut self.buffer);
        work.read_bytes += (count * page_bytes) as u64;
        let mut taken = 0;
        for (at, leaf) in leaves.iter().enumerate() {
            let bytes = &self.buffer[at * page_bytes..(at + 1) * page_bytes];
            let test = LeafTest {
                page: leaf.page,
                fences: leaf.fences,
                owner: self.request.owner,
                bound: self.request.bound,
                floor: self.request.floor,
            };
            let rows = if is_read[at] { self.reader.rows(bytes, &test) } else { Err(Deferred::Torn) };
            match rows {
                Ok(rows) if evaluator.push(&rows) => {
                    let in_columns = |row: &&RowSource<'_>| matches!(row, RowSource::InColumns(..));
                    let by_columns = rows.iter().filter(in_columns).count() as u64;
                    work.column_rows += by_columns;
                    work.rows += rows.len() as u64 - by_columns;
                }
                _ => deferred.push((self.done + at) as u32),
            }
            taken += 1;
            // The other leaves are read again for the next batch.
            if evaluator.has_many_bytes() {
                break;
            }
        }
        self.done += taken;
        taken
    }
}

/// Reads leaves into `buffer`. Neighbouring pages are one read. Returns which leaves were read.
fn read_leaves(
    file: &dyn BlockFile,
    leaves: &[ListedLeaf],
    page_bytes: usize,
    buffer: &mut AlignedBuf,
) -> Vec<bool> {
    let is_run = |a: &ListedLeaf, b: &ListedLeaf| a.page.to_u64() + 1 == b.page.to_u64();
    let file_bytes = file.len_bytes().unwrap_or(0);
    let mut is_read = Vec::with_capacity(leaves.len());
    let mut rest = &mut buffer[..];
    for run in leaves.chunk_by(is_run) {
        let (buf, behind) = std::mem::take(&mut rest).split_at_mut(run.len() * page_bytes);
        rest = behind;
        let offset = u64::from(run[0].page.no().0) * page_bytes as u64;
        let is_there = offset + buf.len() as u64 <= file_bytes;
        let mut ops = [ReadOp { offset, buf, why: Purpose::DataPage }];
        let is_ok = is_there && file.read_batch(&mut ops).is_ok();
        is_read.extend(run.iter().map(|_| is_ok));
    }
    is_read
}
