//! The file of the flash cache, `flash.varve`.
//!
//! The file is little endian. It has a header of 4096 bytes, then the records of the slots
//! (`flash/restart/record.rs`) in blocks of 4096 bytes, then the slots with one page each.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | magic "VARVEFLC" |
//! | 8 | 4 | format version, 2 |
//! | 12 | 4 | page size in bytes |
//! | 16 | 8 | database id |
//! | 24 | 4 | number of slots |
//! | 28 | 1 | how records are kept: 0 none, 1 lazy-verification, 2 memory-mapped, 3 in the log |
//! | 29 | 3 | zeros |
//! | 32 | 8 | epoch: records with another epoch are ignored |
//! | 40 | 8 | mark: number of the start that uses the file or used it last (control file); zero: unusable |
//! | 48 | 8 | seal (`flash/restart/seal.rs`): the control file has the same; zero: none |
//! | 56 | 4 | sum over the records when it was sealed (`flash/restart/record.rs`) |
//! | 60 | 8 | announced number: a start that found the file sound and is about to use it; zero: none |
//! | 68 | 4024 | zeros |
//! | 4092 | 4 | crc32c over bytes 0..4092 |
//!
//! Invariants
//! 1. The content of a slot is used only if a record describes it, and the content fits the record.
//! 2. A file is overwritten only if it is empty, or begins with the magic or with a block of zeros. A file is
//!    removed only if it was just made, or its header names this database.
//! 3. A file that is started from empty gets another epoch.
//! 4. Each start has a number, which is in the control file. The file is as the last start left it if the
//!    header has that start's number as its mark, or as the announced number. A start proceeds in this order:
//!    the header announces the new number; the control file gets it; the header gets it as the mark; then
//!    slots and records change. A start that can't write the mark stores another number in the control file
//!    (decision 0282).
//!
//! This module does not know which page is in which slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use varve_device::{AlignedBuf, BlockFile, Directory, Durability, OpenHow, Purpose, ReadOp, Space, WriteOp};

use crate::base::error::{PagerError, Result};
use crate::control::random_id;
use crate::flash::policy::daily_writes::Budget;
use crate::flash::restart::record::{RECORDS_OF_BLOCK, TABLE_BLOCK_BYTES};
use crate::log::format::{get_u32, get_u64, put_u32, put_u64};

/// Name of the file.
pub const FLASH_FILE: &str = "flash.varve";
/// Bytes before the records.
const HEADER_BYTES: u64 = 4096;

const MAGIC: &[u8; 8] = b"VARVEFLC";
const VERSION: u32 = 2;
const CHECKSUM_AT: usize = HEADER_BYTES as usize - 4;

/// Returns the number of pages that fit into a file of this length.
pub(crate) fn slots_of(size_bytes: u64, page_size: usize) -> u32 {
    let room = size_bytes.saturating_sub(HEADER_BYTES);
    let block = TABLE_BLOCK_BYTES as u64;
    let of_block = RECORDS_OF_BLOCK as u64 * page_size as u64;
    let whole = room / (block + of_block);
    let rest = (room - whole * (block + of_block)).saturating_sub(block) / page_size as u64;
    u32::try_from(whole * RECORDS_OF_BLOCK as u64 + rest).unwrap_or(u32::MAX)
}

/// Returns the number of blocks that the records of `slots` slots take.
fn table_blocks(slots: u32) -> u32 {
    slots.div_ceil(RECORDS_OF_BLOCK as u32)
}

/// The contents of the header: the database and the shape of the file, and values that distinguish its
/// records from older ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::flash) struct Whose {
    pub(in crate::flash) database: u64,
    pub(in crate::flash) page_size: usize,
    pub(in crate::flash) slots: u32,
    /// How records are kept (code of the restart scheme).
    pub(in crate::flash) how: u8,
    pub(in crate::flash) epoch: u64,
    pub(in crate::flash) marks: Marks,
    pub(in crate::flash) seal: Seal,
}

/// Numbers of the starts (see the control file) to which a file belongs. Zero means none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::flash) struct Marks {
    /// The start that uses the file, or used it last.
    pub(in crate::flash) mark: u64,
    /// A later start that found the file as `mark` left it, and was about to use it.
    pub(in crate::flash) announced: u64,
}

impl Marks {
    pub(in crate::flash) fn of(mark: u64) -> Marks {
        Marks { mark, announced: 0 }
    }

    /// Returns whether the file is as the start with this number left it.
    pub(in crate::flash) fn are_of(self, start: u64) -> bool {
        start != 0 && [self.mark, self.announced].contains(&start)
    }
}

