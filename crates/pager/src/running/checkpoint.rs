//! Checkpoints, and the writing of pages for them. After a checkpoint the older log can be cut.
//!
//! By default checkpoints are indirect. Page writers write dirty pages in the order of their recovery LSNs
//! (the oldest change that is not stable). A checkpoint takes the lowest recovery LSN as the redo position,
//! and cuts the log there. The configuration can choose two other kinds. A fuzzy checkpoint first writes the
//! pages that were changed before the last checkpoint. A sharp checkpoint first writes all changed pages.
//!
//! Invariants
//! 1. The redo position is the lower of two: that of the dirty-page table, taken in the log's append section,
//!    and that of the levels below the pool. Under full-page-log the position does not move after a start,
//!    until all pages that redo changed are stable. The reason is that a page which redo wrote and which
//!    changed again has its only image in the log after that position.
//! 2. The log is durable up to its end before the redo position is stored. The reason is that a page which a
//!    logged discard dropped is no longer in the dirty-page table. So redo must find the discard if it starts
//!    after the page's changes.
//! 3. The redo position is durable in the control file before the log is cut or a file becomes shorter.
//! 4. One checkpoint runs at a time.
//!
//! This module does not know threads, or how pages are written.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use varve_device::{planted, reached};

use crate::base::error::{PagerError, Result};
use crate::base::ids::PageId;
use crate::base::lsn::Lsn;
use crate::config::CheckpointKind;
use crate::control::{Positions, Sealed, State};
use crate::flash::FlashCache;
use crate::home::kind::HomeLayout;
use crate::home::pace::Pace;
use crate::home::protection::kind::ProtectionKind;
use crate::level::{Cause, Step, summed};
use crate::nvm::NvmRegion;
use crate::pool::Pool;
use crate::running::journal::{CheckpointCause, CheckpointReport};
use crate::running::shared::Shared;
use crate::running::workers::Job;

/// The number of pages that are cleaned before the log's length is checked again.
pub(crate) const ROUND_PAGES: usize = 120;
/// The least number of pages for a worker, because each part costs the flushes of a batch.
const PART_PAGES_MIN: usize = 16;

/// Records of the flash cache may hold this fraction of the log beyond the part that cleaning keeps.
const RECORDS_MAY_HOLD: f64 = 0.25;

/// The limit up to which the redo position may wait for records of the flash cache.
struct RedoLimit {
    /// The position of the oldest records: the start of a block.
    at: Lsn,
    /// The length of the log from `at` on that cleaning usually keeps. The next field is the length beyond
    /// which the position does not wait.
    usual_bytes: f64,
    most_bytes: f64,
    /// Whether no page was changed since the last checkpoint.
    has_paused: bool,
}

/// Turns the error of a full device into a value, because it is returned only at the end. Other errors are
/// returned at once.
fn want_of_room(result: Result<()>) -> Result<Option<PagerError>> {
    match result {
        Err(cause) if cause.is_no_space() => Ok(Some(cause)),
        done => done.map(|()| None),
    }
}

impl Shared {
    /// Takes a checkpoint: stores the redo position, and cuts the log.
    ///
    /// A failure stops the pager, because it is unknown what was written. A full device is an exception: the
    /// position stays as it was, or advances less than possible, and the next checkpoint does everything
    /// again.
    pub(crate) fn checkpoint(&self, cause: CheckpointCause) -> Result<()> {
        let is_clean = cause == CheckpointCause::Shutdown { is_clean: true };
        let mut last = self.checkpointing.lock();
        let began = Instant::now();
        let refused = self.checkpoint_steps(is_clean).inspect_err(|cause| {
            if !cause.is_no_space() {
                self.log.poison(&cause.to_string());
            }
        })?;
        let before = std::mem::replace(&mut *last, self.log.end());
        let took = began.elapsed();
        let log_bytes = if before == Lsn::ZERO { 0 } else { last.get().saturating_sub(before.get()) };
        let distance_bytes = self.log.stats().used_bytes;
        let report = CheckpointReport { cause, pages: 0, log_bytes, distance_bytes, took };
        self.journal.add(report, self.counters.checkpoint_writes.load(Relaxed));
        reached("checkpoint");
        self.counters.checkpoints.fetch_add(1, Relaxed);
        refused.map_or(Ok(()), Err)
    }

