//! The write-ahead log: appending records, group commit, log space, and failures of the log's device.
//!
//! Invariants
//! 1. `durable` is never above what a completed durable write has stored. After `flush(lsn)` has succeeded,
//!    the caller may acknowledge everything at or below `lsn`.
//! 2. The append section is one mutex. So three orders are equal: the order of LSNs, the order of bytes in
//!    the log, and the order in which the callbacks of `append` run.
//! 3. After a failed write the log is stopped: appends are dropped, flushes and admissions fail. This lasts
//!    until the process ends, because it is unknown what was stored.
//! 4. `append` never waits and never fails. All waiting is in `admit`, which is called without latches. It
//!    waits for log space, for earlier bytes to be written, and for the next segment.
//! 5. A small part of the capacity is reserved for appends without `admit`, by page writers, levels and
//!    checkpoints. So a full log never waits for the page writes that would empty it.
//!
//! This module does not know pages, what records mean, or when to take a checkpoint.

mod archived;
pub(crate) mod blocks;
mod flush;
mod for_pages;
pub mod format;
pub(crate) mod history;
mod kept;
mod line;
pub(crate) mod notes;
mod observe;
pub(crate) mod panics;
pub(crate) mod pin;
mod reader;
pub mod record;
pub(crate) mod redo;
mod segments;
mod stored;
mod write_ahead;
mod writer;

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use varve_device::Directory;

pub use crate::base::log_error::{LogError, RecordError};
use crate::base::lsn::{AtomicLsn, Lsn};
use archived::LogClock;
use flush::Queue;
use format::{Epoch, Geometry};
pub use observe::Observe;
use pin::Pins;
use reader::Reader;
pub use reader::{Group, Known, Life, Tail};
pub use record::Record;
use segments::Segments;
pub use stored::{FIRST_LSN, StoredLog};
pub(crate) use write_ahead::{PANICKED, WriteAhead};
pub use writer::Appended;
use writer::Appender;

/// The largest number of bytes that a group of records and its block take in addition to the records. A
/// caller adds this before it asks for space in the log.
pub(crate) const GROUP_SLACK_BYTES: usize = 64;

/// The configuration of a log.
#[derive(Clone)]
pub struct LogConfig {
    /// The directory of the segments.
    pub directory: Arc<dyn Directory>,
    /// Size of a segment.
    pub segment_bytes: u64,
    /// The capacity of the log, in bytes. It is at least four segments.
    pub capacity_bytes: u64,
}

/// Whether a new mini-transaction may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may start.
    Go,
    /// The log is near its capacity. The caller takes a checkpoint, or waits for one.
    Full,
}

/// How soon the next segment is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    Not,
    Soon,
    Now,
}

/// Statistics of the log since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Groups appended.
    pub groups_count: u64,
    /// Bytes of groups appended.
    pub group_bytes: u64,
    /// Durable writes.
    pub flushes_count: u64,
    /// The number of bytes that these writes have written, including padding.
    pub flushed_bytes: u64,
    /// The number of threads that waited for the flush of another thread.
    pub followers_count: u64,
    /// Bytes between the truncation point and the end.
    pub used_bytes: u64,
    /// The number of segment files that are in use or prepared.
    pub live_segments_count: u64,
    /// Segment files to recycle.
    pub spare_segments_count: u64,
}

/// The write-ahead log of one open database.
pub struct Log {
    geometry: Geometry,
    epoch: Epoch,
    sector_shift: u8,
    capacity_bytes: u64,
    segments: Segments,
    appender: Mutex<Appender>,
    /// The end of the last group. It is written inside the append section.
    end: AtomicLsn,
    /// Number of groups with note records, which no mini-transaction made.
    notes_count: AtomicU64,
    durable: AtomicLsn,
    /// Start of the first block that may not be durable.
    durable_block: AtomicLsn,
    queue: Queue,
    truncated: AtomicLsn,
    /// The LSN from which a start would redo. A pin may keep the log before it.
    needed: AtomicLsn,
    /// The length of the log from `needed` on from which on `admit` returns `Full`, whatever the capacity is.
    limit_bytes: AtomicU64,
    /// The LSN from which the start has read the log, which is the start of a block.
    read_from: Lsn,
    pins: Pins,
    /// The clock, if the log is archived.
    clock: LogClock,
    room: (Mutex<()>, Condvar),
    /// One of [`RUNS`], [`STOPPED`] and [`STOPPED_BY_PANIC`]. The value only grows.
    state: AtomicU8,
    /// The reason why the log stopped. It is set before `state` changes.
    poison: OnceLock<Arc<str>>,
}

