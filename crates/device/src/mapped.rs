//! A region of persistent memory that is a mapped file.
//!
//! Invariants
//! 1. All bytes of the file are allocated before the file is mapped. Otherwise a store to a hole would end
//!    the process when the disk is full.
//! 2. The file has the name `NAME.new` until it is complete and durable.
//! 3. The code never makes a Rust reference to mapped bytes. Bytes are copied through raw pointers, and words
//!    are atomic. Bounds are asserted before a pointer is made.
//! 4. The mapping counts as persistent memory if the kernel grants `MAP_SYNC`. The kernel grants it only if a
//!    write-back and a fence make stores durable.
//!
//! The process ends with SIGBUS in two cases. One is that another process shortens the file, which the lock
//! of the data directory prevents. The other is that a copy-on-write file system is full.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::boot::boot_id;
use crate::counted::Counts;
use crate::error::{DeviceError, ErrorKind, Operation, Result};
use crate::owner;
use crate::persist;
use crate::region::{self, LINE_BYTES, Medium, Region, RegionFacts, RegionTally};
use crate::sys;

/// The length of a new region is a multiple of this.
const UNIT_BYTES: u64 = 4096;
/// The number of zeros written at once into a new file.
const FILL_BYTES: usize = 1 << 20;
/// The unit in which `stat` counts blocks.
const STAT_BLOCK_BYTES: u64 = 512;

/// A mapped file.
pub(crate) struct MappedRegion {
    start: NonNull<u8>,
    len_bytes: u64,
    facts: RegionFacts,
    counts: Counts,
    path: PathBuf,
    /// The mapped file. It is open as long as the mapping exists.
    _file: File,
}

// SAFETY: the mapping belongs to the region alone and has no affinity to a thread.
unsafe impl Send for MappedRegion {}
// SAFETY: bytes are copied, and words are atomic; the trait's contract forbids other simultaneous access to a
// range.
unsafe impl Sync for MappedRegion {}

/// Maps the file at `path`. If there is none, makes one of `len_bytes`, durably.
pub(crate) fn map(path: &Path, len_bytes: u64) -> Result<Arc<MappedRegion>> {
    let whole = len_bytes > 0 && len_bytes.is_multiple_of(UNIT_BYTES);
    assert!(whole, "a region of {len_bytes} bytes is not made of {UNIT_BYTES}-byte units");
    let refuse = |kind| DeviceError::new(&path.display().to_string(), Operation::Open, kind);
    // This check comes first, so that no region is made that this process can't use.
    persist::write_back_of(Medium::EmulatedByFile).map_err(refuse)?;
    let fail = |error: std::io::Error| fail(path, Operation::Open, &error);
    if !path.try_exists().map_err(fail)? {
        make(path, len_bytes)?;
    }
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(fail)?;
    owner::tighten(&file);
    let found_bytes = file.metadata().map_err(fail)?.len();
    if found_bytes == 0 {
        return Err(refuse(ErrorKind::ShortRead { wanted_bytes: len_bytes, got_bytes: 0 }));
    }
    let is_in_memory = is_in_memory(&file).map_err(fail)?;
    // On a file system in memory, the count of blocks says exactly whether a file has holes. So a file
    // without holes is not searched for them.
    if !is_in_memory || file.metadata().map_err(fail)?.blocks() * STAT_BLOCK_BYTES < found_bytes {
        fill_holes(&file, found_bytes).map_err(fail)?;
    }
    let (start, medium) = map_file(&file, found_bytes, !is_in_memory).map_err(fail)?;
    let write_back = persist::write_back_of(medium).map_err(refuse)?;
    let boot = (medium == Medium::EmulatedByFile).then(|| boot_id().unwrap_or(u64::MAX));
    Ok(Arc::new(MappedRegion {
        start,
        len_bytes: found_bytes,
        facts: RegionFacts { medium, write_back, emulates: None, cell: None, boot },
        counts: Counts::default(),
        path: path.to_path_buf(),
        _file: file,
    }))
}

