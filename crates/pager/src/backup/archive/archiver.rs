//! The archiver copies the log into an archive, while it is written.
//!
//! ```text
//!   Seeking --the archive has the last blocks of this log--> Writing (continues that timeline)
//!      |  \--it has none of this log, or another history--> Writing (a new timeline)
//!      \_ the store fails: try again
//!   Writing --the pin is broken: a gap--------------------> Writing (a new timeline, after the gap)
//!           --the timeline has blocks of another server---> Writing (a new timeline)
//!           --the store fails-----------------------------> Writing (the same; the pin keeps the log)
//! ```
//!
//! Invariants
//! 1. The pin is at the last archived block. So a later start, which keeps the log from there, can show that
//!    its log has this block.
//! 2. The pin moves only after the store has the piece durably.
//!
//! This module does not know where pieces are stored, or which thread calls it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use varve_device::{planted, reached};

use super::merge::Merge;
use super::piece::{Piece, PieceStart};
use super::store::{ArchiveStore, StoredPiece, TimelineName};
use super::timeline::{Timeline, read_piece, store_failed};
use crate::api::pager::Pager;
use crate::base::compression::Compression;
use crate::base::error::{PagerError, Result};
use crate::base::lsn::Lsn;
use crate::control::random_id;
use crate::log::Log;
use crate::log::blocks::BlockMark;
use crate::log::notes::time::Timed;
use crate::log::pin::LogPin;

/// The most bytes of log in a piece that is not merged, except for one block.
const PIECE_BYTES: usize = 8 << 20;

/// A failed attempt is repeated after this time, or after half of the interval if that is shorter.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// In a quiet database, the log gets the time this often, or once in an interval if that is longer.
const QUIET_TICK: Duration = Duration::from_secs(60);

/// How a log is archived.
#[derive(Clone)]
pub struct ArchiveOptions {
    /// Where the pieces go.
    pub store: Arc<dyn ArchiveStore>,
    /// The loss of the machine costs at most the commits of this time.
    pub interval: Duration,
    /// The compression of pieces.
    pub compression: Compression,
}

/// A message of the archiver, for the log of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveNotice {
    /// Whether something is wrong.
    pub is_warning: bool,
    /// The message.
    pub what: String,
}

/// The state of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveStatus {
    /// The place of the archive.
    pub location: String,
    /// The timeline that is written, once it is known.
    pub timeline: Option<TimelineName>,
    /// The archive has the log up to this LSN.
    pub archived: Lsn,
    /// The newest time to which the archive can be restored, in microseconds since 1970, UTC. `None` until
    /// the first attempt of this run has succeeded.
    pub archived_us: Option<u64>,
    /// Bytes of the log that are not archived.
    pub lag_bytes: u64,
    /// The seconds for which commits have not been archived; 0 if everything is archived.
    pub lag_seconds: u64,
    /// Pieces that were stored since the start.
    pub pieces_count: u64,
    /// Attempts that failed since the start.
    pub failures_count: u64,
    /// Gaps in the archive since the start: log that was cut before it was archived.
    pub gaps_count: u64,
    /// The error of the last attempt, if it failed.
    pub error: Option<String>,
}

/// The timeline that is written.
struct Writing {
    name: TimelineName,
    /// Where the next block begins.
    next: Lsn,
    /// The last piece in the store, if there is one.
    last: Option<StoredPiece>,
}

/// The state of the archiver.
struct Work {
    pin: LogPin,
    /// `None` while the archive was not read.
    writing: Option<Writing>,
    status: ArchiveStatus,
    notices: Vec<ArchiveNotice>,
    /// The archive has all commits that were acknowledged up to this time. It may be later than the newest
    /// time in the log.
    covered_us: u64,
    /// The time of the last attempt.
    tried: Option<Instant>,
    /// The last time that was logged for the archive: since then, and in microseconds since 1970.
    ticked: Option<(Instant, u64)>,
}

