//! Lazy verification (LVR, Do 2012, section 4.3.3): records of the cache's slots are written to flash, so
//! that the next start can use the pages in the slots.
//!
//! A background thread goes through the slot table in chunks, again and again. It writes a record of every
//! slot with a valid page. Threads that read or change pages never wait for it.
//!
//! A record says that the slot had the page with all its changes up to the log position `before`. This
//! statement stays true when the page changes later. So a record need not be durable at once. The thread
//! takes the log's durable end as `before`, and then looks at the slot.
//!
//! A chunk is written again only in three cases:
//! - the pages of the chunk, or their LSNs, differ from those that were written last;
//! - the chunk's records would become useless, because the next start would read the log only from a later
//!   position. The redo position waits until these records are written again (`running/checkpoint.rs`), and
//!   [`await_hardening`](FlashCache::await_hardening) gives the redo position that the checkpoint wants;
//! - only access times differ, and `TIMES_ROUNDS` rounds have passed.
//!
//! The thread works faster when the drive has little other work. Its speed matters after a crash. Slots that
//! were filled after their chunk was written are lost, and the log is read from the position of the oldest
//! chunk's records. The thread is never slower than in the thesis, which writes 8 chunks of 1,024 records
//! each half second.
//!
//! Invariants
//! 1. The log before a record's `before` was durable before the thread looked at the slot. So a start can
//!    read the log from there on.
//! 2. A slot whose page has changed in the pool gets no record, even if the change has not removed the slot
//!    yet. The thread asks the dirty-page table under a lock that a put of a newer version takes first.
//! 3. No record is written before redo has ended.
//! 4. One thread at a time writes chunks. Its copy of a chunk in memory is never newer than the chunk's
//!    records on flash. The append section of the log needs none of the locks that the thread holds while it
//!    writes.
//!
//! This module does not know which records a start uses.

use std::hash::Hasher;
use std::sync::atomic::Ordering::Relaxed;

use rustc_hash::FxHasher;
use varve_device::{AlignedBuf, Durability};

use super::record::{RECORDS_OF_BLOCK, Record, TABLE_BLOCK_BYTES, sum_of};
use super::rounds::{Chunk, Content, PAUSES_OF_ROUND, SHARE_OF_TRAFFIC, TIMES_ROUNDS};
use crate::base::error::Result;
use crate::base::lsn::Lsn;
use crate::flash::cache::{FlashCache, add};
use crate::flash::config::FlashRestart;
use crate::flash::table::Kept;

