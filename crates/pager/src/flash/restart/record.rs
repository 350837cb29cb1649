//! The record of a slot of the flash cache, as it is stored on flash. A start needs it to use the page in the
//! slot (Do 2012, section 4.3.3).
//!
//! A record has 64 bytes, little endian. A block of 4096 bytes has the records of 64 neighbouring slots.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | page id |
//! | 8 | 8 | page LSN |
//! | 16 | 8 | `before`: the log was durable up to here before a thread looked at the slot |
//! | 24 | 8 | time of the last access |
//! | 32 | 8 | time of the last but one access |
//! | 40 | 8 | when the page was admitted |
//! | 48 | 1 | 1: the data files lacked the page when this was written; valid only under a seal (`seal.rs`) |
//! | 49 | 11 | zeros |
//! | 60 | 4 | crc32c over epoch, number of the slot, bytes 0..60 |
//!
//! Invariants
//! 1. A record stays true when the page changes later. It says that the slot had the newest version of
//!    the page as of the LSN `before`. All later changes of the page are in the log from `before` on.
//! 2. A record is ignored if it is torn, at the wrong place, or of another epoch.
//!
//! This module does not know when records are written, or which records a start uses.

use crate::base::ids::PageId;
use crate::base::lsn::Lsn;
use crate::flash::table::Kept;
use crate::log::format::{get_u32, get_u64, put_u32, put_u64};

/// Bytes of a record.
const RECORD_BYTES: usize = 64;
/// Bytes of a block.
pub(in crate::flash) const TABLE_BLOCK_BYTES: usize = 4096;
/// Records in a block.
pub(in crate::flash) const RECORDS_OF_BLOCK: usize = TABLE_BLOCK_BYTES / RECORD_BYTES;
const DIRTY_AT: usize = 48;
const CHECKSUM_AT: usize = RECORD_BYTES - 4;

/// The contents of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::flash) struct Record {
    pub(in crate::flash) page: PageId,
    pub(in crate::flash) lsn: Lsn,
    pub(in crate::flash) before: Lsn,
    pub(in crate::flash) last: u64,
    pub(in crate::flash) last_but_one: u64,
    pub(in crate::flash) admitted: u64,
    pub(in crate::flash) is_dirty: bool,
}

fn checksum(bytes: &[u8], epoch: u64, slot: u32) -> u32 {
    let seed = crc32c::crc32c_append(crc32c::crc32c(&epoch.to_le_bytes()), &slot.to_le_bytes());
    crc32c::crc32c_append(seed, &bytes[..CHECKSUM_AT])
}

fn place(slot: u32) -> std::ops::Range<usize> {
    let at = slot as usize % RECORDS_OF_BLOCK * RECORD_BYTES;
    at..at + RECORD_BYTES
}

/// Returns a sum over blocks of records, which continues the sum over earlier blocks. The sum has the
/// checksum of each record before the record's bytes. The reason is that the CRC over bytes followed by their
/// own CRC does not depend on the bytes.
pub(in crate::flash) fn sum_of(sum: u32, blocks: &[u8]) -> u32 {
    let parts = blocks.chunks_exact(RECORD_BYTES).map(|record| record.split_at(CHECKSUM_AT));
    parts.fold(sum, |sum, (fields, checksum)| {
        crc32c::crc32c_append(crc32c::crc32c_append(sum, checksum), fields)
    })
}

impl Record {
    /// Makes the record of a slot, with the log position `before`.
    pub(in crate::flash) fn of(kept: Kept, before: Lsn) -> Record {
        let Kept { page, lsn, last, last_but_one, admitted, is_dirty } = kept;
        Record { page, lsn, before, last, last_but_one, admitted, is_dirty }
    }

    /// Puts the record of a slot into its block. `None` means that the slot has nothing that a start could
    /// use.
    pub(in crate::flash) fn put(record: Option<Record>, block: &mut [u8], epoch: u64, slot: u32) {
        let bytes = &mut block[place(slot)];
        bytes.fill(0);
        let Some(record) = record else { return };
        let Record { page, lsn, before, last, last_but_one, admitted, is_dirty } = record;
        let fields = [page.to_u64(), lsn.get(), before.get(), last, last_but_one, admitted];
        fields.iter().enumerate().for_each(|(at, field)| put_u64(bytes, 8 * at, *field));
        bytes[DIRTY_AT] = u8::from(is_dirty);
        let crc = checksum(bytes, epoch, slot);
        put_u32(bytes, CHECKSUM_AT, crc);
    }

    /// Returns the record of a slot in its block.
    pub(in crate::flash) fn get(block: &[u8], epoch: u64, slot: u32) -> Option<Record> {
        let bytes = &block[place(slot)];
        if checksum(bytes, epoch, slot) != get_u32(bytes, CHECKSUM_AT) {
            return None;
        }
        let field = |at: usize| get_u64(bytes, 8 * at);
        Some(Record {
            page: PageId::from_u64(field(0))?,
            lsn: Lsn::new(field(1)),
            before: Lsn::new(field(2)),
            last: field(3),
            last_but_one: field(4),
            admitted: field(5),
            is_dirty: bytes[DIRTY_AT] == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{PageNo, SpaceId};

    #[test]
    fn a_record_that_is_not_as_it_was_written_is_none() {
        let record = Record {
            page: PageId::new(SpaceId::ROLLBACK, PageNo(77)),
            lsn: Lsn::new(1 << 40),
            before: Lsn::new(3),
            last: 4,
            last_but_one: 5,
            admitted: u64::MAX,
            is_dirty: true,
        };
        let mut block = vec![0xEE; TABLE_BLOCK_BYTES];
        Record::put(Some(record), &mut block, 9, 65);
        assert_eq!(Record::get(&block, 9, 65), Some(record));
        assert_eq!((Record::get(&block, 8, 65), Record::get(&block, 9, 129)), (None, None));
        for bit in 0..RECORD_BYTES * 8 {
            let mut damaged = block.clone();
            damaged[RECORD_BYTES + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::get(&damaged, 9, 65), None, "bit {bit}");
        }
        // The sum over all records changes if any record changes.
        let sum = sum_of(7, &block);
        for bit in 0..block.len() * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(sum_of(7, &damaged), sum, "bit {bit}");
        }
        Record::put(Some(Record { lsn: Lsn::new(77), ..record }), &mut block, 9, 65);
        assert_ne!(sum_of(7, &block), sum);
        Record::put(None, &mut block, 9, 65);
        assert_eq!(Record::get(&block, 9, 65), None);
        assert_eq!(Record::get(&[0; TABLE_BLOCK_BYTES], 0, 0), None, "zeros are no record");
    }
}