/// Archives the log of an open database.
pub struct Archiver {
    log: Arc<Log>,
    page_size: u32,
    options: ArchiveOptions,
    work: Mutex<Work>,
    /// The state after the last attempt, and messages. They can be read while the store is slow.
    shown: Mutex<ArchiverShown>,
    /// Whether nothing more is archived in this run.
    is_ended: AtomicBool,
}

/// What other threads see of the archiver.
struct ArchiverShown {
    status: ArchiveStatus,
    covered_us: u64,
    notices: Vec<ArchiveNotice>,
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Returns whether the log should be archived. The time `tried` has passed since the last attempt, and
/// `pending` bytes are not archived.
fn attempt_is_due(tried: Option<Duration>, interval: Duration, is_failing: bool, pending: u64) -> bool {
    match (tried, is_failing) {
        (None, _) => true,
        (Some(tried), true) => tried >= RETRY_AFTER.min(interval / 2),
        (Some(tried), false) => tried >= interval / 2 || pending >= PIECE_BYTES as u64,
    }
}

/// Returns whether a quiet log should get the time. It got the last one before the time `ticked`.
fn tick_is_due(ticked: Option<Duration>, interval: Duration) -> bool {
    ticked.is_none_or(|ticked| ticked >= interval.max(QUIET_TICK))
}

impl Archiver {
    /// Begins to archive the log of a pager that was opened with `archives`. The log says that commits have
    /// times from here on, so no transaction may have been committed in this run.
    pub fn begin(pager: &Pager, options: ArchiveOptions) -> Result<Archiver> {
        pager.note_archive_begins()?;
        let log = pager.shared.log.clone();
        let pin = LogPin::take_kept(&log).unwrap_or_else(|| LogPin::new(&log));
        let status = ArchiveStatus {
            location: options.store.location(),
            archived: pin.at(),
            ..ArchiveStatus::default()
        };
        let covered_us = now_us();
        let shown = ArchiverShown { status: status.clone(), covered_us, notices: Vec::new() };
        let (notices, tried, ticked) = (Vec::new(), None, None);
        let work = Work { pin, writing: None, status, notices, covered_us, tried, ticked };
        let (work, shown, is_ended) = (Mutex::new(work), Mutex::new(shown), AtomicBool::new(false));
        Ok(Archiver { log, page_size: pager.page_size() as u32, options, work, shown, is_ended })
    }