    /// Runs the steps of a checkpoint. Returns the error of a full device from the levels. The log that they
    /// still need is not cut, but the log before it makes space. Threads that wait for space must get this
    /// error.
    fn checkpoint_steps(&self, is_clean: bool) -> Result<Option<PagerError>> {
        self.log.check()?;
        self.spaces.plan_cut(|| self.log.end());
        self.spaces.release_room()?;
        self.spaces.note_freed(|| self.log.end());
        let kept = want_of_room(self.level.checkpoint(Step::Begin))?;
        let held = want_of_room(self.level.settle())?;
        let positions = self.positions(is_clean)?;
        let read_from = positions.read;
        self.level.checkpoint(Step::BeforeEnd)?;
        let durable = self.log.durable();
        let leaves = is_clean && self.leaves_region();
        if leaves && let Some(oldest) = self.ledger.oldest() {
            let what = format!("a page is not stable since LSN {oldest}, and the log would be left behind");
            return Err(PagerError::Corrupt { what });
        }
        if leaves && let Some(refused) = kept.clone().or(held.clone()) {
            // A level still needs the region that would be left.
            return Ok(Some(refused));
        }
        let stamp = self.prepare_region(is_clean)?;
        self.control.update(|superblock| {
            superblock.advance_redo(positions, durable);
            if let Some(attached) = &mut superblock.attached {
                attached.stamp = stamp;
            }
            superblock.map_checkpoints = self.spaces.map_checkpoints();
            superblock.state = superblock.state.after_checkpoint(is_clean);
            if is_clean {
                superblock.running = [0; 3];
            }
            if leaves {
                superblock.leave_region();
            }
        })?;
        if leaves {
            // The next start begins with another log, so the steps below do not apply.
            reached("checkpoint: the region is left");
            return Ok(kept.or(held));
        }
        let early = planted("log: segments are recycled early");
        // After a clean shutdown is recorded, nothing is written to a medium that may not survive a restart
        // of the machine. The next checkpoint cuts the log, and frees the slots of pages beyond the new end
        // of a file.
        let is_sealed = is_clean && self.region.is_some();
        if !is_sealed {
            self.log.truncate(if early { durable } else { read_from })?;
        }
        self.level.checkpoint(Step::End)?;
        if !is_sealed {
            // The position of reading counts here, not that of redo, because older programs redo everything
            // that they read.
            // A backup must find each file as long as it was at the backup's end.
            let pinned = self.log.pinned_from();
            self.spaces.pass_cuts(pinned.map_or(read_from, |pinned| pinned.min(read_from)), is_clean)?;
        }
        // The data files may never have had a page that is stable in a slot of the NVM page buffer. So no log
        // record tells redo that the page is gone, and redo must start after its changes. Since the position
        // was stored, the levels may need less of the log.
        let early = planted("nvm: packed pages are forgotten before redo is past them");
        let has_slots = self.buffer.is_some() && !early;
        let unstable = if has_slots { Some(read_from) } else { self.redo_from() };
        self.spaces.pass_freed(read_from, unstable);
        match is_clean {
            true if is_sealed => {}
            true => self.spaces.cut_files(&self.pool, &Pace::AtOnce)?,
            false => self.have_trimmed()?,
        }
        Ok(kept.or(held))
    }

