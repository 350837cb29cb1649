//! Writes events of the open database to the server's log: notices, checkpoints, a full device, and the stop
//! of the database after an error.
//!
//! Invariants
//! 1. An event is written at most `NOTICE_PAUSE` after it happened.
//! 2. A device that stays full is named once a minute. The stop of the database is written once.
//!
//! This module does not know where messages are written (`crate::messages`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use varve_engine::Database;
use varve_pager::{Archiver, CheckpointReport};
use varve_sql::log::{self, Event, Severity, Source};

use super::CommandError;

/// The longest delay of a message.
const NOTICE_PAUSE: Duration = Duration::from_millis(100);
/// The time after which a device that is still full is named again.
const FULL_AGAIN: Duration = Duration::from_secs(60);

/// What was written already.
#[derive(Default)]
pub struct Told {
    /// The time when a full device was named last, with the text.
    full: Option<(Instant, String)>,
    /// Whether the stop of the database was written.
    stop: bool,
}

impl Told {
    /// Returns the state in which everything that has happened so far was written.
    pub fn before_now() -> Told {
        Told { full: Some((Instant::now(), String::new())), stop: false }
    }
}

/// Starts the thread that writes the events, as long as the database is open.
pub fn watch(database: &Arc<Database>) -> Result<(), CommandError> {
    let database = Arc::downgrade(database);
    let watch = move || {
        let mut told = Told::default();
        while let Some(database) = database.upgrade() {
            tell(&database, &mut told);
            tell_stop(&database, &mut told);
            drop(database);
            std::thread::sleep(NOTICE_PAUSE);
        }
    };
    let started = std::thread::Builder::new().name("notices".to_owned()).spawn(watch);
    started.map(drop).map_err(|error| CommandError::System { what: "Cannot start a thread", error })
}

/// Writes a warning of the server.
pub fn log_warning(message: &str) {
    log::write(Source::SERVER, Severity::Warning, message);
}

/// Writes what has happened since the last call.
pub fn tell(database: &Database, told: &mut Told) {
    let pager = database.pager();
    pager.take_notices().iter().for_each(|notice| log_warning(notice));
    for notice in database.archiver().map(Archiver::take_notices).unwrap_or_default() {
        let severity = if notice.is_warning { Severity::Warning } else { Severity::Log };
        log::write(Source::SERVER, severity, &notice.what);
    }
    let checkpoints = pager.take_checkpoints();
    if log::logs_checkpoints() {
        let write = |report| log::write(Source::SERVER, Severity::Log, &described(report));
        checkpoints.iter().for_each(write);
    }
    if let Some((when, cause)) = pager.refused_for_space() {
        let is_known =
            |(at, text): &(Instant, String)| when <= *at || (*text == cause && at.elapsed() < FULL_AGAIN);
        if !told.full.as_ref().is_some_and(is_known) {
            let hint = "Pages stay in memory meanwhile. Make space on the device, or drop tables.";
            let message = format!("a device is full: {cause}");
            let event = Event::new(Source::SERVER, Severity::Warning, &message);
            Event { code: Some("53100"), hint: Some(hint), ..event }.write();
            told.full = Some((Instant::now(), cause));
        }
    }
}

/// Writes that the database accepts no more changes.
fn tell_stop(database: &Database, told: &mut Told) {
    if let Err(cause) = database.pager().log().check()
        && !std::mem::replace(&mut told.stop, true)
        && !database.pager().is_stopping()
    {
        let message = format!("the database accepts no more changes: {cause}");
        let hint = "Repair the cause, and start the server again: the start recovers all committed changes.";
        let event = Event::new(Source::SERVER, Severity::Fatal, &message);
        Event { code: Some("58030"), hint: Some(hint), ..event }.write();
    }
}

/// Describes a checkpoint, with PostgreSQL's words.
fn described(report: &CheckpointReport) -> String {
    let CheckpointReport { cause, pages, log_bytes, distance_bytes, took } = report;
    format!(
        "checkpoint complete: {}; wrote {pages} buffers; {log_bytes} bytes of log since the last one; \
         total={:.3} s; distance={} kB",
        cause.name(),
        took.as_secs_f64(),
        distance_bytes >> 10
    )
}
