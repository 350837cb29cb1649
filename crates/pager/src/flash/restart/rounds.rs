//! The rounds of lazy verification over the slot records: which chunk is written next, what was last written
//! of each chunk, and the sum over the records that a seal would have.
//!
//! This module does not know what a record says.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use crate::base::lsn::Lsn;
use crate::flash::io::store::{Cold, Marks, Seal, Whose};

/// The most chunks into which the table is divided.
pub(in crate::flash) const CHUNKS_MAX: u32 = 1024;
/// The least number of blocks of a chunk. Smaller chunks would cost the drive more requests.
pub(in crate::flash) const CHUNK_BLOCKS_MIN: u32 = 4;
/// The number of pauses in a round when the drive has little work. If each pause is half a second, this is
/// the speed of the thesis (1,024 chunks, 8 at once).
pub(in crate::flash) const PAUSES_OF_ROUND: u32 = 128;
/// Records may take one part in this number of the bytes that the drive moves.
pub(in crate::flash) const SHARE_OF_TRAFFIC: u64 = 128;
/// If only the times of accesses have changed, a chunk is written once in this number of rounds.
pub(in crate::flash) const TIMES_ROUNDS: u32 = 8;
/// Without threads, one in this number of puts and checkpoints writes records. A thread would be late in the
/// same way, so tests also see how a start handles late records.
pub(in crate::flash) const TURNS: u32 = 16;
/// The number of rounds until every chunk was read after a wait began: the rest of the present round, and a
/// whole one.
pub(in crate::flash) const ROUNDS_AWAITED: u8 = 2;

/// The records of a chunk that were written last.
#[derive(Clone, Copy, Default)]
pub(in crate::flash) struct Chunk {
    /// The `before` of the chunk's records. `None` means that nothing was written since the start, and that
    /// the chunk had no records then.
    pub(in crate::flash) before: Option<Lsn>,
    /// The contents of the records. `None` means that they are not known.
    pub(in crate::flash) content: Option<Content>,
    /// The number of rounds since the last write.
    pub(in crate::flash) rounds: u32,
}

/// The records of a chunk, as hashes that can be compared.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::flash) struct Content {
    /// Hash of the pages and page LSNs. If different contents have the same hash, older records stay, and
    /// they are still right.
    pub(in crate::flash) pages: u64,
    /// Hash of the times of accesses.
    pub(in crate::flash) times: u64,
    pub(in crate::flash) records: u64,
}

impl Content {
    pub(in crate::flash) fn is_same(self, other: Content) -> bool {
        (self.pages, self.records) == (other.pages, other.records)
    }
}

pub(in crate::flash) struct Round {
    pub(in crate::flash) next: usize,
    /// Blocks of each chunk.
    pub(in crate::flash) chunk_blocks: u32,
    pub(in crate::flash) chunks: Vec<Chunk>,
}

impl Round {
    pub(in crate::flash) fn of(blocks: u32) -> Round {
        let chunk_blocks = blocks.div_ceil(CHUNKS_MAX).max(CHUNK_BLOCKS_MIN);
        let chunks = vec![Chunk::default(); blocks.div_ceil(chunk_blocks) as usize];
        Round { next: 0, chunk_blocks, chunks }
    }
}

/// The state of lazy verification.
pub(in crate::flash) struct Hardening {
    pub(in crate::flash) whose: Mutex<Whose>,
    /// The marks that the file had at the start, or the reason why its pages can't be used.
    pub(in crate::flash) earlier: std::result::Result<Marks, Cold>,
    pub(in crate::flash) seal: Seal,
    /// Held by the thread that writes chunks, during the whole write.
    pub(in crate::flash) writing: Mutex<()>,
    /// Held for a moment only.
    pub(in crate::flash) round: Mutex<Round>,
    pub(in crate::flash) is_on: AtomicBool,
    /// The redo position waits for records that are at least as new as this LSN.
    pub(in crate::flash) awaited: AtomicU64,
    /// The redo position waits for this many more rounds at most.
    pub(in crate::flash) rounds_awaited: AtomicU8,
    /// Whether the last checkpoint did not move the redo position because of the records.
    pub(in crate::flash) is_held: AtomicBool,
    /// The number of changes that the last checkpoint saw.
    pub(in crate::flash) changes_seen: AtomicU64,
    /// The number of pages moved to and from the drive at the last call of `chunks_at_once`.
    pub(in crate::flash) moved_seen: AtomicU64,
    /// If there are no threads, the number of puts and checkpoints that could have written records.
    pub(in crate::flash) turns: AtomicU32,
}

