//! The segment files of the log. They have a fixed size, are filled with zeros once, and are reused with a
//! new number in the header.
//!
//! Invariants
//! 1. A file gets its final name only after it was filled with zeros and flushed at full length. So a write
//!    to the log never grows a file. Otherwise each commit would need a metadata transaction of the file
//!    system.
//! 2. A segment's header is durable before the first block is written into the segment.
//! 3. No two files have the same number.
//! 4. A file is reused only when the control file needs nothing in it. The caller checks this.
//! 5. A log with two files survives a full device: one file is written while the other is emptied and reused.
//!
//! This module does not know blocks, LSNs of records, or why the log is truncated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use varve_device::{AlignedBuf, BlockFile, Directory, Durability, OpenHow, Purpose, Space, planted, reached};

use super::LogError;
use super::format::{Geometry, SEGMENT_HEADER_BYTES, SegmentHeader};
use super::kept::Kept;
use crate::base::lsn::LSN_MAX;

const NAME_PREFIX: &str = "log.";
const UNFINISHED_SUFFIX: &str = ".new";
/// File numbers are used in turn, and after the last one from the beginning again. There are far more numbers
/// than a log has files. A copy that a user has named with a date (`log.20261122`) has a number beyond this
/// limit, so it is not taken for a log file.
const SLOTS_MAX: u32 = 1_000_000;
const FILL_BYTES: usize = 1 << 20;
/// If the log has fewer files than this, a full device is an error. Otherwise an old file is reused.
const FILES_MIN: usize = 2;
const NOTHING_PREPARED: u64 = u64::MAX;

/// The segment files of one database.
pub(crate) struct Segments {
    directory: Arc<dyn Directory>,
    geometry: Geometry,
    database: u64,
    /// The largest number of files that the log may have.
    files_max: usize,
    /// Whether the device had no space for another file. This is reset when files become reusable, so that
    /// another file is tried again.
    is_device_full: AtomicBool,
    files: Mutex<Files>,
    /// Held while a segment is made or renumbered, so that only one thread does this at a time.
    making: Mutex<()>,
    /// The highest number of a segment that may be written to, or `NOTHING_PREPARED` if there is none.
    prepared: AtomicU64,
    /// Bytes that are kept for a second reading.
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Files {
    /// Segments that are in use or prepared, by number.
    live: BTreeMap<u64, Arc<dyn BlockFile>>,
    /// Files that can be reused, by the number that their header still has.
    spare: BTreeMap<u64, Arc<dyn BlockFile>>,
    /// Files whose header could not be read. They can be reused, too.
    blank: Vec<Arc<dyn BlockFile>>,
    next_slot: u32,
}

impl Files {
    fn reusable_count(&self) -> usize {
        self.spare.len() + self.blank.len()
    }

    fn count(&self) -> usize {
        self.live.len() + self.reusable_count()
    }
}

impl Segments {
    /// Finds the segment files in `directory`, and removes unfinished ones.
    ///
    /// Fails when a segment belongs to another database or has another size.
    pub(crate) fn open(
        directory: Arc<dyn Directory>,
        geometry: Geometry,
        capacity_bytes: u64,
        database: u64,
    ) -> Result<Segments, LogError> {
        let files_max =
            usize::try_from(capacity_bytes / geometry.segment_bytes()).unwrap_or(usize::MAX - 1) + 1;
        let segments = Segments {
            directory,
            geometry,
            database,
            files_max,
            is_device_full: AtomicBool::new(false),
            files: Mutex::new(Files::default()),
            making: Mutex::new(()),
            prepared: AtomicU64::new(NOTHING_PREPARED),
            kept: Mutex::default(),
        };
        let (unfinished, names): (Vec<String>, Vec<String>) =
            segments.directory.list()?.into_iter().partition(|name| is_unfinished(name));
        segments.remove_unfinished(&unfinished)?;
        names.iter().try_for_each(|name| segments.open_one(name))?;
        Ok(segments)
    }

    /// Removes unfinished files durably. So if a new file gets the same name, a crash cannot bring the old
    /// one back.
    fn remove_unfinished(&self, names: &[String]) -> Result<(), LogError> {
        names.iter().try_for_each(|name| self.directory.remove(name))?;
        if names.is_empty() { Ok(()) } else { Ok(self.directory.sync()?) }
    }