/// The seal that a shutdown has written for the slot records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::flash) struct Seal {
    /// A random number; zero means that there is no seal.
    pub(in crate::flash) number: u64,
    /// Checksum over all blocks of records.
    pub(in crate::flash) sum: u32,
}

impl Whose {
    fn encode(&self) -> AlignedBuf {
        let mut header = AlignedBuf::new(HEADER_BYTES as usize);
        header.fill(0);
        header[..8].copy_from_slice(MAGIC);
        put_u32(&mut header, 8, VERSION);
        put_u32(&mut header, 12, self.page_size as u32);
        put_u64(&mut header, 16, self.database);
        put_u32(&mut header, 24, self.slots);
        header[28] = self.how;
        put_u64(&mut header, 32, self.epoch);
        put_u64(&mut header, 40, self.marks.mark);
        put_u64(&mut header, 48, self.seal.number);
        put_u32(&mut header, 56, self.seal.sum);
        put_u64(&mut header, 60, self.marks.announced);
        let crc = crc32c::crc32c(&header[..CHECKSUM_AT]);
        put_u32(&mut header, CHECKSUM_AT, crc);
        header
    }

    fn has_shape_of(&self, other: &Whose) -> bool {
        (self.page_size, self.slots) == (other.page_size, other.slots)
    }

    /// Decodes the header. `None` means that it is torn, or of another version.
    fn decode(header: &[u8]) -> Option<Whose> {
        let is_whole = crc32c::crc32c(&header[..CHECKSUM_AT]) == get_u32(header, CHECKSUM_AT);
        let is_known = header[..8] == MAGIC[..] && get_u32(header, 8) == VERSION;
        (is_whole && is_known).then(|| Whose {
            database: get_u64(header, 16),
            page_size: get_u32(header, 12) as usize,
            slots: get_u32(header, 24),
            how: header[28],
            epoch: get_u64(header, 32),
            marks: Marks { mark: get_u64(header, 40), announced: get_u64(header, 60) },
            seal: Seal { number: get_u64(header, 48), sum: get_u32(header, 56) },
        })
    }
}

/// The open file: records and slots.
pub(in crate::flash) struct Store {
    file: Arc<dyn BlockFile>,
    page_size: usize,
    slots: AtomicU32,
    /// The daily limit. Every write takes its bytes from it.
    pub(in crate::flash) budget: Budget,
}

/// The reason why the pages in a file can't be used, so that the cache begins empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::flash) enum Cold {
    Missing,
    Emptied,
    /// The header of the file is torn, or of another version.
    Unknown,
    OtherDatabase,
    /// The length of the file, or the page size, has changed.
    Resized,
    /// The records belong to another restart scheme.
    OtherRecords,
    /// The file has no valid records, because no start keeps them any more, or none has kept them yet.
    Void,
    /// The file is an older copy, or a start since then did not use it.
    Older,
    /// The records refer to a log that this database does not have.
    OtherHistory,
    /// The records differed when they were read twice.
    Unsteady,
    Unreadable,
}

impl Cold {
    /// Returns the reason in words. The file is the subject of the sentence.
    pub(in crate::flash) fn told(self) -> &'static str {
        match self {
            Cold::Missing => "is missing",
            Cold::Emptied => "was emptied",
            Cold::Unknown => "is damaged, or of another version",
            Cold::OtherDatabase => "is of another database",
            Cold::Resized => "is not as long as it is configured to be",
            Cold::OtherRecords => "was kept under another setting of restart",
            Cold::Void => "has no records that are of use",
            Cold::Older => "is not that of the last start",
            Cold::OtherHistory => "is of another history of the database",
            Cold::Unsteady => "has other records than a moment ago",
            Cold::Unreadable => "can't be read",
        }
    }
}

/// Removes the file of this database's cache from a directory. A file that can't be read or removed stays.
/// Code that opens it later reports the reason. (Meanwhile the file may have become another database's.)
pub(crate) fn remove_of(directory: &dyn Directory, database: u64) {
    if let Ok(Some(_)) = Store::of_database(directory, database) {
        let _ = directory.remove(FLASH_FILE).and_then(|()| directory.sync());
    }
}

/// The result of opening the file.
pub(in crate::flash) struct OpenStore {
    pub(in crate::flash) store: Store,
    /// The header from now on. It has the old epoch until a new epoch begins.
    pub(in crate::flash) whose: Whose,
    /// The marks that the file had, or the reason why its pages can't be used.
    pub(in crate::flash) earlier: std::result::Result<Marks, Cold>,
    /// The seal that the file had.
    pub(in crate::flash) seal: Seal,
}

