//! A device in memory. Tests use it, and crash images are made of it.
//!
//! A file is a sparse vector of reference-counted chunks. So a copy of the device only increments a counter
//! for each chunk, and a file that was only lengthened takes no memory.
//!
//! Invariants
//! 1. A missing chunk reads as zeros.
//! 2. Bytes of a chunk beyond the file's length are zero.
//! 3. A removed file stays readable and writable through open handles.
//!
//! This device loses nothing. A recorder decides what a simulated crash loses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};

use crate::accounting::Accounting;
use crate::block::{BlockFile, Create, Directory, Durability, Location, OpenHow, check_name};
use crate::capabilities::Capabilities;
use crate::counted::Counts;
use crate::error::{DeviceError, ErrorKind, Operation, Result};
use crate::purpose::{Io, Purpose, Space};
use crate::region::{self, Medium, Region, RegionFacts, RegionTally, WriteBack};

const CHUNK_BYTES: usize = 16 * 1024;
type Chunk = [u8; CHUNK_BYTES];
const DEFAULT_SECTOR_BYTES: u32 = 512;
/// The location of all files in memory, for messages.
const PLACE: &str = "(memory)";

/// Returns the location of a file. It differs from the file's name, as in a real directory.
fn location(name: &str) -> Location {
    Location::new(format!("{PLACE}/{name}"))
}

/// Contents of one file.
#[derive(Clone, Default)]
pub struct MemoryImage {
    len_bytes: u64,
    chunks: Vec<Option<Arc<Chunk>>>,
}

impl MemoryImage {
    /// Returns the length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Copies bytes out. Bytes beyond the end are zeros.
    pub fn read(&self, offset: u64, buf: &mut [u8]) {
        for_each_piece(offset, buf.len(), |chunk_no, within, from, len| {
            let target = &mut buf[from..from + len];
            match self.chunks.get(chunk_no).and_then(Option::as_ref) {
                Some(chunk) => target.copy_from_slice(&chunk[within..within + len]),
                None => target.fill(0),
            }
        });
    }

    /// Copies bytes in, and extends the file if needed. An empty write does not extend it.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        if end > self.len_bytes && !bytes.is_empty() {
            self.set_len(end);
        }
        for_each_piece(offset, bytes.len(), |chunk_no, within, from, len| {
            let slot = &mut self.chunks[chunk_no];
            let chunk = Arc::make_mut(slot.get_or_insert_with(|| Arc::new([0; CHUNK_BYTES])));
            chunk[within..within + len].copy_from_slice(&bytes[from..from + len]);
        });
    }

    /// Sets the length. Bytes beyond a smaller length are lost; new bytes read as zeros.
    pub fn set_len(&mut self, len_bytes: u64) {
        if len_bytes < self.len_bytes {
            let within = len_bytes as usize % CHUNK_BYTES;
            if within > 0 {
                self.zero(len_bytes, (CHUNK_BYTES - within) as u64);
            }
        }
        self.chunks.resize((len_bytes as usize).div_ceil(CHUNK_BYTES), None);
        self.len_bytes = len_bytes;
    }

    /// Zeroes a range without changing the length.
    pub fn zero(&mut self, offset: u64, len_bytes: u64) {
        let end = (self.chunks.len() * CHUNK_BYTES) as u64;
        let len = len_bytes.min(end.saturating_sub(offset)) as usize;
        for_each_piece(offset, len, |chunk_no, within, _, len| {
            let slot = &mut self.chunks[chunk_no];
            if len == CHUNK_BYTES {
                *slot = None;
            } else if let Some(chunk) = slot {
                Arc::make_mut(chunk)[within..within + len].fill(0);
            }
        });
    }
}

/// Calls `piece(chunk number, offset within the chunk, offset within the range, length)`.
fn for_each_piece(offset: u64, len: usize, mut piece: impl FnMut(usize, usize, usize, usize)) {
    let mut done = 0;
    while done < len {
        let at = offset as usize + done;
        let within = at % CHUNK_BYTES;
        let step = (CHUNK_BYTES - within).min(len - done);
        piece(at / CHUNK_BYTES, within, done, step);
        done += step;
    }
}

struct Inode {
    number: u32,
    image: RwLock<MemoryImage>,
}

/// A directory in memory.
pub struct MemoryDirectory {
    files: Mutex<BTreeMap<String, Arc<Inode>>>,
    next_number: AtomicU32,
    capabilities: Capabilities,
    accounting: Arc<Accounting>,
    capacity_bytes: Option<u64>,
}

impl MemoryDirectory {
    /// Returns an empty directory with 512-byte sectors.
    pub fn new() -> Arc<MemoryDirectory> {
        MemoryDirectory::with_sector(DEFAULT_SECTOR_BYTES)
    }

    /// Returns an empty directory with sectors of this many bytes (512 to 4096, a power of two).
    pub fn with_sector(sector_bytes: u32) -> Arc<MemoryDirectory> {
        Arc::new(MemoryDirectory::build(sector_bytes, None))
    }

