//! Keeping records at once, beside lazy verification: as a table on flash that is always right (memory-mapped, Do 2012, section 4.3.1),
//! or as notes in the log (log-based, section 4.3.2).
//!
//! A note in the log says which version of which page came to a frame; checkpoints note the whole table when the redo position would pass
//! the notes that there are. Payload, repeated: varint frame, varint page id, varint page LSN.
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
use super::store::Whose;
use super::table::{FrameNo, Kept, Partition};
use crate::error::{PagerError, Result};
use crate::ids::PageId;
use crate::log::Record as LogRecord;
use crate::log::record::{put_varint, take_varint};
use crate::lsn::Lsn;
use crate::recovery::Observe;

/// Kind of the note (kinds below 16 are the pager's).
const NOTE_FLASH: u8 = 5;
/// Frames of a note (section 4.3.2).
const NOTE_FRAMES_MAX: usize = 64;
/// Bytes of one in a note, about.
const NOTED_FRAME_BYTES: u64 = 16;
/// Of the log, the largest part that a note of the whole table may take.
const TABLE_SHARE: u64 = 4;

/// What is kept at once.
#[derive(Default)]
pub(super) struct Keeping {
    /// The records on flash, by block.
    mirror: RwLock<Vec<Mutex<AlignedBuf>>>,
    is_void: AtomicBool,
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
        self.keeping.is_void.store(true, Relaxed);
        let void = Whose { mark: 0, ..self.hardening.whose() };
        if self.store.sign(&void).is_err() {
            let what = format!("the records of the flash cache can't be kept, nor be voided: {cause}");
            self.log.stop(&PagerError::Stopped { cause: what.into() });
        }
    }

    /// Whether there is room in the log for them.
    fn note_frames(&self, frames: &[(u32, Kept)]) -> bool {
        if frames.is_empty() {
            return true;
        }
        let mut payload = Vec::with_capacity(frames.len() * NOTED_FRAME_BYTES as usize);
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
}

/// Whether a log of this length has room for the notes of so many frames.
pub(crate) fn log_takes_table(log_bytes: u64, frames: u32) -> bool {
    u64::from(frames) * NOTED_FRAME_BYTES * TABLE_SHARE <= log_bytes
}

fn block_of(stored: u32) -> u32 {
    stored / RECORDS_OF_BLOCK as u32
}

/// Frames as the log notes them.
#[derive(Default)]
pub(crate) struct Noted {
    frames: HashMap<u32, Record>,
    by_page: HashMap<PageId, u32>,
    changed: HashMap<PageId, Lsn>,
}

impl Noted {
    /// All of them.
    pub(super) fn records(&self) -> impl Iterator<Item = (u32, Record)> + '_ {
        self.frames.iter().map(|(stored, record)| (*stored, *record))
    }

    fn forget(&mut self, page: PageId) {
        let frame = self.by_page.remove(&page);
        frame.and_then(|frame| self.frames.remove(&frame));
    }

    fn note(&mut self, lsn: Lsn, mut payload: &[u8]) -> Option<()> {
        while !payload.is_empty() {
            let stored = u32::try_from(take_varint(&mut payload)?).ok()?;
            let page = PageId::from_u64(take_varint(&mut payload)?)?;
            let page_lsn = Lsn::new(take_varint(&mut payload)?);
            if self.changed.get(&page).is_some_and(|changed| *changed > page_lsn) {
                continue;
            }
            self.forget(page);
            let at = lsn.get();
            let record =
                Record { page, lsn: page_lsn, before: lsn, last: at, last_but_one: at, admitted: at };
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
