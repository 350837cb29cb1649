//! The packed layout never overwrites a page. Each write of a page goes to a new slot of an extent that is
//! being filled, and a page map says where the newest version of each page is. Slots are aligned to sectors.
//!
//! ```text
//!    write:   new slot --> held --settle: flush slot, log the place, flush log--> stable; old slot dies
//!    read:    page map --> one read of the slot --> plain page
//!    reclaim: pages of old extents --> whole new extents --settle--> old ones free --checkpoint--> punched
//!    map:     in memory = the map's file (last checkpoint of the map) + log records since then
//! ```
//!
//! A page is *held* from its write until the log has a durable record with its place. *Settling* writes this
//! record.
//!
//! Invariants
//! 1. A page's place is logged only after its slot was flushed. A slot dies only when no durable state, no
//!    entry of the map and no grave (the list of slots of discarded pages) names it. An extent is overwritten
//!    only if it has no live slot, and no thread reads it.
//! 2. After a crash the map is the last complete checkpoint of the map, plus the log records of groups that
//!    end after it, in the order of the log (`replay.rs` has the rules).
//! 3. Log records of places are appended under the locks `settling` and the book's. The record of a discard
//!    is appended under the book's lock, or by a thread that stays inside the gate until the book has the
//!    discard. So a checkpoint of the map has exactly what the log before it says.
//! 4. The log is kept from the last checkpoint of the map on.
//! 5. Settling, moving and checkpoints of the map do not change the bytes of pages. Recovery gets each page
//!    from its last valid log record, and redo applies the changes after it.
//!
//! Locks are taken in this order: `opening`, the gate, `settling`, the book, the append section of the log.
//! No I/O happens under the lock of the book.
//!
//! | file | what |
//! |---|---|
//! | `unit_run.rs` | the position of a stored page, as a number |
//! | `format.rs` | the format of header block, heads and map pages |
//! | `map_file.rs` | the file with the map: two equal heads, two places for each map page |
//! | `note.rs` | the log record with the places of pages |
//! | `page_map.rs` | where the newest version of each page is; read without a lock |
//! | `extents.rs` | which slots are live in each extent, which extents are free |
//! | `book.rs` | which pages are held, and which version a crash would find |
//! | `replay.rs` | applies the log records since the last checkpoint of the map |
//! | `moves.rs` | which extents are emptied, and which page goes where |
//! | `room.rs` | how much space is reserved, and where it comes from |
//! | `write.rs`, `read.rs`, `settle.rs`, `checkpoint.rs` | operations on the files |
//! | `reclaim.rs`, `trim.rs`, `recover.rs`, `check.rs` | more operations on the files |
//!
//! This module does not know what is in a page, or which code uses the page.

mod book;
mod check;
mod checkpoint;
pub(crate) mod config;
mod extents;
mod format;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod gate;
mod map_file;
mod moves;
pub(crate) mod note;
mod page_map;
mod read;
mod reclaim;
mod recover;
mod replay;
mod room;
mod settle;
#[cfg(test)]
mod tests;
mod trim;
mod unit_run;
mod write;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use varve_device::{AlignedBuf, BlockFile, Directory, Durability, OpenHow, Purpose, planted};

