//! A device that is a directory of a real file system.
//!
//! Invariants
//! 1. A file has one descriptor. If the file is already open, opening it again returns the same descriptor. A
//!    second descriptor could miss an earlier write-back error of the kernel.
//! 2. After a failed flush or durable write, all writes and flushes of the file fail, on every handle. This
//!    ends when the last handle is closed.
//! 3. `read_at` and `write_at` allocate no memory.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::accounting::Accounting;
use crate::block::{
    BlockFile, Create, Directory, Durability, Location, OpenHow, ReadOp, WriteOp, assert_aligned, check_name,
};
use crate::buf::AlignedBuf;
use crate::capabilities::Capabilities;
use crate::error::{DeviceError, ErrorKind, Operation, Result};
use crate::identity;
use crate::lock::DirLock;
use crate::mapped;
use crate::owner::{self, create_directory};
use crate::probe;
use crate::purpose::{Io, Purpose, Space};
use crate::region::Region;
use crate::sys;
use crate::uring::{RingPool, Transfer};

/// If the file system can't reserve room, zeros are written in pieces of this many bytes.
const FILL_BYTES: usize = 1 << 20;

/// How to use a directory of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileOptions {
    /// Whether reads and writes bypass the page cache, if the file system allows it.
    pub direct_io: bool,
    /// Whether batches are submitted through io_uring, if the kernel allows it.
    pub io_uring: bool,
    /// Whether the directory may not be changed. If it may not, not even a scratch file is made.
    pub read_only: bool,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions { direct_io: true, io_uring: true, read_only: false }
    }
}

/// A directory of files.
pub struct FileDirectory {
    path: PathBuf,
    capabilities: Capabilities,
    shared: Arc<Shared>,
    open_files: Mutex<HashMap<String, Weak<Descriptor>>>,
    next_number: AtomicU32,
    read_only: bool,
    /// Whether files that are only read bypass the page cache, if the file system allows it. Nothing was
    /// probed, so each opening tries it.
    tries_direct: bool,
    /// The lock of the directory, if the directory keeps it.
    _lock: Option<DirLock>,
}

/// The parts of a directory that its open files need.
struct Shared {
    accounting: Arc<Accounting>,
    rings: RingPool,
    sector_bytes: u32,
    fua: bool,
    /// Bytes of the smallest and the largest atomic write; 0 if there are none.
    atomic_bytes: (u32, u32),
}

/// An open file of the kernel.
struct Descriptor {
    file: File,
    number: u32,
    writable: bool,
    poisoned: AtomicBool,
}

impl FileDirectory {
    /// Opens an existing directory and probes it.
    ///
    /// Errors name the directory: missing, read-only, gone.
    pub fn open(path: &Path, options: FileOptions) -> Result<Arc<FileDirectory>> {
        FileDirectory::open_with(path, options, None, Arc::default())
    }

    /// Like [`FileDirectory::open`], but counts the operations in counters that another device has, too.
    pub fn open_counted(
        path: &Path,
        options: FileOptions,
        accounting: Arc<Accounting>,
    ) -> Result<Arc<FileDirectory>> {
        FileDirectory::open_with(path, options, None, accounting)
    }

    /// Like [`FileDirectory::open`], but first locks the directory. The lock lasts as long as the directory.
    pub fn open_locked(path: &Path, options: FileOptions) -> Result<Arc<FileDirectory>> {
        let lock = DirLock::take(path)?;
        FileDirectory::open_with(path, options, Some(lock), Arc::default())
    }

