//! A recorder for crash tests. It passes every operation to the device below, and keeps a list of the
//! operations that change stored data. Crash images are built from this list (see [`crate::Timeline`]).
//!
//! Invariants
//! 1. One list orders the events of all devices that record into it. The times `submitted` and `completed` of
//!    an event are ticks of one clock. An event that failed or has not returned has no completion.
//! 2. Files have numbers. A file keeps its number when it is renamed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::accounting::Accounting;
use crate::block::{BlockFile, Create, Directory, Durability, Location, OpenHow, ReadOp, WriteOp};
use crate::capabilities::Capabilities;
use crate::error::Result;
use crate::memory::{MemoryDirectory, MemoryImage};
use crate::purpose::{Purpose, Space};
use crate::region::{self, Region, RegionFacts, RegionTally, UNFINISHED};

/// The number of a device within a record log. Devices are numbered in the order in which they were wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceNo(pub usize);

/// The number of a file within a record log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileNo(pub usize);

/// A tick that is later than all others. It means that an event did not complete.
pub const NEVER: u64 = u64::MAX;

/// A change of the medium, or an event that makes changes durable.
#[derive(Debug, Clone)]
pub enum Change {
    /// Bytes written to a file.
    Write {
        /// The file.
        file: FileNo,
        /// The byte offset.
        offset: u64,
        /// The bytes.
        bytes: Arc<[u8]>,
        /// Whether the write had to be durable without a flush.
        durability: Durability,
        /// Whether the write is atomic.
        atomic: bool,
    },
    /// Bytes stored to a region, within one cache line.
    Store {
        /// The region.
        file: FileNo,
        /// The byte offset.
        offset: u64,
        /// The bytes.
        bytes: Arc<[u8]>,
    },
    /// Cache lines of a region on their way to the medium.
    WriteBack {
        /// The region.
        file: FileNo,
        /// The byte offset.
        offset: u64,
        /// The length of the range.
        len_bytes: u64,
    },
    /// A fence: the write-backs before it are durable when it returns.
    Fence,
    /// A file's length set.
    SetLen {
        /// The file.
        file: FileNo,
        /// The new length.
        len_bytes: u64,
    },
    /// A range of a file given back.
    Punch {
        /// The file.
        file: FileNo,
        /// The byte offset.
        offset: u64,
        /// The length of the range.
        len_bytes: u64,
    },
    /// A file flushed.
    Flush {
        /// The file.
        file: FileNo,
    },
    /// A name given to a new, empty file.
    Create {
        /// The name.
        name: String,
        /// The file.
        file: FileNo,
    },
    /// A file's name changed.
    Rename {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
    /// A name removed.
    Remove {
        /// The name.
        name: String,
    },
    /// The directory synced.
    SyncDirectory,
    /// A mark of the harness (for example "commit 7 was acknowledged").
    Mark(u64),
}

/// One recorded event.
#[derive(Debug, Clone)]
pub struct Event {
    /// The device of the event. Marks have device 0.
    pub device: DeviceNo,
    /// The thread of the event. It matters because a fence waits only for write-backs of its own thread.
    pub thread: u32,
    /// The tick before the operation was passed to the device below.
    pub submitted: u64,
    /// The tick after the operation had succeeded, or [`NEVER`].
    pub completed: u64,
    /// What the event has changed.
    pub change: Change,
}

/// The number of the next thread that records.
static THREADS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static THREAD: u32 = THREADS.fetch_add(1, Relaxed);
}

/// State of a device when recording began.
#[derive(Clone)]
pub(crate) struct Initial {
    pub files: Vec<(FileNo, MemoryImage)>,
    pub names: BTreeMap<String, FileNo>,
}

#[derive(Default)]
struct Log {
    tick: u64,
    events: Vec<Event>,
    file_spaces: Vec<Option<Space>>,
    devices: Vec<Initial>,
}

impl Log {
    fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    fn new_file(&mut self) -> FileNo {
        self.file_spaces.push(None);
        FileNo(self.file_spaces.len() - 1)
    }
}

/// The log of one or more recorded devices.
#[derive(Default)]
pub struct RecordLog {
    log: Mutex<Log>,
}

/// A finished recording.
#[derive(Clone)]
pub struct Recording {
    /// All events, in order of submission.
    pub events: Vec<Event>,
    /// The space of each file, by the file's number; `None` if the file was never opened.
    pub file_spaces: Vec<Option<Space>>,
    pub(crate) devices: Vec<Initial>,
    /// One more than the last tick.
    pub end: u64,
}

impl RecordLog {
    /// Returns an empty log.
    pub fn new() -> Arc<RecordLog> {
        Arc::default()
    }

