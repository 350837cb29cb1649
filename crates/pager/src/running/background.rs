//! The threads of a pager. The producer chooses which pages are written and when, and takes the checkpoints.
//! Workers (`workers`) write parts of its choice. A trimmer returns unused space to the device. Other threads
//! write pages from persistent memory and from the flash cache to the data files.
//!
//! Invariants
//! 1. A thread ends when the pager is dropped or shut down. It also ends after the first failure that stops
//!    the log. A full device is no such failure: the thread rests and tries again, without a limit.
//! 2. There is one producer, so no two threads choose the same pages. Without threads (`background: false`)
//!    the calls that need these steps run them.
//! 3. A mini-transaction waits if the log or the pool is full because pages can't be written. The wait has a
//!    limit, and then the mini-transaction returns the error.
//!
//! What it does not know: which pages there are.

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
use crate::running::shared::Shared;
use crate::space::BACKGROUND_EXTENTS;

/// How long a page writer sleeps when nobody rings.
const NAP: Duration = Duration::from_millis(20);
/// How long nothing is changed before pages are cleaned without need.
const IDLE: Duration = Duration::from_millis(500);
/// How long the flushing thread lets go by between two rounds then.
const IDLE_PAUSE: Duration = Duration::from_millis(100);
/// While a checkpoint waits: the least number of chunks of the flash cache's table whose records are written
/// before the thread checks for other work. Otherwise the thread pauses after some chunks (Do 2012, section
/// 4.3.3).
const HARDENED_AWAITED: usize = 16;
const HARDEN_PAUSE: Duration = Duration::from_millis(500);
/// Threads that write dirty pages of the flash cache to the data files. While one thread waits for the last
/// disk of its groups, the other uses the remaining disks.
const CLEANERS: usize = 2;
/// How long the trimmer sleeps when nobody rings.
const TRIM_NAP: Duration = Duration::from_secs(10);
/// While pages are cleaned for the log's sake, a checkpoint is taken this often at most.
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(100);
/// How long a mini-transaction waits for log space before it looks again.
const ROOM_WAIT: Duration = Duration::from_millis(10);
/// How long it waits at most while a full device keeps the log from being emptied.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long a page writer rests after a full device refused something.
const REST: Duration = Duration::from_millis(100);
/// Rounds of cleaning without threads, before a mini-transaction cleans everything.
const INLINE_ROUNDS: usize = 64;

/// Starts the threads, if there are to be any. Those that are in `threads` run, also behind an error.
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

/// Writes what the cache takes.
fn write_to_flash(shared: &Arc<Shared>, cache: &FlashCache) -> Result<()> {
    while !shared.is_stopping() {
        match cache.write_some(NAP) {
            // Flash doesn't take it, and home has no room.
            Err(cause) if cause.is_no_space() => std::thread::sleep(REST),
            wrote => drop(wrote?),
        }
    }
    Ok(())
}

/// Writes records of the cache's frames, round and round.
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

/// Brings dirty pages of the cache home, so that not too many are.
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

/// Cuts files and gives room back after checkpoints, a tenth of the time at most.
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

/// Whether the database is idle. Log records of written pages and their places are not counted as work,
/// because cleaning and flushing themselves append them.
struct Quiet {
    /// Changes, and pages read from devices, when somebody looked last.
    seen: (u64, u64),
    /// When pages are brought home, if that has not changed until then.
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

/// Stops the log when its thread panics: without page writers everything would wait for ever.
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

/// What a full device refused in a round.
#[derive(Default)]
struct RefusedForSpace {
    refused: Option<PagerError>,
}

impl RefusedForSpace {
    /// Want of room is noted, and the round goes on.
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

/// What the producer does besides.
struct Checkpointer<'a> {
    shared: &'a Arc<Shared>,
    last: Instant,
    /// One is due and has pages brought home.
    is_cleaning: bool,
    /// Changes when somebody looked last, and since when there have been no others.
    idle: (u64, Instant),
}

impl<'a> Checkpointer<'a> {
    fn new(shared: &'a Arc<Shared>) -> Checkpointer<'a> {
        Checkpointer { shared, last: Instant::now(), is_cleaning: false, idle: (0, Instant::now()) }
    }

    /// Keeps log and files ready and takes a checkpoint if one is due. Whether the thread may sleep now.
    fn step(&mut self, cleaned: bool, room: &mut RefusedForSpace) -> Result<bool> {
        let shared = self.shared;
        // A segment that can't be made now is asked for again, and its error reported, by a mini-transaction.
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
            room.tolerate(shared.checkpoint(false))?;
            self.last = Instant::now();
        }
        Ok(!is_full)
    }

