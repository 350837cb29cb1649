//! The log record of pages that were written to slots of the flash cache, for log-based restart.
//!
//! | at | size | field of a note's payload |
//! |---:|---:|---|
//! | 0 | 8 | epoch of the file, little endian |
//! | 8 | .. | to the end: varint slot, varint page id, varint page LSN |
//!
//! Older log records, of kind 5, have no epoch, and are ignored.
//!
//! This module does not know which code writes and reads the record.

/// Kind of the note record.
pub(in crate::flash) const NOTE_FLASH: u8 = 6;

pub(in crate::flash) const EPOCH_BYTES: usize = 8;

/// The largest number of slots in one note record (section 4.3.2).
pub(in crate::flash) const NOTE_SLOTS_MAX: usize = 64;

/// The largest number of bytes that a slot takes in a note record, if the log is shorter than 2^49 bytes.
pub(in crate::flash) const NOTED_SLOT_BYTES: u64 = 18;

/// The notes of the whole table may take at most one part in this number of the log.
pub(in crate::flash) const TABLE_SHARE: u64 = 4;

/// Returns whether a log of `log_bytes` bytes has room for the notes of `slots` slots.
pub(crate) fn log_takes_table(log_bytes: u64, slots: u32) -> bool {
    u64::from(slots) * NOTED_SLOT_BYTES * TABLE_SHARE <= log_bytes
}