    /// Records a mark of the test harness.
    pub fn mark(&self, note: u64) {
        let index = self.submit(DeviceNo(0), Change::Mark(note));
        self.complete(index..index + 1);
    }

    /// Returns the present tick. The next event will have a later one.
    pub fn now(&self) -> u64 {
        self.log.lock().tick
    }

    /// Returns a copy of everything recorded so far.
    pub fn recording(&self) -> Recording {
        let log = self.log.lock();
        Recording {
            events: log.events.clone(),
            file_spaces: log.file_spaces.clone(),
            devices: log.devices.clone(),
            end: log.tick + 1,
        }
    }

    fn submit(&self, device: DeviceNo, change: Change) -> usize {
        let mut log = self.log.lock();
        let submitted = log.tick();
        let thread = THREAD.with(|number| *number);
        log.events.push(Event { device, thread, submitted, completed: NEVER, change });
        log.events.len() - 1
    }

    fn complete(&self, events: std::ops::Range<usize>) {
        let mut log = self.log.lock();
        for index in events {
            let completed = log.tick();
            if let Some(event) = log.events.get_mut(index) {
                event.completed = completed;
            }
        }
    }

    /// Runs an operation, and records its change with the ticks before and after it.
    fn around<T>(&self, device: DeviceNo, change: Change, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let index = self.submit(device, change);
        let done = run()?;
        self.complete(index..index + 1);
        Ok(done)
    }
}

/// A directory in memory whose changes are recorded.
pub struct Recorder {
    inner: Arc<dyn Directory>,
    log: Arc<RecordLog>,
    device: DeviceNo,
    names: Mutex<BTreeMap<String, FileNo>>,
}

impl Recorder {
    /// Records the changes of `inner` from its present state on.
    pub fn wrap(inner: Arc<MemoryDirectory>, log: Arc<RecordLog>) -> Arc<Recorder> {
        let images = inner.images();
        Recorder::wrap_from(inner, images, log)
    }

    /// Records the changes of any directory that holds `images` at present.
    pub fn wrap_from(
        inner: Arc<dyn Directory>,
        images: Vec<(String, MemoryImage)>,
        log: Arc<RecordLog>,
    ) -> Arc<Recorder> {
        let mut state = log.log.lock();
        let mut initial = Initial { files: Vec::new(), names: BTreeMap::new() };
        for (name, image) in images {
            let file = state.new_file();
            initial.files.push((file, image));
            initial.names.insert(name, file);
        }
        let device = DeviceNo(state.devices.len());
        let names = Mutex::new(initial.names.clone());
        state.devices.push(initial);
        drop(state);
        Arc::new(Recorder { inner, log, device, names })
    }
}

impl Recorder {
    /// Records a change that cannot fail.
    fn note(&self, change: Change) {
        let index = self.log.submit(self.device, change);
        self.log.complete(index..index + 1);
    }

    /// Records how a new region is made: it gets its name when it is complete. A file that an unfinished
    /// attempt has left is used again.
    fn note_new_region(&self, names: &mut BTreeMap<String, FileNo>, name: &str, len_bytes: u64) -> FileNo {
        let new = format!("{name}{UNFINISHED}");
        let file = names.remove(&new).unwrap_or_else(|| {
            let file = self.log.log.lock().new_file();
            self.note(Change::Create { name: new.clone(), file });
            file
        });
        self.note(Change::SetLen { file, len_bytes: 0 });
        self.note(Change::SetLen { file, len_bytes });
        self.note(Change::Flush { file });
        self.note(Change::Rename { from: new, to: name.to_string() });
        self.note(Change::SyncDirectory);
        file
    }

    fn note_space(&self, file: FileNo, space: Space) {
        if let Some(slot) = self.log.log.lock().file_spaces.get_mut(file.0) {
            *slot = Some(space);
        }
    }
}

