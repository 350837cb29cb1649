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

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};
use varve_device::{AlignedBuf, Durability, reached};

use super::cache::{FlashCache, add};
use super::record::{RECORDS_OF_BLOCK, Record, TABLE_BLOCK_BYTES};
use super::restart::FlashRestart;
use super::store::{Marks, Whose};
use super::table::{FrameNo, Kept, Partition};
use crate::base::error::{PagerError, Result};
use crate::base::ids::PageId;
use crate::base::lsn::Lsn;
use crate::log::Record as LogRecord;
use crate::log::record::{put_varint, take_varint};
use crate::recovery::Observe;

/// Kind of the note (kinds below 16 are the pager's).
const NOTE_FLASH: u8 = 6;
const EPOCH_BYTES: usize = 8;
/// Frames of a note (section 4.3.2).
const NOTE_FRAMES_MAX: usize = 64;
/// Bytes of one in a note, at most, but in a log of more than 2^49 bytes.
const NOTED_FRAME_BYTES: u64 = 18;
/// Of the log, the largest part that a note of the whole table may take.
const TABLE_SHARE: u64 = 4;

/// What is kept at once.
#[derive(Default)]
pub(super) struct Keeping {
    /// The records on flash, by block.
    mirror: RwLock<Vec<Mutex<AlignedBuf>>>,
    /// The file says that nothing can be gone on with.
    is_void: AtomicBool,
    /// Held by who makes it say so.
    voiding: Mutex<()>,
    /// Where the last notes of the whole table begin, and where the log ended behind them.
    pub(super) noted: Mutex<Option<(Lsn, Lsn)>>,
}

impl Keeping {
    pub(super) fn new(restart: FlashRestart, blocks: u32) -> Keeping {
        let keeping = Keeping::default();
        keeping.reshape(restart, blocks);
        keeping
    }

    /// There are so many blocks of records, and none has any.
    pub(super) fn reshape(&self, restart: FlashRestart, blocks: u32) {
        let count = if restart == FlashRestart::MemoryMapped { blocks } else { 0 };
        let zeros = || {
            let mut block = AlignedBuf::new(TABLE_BLOCK_BYTES);
            block.fill(0);
            Mutex::new(block)
        };
        *self.mirror.write() = (0..count).map(|_| zeros()).collect();
        self.is_void.store(false, Relaxed);
    }
}

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

/// Whether a log of this length has room for the notes of so many frames.
pub(crate) fn log_takes_table(log_bytes: u64, frames: u32) -> bool {
    u64::from(frames) * NOTED_FRAME_BYTES * TABLE_SHARE <= log_bytes
}

fn block_of(stored: u32) -> u32 {
    stored / RECORDS_OF_BLOCK as u32
}

/// Frames as the log notes them, of the file's last epoch that it knows.
#[derive(Default)]
pub(crate) struct Noted {
    epoch: u64,
    frames: HashMap<u32, Record>,
    by_page: HashMap<PageId, u32>,
    changed: HashMap<PageId, Lsn>,
}

impl Noted {
    /// All of a file of this epoch.
    pub(super) fn records(&self, epoch: u64) -> impl Iterator<Item = (u32, Record)> + '_ {
        let frames = self.frames.iter().filter(move |_| epoch == self.epoch);
        frames.map(|(stored, record)| (*stored, *record))
    }

    fn forget(&mut self, page: PageId) {
        let frame = self.by_page.remove(&page);
        frame.and_then(|frame| self.frames.remove(&frame));
    }

    fn note(&mut self, lsn: Lsn, payload: &[u8]) -> Option<()> {
        let (epoch, mut payload) = payload.split_first_chunk::<EPOCH_BYTES>()?;
        let epoch = u64::from_le_bytes(*epoch);
        if epoch != self.epoch {
            // The file was begun anew.
            self.epoch = epoch;
            self.frames.clear();
            self.by_page.clear();
        }
        while !payload.is_empty() {
            let stored = u32::try_from(take_varint(&mut payload)?).ok()?;
            let page = PageId::from_u64(take_varint(&mut payload)?)?;
            let page_lsn = Lsn::new(take_varint(&mut payload)?);
            if self.changed.get(&page).is_some_and(|changed| *changed > page_lsn) {
                continue;
            }
            self.forget(page);
            let at = lsn.get();
            let record = Record {
                page,
                lsn: page_lsn,
                before: lsn,
                last: at,
                last_but_one: at,
                admitted: at,
                is_dirty: false,
            };
            if let Some(other) = self.frames.insert(stored, record) {
                self.by_page.remove(&other.page);
            }
            self.by_page.insert(page, stored);
        }
        Some(())
    }
}

impl Observe for Noted {
    fn observe(&mut self, lsn: Lsn, record: &LogRecord<'_>) -> Result<()> {
        match *record {
            LogRecord::Change { page, .. } => {
                self.changed.insert(page, lsn);
                if self.by_page.get(&page).is_some_and(|stored| self.frames[stored].lsn < lsn) {
                    self.forget(page);
                }
                Ok(())
            }
            LogRecord::Note { kind: NOTE_FLASH, payload } => {
                self.note(lsn, payload).ok_or_else(|| PagerError::Corrupt {
                    what: format!("the note of frames on flash at LSN {lsn} makes no sense"),
                })
            }
            LogRecord::Note { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{PageNo, SpaceId};

    fn page(no: u32) -> PageId {
        PageId::new(SpaceId::DATA, PageNo(no))
    }

    fn payload(epoch: u64, frames: &[(u32, u32, u64)]) -> Vec<u8> {
        let mut payload = epoch.to_le_bytes().to_vec();
        for (frame, no, lsn) in frames {
            let fields = [u64::from(*frame), page(*no).to_u64(), *lsn];
            fields.into_iter().for_each(|field| put_varint(&mut payload, field));
        }
        payload
    }

    fn found(noted: &Noted, epoch: u64) -> Vec<(u32, PageId)> {
        let mut found: Vec<_> = noted.records(epoch).map(|(stored, record)| (stored, record.page)).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn notes_of_an_earlier_epoch_of_the_file_say_nothing_of_it() {
        let mut noted = Noted::default();
        noted.note(Lsn::new(100), &payload(7, &[(1, 11, 50), (2, 12, 60)])).unwrap();
        assert_eq!(found(&noted, 7), [(1, page(11)), (2, page(12))]);
        assert_eq!(found(&noted, 8), []);
        noted.note(Lsn::new(200), &payload(8, &[(1, 13, 150)])).unwrap();
        assert_eq!((found(&noted, 7), found(&noted, 8)), (vec![], vec![(1, page(13))]));
    }

    #[test]
    fn a_note_that_is_cut_off_makes_no_sense() {
        let whole = payload(7, &[(1, 11, 50)]);
        assert_eq!(&whole[..EPOCH_BYTES], 7_u64.to_le_bytes());
        for bytes in 0..whole.len() {
            let is_whole = Noted::default().note(Lsn::new(100), &whole[..bytes]).is_some();
            assert_eq!(is_whole, bytes == EPOCH_BYTES, "{bytes} bytes");
        }
    }

    /// With numbers as large as they get.
    #[test]
    fn a_frame_takes_no_more_room_in_a_note_than_is_reckoned_with() {
        let mut payload = Vec::new();
        let last = PageId::new(SpaceId::ROLLBACK, PageNo(u32::MAX));
        let fields = [u64::from(u32::MAX), last.to_u64(), (1 << 49) - 1];
        fields.into_iter().for_each(|field| put_varint(&mut payload, field));
        assert!(payload.len() as u64 <= NOTED_FRAME_BYTES, "{} bytes", payload.len());
    }
}