fn fail(path: &Path, operation: Operation, error: &std::io::Error) -> DeviceError {
    DeviceError::new(&path.display().to_string(), operation, ErrorKind::from_io(error))
}

/// Makes a file of zeros.
fn make(path: &Path, len_bytes: u64) -> Result<()> {
    let mut new = path.as_os_str().to_os_string();
    new.push(region::UNFINISHED);
    let new = PathBuf::from(new);
    let filled = fill(&new, len_bytes).map_err(|error| fail(path, Operation::SetLen, &error));
    if filled.is_err() {
        // Only the first error is reported. If the file cannot be removed, the next start overwrites it.
        let _left_over = std::fs::remove_file(&new);
        return filled;
    }
    std::fs::rename(&new, path).map_err(|error| fail(path, Operation::Rename, &error))?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(above).and_then(|above| above.sync_all());
    synced.map_err(|error| fail(path, Operation::SyncDirectory, &error))
}

fn fill(new: &Path, len_bytes: u64) -> std::io::Result<()> {
    let file = owner::options().write(true).create(true).truncate(true).open(new)?;
    owner::tighten(&file);
    fill_holes(&file, len_bytes)?;
    let zeros = vec![0; FILL_BYTES];
    let mut at = 0;
    while at < len_bytes {
        let step = (len_bytes - at).min(FILL_BYTES as u64);
        file.write_all_at(&zeros[..step as usize], at)?;
        at += step;
    }
    file.sync_all()
}

/// Reserves room for the holes of a file, if the file system can do this.
fn fill_holes(file: &File, len_bytes: u64) -> std::io::Result<()> {
    match sys::allocate(file.as_fd(), 0, len_bytes) {
        Err(error) if ErrorKind::from_io(&error) == ErrorKind::Unsupported => Ok(()),
        reserved => reserved,
    }
}

/// Returns whether the file system of a file is in main memory.
fn is_in_memory(file: &File) -> std::io::Result<bool> {
    Ok(sys::file_system(file.as_fd())? == libc::TMPFS_MAGIC)
}

/// Maps a file. If persistent memory is emulated, `is_populated` loads all pages of the file at once.
fn map_file(file: &File, len_bytes: u64, is_populated: bool) -> std::io::Result<(NonNull<u8>, Medium)> {
    if cfg!(target_arch = "x86_64") {
        match map_how(file, len_bytes, libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC) {
            Ok(start) => return Ok((advised(start, len_bytes, false), Medium::Persistent)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {}
            Err(error) => return Err(error),
        }
    }
    let start = map_how(file, len_bytes, libc::MAP_SHARED)?;
    Ok((advised(start, len_bytes, is_populated), Medium::EmulatedByFile))
}

fn map_how(file: &File, len_bytes: u64, flags: i32) -> std::io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let (len, fd) = (len_bytes as usize, file.as_raw_fd());
    // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
    let raw = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) };
    let mapped = (raw != libc::MAP_FAILED).then_some(raw).and_then(|raw| NonNull::new(raw.cast()));
    mapped.ok_or_else(std::io::Error::last_os_error)
}

/// Asks the kernel for huge pages. If `now` is true, also loads all pages, so that no later access waits for
/// a drive. The pages are loaded for reading. If they were loaded for writing, all of them would be dirty,
/// and the file system would write the whole region back. Pages of a file in memory need no drive. They are
/// loaded one by one when they are used, so that the time of a start does not grow with the length of the
/// region.
fn advised(start: NonNull<u8>, len_bytes: u64, now: bool) -> NonNull<u8> {
    let (raw, len) = (start.as_ptr().cast(), len_bytes as usize);
    // SAFETY: this is only advice about a mapping of this region. If the kernel refuses it, pages are mapped
    // one by one.
    unsafe {
        libc::madvise(raw, len, libc::MADV_HUGEPAGE);
        if now {
            libc::madvise(raw, len, libc::MADV_POPULATE_READ);
        }
    }
    start
}

impl MappedRegion {
    fn at(&self, offset: u64, len_bytes: u64) -> *mut u8 {
        region::assert_within(self.len_bytes, offset, len_bytes);
        self.start.as_ptr().wrapping_add(offset as usize)
    }

