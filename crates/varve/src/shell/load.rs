//! The data of COPY: a file with a line of progress, or the lines behind the statement up to `\.`; and where rows go.
//!
//! What this file doesn't know: the formats of COPY.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use varve_sql::{SqlError, SqlState};

use super::input::Lines;
use crate::config::show_bytes;

/// Bytes handed over at a time.
const PIECE_BYTES: usize = 256 << 10;
/// How often the progress is written.
const PERIOD: Duration = Duration::from_millis(500);

/// Where the data of a COPY comes from.
pub enum Data<'d> {
    /// A file.
    File(FileData),
    /// The lines behind the statement.
    Lines(&'d mut dyn Lines),
}

/// Where the rows of a COPY go.
pub enum Target {
    /// Standard output, between other results.
    StandardOutput,
    /// A file.
    File(BufWriter<File>),
}

impl Target {
    /// A new file, or an old one written anew.
    pub fn create(path: &Path) -> io::Result<Target> {
        File::create(path).map(|file| Target::File(BufWriter::new(file)))
    }

    /// Writes out what is kept.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Target::StandardOutput => Ok(()),
            Target::File(file) => file.flush(),
        }
    }
}

/// A file that is being loaded.
pub struct FileData {
    file: File,
    total_bytes: u64,
    done_bytes: u64,
    began: Instant,
    told: Instant,
    is_told: bool,
}

type Feed<'f> = &'f mut dyn FnMut(&[u8]) -> Result<(), SqlError>;

impl Data<'_> {
    /// Hands all of it over.
    pub fn feed(&mut self, feed: Feed<'_>) -> Result<(), SqlError> {
        match self {
            Data::File(data) => {
                let done = data.feed(feed);
                data.finish();
                done
            }
            Data::Lines(lines) => feed_lines(*lines, feed),
        }
    }
}

/// Lines up to `\.`. Where the statement fails before that, the rest is still its data.
fn feed_lines(lines: &mut dyn Lines, feed: Feed<'_>) -> Result<(), SqlError> {
    let mut done = Ok(());
    while let Some(mut line) = lines.next_data().map_err(unreadable)? {
        if line == "\\." {
            break;
        }
        line.push('\n');
        done = done.and_then(|()| feed(line.as_bytes()));
    }
    done
}

fn unreadable(error: io::Error) -> SqlError {
    SqlError::new(SqlState("58030"), format!("the data cannot be read: {error}"))
}

impl FileData {
    /// Opens a file.
    pub fn open(path: &Path) -> io::Result<FileData> {
        let file = File::open(path)?;
        let total_bytes = file.metadata()?.len();
        let now = Instant::now();
        Ok(FileData { file, total_bytes, done_bytes: 0, began: now, told: now, is_told: false })
    }

    fn feed(&mut self, feed: Feed<'_>) -> Result<(), SqlError> {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = self.file.read(&mut piece).map_err(unreadable)?;
            if count == 0 {
                return Ok(());
            }
            feed(&piece[..count])?;
            self.done_bytes += count as u64;
            self.tell();
        }
    }

    /// Writes how far it is, now and then, where somebody may be looking.
    fn tell(&mut self) {
        if self.told.elapsed() < PERIOD || !io::stderr().is_terminal() {
            return;
        }
        (self.told, self.is_told) = (Instant::now(), true);
        let passed = self.began.elapsed().as_secs_f64();
        let share = self.done_bytes as f64 / self.total_bytes.max(1) as f64;
        let left = if share > 0.0 { passed / share - passed } else { 0.0 };
        let (done, total) = (show_bytes(self.done_bytes), show_bytes(self.total_bytes));
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{:.0} %: {done} of {total} in {passed:.0} s, about {left:.0} s left",
            share * 100.0
        );
    }

    /// Takes the line of progress away.
    fn finish(&self) {
        if self.is_told {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