    /// Whether a checkpoint is due, and the pages that its kind needs are written. If not, the page writer
    /// writes them in its next round, and this is called again.
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

    /// Cleans a few pages per round while nobody changes anything, so that the next start has little to redo.
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
    /// A shutdown may leave pages on flash.
    fn drop(&mut self) {
        if self.is_cleaning {
            self.shared.rest_cache(false);
        }
    }
}

impl Shared {
    /// Whether threads are to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Frees frames ahead of need, in parts beside each other if there are workers; gives the pages written
    /// for it.
    pub(crate) fn keep_frames_free(self: &Arc<Self>) -> Result<usize> {
        let free_count = self.config.pacing.map_or(self.pool.high_water(), |pacing| pacing.free_frames);
        self.pool.refill_to(free_count, |dirty| self.in_parts(dirty, Pool::write_frames))
    }

    /// A page writer sleeps after a round, until frames are needed. A page writer with fixed intervals sleeps
    /// until its interval has ended, unless no page can be changed before it has worked.
    fn sleep(&self, began: Instant) {
        let Some(pacing) = self.config.pacing else { return self.pool.wait_for_work(NAP) };
        let interval = Duration::from_millis(pacing.interval_ms);
        while !self.is_stopping() && !self.pool.is_tight() && !self.log.is_full() && !self.is_asked_to_clean()
        {
            let Some(rest) = interval.checked_sub(began.elapsed()) else { break };
            std::thread::sleep(rest.min(NAP));
        }
    }

    /// Whether page writers are at work.
    pub(crate) fn has_writers(&self) -> bool {
        self.config.background && !self.is_stopping()
    }

    /// A full device refused a page writer something.
    pub(crate) fn note_refused(&self, cause: PagerError) {
        *self.refused.lock() = Some((Instant::now(), cause));
    }

    /// Waits for frames that may be changed and for log space; without threads makes some.
    pub(crate) fn admit(self: &Arc<Self>) -> Result<()> {
        if self.pool.is_tight() {
            self.loosen()?;
        }
        self.admit_to_log()
    }

    /// Waits for log space; without threads makes some.
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

    /// Waits until there are frames for changes; without threads tries to make some.
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

    /// Waits until every page that was dirty at `until` is stable; want of room is told after a bounded wait.
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

    /// Changes before this are to be stable soon.
    pub(crate) fn ask_to_clean(&self, until: Lsn) {
        self.cleans_until.fetch_max(until.get(), Ordering::Relaxed);
    }

    /// Whether somebody wants pages clean that are not.
    pub(crate) fn is_asked_to_clean(&self) -> bool {
        let until = self.cleans_until.load(Ordering::Relaxed);
        until > 0 && self.ledger.oldest().is_some_and(|oldest| oldest.get() < until)
    }

    /// Waits a little for the page writers, who since `began` may have met a full device.
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

    /// Cleans and takes a checkpoint. Want of room is an error if the log stays full.
    fn make_room(self: &Arc<Self>, round: usize) -> Result<()> {
        let mut room = RefusedForSpace::default();
        room.tolerate(if round > INLINE_ROUNDS { self.clean_all() } else { self.clean_for_log().map(drop) })?;
        room.tolerate(self.checkpoint(false))?;
        room.refused.filter(|_| self.log.is_full()).map_or(Ok(()), Err)
    }
}