    /// Returns the position from which the next start reads the log if this is stored, and the position from
    /// which it does redo. The log between the two is read only for records of the flash cache, and for
    /// hints.
    fn positions(&self, is_clean: bool) -> Result<Positions> {
        let forgets = planted("checkpoint: its position passes dirty pages");
        let needed =
            || self.redo_from().filter(|_| !forgets).into_iter().chain(self.level.needs_log_from()).min();
        // After a clean shutdown nothing is redone, and the next start logs the compressions that the engine
        // sets.
        let forms =
            (!is_clean).then(|| self.keep_forms(needed().unwrap_or_else(|| self.log.end()))).flatten();
        let noted = self.note_frames(needed());
        // Read outside of the append section, because no thread may wait there for the writer of records.
        // Both positions only grow.
        let hold = if is_clean { None } else { self.hold_for_records() };
        let [read, redo] = self.log.redo_points(|next| {
            let needed = needed();
            let from = needed.into_iter().chain(forms).chain(noted).min();
            [hold.as_ref().map_or(from, |hold| self.wait_for_records(hold, from, next)), needed]
        })?;
        Ok(if self.redoes_behind_reading() { Positions { read, redo } } else { Positions::both(read) })
    }

    /// Returns whether a start may redo less than it reads. Images of pages, packed files and persistent
    /// memory need redo of everything that is read.
    fn redoes_behind_reading(&self) -> bool {
        let is_plain = self.config.layout == HomeLayout::InPlace && self.region.is_none();
        is_plain && self.config.protection != ProtectionKind::FullPageLog
    }

    /// Trims extents that are due. If there are threads, the trimmer does this.
    fn have_trimmed(&self) -> Result<()> {
        if self.has_writers() {
            self.trimmer.ring();
            return Ok(());
        }
        self.spaces.cut_files(&self.pool, &Pace::AtOnce)?;
        while self.trim_some(&Pace::AtOnce)? {}
        self.spaces.trim_files(&Pace::AtOnce).map(drop)
    }

    /// Trims a piece of the extents that are due. Before the first hole, the control file records that there
    /// are holes. Returns whether anything was trimmed.
    pub(crate) fn trim_some(&self, pace: &Pace<'_>) -> Result<bool> {
        if self.spaces.would_leave_holes() && !self.control.get().has_hollow_extents {
            match self.control.update(|superblock| superblock.has_hollow_extents = true) {
                // The extents stay due.
                Err(cause) if cause.is_no_space() => return Ok(false),
                told => told?,
            }
        }
        self.spaces.trim_some(&self.pool, pace)
    }

    /// Returns whether a checkpoint is all that space waits for before it can be returned to the device.
    pub(crate) fn delays_trim(&self) -> bool {
        let needed = || self.level.needs_log_from().into_iter().chain(self.log.pinned_from()).min();
        self.spaces.wait_for_checkpoint(self.forgotten_from(), needed)
    }

    /// Returns an LSN: a checkpoint now would release only extents that were freed before it. `None` means
    /// all extents.
    fn forgotten_from(&self) -> Option<Lsn> {
        let needed = self.buffer.as_ref().and_then(|_| self.level.needs_log_from());
        self.redo_from().into_iter().chain(needed).min()
    }

    /// Returns whether this shutdown leaves the region of persistent memory.
    pub(crate) fn leaves_region(&self) -> bool {
        self.region.is_some() && self.leaves_region.load(Relaxed)
    }

    /// Returns whether a shutdown has left the region. Its file may still exist.
    pub(crate) fn has_left_region(&self) -> bool {
        self.leaves_region() && self.control.get().attached.is_none()
    }