    /// Removes the log files in `directory`, unless one of them belongs to another database than `database`.
    /// Other files stay, even if their name is that of a log file (`log.0099`), because people keep other
    /// files in their data directory.
    pub(crate) fn remove_of(directory: &dyn Directory, database: u64) -> Result<(), LogError> {
        let Owned { ours, foreign } = owned(directory, database)?;
        match foreign {
            Some((file, database)) => Err(LogError::Foreign { file, database }),
            None => remove(directory, &ours),
        }
    }

    /// Fails if one of the log files of `database` in `directory` has a block.
    pub(crate) fn refuse_begun(directory: &dyn Directory, database: u64) -> Result<(), LogError> {
        for name in owned(directory, database)?.ours {
            let file = directory.open(&name, OpenHow::existing(Space::Log))?;
            let mut start = AlignedBuf::new(SEGMENT_HEADER_BYTES as usize);
            if file.len_bytes()? >= 2 * SEGMENT_HEADER_BYTES {
                file.read_at(SEGMENT_HEADER_BYTES, &mut start, Purpose::Log)?;
            }
            if start.iter().any(|byte| *byte != 0) {
                return Err(LogError::Begun { file: name, location: directory.location() });
            }
        }
        Ok(())
    }

    /// Does the same as `remove_of`, but files of another database are no error, and stay.
    pub(crate) fn remove_own(directory: &dyn Directory, database: u64) -> Result<(), LogError> {
        remove(directory, &owned(directory, database)?.ours)
    }

    /// Returns whether `directory` has log files.
    pub(crate) fn any(directory: &dyn Directory) -> Result<bool, LogError> {
        Ok(directory.list()?.iter().any(|name| slot_of(name).is_some()))
    }

    fn open_one(&self, name: &str) -> Result<(), LogError> {
        let Some(slot) = slot_of(name) else { return Ok(()) };
        let file = self.directory.open(name, OpenHow::existing(Space::Log))?;
        let header = self.read_header(&*file)?;
        let mut files = self.files.lock();
        files.next_slot = files.next_slot.max(slot + 1);
        let Some(header) = header else {
            files.blank.push(file);
            return Ok(());
        };
        if header.database != self.database {
            return Err(LogError::Foreign { file: name.to_string(), database: header.database });
        }
        match files.live.insert(header.number, file) {
            None => Ok(()),
            Some(_) => Err(LogError::Twice { number: header.number, file: name.to_string() }),
        }
    }

    fn read_header(&self, file: &dyn BlockFile) -> Result<Option<SegmentHeader>, LogError> {
        let expect_bytes = self.geometry.segment_bytes();
        if file.len_bytes()? != expect_bytes {
            let name = file.location().to_string();
            return Err(LogError::SegmentSize { file: name, expect_bytes, got_bytes: file.len_bytes()? });
        }
        let mut sector = AlignedBuf::new(SEGMENT_HEADER_BYTES as usize);
        file.read_at(0, &mut sector, Purpose::Log)?;
        let header = SegmentHeader::decode(&sector).filter(|header| header.segment_bytes == expect_bytes);
        match header {
            Some(header) if header.database == self.database && header.number > LSN_MAX / expect_bytes => {
                Err(LogError::Impossible { file: file.location().to_string(), number: header.number })
            }
            header => Ok(header),
        }
    }

    /// Returns the sector size for writes, in bytes.
    pub(crate) fn sector_bytes(&self) -> u32 {
        self.directory.capabilities().sector_bytes()
    }

    /// Returns the file of segment `number`, if it is live.
    pub(crate) fn file(&self, number: u64) -> Option<Arc<dyn BlockFile>> {
        self.files.lock().live.get(&number).cloned()
    }

    /// Returns the files whose header can't be read, because a crash interrupted their reuse, or because they
    /// are damaged.
    pub(crate) fn headless(&self) -> Vec<Arc<dyn BlockFile>> {
        self.files.lock().blank.clone()
    }

    /// Drops the bytes that were kept, and from now on keeps up to `limit_bytes` bytes of what is read.
    pub(crate) fn keep_read(&self, limit_bytes: usize) {
        *self.kept.lock() = Kept::with_limit(limit_bytes);
    }

