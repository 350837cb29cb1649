//! Doublewrite: every page is first copied to a slot of a fixed file, and then written to its address in the
//! data file (Kang 2016, section 2.1). So one of the two is whole after a crash.
//!
//! The copies are in a file on the data device, or in a part of a region of persistent memory (NVM-DWB,
//! section 3.1). In the region, a copy becomes durable when its cache lines were written back and a fence has
//! followed.
//!
//! The file `doublewrite.varve` is little endian. Its unit is a page:
//!
//! | unit | what |
//! |---|---|
//! | 0 | header: 0 magic "VARVEDBW", in a region zero while the copies are made anew ; 8 version u32 ; 12 page size u32 ; 16 batch slots u32 ; 20 single slots u32 ; 24 database id u64 ; 32 crc32c u32 of bytes 0..32 (version 1 has no id, and its checksum at 24) |
//! | 1 .. | batch slots, in equal areas, then single slots; each holds one stored page (`home/compression/stored_page.rs`) |
//!
//! Invariants
//! 1. A slot is overwritten only after the page that it held is in the data file, and flushed.
//! 2. A batch writes all copies in one write and flushes them. Then it writes all pages to the data file and
//!    flushes them. Each area of slots has one batch at a time. A single page is written durably to its slot,
//!    and then durably to the data file.
//! 3. At a start, repair uses a copy only if the page in the data file is damaged, and the copy's LSN is
//!    beyond the start of redo. If a crash interrupted the write of a page, the dirty-page table still had
//!    the page, so the copy is newer than the checkpoint. Redo makes the newest page from any image that is
//!    newer than the checkpoint. A copy with a lower LSN proves nothing, and is not used.
//! 4. A full device may leave a page half written. Then its slot stays occupied until a later image of the
//!    page is in the data file. This later image needs no copy of its own, because redo can make the newest
//!    page from the old copy. After any other failure of a write no slot is used again.
//!
//! This module does not know the log.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex, MutexGuard};
use varve_device::{
    AlignedBuf, BlockFile, Directory, Durability, OpenHow, Purpose, Space, WriteOp, planted, reached,
};

use super::{Announce, Mended, Protection};
use crate::base::error::{PagerError, Result};
use crate::base::ids::{PageId, SpaceId};
use crate::base::lsn::Lsn;
use crate::base::page;
use crate::base::times::{Times, Timing};
use crate::home::compression::stored_page::{self, Stored};
use crate::home::files::SpaceFiles;
use crate::level::Cause;

/// Prefix of the only file in the part of a region for copies.
pub(crate) const REGION_PREFIX: &str = "doublewrite";
const MAGIC: &[u8; 8] = b"VARVEDBW";
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 36;
/// The older version of the format, which has no database id.
const VERSION_WITHOUT: u32 = 1;
const ID: Range<usize> = 24..32;
/// The largest number of bytes that are written at a time when a file is made.
const FILL_BYTES: usize = 1 << 20;

/// The name of the file in a directory, and its name until it is complete.
pub(super) const COPY_FILES: [&str; 2] = ["doublewrite.varve", "doublewrite.new.varve"];

/// The location of a doublewrite file.
#[derive(Clone, Copy)]
pub(super) struct CopyFile<'a> {
    directory: &'a dyn Directory,
    name: &'static str,
    /// The name of the file until it is complete.
    unfinished: &'static str,
    space: Space,
}

