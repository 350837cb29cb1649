//! Group commit. One thread writes the log for all threads that wait for it. The waiting threads are then
//! woken one by one.
//!
//! Invariants
//! 1. At most one thread, the leader, writes the log. The leader is always a thread that needs the result
//!    itself, so no work is handed to another thread.
//! 2. While the leader writes, new groups of records gather in the next block. The next leader writes them
//!    together.
//! 3. A waiting thread is woken exactly once: when its LSN is durable, when it becomes the leader, or when
//!    the log fails.
//!
//! The method follows DeWitt et al. 1984 (group commit) and the leader and follower queues of RocksDB and
//! MySQL.
//!
//! This module does not know what is in the blocks.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::{self, Thread};

use parking_lot::Mutex;
use varve_device::{BlockFile, Durability, Purpose, planted};

use super::line::{Line, Role};
use super::writer::Block;
use super::{Log, LogError};
use crate::base::lsn::Lsn;

const WAITING: u8 = 0;
const LEAD: u8 = 1;
const DONE: u8 = 2;

/// A thread that waits in the queue, and sleeps.
struct Waiter {
    state: AtomicU8,
    thread: Thread,
}

impl Waiter {
    fn wake(&self, state: u8) {
        self.state.store(state, Ordering::Release);
        self.thread.unpark();
    }

    fn park(&self) -> u8 {
        loop {
            match self.state.load(Ordering::Acquire) {
                WAITING => thread::park(),
                state => return state,
            }
        }
    }
}

thread_local! {
    static WAITER: Arc<Waiter> =
        Arc::new(Waiter { state: AtomicU8::new(WAITING), thread: thread::current() });
    static BLOCKS: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

/// The queue of threads that need a flush, and its counters.
#[derive(Default)]
pub(super) struct Queue {
    line: Mutex<Line<Arc<Waiter>>>,
    flushes_count: AtomicU64,
    flushed_bytes: AtomicU64,
    followers_count: AtomicU64,
}

impl Queue {
    pub(super) fn flushes_count(&self) -> u64 {
        self.flushes_count.load(Ordering::Relaxed)
    }

    pub(super) fn flushed_bytes(&self) -> u64 {
        self.flushed_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn followers_count(&self) -> u64 {
        self.followers_count.load(Ordering::Relaxed)
    }

    /// Returns true if the calling thread must lead the next flush. If another thread leads, this one waits
    /// first.
    fn enter(&self, log: &Log, upto: Lsn) -> bool {
        let waiter = WAITER.with(Arc::clone);
        let mut line = self.line.lock();
        if log.durable() >= upto || log.is_stopped() {
            return false;
        }
        waiter.state.store(WAITING, Ordering::Relaxed);
        let place = line.enter(upto, &waiter);
        drop(line);
        if place == Role::Leads {
            return true;
        }
        self.followers_count.fetch_add(1, Ordering::Relaxed);
        waiter.park() == LEAD
    }

    /// Ends a leadership: wakes the next leader, and the threads whose LSNs are durable.
    fn leave(&self, durable: Lsn) {
        let woken = self.line.lock().leave(durable);
        if let Some(leader) = woken.leader {
            leader.wake(LEAD);
        }
        woken.served.iter().for_each(|waiter| waiter.wake(DONE));
    }

    /// Wakes all waiting threads, because the log has stopped.
    pub(super) fn release_all(&self) {
        let waiting = self.line.lock().take_all();
        waiting.iter().for_each(|waiter| waiter.wake(DONE));
    }
}

/// Ends a leadership, even if the leader panics. Otherwise followers would wait for a leader that never
/// comes.
struct Leadership<'l> {
    log: &'l Log,
    /// Whether the leadership began in a destructor during a panic, so that it did not cause the panic.
    is_in_panic: bool,
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        if thread::panicking() && !self.is_in_panic {
            self.log.panicked();
        }
        self.log.queue.leave(self.log.durable());
    }
}

impl Log {
    /// Waits until everything at or below `upto` is durable. The calling thread writes the log itself, unless
    /// another thread is writing it. `upto` must be an LSN that `append` returned.
    pub fn flush(&self, upto: Lsn) -> Result<(), LogError> {
        assert!(upto <= self.end(), "flush of {upto}, beyond the log's end {}", self.end());
        while self.durable() < upto {
            self.check()?;
            if self.queue.enter(self, upto) {
                self.lead();
            }
        }
        Ok(())
    }

    fn lead(&self) {
        let _leadership = Leadership { log: self, is_in_panic: thread::panicking() };
        let mut blocks = BLOCKS.with(RefCell::take);
        let next = self.take_blocks(&mut blocks);
        let written = self.check().and_then(|()| self.write_blocks(&mut blocks, next));
        self.give_back(&mut blocks);
        BLOCKS.set(blocks);
        match written {
            Ok(()) => self.durable_block.advance(next),
            Err(error) => self.poison(&error.to_string()),
        }
    }

    /// Writes the blocks in order. Each block is durable before the next one is written. `next` is the first
    /// block that may not be durable after that. `durable_block` advances before `durable`, so a thread that
    /// has waited for an LSN finds all full blocks up to it before `durable_block`.
    fn write_blocks(&self, blocks: &mut [Block], next: Lsn) -> Result<(), LogError> {
        for number in 0..blocks.len() {
            let following = blocks.get(number + 1).map_or(next, Block::start);
            let block = &mut blocks[number];
            let start = block.start();
            let file = self.file_at(start)?;
            if block.jumps() {
                // A reader of this block may rely on the existence of the next segment, so that is made
                // first.
                self.prepare(self.geometry.first_block(self.geometry.segment_of(start) + 1))?;
            }
            let bytes = block.seal(self.epoch, self.sector_shift, self.durable());
            let when =
                if planted("log: blocks are not durable") { Durability::Later } else { Durability::Now };
            file.write_at(self.geometry.offset_of(start), bytes, Purpose::Log, when)?;
            self.queue.flushes_count.fetch_add(1, Ordering::Relaxed);
            self.queue.flushed_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.durable_block.advance(following);
            self.durable.advance(block.last());
        }
        Ok(())
    }

    /// Makes the segment of `lsn`, unless it exists.
    pub(super) fn prepare(&self, lsn: Lsn) -> Result<(), LogError> {
        let number = self.geometry.segment_of(lsn);
        if self.segments.is_prepared(number) { Ok(()) } else { self.segments.prepare(number) }
    }

    /// Returns the file of the segment of `lsn`. Makes the segment if no other thread has made it in time.
    fn file_at(&self, lsn: Lsn) -> Result<Arc<dyn BlockFile>, LogError> {
        self.prepare(lsn)?;
        let file = self.segments.file(self.geometry.segment_of(lsn));
        Ok(file.expect("a prepared segment that is not truncated has a file"))
    }
}