/// The log accepts changes.
const RUNS: u8 = 0;
/// A device failed, or pages and log may contradict each other. The log accepts no more changes.
const STOPPED: u8 = 1;
/// A panic has passed through the pager, so the log takes no more changes. One value says both, so no thread
/// sees the panic without the stop.
const STOPPED_BY_PANIC: u8 = 2;

const CAPACITY_SEGMENTS_MIN: u64 = 4;
/// If more bytes than this are not written yet, `admit` first writes them.
const UNWRITTEN_BYTES_MAX: u64 = 4 << 20;

/// The positions with which a log is opened for appending.
struct Places {
    /// Start of the last existing block.
    last: Lsn,
    /// Start of the next block.
    start: Lsn,
    /// The LSN from which a start would read.
    truncated: Lsn,
}

impl Log {
    fn start(
        segments: Segments,
        geometry: Geometry,
        config: &LogConfig,
        epoch: Epoch,
        sector_shift: u8,
        Places { last, start, truncated }: Places,
    ) -> Log {
        Log {
            geometry,
            epoch,
            sector_shift,
            capacity_bytes: config.capacity_bytes.max(CAPACITY_SEGMENTS_MIN * config.segment_bytes),
            segments,
            appender: Mutex::new(Appender::new(geometry, sector_shift, last, start)),
            end: AtomicLsn::new(start),
            notes_count: AtomicU64::new(0),
            durable: AtomicLsn::new(start),
            durable_block: AtomicLsn::new(start),
            queue: Queue::default(),
            truncated: AtomicLsn::new(truncated),
            needed: AtomicLsn::new(truncated),
            limit_bytes: AtomicU64::new(u64::MAX),
            read_from: truncated,
            pins: Pins::default(),
            clock: LogClock::default(),
            room: (Mutex::new(()), Condvar::new()),
            state: AtomicU8::new(RUNS),
            poison: OnceLock::new(),
        }
    }

    /// Returns the LSN up to which the log is durable: everything at or below it survives a crash.
    pub fn durable(&self) -> Lsn {
        self.durable.load()
    }

    /// Returns the start of a block before which everything is durable, so redo can begin here. Between this
    /// position and `durable` there are no groups, or a flush has just begun.
    pub(crate) fn durable_block(&self) -> Lsn {
        self.durable_block.load()
    }

    /// Returns the end of the last group.
    pub fn end(&self) -> Lsn {
        self.end.load()
    }

    /// Returns the writer of this log.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the LSN from which a start would have to read.
    pub fn truncated(&self) -> Lsn {
        self.truncated.load()
    }

    /// Returns whether a mini-transaction may start. Writes waiting bytes, and makes the next segment, if
    /// necessary. The caller holds no latch. The call fails if the log has stopped, or the next segment can't
    /// be made.
    ///
    /// A full device is no failure as long as segments can be reused. Then the answer is `Full`.
    pub fn admit(&self) -> Result<Admission, LogError> {
        self.check()?;
        let end = self.end();
        self.prepare_next(end)?;
        if end.since(self.durable()) > UNWRITTEN_BYTES_MAX {
            self.flush(end)?;
        }
        Ok(if self.is_full() { Admission::Full } else { Admission::Go })
    }

    /// Returns whether mini-transactions must wait until the log is truncated.
    pub fn is_full(&self) -> bool {
        let end = self.end();
        let used_bytes = end.since(self.truncated());
        used_bytes >= self.admission_bytes()
            || self.bytes_to_redo() >= self.limit_bytes.load(Ordering::Relaxed)
            || (self.needs_next(end) == Due::Now && !self.segments.can_make())
    }

    /// Waits until the log is truncated, but at most `limit`. This is called after `admit` returned `Full`.
    pub fn wait_for_room(&self, limit: Duration) {
        let (lock, room) = &self.room;
        let mut held = lock.lock();
        if self.is_full() && self.check().is_ok() {
            room.wait_for(&mut held, limit);
        }
    }

