//! What a log does for its archive: it keeps old segments at a start, and has times (decision 0263).
//!
//! Invariants
//! 1. A start keeps the segments that the last run has not archived, if they are still there, and no cut of
//!    this run comes before the archiver has taken its pin.
//! 2. The times in a log do not decrease within one life of the log, even if the clock is set back.
//!
//! This module does not know where the log is archived.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::notes::time::{NOTE_TIME, TIME_BYTES, Timed};
use super::writer::Appended;
use super::{Log, record};
use crate::base::lsn::Lsn;

/// The clock of a log.
#[derive(Default)]
pub(super) struct LogClock {
    is_on: AtomicBool,
    /// The newest time in the log. It changes in the append section.
    newest_us: AtomicU64,
}

impl LogClock {
    /// Returns the time for the next record. The caller is in the append section.
    pub(super) fn tick(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        let time_us = now_us.max(self.newest_us.load(Ordering::Relaxed));
        self.newest_us.store(time_us, Ordering::Relaxed);
        time_us
    }
}

impl Log {
    /// Begins to serve an archive: old segments are kept, a pin waits for the archiver, and records get
    /// times. This is called before anything is appended, or cut off.
    pub(crate) fn serve_archive(&self) {
        let (next, geometry) = (self.block_start(), self.geometry);
        let limit_bytes = self.pin_bytes_max();
        let oldest = self.segments.keep_older(|number| {
            let first = geometry.first_block(number);
            next.since(first) <= limit_bytes
        });
        let first = oldest.unwrap_or_else(|| geometry.segment_of(next));
        self.pins.keep(geometry.first_block(first).min(next), geometry);
        self.clock.is_on.store(true, Ordering::Release);
    }

    /// Returns the LSN from which the start has read the log. From there on, the log can be read.
    pub(crate) fn read_from(&self) -> Lsn {
        self.read_from
    }

    /// Returns whether commits have times.
    pub(crate) fn has_times(&self) -> bool {
        self.clock.is_on.load(Ordering::Acquire)
    }

    /// Appends a note record with the present time.
    pub(crate) fn append_time(&self, what: Timed) -> Appended {
        let mut records = Vec::with_capacity(16);
        record::put_note(&mut records, NOTE_TIME, &what.payload(0));
        let at = records.len() - TIME_BYTES;
        self.append_timed(&mut records, at, |appended| {
            self.count_note();
            appended
        })
    }
}