impl Store {
    /// Makes the file as long as `slots` slots need. If the old file is of another database, another size,
    /// or has records of another kind, it begins empty, without a mark.
    pub(in crate::flash) fn open(
        directory: &dyn Directory,
        whose: Whose,
        budget: Budget,
    ) -> Result<OpenStore> {
        let is_new = !directory.exists(FLASH_FILE)?;
        let file = directory.open(FLASH_FILE, OpenHow::or_create(Space::Flash))?;
        let mut header = AlignedBuf::new(HEADER_BYTES as usize);
        let bytes = if is_new { 0 } else { file.len_bytes()? };
        // The length of a file that was just made may outlive its header.
        if bytes > 0 && (bytes < HEADER_BYTES || !may_be_written(&*file, &mut header)?) {
            let what = format!(
                "{}/{FLASH_FILE} is no flash cache, or a damaged one, and is left as it is: move it away, or give the cache another device",
                directory.location()
            );
            return Err(PagerError::Incompatible { what });
        }
        let store = Store { file, page_size: whose.page_size, slots: whose.slots.into(), budget };
        let cold = match Whose::decode(&header) {
            _ if is_new => Cold::Missing,
            None if header.iter().all(|byte| *byte == 0) => Cold::Emptied,
            None => Cold::Unknown,
            Some(found) if found.database != whose.database => Cold::OtherDatabase,
            Some(found) if !found.has_shape_of(&whose) || bytes != store.len_bytes() => Cold::Resized,
            Some(found) if found.how != whose.how => Cold::OtherRecords,
            Some(found) => {
                let Whose { marks, seal, .. } = found;
                let earlier = if marks.mark == 0 { Err(Cold::Void) } else { Ok(marks) };
                let whose = Whose { marks: Marks::default(), seal: Seal::default(), ..found };
                return Ok(OpenStore { store, whose, earlier, seal });
            }
        };
        let whose = Whose { marks: Marks::default(), epoch: random_id(), ..whose };
        let made =
            store.file.set_len(store.len_bytes()).map_err(PagerError::from).and_then(|()| store.sign(&whose));
        match made {
            Err(error) if is_new => {
                // An unfinished file would occupy space that others may need. If the device refuses to remove
                // it, it stays.
                let _ = directory.remove(FLASH_FILE);
                Err(error)
            }
            made => made.map(|()| OpenStore { store, whose, earlier: Err(cold), seal: Seal::default() }),
        }
    }

    /// Returns the header of this database's file in a directory. `None` means that no file there names this
    /// database.
    fn of_database(directory: &dyn Directory, database: u64) -> Result<Option<Whose>> {
        if !directory.exists(FLASH_FILE)? {
            return Ok(None);
        }
        let file = directory.open(FLASH_FILE, OpenHow::existing(Space::Flash))?;
        let mut header = AlignedBuf::new(HEADER_BYTES as usize);
        if file.len_bytes()? < HEADER_BYTES {
            return Ok(None);
        }
        file.read_at(0, &mut header, Purpose::FlashMeta)?;
        Ok(Whose::decode(&header).filter(|found| found.database == database))
    }

    /// Returns the seal of this database's file in a directory. `None` means that there is no such file, or
    /// no seal in it.
    pub(in crate::flash) fn seal_in(directory: &dyn Directory, database: u64) -> Result<Option<Seal>> {
        let found = Store::of_database(directory, database)?;
        Ok(found.map(|found| found.seal).filter(|seal| seal.number != 0))
    }

    fn len_bytes(&self) -> u64 {
        Store::length_of(self.slots.load(Relaxed), self.page_size)
    }

    fn length_of(slots: u32, page_size: usize) -> u64 {
        Store::block_offset(table_blocks(slots)) + u64::from(slots) * page_size as u64
    }

    /// Sets the length of the file to what `slots` slots need. The slots keep their offsets.
    pub(in crate::flash) fn set_length(&self, slots: u32) -> Result<()> {
        Ok(self.file.set_len(Store::length_of(slots, self.page_size))?)
    }

    /// Changes the number of slots to `slots`. Their offsets in the file change with it.
    pub(in crate::flash) fn reshape(&self, slots: u32) {
        self.slots.store(slots, Relaxed);
    }

    /// Writes the header durably.
    pub(in crate::flash) fn sign(&self, whose: &Whose) -> Result<()> {
        Ok(self.file.write_at(0, &whose.encode(), Purpose::FlashMeta, Durability::Now)?)
    }

    /// Makes all earlier writes durable.
    pub(in crate::flash) fn flush(&self) -> Result<()> {
        Ok(self.file.flush()?)
    }

