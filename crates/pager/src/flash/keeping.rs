//! Keeping records at once, beside lazy verification: as a table on flash that is always right (memory-mapped, Do 2012, section 4.3.1),
//! or as notes in the log (log-based, section 4.3.2).
//!
//! A note in the log says which version of which page came to a frame; checkpoints note the whole table when the redo position would pass
//! the notes that there are.
//!
//! | at | size | field of a note's payload |
//! |---:|---:|---|
//! | 0 | 8 | epoch of the file, little endian |
//! | 8 | .. | to the end: varint frame, varint page id, varint page LSN |
//!
//! (Notes of kind 5 had no epoch; nothing is made of them.)
//!
//! Invariants
//! 1. Whatever changes what a start is to know of a frame does so under the lock of its partition, and the record is kept before that is
//!    let go: a record on flash is durable before the page can change above, or the frame be filled anew.
//! 2. A record that could not be kept voids all of them; if that can't be told either, the database stops.
//! 3. A note is a statement about the log up to its own place (`record.rs`): changes of the page behind it are in the log, and a start
//!    comes by them. So nobody notes that a frame is given up.
//! 4. The log from the last note of the whole table on stays, as far as it is up to those who keep records.
//!
//! Not known here: what changes frames; what a start makes of the records.

use std::sync::atomic::Ordering::Relaxed;

use varve_device::{Durability, reached};

use super::cache::{FlashCache, add};
use super::config::FlashRestart;
use super::notes::{EPOCH_BYTES, NOTE_FLASH, NOTE_FRAMES_MAX, NOTED_FRAME_BYTES};
use super::record::{RECORDS_OF_BLOCK, Record};
use super::store::{Marks, Whose};
use super::table::{FrameNo, Kept, Partition};
use crate::base::error::PagerError;
use crate::base::lsn::Lsn;
use crate::log::record::put_varint;

impl FlashCache {
    /// From now on what changes is kept.
    pub(super) fn begin_keeping(&self) {
        if !matches!(self.restart(), FlashRestart::MemoryMapped | FlashRestart::LogBased) {
            return;
        }
        self.tables().for_each(|mut table| table.tell_touched());
        if self.restart() == FlashRestart::MemoryMapped {
            self.keep_all();
        }
    }

    /// Records of these frames, under the lock of their partition.
    pub(super) fn keep_records(&self, partition: usize, table: &Partition, touched: &[FrameNo]) {
        if self.keeping.is_void.load(Relaxed) || !self.hardening.is_on() {
            return;
        }
        let mut frames: Vec<u32> = touched.iter().map(|frame| self.stored(partition, *frame)).collect();
        frames.sort_unstable();
        frames.dedup();
        let kept = |stored: u32| {
            table.kept(stored % self.shape.partition_frames()).filter(|kept| self.is_newest(kept))
        };
        match self.restart() {
            FlashRestart::LogBased => {
                let frames = frames.into_iter().filter_map(|stored| Some((stored, kept(stored)?)));
                self.note_frames(&frames.collect::<Vec<_>>());
            }
            _ => {
                for of_block in frames.chunk_by(|one, other| block_of(*one) == block_of(*other)) {
                    let records: Vec<_> = of_block.iter().map(|stored| (*stored, kept(*stored))).collect();
                    self.keep_on_flash(&records, Durability::Now);
                }
            }
        }
    }

    /// All records of one block.
    fn keep_on_flash(&self, records: &[(u32, Option<Kept>)], durability: Durability) {
        let Some((first, _)) = records.first() else { return };
        let (block, epoch) = (block_of(*first), self.hardening.whose().epoch);
        let mirror = self.keeping.mirror.read();
        let mut bytes = mirror[block as usize].lock();
        for (stored, kept) in records {
            // It is right as long as it is there.
            let record = kept.map(|kept| Record::of(kept, Lsn::ZERO));
            Record::put(record, &mut bytes, epoch, *stored);
        }
        add(&self.counters.hardened);
        if let Err(cause) = self.store.write_records(block, &bytes, durability) {
            drop(bytes);
            self.void_records(&cause);
        }
    }

