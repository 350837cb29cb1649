//! Helpers of the log's tests: a log in memory, on files or in a region of persistent memory, written and
//! read back.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;

use varve_device::{Accounting, Directory, MemoryDirectory, RegionExtents, RegionFiles};
use varve_pager::log::{FIRST_LSN, Known, Life, LogConfig, StoredLog, Tail};
use varve_pager::{Log, LogError, Lsn};

pub const DATABASE: u64 = 0xD00D;
pub const SEGMENT_BYTES: u64 = 64 << 10;
pub const NOTHING_KNOWN: Known<'_> = Known { lsn: Lsn::ZERO, why: "", is_end: false };

const REGION: &str = "nvm";
const EXTENTS: u32 = 9;

/// The medium of a log.
pub trait Medium {
    /// Returns the log files as a restart finds them.
    fn directory(&self) -> Arc<dyn Directory>;
    /// Returns a deep copy of the present contents.
    fn copy(&self) -> Box<dyn Medium>;
}

/// Files with sectors of 512 bytes.
impl Medium for Arc<MemoryDirectory> {
    fn directory(&self) -> Arc<dyn Directory> {
        self.clone()
    }
    fn copy(&self) -> Box<dyn Medium> {
        Box::new(MemoryDirectory::from_images(self.images()))
    }
}

/// A region with sectors of 64 bytes.
pub struct OnRegion(pub Arc<MemoryDirectory>);

impl Medium for OnRegion {
    fn directory(&self) -> Arc<dyn Directory> {
        region_files(&*self.0)
    }
    fn copy(&self) -> Box<dyn Medium> {
        Box::new(OnRegion(MemoryDirectory::from_images(self.0.images())))
    }
}

/// Runs a case on an empty medium of each kind.
pub fn on_both(case: impl Fn(&dyn Medium)) {
    case(&MemoryDirectory::new());
    case(&OnRegion(MemoryDirectory::new()));
}

/// Returns the first sector boundary at or after an LSN.
pub fn next_sector(medium: &dyn Medium, lsn: Lsn) -> Lsn {
    lsn.align_up(sector_bytes(medium).trailing_zeros() as u8)
}

/// Returns the number of bytes that one write may change.
pub fn sector_bytes(medium: &dyn Medium) -> u32 {
    medium.directory().capabilities().sector_bytes()
}

/// Returns the log files of a region of `device`.
pub fn region_files(device: &dyn Directory) -> Arc<RegionFiles> {
    let region = device.map(REGION, u64::from(EXTENTS) * SEGMENT_BYTES).unwrap();
    let how = RegionExtents {
        prefix: "log".into(),
        extent_bytes: SEGMENT_BYTES,
        count: EXTENTS,
        location: "(memory)".into(),
    };
    RegionFiles::new(region, how, Arc::new(Accounting::new()))
}

pub fn config(medium: &dyn Medium) -> LogConfig {
    config_on(medium.directory())
}

pub fn config_on(directory: Arc<dyn Directory>) -> LogConfig {
    LogConfig { directory, segment_bytes: SEGMENT_BYTES, capacity_bytes: 8 * SEGMENT_BYTES }
}

pub fn first_life() -> Vec<Life> {
    vec![Life { incarnation: 1, after: FIRST_LSN, start: FIRST_LSN }]
}

/// Returns a new log in its first life.
pub fn create(medium: &dyn Medium) -> Log {
    let stored = StoredLog::open(config(medium), DATABASE).unwrap();
    stored.resume(1, Tail::empty(), FIRST_LSN).unwrap()
}

/// A group, as the tests compare it: its LSN and its only note.
pub type Note = (Lsn, Vec<u8>);

/// Returns everything in the log from its first block.
pub fn read_all(medium: &dyn Medium) -> Result<(Vec<Note>, Tail), LogError> {
    read(medium, &first_life(), FIRST_LSN, NOTHING_KNOWN)
}

pub fn read(
    medium: &dyn Medium,
    lives: &[Life],
    from: Lsn,
    known: Known<'_>,
) -> Result<(Vec<Note>, Tail), LogError> {
    let stored = StoredLog::open(config(medium), DATABASE)?;
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

/// Appends one note. Returns its LSN.
pub fn append(log: &Log, payload: &[u8]) -> Lsn {
    let mut records = Vec::new();
    varve_pager::log::record::put_note(&mut records, 7, payload);
    log.append(&records, |at| at.end)
}

/// Returns a payload of `bytes` bytes, which depends on `seed`.
pub fn payload(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (seed * 31 + i * 7) as u8).collect()
}