    /// Returns an empty directory whose holes are multiples of this many bytes, at least a sector.
    pub fn with_holes(hole_bytes: u32) -> Arc<MemoryDirectory> {
        assert!(hole_bytes.is_power_of_two() && hole_bytes >= DEFAULT_SECTOR_BYTES);
        let mut directory = MemoryDirectory::build(DEFAULT_SECTOR_BYTES, None);
        directory.capabilities.hole_bytes = hole_bytes;
        Arc::new(directory)
    }

    /// Returns an empty directory in which no file can grow beyond this many bytes.
    pub fn with_capacity(capacity_bytes: u64) -> Arc<MemoryDirectory> {
        Arc::new(MemoryDirectory::build(DEFAULT_SECTOR_BYTES, Some(capacity_bytes)))
    }

    /// Returns a directory with these files.
    pub fn from_images(images: impl IntoIterator<Item = (String, MemoryImage)>) -> Arc<Self> {
        let directory = MemoryDirectory::build(DEFAULT_SECTOR_BYTES, None);
        for (name, image) in images {
            let inode = directory.inode(image);
            directory.files.lock().insert(name, inode);
        }
        Arc::new(directory)
    }

    /// Returns a copy of the present state of all files.
    pub fn images(&self) -> Vec<(String, MemoryImage)> {
        let files = self.files.lock();
        files.iter().map(|(name, inode)| (name.clone(), inode.image.read().clone())).collect()
    }

    fn build(sector_bytes: u32, capacity_bytes: Option<u64>) -> MemoryDirectory {
        assert!(sector_bytes.is_power_of_two() && (512..=4096).contains(&sector_bytes));
        MemoryDirectory {
            files: Mutex::default(),
            next_number: AtomicU32::new(0),
            capabilities: capabilities(sector_bytes),
            accounting: Arc::default(),
            capacity_bytes,
        }
    }

    fn inode(&self, image: MemoryImage) -> Arc<Inode> {
        let number = self.next_number.fetch_add(1, Relaxed);
        Arc::new(Inode { number, image: RwLock::new(image) })
    }
}

fn capabilities(sector_bytes: u32) -> Capabilities {
    Capabilities {
        backend: "memory".into(),
        logical_sector_bytes: sector_bytes,
        physical_sector_bytes: sector_bytes,
        direct_io: true,
        punch_hole: true,
        hole_bytes: sector_bytes,
        fua: true,
        io_uring: false,
        atomic_write_min_bytes: sector_bytes,
        atomic_write_bytes: 64 << 10,
        dax: false,
        warnings: Vec::new(),
    }
}