    fn open_with(
        path: &Path,
        options: FileOptions,
        lock: Option<DirLock>,
        accounting: Arc<Accounting>,
    ) -> Result<Arc<FileDirectory>> {
        let mut capabilities = if options.read_only {
            std::fs::read_dir(path).map_err(|error| whole(path, Operation::Open, &error))?;
            probe::read_only()
        } else {
            probe::probe(path, options.direct_io)?
        };
        let rings = RingPool::new(options.io_uring);
        capabilities.io_uring = rings.available();
        if options.io_uring && !rings.available() {
            capabilities
                .warnings
                .push("the kernel offers no io_uring, so batches use plain system calls".into());
        }
        let shared = Shared {
            accounting,
            rings,
            sector_bytes: capabilities.sector_bytes(),
            fua: capabilities.fua,
            atomic_bytes: (capabilities.atomic_write_min_bytes, capabilities.atomic_write_bytes),
        };
        Ok(Arc::new(FileDirectory {
            path: path.to_path_buf(),
            capabilities,
            shared: Arc::new(shared),
            open_files: Mutex::default(),
            next_number: AtomicU32::new(0),
            read_only: options.read_only,
            tries_direct: options.read_only && options.direct_io,
            _lock: lock,
        }))
    }

    /// Does the same as [`FileDirectory::open`], but first makes the directory, durably, if it is missing.
    pub fn open_or_create(path: &Path, options: FileOptions) -> Result<Arc<FileDirectory>> {
        create_directory(path).map_err(|error| whole(path, Operation::Open, &error))?;
        FileDirectory::open(path, options)
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the whole path of a file in this directory.
    fn full(&self, name: &str, operation: Operation) -> Result<PathBuf> {
        check_name(name, operation)?;
        Ok(self.path.join(name))
    }

    fn open_descriptor(&self, path: &Path, how: OpenHow) -> Result<Arc<Descriptor>> {
        let mut options = owner::options();
        // The kernel creates a file only with a descriptor for writing.
        let writable = !how.read_only || how.create != Create::Never;
        options.read(true).write(writable && !self.read_only);
        match how.create {
            Create::Never => {}
            Create::IfMissing if self.read_only => {}
            Create::IfMissing => drop(options.create(true)),
            Create::MustBeNew if self.read_only => {
                let path = path.display().to_string();
                return Err(DeviceError::new(&path, Operation::Open, ErrorKind::ReadOnly));
            }
            Create::MustBeNew => drop(options.create_new(true)),
        }
        if self.capabilities.direct_io || self.tries_direct {
            options.custom_flags(libc::O_DIRECT);
        }
        let opened = match options.open(path) {
            Err(error) if self.tries_direct && error.raw_os_error() == Some(libc::EINVAL) => {
                options.custom_flags(0).open(path)
            }
            opened => opened,
        };
        let file = opened.map_err(|error| whole(path, Operation::Open, &error))?;
        if writable && !self.read_only {
            owner::tighten(&file);
        }
        let number = self.next_number.fetch_add(1, Relaxed);
        let poisoned = AtomicBool::new(false);
        Ok(Arc::new(Descriptor { file, number, writable: writable && !self.read_only, poisoned }))
    }

    fn descriptor(&self, name: &str, path: &Path, how: OpenHow) -> Result<Arc<Descriptor>> {
        let mut open_files = self.open_files.lock();
        let held = open_files.get(name).and_then(Weak::upgrade);
        if let Some(descriptor) = held.filter(|held| held.writable || how.read_only) {
            if how.create == Create::MustBeNew {
                let path = path.display().to_string();
                return Err(DeviceError::new(&path, Operation::Open, ErrorKind::AlreadyExists));
            }
            return Ok(descriptor);
        }
        let descriptor = self.open_descriptor(path, how)?;
        open_files.retain(|_, held| held.strong_count() > 0);
        open_files.insert(name.to_string(), Arc::downgrade(&descriptor));
        Ok(descriptor)
    }
}

/// Returns whether an entry of a directory is a file, or a link to a file.
fn is_file(entry: &std::fs::DirEntry) -> std::io::Result<bool> {
    let kind = entry.file_type()?;
    Ok(kind.is_file() || kind.is_symlink() && std::fs::metadata(entry.path()).is_ok_and(|to| to.is_file()))
}

fn whole(path: &Path, operation: Operation, error: &std::io::Error) -> DeviceError {
    DeviceError::new(&path.display().to_string(), operation, ErrorKind::from_io(error))
}

impl Directory for FileDirectory {
    fn open(&self, name: &str, how: OpenHow) -> Result<Arc<dyn BlockFile>> {
        let read_only = how.read_only || self.read_only;
        let how = OpenHow { read_only, ..how };
        let path = self.full(name, Operation::Open)?;
        Ok(Arc::new(OpenFile {
            name: name.into(),
            location: Location::new(path.display().to_string()),
            descriptor: self.descriptor(name, &path, how)?,
            space: how.space,
            read_only,
            shared: Arc::clone(&self.shared),
        }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        let path = self.full(name, Operation::Stat)?;
        path.try_exists().map_err(|error| whole(&path, Operation::Stat, &error))
    }

    fn list(&self) -> Result<Vec<String>> {
        let fail = |error: std::io::Error| whole(&self.path, Operation::Stat, &error);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            if is_file(&entry).map_err(fail)? {
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort();
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut open_files = self.open_files.lock();
        let [old, new] = [from, to].map(|name| self.full(name, Operation::Rename));
        let old = old?;
        std::fs::rename(&old, new?).map_err(|error| whole(&old, Operation::Rename, &error))?;
        match open_files.remove(from) {
            Some(descriptor) => drop(open_files.insert(to.to_string(), descriptor)),
            None => drop(open_files.remove(to)),
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut open_files = self.open_files.lock();
        let path = self.full(name, Operation::Remove)?;
        std::fs::remove_file(&path).map_err(|error| whole(&path, Operation::Remove, &error))?;
        open_files.remove(name);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let synced = File::open(&self.path).and_then(|directory| directory.sync_all());
        synced.map_err(|error| whole(&self.path, Operation::SyncDirectory, &error))
    }

    fn map(&self, name: &str, len_bytes: u64) -> Result<Arc<dyn Region>> {
        let path = self.full(name, Operation::Open)?;
        if self.read_only {
            return Err(DeviceError::new(&path.display().to_string(), Operation::Open, ErrorKind::ReadOnly));
        }
        Ok(mapped::map(&path, len_bytes)?)
    }

    fn free_bytes(&self) -> Option<u64> {
        File::open(&self.path).and_then(|directory| sys::free_bytes(directory.as_fd())).ok()
    }

    fn identity(&self, name: &str) -> Result<Option<u64>> {
        let path = self.full(name, Operation::Stat)?;
        File::open(&path)
            .and_then(|file| identity::of(&file))
            .map_err(|error| whole(&path, Operation::Stat, &error))
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn accounting(&self) -> &Arc<Accounting> {
        &self.shared.accounting
    }

    fn location(&self) -> String {
        self.path.display().to_string()
    }
}

struct OpenFile {
    name: Box<str>,
    location: Location,
    descriptor: Arc<Descriptor>,
    space: Space,
    read_only: bool,
    shared: Arc<Shared>,
}

impl OpenFile {
    fn io(&self, offset: u64, bytes: usize, why: Purpose) -> Io {
        Io { space: self.space, why, file: self.descriptor.number, offset, bytes: bytes as u64 }
    }

    fn check_writable(&self, operation: Operation) -> Result<()> {
        if self.read_only {
            return Err(DeviceError::new(self.location.text(), operation, ErrorKind::ReadOnly));
        }
        if self.descriptor.poisoned.load(Acquire) {
            return Err(DeviceError::new(self.location.text(), operation, ErrorKind::Poisoned));
        }
        Ok(())
    }

    #[cold]
    fn fail(&self, operation: Operation, offset: u64, error: &std::io::Error) -> DeviceError {
        DeviceError::at(self.location.text(), operation, offset, ErrorKind::from_io(error))
    }

    /// Returns the error of a failed durable write. It is not known which bytes reached the medium, so the
    /// file is poisoned. If the device had no space, the file is not poisoned, because the write may be
    /// repeated.
    #[cold]
    fn fail_durable(&self, operation: Operation, offset: u64, error: &std::io::Error) -> DeviceError {
        let failed = self.fail(operation, offset, error);
        if !failed.is_no_space() {
            self.descriptor.poisoned.store(true, Release);
        }
        failed
    }

    /// Reads the rest of `buf`. Its first `done` bytes have been read already.
    fn read_rest(&self, offset: u64, buf: &mut [u8], mut done: usize) -> Result<()> {
        while done < buf.len() {
            // A read that did not return whole sectors has reached the end of the file. It cannot be
            // continued there, because direct I/O accepts no offset within a sector.
            if !done.is_multiple_of(self.shared.sector_bytes as usize)
                && self.len_bytes()? <= offset + done as u64
            {
                return Err(self.short(Operation::Read, offset, buf.len(), done));
            }
            match self.descriptor.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => return Err(self.short(Operation::Read, offset, buf.len(), done)),
                Ok(more) => done += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.fail(Operation::Read, offset, &error)),
            }
        }
        Ok(())
    }

    /// Writes the rest of `buf`. Its first `done` bytes have been written already.
    fn write_rest(&self, offset: u64, buf: &[u8], mut done: usize, durable: bool) -> Result<()> {
        while done < buf.len() {
            let (rest, at) = (&buf[done..], offset + done as u64);
            let written = if durable {
                sys::write_durable(self.descriptor.file.as_fd(), rest, at)
            } else {
                self.descriptor.file.write_at(rest, at)
            };
            match written {
                Ok(0) => return Err(self.short(Operation::Write, offset, buf.len(), done)),
                Ok(more) => done += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if durable => return Err(self.fail_durable(Operation::Write, offset, &error)),
                Err(error) => return Err(self.fail(Operation::Write, offset, &error)),
            }
        }
        Ok(())
    }

    /// Returns whether the kernel accepts a write of this offset and length as an atomic write
    /// (`generic_atomic_write_valid`).
    fn takes_atomic(&self, offset: u64, len: usize) -> bool {
        let (least, most) = self.shared.atomic_bytes;
        let fits = len.is_power_of_two() && (least as usize..=most as usize).contains(&len);
        most > 0 && fits && offset.is_multiple_of(len as u64)
    }

    /// Makes one atomic write. A short write is an error and is never continued, because the rest would be a
    /// second write.
    fn write_whole(&self, offset: u64, buf: &[u8], durable: bool) -> Result<()> {
        match sys::write_atomic(self.descriptor.file.as_fd(), buf, offset, durable) {
            Ok(written) if written == buf.len() => Ok(()),
            Ok(written) => Err(self.short(Operation::Write, offset, buf.len(), written)),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                Err(DeviceError::at(self.location.text(), Operation::Write, offset, ErrorKind::Unsupported))
            }
            Err(error) if durable => Err(self.fail_durable(Operation::Write, offset, &error)),
            Err(error) => Err(self.fail(Operation::Write, offset, &error)),
        }
    }

    #[cold]
    fn short(&self, operation: Operation, offset: u64, wanted: usize, got: usize) -> DeviceError {
        let (wanted_bytes, got_bytes) = (wanted as u64, got as u64);
        let kind = match operation {
            Operation::Read => ErrorKind::ShortRead { wanted_bytes, got_bytes },
            _ => ErrorKind::ShortWrite { wanted_bytes, got_bytes },
        };
        DeviceError::at(self.location.text(), operation, offset, kind)
    }

    fn sync_data(&self) -> Result<()> {
        let synced = self.descriptor.file.sync_data();
        synced.map_err(|error| {
            // Here even the error "no space" means that the kernel has dropped earlier writes.
            self.descriptor.poisoned.store(true, Release);
            DeviceError::new(self.location.text(), Operation::Flush, ErrorKind::from_io(&error))
        })
    }

    /// Finishes one transfer of a batch: returns its error, or reads the bytes that a short transfer has
    /// left.
    fn finish_read(&self, op: &mut ReadOp<'_>, result: i32) -> Result<()> {
        if result < 0 {
            return Err(self.fail(Operation::Read, op.offset, &std::io::Error::from_raw_os_error(-result)));
        }
        self.read_rest(op.offset, op.buf, result as usize)
    }

    fn finish_write(&self, op: &WriteOp<'_>, result: i32) -> Result<()> {
        let durable = op.durability == Durability::Now;
        if result < 0 {
            let error = std::io::Error::from_raw_os_error(-result);
            return Err(match durable {
                true => self.fail_durable(Operation::Write, op.offset, &error),
                false => self.fail(Operation::Write, op.offset, &error),
            });
        }
        self.write_rest(op.offset, op.buf, result as usize, durable)
    }

    /// Reserves room if the file system can't do it: writes zeros into the whole sectors between `from` and
    /// `to`.
    fn fill(&self, from: u64, to: u64) -> std::io::Result<()> {
        let sector = u64::from(self.shared.sector_bytes);
        let (mut at, end) = (from.next_multiple_of(sector), to / sector * sector);
        let zeros = AlignedBuf::new(FILL_BYTES);
        while at < end {
            let step = (end - at).min(FILL_BYTES as u64) as usize;
            at += match self.descriptor.file.write_at(&zeros[..step], at) {
                Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => 0,
                written => written? as u64,
            };
        }
        Ok(())
    }

    fn read_singly(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        ops.iter_mut().try_for_each(|op| self.read_at(op.offset, op.buf, op.why))
    }

    fn write_singly(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        ops.iter().try_for_each(|op| self.write_at(op.offset, op.buf, op.why, op.durability))
    }
}

impl BlockFile for OpenFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn location(&self) -> &Location {
        &self.location
    }

    fn len_bytes(&self) -> Result<u64> {
        let found = self.descriptor.file.metadata();
        let found = found.map_err(|error| {
            DeviceError::new(self.location.text(), Operation::Stat, ErrorKind::from_io(&error))
        })?;
        Ok(found.len())
    }

    fn sector_bytes(&self) -> u32 {
        self.shared.sector_bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], why: Purpose) -> Result<()> {
        assert_aligned(self.shared.sector_bytes, offset, buf);
        let started = self.shared.accounting.start();
        self.read_rest(offset, buf, 0)?;
        self.shared.accounting.count_read(self.io(offset, buf.len(), why), started);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()> {
        assert_aligned(self.shared.sector_bytes, offset, buf);
        self.check_writable(Operation::Write)?;
        let durable = durability == Durability::Now;
        let started = self.shared.accounting.start();
        self.write_rest(offset, buf, 0, durable && self.shared.fua)?;
        if durable && !self.shared.fua {
            self.sync_data()?;
        }
        self.shared.accounting.count_write(self.io(offset, buf.len(), why), durable, started);
        Ok(())
    }

    fn write_atomic(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()> {
        assert_aligned(self.shared.sector_bytes, offset, buf);
        self.check_writable(Operation::Write)?;
        if !self.takes_atomic(offset, buf.len()) {
            return Err(DeviceError::at(
                self.location.text(),
                Operation::Write,
                offset,
                ErrorKind::Unsupported,
            ));
        }
        let durable = durability == Durability::Now;
        let started = self.shared.accounting.start();
        self.write_whole(offset, buf, durable && self.shared.fua)?;
        if durable && !self.shared.fua {
            self.sync_data()?;
        }
        self.shared.accounting.count_write(self.io(offset, buf.len(), why), durable, started);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.check_writable(Operation::Flush)?;
        let started = self.shared.accounting.start();
        self.sync_data()?;
        // A flush through another handle may have failed at the same time. The kernel reports an error only
        // once, so that flush may have got the error that also concerns this one.
        self.check_writable(Operation::Flush)?;
        self.shared.accounting.count_flush(self.space, started);
        Ok(())
    }

    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.check_writable(Operation::Punch)?;
        if len_bytes == 0 {
            return Ok(());
        }
        let punched = sys::punch(self.descriptor.file.as_fd(), offset, len_bytes);
        punched.map_err(|error| self.fail(Operation::Punch, offset, &error))?;
        self.shared.accounting.count_punch(self.space, len_bytes);
        Ok(())
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.check_writable(Operation::SetLen)?;
        let old_bytes = self.len_bytes()?;
        if len_bytes > old_bytes {
            let fd = self.descriptor.file.as_fd();
            let reserved = match sys::allocate(fd, old_bytes, len_bytes - old_bytes) {
                Err(error) if ErrorKind::from_io(&error) == ErrorKind::Unsupported => {
                    self.fill(old_bytes, len_bytes)
                }
                reserved => reserved,
            };
            if let Err(error) = reserved {
                // The file system may have made the file longer by the room that it still had, and other
                // files need this room. It is no error if this room cannot be freed, because the bytes after
                // the old length are not used.
                let _longer_than_asked = self.descriptor.file.set_len(old_bytes);
                return Err(self.fail(Operation::SetLen, len_bytes, &error));
            }
        }
        let set = self.descriptor.file.set_len(len_bytes);
        set.map_err(|error| self.fail(Operation::SetLen, len_bytes, &error))
    }

    fn reserve(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.check_writable(Operation::Reserve)?;
        if len_bytes == 0 {
            return Ok(());
        }
        match sys::allocate(self.descriptor.file.as_fd(), offset, len_bytes) {
            // The room cannot be reserved, so later writes may fail for lack of room.
            Err(error) if ErrorKind::from_io(&error) == ErrorKind::Unsupported => Ok(()),
            reserved => reserved.map_err(|error| self.fail(Operation::Reserve, offset, &error)),
        }
    }

    fn read_batch(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        if ops.len() < 2 || !self.shared.rings.available() {
            return self.read_singly(ops);
        }
        ops.iter().for_each(|op| assert_aligned(self.shared.sector_bytes, op.offset, op.buf));
        let started = self.shared.accounting.start();
        let mut results = vec![0_i32; ops.len()];
        let mut transfers: Vec<_> = ops.iter_mut().map(Transfer::Read).collect();
        let fd = self.descriptor.file.as_fd();
        if !self.shared.rings.run(fd, &mut transfers, |index, result| results[index] = result) {
            return self.read_singly(ops);
        }
        ops.iter_mut().zip(results).try_for_each(|(op, result)| {
            self.finish_read(op, result)?;
            self.shared.accounting.count_read(self.io(op.offset, op.buf.len(), op.why), started);
            Ok(())
        })
    }

    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        let flushes = !self.shared.fua && ops.iter().any(|op| op.durability == Durability::Now);
        if ops.len() < 2 || flushes || !self.shared.rings.available() {
            return self.write_singly(ops);
        }
        self.check_writable(Operation::Write)?;
        ops.iter().for_each(|op| assert_aligned(self.shared.sector_bytes, op.offset, op.buf));
        let started = self.shared.accounting.start();
        let mut results = vec![0_i32; ops.len()];
        let mut transfers: Vec<_> = ops.iter().map(Transfer::Write).collect();
        let fd = self.descriptor.file.as_fd();
        if !self.shared.rings.run(fd, &mut transfers, |index, result| results[index] = result) {
            return self.write_singly(ops);
        }
        // All results are examined. An error for lack of room may be followed by a second try, so it must not
        // hide another error.
        let mut outcome = Ok(());
        for (op, result) in ops.iter().zip(results) {
            match self.finish_write(op, result) {
                Ok(()) => {
                    let durable = op.durability == Durability::Now;
                    self.shared.accounting.count_write(
                        self.io(op.offset, op.buf.len(), op.why),
                        durable,
                        started,
                    );
                }
                Err(error) if outcome.as_ref().err().is_none_or(DeviceError::is_no_space) => {
                    outcome = Err(error)
                }
                Err(_) => {}
            }
        }
        outcome
    }
}