impl<'a> CopyFile<'a> {
    /// Returns the file in the directory of the data space.
    pub(super) fn file(directory: &'a dyn Directory) -> CopyFile<'a> {
        let [name, unfinished] = COPY_FILES;
        CopyFile { directory, name, unfinished, space: Space::Data }
    }

    /// Returns the only file (of [`REGION_PREFIX`]) in a part of a region.
    pub(super) fn region(directory: &'a dyn Directory) -> CopyFile<'a> {
        let (name, unfinished) = ("doublewrite.0000", "doublewrite.0000.new");
        CopyFile { directory, name, unfinished, space: Space::Nvm }
    }

    /// Returns whether there is a file.
    pub(super) fn exists(&self) -> Result<bool> {
        Ok(self.directory.exists(self.name)?)
    }

    /// Returns the message for a missing file. (An empty file counts as unfinished, and no page is repaired
    /// from it.)
    pub(super) fn missing(&self) -> String {
        let (location, name) = (self.directory.location(), self.name);
        format!(
            "{location}/{name} is missing, and the database was not shut down cleanly: pages that were being written then can be \
             mended from that file alone. Put it back beside data.varve, or restore a backup of all directories. If it is lost, \
             make an empty file of that name: the database opens without mending anything, if it can, and `varve check` reads \
             all pages and reports those that are damaged"
        )
    }

    /// Returns the message for a file of another database.
    pub(super) fn foreign(&self) -> String {
        let (location, name) = (self.directory.location(), self.name);
        format!(
            "{location}/{name} belongs to another database, and this one was not shut down cleanly: pages that were being written then \
             can be mended from its own file alone. Put that back beside data.varve, or restore a backup of all directories"
        )
    }

    /// Returns whether the header of the file names another database.
    pub(super) fn is_foreign(&self, database: u64) -> Result<bool> {
        let Some(file) = self.find()? else { return Ok(false) };
        let mut header = AlignedBuf::new(HEADER_BYTES.next_multiple_of(file.sector_bytes() as usize));
        if file.len_bytes()? < header.len() as u64 {
            return Ok(false);
        }
        file.read_at(0, &mut header, Purpose::Doublewrite)?;
        Ok(Layout::decode(&header).is_some_and(|(_, id)| id.is_some_and(|id| id != database)))
    }

    /// Returns the file, if there is one.
    fn find(&self) -> Result<Option<Arc<dyn BlockFile>>> {
        if !self.exists()? {
            return Ok(None);
        }
        Ok(Some(self.directory.open(self.name, OpenHow::existing(self.space))?))
    }
}

/// Sizes of a doublewrite file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) page_size: u32,
    pub(super) batch_slots: u32,
    pub(super) single_slots: u32,
}

impl Layout {
    fn slots(self) -> u32 {
        self.batch_slots + self.single_slots
    }

    fn offset(self, slot: u32) -> u64 {
        u64::from(slot + 1) * u64::from(self.page_size)
    }

    pub(super) fn len_bytes(self) -> u64 {
        self.offset(self.slots())
    }