    /// Returns the length of the log from which on `admit` returns `Full`. The rest of the capacity is for
    /// appends without `admit`.
    pub fn admission_bytes(&self) -> u64 {
        let reserve_bytes = (self.capacity_bytes / 8).max(self.geometry.segment_bytes());
        self.capacity_bytes - reserve_bytes
    }

    /// Returns the length of the log that a pin may keep.
    fn pin_bytes_max(&self) -> u64 {
        self.admission_bytes() / 2
    }

    /// Does the same as `admission_bytes`, but not more than the device has space for, and not more than the
    /// limit. Cleaning uses this.
    pub fn cleaning_bytes(&self) -> u64 {
        let room_bytes = self.segments.bytes_max().saturating_sub(self.geometry.segment_bytes());
        self.admission_bytes().min(room_bytes).min(self.limit_bytes.load(Ordering::Relaxed))
    }

    /// Returns the length of the log that a start would read.
    pub(crate) fn bytes_to_redo(&self) -> u64 {
        self.end().since(self.needed.load())
    }

    /// Limits the length of the log that a start would read, in addition to the capacity. From this length on
    /// `admit` returns `Full`.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns whether a group of `bytes` fits into the segments that exist. This is for log records that can
    /// be left out, and that were appended without `admit`.
    pub fn has_segment_for(&self, bytes: usize) -> bool {
        self.has_segments_for(&[bytes])
    }

    /// Does the same as `has_segment_for`, for several groups of these lengths, one after another.
    pub fn has_segments_for(&self, groups: &[usize]) -> bool {
        self.segments.is_prepared(self.last_segment_for(groups))
    }

    /// Does the same as `has_segments_for`, but for log records that must be written. Missing segments are
    /// made. Other threads may take the space at once, so the caller checks again. Returns `false` if a full
    /// device has no space. The caller holds no latch.
    pub fn make_segments_for(&self, groups: &[usize]) -> Result<bool, LogError> {
        match self.segments.prepare(self.last_segment_for(groups)) {
            Err(error) if error.is_no_space() => Ok(false),
            made => made.map(|()| true),
        }
    }

    /// Appends a note record that must not be left out, and makes it durable.
    ///
    /// # Errors
    ///
    /// Fails if the log's device has no space for the record, or does not work.
    pub(crate) fn store_note(&self, kind: u8, payload: &[u8]) -> Result<(), LogError> {
        let mut records = Vec::with_capacity(payload.len() + 8);
        record::put_note(&mut records, kind, payload);
        self.segments.prepare(self.last_segment_for(&[records.len()]))?;
        self.append_note(&records);
        self.flush(self.end())
    }

    /// Returns the last segment that these groups can need. A group is in one segment, and may have a block
    /// of its own that begins at a sector.
    fn last_segment_for(&self, groups: &[usize]) -> u64 {
        let mut at = self.end();
        for bytes in groups {
            let needed_bytes = *bytes as u64 + format::SEGMENT_HEADER_BYTES;
            if self.geometry.segment_end(at).since(at) <= needed_bytes {
                at = self.geometry.first_block(self.geometry.segment_of(at) + 1);
            }
            // A group that fills a whole segment still ends in this segment.
            let left_bytes = self.geometry.segment_end(at).since(at);
            at = at.forward(needed_bytes.min(left_bytes - 1));
        }
        self.geometry.segment_of(at)
    }

    /// Waits until no thread creates a segment. On a nearly full device, the creation of a segment takes
    /// space for a moment.
    pub fn await_segment(&self) {
        self.segments.await_making();
    }

    /// Ensures that the segment after the current one exists, for a background thread. This costs little if
    /// it exists. If it fails, `admit` tries again when the segment is needed, and returns the error.
    pub fn prepare_ahead(&self) -> Result<(), LogError> {
        let next = self.geometry.segment_of(self.end()) + 1;
        if self.segments.is_prepared(next) || !self.segments.can_make() {
            return Ok(());
        }
        self.segments.try_prepare(next)
    }

