//! Redo applies the log in windows, which are pieces of the log. The pages of the next windows are read
//! before redo comes to them. Changed pages are written in batches, so that frames become free for the pages
//! that are read.
//!
//! ```text
//!   log --gather--> window --read its pages--> apply, in log order
//!                              ^
//!          free frames --------+------ written in batches
//! ```
//!
//! Invariants
//! 1. One thread applies the windows, in log order.
//! 2. At most [`DEPTH`] windows are ahead of the window that is being applied. Together they need at most an
//!    eighth of the frames.
//! 3. No page is read ahead for a record that redo would skip. A page that a recent window also has is not
//!    read ahead, because redo may be about to create the page.
//! 4. If a page can't be read ahead, or a full device refuses to write it ahead, this is not an error yet.
//!    Redo meets the error when it comes to the page.
//!
//! With threads the steps run concurrently. Without threads they run one after the other, always in the same
//! order.
//!
//! This module does not know what records do to pages.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use varve_device::reached;

use super::Plan;
use crate::base::error::{PagerError, Result};
use crate::base::ids::PageId;
use crate::log::history::History;
use crate::log::{Appended, Group, Log, Record, record::Records, redo};
use crate::pool::Pool;

/// The number of windows that are ahead of the one that is being applied.
const DEPTH: usize = 8;
/// The largest number of pages that a window reads ahead. The next constant is the largest number of bytes of
/// its records. The last group of a window may exceed both.
const PAGES_MAX: usize = 64;
const BYTES_MAX: usize = 256 << 10;
/// The number of threads that read ahead. The data files may be on many disks, and one batch leaves some
/// disks idle at its end.
const READERS: usize = 3;
/// How long the writing thread sleeps if the bell does not ring, and after a full device has refused a write.
const NAP: Duration = Duration::from_millis(20);
const REST: Duration = Duration::from_millis(100);
/// How long a thread that reads ahead waits for frames, before it leaves the rest to redo.
const FRAMES_WAIT: Duration = Duration::from_millis(500);

/// A window: groups of log records that are applied together.
#[derive(Default)]
pub(super) struct Window {
    records: Vec<u8>,
    /// Each group, and the end of its records in `records`.
    groups: Vec<(Appended, usize)>,
    /// Pages that are read ahead for this window.
    pages: Vec<PageId>,
}

impl Window {
    /// Returns the groups of the window, in the order of the log.
    pub(super) fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        let begins = std::iter::once(0).chain(self.groups.iter().map(|(_, end)| *end));
        self.groups.iter().zip(begins).map(|((at, end), begin)| Group {
            block: at.block,
            start: at.start,
            end: at.end,
            records: Records::new(&self.records[begin..*end]),
        })
    }
}

/// Divides groups into windows.
struct Gather<'a> {
    plan: &'a Plan,
    pages_max: usize,
    window: Window,
    /// The number of the present window.
    number: u64,
    /// For each page, the number of the last window that has it.
    seen: FxHashMap<PageId, u64>,
}

impl<'a> Gather<'a> {
    fn new(plan: &'a Plan, pool: &Pool) -> Gather<'a> {
        let pages_max = (pool.frame_count() / (8 * DEPTH)).clamp(1, PAGES_MAX);
        Gather {
            plan,
            pages_max,
            window: Window::default(),
            number: DEPTH as u64 + 1,
            seen: FxHashMap::default(),
        }
    }

    /// Adds a group. Returns the window if it is full now.
    fn add(&mut self, group: &Group<'_>) -> Option<Window> {
        // Invalid records are reported when they are applied.
        for change in group.records.clone().map_while(std::result::Result::ok) {
            let Record::Change { page, op, .. } = change else { continue };
            if self.plan.is_past(page, group.end) {
                continue;
            }
            let last = self.seen.insert(page, self.number).unwrap_or(0);
            if !redo::is_whole_page(op) && self.number - last > DEPTH as u64 {
                self.window.pages.push(page);
            }
        }
        self.window.records.extend_from_slice(group.records.rest());
        let at = Appended { block: group.block, start: group.start, end: group.end };
        self.window.groups.push((at, self.window.records.len()));
        let is_full = self.window.pages.len() >= self.pages_max || self.window.records.len() >= BYTES_MAX;
        is_full.then(|| self.take())
    }

    fn take(&mut self) -> Window {
        self.number += 1;
        std::mem::take(&mut self.window)
    }
}

/// The parts from which windows are made, and with which pages are read and written ahead.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'a> {
    pub(super) pool: &'a Pool,
    pub(super) log: &'a Log,
    pub(super) plan: &'a Plan,
}

