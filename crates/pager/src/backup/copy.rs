//! Copies an open database: the frames of an online backup.
//!
//! ```text
//!   start --> pages of each space, extent by extent --> end
//!               \__ between them: the log that was written meanwhile __/
//! ```
//!
//! Invariants
//! 1. The log is pinned at a position before any page is copied. The pin follows the copy of the log, which
//!    is made between the pages, so a backup keeps little log.
//! 2. The list of tablespaces is that of the end LSN: tablespaces are not made or dropped while the end is
//!    determined.
//! 3. An incremental backup is made only if the state of the earlier backup is in the past of this database.
//! 4. A page that is damaged, or that was lost and reads as zeros, ends the backup with an error that names
//!    the page. A page that was freed meanwhile is left out.
//!
//! A page that is allocated after its extent was copied needs no copy, because the log has it from its first
//! byte on: a page is formatted in the mini-transaction that allocates it.
//!
//! This module does not know where the frames go.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use varve_device::reached;

use super::contents::{
    BackupBase, BackupEnd, BackupStart, KIND_END, KIND_LOG, KIND_PAGES, KIND_SAME, KIND_START, encode_pages,
    encode_same,
};
use super::frame::FrameWriter;
use crate::api::pager::Pager;
use crate::base::compression::Compression;
use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageNo, PageRange, SpaceId};
use crate::base::lsn::Lsn;
use crate::base::page::{self, PageDamage, kind};
use crate::base::space_format::{ExtentNo, Geometry};
use crate::control::{StartHistory, random_id};
use crate::log::notes::time::Timed;
use crate::log::pin::LogPin;
use crate::pool::PageS;
use crate::running::shared::Shared;

/// The log is copied when this much of it has been written since the last copy, or an eighth of its capacity.
const LOG_STEP_BYTES: u64 = 1 << 20;
/// The most bytes of log in a frame, except for one block.
const LOG_FRAME_BYTES: usize = 1 << 20;
/// A page of zeros is read this often. Between two reads, a page can be freed and allocated once more.
const ZERO_READS: u32 = 4;

/// How a backup is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackupOptions {
    /// The compression of the backup.
    pub compression: Compression,
    /// Makes an incremental backup: pages that were not changed since this earlier backup are left out.
    pub base: Option<BackupBase>,
}

/// How much of a backup is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupProgress {
    /// Pages of the database that are done.
    pub pages_done: u64,
    /// Pages in use when the backup began.
    pub pages: u64,
    /// Bytes of the log that were copied.
    pub log_bytes: u64,
}

/// The next step of a backup.
enum Step {
    Start,
    Pages { spaces: VecDeque<SpaceId>, extent: ExtentNo },
    End,
    Done,
}

/// A backup that is being made. Dropping it before its end releases the log.
pub struct Backup<'p> {
    shared: &'p Shared,
    pin: LogPin,
    frames: FrameWriter,
    start: BackupStart,
    step: Step,
    copied: u64,
    same: u64,
    log_bytes: u64,
    /// End of the last copied log group.
    log_end: Lsn,
}