impl Hardening {
    pub(in crate::flash) fn new(
        whose: Whose,
        earlier: std::result::Result<Marks, Cold>,
        seal: Seal,
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

    pub(in crate::flash) fn whose(&self) -> Whose {
        *self.whose.lock()
    }

    /// Prevents other threads from writing records in the background, until the guard is dropped.
    pub(in crate::flash) fn nobody_writes(&self) -> MutexGuard<'_, ()> {
        self.writing.lock()
    }

    /// Begins again with `blocks` blocks, none of which is written. The caller holds the guard of
    /// `nobody_writes`.
    pub(in crate::flash) fn reshape(&self, whose: Whose, blocks: u32) {
        *self.whose.lock() = whose;
        *self.round.lock() = Round::of(blocks);
    }

    /// Begins to write records.
    pub(in crate::flash) fn begin(&self, whose: Whose) {
        *self.whose.lock() = whose;
        self.is_on.store(true, Relaxed);
    }

    /// Returns whether records are written.
    pub(in crate::flash) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Notes that there are records of an earlier start, which are useful as long as the log is read from
    /// `redo`. `next` is the position at which the log continues.
    pub(in crate::flash) fn found_from(&self, redo: Lsn, until: Lsn, next: Lsn) {
        self.round.lock().chunks.fill(Chunk { before: Some(redo), ..Chunk::default() });
        if redo >= until && next > redo {
            // The log was empty, and its new life begins after that position. The records become useful again
            // after a round.
            self.wait(next);
        }
    }

    /// Returns whether the calling put or checkpoint writes records, if there are no threads.
    pub(in crate::flash) fn is_turn(&self) -> bool {
        self.turns.fetch_add(1, Relaxed).is_multiple_of(TURNS)
    }

    pub(in crate::flash) fn wait(&self, wanted: Lsn) {
        self.awaited.fetch_max(wanted.get(), Relaxed);
        self.rounds_awaited.store(ROUNDS_AWAITED, Relaxed);
    }

    /// Returns the LSN that a checkpoint waits for, if it waits: records older than this LSN must be written
    /// again.
    pub(in crate::flash) fn awaited(&self) -> Option<Lsn> {
        (self.rounds_awaited.load(Relaxed) > 0).then(|| Lsn::new(self.awaited.load(Relaxed)))
    }

    pub(in crate::flash) fn wait_no_more(&self) {
        self.rounds_awaited.store(0, Relaxed);
    }

    pub(in crate::flash) fn chunks(&self) -> u32 {
        self.shape().1
    }

    /// Returns the number of blocks of a chunk, and the number of chunks.
    pub(in crate::flash) fn shape(&self) -> (u32, u32) {
        let round = self.round.lock();
        (round.chunk_blocks, round.chunks.len() as u32)
    }

    /// Returns the first block of a chunk, and its number of blocks. `all` is the number of blocks of the
    /// table.
    pub(in crate::flash) fn place(&self, chunk: u32, all: u32) -> (u32, u32) {
        let chunk_blocks = self.round.lock().chunk_blocks;
        let first = chunk * chunk_blocks;
        (first, chunk_blocks.min(all - first))
    }

    /// Returns the next chunk, and its records that were written last.
    pub(in crate::flash) fn turn(&self) -> (u32, Chunk) {
        let mut round = self.round.lock();
        let chunk = round.next;
        round.next = (chunk + 1) % round.chunks.len();
        (chunk as u32, round.chunks[chunk])
    }

    pub(in crate::flash) fn note(&self, chunk: u32, written: Chunk) {
        self.round.lock().chunks[chunk as usize] = written;
    }

    /// Returns the lowest `before` of all chunks. No record is older.
    pub(in crate::flash) fn oldest(&self) -> Option<Lsn> {
        self.round.lock().chunks.iter().filter_map(|chunk| chunk.before).min()
    }

    /// Ends a round.
    pub(in crate::flash) fn end_round(&self) {
        let left = self.rounds_awaited.load(Relaxed);
        let is_served = self.oldest().is_none_or(|oldest| oldest.get() >= self.awaited.load(Relaxed));
        self.rounds_awaited.store(if is_served { 0 } else { left.saturating_sub(1) }, Relaxed);
    }
}
