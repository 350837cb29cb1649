//! Rounds over the table of records: which chunk is next, what was written last of each, and what a seal would say.
//!
//! What it does not know: what a record says.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use super::store::{Cold, Marks, Seal, Whose};
use crate::base::lsn::Lsn;

/// Chunks of the table, at most.
pub(super) const CHUNKS_MAX: u32 = 1024;
/// Blocks of a chunk, at least: requests count on a drive, not only bytes.
pub(super) const CHUNK_BLOCKS_MIN: u32 = 4;
/// Pauses in a round, where the drive does little: with half a second each those of the thesis (1,024 chunks, 8 at once).
pub(super) const PAUSES_OF_ROUND: u32 = 128;
/// Records may be one of so many bytes that the drive moves.
pub(super) const SHARE_OF_TRAFFIC: u64 = 128;
/// Times of accesses are worth a write once in so many rounds.
pub(super) const TIMES_ROUNDS: u32 = 8;
/// Where there are no threads: one in so many of those who come by, with a page or a checkpoint, writes records. A thread would lag behind
/// them, too; and records that never lag would leave untried what a start does about that.
pub(super) const TURNS: u32 = 16;
/// Rounds until every chunk was looked at since somebody began to wait: the one that goes on, and a whole one.
pub(super) const ROUNDS_AWAITED: u8 = 2;

/// What was written last of a chunk.
#[derive(Clone, Copy, Default)]
pub(super) struct Chunk {
    /// `before` of its records. `None`: nothing since the start, and it had no records then.
    pub(super) before: Option<Lsn>,
    /// `None`: unknown.
    pub(super) content: Option<Content>,
    /// Rounds since then.
    pub(super) rounds: u32,
}

/// What the frames of a chunk have.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// Of their pages and page LSNs. (Where two of them are taken for one, older records stay, which are right.)
    pub(super) pages: u64,
    /// Of the times of accesses.
    pub(super) times: u64,
    pub(super) records: u64,
}

impl Content {
    pub(super) fn is_same(self, other: Content) -> bool {
        (self.pages, self.records) == (other.pages, other.records)
    }
}

pub(super) struct Round {
    pub(super) next: usize,
    /// Blocks of each chunk.
    pub(super) chunk_blocks: u32,
    pub(super) chunks: Vec<Chunk>,
}

impl Round {
    pub(super) fn of(blocks: u32) -> Round {
        let chunk_blocks = blocks.div_ceil(CHUNKS_MAX).max(CHUNK_BLOCKS_MIN);
        let chunks = vec![Chunk::default(); blocks.div_ceil(chunk_blocks) as usize];
        Round { next: 0, chunk_blocks, chunks }
    }
}

/// Where the work stands.
pub(super) struct Hardening {
    pub(super) whose: Mutex<Whose>,
    /// The marks that the file had, and its seal.
    pub(super) earlier: std::result::Result<Marks, Cold>,
    pub(super) seal: Seal,
    /// Held by who writes chunks, all the time.
    pub(super) writing: Mutex<()>,
    /// Held for a moment only.
    pub(super) round: Mutex<Round>,
    pub(super) is_on: AtomicBool,
    /// The redo position waits for records that are not older than this; and for so many rounds more, at most.
    pub(super) awaited: AtomicU64,
    pub(super) rounds_awaited: AtomicU8,
    /// The last checkpoint left the position where it is for their sake.
    pub(super) is_held: AtomicBool,
    /// What the last one saw of changes.
    pub(super) changes_seen: AtomicU64,
    /// Pages moved to and from the drive when somebody looked last.
    pub(super) moved_seen: AtomicU64,
    /// Who came by where there are no threads.
    pub(super) turns: AtomicU32,
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

    pub(super) fn wait(&self, wanted: Lsn) {
        self.awaited.fetch_max(wanted.get(), Relaxed);
        self.rounds_awaited.store(ROUNDS_AWAITED, Relaxed);
    }

    /// Up to where records have to be newer, if somebody waits for that.
    pub(super) fn awaited(&self) -> Option<Lsn> {
        (self.rounds_awaited.load(Relaxed) > 0).then(|| Lsn::new(self.awaited.load(Relaxed)))
    }

    pub(super) fn wait_no_more(&self) {
        self.rounds_awaited.store(0, Relaxed);
    }

    pub(super) fn chunks(&self) -> u32 {
        self.shape().1
    }

    /// Blocks of a chunk, and chunks.
    pub(super) fn shape(&self) -> (u32, u32) {
        let round = self.round.lock();
        (round.chunk_blocks, round.chunks.len() as u32)
    }

    /// First block of a chunk, and how many it has; `all`: blocks of the table.
    pub(super) fn place(&self, chunk: u32, all: u32) -> (u32, u32) {
        let chunk_blocks = self.round.lock().chunk_blocks;
        let first = chunk * chunk_blocks;
        (first, chunk_blocks.min(all - first))
    }

    /// The next chunk, and what was written of it.
    pub(super) fn turn(&self) -> (u32, Chunk) {
        let mut round = self.round.lock();
        let chunk = round.next;
        round.next = (chunk + 1) % round.chunks.len();
        (chunk as u32, round.chunks[chunk])
    }

    pub(super) fn note(&self, chunk: u32, written: Chunk) {
        self.round.lock().chunks[chunk as usize] = written;
    }

    /// None of the records is older.
    pub(super) fn oldest(&self) -> Option<Lsn> {
        self.round.lock().chunks.iter().filter_map(|chunk| chunk.before).min()
    }

    /// A round has ended.
    pub(super) fn end_round(&self) {
        let left = self.rounds_awaited.load(Relaxed);
        let is_served = self.oldest().is_none_or(|oldest| oldest.get() >= self.awaited.load(Relaxed));
        self.rounds_awaited.store(if is_served { 0 } else { left.saturating_sub(1) }, Relaxed);
    }
}
