//! The threads of a pager. The producer chooses which pages are written and when, and takes the checkpoints.
//! Workers (`workers`) write parts of these pages. A trimmer returns unused space to the device. Other
//! threads write pages from persistent memory and from the flash cache to the data files.
//!
//! Invariants
//! 1. A thread ends when the pager is dropped or shut down. It also ends after the first failure that stops
//!    the log. A full device is no such failure: the thread rests and tries again, without a limit.
//! 2. There is one producer, so no two threads choose the same pages. Without threads (`background: false`)
//!    the calls that need these steps run them.
//! 3. A mini-transaction waits if the log or the pool is full because pages can't be written. The wait has a
//!    limit, and then the mini-transaction returns the error.
//!
//! This module does not know which pages there are.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use varve_device::reached;

use crate::base::error::{PagerError, Result};
use crate::base::lsn::Lsn;
use crate::config::CheckpointKind;
use crate::flash::{FlashCache, FlashRestart};
use crate::home::pace::Pace;
use crate::level::Cause;
use crate::log::Admission;
use crate::nvm::NvmBuffer;
use crate::pool::Pool;
use crate::running::checkpoint::ROUND_PAGES;
use crate::running::journal::CheckpointCause;
use crate::running::shared::Shared;
use crate::space::BACKGROUND_EXTENTS;

/// The time that a page writer sleeps if the bell does not ring.
const NAP: Duration = Duration::from_millis(20);
/// If nothing was changed for this time, the database counts as idle, and pages are cleaned without need.
const IDLE: Duration = Duration::from_millis(500);
/// The pause of the flushing thread between two rounds while the database is idle.
const IDLE_PAUSE: Duration = Duration::from_millis(100);
/// While a checkpoint waits, the records of at least this many chunks of the flash cache's table are written
/// before the thread checks for other work. Otherwise the thread pauses after some chunks (Do 2012, section
/// 4.3.3).
const HARDENED_AWAITED: usize = 16;
const HARDEN_PAUSE: Duration = Duration::from_millis(500);
/// The number of threads that write dirty pages of the flash cache to the data files. While one thread waits
/// for the last disk of its groups, the other uses the remaining disks.
const CLEANERS: usize = 2;
/// The time that the trimmer sleeps if its bell does not ring.
const TRIM_NAP: Duration = Duration::from_secs(10);
/// The shortest time between two checkpoints while pages are cleaned so that the log can be cut.
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(100);
/// The time that a mini-transaction waits for log space before it checks again.
const ROOM_WAIT: Duration = Duration::from_millis(10);
/// The longest wait of a mini-transaction if a full device prevents that the log becomes shorter.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(1);
/// The time that a page writer rests after a full device has refused a write.
const REST: Duration = Duration::from_millis(100);
/// If there are no threads, a mini-transaction cleans all pages after this many rounds of cleaning.
const INLINE_ROUNDS: usize = 64;

/// Starts the threads, unless the configuration has none. After an error, the threads that are already in
/// `threads` run.
pub(crate) fn start(shared: &Arc<Shared>, threads: &mut Vec<JoinHandle<()>>) -> Result<()> {
    if !shared.config.background {
        return Ok(());
    }
    threads.push(spawn(shared, "page-writer".to_owned(), write_pages)?);
    threads.push(spawn(shared, "trimmer".to_owned(), trim)?);
    if let (Some(cache), Some(config)) = (&shared.cache, &shared.config.flash) {
        cache.threads_begin();
        for no in 0..config.writers {
            let cache = cache.clone();
            let write = move |shared: &Arc<Shared>| write_to_flash(shared, &cache);
            threads.push(spawn(shared, format!("flash-write-{no}"), write)?);
        }
        if config.settings.restart == FlashRestart::LazyVerification {
            let cache = cache.clone();
            let harden = move |shared: &Arc<Shared>| harden_flash(shared, &cache);
            threads.push(spawn(shared, "flash-harden".to_owned(), harden)?);
        }
        for no in 0..CLEANERS {
            let cache = cache.clone();
            threads
                .push(spawn(shared, format!("flash-clean-{no}"), move |shared| clean_flash(shared, &cache))?);
        }
    }
    if let Some(buffer) = &shared.buffer {
        for no in 0..shared.config.nvm_flush.workers {
            let buffer = buffer.clone();
            let flush = move |shared: &Arc<Shared>| flush_slots(shared, &buffer, no == 0);
            threads.push(spawn(shared, format!("nvm-flush-{no}"), flush)?);
        }
    }
    Ok(())
}