impl Ahead<'_> {
    /// Applies all windows, with or without other threads.
    pub(super) fn each_window(
        self,
        has_threads: bool,
        apply: impl FnMut(&Window) -> Result<()>,
    ) -> Result<()> {
        if self.plan.stable() >= self.plan.until() {
            return Ok(());
        }
        if has_threads { self.beside_each_other(apply) } else { self.one_after_the_other(apply) }
    }

    fn gather(self, mut found: impl FnMut(Window) -> Result<()>) -> Result<()> {
        let mut gather = Gather::new(self.plan, self.pool);
        let Plan { lives, history: History { stable, until, .. }, .. } = self.plan;
        self.log.replay(lives, *stable..*until, |group| gather.add(&group).map_or(Ok(()), &mut found))?;
        found(gather.take())
    }

    fn one_after_the_other(self, mut apply: impl FnMut(&Window) -> Result<()>) -> Result<()> {
        self.gather(|window| {
            if self.pool.free_count() < window.pages.len() {
                reached("recovery: redo writes pages in batches");
                self.write()?;
            }
            let _all = self.pool.read_early(&window.pages);
            apply(&window)
        })
    }

    fn beside_each_other(self, apply: impl FnMut(&Window) -> Result<()>) -> Result<()> {
        // The gathering thread has one more window.
        let (gathered, windows) = sync_channel(DEPTH - 1);
        let (asked, wanted) = sync_channel(DEPTH);
        let (wanted, is_over) = (Arc::new(Mutex::new(wanted)), AtomicBool::new(false));
        let is_over = &is_over;
        thread::scope(|scope| {
            let ends = EndsThreads { is_over, pool: self.pool };
            let write = spawn(scope, "redo-write", || self.keep_frames_free(is_over))?;
            for no in 0..READERS {
                let wanted = wanted.clone();
                let _ends_with_gather =
                    spawn(scope, &format!("redo-read-{no}"), move || self.read_wanted(&wanted, is_over))?;
            }
            // This thread drops its reference, so that the channel closes when the last reading thread ends.
            // Otherwise the gathering thread could wait for ever.
            drop(wanted);
            let gather = spawn(scope, "redo-gather", move || self.hand_over(&asked, &gathered))?;
            let applied = for_each(windows, apply);
            drop(ends);
            applied.and(joined(gather)).and(joined(write))
        })
    }

    /// Passes windows to the threads that read ahead, and to redo. Ends early if redo ends.
    fn hand_over(self, asked: &SyncSender<Arc<Window>>, gathered: &SyncSender<Arc<Window>>) -> Result<()> {
        let mut is_wanted = true;
        self.gather(|window| {
            let window = Arc::new(window);
            let _reads_or_has_panicked = asked.send(window.clone());
            is_wanted = gathered.send(window).is_ok();
            // This error only ends the reading of the log. Redo returns its own error.
            if is_wanted { Ok(()) } else { Err(PagerError::Stopped { cause: "redo has ended".into() }) }
        })
        .or_else(|error| if is_wanted { Err(error) } else { Ok(()) })
    }

    fn read_wanted(self, wanted: &Mutex<Receiver<Arc<Window>>>, is_over: &AtomicBool) {
        loop {
            let Ok(window) = wanted.lock().recv() else { return };
            let until = Instant::now() + FRAMES_WAIT;
            while !self.pool.read_early(&window.pages) && Instant::now() < until && !is_over.load(Relaxed) {
                reached("recovery: read-ahead waits for frames");
                self.pool.ring();
                self.pool.pause();
            }
        }
    }

    /// Keeps frames free, as page writers do. Page writers do not run yet.
    fn keep_frames_free(self, is_over: &AtomicBool) -> Result<()> {
        while !is_over.load(Relaxed) {
            match self.write() {
                Ok(true) => self.pool.wait_for_work(NAP),
                Ok(false) => self.pool.wait_for_work(REST),
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }

    /// Makes frames free for all windows that are ahead. Returns false if a full device refused pages.
    fn write(self) -> Result<bool> {
        let free_count = (self.pool.frame_count() / 8).clamp(1, DEPTH * PAGES_MAX);
        match self.pool.refill_to(free_count, |dirty| self.pool.write_frames(dirty)) {
            Err(cause) if cause.is_no_space() => Ok(false),
            wrote => wrote.map(|_| true),
        }
    }
}

/// Ends the threads when it is dropped, even if redo panics.
struct EndsThreads<'a> {
    is_over: &'a AtomicBool,
    pool: &'a Pool,
}

impl Drop for EndsThreads<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        self.pool.ring();
    }
}

/// Owns the channel, so that the sending thread notices the end.
fn for_each(windows: Receiver<Arc<Window>>, mut apply: impl FnMut(&Window) -> Result<()>) -> Result<()> {
    windows.iter().try_for_each(|window| apply(&window))
}

fn spawn<'scope, 'env, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let failed = |error: io::Error| PagerError::Incompatible {
        what: format!("cannot start the thread {name}: {error}"),
    };
    thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work).map_err(failed)
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