    fn keep_all(&self) {
        for (partition, table) in self.tables().enumerate() {
            let each =
                (0..table.frame_count()).map(|frame| (self.stored(partition, frame), table.kept(frame)));
            let all: Vec<(u32, Option<Kept>)> = each.collect();
            let of_blocks = all.chunk_by(|(one, _), (other, _)| block_of(*one) == block_of(*other));
            of_blocks.for_each(|records| self.keep_on_flash(records, Durability::Later));
        }
        if let Err(cause) = self.store.flush() {
            self.void_records(&cause);
        }
    }

    /// A record on flash may be wrong. Under the lock of a partition.
    #[cold]
    fn void_records(&self, cause: &PagerError) {
        reached("flash: records are void");
        add(&self.counters.errors);
        // Until they are, whoever changes something keeps its record, or comes here.
        let _one_at_a_time = self.keeping.voiding.lock();
        if self.keeping.is_void.load(Relaxed) {
            return;
        }
        let void = Whose { marks: Marks::default(), ..self.hardening.whose() };
        match self.store.sign(&void) {
            Ok(()) => self.keeping.is_void.store(true, Relaxed),
            Err(_) => {
                let what = format!("the records of the flash cache can't be kept, nor be voided: {cause}");
                self.log.stop(&PagerError::Stopped { cause: what.into() });
            }
        }
    }

    /// Whether there is room in the log for them.
    fn note_frames(&self, frames: &[(u32, Kept)]) -> bool {
        if frames.is_empty() {
            return true;
        }
        let mut payload = Vec::with_capacity(EPOCH_BYTES + frames.len() * NOTED_FRAME_BYTES as usize);
        payload.extend(self.hardening.whose().epoch.to_le_bytes());
        for (stored, Kept { page, lsn, .. }) in frames {
            let fields = [u64::from(*stored), page.to_u64(), lsn.get()];
            fields.into_iter().for_each(|field| put_varint(&mut payload, field));
        }
        add(&self.counters.hardened);
        self.log.note(NOTE_FLASH, &payload)
    }

    /// Before the redo position is looked for, which would be `from` now (`None`: behind everything) while the log's open block begins at
    /// `block` and it ends at `end`: up to where it may go for a start to know the frames. `None`: anywhere.
    pub(crate) fn keep_in_log(
        &self,
        from: Option<Lsn>,
        block: impl Fn() -> Lsn,
        end: impl Fn() -> Lsn,
    ) -> Option<Lsn> {
        if self.restart() != FlashRestart::LogBased || !self.hardening.is_on() || !self.is_on() {
            return None;
        }
        let mut noted = self.keeping.noted.lock();
        if let Some((begin, then)) = *noted
            && (from.is_some_and(|from| from <= begin) || then == end())
        {
            return Some(begin);
        }
        if !self.log.make_room_for(&self.notes_of_table()) {
            reached("flash: no room in the log for the table");
            *noted = None;
            return None;
        }
        let begin = block();
        let all = self.tables().enumerate().all(|(partition, table)| {
            let each = (0..table.frame_count()).filter_map(|frame| {
                Some((self.stored(partition, frame), table.kept(frame).filter(|kept| self.is_newest(kept))?))
            });
            let frames: Vec<(u32, Kept)> = each.collect();
            frames.chunks(NOTE_FRAMES_MAX).all(|some| self.note_frames(some))
        });
        if !all {
            reached("flash: no room in the log for the table");
            *noted = None;
            return None;
        }
        add(&self.counters.hardened_passes);
        *noted = Some((begin, end()));
        Some(begin)
    }

    /// Bytes of the notes of the whole table, at most.
    fn notes_of_table(&self) -> Vec<usize> {
        let bytes = |frames: usize| EPOCH_BYTES + frames * NOTED_FRAME_BYTES as usize;
        let of_partition = |kept: u64| {
            let kept = kept as usize;
            let whole = std::iter::repeat_n(bytes(NOTE_FRAMES_MAX), kept / NOTE_FRAMES_MAX);
            whole.chain(Some(kept % NOTE_FRAMES_MAX).filter(|rest| *rest > 0).map(bytes))
        };
        self.tables().map(|table| table.counts()).flat_map(|of| of_partition(of.clean + of.dirty)).collect()
    }
}

fn block_of(stored: u32) -> u32 {
    stored / RECORDS_OF_BLOCK as u32
}