impl Directory for MemoryDirectory {
    fn open(&self, name: &str, how: OpenHow) -> Result<Arc<dyn BlockFile>> {
        check_name(name, Operation::Open)?;
        let fail = |kind| Err(DeviceError::new(location(name).text(), Operation::Open, kind));
        let mut files = self.files.lock();
        let inode = match (files.get(name), how.create) {
            (Some(_), Create::MustBeNew) => return fail(ErrorKind::AlreadyExists),
            (Some(inode), _) => Arc::clone(inode),
            (None, Create::Never) => return fail(ErrorKind::NotFound),
            (None, _) => {
                let inode = self.inode(MemoryImage::default());
                files.insert(name.to_string(), Arc::clone(&inode));
                inode
            }
        };
        Ok(Arc::new(MemoryFile {
            name: name.into(),
            location: location(name),
            inode,
            space: how.space,
            read_only: how.read_only,
            sector_bytes: self.capabilities.sector_bytes(),
            accounting: Arc::clone(&self.accounting),
            capacity_bytes: self.capacity_bytes,
        }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        check_name(name, Operation::Stat)?;
        Ok(self.files.lock().contains_key(name))
    }

    fn list(&self) -> Result<Vec<String>> {
        Ok(self.files.lock().keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        [from, to].into_iter().try_for_each(|name| check_name(name, Operation::Rename))?;
        let mut files = self.files.lock();
        let missing = || DeviceError::new(location(from).text(), Operation::Rename, ErrorKind::NotFound);
        let inode = files.remove(from).ok_or_else(missing)?;
        files.insert(to.to_string(), inode);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        check_name(name, Operation::Remove)?;
        let missing = || DeviceError::new(location(name).text(), Operation::Remove, ErrorKind::NotFound);
        self.files.lock().remove(name).map(|_| ()).ok_or_else(missing)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn map(&self, name: &str, len_bytes: u64) -> Result<Arc<dyn Region>> {
        check_name(name, Operation::Open)?;
        let mut files = self.files.lock();
        let new = || {
            let mut image = MemoryImage::default();
            image.set_len(len_bytes);
            self.inode(image)
        };
        let inode = Arc::clone(files.entry(name.to_string()).or_insert_with(new));
        if inode.image.read().len_bytes() == 0 {
            let kind = ErrorKind::ShortRead { wanted_bytes: len_bytes, got_bytes: 0 };
            return Err(DeviceError::new(location(name).text(), Operation::Open, kind));
        }
        Ok(Arc::new(MemoryRegion { inode, counts: Counts::default() }))
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn accounting(&self) -> &Arc<Accounting> {
        &self.accounting
    }

    fn location(&self) -> String {
        PLACE.into()
    }
}

struct MemoryFile {
    name: Box<str>,
    location: Location,
    inode: Arc<Inode>,
    space: Space,
    read_only: bool,
    sector_bytes: u32,
    accounting: Arc<Accounting>,
    capacity_bytes: Option<u64>,
}

impl MemoryFile {
    fn io(&self, offset: u64, bytes: usize, why: Purpose) -> Io {
        Io { space: self.space, why, file: self.inode.number, offset, bytes: bytes as u64 }
    }

    fn writable(&self, operation: Operation, end: u64) -> Result<()> {
        if self.read_only {
            return Err(DeviceError::new(self.location.text(), operation, ErrorKind::ReadOnly));
        }
        match self.capacity_bytes {
            Some(capacity) if end > capacity => {
                Err(DeviceError::new(self.location.text(), operation, ErrorKind::NoSpace))
            }
            _ => Ok(()),
        }
    }
}

impl BlockFile for MemoryFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn location(&self) -> &Location {
        &self.location
    }

    fn len_bytes(&self) -> Result<u64> {
        Ok(self.inode.image.read().len_bytes())
    }

    fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], why: Purpose) -> Result<()> {
        crate::block::assert_aligned(self.sector_bytes, offset, buf);
        let started = self.accounting.start();
        let image = self.inode.image.read();
        let got_bytes = image.len_bytes().saturating_sub(offset);
        let wanted_bytes = buf.len() as u64;
        if got_bytes < wanted_bytes {
            let kind = ErrorKind::ShortRead { wanted_bytes, got_bytes };
            return Err(DeviceError::at(self.location.text(), Operation::Read, offset, kind));
        }
        image.read(offset, buf);
        drop(image);
        self.accounting.count_read(self.io(offset, buf.len(), why), started);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()> {
        crate::block::assert_aligned(self.sector_bytes, offset, buf);
        self.writable(Operation::Write, offset + buf.len() as u64)?;
        let started = self.accounting.start();
        self.inode.image.write().write(offset, buf);
        let io = self.io(offset, buf.len(), why);
        self.accounting.count_write(io, durability == Durability::Now, started);
        Ok(())
    }

    /// Takes only what Linux takes (`generic_atomic_write_valid`).
    fn write_atomic(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()> {
        let fits = capabilities(self.sector_bytes).writes_whole(buf.len());
        if !(fits && offset.is_multiple_of(buf.len() as u64)) {
            let kind = ErrorKind::Unsupported;
            return Err(DeviceError::at(self.location.text(), Operation::Write, offset, kind));
        }
        self.write_at(offset, buf, why, durability)
    }

    fn flush(&self) -> Result<()> {
        self.writable(Operation::Flush, 0)?;
        self.accounting.count_flush(self.space, None);
        Ok(())
    }

    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.writable(Operation::Punch, 0)?;
        let mut image = self.inode.image.write();
        let len_bytes = len_bytes.min(image.len_bytes().saturating_sub(offset));
        image.zero(offset, len_bytes);
        self.accounting.count_punch(self.space, len_bytes);
        Ok(())
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.writable(Operation::SetLen, len_bytes)?;
        self.inode.image.write().set_len(len_bytes);
        Ok(())
    }

    fn reserve(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.writable(Operation::Reserve, offset + len_bytes)
    }
}

/// A region in ordinary memory. Nothing is lost, so write-backs and fences are only counted.
struct MemoryRegion {
    inode: Arc<Inode>,
    counts: Counts,
}

impl Region for MemoryRegion {
    fn len_bytes(&self) -> u64 {
        self.inode.image.read().len_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) {
        let image = self.inode.image.read();
        region::assert_within(image.len_bytes(), offset, buf.len() as u64);
        image.read(offset, buf);
        self.counts.load(offset, buf.len());
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        let mut image = self.inode.image.write();
        region::assert_within(image.len_bytes(), offset, bytes.len() as u64);
        image.write(offset, bytes);
        self.counts.store(offset, bytes.len());
    }

    fn write_back(&self, offset: u64, len_bytes: u64) {
        region::assert_within(self.len_bytes(), offset, len_bytes);
        self.counts.write_back(offset, len_bytes);
    }

    fn fence(&self) {
        self.counts.fence();
    }

    fn facts(&self) -> RegionFacts {
        RegionFacts {
            medium: Medium::Memory,
            write_back: WriteBack::FenceOnly,
            emulates: None,
            cell: None,
            boot: None,
        }
    }

    fn tally(&self) -> RegionTally {
        self.counts.tally()
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }
}
