//! Data for COPY. The data comes from a file, and a line on the terminal then shows the progress. Or the data
//! follows the statement in its script, up to a line `\.`. This module also writes COPY's output to a file or
//! to standard output.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use varve_sql::{SqlError, SqlState};

use super::input::Lines;
use crate::config::show_bytes;

/// The number of bytes that are passed on together.
const PIECE_BYTES: usize = 256 << 10;
/// The period after which the progress is written.
const PERIOD: Duration = Duration::from_millis(500);

/// The source of a COPY's data.
pub enum Data<'d> {
    /// A file.
    File(FileData),
    /// The lines after the statement.
    Lines(&'d mut dyn Lines),
}

/// The destination of a COPY's rows.
pub enum CopyDestination {
    /// Standard output, between other results.
    StandardOutput,
    /// A file that is not created yet. An old file is kept until the statement was checked.
    Named(PathBuf),
    /// A file.
    File(BufWriter<File>),
}

impl CopyDestination {
    /// Creates the file, or empties an existing one.
    pub fn create(&mut self) -> Result<(), SqlError> {
        let CopyDestination::Named(path) = &*self else { return Ok(()) };
        let cannot = |error| {
            SqlError::new(SqlState("58030"), format!("{} cannot be written: {error}", path.display()))
        };
        *self = CopyDestination::File(BufWriter::new(File::create(path).map_err(cannot)?));
        Ok(())
    }

    /// Writes the buffered data.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            CopyDestination::StandardOutput | CopyDestination::Named(_) => Ok(()),
            CopyDestination::File(file) => file.flush(),
        }
    }
}

/// A file that is being loaded.
pub struct FileData {
    file: File,
    progress: Progress,
}

/// The progress of a load, for a terminal.
struct Progress {
    /// `None` means unknown.
    total_bytes: Option<u64>,
    done_bytes: u64,
    began: Instant,
    told: Instant,
    is_told: bool,
}

type Feed<'f> = &'f mut dyn FnMut(&[u8]) -> Result<(), SqlError>;

impl Data<'_> {
    /// Passes all data on.
    pub fn feed(&mut self, feed: Feed<'_>) -> Result<(), SqlError> {
        match self {
            Data::File(data) => data.feed(feed),
            Data::Lines(lines) => feed_lines(*lines, feed),
        }
    }
}

/// Passes on the lines up to `\.`. If the statement fails before, the remaining lines are still its data.
fn feed_lines(lines: &mut dyn Lines, feed: Feed<'_>) -> Result<(), SqlError> {
    let (mut done, is_typed) = (Ok(()), lines.is_typed());
    let mut progress = Progress::new(None);
    while let Some(line) = lines.next_data().map_err(unreadable)? {
        if matches!(line.trim_ascii_end(), b"\\.") {
            break;
        }
        done = done.and_then(|()| feed(&line));
        if !is_typed {
            progress.add(line.len());
        }
    }
    done
}

fn unreadable(error: io::Error) -> SqlError {
    if error.kind() == io::ErrorKind::Interrupted {
        return SqlError::new(SqlState("57014"), "COPY from stdin failed: canceled by user");
    }
    SqlError::new(SqlState("58030"), format!("the data cannot be read: {error}"))
}

impl FileData {
    /// Opens a file.
    pub fn open(path: &Path) -> io::Result<FileData> {
        let file = File::open(path)?;
        let total_bytes = file.metadata()?.len();
        Ok(FileData { file, progress: Progress::new(Some(total_bytes)) })
    }

    fn feed(&mut self, feed: Feed<'_>) -> Result<(), SqlError> {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = self.file.read(&mut piece).map_err(unreadable)?;
            if count == 0 {
                return Ok(());
            }
            feed(&piece[..count])?;
            self.progress.add(count);
        }
    }
}

impl Progress {
    fn new(total_bytes: Option<u64>) -> Progress {
        let now = Instant::now();
        Progress { total_bytes, done_bytes: 0, began: now, told: now, is_told: false }
    }

    /// Writes the progress from time to time, if standard error is a terminal.
    fn add(&mut self, bytes: usize) {
        self.done_bytes += bytes as u64;
        if self.told.elapsed() < PERIOD {
            return;
        }
        self.told = Instant::now();
        if io::stderr().is_terminal() {
            self.is_told = true;
            let _ = write!(io::stderr(), "\r\x1b[K{}", self.said(self.began.elapsed().as_secs_f64()));
        }
    }

    fn said(&self, passed: f64) -> String {
        let done = show_bytes(self.done_bytes);
        let Some(total_bytes) = self.total_bytes else { return format!("{done} in {passed:.0} s") };
        let share = self.done_bytes as f64 / total_bytes.max(1) as f64;
        let left = if share > 0.0 { passed / share - passed } else { 0.0 };
        let (percent, total) = (share * 100.0, show_bytes(total_bytes));
        format!("{percent:.0} %: {done} of {total} in {passed:.0} s, about {left:.0} s left")
    }
}

impl Drop for Progress {
    /// Clears the line of progress.
    fn drop(&mut self) {
        if self.is_told {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
