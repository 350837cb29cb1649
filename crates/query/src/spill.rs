//! Temporary files of DataFusion's sorts, groups and joins, when they need more memory than their limit.
//!
//! Invariants
//! 1. No file is created before a query spills. So a database can be opened on a full device.
//! 2. The files are files of [`TemporaryDirectory`]: they have no names, they count against a quota, their
//!    requests are counted by purpose, and they are as slow as an emulated device.
//! 3. After each piece of a file, reading returns to the executor, which checks for a cancel request.
//! 4. If the device has no space although the quota allows more, the error is 53100.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SpillFile, SpillWriter, TaskContext, TempFileFactory};
use futures::Stream;
use parking_lot::Mutex;
use varve_device::{AlignedBuf, BlockFile, DeviceError, Durability, Purpose};
use varve_engine::TemporaryQuota;
use varve_sql::SqlError;

use crate::temporary::{Refused, TemporaryDirectory};

/// The number of bytes that are read or written at once. It is a multiple of each sector size.
const PIECE_BYTES: usize = 128 << 10;

/// A file grows by at most this many bytes at once.
const GROWTH_BYTES_MAX: u64 = 8 << 20;

/// Creates temporary files in one directory.
pub struct Spills {
    /// The directory.
    pub directory: Arc<TemporaryDirectory>,
    /// The quota for these files together with other temporary files.
    pub quota: Arc<TemporaryQuota>,
}

/// Returns the context with temporary files that count against the quota.
pub fn limited(
    context: TaskContext,
    directory: Arc<TemporaryDirectory>,
    quota: Arc<TemporaryQuota>,
) -> Result<TaskContext> {
    let spills = Spills { directory, quota };
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Custom(Arc::new(spills))).build()?;
    let whole = context.runtime_env();
    let runtime = RuntimeEnv { disk_manager: Arc::new(disk), ..(*whole).clone() };
    Ok(context.with_runtime(Arc::new(runtime)))
}

impl TempFileFactory for Spills {
    fn create_temp_file(&self, description: &str) -> Result<Arc<dyn SpillFile>> {
        let refused = Refused::default();
        let file = self.directory.file(self.quota.clone(), refused.clone());
        let file = file.map_err(|error| DataFusionError::IoError(told(error, &refused)))?;
        Ok(Arc::new(Spilled(Arc::new(Content {
            file,
            refused,
            why: purpose(description),
            bytes: AtomicU64::new(0),
            tail: Mutex::default(),
        }))))
    }
}

/// Returns the purpose of a file by DataFusion's description of it. An unknown description only means that
/// the requests are counted together with those of other files, as "temporary".
fn purpose(description: &str) -> Purpose {
    let has = |word: &str| description.to_ascii_lowercase().contains(word);
    match () {
        () if has("aggreg") => Purpose::TemporaryGroups,
        () if has("join") || has("smj") => Purpose::TemporaryJoin,
        () if has("sort") => Purpose::TemporarySort,
        () => Purpose::Temporary,
    }
}

