//! A directory whose files `PREFIX.0000`, `PREFIX.0001`, ... are equal pieces of a region of persistent
//! memory.
//!
//! So code that writes files works on persistent memory without a change. The log uses this directory for its
//! segments. A durable write copies the bytes, writes the cache lines back, and waits for one fence.
//!
//! Invariants
//! 1. The list of files is in memory. After a restart a file exists if its first [`HEAD_BYTES`] are not all
//!    zero. So a file does not exist after a crash if its head was never written, or was zeroed by `remove`.
//! 2. The file `NAME.new` uses the piece of `NAME`. It is listed only after it was renamed. All files have
//!    the same fixed length.
//! 3. A flush writes back what was written since the last flush. The first flush after a restart writes back
//!    the whole file, because a killed process may have left parts of it in the processor's caches.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::accounting::Accounting;
use crate::block::{BlockFile, Create, Directory, Durability, Location, OpenHow, assert_aligned, check_name};
use crate::capabilities::Capabilities;
use crate::error::{DeviceError, ErrorKind, Operation, Result};
use crate::planted::{planted, reached};
use crate::purpose::{Io, Purpose, Space};
use crate::region::{LINE_BYTES, Region};

/// The number of bytes at the beginning of a file that show whether it exists. Lengths of files are multiples
/// of this.
pub const HEAD_BYTES: u64 = 4096;

const UNFINISHED_SUFFIX: &str = ".new";
/// If there are more ranges than this, a flush writes back the whole file.
const RANGES_MAX: usize = 64;

/// How a region is cut into files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionExtents {
    /// The beginning of all names.
    pub prefix: String,
    /// The length of each file: a multiple of [`HEAD_BYTES`].
    pub extent_bytes: u64,
    /// The largest number of files.
    pub count: u32,
    /// The location of the region, for messages.
    pub location: String,
}

/// The bytes that the next flush has to write back.
enum Unflushed {
    /// The whole file, for example after a restart.
    All,
    Ranges(Vec<Range<u64>>),
}

impl Unflushed {
    fn note(&mut self, range: Range<u64>) {
        let Unflushed::Ranges(ranges) = self else { return };
        if let Some(last) = ranges.last_mut().filter(|last| last.end == range.start) {
            last.end = range.end;
        } else if ranges.len() < RANGES_MAX {
            ranges.push(range);
        } else {
            *self = Unflushed::All;
        }
    }
}

/// One piece of the region.
struct Extent {
    no: u32,
    /// The offset of its first byte in the region.
    base: u64,
    is_there: AtomicBool,
    unflushed: Mutex<Unflushed>,
}

/// A region that is used as a directory of files. See the description of this module.
pub struct RegionFiles {
    region: Arc<dyn Region>,
    how: RegionExtents,
    capabilities: Capabilities,
    accounting: Arc<Accounting>,
    extents: Vec<Arc<Extent>>,
}

impl RegionFiles {
    /// Finds the files in `region`. The first one begins at the beginning of the region. `accounting` counts
    /// reads and writes.
    pub fn new(region: Arc<dyn Region>, how: RegionExtents, accounting: Arc<Accounting>) -> Arc<RegionFiles> {
        assert!(how.extent_bytes > 0 && how.extent_bytes.is_multiple_of(HEAD_BYTES));
        let end = how.extent_bytes * u64::from(how.count);
        assert!(end <= region.len_bytes(), "{end} bytes of files in {} of a region", region.len_bytes());
        let extent = |no: u32| {
            let base = u64::from(no) * how.extent_bytes;
            let is_there = AtomicBool::new(!is_zero(&*region, base, HEAD_BYTES));
            Arc::new(Extent { no, base, is_there, unflushed: Mutex::new(Unflushed::All) })
        };
        let extents = (0..how.count).map(extent).collect();
        let capabilities = capabilities(&how);
        Arc::new(RegionFiles { region, how, capabilities, accounting, extents })
    }

    /// Returns the piece that belongs to a name, and whether the name is one of an unfinished file.
    fn find(&self, name: &str) -> Option<(&Arc<Extent>, bool)> {
        let number = name.strip_prefix(self.how.prefix.as_str())?.strip_prefix('.')?;
        let (number, is_unfinished) = match number.strip_suffix(UNFINISHED_SUFFIX) {
            Some(number) => (number, true),
            None => (number, false),
        };
        let extent = self.extents.get(number.parse::<usize>().ok()?)?;
        (number == format!("{:04}", extent.no)).then_some((extent, is_unfinished))
    }

