//! Keeping records of the frames on flash, so that a start can go on with them: lazy verification (Do 2012, section 4.3.3).
//!
//! A thread goes round the table, in chunks, and writes the record of every frame that a page can be read from. Nobody waits for it, and
//! nothing has to be durable: a record is a statement about the log, whose end it was noted with before the frame was looked at.
//!
//! Invariants
//! 1. `before` of a record was durable in the log before anybody looked at the frame.
//! 2. A frame whose page has changed above gets no record, also where the frame stayed because a put was overtaken by the change: the
//!    ledger is asked under the lock that whoever puts a newer version takes first.
//! 3. No record is written before redo is over.
//!
//! Not known here: what a start believes of them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use varve_device::{AlignedBuf, Durability};

use super::cache::{FlashCache, add};
use super::record::{RECORDS_OF_BLOCK, Record, TABLE_BLOCK_BYTES};
use super::restart::FlashRestart;
use super::store::Whose;
use super::table::Kept;
use crate::lsn::Lsn;

/// Chunks of the table, at most.
const CHUNKS_MAX: u32 = 1024;

/// A chunk was hardened last at this moment.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Moment {
    before: Lsn,
    clock: u64,
}

pub(super) struct Round {
    next: usize,
    /// Blocks of each chunk.
    chunk_blocks: u32,
    /// `None`: not since the start, and it had no records then.
    chunks: Vec<Option<Moment>>,
}

impl Round {
    fn of(blocks: u32) -> Round {
        let chunk_blocks = blocks.div_ceil(CHUNKS_MAX).max(1);
        Round { next: 0, chunk_blocks, chunks: vec![None; blocks.div_ceil(chunk_blocks) as usize] }
    }
}

/// Where the work stands.
pub(super) struct Hardening {
    whose: Mutex<Whose>,
    /// The mark that the file had.
    pub(super) earlier: Option<u64>,
    round: Mutex<Round>,
    is_on: AtomicBool,
    /// The redo position waits for a round.
    is_awaited: AtomicBool,
}

impl Hardening {
    pub(super) fn new(whose: Whose, earlier: Option<u64>, blocks: u32) -> Hardening {
        Hardening {
            whose: Mutex::new(whose),
            earlier,
            round: Mutex::new(Round::of(blocks)),
            is_on: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
        }
    }

    pub(super) fn whose(&self) -> Whose {
        *self.whose.lock()
    }

    /// Keeps everybody from writing records in the background.
    pub(super) fn round(&self) -> MutexGuard<'_, Round> {
        self.round.lock()
    }

    /// There are so many blocks of records, and none is written yet.
    pub(super) fn reshape(&self, round: &mut Round, whose: Whose, blocks: u32) {
        *self.whose.lock() = whose;
        *round = Round::of(blocks);
    }

    /// Records are written from now on.
    pub(super) fn begin(&self, whose: Whose) {
        *self.whose.lock() = whose;
        self.is_on.store(true, Relaxed);
    }

    /// Whether they are.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// There were records, which are of use as long as redo begins here.
    pub(super) fn found_from(&self, redo: Lsn) {
        self.round.lock().chunks.fill(Some(Moment { before: redo, clock: 0 }));
        // A new life of the log may have begun behind that: records are of use again after a round.
        self.is_awaited.store(true, Relaxed);
    }
}

impl FlashCache {
    /// Writes the records of the next chunk, if there may be anything new in it. Whether a round ended with that.
    pub(crate) fn harden_some(&self) -> bool {
        let hardening = &self.hardening;
        if !self.hardens() || self.is_failing() || self.is_redo_running() {
            hardening.is_awaited.store(false, Relaxed);
            return true;
        }
        let mut round = hardening.round.lock();
        let chunk = round.next;
        round.next = (chunk + 1) % round.chunks.len();
        let now = Moment { before: self.log.durable_lsn(), clock: self.clock.load(Relaxed) };
        if round.chunks[chunk] != Some(now) && self.harden(chunk as u32, round.chunk_blocks, now.before) {
            round.chunks[chunk] = Some(now);
        }
        let has_ended = round.next == 0;
        if has_ended {
            hardening.is_awaited.store(false, Relaxed);
            add(&self.counters.hardened_passes);
        }
        has_ended
    }

    fn hardens(&self) -> bool {
        self.restart() == FlashRestart::LazyVerification && self.hardening.is_on() && self.is_on()
    }

    /// Writes the records of all frames. Nothing changes any more, and redo would begin here: what is not in the log behind that, has not
    /// changed since.
    pub(crate) fn harden_all(&self, redo: Lsn) {
        let hardening = &self.hardening;
        if !self.hardens() || self.is_failing() {
            return;
        }
        let before = self.log.durable_lsn().max(redo);
        let round = hardening.round();
        let chunks = round.chunks.len() as u32;
        let all = (0..chunks).all(|chunk| self.harden(chunk, round.chunk_blocks, before));
        if all && let Err(cause) = self.store.flush() {
            self.note_error(&cause);
        }
    }

    /// Where the log has to reach back to for all records to be of use; `None`: there are none.
    pub(crate) fn hardened_from(&self) -> Option<Lsn> {
        if !self.hardens() {
            return None;
        }
        self.hardening.round.lock().chunks.iter().flatten().map(|moment| moment.before).min()
    }

    /// Somebody would like the redo position to pass records.
    pub(crate) fn await_hardening(&self) {
        self.hardening.is_awaited.store(true, Relaxed);
    }

    /// Whether somebody does.
    pub(crate) fn is_hardening_awaited(&self) -> bool {
        self.hardening.is_awaited.load(Relaxed)
    }

    /// Whether it was done.
    fn harden(&self, chunk: u32, chunk_blocks: u32, before: Lsn) -> bool {
        let whose = self.hardening.whose();
        let first = chunk * chunk_blocks;
        let blocks = chunk_blocks.min(self.store.table_blocks() - first);
        let mut bytes = AlignedBuf::new(blocks as usize * TABLE_BLOCK_BYTES);
        for (block, bytes) in (first..).zip(bytes.chunks_exact_mut(TABLE_BLOCK_BYTES)) {
            self.put_records(block, bytes, whose.epoch, before);
        }
        match self.store.write_records(first, &bytes, Durability::Later) {
            Ok(()) => {
                self.counters.hardened.fetch_add(u64::from(blocks), Relaxed);
                true
            }
            Err(cause) => {
                self.note_error(&cause);
                false
            }
        }
    }

    fn put_records(&self, block: u32, bytes: &mut [u8], epoch: u64, before: Lsn) {
        let (first, frames) = (block * RECORDS_OF_BLOCK as u32, self.frames());
        for stored in (first..frames).take(RECORDS_OF_BLOCK) {
            let of_each = self.shape.partition_frames();
            let (partition, frame) = (stored / of_each, stored % of_each);
            let table = self.table(partition as usize);
            let kept = table.kept(frame).filter(|kept| self.is_newest(kept));
            drop(table);
            Record::put(kept.map(|kept| Record::of(kept, before)), bytes, epoch, stored);
        }
    }

    /// Under the lock of the page's partition.
    pub(super) fn is_newest(&self, kept: &Kept) -> bool {
        self.ledger.is_held_by(kept.page, kept.lsn)
    }
}