    /// Reads a segment's bytes from `offset` on. `keeps` says that they will be read again.
    pub(crate) fn read(
        &self,
        number: u64,
        offset: usize,
        bytes: &mut [u8],
        keeps: bool,
    ) -> Result<(), LogError> {
        if self.kept.lock().fill(number, offset, bytes) {
            reached("log: read a second time from memory");
            return Ok(());
        }
        let file = self.file(number).expect("whoever reads a segment has found it");
        file.read_at(offset as u64, bytes, Purpose::Log)?;
        if keeps {
            self.kept.lock().keep(number, offset, bytes);
        }
        Ok(())
    }

    /// Returns the numbers of the live segments at or after `number`, ascending.
    pub(crate) fn live_from(&self, number: u64) -> Vec<u64> {
        self.files.lock().live.range(number..).map(|(number, _)| *number).collect()
    }

    /// Makes bytes durable that a killed process may have left in caches of the system.
    pub(crate) fn flush_live(&self) -> Result<(), LogError> {
        let files: Vec<_> = self.files.lock().live.values().cloned().collect();
        files.iter().try_for_each(|file| Ok(file.flush()?))
    }

    /// Returns the location of the segments, for messages.
    pub(crate) fn location(&self) -> String {
        self.directory.location()
    }

    /// Returns whether segment `number` may be written to.
    pub(crate) fn is_prepared(&self, number: u64) -> bool {
        let prepared = self.prepared.load(Ordering::Acquire);
        prepared != NOTHING_PREPARED && number <= prepared
    }

    /// Prepares the log for appending after recovery. The log continues in segment `number`. Files before
    /// `first`, and later ones, can be reused. On a full device the segment may be missing. Then `prepare`
    /// tries again.
    pub(crate) fn resume(&self, first: u64, number: u64) -> Result<(), LogError> {
        let mut files = self.files.lock();
        let needed = files.live.split_off(&first);
        let earlier = std::mem::replace(&mut files.live, needed);
        let later = files.live.split_off(&(number + 1));
        files.spare.extend(earlier.into_iter().chain(later));
        let known = files.live.contains_key(&number);
        drop(files);
        if known {
            self.prepared.store(number, Ordering::Release);
            return Ok(());
        }
        match (self.make(number), number.checked_sub(1)) {
            (Err(error), Some(before)) if error.is_no_space() => {
                self.prepared.store(before, Ordering::Release);
                Ok(())
            }
            (made, _) => made,
        }
    }

    /// Keeps older segments that `resume` has made reusable: one after the other, backwards from the oldest
    /// live one, as long as `is_wanted` and the segment is there. Returns the oldest live one.
    pub(crate) fn keep_older(&self, is_wanted: impl Fn(u64) -> bool) -> Option<u64> {
        let mut files = self.files.lock();
        let mut oldest = *files.live.keys().next()?;
        while let Some(number) = oldest.checked_sub(1).filter(|number| is_wanted(*number))
            && let Some(file) = files.spare.remove(&number)
        {
            reached("log: an older segment is kept for the archive");
            files.live.insert(number, file);
            oldest = number;
        }
        Some(oldest)
    }

    /// Returns whether another segment can be made: a file can be reused, or another file is allowed.
    pub(crate) fn can_make(&self) -> bool {
        let files = self.files.lock();
        let is_barred = files.count() >= FILES_MIN && self.is_device_full.load(Ordering::Relaxed);
        files.reusable_count() > 0 || files.count() < self.files_max && !is_barred
    }

    /// Returns the largest number of bytes that the files may have. If the device is full, it is the number
    /// of bytes that they have.
    pub(crate) fn bytes_max(&self) -> u64 {
        let is_full = self.is_device_full.load(Ordering::Relaxed);
        let count = if is_full { self.files.lock().count() } else { self.files_max };
        (count as u64).saturating_mul(self.geometry.segment_bytes())
    }

    /// Waits for a thread that is making a file. If the device has too little space for the file, the thread
    /// still uses the free space for a moment.
    pub(crate) fn await_making(&self) {
        drop(self.making.lock());
    }

    /// Makes every segment up to `number` writable. Waits if another thread is making a segment.
    pub(crate) fn prepare(&self, number: u64) -> Result<(), LogError> {
        let making = self.making.lock();
        self.prepare_under(&making, number)
    }

    /// Does the same as `prepare`, but does nothing if another thread is making a segment.
    pub(crate) fn try_prepare(&self, number: u64) -> Result<(), LogError> {
        match self.making.try_lock() {
            Some(making) => self.prepare_under(&making, number),
            None => Ok(()),
        }
    }