use self::book::Book;
use self::extents::Extents;
use self::format::Shape;
use self::gate::Gate;
use self::map_file::MapFile;
use self::page_map::PageMap;
use self::unit_run::UNIT_BYTES;
use crate::base::chunks::Chunks;
use crate::base::error::{PagerError, Result};
use crate::base::ids::{PageId, PageRange, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::{AtomicLsn, Lsn};
use crate::home::compression::by_owner::Compressions;
use crate::home::compression::encoder::Forms;
use crate::home::compression::stored_page::{Stored, StoredLengths};
use crate::home::files;
use crate::home::layout::{Layout, Trimmed};
use crate::home::pace::Pace;
use crate::home::packed::config::PackedConfig;
use crate::home::trim::TrimSetting;
use crate::level::ledger::Ledger;
use crate::level::{Cause, DiscardHold, Need, Step, Want};
use crate::log::Log;

pub(crate) use self::recover::SpaceFiles;
pub(crate) use self::room::Fill;

/// The parts of the pager that a packed space uses.
pub(crate) struct PackedParts {
    pub(crate) log: Arc<Log>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) compressions: Arc<Compressions>,
    pub(crate) trim: Arc<TrimSetting>,
    pub(crate) fill: Arc<Fill>,
    pub(crate) config: PackedConfig,
    /// The LSN where redo begins. No older log is available.
    pub(crate) redo: Lsn,
}

/// The identity of a space.
pub(crate) struct Identity {
    pub(crate) space: SpaceId,
    pub(crate) database: u64,
    pub(crate) page_size: usize,
}

/// A space with the packed layout.
pub(crate) struct PackedSpace {
    shape: Shape,
    file: Arc<dyn BlockFile>,
    purpose: Purpose,
    map_file: MapFile,
    map: Arc<PageMap>,
    /// For each extent, the number of threads that read it.
    readers: Chunks<AtomicU32>,
    book: Mutex<Book>,
    /// Held by the thread that begins the next extent, and makes space for it.
    opening: Mutex<()>,
    /// The last attempt to make the file longer failed.
    is_full: AtomicBool,
    /// Whether another attempt to make the file longer is due.
    asks_again: AtomicBool,
    /// The number of pages that may be written (`room.rs`).
    granted: AtomicU32,
    /// The hollow extent where the next search begins.
    hollow_from: AtomicU32,
    /// Whether the device has reported that it cannot punch holes.
    cannot_punch: AtomicBool,
    /// Held by the thread that settles.
    settling: Mutex<()>,
    gate: Gate,
    /// Length in pages.
    pages: AtomicU32,
    /// The log is kept from this LSN on.
    log_from: AtomicLsn,
    log: Arc<Log>,
    ledger: Arc<Ledger>,
    forms: Forms,
    trim: Arc<TrimSetting>,
    fill: Arc<Fill>,
    config: PackedConfig,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    settles: AtomicU64,
    noted_pages: AtomicU64,
    map_checkpoints: AtomicU64,
    written_bytes: AtomicU64,
    moved_pages: AtomicU64,
    moved_bytes: AtomicU64,
    emptied_extents: AtomicU64,
    refused_moves: AtomicU64,
    damaged_slots: AtomicU64,
    trims: AtomicU64,
    trimmed_bytes: AtomicU64,
    failed_trims: AtomicU64,
}

impl Counters {
    /// Returns the bytes written into slots, including those of reclamation, in percent of the bytes of page
    /// writes.
    fn amplification_percent(&self) -> u64 {
        let (written, moved) =
            (self.written_bytes.load(Ordering::Relaxed), self.moved_bytes.load(Ordering::Relaxed));
        100 + (moved * 100).checked_div(written).unwrap_or(0)
    }
}

impl PackedSpace {
    /// Makes the files of an empty space. Their names are not durable yet.
    pub(crate) fn create(
        directory: &dyn Directory,
        who: &Identity,
        parts: PackedParts,
    ) -> Result<PackedSpace> {
        let shape = Shape {
            page_size: who.page_size as u32,
            extent_bytes: parts.config.extent_bytes,
            database: who.database,
            space: who.space,
        };
        let (kind, _) = files::device_space(who.space);
        let file = directory.open(&files::file_name(who.space), OpenHow::or_create(kind))?;
        file.set_len(0)?;
        file.set_len(shape.extent_bytes)?;
        let header = AlignedBuf::copy_of(&shape.header());
        file.write_at(0, &header, Purpose::Mapping, Durability::Later)?;
        file.flush()?;
        let map_file = MapFile::create(directory, shape)?;
        let mut extents = Extents::new(shape.extent_bytes as usize);
        extents.lengthen(1);
        let map = Arc::new(PageMap::new());
        let book = Book::new(map.clone(), extents, BTreeSet::new());
        Ok(PackedSpace::over(file, map_file, map, book, parts))
    }

