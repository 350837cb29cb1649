//! Keeping records of the frames on flash, so that a start can go on with them: lazy verification (Do 2012, section 4.3.3).
//!
//! A thread goes round the table, in chunks, and writes the records of every frame that a page can be read from. Nobody who changes or
//! reads pages waits for it, and nothing has to be durable: a record is a statement about the log, whose durable end was noted before the
//! frame was looked at. It stays true, so a chunk is written again only if
//!
//! - its pages, or their LSNs, are others than those that were written last;
//! - or a start would begin behind the chunk's records, and so make them useless, if they were not written: the redo position waits for
//!   them (`running/checkpoint.rs`), and its limit is told by [`await_hardening`](FlashCache::await_hardening);
//! - or only times of accesses are others, and so many rounds went by (`TIMES_ROUNDS`).
//!
//! How fast it goes round follows what the drive does anyway: a crash leaves out the frames that were filled since their chunk's turn, and
//! the log is read from where the oldest chunk's records are. No slower than in the thesis, which writes 8 chunks of 1,024 each half second.
//!
//! Invariants
//! 1. All before `before` of a record was durable in the log before anybody looked at the frame; a start can read from there on.
//! 2. A frame whose page has changed above gets no record, also where the frame stayed because a put was overtaken by the change: the
//!    ledger is asked under the lock that whoever puts a newer version takes first.
//! 3. No record is written before redo is over.
//! 4. One thread at a time writes chunks, and what it notes of a chunk is not newer than the chunk's records on flash. Of the locks it
//!    holds while it writes, the append section of the log wants none.
//!
//! Not known here: what a start believes of them.

use std::hash::Hasher;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHasher;
use varve_device::{AlignedBuf, Durability};

use super::cache::{FlashCache, add};
use super::record::{RECORDS_OF_BLOCK, Record, TABLE_BLOCK_BYTES, sum_of};
use super::restart::FlashRestart;
use super::store::{Cold, Marks, Seal, Whose};
use super::table::Kept;
use crate::base::error::Result;
use crate::base::lsn::Lsn;

/// Chunks of the table, at most.
const CHUNKS_MAX: u32 = 1024;
/// Blocks of a chunk, at least: requests count on a drive, not only bytes.
pub(super) const CHUNK_BLOCKS_MIN: u32 = 4;
/// Pauses in a round, where the drive does little: with half a second each those of the thesis (1,024 chunks, 8 at once).
const PAUSES_OF_ROUND: u32 = 128;
/// Records may be one of so many bytes that the drive moves.
pub(super) const SHARE_OF_TRAFFIC: u64 = 128;
/// Times of accesses are worth a write once in so many rounds.
const TIMES_ROUNDS: u32 = 8;
/// Where there are no threads: one in so many of those who come by, with a page or a checkpoint, writes records. A thread would lag behind
/// them, too; and records that never lag would leave untried what a start does about that.
const TURNS: u32 = 16;
/// Rounds until every chunk was looked at since somebody began to wait: the one that goes on, and a whole one.
const ROUNDS_AWAITED: u8 = 2;

/// What was written last of a chunk.
#[derive(Clone, Copy, Default)]
struct Chunk {
    /// `before` of its records. `None`: nothing since the start, and it had no records then.
    before: Option<Lsn>,
    /// `None`: unknown.
    content: Option<Content>,
    /// Rounds since then.
    rounds: u32,
}

/// What the frames of a chunk have.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Content {
    /// Of their pages and page LSNs. (Where two of them are taken for one, older records stay, which are right.)
    pages: u64,
    /// Of the times of accesses.
    times: u64,
    records: u64,
}

impl Content {
    fn is_same(self, other: Content) -> bool {
        (self.pages, self.records) == (other.pages, other.records)
    }
}

struct Round {
    next: usize,
    /// Blocks of each chunk.
    chunk_blocks: u32,
    chunks: Vec<Chunk>,
}

impl Round {
    fn of(blocks: u32) -> Round {
        let chunk_blocks = blocks.div_ceil(CHUNKS_MAX).max(CHUNK_BLOCKS_MIN);
        let chunks = vec![Chunk::default(); blocks.div_ceil(chunk_blocks) as usize];
        Round { next: 0, chunk_blocks, chunks }
    }
}

