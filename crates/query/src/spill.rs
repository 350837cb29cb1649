//! Temporary files of queries that need more memory than their limit.
//!
//! Invariants
//! 1. No file is created before a query spills. So a database can be opened on a full device.
//! 2. A temporary file has no name. So the kernel removes the file when its last reader is closed, even if
//!    the process crashes. A start of the database has no files to remove.
//! 3. After each piece of a file, reading returns to the executor, which checks for a cancel request.
//! 4. The files count against a quota, if there is one, until they are removed. If the device has no space
//!    although the quota allows more, the error is 53100.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
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
use varve_engine::TemporaryQuota;
use varve_sql::SqlError;

/// The number of bytes that are read at once.
const PIECE_BYTES: u64 = 128 << 10;

/// Creates temporary files in one directory.
pub struct Spills {
    /// The directory. It must exist when the first file is created.
    pub directory: PathBuf,
    /// The quota for these files together with other temporary files, if there is one.
    pub quota: Option<Arc<TemporaryQuota>>,
}

/// Returns the context with temporary files that count against the quota.
pub fn limited(context: TaskContext, directory: PathBuf, quota: Arc<TemporaryQuota>) -> Result<TaskContext> {
    let spills = Spills { directory, quota: Some(quota) };
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Custom(Arc::new(spills))).build()?;
    let whole = context.runtime_env();
    let runtime = RuntimeEnv { disk_manager: Arc::new(disk), ..(*whole).clone() };
    Ok(context.with_runtime(Arc::new(runtime)))
}

impl TempFileFactory for Spills {
    fn create_temp_file(&self, _: &str) -> Result<Arc<dyn SpillFile>> {
        let file = tempfile::tempfile_in(&self.directory).map_err(DataFusionError::IoError)?;
        Ok(Arc::new(Spilled(Arc::new(Content { file, bytes: AtomicU64::new(0), quota: self.quota.clone() }))))
    }
}

struct Spilled(Arc<Content>);

struct Content {
    file: File,
    bytes: AtomicU64,
    quota: Option<Arc<TemporaryQuota>>,
}

impl Drop for Content {
    fn drop(&mut self) {
        self.quota.iter().for_each(|quota| quota.give_back(*self.bytes.get_mut()));
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
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let end = self.0.bytes.load(Ordering::Acquire);
        let quota = self.0.quota.as_deref();
        let refused = |e: varve_engine::Error| io::Error::other(SqlError::from(e));
        quota.map_or(Ok(()), |quota| quota.take(piece.len() as u64)).map_err(refused)?;
        let written = self.0.file.write_at(piece, end);
        let unused = piece.len() - written.as_ref().map_or(0, |written| *written);
        quota.into_iter().for_each(|quota| quota.give_back(unused as u64));
        let written = written?;
        self.0.bytes.store(end + written as u64, Ordering::Release);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> Result<()> {
        Ok(())
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
        let left = self.content.bytes.load(Ordering::Acquire) - self.at;
        if left == 0 {
            return Ok(None);
        }
        let mut piece = vec![0; left.min(PIECE_BYTES) as usize];
        self.content.file.read_exact_at(&mut piece, self.at)?;
        self.at += piece.len() as u64;
        Ok(Some(piece.into()))
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