    /// Records of the flash cache that are older than the redo position are useless for a start. Returns the
    /// limit at which the redo position waits for them, or `None` if it does not wait. At a shutdown all
    /// records are written afterwards, so there is no limit. There is no limit either if the list of lives is
    /// long, because the list must become shorter.
    fn hold_for_records(&self) -> Option<RedoLimit> {
        let cache = self.cache.as_ref()?;
        let stored = self.control.get();
        let may_wait = !self.is_stopping() && !stored.wants_checkpoint();
        let hardened = cache.hardened_from().filter(|_| may_wait);
        let Some(hardened) = hardened else {
            cache.note_held(false);
            return None;
        };
        let room = self.log.cleaning_bytes() as f64;
        let share = room * self.config.checkpoint.log_fraction;
        Some(RedoLimit {
            at: hardened.max(stored.redo),
            usual_bytes: share,
            most_bytes: share + (room - share) * RECORDS_MAY_HOLD,
            has_paused: cache.sees_pause(self.log.changes_count()),
        })
    }

    /// Limits the redo position, which would be `from`, or `next` if `from` is `None`. While the log has
    /// space, the position does not pass the oldest records of the flash cache. New records are requested if
    /// the log is longer than cleaning keeps it, or if no page changes any more. The caller is in the append
    /// section.
    fn wait_for_records(&self, hold: &RedoLimit, from: Option<Lsn>, next: Lsn) -> Option<Lsn> {
        let Some(cache) = &self.cache else { return from };
        let (wanted, held_bytes) = (from.unwrap_or(next), self.log.end().since(hold.at) as f64);
        let waits = wanted > hold.at && held_bytes <= hold.most_bytes;
        cache.note_held(waits);
        if wanted > hold.at && (held_bytes > hold.usual_bytes || hold.has_paused) {
            cache.await_hardening(wanted);
        }
        if !waits {
            return from;
        }
        reached("checkpoint: waits for records of flash");
        Some(hold.at)
    }

    /// Returns, under log-based restart, the position from which the log must be kept so that it has records
    /// of all slots of the flash cache.
    fn note_frames(&self, from: Option<Lsn>) -> Option<Lsn> {
        let leaves = self.leaves_region();
        let cache = self.cache.as_ref().filter(|_| !leaves)?;
        cache.keep_in_log(from, || self.log.block_start(), || self.log.end())
    }

    /// Returns the position at which redo of all pages that are not stable would begin. `None` means that all
    /// pages are stable.
    fn redo_from(&self) -> Option<Lsn> {
        let oldest = self.ledger.oldest()?;
        let early = planted("full-page-log: the log is cut behind what redo changed");
        let held = self.started.redone.as_ref().filter(|redone| oldest < redone.end && !early);
        Some(held.map_or(oldest, |redone| redone.start))
    }

    /// Increases the stamp of the region before the control file gets the same stamp. At a clean shutdown,
    /// also writes an emulated region to its file.
    fn prepare_region(&self, is_clean: bool) -> Result<u64> {
        let Some(region) = &self.region else { return Ok(0) };
        let stamp = region.next_stamp();
        if is_clean {
            region.settle()?;
        }
        Ok(stamp)
    }

    /// Returns the end of the log at the last checkpoint.
    pub(crate) fn last_checkpoint(&self) -> Lsn {
        *self.checkpointing.lock()
    }

    /// Returns the LSN up to which changes must be stable before a checkpoint of the configured kind. `None`
    /// means that the kind does not require this.
    pub(crate) fn checkpoint_cleans(&self) -> Option<Lsn> {
        match self.config.checkpoint.kind {
            CheckpointKind::Indirect => None,
            CheckpointKind::Fuzzy => Some(self.last_checkpoint()),
            CheckpointKind::Sharp => Some(self.log.end()),
        }
    }

    /// Returns whether a checkpoint of the configured kind would write pages first.
    pub(crate) fn has_to_clean(&self) -> bool {
        let is_older = |until| self.ledger.oldest().is_some_and(|oldest| oldest < until);
        self.checkpoint_cleans().is_some_and(is_older)
    }

    /// Takes a checkpoint of the configured kind, and waits until it has ended.
    pub(crate) fn checkpoint_of_kind(self: &Arc<Self>, cause: CheckpointCause) -> Result<()> {
        if let Some(until) = self.checkpoint_cleans() {
            self.rest_cache(true);
            let cleaned = self.clean_until(until);
            self.rest_cache(false);
            cleaned?;
        }
        self.checkpoint(cause)
    }