    /// Returns the location of a file, for messages.
    fn shown(&self, name: &str) -> Location {
        Location::new(format!("{name} in {}", self.how.location))
    }

    fn name_of(&self, extent: &Extent) -> String {
        format!("{}.{:04}", self.how.prefix, extent.no)
    }
}

fn capabilities(how: &RegionExtents) -> Capabilities {
    let line_bytes = LINE_BYTES as u32;
    Capabilities {
        backend: format!("region of {} files of {} bytes", how.count, how.extent_bytes),
        logical_sector_bytes: line_bytes,
        physical_sector_bytes: line_bytes,
        direct_io: true,
        punch_hole: false,
        hole_bytes: 0,
        fua: true,
        io_uring: false,
        atomic_write_min_bytes: 0,
        atomic_write_bytes: 0,
        dax: true,
        warnings: Vec::new(),
    }
}

fn is_zero(region: &dyn Region, offset: u64, len_bytes: u64) -> bool {
    let mut chunk = [0; HEAD_BYTES as usize];
    (0..len_bytes).step_by(chunk.len()).all(|from| {
        let part = &mut chunk[..(len_bytes - from).min(HEAD_BYTES) as usize];
        region.read(offset + from, part);
        part.iter().all(|byte| *byte == 0)
    })
}

impl Directory for RegionFiles {
    fn open(&self, name: &str, how: OpenHow) -> Result<Arc<dyn BlockFile>> {
        check_name(name, Operation::Open)?;
        let fail = |kind| Err(DeviceError::new(self.shown(name).text(), Operation::Open, kind));
        let Some((extent, is_unfinished)) = self.find(name) else {
            return fail(if how.create == Create::Never { ErrorKind::NotFound } else { ErrorKind::NoSpace });
        };
        let is_there = extent.is_there.load(Relaxed) && !is_unfinished;
        match how.create {
            Create::Never if !is_there => return fail(ErrorKind::NotFound),
            Create::MustBeNew if is_there => return fail(ErrorKind::AlreadyExists),
            _ if !is_unfinished => extent.is_there.store(true, Relaxed),
            _ => {}
        }
        Ok(Arc::new(RegionFile {
            name: name.into(),
            location: self.shown(name),
            region: Arc::clone(&self.region),
            extent: Arc::clone(extent),
            len_bytes: self.how.extent_bytes,
            space: how.space,
            read_only: how.read_only,
            accounting: Arc::clone(&self.accounting),
        }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        check_name(name, Operation::Stat)?;
        let found = self.find(name);
        Ok(found.is_some_and(|(extent, is_unfinished)| !is_unfinished && extent.is_there.load(Relaxed)))
    }

    fn list(&self) -> Result<Vec<String>> {
        let there = self.extents.iter().filter(|extent| extent.is_there.load(Relaxed));
        Ok(there.map(|extent| self.name_of(extent)).collect())
    }

    /// A file can be renamed only from `NAME.new` to `NAME`.
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        [from, to].into_iter().try_for_each(|name| check_name(name, Operation::Rename))?;
        let fail = |kind| Err(DeviceError::new(self.shown(from).text(), Operation::Rename, kind));
        match (self.find(from), self.find(to)) {
            (Some((old, true)), Some((new, false))) if old.no == new.no => {
                new.is_there.store(true, Relaxed);
                Ok(())
            }
            (None, _) => fail(ErrorKind::NotFound),
            _ => fail(ErrorKind::Unsupported),
        }
    }

    /// Removes a file durably: the head is zero in persistent memory when this returns.
    fn remove(&self, name: &str) -> Result<()> {
        check_name(name, Operation::Remove)?;
        let missing = || DeviceError::new(self.shown(name).text(), Operation::Remove, ErrorKind::NotFound);
        let (extent, is_unfinished) = self.find(name).ok_or_else(missing)?;
        if is_unfinished {
            return Ok(());
        }
        if !extent.is_there.swap(false, Relaxed) {
            return Err(missing());
        }
        self.region.store(extent.base, &[0; HEAD_BYTES as usize]);
        self.region.persist(extent.base, HEAD_BYTES);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn accounting(&self) -> &Arc<Accounting> {
        &self.accounting
    }

    fn location(&self) -> String {
        self.how.location.clone()
    }
}

struct RegionFile {
    name: Box<str>,
    location: Location,
    region: Arc<dyn Region>,
    extent: Arc<Extent>,
    len_bytes: u64,
    space: Space,
    read_only: bool,
    accounting: Arc<Accounting>,
}

impl RegionFile {
    fn io(&self, offset: u64, bytes: usize, why: Purpose) -> Io {
        Io { space: self.space, why, file: self.extent.no, offset, bytes: bytes as u64 }
    }

    fn fail<T>(&self, operation: Operation, offset: u64, kind: ErrorKind) -> Result<T> {
        Err(DeviceError::at(self.location.text(), operation, offset, kind))
    }

    /// Stores bytes, but does not store zeros over zeros. So a segment of a new region is filled with zeros
    /// without wear.
    fn store(&self, offset: u64, bytes: &[u8]) {
        let at = self.extent.base + offset;
        if bytes.iter().all(|byte| *byte == 0) && is_zero(&*self.region, at, bytes.len() as u64) {
            return;
        }
        self.region.store(at, bytes);
    }

    fn write_back(&self, range: &Range<u64>) {
        self.region.write_back(self.extent.base + range.start, range.end - range.start);
    }
}

impl BlockFile for RegionFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn location(&self) -> &Location {
        &self.location
    }

    fn len_bytes(&self) -> Result<u64> {
        Ok(self.len_bytes)
    }

    fn sector_bytes(&self) -> u32 {
        LINE_BYTES as u32
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], why: Purpose) -> Result<()> {
        assert_aligned(self.sector_bytes(), offset, buf);
        let wanted_bytes = buf.len() as u64;
        let got_bytes = self.len_bytes.saturating_sub(offset);
        if got_bytes < wanted_bytes {
            return self.fail(Operation::Read, offset, ErrorKind::ShortRead { wanted_bytes, got_bytes });
        }
        let started = self.accounting.start();
        self.region.read(self.extent.base + offset, buf);
        self.accounting.count_read(self.io(offset, buf.len(), why), started);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()> {
        assert_aligned(self.sector_bytes(), offset, buf);
        let range = offset..offset + buf.len() as u64;
        if self.read_only {
            return self.fail(Operation::Write, offset, ErrorKind::ReadOnly);
        }
        if range.end > self.len_bytes {
            return self.fail(Operation::Write, offset, ErrorKind::NoSpace);
        }
        let started = self.accounting.start();
        self.store(offset, buf);
        match durability {
            Durability::Later => self.extent.unflushed.lock().note(range),
            Durability::Now => {
                if !planted("region files: a durable write is not written back") {
                    self.write_back(&range);
                }
                if !planted("region files: a durable write is not fenced") {
                    self.region.fence();
                }
                reached("region files: written durably");
            }
        }
        let is_durable = durability == Durability::Now;
        self.accounting.count_write(self.io(offset, buf.len(), why), is_durable, started);
        Ok(())
    }

    /// If two threads flush at the same time, the second one waits until the writes of both are fenced.
    fn flush(&self) -> Result<()> {
        if self.read_only {
            return self.fail(Operation::Flush, 0, ErrorKind::ReadOnly);
        }
        let started = self.accounting.start();
        let mut unflushed = self.extent.unflushed.lock();
        match std::mem::replace(&mut *unflushed, Unflushed::Ranges(Vec::new())) {
            Unflushed::All => self.write_back(&(0..self.len_bytes)),
            Unflushed::Ranges(ranges) => ranges.iter().for_each(|range| self.write_back(range)),
        }
        if !planted("region files: a flush is not fenced") {
            self.region.fence();
        }
        drop(unflushed);
        reached("region files: flushed");
        self.accounting.count_flush(self.space, started);
        Ok(())
    }

    fn punch(&self, offset: u64, _len_bytes: u64) -> Result<()> {
        let kind = if self.read_only { ErrorKind::ReadOnly } else { ErrorKind::Unsupported };
        self.fail(Operation::Punch, offset, kind)
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        let fail = |kind| Err(DeviceError::new(self.location.text(), Operation::SetLen, kind));
        match len_bytes.cmp(&self.len_bytes) {
            _ if self.read_only => fail(ErrorKind::ReadOnly),
            std::cmp::Ordering::Less => fail(ErrorKind::Unsupported),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => fail(ErrorKind::NoSpace),
        }
    }
}
