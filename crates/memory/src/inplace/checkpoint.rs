//! Checkpoints. A checkpoint has all rows in one compressed file, so that the log before it can be removed.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | magic "VINPCHK1"; its last character is the version |
//! | 8 | 8 | number of the log file that is replayed after the checkpoint |
//! | 16 | | blocks |
//!
//! A block has four parts: the number of its bytes when unpacked (4 bytes), the number of its bytes in the
//! file (4), their crc32c (4), and the bytes, which LZ4 has packed. The unpacked bytes are records
//! (`record.rs`): the tables, and an insert for each row.
//!
//! The order of steps
//! 1. The next log file is made.
//! 2. The checkpoint is written under another name, and `fsync` makes it durable.
//! 3. It is renamed, which makes it valid.
//! 4. The old log file is removed.
//!
//! Invariants
//! 1. The file named `checkpoint` and the log file that it names are whole.
//! 2. A file is removed at a start only if the log file that the checkpoint names exists. Otherwise the
//!    number is damaged, and the file that would be removed may be the log.
//!
//! This module does not know how records are applied (`recovery.rs`).

use std::ops::ControlFlow;

use super::heap::Heap;
use super::record::Record;
use crate::files::{FileHandle, Files};
use crate::layout::get_u64;
use crate::pointer::Pointer;
use crate::store::{Direction, KeyRange};
use crate::store_error::{StoreError, StoreResult};
use crate::wal::{Wal, name_of, remove_after_error};

/// The name of the valid checkpoint.
const NAME: &str = "checkpoint";
/// The name of a checkpoint that is being written.
const UNFINISHED: &str = "checkpoint.new";
const MAGIC: u64 = u64::from_le_bytes(*b"VINPCHK1");
const HEAD_BYTES: usize = 16;
const BLOCK_HEAD_BYTES: usize = 12;
/// A block is compressed and written when its records have at least this many bytes.
const BLOCK_BYTES: usize = 65_536;

/// The content of the checkpoint that a start has read.
pub(super) struct Checkpoint {
    /// The number of the log file to replay.
    pub(super) log: u64,
    /// The records.
    pub(super) records: Vec<u8>,
}

fn damaged(what: &'static str) -> StoreError {
    StoreError::Damaged { what, at: Pointer::NONE }
}

/// Reads the checkpoint, and removes files that a crash has left unfinished. If there is no checkpoint yet,
/// the log with number 0 has all changes.
pub(super) fn read(files: &mut Files) -> StoreResult<Checkpoint> {
    let names = files.names();
    let mut found = Checkpoint { log: 0, records: Vec::new() };
    let has_checkpoint = names.iter().any(|name| **name == *NAME);
    if has_checkpoint {
        let file = files.open_file(NAME)?;
        let mut bytes = vec![0; files.len_bytes(file)? as usize];
        files.read_at(file, 0, &mut bytes)?;
        if get_u64(&bytes, 0) != MAGIC {
            return Err(damaged("the magic of a checkpoint"));
        }
        found.log = get_u64(&bytes, 8);
        let mut rest = bytes.get(HEAD_BYTES..).unwrap_or_default();
        while !rest.is_empty() {
            rest = unpack(rest, &mut found.records).ok_or(damaged("a block of a checkpoint"))?;
        }
    }
    let log = name_of(found.log);
    if has_checkpoint && !names.iter().any(|name| **name == *log) {
        return Err(damaged("the number of the log in a checkpoint"));
    }
    for name in names.iter().filter(|name| ***name != *NAME && ***name != *log) {
        files.remove(name)?;
    }
    Ok(found)
}

/// Unpacks the block at the start of `bytes`, and returns the bytes after the block.
fn unpack<'b>(bytes: &'b [u8], records: &mut Vec<u8>) -> Option<&'b [u8]> {
    let (head, rest) = bytes.split_at_checked(BLOCK_HEAD_BYTES)?;
    let number =
        |at| head.get(at..).and_then(|rest| rest.first_chunk()).map(|found| u32::from_le_bytes(*found));
    let (packed, rest) = rest.split_at_checked(number(4)? as usize)?;
    if number(8)? != crc32c::crc32c(packed) {
        return None;
    }
    let unpacked = lz4_flex::block::decompress(packed, number(0)? as usize).ok()?;
    records.extend_from_slice(&unpacked);
    Some(rest)
}

/// Writes a checkpoint, and begins an empty log. No transaction is open, and the log is flushed.
///
/// Errors: the region is full. Then the old checkpoint and the log stay valid.
pub(super) fn write(heap: &Heap, log: &mut Wal) -> StoreResult<()> {
    let old = log.number();
    let next = old.checked_add(1).ok_or(damaged("the number of the log in a checkpoint"))?;
    let written = write_files(heap, &mut log.files, next);
    let name = name_of(next);
    let unfinished = [UNFINISHED, &*name];
    let file = written.inspect_err(|_| remove_after_error(&mut log.files, &unfinished))?;
    log.begin(next, file);
    Ok(log.files.remove(&name_of(old))?)
}

/// Writes the checkpoint, and makes it valid. Returns the next log file.
fn write_files(heap: &Heap, files: &mut Files, log: u64) -> StoreResult<FileHandle> {
    let next = files.create(&name_of(log))?;
    let file = files.create(UNFINISHED)?;
    let head = [MAGIC.to_le_bytes(), log.to_le_bytes()];
    files.append(file, head.as_flattened())?;
    let mut records = Vec::new();
    for (table_no, table) in heap.tables() {
        let indexes = table.indexes.len();
        Record::CreateTable { table: table_no, owner: table.owner.number(), indexes }.encode(&mut records);
        let Some(primary) = table.indexes.first() else { continue };
        let mut row = Vec::new();
        let mut on_tuple = |tuple| -> StoreResult<ControlFlow<()>> {
            let keys = heap.keys(table_no, tuple)?;
            heap.row(tuple, &mut row)?;
            let keys = keys.iter().map(Vec::as_slice).collect();
            Record::Insert { table: table_no, keys, row: &row }.encode(&mut records);
            if records.len() >= BLOCK_BYTES {
                pack(files, file, &mut records)?;
            }
            Ok(ControlFlow::Continue(()))
        };
        primary.scan(&heap.space, &KeyRange::ALL, Direction::Forward, &mut on_tuple)?;
    }
    pack(files, file, &mut records)?;
    files.fsync(file)?;
    files.rename(UNFINISHED, NAME)?;
    Ok(next)
}

fn pack(files: &mut Files, file: FileHandle, records: &mut Vec<u8>) -> StoreResult<()> {
    let packed = lz4_flex::block::compress(records);
    let head = [records.len() as u32, packed.len() as u32, crc32c::crc32c(&packed)];
    let mut block: Vec<u8> = head.into_iter().flat_map(u32::to_le_bytes).collect();
    block.extend_from_slice(&packed);
    files.append(file, &block)?;
    records.clear();
    Ok(())
}