    /// Begins or ends a time in which the flash cache keeps no changed pages, because a sharp checkpoint
    /// writes all pages to the data files.
    pub(crate) fn rest_cache(&self, rests: bool) {
        let is_sharp = self.config.checkpoint.kind == CheckpointKind::Sharp;
        if let Some(cache) = self.cache.as_ref().filter(|_| is_sharp) {
            cache.keep_none_back(rests);
        }
    }

    /// Writes up to `pages` dirty pages, oldest change first. Returns the number of pages written.
    pub(crate) fn clean_oldest(self: &Arc<Self>, pages: usize) -> Result<usize> {
        // Held pages are not in the pool, so cleaning the oldest page of the pool would not help them. Pages
        // that a level keeps are cleaned like those in the pool.
        self.level.settle()?;
        let mut oldest = Vec::with_capacity(pages);
        self.ledger.next_to_clean(pages, &mut oldest);
        self.clean(&oldest, Cause::Checkpoint)
    }

    /// Makes these pages stable. If there are workers, parts of the pages are written at the same time. An
    /// error of a full device is returned after all pages were tried. Returns the number of pages written.
    fn clean(self: &Arc<Self>, ids: &[PageId], cause: Cause) -> Result<usize> {
        let cleaned = self.in_parts(ids, move |pool, part| pool.clean(part, cause));
        // Pages that are not in the pool may be dirty on a level below.
        let kept_back = self.level.clean(ids);
        // All three run, even if one is refused. Pages that were refused here are not put again: their frames
        // are clean, and the dirty-page table has the pages.
        summed([cleaned, kept_back, self.level.settle().map(|()| 0)])
    }