/// Where the work stands.
pub(super) struct Hardening {
    whose: Mutex<Whose>,
    /// The marks that the file had, and its seal.
    pub(super) earlier: std::result::Result<Marks, Cold>,
    pub(super) seal: Seal,
    /// Held by who writes chunks, all the time.
    writing: Mutex<()>,
    /// Held for a moment only.
    round: Mutex<Round>,
    is_on: AtomicBool,
    /// The redo position waits for records that are not older than this; and for so many rounds more, at most.
    awaited: AtomicU64,
    rounds_awaited: AtomicU8,
    /// The last checkpoint left the position where it is for their sake.
    is_held: AtomicBool,
    /// What the last one saw of changes.
    changes_seen: AtomicU64,
    /// Pages moved to and from the drive when somebody looked last.
    moved_seen: AtomicU64,
    /// Who came by where there are no threads.
    turns: AtomicU32,
}

impl Hardening {
    pub(super) fn new(
        whose: Whose,
        (earlier, seal): (std::result::Result<Marks, Cold>, Seal),
        blocks: u32,
    ) -> Hardening {
        Hardening {
            whose: Mutex::new(whose),
            earlier,
            seal,
            writing: Mutex::default(),
            round: Mutex::new(Round::of(blocks)),
            is_on: AtomicBool::new(false),
            awaited: AtomicU64::new(0),
            rounds_awaited: AtomicU8::new(0),
            is_held: AtomicBool::new(false),
            changes_seen: AtomicU64::new(u64::MAX),
            moved_seen: AtomicU64::new(0),
            turns: AtomicU32::new(0),
        }
    }

    pub(super) fn whose(&self) -> Whose {
        *self.whose.lock()
    }

    /// Keeps everybody from writing records in the background.
    pub(super) fn nobody_writes(&self) -> MutexGuard<'_, ()> {
        self.writing.lock()
    }

    /// There are so many blocks of records, and none is written yet; nobody writes.
    pub(super) fn reshape(&self, whose: Whose, blocks: u32) {
        *self.whose.lock() = whose;
        *self.round.lock() = Round::of(blocks);
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

    /// There were records, which are of use as long as the log is read from here. `next`: where the log goes on.
    pub(super) fn found_from(&self, redo: Lsn, until: Lsn, next: Lsn) {
        self.round.lock().chunks.fill(Chunk { before: Some(redo), ..Chunk::default() });
        if redo >= until && next > redo {
            // The log was empty, and its new life begins behind that: records are of use again after a round.
            self.wait(next);
        }
    }

    /// Where there are no threads: whether who comes by writes records.
    pub(super) fn is_turn(&self) -> bool {
        self.turns.fetch_add(1, Relaxed).is_multiple_of(TURNS)
    }

    fn wait(&self, wanted: Lsn) {
        self.awaited.fetch_max(wanted.get(), Relaxed);
        self.rounds_awaited.store(ROUNDS_AWAITED, Relaxed);
    }

    /// Up to where records have to be newer, if somebody waits for that.
    fn awaited(&self) -> Option<Lsn> {
        (self.rounds_awaited.load(Relaxed) > 0).then(|| Lsn::new(self.awaited.load(Relaxed)))
    }

    fn wait_no_more(&self) {
        self.rounds_awaited.store(0, Relaxed);
    }

    fn chunks(&self) -> u32 {
        self.shape().1
    }

    /// Blocks of a chunk, and chunks.
    fn shape(&self) -> (u32, u32) {
        let round = self.round.lock();
        (round.chunk_blocks, round.chunks.len() as u32)
    }

    /// First block of a chunk, and how many it has; `all`: blocks of the table.
    fn place(&self, chunk: u32, all: u32) -> (u32, u32) {
        let chunk_blocks = self.round.lock().chunk_blocks;
        let first = chunk * chunk_blocks;
        (first, chunk_blocks.min(all - first))
    }

    /// The next chunk, and what was written of it.
    fn turn(&self) -> (u32, Chunk) {
        let mut round = self.round.lock();
        let chunk = round.next;
        round.next = (chunk + 1) % round.chunks.len();
        (chunk as u32, round.chunks[chunk])
    }

    fn note(&self, chunk: u32, written: Chunk) {
        self.round.lock().chunks[chunk as usize] = written;
    }

    /// None of the records is older.
    fn oldest(&self) -> Option<Lsn> {
        self.round.lock().chunks.iter().filter_map(|chunk| chunk.before).min()
    }

    /// A round has ended.
    fn end_round(&self) {
        let left = self.rounds_awaited.load(Relaxed);
        let is_served = self.oldest().is_none_or(|oldest| oldest.get() >= self.awaited.load(Relaxed));
        self.rounds_awaited.store(if is_served { 0 } else { left.saturating_sub(1) }, Relaxed);
    }
}