    fn block_offset(block: u32) -> u64 {
        HEADER_BYTES + u64::from(block) * TABLE_BLOCK_BYTES as u64
    }

    /// Writes blocks of records, beginning at `block`.
    pub(in crate::flash) fn write_records(
        &self,
        block: u32,
        bytes: &AlignedBuf,
        durability: Durability,
    ) -> Result<()> {
        self.budget.spend(bytes.len() as u64);
        Ok(self.file.write_at(Store::block_offset(block), bytes, Purpose::FlashMeta, durability)?)
    }

    /// Reads blocks of records, beginning at `block`.
    pub(in crate::flash) fn read_records(&self, block: u32, bytes: &mut AlignedBuf) -> Result<()> {
        Ok(self.file.read_at(Store::block_offset(block), bytes, Purpose::FlashMeta)?)
    }

    /// Returns the number of blocks of records.
    pub(in crate::flash) fn table_blocks(&self) -> u32 {
        table_blocks(self.slots.load(Relaxed))
    }

    /// Returns the page size in bytes.
    pub(in crate::flash) fn page_size(&self) -> usize {
        self.page_size
    }

    /// Returns a buffer for one page.
    pub(in crate::flash) fn buffer(&self) -> AlignedBuf {
        AlignedBuf::new(self.page_size)
    }

    fn offset(&self, slot: u32) -> u64 {
        Store::block_offset(self.table_blocks()) + u64::from(slot) * self.page_size as u64
    }

    /// Reads several slots in one batch.
    pub(in crate::flash) fn read<'f>(&self, slots: impl Iterator<Item = (u32, &'f mut [u8])>) -> Result<()> {
        let why = Purpose::FlashPage;
        let mut ops: Vec<ReadOp<'_>> =
            slots.map(|(slot, buf)| ReadOp { offset: self.offset(slot), buf, why }).collect();
        Ok(self.file.read_batch(&mut ops)?)
    }

    /// Reads one slot.
    pub(in crate::flash) fn read_one(&self, slot: u32, buf: &mut [u8]) -> Result<()> {
        Ok(self.file.read_at(self.offset(slot), buf, Purpose::FlashPage)?)
    }

    /// Writes several slots in one batch. The writes are not durable, because no start trusts slots after a
    /// crash.
    pub(in crate::flash) fn write<'f>(&self, slots: impl Iterator<Item = (u32, &'f [u8])>) -> Result<()> {
        let (why, durability) = (Purpose::FlashPage, Durability::Later);
        let ops: Vec<WriteOp<'_>> =
            slots.map(|(slot, buf)| WriteOp { offset: self.offset(slot), buf, why, durability }).collect();
        self.budget.spend(ops.iter().map(|op| op.buf.len() as u64).sum());
        Ok(self.file.write_batch(&ops)?)
    }
}

fn may_be_written(file: &dyn BlockFile, header: &mut AlignedBuf) -> Result<bool> {
    file.read_at(0, header, Purpose::FlashMeta)?;
    Ok(&header[..8] == MAGIC || header.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whose() -> Whose {
        let marks = Marks { mark: 0x1122_3344_5566_7788, announced: 0x99AA_BBCC_DDEE_FF01 };
        let seal = Seal { number: 0x0102_0304_0506_0708, sum: 0x0A0B_0C0D };
        Whose { database: 7, page_size: 8192, slots: 1000, how: 1, epoch: 9, marks, seal }
    }

    /// Where the table above has it.
    #[test]
    fn a_header_says_what_it_was_given() {
        let header = whose().encode();
        assert_eq!(Whose::decode(&header), Some(whose()));
        assert_eq!(get_u64(&header, 40), whose().marks.mark);
        assert_eq!((get_u64(&header, 48), get_u32(&header, 56)), (whose().seal.number, whose().seal.sum));
        assert_eq!(get_u64(&header, 60), whose().marks.announced);
        assert!(header[68..CHECKSUM_AT].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_damaged_header_says_nothing() {
        let mut header = whose().encode();
        for at in 0..header.len() {
            header[at] ^= 1 << (at % 8);
            assert_eq!(Whose::decode(&header), None, "byte {at}");
            header[at] ^= 1 << (at % 8);
        }
    }

    /// No start has the number zero. A header without an announcement has zero in this field.
    #[test]
    fn a_file_is_of_the_start_that_has_it_or_announced_itself() {
        let marks = Marks { mark: 3, announced: 4 };
        assert!(marks.are_of(3) && marks.are_of(4) && !marks.are_of(5));
        assert!(!Marks::of(3).are_of(0) && !Marks::default().are_of(0));
    }
}