    /// Returns the time that a thread sleeps between two calls of `archive_if_due`.
    pub fn pause(&self) -> Duration {
        (self.options.interval / 8).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// Archives at the first call, if half of the interval has passed, or if there is enough for a whole
    /// piece. So the log is archived before the interval has passed, even if the store needs some time.
    pub fn archive_if_due(&self) {
        if self.is_due() {
            // The status has the error.
            let _noted = self.archive();
        }
    }

    fn is_due(&self) -> bool {
        let work = self.work.lock();
        let from = work.writing.as_ref().map_or(work.pin.at(), |writing| writing.next);
        let pending = self.log.durable_block().since(from);
        let tried = work.tried.map(|tried| tried.elapsed());
        attempt_is_due(tried, self.options.interval, work.status.error.is_some(), pending)
    }

    /// Ends the archiving of this run without its rest. An attempt that hangs in the store may continue later,
    /// but it writes nothing to the log any more.
    pub fn give_up(&self, why: &str) {
        self.is_ended.store(true, Ordering::SeqCst);
        let location = self.options.store.location();
        let what = format!("the log archive {location}: {why}");
        self.shown.lock().notices.push(ArchiveNotice { is_warning: true, what });
    }

    /// Returns whether `give_up` was called.
    pub fn has_given_up(&self) -> bool {
        self.is_ended.load(Ordering::SeqCst)
    }

    /// Archives everything that is durable now.
    ///
    /// # Errors
    ///
    /// Fails if the store fails. The log is kept, and the next call tries again.
    pub fn archive(&self) -> Result<()> {
        let mut work = self.work.lock();
        if self.has_given_up() {
            return Ok(());
        }
        work.tried = Some(Instant::now());
        let done = self.step(&mut work);
        let status = &mut work.status;
        match &done {
            Ok(()) => {
                if status.error.take().is_some() {
                    let what = format!("the log archive {} works again", status.location);
                    work.notices.push(ArchiveNotice { is_warning: false, what });
                }
            }
            Err(error) => {
                status.failures_count += 1;
                let is_new = status.error.is_none();
                status.error = Some(error.to_string());
                if is_new {
                    let what = format!("{error}; the log is kept, and the archiver tries again");
                    work.notices.push(ArchiveNotice { is_warning: true, what });
                }
            }
        }
        let mut shown = self.shown.lock();
        shown.status = work.status.clone();
        shown.covered_us = work.covered_us;
        shown.notices.append(&mut work.notices);
        done
    }

    /// Takes the messages since the last call.
    pub fn take_notices(&self) -> Vec<ArchiveNotice> {
        std::mem::take(&mut self.shown.lock().notices)
    }

    /// Returns the state of the archive.
    pub fn status(&self) -> ArchiveStatus {
        let (mut status, covered_us) = {
            let shown = self.shown.lock();
            (shown.status.clone(), shown.covered_us)
        };
        status.lag_bytes = self.log.end().since(status.archived);
        if status.lag_bytes > 0 {
            status.lag_seconds = now_us().saturating_sub(covered_us) / 1_000_000;
        }
        status
    }

    fn step(&self, work: &mut Work) -> Result<()> {
        if work.pin.is_broken() {
            self.pass_gap(work);
        }
        if work.writing.is_none() {
            work.writing = Some(self.find(work)?);
        }
        let now = now_us();
        let until = self.until(work);
        if work.writing.as_ref().is_some_and(|writing| writing.next < until) {
            self.refuse_other_writer(work)?;
        }
        let mut merged = Ok(());
        while let Some(next) = work.writing.as_ref().map(|writing| writing.next).filter(|next| *next < until)
        {
            let blocks = self.copy(next, until, work)?;
            let before = work.status.pieces_count;
            self.store(work, blocks)?;
            // Small pieces that cannot be merged do not keep the rest out of the archive.
            if work.status.pieces_count > before && merged.is_ok() {
                merged = self.merge(work);
            }
        }
        // Everything that was acknowledged before the clock was read is durable, and so before `until`.
        work.covered_us = now;
        if let Some((_, time_us)) = work.ticked {
            work.status.archived_us = work.status.archived_us.max(Some(time_us));
        }
        merged
    }

    /// Returns the end of the durable blocks. If there is something to archive, the log first gets the
    /// present time, so that a restore to any time up to now is exact. A quiet log gets it from time to time.
    fn until(&self, work: &mut Work) -> Lsn {
        let has_more = work.writing.as_ref().is_some_and(|writing| self.log.durable_block() > writing.next);
        let ticked = work.ticked.map(|(since, _)| since.elapsed());
        let is_wanted = has_more || tick_is_due(ticked, self.options.interval);
        let is_possible = !self.has_given_up() && self.log.check().is_ok();
        if is_wanted && is_possible && self.log.has_segment_for(64) {
            let ticked = (Instant::now(), now_us());
            let at = self.log.append_time(Timed::Tick);
            // If the flush fails, the log has stopped, and what is durable is archived.
            if self.log.flush(at.end).is_ok() {
                work.ticked = Some(ticked);
            }
        }
        self.log.durable_block()
    }

    /// Finds the timeline to which the log belongs, or begins one.
    fn find(&self, work: &mut Work) -> Result<Writing> {
        let store = &*self.options.store;
        let database = self.log.epoch().database;
        let (mut ends, mut notices) = (Vec::new(), Vec::new());
        for timeline in Timeline::all(store, database)? {
            match timeline.last_piece() {
                Ok(Some(piece)) => ends.push((timeline.name, piece)),
                Ok(None) => {}
                // The piece may be in order: the next call tries again.
                Err(error @ PagerError::ArchiveStore { .. }) => return Err(error),
                Err(error) => notices.push(ArchiveNotice {
                    is_warning: true,
                    what: format!("timeline {} of the log archive is not continued: {error}", timeline.name),
                }),
            }
        }
        work.notices.append(&mut notices);
        let pinned = work.pin.hold();
        let is_ours = |last: BlockMark| {
            let is_there = last.start >= pinned && self.log.has_block(last);
            is_there || planted("archive: another history is continued")
        };
        let newest =
            ends.iter().filter(|(_, piece)| is_ours(piece.end.last)).max_by_key(|(_, piece)| piece.end.next);
        if let Some((name, piece)) = newest {
            reached("archive: a timeline is continued");
            work.pin.advance(piece.end.last.start);
            let pieces = store.pieces(*name).map_err(|error| store_failed(store, &error))?;
            let (name, next, last) = (*name, piece.end.next, pieces.last().copied());
            self.tell(work, false, format!("log archive: goes on with timeline {name} at LSN {next}"));
            work.status.timeline = Some(name);
            work.status.archived = piece.end.end;
            return Ok(Writing { name, next, last });
        }
        let Some(end) = ends.iter().map(|(_, piece)| piece.end.end).max() else {
            return Ok(self.new_timeline(work, false, "the archive has no log of this database yet"));
        };
        let why = format!(
            "the archive has log of this database up to LSN {end}, but this log is of another history, or no longer has \
             the log before LSN {}; take a new backup",
            work.pin.at()
        );
        Ok(self.new_timeline(work, true, &why))
    }

    /// Begins a timeline at the pinned block.
    fn new_timeline(&self, work: &mut Work, is_warning: bool, why: &str) -> Writing {
        reached("archive: a timeline begins");
        let name = TimelineName { database: self.log.epoch().database, timeline: random_id() };
        let next = work.pin.at();
        self.tell(work, is_warning, format!("log archive: timeline {name} begins at LSN {next}: {why}"));
        work.status.timeline = Some(name);
        Writing { name, next, last: None }
    }

    fn tell(&self, work: &mut Work, is_warning: bool, what: String) {
        work.notices.push(ArchiveNotice { is_warning, what });
    }

    /// Goes on after log that was cut before it was archived.
    fn pass_gap(&self, work: &mut Work) {
        reached("archive: a gap");
        let from = work.writing.as_ref().map_or(work.pin.at(), |writing| writing.next);
        work.pin = LogPin::new(&self.log);
        work.status.gaps_count += 1;
        let why = format!(
            "the log from LSN {from} to LSN {} was cut before it could be archived, and no restore can cross this gap; take \
             a new backup, and configure a larger log",
            work.pin.at()
        );
        work.writing = Some(self.new_timeline(work, true, &why));
    }

    /// Copies blocks from the log.
    fn copy(&self, next: Lsn, until: Lsn, work: &mut Work) -> Result<Vec<u8>> {
        let mut blocks = Vec::new();
        let copied = self.log.copy_blocks(next, until, PIECE_BYTES, &mut blocks);
        // If the pin is broken, the segment may have been reused while it was read.
        if work.pin.is_broken() {
            return Err(PagerError::Backup { what: "the log was cut while it was being archived".into() });
        }
        if let Err(error) = copied {
            // A start may have kept segments of which not all blocks can be read.
            if next < self.log.read_from() {
                work.pin.advance(self.log.read_from());
                let why = format!("the log at LSN {next} cannot be read: {error}; take a new backup");
                work.writing = Some(self.new_timeline(work, true, &why));
            }
            return Err(error.into());
        }
        Ok(blocks)
    }

    /// Stores a piece, and releases its log.
    fn store(&self, work: &mut Work, blocks: Vec<u8>) -> Result<()> {
        let store = &*self.options.store;
        let Some(writing) = &mut work.writing else { return Ok(()) };
        let start = PieceStart {
            page_size: self.page_size,
            timeline: writing.name,
            start: writing.next,
            log_segment_bytes: self.log.geometry().segment_bytes(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let piece = Piece::new(start, blocks)?;
        let bytes = piece.encode(self.options.compression);
        let created = store.create(writing.name, writing.next, &bytes);
        let is_created = created.map_err(|error| store_failed(store, &error));
        if planted("archive: a piece that could not be stored counts as archived") && is_created.is_err() {
            writing.next = piece.end.next;
            work.pin.advance(piece.end.last.start);
            return Ok(());
        }
        if !is_created? {
            let found = read_piece(store, writing.name, writing.next)?;
            return self.meet(work, &found);
        }
        writing.last = Some(StoredPiece { start: writing.next, bytes: bytes.len() as u64 });
        work.status.pieces_count += 1;
        self.advance(work, &piece);
        Ok(())
    }

    /// Notes that the archive has the log up to the end of the piece.
    fn advance(&self, work: &mut Work, piece: &Piece) {
        if let Some(writing) = &mut work.writing {
            writing.next = piece.end.next;
        }
        work.pin.advance(piece.end.last.start);
        work.status.archived = piece.end.end;
    }

    /// Goes on after a piece that is already in the timeline. If it has the same log, an earlier attempt to
    /// store it has succeeded after all. Otherwise another server has written it.
    fn meet(&self, work: &mut Work, found: &Piece) -> Result<()> {
        let store = &*self.options.store;
        let Some(writing) = &mut work.writing else { return Ok(()) };
        if self.log.has_block(found.end.last) && found.end.next >= writing.next {
            reached("archive: a piece is there already");
            let pieces = store.pieces(writing.name).map_err(|error| store_failed(store, &error))?;
            writing.last = pieces.last().copied();
            self.advance(work, found);
            return Ok(());
        }
        reached("archive: another server has written the timeline");
        let why = format!(
            "timeline {} has log of another server, which runs on a copy of this database; take a new backup",
            writing.name
        );
        work.writing = Some(self.new_timeline(work, true, &why));
        Ok(())
    }

    /// Begins another timeline if another server has written into this one.
    fn refuse_other_writer(&self, work: &mut Work) -> Result<()> {
        let store = &*self.options.store;
        let Some(writing) = &work.writing else { return Ok(()) };
        let pieces = store.pieces(writing.name).map_err(|error| store_failed(store, &error))?;
        let last = pieces.last().copied();
        if last == writing.last {
            return Ok(());
        }
        match last {
            Some(last) => {
                let found = read_piece(store, writing.name, last.start)?;
                self.meet(work, &found)
            }
            None => {
                let why = format!("the pieces of timeline {} were removed; take a new backup", writing.name);
                work.writing = Some(self.new_timeline(work, true, &why));
                Ok(())
            }
        }
    }

    /// Merges small pieces at the end of the timeline.
    fn merge(&self, work: &mut Work) -> Result<()> {
        let store = &*self.options.store;
        let Some(writing) = &mut work.writing else { return Ok(()) };
        let list = || store.pieces(writing.name).map_err(|error| store_failed(store, &error));
        let pieces = list()?;
        let merge = Merge { store, timeline: writing.name, compression: self.options.compression };
        // Only a list that ends with the own last piece is of a timeline that no other server has written.
        if pieces.last().copied() == writing.last && merge.run(&pieces, writing.next)? {
            writing.last = list()?.last().copied();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn seconds(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    #[test]
    fn a_long_interval_delays_neither_the_first_attempt_nor_a_retry_nor_a_whole_piece() {
        let whole = PIECE_BYTES as u64;
        assert!(attempt_is_due(None, HOUR, false, 0));
        assert!(!attempt_is_due(seconds(1799), HOUR, false, whole - 1));
        assert!(attempt_is_due(seconds(1800), HOUR, false, 0));
        assert!(attempt_is_due(seconds(0), HOUR, false, whole));
        assert!(!attempt_is_due(seconds(9), HOUR, true, whole));
        assert!(attempt_is_due(seconds(10), HOUR, true, 0));
        assert!(attempt_is_due(seconds(1), Duration::from_secs(2), true, 0));
    }

    #[test]
    fn a_quiet_log_gets_the_time_once_a_minute_or_once_in_an_interval() {
        let interval = Duration::from_secs(10);
        assert!(tick_is_due(None, interval));
        assert!(!tick_is_due(seconds(59), interval) && tick_is_due(seconds(60), interval));
        assert!(!tick_is_due(seconds(3599), HOUR) && tick_is_due(seconds(3600), HOUR));
    }
}