    fn encode(self, database: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        for (at, field) in [VERSION, self.page_size, self.batch_slots, self.single_slots].iter().enumerate() {
            bytes[8 + 4 * at..12 + 4 * at].copy_from_slice(&field.to_le_bytes());
        }
        bytes[ID].copy_from_slice(&database.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..ID.end]);
        bytes[ID.end..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header: the layout, and the database id if the version has one.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Layout, Option<u64>)> {
        let field = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let (end, id) = match field(8)? {
            VERSION => (ID.end, Some(bytes.get(ID)?.try_into().ok().map(u64::from_le_bytes)?)),
            VERSION_WITHOUT => (ID.start, None),
            _ => return None,
        };
        let is_whole = bytes.get(..8)? == MAGIC && field(end)? == crc32c::crc32c(bytes.get(..end)?);
        let layout = Layout { page_size: field(12)?, batch_slots: field(16)?, single_slots: field(20)? };
        // The header also takes a unit, so the number of all units must fit into a u32.
        layout.batch_slots.checked_add(layout.single_slots)?.checked_add(1)?;
        is_whole.then_some((layout, id))
    }
}

/// The state of the slots.
struct Slots {
    /// Free slots for single pages.
    singles: Vec<u32>,
    /// Slots with the only whole copy of a page that a full device left half written.
    held: HashMap<PageId, u32>,
    /// The last error that left a page half written.
    refused: Option<PagerError>,
}

/// An area: slots that one batch at a time uses.
struct Area {
    slots: Range<u32>,
    /// The buffer of a batch. Its lock is also the right to use the slots.
    staging: Mutex<Option<AlignedBuf>>,
}

/// The doublewrite file.
pub(super) struct Doublewrite {
    file: Arc<dyn BlockFile>,
    layout: Layout,
    /// The configured layout. It differs from `layout` if there was no space for it.
    wanted: Layout,
    files: Arc<SpaceFiles>,
    times: Arc<Times>,
    /// The batch slots, divided into areas for simultaneous batches.
    areas: Vec<Area>,
    /// If all areas are in use, the area that the next thread waits for.
    turn: AtomicUsize,
    slots: Mutex<Slots>,
    single_freed: Condvar,
    /// Whether a write failed. Then slots may have the only whole copies, so no slot is used again.
    is_broken: AtomicBool,
    batches: AtomicU64,
    single_writes: AtomicU64,
}

impl Slots {
    /// Returns the error if all slots are held.
    fn refusal(&self) -> PagerError {
        let refused = self.refused.clone();
        refused.unwrap_or_else(|| PagerError::Stopped { cause: "no doublewrite slot is left".into() })
    }
}

impl Doublewrite {
    /// Opens the file with the copies. A new, empty file is made if the old one need not be kept, or has
    /// another layout. If a full device has no space for the new file, an old file that may be kept is used
    /// with the slots that it has (decision 0204: opening needs no space).
    ///
    /// `database` is the id of the database. A file of another database is replaced. `areas` is the number of
    /// batches that may be written at the same time. Each has an equal part of the layout's batch slots.
    pub(super) fn open(
        place: CopyFile<'_>,
        database: u64,
        layout: Layout,
        areas: u32,
        files: Arc<SpaceFiles>,
        times: Arc<Times>,
        is_kept: bool,
    ) -> Result<Doublewrite> {
        let wanted = layout;
        let (file, layout) = open_file(place, database, wanted, is_kept)?;
        let areas = if layout == wanted { areas } else { areas.min(layout.batch_slots) };
        let each = layout.batch_slots / areas;
        let area = |no: u32| Area { slots: no * each..(no + 1) * each, staging: Mutex::new(None) };
        Ok(Doublewrite {
            file,
            layout,
            wanted,
            files,
            times,
            areas: (0..areas).map(area).collect(),
            turn: AtomicUsize::new(0),
            slots: Mutex::new(Slots {
                singles: (layout.batch_slots..layout.slots()).collect(),
                held: HashMap::new(),
                refused: None,
            }),
            single_freed: Condvar::new(),
            is_broken: AtomicBool::new(false),
            batches: AtomicU64::new(0),
            single_writes: AtomicU64::new(0),
        })
    }