impl FlashCache {
    /// Writes the records of the next chunk, if that is worth it. Whether a round ended with that, or nothing may be written now.
    pub(crate) fn harden_some(&self) -> bool {
        let hardening = &self.hardening;
        if self.is_redo_running() {
            return true;
        }
        if !self.hardens() {
            hardening.wait_no_more();
            return true;
        }
        let _one_at_a_time = hardening.writing.lock();
        let awaited = hardening.awaited();
        if !self.store.budget.allows_records(awaited.is_some()) {
            return true;
        }
        let (chunk, last) = hardening.turn();
        hardening.note(chunk, self.harden_if_worth(chunk, last, awaited));
        let has_ended = chunk + 1 == hardening.chunks();
        if has_ended {
            hardening.end_round();
            add(&self.counters.hardened_passes);
        }
        has_ended
    }

    /// What is written of it then.
    fn harden_if_worth(&self, chunk: u32, last: Chunk, awaited: Option<Lsn>) -> Chunk {
        let before = self.log.durable_block();
        let (content, bytes) = self.records_of_chunk(chunk, before);
        let is_same = last.content.is_some_and(|last| last.is_same(content));
        let is_useless = awaited.is_some_and(|awaited| last.before < Some(awaited.min(before)));
        let is_late = last.content != Some(content) && last.rounds >= TIMES_ROUNDS;
        if is_same && content.records == 0 {
            // Of nothing it says the same as a newer one would.
            return Chunk { before: Some(before), content: Some(content), rounds: 0 };
        }
        if is_same && !is_useless && !is_late {
            return Chunk { rounds: last.rounds + 1, ..last };
        }
        match self.write_chunk(chunk, &bytes) {
            Ok(()) => Chunk { before: Some(before), content: Some(content), rounds: 0 },
            // Older and newer ones may be there.
            Err(_) => Chunk { content: None, ..last },
        }
    }

    pub(super) fn hardens(&self) -> bool {
        let is_meant = self.restart() == FlashRestart::LazyVerification && self.hardening.is_on();
        is_meant && self.is_on() && !self.is_failing()
    }

    /// Writes the records of all frames. Nothing changes any more, and redo would begin here: what is not in the log behind that, has not
    /// changed since. A sum over them, which are durable; `None`: no records are kept, or no more.
    pub(crate) fn harden_all(&self, redo: Lsn) -> Result<Option<u32>> {
        let hardening = &self.hardening;
        if !self.hardens() {
            return Ok(None);
        }
        let _one_at_a_time = hardening.writing.lock();
        let before = self.log.durable_lsn().max(redo);
        let mut sum = 0;
        for chunk in 0..hardening.chunks() {
            let (_, bytes) = self.records_of_chunk(chunk, before);
            sum = sum_of(sum, &bytes);
            self.write_chunk(chunk, &bytes)?;
        }
        self.store.flush().inspect_err(|cause| self.note_error(cause))?;
        Ok(Some(sum))
    }