    fn over(
        file: Arc<dyn BlockFile>,
        map_file: MapFile,
        map: Arc<PageMap>,
        book: Book,
        parts: PackedParts,
    ) -> PackedSpace {
        let head = map_file.head();
        let forms = Forms::new(parts.compressions, StoredLengths::Multiples(sector_bytes(&*file)));
        PackedSpace {
            shape: head.shape,
            file,
            purpose: files::device_space(head.shape.space).1,
            map_file,
            map,
            readers: Chunks::new(),
            book: Mutex::new(book),
            opening: Mutex::new(()),
            is_full: AtomicBool::new(false),
            asks_again: AtomicBool::new(false),
            granted: AtomicU32::new(head.pages),
            hollow_from: AtomicU32::new(0),
            cannot_punch: AtomicBool::new(false),
            settling: Mutex::new(()),
            gate: Gate::default(),
            pages: AtomicU32::new(head.pages),
            log_from: AtomicLsn::new(head.log_from.max(parts.redo)),
            log: parts.log,
            ledger: parts.ledger,
            forms,
            trim: parts.trim,
            fill: parts.fill,
            config: parts.config,
            counters: Counters::default(),
        }
    }

    /// Returns the unit of slots, in bytes.
    fn sector_bytes(&self) -> usize {
        sector_bytes(&*self.file)
    }

    fn id(&self, no: crate::base::ids::PageNo) -> PageId {
        PageId::new(self.shape.space, no)
    }

    fn require_page(&self, id: PageId) -> Result<()> {
        let pages = self.pages.load(Ordering::Acquire);
        if id.no().0 < pages { Ok(()) } else { Err(PagerError::NoSuchPage { id, pages }) }
    }
}

/// Returns the unit of slots, in bytes.
fn sector_bytes(file: &dyn BlockFile) -> usize {
    (file.sector_bytes() as usize).max(UNIT_BYTES)
}