/// Returns the error of a request to the device, or of the quota that has refused its space.
fn told(error: DeviceError, refused: &Refused) -> io::Error {
    if let Some(refused) = refused.lock().take() {
        return io::Error::other(SqlError::from(refused));
    }
    let kind = if error.is_no_space() { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
    io::Error::new(kind, error)
}

struct Spilled(Arc<Content>);

/// A file, and its last bytes while they are fewer than a piece. All bytes before them are in the file.
struct Content {
    file: Arc<dyn BlockFile>,
    refused: Refused,
    why: Purpose,
    /// The bytes that were written, with those of the tail.
    bytes: AtomicU64,
    tail: Mutex<Tail>,
}

#[derive(Default)]
struct Tail {
    /// Its first bytes are the tail. The buffer exists from the first byte on, until the writer has finished.
    piece: Option<AlignedBuf>,
    /// The bytes that are in the file.
    stored_bytes: u64,
    /// The bytes that the file has reserved.
    reserved_bytes: u64,
}

impl Content {
    /// Appends as many bytes as the current piece has space for. Returns their number.
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut tail = self.tail.lock();
        let end = self.bytes.load(Ordering::Relaxed);
        let Some(filled) = end.checked_sub(tail.stored_bytes) else {
            return Err(io::Error::other(SqlError::internal("a finished temporary file was written to")));
        };
        let filled = filled as usize;
        let taken = bytes.len().min(PIECE_BYTES - filled);
        let piece = tail.piece.get_or_insert_with(|| AlignedBuf::new(PIECE_BYTES));
        piece[filled..filled + taken].copy_from_slice(&bytes[..taken]);
        if filled + taken == PIECE_BYTES {
            self.store(&mut tail, PIECE_BYTES)?;
        }
        self.bytes.store(end + taken as u64, Ordering::Release);
        Ok(taken)
    }

    /// Writes the first bytes of the piece to the file.
    fn store(&self, tail: &mut Tail, len_bytes: usize) -> io::Result<()> {
        let end = tail.stored_bytes + len_bytes as u64;
        let failed = |error| told(error, &self.refused);
        if end > tail.reserved_bytes {
            let pieces = (tail.stored_bytes / 8).min(GROWTH_BYTES_MAX) / PIECE_BYTES as u64;
            let wished = end + pieces * PIECE_BYTES as u64;
            let grown = self.file.set_len(wished).map(|()| wished);
            let grown = grown.or_else(|_| self.file.set_len(end).map(|()| end)).map_err(failed)?;
            self.refused.lock().take();
            tail.reserved_bytes = grown;
        }
        if let Some(piece) = &tail.piece {
            let written =
                self.file.write_at(tail.stored_bytes, &piece[..len_bytes], self.why, Durability::Later);
            written.map_err(failed)?;
        }
        tail.stored_bytes = end;
        Ok(())
    }

    /// Writes the tail to the file, with zeros up to the end of its last sector, and frees the buffer.
    fn finish(&self) -> io::Result<()> {
        let mut tail = self.tail.lock();
        let filled = (self.bytes.load(Ordering::Relaxed).saturating_sub(tail.stored_bytes)) as usize;
        if filled > 0 {
            let sectors = filled.next_multiple_of(self.file.sector_bytes() as usize);
            if let Some(piece) = &mut tail.piece {
                piece[filled..sectors].fill(0);
            }
            self.store(&mut tail, sectors)?;
        }
        tail.piece = None;
        Ok(())
    }

    /// Returns the bytes from a position on, at most up to the end of its piece. The result is `None` at the
    /// end of the file.
    fn read(&self, at: u64) -> io::Result<Option<Bytes>> {
        let tail = self.tail.lock();
        let end = self.bytes.load(Ordering::Relaxed);
        if at >= end {
            return Ok(None);
        }
        let begin = at - at % PIECE_BYTES as u64;
        let (skipped, len_bytes) = ((at - begin) as usize, (end - begin).min(PIECE_BYTES as u64) as usize);
        if begin >= tail.stored_bytes {
            return Ok(tail.piece.as_ref().map(|piece| Bytes::copy_from_slice(&piece[skipped..len_bytes])));
        }
        drop(tail);
        let mut piece = AlignedBuf::new(len_bytes.next_multiple_of(self.file.sector_bytes() as usize));
        let read = self.file.read_at(begin, &mut piece, self.why);
        read.map_err(|error| told(error, &self.refused))?;
        Ok(Some(Bytes::from_owner(Shared(piece)).slice(skipped..len_bytes)))
    }
}

/// A piece that `Bytes` shares.
struct Shared(AlignedBuf);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl SpillFile for Spilled {
    fn size(&self) -> Option<u64> {
        Some(self.0.bytes.load(Ordering::Acquire))
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        Ok(Box::pin(Pieces { content: self.0.clone(), at: 0, has_rested: false }))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(Writer(self.0.clone())))
    }
}

/// Appends bytes to a temporary file.
struct Writer(Arc<Content>);

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> Result<()> {
        self.0.finish().map_err(DataFusionError::IoError)
    }
}

/// Reads a temporary file from the beginning to the end.
struct Pieces {
    content: Arc<Content>,
    at: u64,
    /// Whether the executor has run since the last piece.
    has_rested: bool,
}

