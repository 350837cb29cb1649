//! The stored log of a database that is not open yet. First the log is read, and then it is opened for
//! appending.
//!
//! Invariants
//! 1. Reading the log changes nothing. Unfinished segment files are removed when the log is opened for
//!    appending.
//! 2. New records are appended in a new incarnation (life of the log). The control file must have it durably
//!    before `resume`.
//! 3. If a log begins empty, its first LSN is after all LSNs of the old log. So LSNs always grow.
//!
//! This module does not know pages or the control file.

use varve_device::Directory;

use super::format::{Epoch, Geometry, LOG_SECTOR_BYTES_MIN, SEGMENT_HEADER_BYTES};
use super::reader::{Group, Known, Life, Reader, Tail};
use super::segments::Segments;
use super::{Log, LogConfig, LogError, Places};
use crate::base::lsn::Lsn;

/// LSN of the first block of a new database.
pub const FIRST_LSN: Lsn = Lsn::new(SEGMENT_HEADER_BYTES);

/// The files of a log that is not open.
pub struct StoredLog {
    config: LogConfig,
    geometry: Geometry,
    database: u64,
    segments: Segments,
}

impl StoredLog {
    /// Finds the segments of `database`.
    pub fn open(config: LogConfig, database: u64) -> Result<StoredLog, LogError> {
        let geometry = Geometry::new(config.segment_bytes);
        let segments = Segments::open(config.directory.clone(), geometry, config.capacity_bytes, database)?;
        Ok(StoredLog { config, geometry, database, segments })
    }

    /// Makes an empty log whose first block is in the next segment after `lsn`. If there are segments of this
    /// database, they are removed first, because the control file says that they are not needed. The control
    /// file must have the new life of the log before `resume`. The segment exists before that, because a log
    /// without the segment from which a start reads counts as damaged.
    pub fn begin_empty(config: LogConfig, database: u64, lsn: Lsn) -> Result<(StoredLog, Tail), LogError> {
        Segments::remove_of(&*config.directory, database)?;
        let log = StoredLog::open(config, database)?;
        let number = log.geometry.segment_of(lsn) + 1;
        log.segments.prepare(number)?;
        let at = log.geometry.first_block(number);
        Ok((log, Tail { block: at, end: at, next: at }))
    }

    /// Fails if the log of `database` in `directory` has been written to although the control file says that
    /// it begins empty. Then the control file is older than the log.
    pub fn refuse_begun(directory: &dyn Directory, database: u64) -> Result<(), LogError> {
        Segments::refuse_begun(directory, database)
    }

    /// Removes the log files of `database` in `directory`. It is an error if one belongs to another database.
    pub fn remove_of(directory: &dyn Directory, database: u64) -> Result<(), LogError> {
        Segments::remove_of(directory, database)
    }

    /// Does the same as `remove_of`, but files of another database are no error, and stay.
    pub fn remove_own(directory: &dyn Directory, database: u64) -> Result<(), LogError> {
        Segments::remove_own(directory, database)
    }

    /// Returns whether `directory` has log files.
    pub fn any(directory: &dyn Directory) -> Result<bool, LogError> {
        Segments::any(directory)
    }

    /// Fails if `directory` has no log file. Without this check the error would be damage, but most often the
    /// log is in another directory.
    pub fn require_any(directory: &dyn Directory) -> Result<(), LogError> {
        if StoredLog::any(directory)? {
            return Ok(());
        }
        Err(LogError::Missing { location: directory.location(), names: "log.0000, log.0001 and so on" })
    }

    /// Keeps up to `limit_bytes` of the bytes that are read. They stay in memory for a later `replay`.
    pub(crate) fn keep_read(&self, limit_bytes: usize) {
        self.segments.keep_read(limit_bytes);
    }

    /// Calls `visit` with every group from the block at `from` to the end of the log, and returns the end.
    ///
    /// `lives` are the incarnations in order; the first one covers `from`. The call fails if the log can be
    /// proven to be damaged.
    pub fn each_group<E: From<LogError>>(
        &self,
        lives: &[Life],
        from: Lsn,
        known: Known<'_>,
        visit: impl FnMut(Group<'_>) -> Result<(), E>,
    ) -> Result<Tail, E> {
        let reader = Reader::new(&self.segments, self.geometry, self.database, lives, from)?;
        reader.keeping().each_group(known, visit)
    }

    /// Returns an error if a segment between these positions is missing.
    pub(crate) fn require_segments(&self, from: Lsn, until: Lsn) -> Result<(), LogError> {
        let mut numbers = self.geometry.segment_of(from)..self.geometry.segment_of(until);
        let Some(number) = numbers.find(|number| self.segments.file(*number).is_none()) else {
            return Ok(());
        };
        let file = format!("of segment {number}, which is missing in {}", self.segments.location());
        let evidence = format!("it would be read from LSN {from}");
        Err(LogError::Damaged { at: self.geometry.first_block(number), file, offset: 0, evidence })
    }

    /// Makes the bytes that were read durable. A killed process may have left them in caches. Recovery uses
    /// them, so a later power failure must not remove them.
    pub fn make_durable(&self) -> Result<(), LogError> {
        self.segments.flush_live()
    }

    /// Returns the LSN of the first block of a new life.
    pub fn next_start(&self, tail: Tail) -> Lsn {
        self.geometry.block_start(tail.next, self.sector_shift())
    }

    /// Opens the log for appending after `tail`; a start would read from `truncated`.
    pub fn resume(self, incarnation: u32, tail: Tail, truncated: Lsn) -> Result<Log, LogError> {
        let start = self.next_start(tail);
        let first = self.geometry.segment_of(truncated.min(tail.block));
        self.segments.resume(first, self.geometry.segment_of(start))?;
        let epoch = Epoch { database: self.database, incarnation };
        let shift = self.sector_shift();
        let places = Places { last: tail.block, start, truncated };
        Ok(Log::start(self.segments, self.geometry, &self.config, epoch, shift, places))
    }

    fn sector_shift(&self) -> u8 {
        let sector_bytes = self.segments.sector_bytes();
        let fits = (LOG_SECTOR_BYTES_MIN..=SEGMENT_HEADER_BYTES).contains(&u64::from(sector_bytes));
        assert!(sector_bytes.is_power_of_two() && fits, "sectors of {sector_bytes} bytes");
        sector_bytes.trailing_zeros() as u8
    }
}

impl Tail {
    /// Returns the end of a log without groups.
    pub fn empty() -> Tail {
        Tail { block: FIRST_LSN, end: FIRST_LSN, next: FIRST_LSN }
    }
}