impl Directory for Recorder {
    fn open(&self, name: &str, how: OpenHow) -> Result<Arc<dyn BlockFile>> {
        let mut names = self.names.lock();
        let known = names.get(name).copied();
        let (file, inner) = match known {
            Some(file) => (file, self.inner.open(name, how)?),
            None if how.create == Create::Never => {
                // The directory below returns the error.
                (FileNo(0), self.inner.open(name, how)?)
            }
            None => {
                let file = self.log.log.lock().new_file();
                let change = Change::Create { name: name.to_string(), file };
                let inner = self.log.around(self.device, change, || self.inner.open(name, how))?;
                names.insert(name.to_string(), file);
                (file, inner)
            }
        };
        self.note_space(file, how.space);
        Ok(Arc::new(RecordedFile { inner, log: Arc::clone(&self.log), device: self.device, file }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut names = self.names.lock();
        let change = Change::Rename { from: from.to_string(), to: to.to_string() };
        self.log.around(self.device, change, || self.inner.rename(from, to))?;
        if let Some(file) = names.remove(from) {
            names.insert(to.to_string(), file);
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut names = self.names.lock();
        let change = Change::Remove { name: name.to_string() };
        self.log.around(self.device, change, || self.inner.remove(name))?;
        names.remove(name);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.log.around(self.device, Change::SyncDirectory, || self.inner.sync())
    }

    fn map(&self, name: &str, len_bytes: u64) -> Result<Arc<dyn Region>> {
        let mut names = self.names.lock();
        let inner = self.inner.map(name, len_bytes)?;
        let file = match names.get(name) {
            Some(file) => *file,
            None => {
                let file = self.note_new_region(&mut names, name, len_bytes);
                names.insert(name.to_string(), file);
                file
            }
        };
        self.note_space(file, Space::Nvm);
        Ok(Arc::new(RecordedRegion { inner, log: Arc::clone(&self.log), device: self.device, file }))
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }

    fn identity(&self, name: &str) -> Result<Option<u64>> {
        self.inner.identity(name)
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn accounting(&self) -> &Arc<Accounting> {
        self.inner.accounting()
    }

    fn location(&self) -> String {
        self.inner.location()
    }
}

struct RecordedFile {
    inner: Arc<dyn BlockFile>,
    log: Arc<RecordLog>,
    device: DeviceNo,
    file: FileNo,
}

impl RecordedFile {
    fn around(&self, change: Change, run: impl FnOnce() -> Result<()>) -> Result<()> {
        self.log.around(self.device, change, run)
    }

    fn write(&self, offset: u64, bytes: &[u8], durability: Durability) -> Change {
        Change::Write { file: self.file, offset, bytes: bytes.into(), durability, atomic: false }
    }
}

impl BlockFile for RecordedFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn location(&self) -> &Location {
        self.inner.location()
    }

    fn len_bytes(&self) -> Result<u64> {
        self.inner.len_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.inner.sector_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], why: Purpose) -> Result<()> {
        self.inner.read_at(offset, buf, why)
    }

    fn read_batch(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        self.inner.read_batch(ops)
    }

    fn write_at(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()> {
        let change = self.write(offset, buf, durability);
        self.around(change, || self.inner.write_at(offset, buf, why, durability))
    }

    fn write_atomic(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()> {
        let change = Change::Write { file: self.file, offset, bytes: buf.into(), durability, atomic: true };
        self.around(change, || self.inner.write_atomic(offset, buf, why, durability))
    }

    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        let submit =
            |op: &WriteOp<'_>| self.log.submit(self.device, self.write(op.offset, op.buf, op.durability));
        let indexes: Vec<usize> = ops.iter().map(submit).collect();
        self.inner.write_batch(ops)?;
        indexes.into_iter().for_each(|index| self.log.complete(index..index + 1));
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.around(Change::Flush { file: self.file }, || self.inner.flush())
    }

    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()> {
        let change = Change::Punch { file: self.file, offset, len_bytes };
        self.around(change, || self.inner.punch(offset, len_bytes))
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.around(Change::SetLen { file: self.file, len_bytes }, || self.inner.set_len(len_bytes))
    }

    /// Records nothing, because no byte changes.
    fn reserve(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.inner.reserve(offset, len_bytes)
    }
}

struct RecordedRegion {
    inner: Arc<dyn Region>,
    log: Arc<RecordLog>,
    device: DeviceNo,
    file: FileNo,
}

impl RecordedRegion {
    fn note(&self, change: Change) {
        let index = self.log.submit(self.device, change);
        self.log.complete(index..index + 1);
    }
}

impl Region for RecordedRegion {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) {
        self.inner.read(offset, buf);
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        self.inner.store(offset, bytes);
        region::for_each_line(offset, bytes, |offset, part| {
            self.note(Change::Store { file: self.file, offset, bytes: part.into() });
        });
    }

    fn write_back(&self, offset: u64, len_bytes: u64) {
        self.inner.write_back(offset, len_bytes);
        self.note(Change::WriteBack { file: self.file, offset, len_bytes });
    }

    fn fence(&self) {
        let index = self.log.submit(self.device, Change::Fence);
        self.inner.fence();
        self.log.complete(index..index + 1);
    }

    fn facts(&self) -> RegionFacts {
        self.inner.facts()
    }

    fn tally(&self) -> RegionTally {
        self.inner.tally()
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }
}