    /// Writes as many of the pages as there are slots. Returns their number.
    fn write_batch(&self, pages: &[&Stored<'_>]) -> Result<usize> {
        let (area, mut staging) = self.take_area();
        reached("doublewrite: batch");
        self.check()?;
        let slots = self.batch_slots(area, pages.len())?;
        let pages = &pages[..slots.len()];
        let page_size = self.layout.page_size as usize;
        let buf = staging.get_or_insert_with(|| AlignedBuf::new(page_size * area.slots.len()));
        // A failure is recorded before the lock is released. Otherwise the next batch would overwrite the
        // only whole copies.
        let copied = self.times.of(Timing::BatchCopy, || self.write_copies(buf, pages, &slots));
        let place = || self.times.of(Timing::BatchPlace, || self.place_batch(pages, &slots));
        let placed = copied.and_then(|()| place());
        placed.inspect_err(|cause| self.fail_unless_full(cause))?;
        self.batches.fetch_add(1, Relaxed);
        Ok(pages.len())
    }

    /// Takes an area that no thread uses. If all are in use, waits for the next one in turn.
    fn take_area(&self) -> (&Area, MutexGuard<'_, Option<AlignedBuf>>) {
        loop {
            let usable: Vec<&Area> = self.areas.iter().filter(|area| !self.is_all_held(area)).collect();
            let is_any_usable = !usable.is_empty();
            let unused = usable.iter().find_map(|area| Some((*area, area.staging.try_lock()?)));
            let (area, staging) = unused.unwrap_or_else(|| {
                let among = if is_any_usable { usable } else { self.areas.iter().collect() };
                let area = among[self.turn.fetch_add(1, Relaxed) % among.len()];
                (area, area.staging.lock())
            });
            // A batch that was refused meanwhile may have left all its slots held.
            if !is_any_usable || !self.is_all_held(area) {
                return (area, staging);
            }
        }
    }

    fn is_all_held(&self, area: &Area) -> bool {
        let slots = self.slots.lock();
        slots.held.values().filter(|slot| area.slots.contains(slot)).count() == area.slots.len()
    }

    /// Returns the slots of an area that are not held, up to `count`.
    fn batch_slots(&self, area: &Area, count: usize) -> Result<Vec<u32>> {
        let slots = self.slots.lock();
        let is_free = |slot: &u32| !slots.held.values().any(|held| held == slot);
        let free: Vec<u32> = area.slots.clone().filter(is_free).take(count).collect();
        if free.is_empty() { Err(slots.refusal()) } else { Ok(free) }
    }

    /// Makes the copies durable in their slots, with one write for each run of slots, and one for each
    /// compressed page.
    fn write_copies(&self, staging: &mut [u8], pages: &[&Stored<'_>], slots: &[u32]) -> Result<()> {
        let page_size = self.layout.page_size as usize;
        for (copy, page) in staging.chunks_exact_mut(page_size).zip(pages) {
            if !page.is_compressed() {
                copy.copy_from_slice(page.bytes());
            }
        }
        let copies: Vec<(u32, &Stored<'_>)> = slots.iter().copied().zip(pages.iter().copied()).collect();
        let mut ops = Vec::new();
        let mut rest = &*staging;
        for run in copies.chunk_by(|a, b| a.0 + 1 == b.0 && !a.1.is_compressed() && !b.1.is_compressed()) {
            let (bytes, more) = rest.split_at(run.len() * page_size);
            rest = more;
            let buf = if run[0].1.is_compressed() { run[0].1.bytes() } else { bytes };
            let (offset, why) = (self.layout.offset(run[0].0), Purpose::Doublewrite);
            ops.push(WriteOp { offset, buf, why, durability: Durability::Later });
        }
        if !planted("doublewrite: batches skip it") {
            self.file.write_batch(&ops)?;
        }
        if !planted("doublewrite: not flushed before the pages") {
            self.file.flush()?;
        }
        Ok(())
    }

    fn place_batch(&self, pages: &[&Stored<'_>], slots: &[u32]) -> Result<()> {
        let placed = self.place(pages);
        if let Err(error) = &placed
            && error.is_no_space()
        {
            self.hold_torn(pages, slots, error)?;
        }
        placed
    }

    /// Writes pages durably to their addresses in the data file. Their copies are durable already.
    fn place(&self, pages: &[&Stored<'_>]) -> Result<()> {
        self.files.write(pages)?;
        if !planted("pages: not flushed in place") {
            self.files.flush(pages)?;
        }
        let mut slots = self.slots.lock();
        pages.iter().for_each(|page| self.release(&mut slots, page.id()));
        Ok(())
    }

    /// Makes a single-page doublewrite: writes the page durably to a slot for single pages, and then durably
    /// to its address in the data file. A thread that needs a frame, and finds no clean page to evict, calls
    /// this.
    fn write_single(&self, page: &Stored<'_>) -> Result<()> {
        let slot = self.take_single()?;
        reached("doublewrite: single page");
        let at = self.layout.offset(slot);
        let copy = || self.file.write_at(at, page.bytes(), Purpose::Doublewrite, Durability::Now);
        let copied = self.times.of(Timing::SingleCopy, copy);
        if let Err(error) = copied {
            if error.is_no_space() {
                self.give_single(slot);
            }
            return Err(error.into());
        }
        if let Err(error) = self.times.of(Timing::SinglePlace, || self.files.write_now(page)) {
            if error.is_no_space() && !self.hold_torn(&[page], &[slot], &error)? {
                self.give_single(slot);
            }
            return Err(error);
        }
        self.single_writes.fetch_add(1, Relaxed);
        self.give_single(slot);
        Ok(())
    }

    fn take_single(&self) -> Result<u32> {
        let mut slots = self.slots.lock();
        loop {
            self.check()?;
            if let Some(slot) = slots.singles.pop() {
                return Ok(slot);
            }
            let held = slots.held.values().filter(|slot| **slot >= self.layout.batch_slots).count();
            if held == self.layout.single_slots as usize {
                return Err(slots.refusal());
            }
            self.single_freed.wait(&mut slots);
        }
    }

    fn give_single(&self, slot: u32) {
        self.slots.lock().singles.push(slot);
        self.single_freed.notify_one();
    }

    /// Is called after a full device refused some of these pages. The bytes that are on the device are made
    /// durable and read. The slots of pages that are half written stay occupied. Returns whether there are
    /// such pages.
    #[cold]
    fn hold_torn(&self, pages: &[&Stored<'_>], slots: &[u32], cause: &PagerError) -> Result<bool> {
        self.files.flush(pages)?;
        let mut buf = AlignedBuf::new(self.layout.page_size as usize);
        let mut any = false;
        for (page, slot) in pages.iter().zip(slots) {
            let is_torn = is_damaged(&self.files, page.id(), &mut buf)? && buf.iter().any(|byte| *byte != 0);
            any |= is_torn;
            if is_torn {
                reached("doublewrite: slot held");
                self.hold(page.id(), *slot, cause);
            }
        }
        Ok(any)
    }

    fn hold(&self, id: PageId, slot: u32, cause: &PagerError) {
        let mut slots = self.slots.lock();
        slots.refused = Some(cause.clone());
        let before = slots.held.insert(id, slot);
        assert!(before.is_none(), "page {id} holds a slot and got another one");
        // If this was the last slot that was not held, the waiting threads must wake up, and return an error.
        self.single_freed.notify_all();
    }

    /// Releases the copy of a page, because it is not needed any more. A batch slot is free as soon as it is
    /// not in `held`. A single-page slot is returned to the list.
    fn release(&self, slots: &mut Slots, id: PageId) {
        let slot = slots.held.remove(&id);
        if let Some(slot) = slot.filter(|slot| *slot >= self.layout.batch_slots) {
            slots.singles.push(slot);
            self.single_freed.notify_one();
        }
    }

    fn check(&self) -> Result<()> {
        if self.is_broken.load(Relaxed) {
            return Err(PagerError::Stopped { cause: "a doublewrite failed".into() });
        }
        Ok(())
    }

    fn fail_unless_full(&self, cause: &PagerError) {
        if cause.is_no_space() {
            return;
        }
        let _slots = self.slots.lock();
        self.is_broken.store(true, Relaxed);
        self.single_freed.notify_all();
    }
}

/// Repairs torn pages from the copies in the existing file. Its layout may differ from the configured one.
/// `announce` is called with each page before it is repaired.
pub(super) fn repair(
    place: CopyFile<'_>,
    page_size: u32,
    files: &SpaceFiles,
    redo_start: Lsn,
    announce: Announce<'_>,
) -> Result<Vec<Mended>> {
    let mut mended = Vec::new();
    if planted("doublewrite: torn pages are not mended") {
        return Ok(mended);
    }
    let Some(file) = place.find()? else { return Ok(mended) };
    let Some(layout) = read_layout(&*file, place.space, page_size)? else { return Ok(mended) };
    let mut buf = AlignedBuf::new(page_size as usize);
    let has = |space: SpaceId| space.is_logged() && files.space(space).is_some();
    let copies = copies(&*file, layout, redo_start, has)?;
    let mut ids: Vec<PageId> = copies.keys().copied().collect();
    ids.sort_unstable();
    for id in ids {
        if is_damaged(files, id, &mut buf)? {
            let short =
                if planted("doublewrite: the mended page is written one sector short") { 512 } else { 0 };
            let Copy { used, bytes, lsn } = &copies[&id];
            let page = Mended { id, lsn: *lsn };
            announce(&page)?;
            // The sectors of the data file may be larger than those with which the copy was written.
            let whole = used.next_multiple_of(files.of(id)?.file().sector_bytes() as usize).min(bytes.len());
            files.write_copy(id, &bytes[..whole.saturating_sub(short).max(512)])?;
            mended.push(page);
            reached("recovery: torn page mended");
        }
    }
    Ok(mended)
}

/// The copy of a page in a slot.
struct Copy {
    lsn: Lsn,
    /// The length of the stored form of the page.
    used: usize,
    /// The bytes of the slot, which begin with the stored form.
    bytes: AlignedBuf,
}

/// Returns the newest usable copy of every page in the area.
fn copies(
    file: &dyn BlockFile,
    layout: Layout,
    redo_start: Lsn,
    has: impl Fn(SpaceId) -> bool,
) -> Result<HashMap<PageId, Copy>> {
    let mut copies: HashMap<PageId, Copy> = HashMap::new();
    let page_size = layout.page_size as usize;
    let (mut buf, mut page) = (AlignedBuf::new(page_size), AlignedBuf::new(page_size));
    for slot in 0..layout.slots() {
        file.read_at(layout.offset(slot), &mut buf, Purpose::Doublewrite)?;
        // Identity and LSN have the same places in both forms.
        let (id, lsn) = (page::page_identity(&buf), page::page_lsn(&buf));
        if lsn <= redo_start || !has(id.space()) {
            continue;
        }
        let Ok(form) = stored_page::decode(&buf, id, &mut page) else { continue };
        if copies.get(&id).is_none_or(|other| other.lsn < lsn) {
            copies.insert(id, Copy { lsn, used: form.bytes(page_size), bytes: buf.clone() });
        }
    }
    Ok(copies)
}

/// Returns whether the page in the data file is damaged. A page beyond the end of the file does not count as
/// damaged, because nothing refers to it.
fn is_damaged(files: &SpaceFiles, id: PageId, buf: &mut [u8]) -> Result<bool> {
    let file = files.of(id)?;
    let Ok(offset) = file.offset(id) else { return Ok(false) };
    file.file().read_at(offset, buf, file.purpose())?;
    Ok(stored_page::decode_in(buf, id).is_err())
}

/// Returns the file to use, and its layout. Usually it is the configured layout. If there is no space for a
/// new file, it is the layout of an old file that may be kept.
fn open_file(
    place: CopyFile<'_>,
    database: u64,
    wanted: Layout,
    is_kept: bool,
) -> Result<(Arc<dyn BlockFile>, Layout)> {
    let kept =
        if is_kept && !place.is_foreign(database)? { find_kept(place, wanted.page_size)? } else { None };
    match kept {
        Some((file, layout)) if layout == wanted => Ok((file, layout)),
        kept => match (make(place, database, wanted), kept) {
            (Ok(file), _) => Ok((file, wanted)),
            (Err(error), Some((file, layout))) if error.is_no_space() => {
                reached("doublewrite: no room for another file");
                // The unfinished file would occupy space that others may need. A full device may refuse even
                // to remove it.
                let _ = place.directory.remove(place.unfinished);
                Ok((file, layout))
            }
            (Err(error), _) => Err(error),
        },
    }
}

/// Returns the existing file, if it is complete and has slots of both kinds.
fn find_kept(place: CopyFile<'_>, page_size: u32) -> Result<Option<(Arc<dyn BlockFile>, Layout)>> {
    let Some(file) = place.find()? else { return Ok(None) };
    let layout = read_layout(&*file, place.space, page_size)?;
    let usable = layout.filter(|layout| layout.batch_slots > 0 && layout.single_slots > 0);
    Ok(usable.map(|layout| (file, layout)))
}

/// Makes a file of empty slots. The file gets its name when it is whole, because a header that a crash left
/// half written looks like damage.
///
/// In a region names exist only in memory, and old slots may be there. So the magic, one word, is removed
/// first and written last. The slots are filled with zeros, so that later writes change no metadata of the
/// file system.
fn make(place: CopyFile<'_>, database: u64, layout: Layout) -> Result<Arc<dyn BlockFile>> {
    let CopyFile { directory, name, unfinished, space } = place;
    let file = directory.open(unfinished, OpenHow::or_create(space))?;
    let len_bytes = layout.len_bytes();
    file.set_len(len_bytes)?;
    let mut header = AlignedBuf::new(layout.page_size as usize);
    file.read_at(0, &mut header, Purpose::Doublewrite)?;
    header[..MAGIC.len()].fill(0);
    file.write_at(0, &header, Purpose::Doublewrite, Durability::Now)?;
    header.fill(0);
    header[..HEADER_BYTES].copy_from_slice(&layout.encode(database));
    header[..MAGIC.len()].fill(0);
    file.write_at(0, &header, Purpose::Doublewrite, Durability::Later)?;
    let zeros = AlignedBuf::new(FILL_BYTES.max(header.len()));
    let mut at = header.len() as u64;
    while at < len_bytes {
        let step = (len_bytes - at).min(zeros.len() as u64);
        file.write_at(at, &zeros[..step as usize], Purpose::Doublewrite, Durability::Later)?;
        at += step;
    }
    file.flush()?;
    header[..MAGIC.len()].copy_from_slice(MAGIC);
    file.write_at(0, &header, Purpose::Doublewrite, Durability::Now)?;
    drop(file);
    directory.rename(unfinished, name)?;
    directory.sync()?;
    Ok(directory.open(name, OpenHow::existing(space))?)
}

/// Returns the layout of the file. `None` means that the file was not completed.
fn read_layout(file: &dyn BlockFile, space: Space, page_size: u32) -> Result<Option<Layout>> {
    let mut header = AlignedBuf::new(page_size as usize);
    if file.len_bytes()? < header.len() as u64 {
        return Ok(None);
    }
    file.read_at(0, &mut header, Purpose::Doublewrite)?;
    let is_cut_off = header[..MAGIC.len()].iter().all(|byte| *byte == 0);
    if header.iter().all(|byte| *byte == 0) || (is_cut_off && space == Space::Nvm) {
        return Ok(None);
    }
    if let Some((layout, _)) = Layout::decode(&header)
        && layout.page_size == page_size
        && layout.len_bytes() <= file.len_bytes()?
    {
        return Ok(Some(layout));
    }
    Err(PagerError::Corrupt {
        what: format!(
            "the header of {} is damaged or of another version: if the database was shut down cleanly, remove the file",
            file.location()
        ),
    })
}

impl Protection for Doublewrite {
    fn write(&self, batch: &[Stored<'_>], cause: Cause) -> Result<()> {
        let is_held = |page: &&Stored<'_>| self.slots.lock().held.contains_key(&page.id());
        let (held, others): (Vec<&Stored<'_>>, Vec<&Stored<'_>>) = batch.iter().partition(is_held);
        if !held.is_empty() {
            self.place(&held).inspect_err(|cause| self.fail_unless_full(cause))?;
        }
        if cause == Cause::EvictInline {
            let written = others.iter().try_for_each(|page| self.write_single(page));
            return written.inspect_err(|cause| self.fail_unless_full(cause));
        }
        let mut rest = &others[..];
        while !rest.is_empty() {
            let written = self.write_batch(rest)?;
            rest = &rest[written..];
        }
        Ok(())
    }

    fn held(&self) -> Vec<(PageId, u32)> {
        self.slots.lock().held.iter().map(|(id, slot)| (*id, *slot)).collect()
    }

    fn forget(&self, held: &[(PageId, u32)]) {
        let mut slots = self.slots.lock();
        for (id, slot) in held {
            if slots.held.get(id) == Some(slot) {
                self.release(&mut slots, *id);
            }
        }
    }

    fn warning(&self) -> Option<String> {
        let (has, wanted) = (self.layout, self.wanted);
        (has != wanted).then(|| {
            format!(
                "{} is full: there was no room for a doublewrite file of {} slots, so the one of {} slots, which is there, is \
                 used until a start finds room",
                self.file.location(),
                wanted.slots(),
                has.slots()
            )
        })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("doublewrite_batches", self.batches.load(Relaxed)),
            ("doublewrite_singles", self.single_writes.load(Relaxed)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread waits for a slot, and then all slots become occupied by half-written pages. In an earlier
    /// version, the thread slept for ever.
    #[test]
    fn who_waits_for_a_slot_is_refused_when_all_become_held() {
        let directory = varve_device::MemoryDirectory::new();
        let layout = Layout { page_size: 4096, batch_slots: 1, single_slots: 2 };
        let files = Arc::new(SpaceFiles::new(Vec::new()));
        let area = Doublewrite::open(CopyFile::file(&*directory), 7, layout, 1, files, Arc::default(), false)
            .unwrap();
        let owned = [area.take_single().unwrap(), area.take_single().unwrap()];
        let cause = PagerError::Stopped { cause: "no room".into() };
        std::thread::scope(|scope| {
            let (sender, answer) = std::sync::mpsc::channel();
            let area = &area;
            scope.spawn(move || sender.send(area.take_single()).unwrap());
            // Usually the other thread sleeps by then. If it does not, the test passes without testing
            // anything.
            std::thread::sleep(std::time::Duration::from_millis(50));
            for (no, slot) in owned.into_iter().enumerate() {
                area.hold(
                    PageId::new(crate::base::ids::SpaceId::DATA, crate::base::ids::PageNo(no as u32)),
                    slot,
                    &cause,
                );
            }
            let answer = answer.recv_timeout(std::time::Duration::from_secs(20));
            area.single_freed.notify_all();
            answer.expect("the waiting thread was never woken").unwrap_err();
        });
    }

    /// If there were only one area, the second batch would wait here for ever.
    #[test]
    fn batches_of_two_areas_go_beside_each_other() {
        let directory = varve_device::MemoryDirectory::new();
        let layout = Layout { page_size: 4096, batch_slots: 6, single_slots: 1 };
        let files = Arc::new(SpaceFiles::new(Vec::new()));
        let file = Doublewrite::open(CopyFile::file(&*directory), 7, layout, 2, files, Arc::default(), false)
            .unwrap();
        let (first, held) = file.take_area();
        let (second, also_held) = file.take_area();
        assert_eq!((first.slots.clone(), second.slots.clone()), (0..3, 3..6));
        assert_eq!(file.batch_slots(second, 5).unwrap(), [3, 4, 5]);
        drop((held, also_held));
        // All slots of the first area are held for half-written pages.
        let cause = PagerError::Stopped { cause: "no room".into() };
        let id = |no| PageId::new(crate::base::ids::SpaceId::DATA, crate::base::ids::PageNo(no));
        (0..3).for_each(|slot| file.hold(id(slot), slot, &cause));
        assert_eq!(file.take_area().0.slots, 3..6);
        (3..6).for_each(|slot| file.hold(id(slot), slot, &cause));
        assert!(file.batch_slots(file.take_area().0, 1).is_err());
    }

    #[test]
    fn the_header_keeps_its_layout() {
        let layout = Layout { page_size: 8192, batch_slots: 120, single_slots: 8 };
        let bytes = layout.encode(0x0102_0304_0506_0708);
        assert_eq!(&bytes[..24], b"VARVEDBW\x02\0\0\0\0\x20\0\0\x78\0\0\0\x08\0\0\0");
        assert_eq!(&bytes[24..32], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(Layout::decode(&bytes), Some((layout, Some(0x0102_0304_0506_0708))));
        // A header of the version without the database id.
        let mut old = bytes;
        old[8] = 1;
        let checksum = crc32c::crc32c(&old[..24]);
        old[24..28].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Layout::decode(&old[..28]), Some((layout, None)));
    }

    #[test]
    fn a_header_of_more_slots_than_can_be_counted_is_refused() {
        for (batch_slots, single_slots) in [(u32::MAX, 1), (u32::MAX - 1, 1), (1, u32::MAX)] {
            let bytes = Layout { page_size: 8192, batch_slots, single_slots }.encode(7);
            assert_eq!(Layout::decode(&bytes), None);
        }
    }

    #[test]
    fn a_damaged_header_is_refused() {
        let bytes = Layout { page_size: 8192, batch_slots: 1, single_slots: 1 }.encode(7);
        for at in 0..HEADER_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(Layout::decode(&damaged), None, "byte {at}");
        }
        assert_eq!(Layout::decode(&bytes[..HEADER_BYTES - 1]), None);
    }
}