impl Layout for PackedSpace {
    fn read(&self, wants: &mut [(PageId, &mut Want<'_>)]) -> Result<()> {
        self.read_wants(wants)
    }

    fn write(&self, images: &[&Image], _cause: Cause, need: Need) -> Result<()> {
        images.iter().try_for_each(|image| self.require_page(image.id()))?;
        self.write_stored(&self.forms.encode(images))?;
        match need {
            Need::Stable => self.settle_all(),
            Need::Held => self.settle_if_many(),
        }
    }

    fn settle(&self) -> Result<()> {
        self.settle_all()
    }

    fn write_unlogged(&self, image: &Image) -> Result<()> {
        self.write_stored(&[Stored::plain(image)])?;
        self.settle_all()
    }

    fn pages(&self, _space: SpaceId) -> u32 {
        self.pages.load(Ordering::Acquire)
    }

    fn resize(&self, _space: SpaceId, pages: u32) -> Result<()> {
        if pages > self.pages.load(Ordering::Acquire) {
            self.require_room(pages)?;
        }
        if pages < self.pages.load(Ordering::Acquire) {
            self.flush_discards()?;
        }
        let before = self.pages.fetch_min(pages, Ordering::AcqRel);
        // The file of the map needs space for the entries of these pages, too.
        self.map_file.resize(pages).inspect_err(|_| self.pages.store(before, Ordering::Release))?;
        self.pages.store(pages, Ordering::Release);
        Ok(())
    }

    fn grant(&self, _space: SpaceId, pages: u32) -> Result<()> {
        self.require_room(pages)
    }

    fn ungrant(&self, _space: SpaceId, pages: u32) -> bool {
        PackedSpace::ungrant(self, pages);
        true
    }

    fn discard(&self, ids: PageRange, after: Lsn) -> Result<()> {
        self.forget(ids, after);
        Ok(())
    }

    /// Returns true even if trim is switched off. Otherwise reclamation would move dead pages again and
    /// again.
    fn trims(&self) -> bool {
        true
    }

    fn notes_discards(&self) -> bool {
        true
    }

    fn holds(&self, ids: PageRange) -> bool {
        self.names_any(ids)
    }

    /// Frees nothing, because reclamation frees the space of discarded pages when it empties their extents.
    /// Pages without a log record of their discard keep their space.
    fn trim(&self, ids: PageRange, _pace: &Pace<'_>) -> Result<Trimmed> {
        Ok(if self.names_any(ids) { Trimmed::NotNow } else { Trimmed::Whole })
    }

    fn trim_file(&self, pace: &Pace<'_>) -> Result<bool> {
        self.give_back(pace)
    }

    fn discarding(&self) -> Option<DiscardHold<'_>> {
        Some(DiscardHold::new(self.gate.enter()))
    }

    fn checkpoint(&self, step: Step) -> Result<()> {
        match step {
            Step::Begin => self.checkpoint_map_if_due(),
            Step::BeforeEnd => Ok(()),
            Step::End => {
                self.asks_again.store(true, Ordering::Relaxed);
                let mut book = self.book.lock();
                book.bury(self.log.durable());
                book.extents_mut().try_stuck_again();
                Ok(())
            }
        }
    }

    fn needs_log_from(&self) -> Option<Lsn> {
        Some(self.log_from.load()).filter(|_| !planted("packed: the log is cut beyond its last checkpoint"))
    }

    fn map_checkpoint(&self) -> u64 {
        self.map_file.head().checkpoint
    }

    fn drain(&self) -> Result<()> {
        self.settle_all()?;
        self.checkpoint_map()
    }

    fn check(&self, damages: &mut Vec<String>) -> Result<()> {
        self.check_slots(damages)
    }

    fn slot_bytes(&self, id: PageId) -> Option<u64> {
        Some(self.map.load(id.no()).map_or(0, |place| place.len_bytes() as u64))
    }

    fn part(&self) -> &'static str {
        match self.shape.space {
            SpaceId::ROLLBACK => "packed-rollback",
            _ => "packed-data",
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let book = self.book.lock();
        let forms = self.forms.counters();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("extents", u64::from(book.extents().count())),
            ("free_extents", u64::from(book.extents().free_count() + book.extents().hollow_count())),
            ("hollow_extents", u64::from(book.extents().hollow_count())),
            ("emptied_extents_waiting", u64::from(book.extents().emptied_count())),
            ("stuck_extents", u64::from(book.extents().stuck_count())),
            ("live_bytes", book.extents().live_units() * UNIT_BYTES as u64),
            ("held_pages", book.held_count() as u64),
            ("settles", load(&self.counters.settles)),
            ("noted_pages", load(&self.counters.noted_pages)),
            ("map_checkpoints", load(&self.counters.map_checkpoints)),
            ("map_bytes", self.map.bytes() as u64),
            ("written_bytes", load(&self.counters.written_bytes)),
            ("moved_pages", load(&self.counters.moved_pages)),
            ("moved_bytes", load(&self.counters.moved_bytes)),
            ("emptied_extents", load(&self.counters.emptied_extents)),
            ("write_amplification_percent", self.counters.amplification_percent()),
            ("moves_refused", load(&self.counters.refused_moves)),
            ("damaged_slots", load(&self.counters.damaged_slots)),
            ("trims", load(&self.counters.trims)),
            ("trimmed_bytes", load(&self.counters.trimmed_bytes)),
            ("trims_failed", load(&self.counters.failed_trims)),
        ]
        .into_iter()
        .chain(forms)
        .collect()
    }
}
