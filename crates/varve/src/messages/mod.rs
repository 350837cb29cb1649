//! Writes the server's messages (`varve_sql::log`) as lines of text or JSON, to stderr or to a file.
//!
//! Invariants
//! 1. A message is one call of `write`, so lines of different threads do not mix.
//! 2. A message that cannot be written is counted (`varve_sql::log::lost_count`). The server continues.
//!
//! This module does not know which messages are wanted.

mod line;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use varve_sql::log;

use line::Line;

/// Microseconds from 1970 to 2000, where the times of SQL begin.
const EPOCH_US: i64 = 946_684_800_000_000;

/// Whether messages are written as JSON. It can change while the server runs.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// The format of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFormat {
    /// Text for people.
    Text,
    /// One JSON object in a line, with the keys of PostgreSQL's jsonlog.
    Json,
}

impl MessageFormat {
    /// All formats.
    pub const ALL: [MessageFormat; 2] = [MessageFormat::Text, MessageFormat::Json];

    /// Returns its name in varve.toml.
    pub fn name(self) -> &'static str {
        match self {
            MessageFormat::Text => "text",
            MessageFormat::Json => "json",
        }
    }
}

/// Sets the format of all later messages.
pub fn set_format(format: MessageFormat) {
    IS_JSON.store(format == MessageFormat::Json, Ordering::Relaxed);
}

/// The file of the messages, or stderr.
pub struct MessageOutput {
    path: Option<PathBuf>,
    file: Mutex<Option<File>>,
}

impl MessageOutput {
    /// Returns an output that writes to stderr until `open` opens the file. Without a path, it always writes
    /// to stderr.
    pub fn new(path: Option<&Path>) -> Arc<MessageOutput> {
        Arc::new(MessageOutput { path: path.map(Path::to_owned), file: Mutex::default() })
    }

    /// Writes all later messages of the program here. Fails if the program has another subscriber.
    pub fn subscribe(self: &Arc<Self>) -> Result<(), tracing::subscriber::SetGlobalDefaultError> {
        let writer = Writer(Arc::clone(self));
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(writer))
    }

    /// Returns the file, unless messages go to stderr.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Opens the file, and appends to it. A later call opens the file again, because a program that rotates
    /// logs has renamed it. If that fails, messages are still written to the old file.
    pub fn open(&self) -> io::Result<()> {
        if let Some(path) = &self.path {
            let new = open(path)?;
            *self.file.lock() = Some(new);
        }
        Ok(())
    }

    fn write(&self, text: &[u8]) {
        let written = match &mut *self.file.lock() {
            Some(file) => file.write_all(text),
            None => io::stderr().write_all(text),
        };
        if written.is_err() {
            log::count_lost();
        }
    }
}

/// Only the owner of the database may read its messages, because they contain statements.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Writes events of Varve, and ignores those of libraries.
struct Writer(Arc<MessageOutput>);

impl<S: Subscriber> Layer<S> for Writer {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.target() == log::TARGET { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target() == log::TARGET
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::at(&now());
        event.record(&mut line);
        let text = if IS_JSON.load(Ordering::Relaxed) { line.json() } else { line.text() };
        self.0.write(text.as_bytes());
    }
}

/// Returns the current time as SQL shows it.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = i64::try_from(since.as_micros()).unwrap_or(i64::MAX) - EPOCH_US;
    let mut moment = Vec::new();
    varve_sql::time::write_timestamp(micros, true, &varve_sql::time::PLAIN, &mut moment);
    String::from_utf8_lossy(&moment).into_owned()
}