/// Runs a thread that writes queued pages to flash.
fn write_to_flash(shared: &Arc<Shared>, cache: &FlashCache) -> Result<()> {
    while !shared.is_stopping() {
        match cache.write_some(NAP) {
            // Flash refused the pages, and the data files have no space for them.
            Err(cause) if cause.is_no_space() => std::thread::sleep(REST),
            wrote => drop(wrote?),
        }
    }
    Ok(())
}

/// Runs a thread that writes the slot records of the cache, one round after another.
fn harden_flash(shared: &Arc<Shared>, cache: &FlashCache) -> Result<()> {
    while !shared.is_stopping() {
        let is_awaited = cache.is_hardening_awaited();
        let chunks = cache.chunks_at_once().max(if is_awaited { HARDENED_AWAITED } else { 1 });
        let has_ended = (0..chunks).any(|_| cache.harden_some());
        let pause = if is_awaited && !has_ended { Duration::ZERO } else { HARDEN_PAUSE };
        let until = Instant::now() + pause;
        // After a round, or when the budget of writes allows no records, a thread that waits for records
        // waits a little longer.
        while Instant::now() < until && !shared.is_stopping() && (has_ended || !cache.is_hardening_awaited())
        {
            std::thread::sleep(NAP);
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Runs a thread that writes dirty pages of the cache to the data files, so that their number stays within
/// the limit.
fn clean_flash(shared: &Arc<Shared>, cache: &FlashCache) -> Result<()> {
    while !shared.is_stopping() {
        match cache.clean_some() {
            Ok(0) => cache.wait_for_dirty(NAP),
            Err(cause) if cause.is_no_space() => std::thread::sleep(REST),
            cleaned => drop(cleaned?),
        }
    }
    Ok(())
}

fn spawn(
    shared: &Arc<Shared>,
    name: String,
    work: impl FnOnce(&Arc<Shared>) -> Result<()> + Send + 'static,
) -> Result<JoinHandle<()>> {
    let (shared, named) = (shared.clone(), name.clone());
    let run = move || {
        let _alarm = Alarm(&shared);
        if let Err(cause) = work(&shared) {
            shared.log.poison(&cause.to_string());
        }
    };
    let thread = std::thread::Builder::new().name(name).spawn(run);
    thread.map_err(|error| PagerError::Incompatible {
        what: format!("cannot start the thread {named}: {error}"),
    })
}

/// Writes pages from persistent memory to the data files. It begins when the number of dirty slots passes the
/// high mark, and ends at the low mark. One of the threads also writes all remaining pages while the database
/// is idle.
fn flush_slots(shared: &Shared, buffer: &NvmBuffer, may_idle: bool) -> Result<()> {
    let mut is_flushing = false;
    let mut quiet = Quiet::new(shared);
    while !shared.is_stopping() {
        let flushed = match buffer.flush_round(&mut is_flushing) {
            Ok(false) if may_idle && buffer.flushes_when_idle() => quiet.flush_some(shared, buffer),
            flushed => flushed,
        };
        match flushed {
            Ok(true) => {}
            Ok(false) => buffer.wait_for_bell(NAP),
            Err(cause) if cause.is_no_space() => {
                shared.note_refused(cause);
                std::thread::sleep(REST);
            }
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

/// Runs the trimmer. After checkpoints it shortens files, and returns free space to the device. It works for
/// at most a tenth of the time.
fn trim(shared: &Arc<Shared>) -> Result<()> {
    let pace = Pace::Tenth(&shared.is_stopping);
    while !shared.is_stopping() {
        shared.trimmer.wait(TRIM_NAP);
        shared.spaces.cut_files(&shared.pool, &pace)?;
        while !shared.is_stopping() && shared.trim_some(&pace)? {}
        while !shared.is_stopping() && shared.spaces.trim_files(&pace)? {}
    }
    Ok(())
}

/// Decides whether the database is idle. Log records of written pages and their places are not counted as
/// work, because cleaning and flushing append them.
struct Quiet {
    /// The numbers of changes and of pages read from devices at the last check.
    seen: (u64, u64),
    /// The time at which pages are written to the data files, if these numbers have not changed until then.
    next: Instant,
}

impl Quiet {
    fn new(shared: &Shared) -> Quiet {
        Quiet { seen: Quiet::look(shared), next: Instant::now() + IDLE }
    }

    fn look(shared: &Shared) -> (u64, u64) {
        (shared.log.changes_count(), shared.counters.misses.load(Ordering::Relaxed))
    }

    /// If the database was idle for a while and the pool is clean, writes some pages to the data files. The
    /// next pages are written only after a pause. Returns whether it wrote pages. Before the next call, the
    /// caller compares the number of dirty slots with the low and high marks. (Dirty pages in the pool come
    /// first, because after a crash they need redo.)
    fn flush_some(&mut self, shared: &Shared, buffer: &NvmBuffer) -> Result<bool> {
        if Quiet::look(shared) != self.seen {
            *self = Quiet::new(shared);
        }
        let may_begin = Instant::now() >= self.next && shared.ledger.oldest().is_none();
        if !may_begin || buffer.flush_some(ROUND_PAGES)? == 0 {
            return Ok(false);
        }
        reached("nvm: flushed when idle");
        self.next = Instant::now() + IDLE_PAUSE;
        Ok(true)
    }
}

/// Stops the log if the thread panics. Otherwise other threads would wait for page writers for ever.
struct Alarm<'a>(&'a Shared);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.log.panicked();
        }
    }
}

fn write_pages(shared: &Arc<Shared>) -> Result<()> {
    let mut checkpointer = Checkpointer::new(shared);
    let mut cursor = 0;
    while !shared.is_stopping() {
        let began = Instant::now();
        let mut room = RefusedForSpace::default();
        shared.bound_restart();
        room.tolerate(shared.keep_frames_free().map(drop))?;
        let cleaned = room.tolerate(shared.clean_for_log())?;
        if shared.pool.is_tight() {
            room.tolerate(shared.clean_around(&mut cursor))?;
        }
        let may_sleep = checkpointer.step(cleaned, &mut room)?;
        if let Some(cause) = room.refused {
            shared.note_refused(cause);
            std::thread::sleep(REST);
        } else if may_sleep && !shared.pool.is_tight() {
            shared.sleep(began);
        }
    }
    Ok(())
}

/// The last error of a full device in a round.
#[derive(Default)]
struct RefusedForSpace {
    refused: Option<PagerError>,
}

impl RefusedForSpace {
    /// Records the error of a full device, so that the round continues. Returns all other errors.
    fn tolerate<T: Default>(&mut self, result: Result<T>) -> Result<T> {
        match result {
            Err(error) if error.is_no_space() => {
                self.refused = Some(error);
                Ok(T::default())
            }
            other => other,
        }
    }
}

/// The other tasks of the producer: checkpoints, and preparing log and files.
struct Checkpointer<'a> {
    shared: &'a Arc<Shared>,
    last: Instant,
    /// Whether a checkpoint is due, and its pages are being written.
    is_cleaning: bool,
    /// The number of changes at the last check, and the time since which this number has been the same.
    idle: (u64, Instant),
}

impl<'a> Checkpointer<'a> {
    fn new(shared: &'a Arc<Shared>) -> Checkpointer<'a> {
        Checkpointer { shared, last: Instant::now(), is_cleaning: false, idle: (0, Instant::now()) }
    }

    /// Prepares log and files, and takes a checkpoint if one is due. Returns whether the thread may sleep
    /// now.
    fn step(&mut self, cleaned: bool, room: &mut RefusedForSpace) -> Result<bool> {
        let shared = self.shared;
        // If the segment can't be made now, a mini-transaction tries again, and reports the error.
        let _prepared = shared.log.prepare_ahead();
        shared.spaces.keep_free(BACKGROUND_EXTENTS, false)?;
        room.tolerate(self.clean_when_idle())?;
        let is_due = self.last.elapsed() >= Duration::from_millis(shared.config.checkpoint.interval_ms);
        shared.log.check()?;
        let is_full = shared.log.is_full();
        let is_worth = cleaned && self.last.elapsed() >= CHECKPOINT_PAUSE;
        let has_new = || {
            let is_held = shared.cache.as_ref().is_some_and(|cache| cache.holds_log());
            let is_longer = shared.last_checkpoint() != shared.log.end();
            is_longer || is_held || shared.delays_trim() || shared.has_to_clean()
        };
        let is_ready = self.is_ready(is_due && has_new());
        if is_full || is_worth || is_ready {
            let cause = if is_full { CheckpointCause::Log } else { CheckpointCause::Time };
            room.tolerate(shared.checkpoint(cause))?;
            self.last = Instant::now();
        }
        Ok(!is_full)
    }

    /// Returns whether a checkpoint is due, and the pages that its kind needs are written. If not, the page
    /// writer writes them in its next round, and this is called again.
    fn is_ready(&mut self, is_due: bool) -> bool {
        let shared = self.shared;
        if is_due && !self.is_cleaning {
            let Some(until) = shared.checkpoint_cleans() else { return true };
            shared.ask_to_clean(until);
            shared.rest_cache(true);
            self.is_cleaning = true;
        }
        if !self.is_cleaning || shared.is_asked_to_clean() {
            return false;
        }
        shared.rest_cache(false);
        self.is_cleaning = false;
        true
    }

    /// While the database is idle, cleans a few pages in each round, so that the next start has little to
    /// redo.
    fn clean_when_idle(&mut self) -> Result<()> {
        let changes = self.shared.log.changes_count();
        if self.shared.config.checkpoint.kind != CheckpointKind::Indirect {
            return Ok(());
        }
        if changes != self.idle.0 {
            self.idle = (changes, Instant::now());
        } else if self.idle.1.elapsed() >= IDLE && self.shared.ledger.oldest().is_some() {
            self.shared.clean_oldest(ROUND_PAGES)?;
        }
        Ok(())
    }
}

impl Drop for Checkpointer<'_> {
    /// If a checkpoint was in progress, allows the cache to keep changed pages again. A shutdown may need
    /// this.
    fn drop(&mut self) {
        if self.is_cleaning {
            self.shared.rest_cache(false);
        }
    }
}

impl Shared {
    /// Returns whether the threads must end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Frees frames in advance. If there are workers, several parts are written at the same time. Returns the
    /// number of pages written.
    pub(crate) fn keep_frames_free(self: &Arc<Self>) -> Result<usize> {
        let free_count = self.config.pacing.map_or(self.pool.high_water(), |pacing| pacing.free_frames);
        self.pool.refill_to(free_count, |dirty| self.in_parts(dirty, Pool::write_frames))
    }

    /// Lets a page writer sleep after a round, until frames are needed. A page writer with fixed intervals
    /// sleeps until its interval has ended, unless no page can be changed before it has worked.
    fn sleep(&self, began: Instant) {
        let Some(pacing) = self.config.pacing else { return self.pool.wait_for_work(NAP) };
        let interval = Duration::from_millis(pacing.interval_ms);
        while !self.is_stopping() && !self.pool.is_tight() && !self.log.is_full() && !self.is_asked_to_clean()
        {
            let Some(rest) = interval.checked_sub(began.elapsed()) else { break };
            std::thread::sleep(rest.min(NAP));
        }
    }

    /// Returns whether page writers run.
    pub(crate) fn has_writers(&self) -> bool {
        self.config.background && !self.is_stopping()
    }

    /// Records that a full device has refused a write of a page writer.
    pub(crate) fn note_refused(&self, cause: PagerError) {
        *self.refused.lock() = Some((Instant::now(), cause));
    }

    /// Waits for frames that may be changed, and for log space. Without threads, makes both.
    pub(crate) fn admit(self: &Arc<Self>) -> Result<()> {
        if self.pool.is_tight() {
            self.loosen()?;
        }
        self.admit_to_log()
    }

    /// Waits for log space. Without threads, makes log space.
    pub(crate) fn admit_to_log(self: &Arc<Self>) -> Result<()> {
        let (mut rounds, mut since) = (0, None);
        while self.log.admit()? == Admission::Full {
            if self.has_writers() {
                self.wait_for_room(*since.get_or_insert_with(Instant::now))?;
            } else {
                rounds += 1;
                self.make_room(rounds)?;
            }
        }
        Ok(())
    }

    /// Waits until there are frames for changes. Without threads, tries to make some.
    #[cold]
    fn loosen(&self) -> Result<()> {
        let began = Instant::now();
        let has_writers = self.has_writers();
        if !has_writers {
            RefusedForSpace::default()
                .tolerate(self.pool.clean(&self.pool.dirty_pages(), Cause::Checkpoint))?;
        }
        while has_writers && self.pool.is_tight() {
            self.log.check()?;
            self.pool.ring();
            std::thread::sleep(ROOM_WAIT);
            self.check_refused(began)?;
        }
        self.pool.why_tight().map_or(Ok(()), Err)
    }

    /// Waits until all changes before `until` are stable. If a full device prevents this, returns the error
    /// after a limited time.
    pub(crate) fn clean_until(self: &Arc<Self>, until: Lsn) -> Result<()> {
        self.ask_to_clean(until);
        let began = Instant::now();
        while self.is_asked_to_clean() {
            self.log.check()?;
            if self.has_writers() {
                self.pool.ring();
                std::thread::sleep(ROOM_WAIT);
                self.check_refused(began)?;
            } else if self.clean_oldest(ROUND_PAGES)? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Requests that changes before this LSN become stable soon.
    pub(crate) fn ask_to_clean(&self, until: Lsn) {
        self.cleans_until.fetch_max(until.get(), Ordering::Relaxed);
    }

    /// Returns whether pages must still be cleaned because of such a request.
    pub(crate) fn is_asked_to_clean(&self) -> bool {
        let until = self.cleans_until.load(Ordering::Relaxed);
        until > 0 && self.ledger.oldest().is_some_and(|oldest| oldest.get() < until)
    }

    /// Waits a short time for the page writers. Returns an error if a full device has stopped them since
    /// `began`.
    fn wait_for_room(&self, began: Instant) -> Result<()> {
        self.pool.ring();
        self.log.wait_for_room(ROOM_WAIT);
        self.check_refused(began)
    }

    /// Returns an error when the wait since `began` was long enough, and a full device refused a page
    /// writer's write in that time. When the device has space again, page writers continue, and no error is
    /// returned, however long this takes.
    fn check_refused(&self, began: Instant) -> Result<()> {
        if began.elapsed() < ROOM_WAIT_MAX {
            return Ok(());
        }
        let refused = self.refused.lock();
        let in_it = refused.as_ref().filter(|(when, _)| *when > began);
        in_it.map_or(Ok(()), |(_, cause)| Err(cause.clone()))
    }

    /// Cleans pages, and takes a checkpoint. A full device is an error only if the log stays full.
    fn make_room(self: &Arc<Self>, round: usize) -> Result<()> {
        let mut room = RefusedForSpace::default();
        room.tolerate(if round > INLINE_ROUNDS { self.clean_all() } else { self.clean_for_log().map(drop) })?;
        room.tolerate(self.checkpoint(CheckpointCause::Log))?;
        room.refused.filter(|_| self.log.is_full()).map_or(Ok(()), Err)
    }
}