impl Pieces {
    fn piece(&mut self) -> io::Result<Option<Bytes>> {
        let piece = self.content.read(self.at)?;
        self.at += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Ok(piece)
    }
}

impl Stream for Pieces {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.has_rested = !self.has_rested;
        if self.has_rested {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.piece().map_err(DataFusionError::IoError).transpose())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use futures::executor::block_on_stream;
    use varve_device::{FileDirectory, FileOptions};

    use super::*;

    /// Makes temporary files in a new directory. The directory exists as long as the first value.
    fn spills() -> (tempfile::TempDir, Spills) {
        let home = tempfile::tempdir().unwrap();
        let directory = Arc::new(TemporaryDirectory::new(home.path().to_owned(), None, Arc::default()));
        (home, Spills { directory, quota: Arc::default() })
    }

    fn read(file: &Arc<dyn SpillFile>) -> Vec<u8> {
        block_on_stream(file.read_stream().unwrap()).flat_map(|piece| piece.unwrap()).collect()
    }

    #[test]
    fn a_file_is_read_as_it_was_written_before_and_after_its_end() {
        let (home, spills) = spills();
        let file = spills.create_temp_file("Sorting").unwrap();
        let mut writer = file.open_writer().unwrap();
        assert_eq!(read(&file), b"");
        // A reader that begins in the tail goes on in the file.
        let mut early = block_on_stream(file.read_stream().unwrap());
        let mut expected = Vec::new();
        for (number, len) in [1, 700, 131_000, 131_072, 5, 400_000, 33].into_iter().enumerate() {
            let part: Vec<u8> = (0..len).map(|at| (at * 7 + number) as u8).collect();
            writer.write_all(&part).unwrap();
            expected.extend_from_slice(&part);
            assert_eq!(file.size(), Some(expected.len() as u64));
            assert!(read(&file) == expected, "after {} bytes", expected.len());
            if number == 1 {
                assert_eq!(early.next().unwrap().unwrap(), &expected[..701]);
            }
        }
        writer.finish().unwrap();
        assert!(read(&file) == expected, "after the end");
        assert!(early.flat_map(|piece| piece.unwrap()).eq(expected[701..].iter().copied()));
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "the file has no name");
        assert!(writer.write_all(b"more").is_err(), "a finished file");
    }

    #[test]
    fn requests_are_counted_by_purpose_and_space_by_the_quota() {
        let (home, mut spills) = spills();
        let files = FileDirectory::open(home.path(), FileOptions::default()).unwrap();
        let counters = varve_device::Directory::accounting(&*files).clone();
        spills.directory = Arc::new(TemporaryDirectory::new(home.path().to_owned(), None, counters.clone()));
        spills.quota.set_limit(1 << 20);
        let file = spills.create_temp_file("SingleHashAggregateSpill").unwrap();
        let mut writer = file.open_writer().unwrap();
        writer.write_all(&vec![1; 300_000]).unwrap();
        writer.finish().unwrap();
        let written = counters.written(varve_device::Space::Temporary, Purpose::TemporaryGroups);
        assert!((300_000..=304_096).contains(&written.bytes), "{written:?}");
        let refused = writer_of(&spills).write_all(&vec![1; 2 << 20]).unwrap_err();
        let refused = refused.get_ref().and_then(|inner| inner.downcast_ref::<SqlError>());
        assert_eq!(refused.map(|e| e.sqlstate.0), Some("53400"));
        drop((file, writer));
        writer_of(&spills).write_all(&vec![1; 1 << 20]).unwrap();
    }

    fn writer_of(spills: &Spills) -> Box<dyn SpillWriter> {
        spills.create_temp_file("Sorting").unwrap().open_writer().unwrap()
    }

    #[test]
    fn descriptions_of_datafusion_have_purposes() {
        let of = ["SingleHashAggregateSpill", "semi_anti_smj_inner_key_spill", "Sorting", "WITH"];
        let is = of.map(purpose);
        let should =
            [Purpose::TemporaryGroups, Purpose::TemporaryJoin, Purpose::TemporarySort, Purpose::Temporary];
        assert_eq!(is, should);
    }
}