    /// Calls `visit` with the groups of earlier lives of the log, from the block at `from` to `until`.
    /// `until` is the end that was found before this log was opened for appending.
    pub fn replay<E: From<LogError>>(
        &self,
        lives: &[Life],
        range: Range<Lsn>,
        visit: impl FnMut(Group<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.reader(lives, range.start)?.each_group_before(range.end, visit)
    }

    /// Does the same as `replay`, for the first of two readings. The bytes are kept for the second one.
    pub(crate) fn replay_first<E: From<LogError>>(
        &self,
        lives: &[Life],
        range: Range<Lsn>,
        visit: impl FnMut(Group<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.reader(lives, range.start)?.keeping().each_group_before(range.end, visit)
    }

    fn reader<'l>(&'l self, lives: &'l [Life], from: Lsn) -> Result<Reader<'l>, LogError> {
        Reader::new(&self.segments, self.geometry, self.epoch.database, lives, from)
    }

    /// Releases the bytes that were kept, because earlier lives of the log are not read again.
    pub(crate) fn forget_read(&self) {
        self.segments.keep_read(0);
    }

    /// Returns how urgent it is to make the segment after the segment of `end`.
    fn needs_next(&self, end: Lsn) -> Due {
        let number = self.geometry.segment_of(end);
        if self.segments.is_prepared(number + 1) {
            return Due::Not;
        }
        let (filled_bytes, segment_bytes) = (self.geometry.offset_of(end), self.geometry.segment_bytes());
        match filled_bytes {
            _ if !self.segments.is_prepared(number) => Due::Now,
            filled if filled > segment_bytes / 8 * 7 => Due::Now,
            filled if filled > segment_bytes / 2 => Due::Soon,
            _ => Due::Not,
        }
    }

    fn prepare_next(&self, end: Lsn) -> Result<(), LogError> {
        let due = self.needs_next(end);
        if due == Due::Not || !self.segments.can_make() {
            return Ok(());
        }
        let next = self.geometry.segment_of(end) + 1;
        let made =
            if due == Due::Now { self.segments.prepare(next) } else { self.segments.try_prepare(next) };
        match made {
            Err(error) if error.is_no_space() && !self.segments.can_make() => Ok(()),
            made => made,
        }
    }

    /// Releases the log before `upto`, except what a pin keeps. The control file must already say durably
    /// that a start reads from `upto` or later.
    pub fn truncate(&self, upto: Lsn) -> Result<(), LogError> {
        assert!(upto <= self.end().max(self.block_start()), "truncation at {upto}, beyond the log's end");
        self.flush(upto.min(self.end()))?;
        let kept = self.pins.limit(upto, self.end(), self.pin_bytes_max());
        self.needed.advance(upto);
        self.truncated.advance(kept);
        self.segments.recycle_below(self.geometry.segment_of(kept))?;
        drop(self.room.0.lock());
        self.room.1.notify_all();
        Ok(())
    }

    /// Stops the log for ever, because pages and log may contradict each other, or the device failed.
    pub fn poison(&self, why: &str) {
        self.stop(why, STOPPED);
    }

    fn stop(&self, why: &str, state: u8) {
        let _first_reason_stays = self.poison.set(why.into());
        self.state.fetch_max(state, Ordering::AcqRel);
        self.room.1.notify_all();
        self.queue.release_all();
    }

    /// Stops the log after a panic, because the state of the pager in memory can't be trusted then.
    pub fn panicked(&self) {
        self.stop(PANICKED, STOPPED_BY_PANIC);
    }

    /// Returns whether a panic has stopped the log.
    pub fn has_panicked(&self) -> bool {
        self.state.load(Ordering::Acquire) == STOPPED_BY_PANIC
    }

    /// Returns an error if the log has stopped.
    pub fn check(&self) -> Result<(), LogError> {
        if !self.is_stopped() {
            return Ok(());
        }
        Err(LogError::Poisoned(self.poison.get().cloned().unwrap_or_else(|| "an unknown failure".into())))
    }

    fn is_stopped(&self) -> bool {
        self.state.load(Ordering::Acquire) >= STOPPED
    }

    /// Returns the statistics since the log was opened.
    pub fn stats(&self) -> LogStats {
        let (live, spare) = self.segments.counts();
        let (groups_count, group_bytes) = self.appended();
        LogStats {
            groups_count,
            group_bytes,
            flushes_count: self.queue.flushes_count(),
            flushed_bytes: self.queue.flushed_bytes(),
            followers_count: self.queue.followers_count(),
            used_bytes: self.end().since(self.truncated()),
            live_segments_count: live as u64,
            spare_segments_count: spare as u64,
        }
    }
}