    fn prepare_under(&self, _making: &MutexGuard<'_, ()>, number: u64) -> Result<(), LogError> {
        while !self.is_prepared(number) {
            let prepared = self.prepared.load(Ordering::Acquire);
            self.make(if prepared == NOTHING_PREPARED { number } else { prepared + 1 })?;
        }
        Ok(())
    }

    fn make(&self, number: u64) -> Result<(), LogError> {
        let taken = self.take_spare(number);
        let file = match taken {
            Some((old, file)) if old == Some(number) => file,
            Some((old, file)) => {
                reached("log: segment recycled");
                if let Err(error) = self.write_header(&*file, number) {
                    self.give_back(old, file);
                    return Err(error);
                }
                file
            }
            None => self.create(number).inspect_err(|error| {
                if error.is_no_space() {
                    self.is_device_full.store(true, Ordering::Relaxed);
                }
            })?,
        };
        self.files.lock().live.insert(number, file);
        self.prepared.store(number, Ordering::Release);
        Ok(())
    }

    /// Takes a file to reuse: the spare file that has `number` already, or else the spare file with the
    /// lowest number, or else a blank file.
    fn take_spare(&self, number: u64) -> Option<(Option<u64>, Arc<dyn BlockFile>)> {
        let mut files = self.files.lock();
        if let Some(file) = files.spare.remove(&number) {
            return Some((Some(number), file));
        }
        if let Some((old, file)) = files.spare.pop_first() {
            return Some((Some(old), file));
        }
        files.blank.pop().map(|file| (None, file))
    }

    fn give_back(&self, old: Option<u64>, file: Arc<dyn BlockFile>) {
        let mut files = self.files.lock();
        match old {
            Some(old) => drop(files.spare.insert(old, file)),
            None => files.blank.push(file),
        }
    }

    fn write_header(&self, file: &dyn BlockFile, number: u64) -> Result<(), LogError> {
        let mut sector = AlignedBuf::new(SEGMENT_HEADER_BYTES as usize);
        let segment_bytes = self.geometry.segment_bytes();
        SegmentHeader { database: self.database, number, segment_bytes }.encode(&mut sector);
        let when =
            if planted("log: segment headers are not durable") { Durability::Later } else { Durability::Now };
        Ok(file.write_at(0, &sector, Purpose::Log, when)?)
    }

    /// Makes a new file. Its number is written last. A failure before that leaves no file, or a file without
    /// a number. So two files never have the same number.
    fn create(&self, number: u64) -> Result<Arc<dyn BlockFile>, LogError> {
        let (slot, name) = self.free_name()?;
        let unfinished = format!("{name}{UNFINISHED_SUFFIX}");
        let file = self.directory.open(&unfinished, OpenHow::or_create(Space::Log))?;
        let filled = self.fill(&*file);
        drop(file);
        if let Err(error) = filled {
            self.remove_unfinished(&[unfinished])?;
            return Err(error);
        }
        self.directory.rename(&unfinished, &name)?;
        self.files.lock().next_slot = slot + 1;
        let file = self.open_named(&name).inspect_err(|_| {
            // If the file can't be removed either, the next start treats it as blank.
            let _ = self.directory.remove(&name);
        })?;
        if let Err(error) = self.write_header(&*file, number) {
            self.give_back(None, file);
            return Err(error);
        }
        Ok(file)
    }

    /// Makes the new name of a file durable, and opens the file.
    fn open_named(&self, name: &str) -> Result<Arc<dyn BlockFile>, LogError> {
        if !planted("log: the directory is not synced") {
            self.directory.sync()?;
        }
        Ok(self.directory.open(name, OpenHow::existing(Space::Log))?)
    }

    /// Returns the next name that no file has. Other programs may have put files into the directory.
    fn free_name(&self) -> Result<(u32, String), LogError> {
        let mut slot = self.files.lock().next_slot;
        loop {
            slot %= SLOTS_MAX;
            let name = name_of(slot);
            let unfinished = format!("{name}{UNFINISHED_SUFFIX}");
            if !self.directory.exists(&name)? && !self.directory.exists(&unfinished)? {
                return Ok((slot, name));
            }
            slot += 1;
        }
    }