    fn word(&self, offset: u64) -> &AtomicU64 {
        region::assert_word(offset);
        // SAFETY: in bounds and aligned; the mapping lives as long as `self`, and words are only touched
        // atomically while others may touch them (contract of the trait).
        unsafe { AtomicU64::from_ptr(self.at(offset, region::WORD_BYTES as u64).cast()) }
    }
}

impl Region for MappedRegion {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read(&self, offset: u64, buf: &mut [u8]) {
        let from = self.at(offset, buf.len() as u64);
        // SAFETY: `at` has checked the bounds; the caller's buffer is not mapped memory.
        unsafe { std::ptr::copy_nonoverlapping(from, buf.as_mut_ptr(), buf.len()) };
        self.counts.load(offset, buf.len());
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        let to = self.at(offset, bytes.len() as u64);
        // SAFETY: `at` has checked the bounds; the caller's bytes are not mapped memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        self.counts.store(offset, bytes.len());
    }

    fn store_back(&self, offset: u64, bytes: &[u8]) {
        let is_lines = offset.is_multiple_of(LINE_BYTES) && (bytes.len() as u64).is_multiple_of(LINE_BYTES);
        if !is_lines || !persist::streams() {
            self.store(offset, bytes);
            return self.write_back(offset, bytes.len() as u64);
        }
        let to = self.at(offset, bytes.len() as u64);
        // SAFETY: `at` has checked the bounds, the mapping begins at a whole page, and the caller's bytes are
        // not mapped memory.
        unsafe { persist::stream(bytes.as_ptr(), to, bytes.len()) };
        self.counts.store(offset, bytes.len());
        self.counts.write_back(offset, bytes.len() as u64);
    }

    fn write_back(&self, offset: u64, len_bytes: u64) {
        region::assert_within(self.len_bytes, offset, len_bytes);
        let lines = region::lines(offset, len_bytes);
        if len_bytes > 0 {
            let first = self.start.as_ptr().wrapping_add((lines.start * LINE_BYTES) as usize);
            // SAFETY: the range is within the mapping, which begins and ends at whole pages, so at whole
            // lines.
            unsafe { persist::write_back_lines(self.facts.write_back, first, lines.end - lines.start) };
        }
        self.counts.write_back(offset, len_bytes);
    }

    fn prefetch(&self, offset: u64, len_bytes: u64) {
        if offset.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes) {
            let lines = region::lines(offset, len_bytes);
            let first = self.start.as_ptr().wrapping_add((lines.start * LINE_BYTES) as usize);
            persist::prefetch_lines(first, lines.end - lines.start);
        }
    }

    fn fence(&self) {
        // Streaming stores (`store_back`) need the fence even if lines need no write-back, because they wait
        // in buffers of the processor. No test can detect a fence that does nothing.
        persist::fence();
        self.counts.fence();
    }

    fn facts(&self) -> RegionFacts {
        self.facts.clone()
    }

    fn tally(&self) -> RegionTally {
        self.counts.tally()
    }

    fn settle(&self) -> Result<()> {
        if self.facts.medium == Medium::Persistent {
            return Ok(());
        }
        // SAFETY: the range is a whole mapping of this region.
        let done = unsafe { libc::msync(self.start.as_ptr().cast(), self.len_bytes as usize, libc::MS_SYNC) };
        if done == 0 {
            return Ok(());
        }
        Err(fail(&self.path, Operation::Flush, &std::io::Error::last_os_error()))
    }

    fn store_word(&self, offset: u64, value: u64) {
        self.word(offset).store(value.to_le(), Relaxed);
        self.counts.store(offset, region::WORD_BYTES);
    }

    fn load_word(&self, offset: u64) -> u64 {
        self.counts.load(offset, region::WORD_BYTES);
        u64::from_le(self.word(offset).load(Relaxed))
    }
}

impl Drop for MappedRegion {
    fn drop(&mut self) {
        // SAFETY: it was mapped once and is unmapped once, and no pointer into it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len_bytes as usize) };
    }
}