    /// Chunks to be looked at until the next pause: so many that their records are a small part of what the drive has moved since this was
    /// asked last (pages read for others than cleaners, and written), or those of a slow round.
    pub(crate) fn chunks_at_once(&self) -> usize {
        let (chunk_blocks, chunks) = self.hardening.shape();
        let chunk_bytes = u64::from(chunk_blocks) * TABLE_BLOCK_BYTES as u64;
        let pages_of_chunk = (SHARE_OF_TRAFFIC * chunk_bytes).div_ceil(self.store.page_size() as u64);
        let counters = &self.counters;
        let moved = counters.hits.load(Relaxed) + counters.written.load(Relaxed);
        let seen = &self.hardening.moved_seen;
        let pages = moved.saturating_sub(seen.load(Relaxed));
        // What is not enough for a chunk counts the next time.
        seen.store(moved - pages % pages_of_chunk, Relaxed);
        let beside = pages / pages_of_chunk;
        beside.clamp(u64::from(chunks.div_ceil(PAUSES_OF_ROUND)), u64::from(chunks)) as usize
    }

    /// Where the log has to reach back to for all records to be of use: start of a block, which only moves on. `None`: there are none.
    pub(crate) fn hardened_from(&self) -> Option<Lsn> {
        if self.hardens() { self.hardening.oldest() } else { None }
    }

    /// Somebody would like the redo position to pass records that are older than this.
    pub(crate) fn await_hardening(&self, wanted: Lsn) {
        self.hardening.wait(wanted);
    }

    /// Whether somebody does.
    pub(crate) fn is_hardening_awaited(&self) -> bool {
        self.hardening.awaited().is_some()
    }

    /// Whether the redo position stays for their sake.
    pub(crate) fn note_held(&self, is_held: bool) {
        self.hardening.is_held.store(is_held, Relaxed);
    }

    /// Whether it does.
    pub(crate) fn holds_log(&self) -> bool {
        self.hardening.is_held.load(Relaxed)
    }

    /// A checkpoint sees that so much was changed. Whether the one before saw the same.
    pub(crate) fn sees_pause(&self, changes: u64) -> bool {
        self.hardening.changes_seen.swap(changes, Relaxed) == changes
    }

    fn write_chunk(&self, chunk: u32, bytes: &AlignedBuf) -> Result<()> {
        let (first, _) = self.hardening.place(chunk, self.store.table_blocks());
        self.store.budget.owe(bytes.len() as u64);
        let written = self.store.write_records(first, bytes, Durability::Later);
        written.inspect_err(|cause| self.note_error(cause))?;
        let blocks = (bytes.len() / TABLE_BLOCK_BYTES) as u64;
        self.counters.hardened.fetch_add(blocks, Relaxed);
        Ok(())
    }

    fn records_of_chunk(&self, chunk: u32, before: Lsn) -> (Content, AlignedBuf) {
        let whose = self.hardening.whose();
        let (first, blocks) = self.hardening.place(chunk, self.store.table_blocks());
        let mut bytes = AlignedBuf::new(blocks as usize * TABLE_BLOCK_BYTES);
        let (mut pages, mut times, mut records) = (FxHasher::default(), FxHasher::default(), 0);
        for (block, bytes) in (first..).zip(bytes.chunks_exact_mut(TABLE_BLOCK_BYTES)) {
            self.put_records(block, bytes, whose.epoch, before, |stored, kept| {
                records += 1;
                pages.write_u32(stored);
                pages.write_u64(kept.page.to_u64());
                pages.write_u64(kept.lsn.get());
                times.write_u64(kept.last);
            });
        }
        (Content { pages: pages.finish(), times: times.finish(), records }, bytes)
    }

    fn put_records(
        &self,
        block: u32,
        bytes: &mut [u8],
        epoch: u64,
        before: Lsn,
        mut look: impl FnMut(u32, &Kept),
    ) {
        let (first, frames) = (block * RECORDS_OF_BLOCK as u32, self.frames());
        for stored in (first..frames).take(RECORDS_OF_BLOCK) {
            let of_each = self.shape.partition_frames();
            let (partition, frame) = (stored / of_each, stored % of_each);
            let table = self.table(partition as usize);
            let kept = table.kept(frame).filter(|kept| self.is_newest(kept));
            drop(table);
            kept.iter().for_each(|kept| look(stored, kept));
            Record::put(kept.map(|kept| Record::of(kept, before)), bytes, epoch, stored);
        }
    }

    /// Under the lock of the page's partition.
    pub(super) fn is_newest(&self, kept: &Kept) -> bool {
        self.ledger.is_held_by(kept.page, kept.lsn)
    }
}
