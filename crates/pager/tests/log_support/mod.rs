//! Helpers of the log's tests: a log in memory, written and read back.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory};
use varve_pager::log::{FIRST_LSN, Life, LogConfig, StoredLog, Tail};
use varve_pager::{Log, LogError, Lsn};

pub const DATABASE: u64 = 0xD00D;
pub const SEGMENT_BYTES: u64 = 64 << 10;
pub const NOTHING_KNOWN: (Lsn, &str) = (Lsn::ZERO, "");

pub fn config(directory: &Arc<MemoryDirectory>) -> LogConfig {
    let directory: Arc<dyn Directory> = directory.clone();
    LogConfig { directory, segment_bytes: SEGMENT_BYTES, capacity_bytes: 8 * SEGMENT_BYTES }
}

pub fn first_life() -> Vec<Life> {
    vec![Life { incarnation: 1, after: FIRST_LSN, start: FIRST_LSN }]
}

/// A new log in its first life.
pub fn create(directory: &Arc<MemoryDirectory>) -> Log {
    let stored = StoredLog::open(config(directory), DATABASE).unwrap();
    stored.resume(1, Tail::empty(), FIRST_LSN).unwrap()
}

/// A group as the tests compare it: its LSN and its only note.
pub type Note = (Lsn, Vec<u8>);

/// Everything in the log from its first block.
pub fn read_all(directory: &Arc<MemoryDirectory>) -> Result<(Vec<Note>, Tail), LogError> {
    read(directory, &first_life(), FIRST_LSN, NOTHING_KNOWN)
}

pub fn read(
    directory: &Arc<MemoryDirectory>,
    lives: &[Life],
    from: Lsn,
    known: (Lsn, &str),
) -> Result<(Vec<Note>, Tail), LogError> {
    let stored = StoredLog::open(config(directory), DATABASE)?;
    let mut notes = Vec::new();
    let tail = stored.each_group::<LogError>(lives, from, known, |group| {
        for record in group.records {
            match record.unwrap() {
                varve_pager::log::Record::Note { payload, .. } => notes.push((group.end, payload.to_vec())),
                change => panic!("only notes were written, got {change:?}"),
            }
        }
        Ok(())
    })?;
    Ok((notes, tail))
}

/// Appends one note; gives its LSN.
pub fn append(log: &Log, payload: &[u8]) -> Lsn {
    let mut records = Vec::new();
    varve_pager::log::record::put_note(&mut records, 7, payload);
    log.append(&records, |at| at.end)
}

/// A payload that tells `seed` and has `bytes` bytes.
pub fn payload(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (seed * 31 + i * 7) as u8).collect()
}

/// A deep copy of what is on the device now.
pub fn copy(directory: &Arc<MemoryDirectory>) -> Arc<MemoryDirectory> {
    MemoryDirectory::from_images(directory.images())
}