    /// Divides these pages into parts, which the workers write. The caller holds no latch and no lock.
    pub(crate) fn in_parts<T: Copy + Send + 'static>(
        self: &Arc<Self>,
        pages: &[T],
        write: impl Fn(&Pool, &[T]) -> Result<usize> + Copy + Send + 'static,
    ) -> Result<usize> {
        let workers = self.workers.count();
        if workers == 1 {
            return write(&self.pool, pages);
        }
        let part_len = pages.len().div_ceil(workers).clamp(PART_PAGES_MIN, ROUND_PAGES);
        let job = |part: &[T]| -> Job<Result<usize>> {
            let (shared, part) = (self.clone(), part.to_vec());
            Box::new(move || write(&shared.pool, &part))
        };
        summed(self.workers.run(pages.chunks(part_len).map(job).collect()))
    }

    /// Writes some of the dirty pages, and other ones at each call. The reason is that a full device may have
    /// no space for the oldest ones.
    pub(crate) fn clean_around(self: &Arc<Self>, cursor: &mut usize) -> Result<usize> {
        let mut dirty = self.pool.dirty_pages();
        dirty.sort_unstable();
        let from = *cursor % dirty.len().max(1);
        dirty.rotate_left(from);
        dirty.truncate(ROUND_PAGES);
        *cursor = cursor.wrapping_add(ROUND_PAGES);
        let cleaned = self.clean(&dirty, Cause::Checkpoint);
        // Discarded pages count as clean, too, so the dirty frames are counted again.
        self.pool.look_if_tight();
        cleaned
    }

    /// Cleans pages while the log since the oldest dirty page is longer than its share. Returns whether pages
    /// were cleaned.
    pub(crate) fn clean_for_log(self: &Arc<Self>) -> Result<bool> {
        let mut worked = false;
        while (self.is_log_long() || self.is_asked_to_clean()) && !self.is_stopping() {
            worked = true;
            let workers = self.workers.count();
            if self.clean_oldest(ROUND_PAGES * workers)? == 0 {
                break;
            }
            if workers > 1 {
                // Free frames become scarce meanwhile, and no other thread frees frames ahead of need. If a
                // full device refuses some pages, the others are still cleaned.
                match self.keep_frames_free() {
                    Err(cause) if cause.is_no_space() => self.note_refused(cause),
                    freed => drop(freed?),
                }
            }
        }
        Ok(worked)
    }

    fn is_log_long(&self) -> bool {
        let share = self.log.cleaning_bytes() as f64 * self.config.checkpoint.log_fraction;
        self.redo_from().is_some_and(|from| self.log.end().since(from) as f64 > share)
    }

    /// Returns whether this shutdown leaves pages on flash that the data files lack. Then the next start is
    /// like one after a crash. This is avoided in two cases: a change of the configuration waits for a clean
    /// shutdown, or emulated persistent memory survives the machine only after a clean shutdown.
    pub(crate) fn leaves_pages_on_flash(&self) -> bool {
        // A restore ends with a clean shutdown, because no start may repeat it from the log.
        let waits = self.started.postponed.region
            || self.control.get().state == State::Restoring
            || self.started.postponed.protection.is_some()
            || self.leaves_region.load(Relaxed)
            || self.region.as_ref().is_some_and(NvmRegion::needs_clean_end);
        !waits && self.cache.as_ref().is_some_and(|cache| cache.stay_dirty(self.may_seal()))
    }

    /// Returns whether nothing but the flash cache's pages would need the log at the next start, so that a
    /// seal is possible.
    fn may_seal(&self) -> bool {
        let is_plain = self.config.protection != ProtectionKind::FullPageLog && self.region.is_none();
        is_plain && self.level.needs_log_from().is_none()
    }

    /// Is called at the end of a shutdown. The cache writes the records of all its slots. If it
    /// `stays_dirty`, and the records have all pages that the data files lack, the next start needs no log.
    pub(crate) fn harden_all(&self, cache: &FlashCache, stays_dirty: bool) -> Result<()> {
        let may_seal = self.may_seal() && cache.may_be_sealed();
        let is_wanted = stays_dirty && may_seal && self.ledger.oldest().is_some();
        let stored = self.control.get();
        let end = if is_wanted { self.log.redo_point(|| None)? } else { stored.redo };
        let hardened = cache.harden_all(end);
        if !is_wanted {
            return Ok(());
        }
        let sealed = match hardened {
            // The log has no space for the next segment.
            _ if end < stored.redo_start() => Err("the log has no room for its end".to_owned()),
            Ok(Some(sum)) => cache.seal(sum),
            Ok(None) => Err("it keeps no records any more".to_owned()),
            Err(cause) => Err(cause.to_string()),
        };
        let Ok(seal) = sealed.inspect_err(|why| cache.tell_unsealed(why)) else { return Ok(()) };
        reached("checkpoint: pages on flash are sealed");
        self.control.update(|superblock| {
            superblock.sealed = Some(Sealed { seal, end });
            superblock.durable = superblock.durable.max(end);
        })
    }

    /// Makes all pages stable. If the shutdown leaves the region, also writes all pages to the data files.
    pub(crate) fn bring_all_home(self: &Arc<Self>) -> Result<()> {
        self.clean_all()?;
        match self.buffer.as_ref().filter(|_| self.leaves_region()) {
            Some(buffer) => buffer.bring_home().and_then(|()| self.level.drain()),
            None => Ok(()),
        }
    }

    /// Makes all pages stable.
    pub(crate) fn clean_all(self: &Arc<Self>) -> Result<()> {
        loop {
            let dirty: Vec<PageId> = self.pool.dirty_pages();
            if !dirty.is_empty() {
                self.clean(&dirty, Cause::Drain)?;
                continue;
            }
            self.level.drain()?;
            // Meanwhile another thread may have read a page that a level dropped before the data files had
            // it.
            if self.pool.dirty_pages().is_empty() {
                return Ok(());
            }
            reached("checkpoint: a page came up while levels were drained");
        }
    }
}
