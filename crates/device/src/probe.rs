//! Finds out what a directory's file system can do, by trying each operation on a scratch file.
//!
//! Invariants
//! 1. Every capability was tried on the scratch file, except sizes, which `statx` and the block layer report.
//! 2. The scratch file is removed. If the process was killed before, the next probe overwrites the file.
//! 3. A device without space for the scratch file can be used, but only with the capabilities that need no
//!    trial.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::buf::AlignedBuf;
use crate::capabilities::Capabilities;
use crate::error::{DeviceError, ErrorKind, Operation, Result};
use crate::owner;
use crate::sys;

/// The name of the scratch file.
pub(crate) const PROBE_FILE: &str = "varve.probe";
const BLOCK_BYTES: usize = 4096;

/// Probes a directory. If `want_direct` is false, direct I/O is left off. There is no warning, because the
/// caller wants it so.
pub(crate) fn probe(directory: &Path, want_direct: bool) -> Result<Capabilities> {
    let path = directory.join(PROBE_FILE);
    let fail = |error: std::io::Error| {
        let kind = ErrorKind::from_io(&error);
        DeviceError::new(&directory.display().to_string(), Operation::Open, kind)
    };
    let direct = if want_direct { try_direct(&path) } else { None };
    let made = || owner::options().read(true).write(true).create(true).truncate(false).open(&path);
    let file = match direct.as_ref().map_or_else(made, File::try_clone) {
        Err(error) if is_full(&error) => return without_file(directory).map_err(fail),
        made => made.map_err(fail)?,
    };
    let found = match examine(&file, direct.is_some(), want_direct) {
        Err(error) if is_full(&error) => examine_full(&path, &file, want_direct),
        found => found,
    };
    let removed = std::fs::remove_file(&path);
    let found = found.map_err(fail)?;
    removed.map_err(fail)?;
    Ok(found)
}

fn is_full(error: &std::io::Error) -> bool {
    ErrorKind::from_io(error) == ErrorKind::NoSpace
}

/// Returns the capabilities of a device to which nothing can be written now. Direct I/O is used if the kernel
/// reports it. All capabilities that need a trial are off.
fn examine_full(path: &Path, file: &File, want_direct: bool) -> std::io::Result<Capabilities> {
    let facts = sys::statx(file.as_fd())?;
    let direct_io = want_direct
        && facts.direct_offset_align_bytes > 0
        && OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).is_ok();
    Ok(untried(capabilities(&facts, direct_io)))
}

/// Returns the capabilities of a directory in which no file can be made now. Reads and writes use the page
/// cache, which always works.
fn without_file(directory: &Path) -> std::io::Result<Capabilities> {
    let facts = sys::statx(File::open(directory)?.as_fd())?;
    Ok(untried(capabilities(&facts, false)))
}

fn untried(mut found: Capabilities) -> Capabilities {
    found.warnings.push(
        "the device is full, so its capabilities could not be tested: make room and restart, otherwise writes may be slower than necessary"
            .into(),
    );
    found
}

/// Returns the capabilities that are known without a trial.
fn capabilities(facts: &sys::StatxFacts, direct_io: bool) -> Capabilities {
    let logical = facts.direct_offset_align_bytes.clamp(512, 4096);
    let physical = sys::physical_sector_bytes(facts.device_major, facts.device_minor);
    Capabilities {
        backend: "file".into(),
        logical_sector_bytes: logical,
        physical_sector_bytes: physical.unwrap_or(logical),
        direct_io,
        punch_hole: false,
        hole_bytes: 0,
        fua: false,
        io_uring: false,
        atomic_write_min_bytes: 0,
        atomic_write_bytes: 0,
        dax: facts.dax,
        warnings: Vec::new(),
    }
}

/// Returns the scratch file opened for direct I/O, if a block can be written and read that way.
fn try_direct(path: &Path) -> Option<File> {
    let mut how = owner::options();
    how.read(true).write(true).create(true).truncate(false).custom_flags(libc::O_DIRECT);
    let file = how.open(path).ok()?;
    let mut block = AlignedBuf::new(BLOCK_BYTES);
    file.write_all_at(&block, 0).ok()?;
    file.read_exact_at(&mut block, 0).ok()?;
    Some(file)
}

fn examine(file: &File, direct_io: bool, want_direct: bool) -> std::io::Result<Capabilities> {
    let block = AlignedBuf::new(BLOCK_BYTES);
    file.write_all_at(&block, 0)?;
    let facts = sys::statx(file.as_fd())?;
    let fua = sys::write_durable(file.as_fd(), &block, 0).is_ok();
    let punch_hole = sys::punch(file.as_fd(), 0, BLOCK_BYTES as u64).is_ok();
    let mut found = capabilities(&facts, direct_io);
    // With the page cache, the kernel makes a durable write as a write and a flush. An error of this flush
    // may concern earlier writes. Without FUA, the program makes the flush itself, and handles its error as a
    // failed flush.
    (found.fua, found.punch_hole) = (fua && direct_io, punch_hole);
    if punch_hole {
        found.hole_bytes = u32::try_from(file.metadata()?.blksize()).unwrap_or(0);
    }
    if direct_io && is_atomic(file, &facts) {
        found.atomic_write_min_bytes = facts.atomic_write_bytes_min;
        found.atomic_write_bytes = facts.atomic_write_bytes_max;
    }
    if want_direct && !direct_io {
        found.warnings.push("no direct I/O here, so reads and writes go through the page cache".into());
    }
    if !punch_hole {
        found.warnings.push("no hole punching here, so freed pages keep their space".into());
    }
    Ok(found)
}

/// Returns whether the smallest atomic write that `statx` promises succeeds.
fn is_atomic(file: &File, facts: &sys::StatxFacts) -> bool {
    let bytes = facts.atomic_write_bytes_min as usize;
    bytes > 0
        && sys::write_atomic(file.as_fd(), &AlignedBuf::new(bytes), 0, true).is_ok_and(|wrote| wrote == bytes)
}

/// Returns the capabilities of a directory that must not be written to.
pub(crate) fn read_only() -> Capabilities {
    Capabilities {
        backend: "file, read-only".into(),
        logical_sector_bytes: 512,
        physical_sector_bytes: 512,
        direct_io: false,
        punch_hole: false,
        hole_bytes: 0,
        fua: false,
        io_uring: false,
        atomic_write_min_bytes: 0,
        atomic_write_bytes: 0,
        dax: false,
        warnings: Vec::new(),
    }
}