impl<'p> Backup<'p> {
    pub(crate) fn new(shared: &'p Shared, options: BackupOptions) -> Result<Backup<'p>> {
        shared.log.check()?;
        let pin = LogPin::new(&shared.log);
        let (at, database) = (pin.at(), shared.started.database);
        let starts = shared.control.starts();
        options.base.map_or(Ok(()), |base| refuse_unfit(&base, database, &starts, at))?;
        let newest = starts.newest().ok_or_else(|| PagerError::Backup {
            what: "this database has no history of starts: start it again, and then take the backup".into(),
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ids = shared.spaces.durable_ids();
        let start = BackupStart {
            page_size: shared.config.page_size as u32,
            database,
            backup: random_id(),
            start: at,
            log_segment_bytes: shared.log.geometry().segment_bytes(),
            newest,
            base: options.base,
            pages: ids.iter().map(|id| shared.spaces.used_pages(*id)).sum(),
            time_us: now.as_micros() as u64,
            is_packed: shared.control.get().packed,
            program: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let frames = FrameWriter::new(options.compression);
        let (step, copied, same, log_bytes, log_end) = (Step::Start, 0, 0, 0, at);
        Ok(Backup { shared, pin, frames, start, step, copied, same, log_bytes, log_end })
    }

    /// Returns what the backup says at its start.
    pub fn start(&self) -> &BackupStart {
        &self.start
    }

    /// Returns how much of the backup is made.
    pub fn progress(&self) -> BackupProgress {
        let pages_done = self.copied + self.same;
        BackupProgress { pages_done, pages: self.start.pages, log_bytes: self.log_bytes }
    }

    /// Appends the next bytes of the backup to `out`. Returns false, and appends nothing, after the end. One
    /// call appends the pages of an extent at most, and the log that was written meanwhile.
    pub fn next(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        match &mut self.step {
            Step::Done => return Ok(false),
            Step::Start => {
                self.frames.put(KIND_START, &self.start.encode(), out);
                let spaces = self.shared.spaces.durable_ids().into();
                self.step = Step::Pages { spaces, extent: 0 };
            }
            Step::Pages { spaces, extent } => match spaces.front().copied() {
                None => self.step = Step::End,
                Some(space) => match self.shared.spaces.extent_to_copy(space, *extent) {
                    Some((geometry, found)) => {
                        *extent = found + 1;
                        self.extent(geometry, found, out)?;
                        let log = &self.shared.log;
                        let step_bytes = LOG_STEP_BYTES.min(log.admission_bytes() / 8);
                        self.log(log.durable_block(), step_bytes, out)?;
                    }
                    None => {
                        spaces.pop_front();
                        *extent = 0;
                    }
                },
            },
            Step::End => {
                self.end(out)?;
                self.step = Step::Done;
            }
        }
        Ok(true)
    }

    /// Copies the pages of an extent.
    fn extent(&mut self, geometry: Geometry, extent: ExtentNo, out: &mut Vec<u8>) -> Result<()> {
        let shared = self.shared;
        let Some(entry) = shared.spaces.entry(geometry, extent) else { return Ok(()) };
        let ids: Vec<PageId> = entry.used.iter().map(|within| geometry.page_of(extent, within)).collect();
        shared.pool.prefetch(&ids);
        let (mut numbers, mut bytes, mut same): (Vec<PageNo>, Vec<u8>, Vec<PageRange>) = Default::default();
        for id in ids {
            let Some(page) = self.page(id)? else { continue };
            if self.is_same(&page) {
                self.same += 1;
                match same.last_mut().filter(|last| last.first.plus(last.count) == id) {
                    Some(last) => last.count += 1,
                    None => same.push(PageRange { first: id, count: 1 }),
                }
                continue;
            }
            let from = bytes.len();
            bytes.extend_from_slice(&page);
            drop(page);
            page::seal(&mut bytes[from..]);
            numbers.push(id.no());
        }
        if !numbers.is_empty() {
            self.copied += numbers.len() as u64;
            self.frames.put(KIND_PAGES, &encode_pages(geometry.space, &numbers, &bytes), out);
        }
        if !same.is_empty() {
            self.frames.put(KIND_SAME, &encode_same(geometry.space, &same), out);
        }
        Ok(())
    }

    /// Returns an allocated page. Returns `None` if it was freed meanwhile, or is not formatted yet.
    ///
    /// A page of zeros has no content. It is not formatted yet if its allocation is not logged. If it is
    /// logged, the page was formatted in the same mini-transaction. Then the zeros are a lost write, unless
    /// the page was formatted or freed since it was read. So it is read again.
    fn page(&self, id: PageId) -> Result<Option<PageS<'p>>> {
        let mut reads_left = ZERO_READS;
        loop {
            let mut error = match self.shared.pool.fix(id, Access::Sequential) {
                Ok(page) => return Ok(Some(page)),
                Err(error) => error,
            };
            let is_zero = matches!(error, PagerError::DamagedPage { damage: PageDamage::Zero, .. });
            // Only the data space has a root page. In the other spaces, its number is allocated and not used.
            if is_zero && id.no() == PageId::ROOT.no() && id.space() != SpaceId::DATA {
                return Ok(None);
            }
            if is_zero {
                match self.shared.spaces.is_allocation_logged(&self.shared.pool, id) {
                    Ok(true) => {}
                    Ok(false) => return Ok(None),
                    Err(of_descriptor) => error = of_descriptor,
                }
            }
            if !self.shared.spaces.is_allocated(id) {
                reached("backup: a page was freed meanwhile");
                return Ok(None);
            }
            reads_left -= 1;
            if !is_zero || reads_left == 0 {
                return Err(error);
            }
        }
    }

    /// Returns whether the earlier backup has this version of the page. Descriptor pages are always copied,
    /// because a new one is written without the log.
    fn is_same(&self, page: &PageS<'_>) -> bool {
        let is_own = [kind::SPACE_HEADER, kind::DESCRIPTOR].contains(&page::page_kind(page));
        self.start.base.is_some_and(|base| page.lsn() <= base.start && !is_own)
    }

    /// Copies the log up to the block at `until`, if it is longer than `least_bytes`.
    fn log(&mut self, until: Lsn, least_bytes: u64, out: &mut Vec<u8>) -> Result<()> {
        if until.since(self.pin.at()) <= least_bytes {
            return Ok(());
        }
        while self.pin.at() < until {
            let mut blocks = Vec::new();
            let next = self.shared.log.copy_blocks(self.pin.at(), until, LOG_FRAME_BYTES, &mut blocks);
            // If the pin is broken, the segment may have been reused while it was read.
            if self.pin.is_broken() {
                return Err(overtaken());
            }
            let (next, end) = next?;
            self.log_bytes += blocks.len() as u64;
            self.frames.put(KIND_LOG, &blocks, out);
            self.log_end = end;
            self.pin.advance(next);
        }
        Ok(())
    }

    /// Copies the rest of the log, and appends the end.
    fn end(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let shared = self.shared;
        let list = shared.tablespaces.lock();
        let tablespaces: Vec<_> = list.in_use().cloned().collect();
        let next_tablespace = list.next_number();
        if shared.log.has_times() {
            // A restore to a later moment must know the time of the end, and needs a block by which the
            // archive of this history is recognized.
            shared.log.append_time(Timed::Tick);
        }
        shared.log.flush(shared.log.end())?;
        let until = shared.log.durable_block();
        drop(list);
        self.log(until, 0, out)?;
        // The files may have grown since the end LSN. They are not shorter, because the pin delays the cuts of
        // extents that were in use (`Spaces::pass_cuts`).
        let end = BackupEnd {
            end: self.log_end,
            next: self.pin.at(),
            pages: self.copied,
            same: self.same,
            next_tablespace,
            spaces: shared.spaces.lengths(),
            tablespaces,
        };
        self.frames.put(KIND_END, &end.encode(), out);
        Ok(())
    }
}

/// Refuses an earlier backup that has changes which this database does not have. `at` is the start LSN of the
/// new backup.
fn refuse_unfit(base: &BackupBase, database: u64, starts: &StartHistory, at: Lsn) -> Result<()> {
    let why = if base.database != database {
        let other = base.database;
        format!(
            "the earlier backup is of another database (its id is {other:016x}, and this one is {database:016x})"
        )
    } else if let Err(why) = starts.includes(&base.state) {
        format!(
            "the earlier backup has changes that this database does not have, or may not have: {why}. A database that was \
             restored from a copy of its files is such a case"
        )
    } else if base.start > at {
        format!(
            "the earlier backup begins at LSN {}, and the log of this database ends at LSN {at}",
            base.start
        )
    } else {
        return Ok(());
    };
    Err(PagerError::Backup { what: format!("{why}. Take a full backup") })
}

fn overtaken() -> PagerError {
    PagerError::Backup {
        what: "the log was written faster than the backup was taken, and a checkpoint needed its space: configure a larger \
               log, or take the backup faster"
            .into(),
    }
}

impl Pager {
    /// Begins an online backup. It keeps the log that was not copied yet, until it ends or is dropped.
    ///
    /// # Errors
    ///
    /// Fails if the earlier backup of an incremental one is not in the past of this database.
    pub fn backup(&self, options: BackupOptions) -> Result<Backup<'_>> {
        Backup::new(&self.shared, options)
    }
}