impl FlashCache {
    /// Writes the records of the next chunk, if this is worthwhile. Returns whether this ended a round, or
    /// nothing may be written now.
    pub(crate) fn harden_some(&self) -> bool {
        let hardening = &self.records.hardening;
        if self.is_redo_running() {
            return true;
        }
        if !self.hardens() {
            hardening.wait_no_more();
            return true;
        }
        let _one_at_a_time = hardening.writing.lock();
        let awaited = hardening.awaited();
        if !self.drive.store.budget.allows_records(awaited.is_some()) {
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

    /// Writes the records of a chunk, if that is worthwhile. Returns what is then known about the chunk.
    fn harden_if_worth(&self, chunk: u32, last: Chunk, awaited: Option<Lsn>) -> Chunk {
        let before = self.around.log.durable_block();
        let (content, bytes) = self.records_of_chunk(chunk, before);
        let is_same = last.content.is_some_and(|last| last.is_same(content));
        let is_useless = awaited.is_some_and(|awaited| last.before < Some(awaited.min(before)));
        let is_late = last.content != Some(content) && last.rounds >= TIMES_ROUNDS;
        if is_same && content.records == 0 {
            // A chunk without records needs no write: its blocks on flash stay right with the newer `before`.
            return Chunk { before: Some(before), content: Some(content), rounds: 0 };
        }
        if is_same && !is_useless && !is_late {
            return Chunk { rounds: last.rounds + 1, ..last };
        }
        match self.write_chunk(chunk, &bytes) {
            Ok(()) => Chunk { before: Some(before), content: Some(content), rounds: 0 },
            // After an error, some blocks may have the new records, and others the old ones.
            Err(_) => Chunk { content: None, ..last },
        }
    }

    pub(in crate::flash) fn hardens(&self) -> bool {
        let is_meant =
            self.records.scheme == FlashRestart::LazyVerification && self.records.hardening.is_on();
        is_meant && self.is_on() && !self.is_failing()
    }

    /// Writes the records of all slots at a shutdown. No page changes any more, and redo would begin at
    /// `redo`. So a page without log records after that position has not changed since. Returns a sum over
    /// the records, which are durable, or `None` if records are not kept.
    pub(crate) fn harden_all(&self, redo: Lsn) -> Result<Option<u32>> {
        let hardening = &self.records.hardening;
        if !self.hardens() {
            return Ok(None);
        }
        let _one_at_a_time = hardening.writing.lock();
        let before = self.around.log.durable_lsn().max(redo);
        let mut sum = 0;
        for chunk in 0..hardening.chunks() {
            let (_, bytes) = self.records_of_chunk(chunk, before);
            sum = sum_of(sum, &bytes);
            self.write_chunk(chunk, &bytes)?;
        }
        self.drive.store.flush().inspect_err(|cause| self.note_error(cause))?;
        Ok(Some(sum))
    }

    /// Returns the number of chunks to look at until the next pause. Usually their records are a small part
    /// of the bytes that the drive has moved since the last call. If the drive has moved few bytes, it is the
    /// number for a slow round. Reads by cleaning threads are not counted.
    pub(crate) fn chunks_at_once(&self) -> usize {
        let (chunk_blocks, chunks) = self.records.hardening.shape();
        let chunk_bytes = u64::from(chunk_blocks) * TABLE_BLOCK_BYTES as u64;
        let pages_of_chunk = (SHARE_OF_TRAFFIC * chunk_bytes).div_ceil(self.drive.store.page_size() as u64);
        let counters = &self.counters;
        let moved = counters.hits.load(Relaxed) + counters.written.load(Relaxed);
        let seen = &self.records.hardening.moved_seen;
        let pages = moved.saturating_sub(seen.load(Relaxed));
        // Pages that do not make up a whole chunk are counted at the next call.
        seen.store(moved - pages % pages_of_chunk, Relaxed);
        let beside = pages / pages_of_chunk;
        beside.clamp(u64::from(chunks.div_ceil(PAUSES_OF_ROUND)), u64::from(chunks)) as usize
    }

    /// Returns the position from which the log is needed so that all records are useful: the start of a
    /// block, which only increases, or `None` if there are no records.
    pub(crate) fn hardened_from(&self) -> Option<Lsn> {
        if self.hardens() { self.records.hardening.oldest() } else { None }
    }

    /// A checkpoint calls this if it wants to move the redo position to `wanted`. Records older than that
    /// must be written again first.
    pub(crate) fn await_hardening(&self, wanted: Lsn) {
        self.records.hardening.wait(wanted);
    }

    /// Returns whether a checkpoint waits for new records.
    pub(crate) fn is_hardening_awaited(&self) -> bool {
        self.records.hardening.awaited().is_some()
    }

    /// Records whether the redo position stays where it is because of the slot records.
    pub(crate) fn note_held(&self, is_held: bool) {
        self.records.hardening.is_held.store(is_held, Relaxed);
    }

    /// Returns whether the redo position stays where it is because of the slot records.
    pub(crate) fn holds_log(&self) -> bool {
        self.records.hardening.is_held.load(Relaxed)
    }

    /// A checkpoint reports the number of changes so far. Returns whether the checkpoint before reported the
    /// same number.
    pub(crate) fn sees_pause(&self, changes: u64) -> bool {
        self.records.hardening.changes_seen.swap(changes, Relaxed) == changes
    }

    fn write_chunk(&self, chunk: u32, bytes: &AlignedBuf) -> Result<()> {
        let (first, _) = self.records.hardening.place(chunk, self.drive.store.table_blocks());
        self.drive.store.budget.owe(bytes.len() as u64);
        let written = self.drive.store.write_records(first, bytes, Durability::Later);
        written.inspect_err(|cause| self.note_error(cause))?;
        let blocks = (bytes.len() / TABLE_BLOCK_BYTES) as u64;
        self.counters.hardened.fetch_add(blocks, Relaxed);
        Ok(())
    }

    fn records_of_chunk(&self, chunk: u32, before: Lsn) -> (Content, AlignedBuf) {
        let whose = self.records.hardening.whose();
        let (first, blocks) = self.records.hardening.place(chunk, self.drive.store.table_blocks());
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
        let (first, slots) = (block * RECORDS_OF_BLOCK as u32, self.slots());
        for stored in (first..slots).take(RECORDS_OF_BLOCK) {
            let of_each = self.slots.shape.partition_slots();
            let (partition, slot) = (stored / of_each, stored % of_each);
            let table = self.table(partition as usize);
            let kept = table.kept(slot).filter(|kept| self.is_newest(kept));
            drop(table);
            kept.iter().for_each(|kept| look(stored, kept));
            Record::put(kept.map(|kept| Record::of(kept, before)), bytes, epoch, stored);
        }
    }

    /// Returns whether the cached version is the newest one, according to the dirty-page table. The caller
    /// holds the lock of the page's partition.
    pub(in crate::flash) fn is_newest(&self, kept: &Kept) -> bool {
        self.around.ledger.is_held_by(kept.page, kept.lsn)
    }
}