    fn fill(&self, file: &dyn BlockFile) -> Result<(), LogError> {
        let segment_bytes = self.geometry.segment_bytes();
        file.set_len(segment_bytes)?;
        let zeros = AlignedBuf::new(FILL_BYTES.min(segment_bytes as usize));
        let mut at = 0;
        while at < segment_bytes {
            let step = (segment_bytes - at).min(zeros.len() as u64);
            file.write_at(at, &zeros[..step as usize], Purpose::Log, Durability::Later)?;
            at += step;
        }
        Ok(file.flush()?)
    }

    /// Makes segments below `number` reusable, and removes files beyond the capacity.
    pub(crate) fn recycle_below(&self, number: u64) -> Result<(), LogError> {
        let mut files = self.files.lock();
        let keep = files.live.split_off(&number);
        let done = std::mem::replace(&mut files.live, keep);
        if !done.is_empty() {
            self.is_device_full.store(false, Ordering::Relaxed);
        }
        files.spare.extend(done);
        let mut excess = Vec::new();
        while files.count() > self.files_max {
            let Some(one) = files.spare.pop_first() else { break };
            excess.push(one);
        }
        drop(files);
        if excess.is_empty() {
            return Ok(());
        }
        while let Some((number, file)) = excess.pop() {
            // The directory removes a file by its name, not by its path.
            let by_path = planted("log: a file beyond the capacity is removed by its path");
            let name = if by_path { file.location().to_string() } else { file.name().to_string() };
            if let Err(error) = self.directory.remove(&name) {
                excess.push((number, file));
                self.files.lock().spare.extend(excess);
                return Err(error.into());
            }
            reached("log: a file beyond the capacity is removed");
        }
        Ok(self.directory.sync()?)
    }

    /// Returns the number of files that are live or prepared, and the number of reusable files.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let files = self.files.lock();
        (files.live.len(), files.reusable_count())
    }
}

/// The files with names of segments, divided by their database.
#[derive(Default)]
struct Owned {
    /// Names of the segments of the database, and of segments that were never used.
    ours: Vec<String>,
    /// The name of a segment of another database, and the id of that database.
    foreign: Option<(String, u64)>,
}

fn owned(directory: &dyn Directory, database: u64) -> Result<Owned, LogError> {
    let is_named = |name: &str| slot_of(name.strip_suffix(UNFINISHED_SUFFIX).unwrap_or(name)).is_some();
    let mut owned = Owned::default();
    for name in directory.list()?.into_iter().filter(|name| is_named(name)) {
        match owner(directory, &name, database)? {
            Some(owner) if owner == database => owned.ours.push(name),
            Some(owner) => owned.foreign = Some((name, owner)),
            None => {}
        }
    }
    Ok(owned)
}

/// Returns the database of a file that has the name of a segment. The result is `database` if the file was
/// never used, and `None` if it is no segment.
fn owner(directory: &dyn Directory, name: &str, database: u64) -> Result<Option<u64>, LogError> {
    let file = directory.open(name, OpenHow::existing(Space::Log))?;
    let len_bytes = file.len_bytes()?;
    if len_bytes < SEGMENT_HEADER_BYTES {
        return Ok((len_bytes == 0 && name.ends_with(UNFINISHED_SUFFIX)).then_some(database));
    }
    let mut sector = AlignedBuf::new(SEGMENT_HEADER_BYTES as usize);
    file.read_at(0, &mut sector, Purpose::Log)?;
    let not_begun = || sector.iter().all(|byte| *byte == 0).then_some(database);
    Ok(SegmentHeader::decode(&sector).map(|header| header.database).or_else(not_begun))
}

fn remove(directory: &dyn Directory, names: &[String]) -> Result<(), LogError> {
    names.iter().try_for_each(|name| directory.remove(name))?;
    Ok(directory.sync()?)
}

fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(UNFINISHED_SUFFIX).and_then(slot_of).is_some()
}

fn name_of(slot: u32) -> String {
    format!("{NAME_PREFIX}{slot:04}")
}

/// Returns the slot that has this name, or `None` for names of other files, such as `log.txt`, `log.20261122`
/// or `log.7.new`.
fn slot_of(name: &str) -> Option<u32> {
    let slot = name.strip_prefix(NAME_PREFIX)?.parse().ok().filter(|slot| *slot < SLOTS_MAX)?;
    (name_of(slot) == name).then_some(slot)
}
