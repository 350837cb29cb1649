//! The start of the flash cache, before redo. It decides which slots that an earlier start filled can be used
//! (Do 2012, sections 4.3.3 and 4.3.4: lazy verification).
//!
//! A slot's record says that the slot had the page with all its changes up to the log position `before`
//! (`record.rs`). If the log is read from that position on, the start finds every later change. Redo applies
//! these changes, and removes the slot. A change from before the redo position is in the data files. In the
//! following cases redo would not find a change, so the record is not used:
//!
//! | the record | is not used, because |
//! |---|---|
//! | its page LSN and `before` are below the position where reading begins | the log in between is not read |
//! | its page was changed between that position and the start of redo | the data files have the change |
//! | the log says that the data files have a newer version | redo skips the changes |
//! | the log says that the page was discarded later | the page may be in use again |
//! | it is beyond the end of the log | it belongs to another history |
//!
//! The last row also applies if the file is not as the last start left it (`flash/io/store.rs`). Then no
//! record of the file is used.
//!
//! Invariants
//! 1. If redo has changes of a page, the data files may lack the page. Its slot then counts as dirty, and
//!    redo enters the page in the dirty-page table when it reads the page from the slot. Only designs that
//!    keep changed pages on flash use such slots.
//! 2. The content of a slot is verified at its first use. A dirty slot that redo does not use is freed when
//!    redo has ended.
//! 3. Until redo has ended, no page is written from flash to the data files, and no record is written.
//!
//! After a shutdown with a seal (`seal.rs`) the records themselves say which slots are dirty.
//!
//! This module does not know how records are written, or what redo does.

use std::sync::atomic::Ordering::Relaxed;

use varve_device::{AlignedBuf, planted, reached};

use super::log_based::Noted;
use super::record::{RECORDS_OF_BLOCK, Record, TABLE_BLOCK_BYTES, sum_of};
use crate::base::error;
use crate::base::ids::{PageId, SpaceId};
use crate::base::lsn::Lsn;
use crate::base::space_format::Geometry;
use crate::control::random_id;
use crate::flash::cache::FlashCache;
use crate::flash::cache::life::Event;
use crate::flash::config::FlashRestart;
use crate::flash::io::store::{Cold, Marks, Whose};
use crate::flash::table::Kept;
use crate::log::history::History;
use crate::log::notes::written::BEFORE_REDO;

/// The number of blocks of records that are read together.
pub(in crate::flash) const READ_BLOCKS: u32 = 64;
/// The name of a planted fault: the sum over the records is not compared with the seal.
pub(in crate::flash) const ANY_SUM: &str = "flash: any records are taken for sealed";

/// The facts that a start knows about the previous start.
pub(crate) struct Earlier<'p> {
    /// The number of that start in the control file. Zero means that it is not known.
    pub(crate) start: u64,
    /// Whether that start kept records of a cache. If so, users expect that the pages of the cache are used
    /// again.
    pub(crate) has_cache: bool,
    /// What the log says about pages.
    pub(crate) history: &'p History,
    /// What the log says about slots, under log-based restart.
    pub(crate) noted: Option<&'p Noted>,
    /// `Some` if the records are sealed and no redo runs. Then the data files lack the pages of dirty slots.
    /// No change that they lack is older than this redo position.
    pub(crate) sealed: Option<Lsn>,
}

/// Counts of the records that were found.
#[derive(Default)]
struct FoundRecords {
    left: u64,
    clean: u64,
    dirty: u64,
    /// The latest time of an access.
    newest: u64,
}

/// How a record is used.
enum Fate {
    /// The slot is used, and the data files have its page.
    Clean,
    /// The slot is used. The data files may lack its page, and redo will process the page.
    Dirty,
    Left,
    /// The record belongs to another history of the log, so no record of the file is used.
    Foreign,
}

impl FlashCache {
    /// Begins to keep records, under the number of this start. If the previous start used the file, its pages
    /// are used, because no start without the file has changed anything since then. Redo must run in this
    /// case. Returns whether the old pages are used. `note` writes a number of the start to the control file;
    /// if this fails, the start fails.
    pub(crate) fn begin(
        &self,
        start: u64,
        earlier: Option<Earlier<'_>>,
        note: impl Fn(u64) -> error::Result<()>,
    ) -> error::Result<bool> {
        if !self.keeps_records() || start == 0 {
            return note(start).map(|()| false);
        }
        let is_first = earlier.as_ref().is_none_or(|earlier| !earlier.has_cache);
        if is_first && self.records.hardening.earlier == Err(Cold::OtherDatabase) {
            self.tell("takes the place of another database's, which begins empty when it is started");
        }
        if earlier.is_some() {
            self.life.on(Event::Restore);
        }
        let restored = earlier.filter(|earlier| self.is_on() && self.restore_or_tell(earlier));
        self.tables().for_each(|mut table| table.found_all());
        if let Some(earlier) = &restored {
            self.announce(earlier.start, start);
        }
        note(start)?;
        self.enter(restored.as_ref());
        let found = self.records.hardening.whose();
        let epoch = if restored.is_some() { found.epoch } else { random_id() };
        let whose = Whose { marks: Marks::of(start), epoch, ..found };
        match self.drive.store.sign(&whose) {
            Ok(()) => {
                self.records.hardening.begin(whose);
                if !self.is_redo_running() {
                    self.begin_keeping();
                }
            }
            Err(cause) => {
                reached("flash: a cache is used without records");
                self.note_error(&cause);
                self.tell(&format!("is used without records, and begins empty at the next start: {cause}"));
                // The cache file has the announced number, but this start did not use the file. So the start
                // takes another number.
                note(random_id())?;
            }
        }
        Ok(restored.is_some())
    }

    fn restore_or_tell(&self, earlier: &Earlier<'_>) -> bool {
        let restored = self.restore(earlier);
        if let (Err(cold), true) = (restored, earlier.has_cache) {
            reached("flash: a start is told why its cache is cold");
            self.tell(&format!("begins empty: its file {}", cold.told()));
        }
        restored.is_ok()
    }

    /// Writes the new number first to the cache file, and then to the control file. If a start ends in
    /// between, the next start can still use the cache.
    fn announce(&self, earlier: u64, start: u64) {
        let marks = Marks { mark: earlier, announced: start };
        let signed = self.drive.store.sign(&Whose { marks, ..self.records.hardening.whose() });
        signed.unwrap_or_else(|cause| self.note_error(&cause));
    }

    /// Finishes the search for pages. If none may be used, the slots become empty. After a shutdown with a
    /// seal, the pages of dirty slots enter the dirty-page table.
    fn enter(&self, restored: Option<&Earlier<'_>>) {
        match restored {
            None => self.forget_all(),
            Some(Earlier { sealed: Some(redo), .. }) => {
                reached("flash: a start behind a seal");
                let dirty = self.tables().flat_map(|table| table.dirty_pages());
                if !planted("flash: behind a seal the ledger hears nothing") {
                    dirty.for_each(|id| self.around.ledger.first_change(id, *redo, *redo));
                }
            }
            Some(_) => {}
        }
    }

    /// Finds the pages that the previous start left. If its records are of no use, the slots found so far are
    /// removed.
    fn restore(&self, earlier: &Earlier<'_>) -> Result<(), Cold> {
        if !self.records.hardening.earlier?.are_of(earlier.start) {
            reached("flash: the start before did not have the cache");
            return Err(Cold::Older);
        }
        if self.records.hardening.earlier != Ok(Marks::of(earlier.start)) {
            reached("flash: a start follows one that did no more than announce itself");
        }
        let mut found = FoundRecords::default();
        let is_ours = match earlier.noted.filter(|_| self.records.scheme == FlashRestart::LogBased) {
            Some(noted) => {
                let epoch = self.records.hardening.whose().epoch;
                noted
                    .records(epoch)
                    .all(|(stored, record)| self.look_at(stored, &record, earlier, &mut found))
            }
            None => self.look_at_table(earlier, &mut found)?,
        };
        if !is_ours {
            reached("flash: a cache of another history is not believed");
            return Err(Cold::OtherHistory);
        }
        self.slots.tick_past(found.newest);
        let history = earlier.history;
        self.records.hardening.found_from(history.from, history.until, self.around.log.durable_block());
        let FoundRecords { left, clean, dirty, .. } = found;
        let counters = &self.counters;
        counters.not_restored.fetch_add(left, Relaxed);
        counters.restored.fetch_add(clean + dirty, Relaxed);
        counters.restored_dirty.fetch_add(dirty, Relaxed);
        if clean > 0 {
            reached("flash: clean slots are found again");
        }
        if dirty > 0 {
            reached("flash: dirty slots are found again");
        }
        Ok(())
    }

    /// Reads the records of all slots. Returns false if a record belongs to another history.
    fn look_at_table(&self, earlier: &Earlier<'_>, found: &mut FoundRecords) -> Result<bool, Cold> {
        let (blocks, mut sum) = (self.drive.store.table_blocks(), 0);
        for first in (0..blocks).step_by(READ_BLOCKS as usize) {
            let some = READ_BLOCKS.min(blocks - first);
            let mut bytes = AlignedBuf::new(some as usize * TABLE_BLOCK_BYTES);
            self.drive.store.read_records(first, &mut bytes).map_err(|cause| {
                self.note_error(&cause);
                Cold::Unreadable
            })?;
            sum = sum_of(sum, &bytes);
            for (block, bytes) in (first..).zip(bytes.chunks_exact(TABLE_BLOCK_BYTES)) {
                for (stored, record) in self.records_of(block, bytes) {
                    if !self.look_at(stored, &record, earlier, found) {
                        return Ok(false);
                    }
                }
            }
        }
        // The sum is computed over the bytes that were used here, because a drive may return other bytes at a
        // second read.
        if earlier.sealed.is_some() && sum != self.records.hardening.seal.sum && !planted(ANY_SUM) {
            reached("flash: records change between two reads");
            return Err(Cold::Unsteady);
        }
        Ok(true)
    }

    /// Uses one record. Returns false if it belongs to another history.
    fn look_at(&self, stored: u32, record: &Record, earlier: &Earlier<'_>, found: &mut FoundRecords) -> bool {
        let fate = match earlier.sealed {
            Some(_) if record.is_dirty && !planted("flash: a seal's dirty slots are clean") => Fate::Dirty,
            Some(_) => Fate::Clean,
            None => self.fate(record, stored, earlier.history),
        };
        match fate {
            Fate::Foreign => return false,
            Fate::Left => found.left += 1,
            Fate::Clean => found.clean += 1,
            Fate::Dirty => found.dirty += 1,
        }
        found.newest = found.newest.max(record.last);
        self.find(stored, record, fate, earlier);
        true
    }

    fn records_of(&self, block: u32, bytes: &[u8]) -> Vec<(u32, Record)> {
        let epoch = self.records.hardening.whose().epoch;
        let first = block * RECORDS_OF_BLOCK as u32;
        let each = (first..self.slots()).take(RECORDS_OF_BLOCK);
        each.filter_map(|stored| Some((stored, Record::get(bytes, epoch, stored)?))).collect()
    }

    fn fate(&self, record: &Record, stored: u32, history: &History) -> Fate {
        let Record { page, lsn, before, .. } = *record;
        let (from, stable, end) = (history.from, history.stable, history.until.max(history.from));
        // A memory-mapped record is right as long as it exists, and has no log position.
        let is_kept = self.records.scheme == FlashRestart::MemoryMapped;
        if lsn > history.until || before > end {
            return Fate::Foreign;
        }
        let is_its_place =
            self.slots.partition_of(page) == (stored / self.slots.shape.partition_slots()) as usize;
        let is_possible = stored < self.slots() && SpaceId::DURABLE.contains(&page.space()) && is_its_place;
        // If the file was cut and has grown again, the data files may have a newer descriptor page, and no
        // log record says so.
        let is_possible =
            is_possible && !Geometry::of(page.space(), self.drive.store.page_size()).is_descriptor(page);
        let is_read =
            is_kept || lsn.max(before) >= from || planted("flash: records from before redo are believed");
        if !is_possible || !is_read || history.is_discarded_after(page, lsn) {
            return Fate::Left;
        }
        if history.is_changed_before_redo(page, lsn) && !planted(BEFORE_REDO) {
            reached("flash: home has what was changed before redo");
            return Fate::Left;
        }
        let at_home =
            history.home_has(page).filter(|_| !planted("flash: notes of what is home are not looked at"));
        match at_home {
            Some(newer) if newer > lsn => {
                reached("flash: home has a newer version than a slot");
                Fate::Left
            }
            Some(same) if same == lsn => Fate::Clean,
            _ if lsn <= stable || planted("flash: what home may lack is clean after a start") => Fate::Clean,
            _ if self.keeps_back() => Fate::Dirty,
            _ => Fate::Left,
        }
    }

    fn find(&self, stored: u32, record: &Record, fate: Fate, earlier: &Earlier<'_>) {
        let Record { page, lsn, last, last_but_one, admitted, is_dirty, .. } = *record;
        let lacks = match fate {
            Fate::Clean => None,
            Fate::Dirty => Some(earlier.sealed.unwrap_or(earlier.history.stable)),
            Fate::Left | Fate::Foreign => return,
        };
        let kept = Kept { page, lsn, last, last_but_one, admitted, is_dirty };
        let of_each = self.slots.shape.partition_slots();
        let (partition, slot) = (stored / of_each, stored % of_each);
        self.table(partition as usize).find(slot, kept, lacks, earlier.sealed.is_some());
    }

    /// Is called when redo found the page with this LSN, and has nothing to apply. Returns whether the data
    /// files may lack the page. Then the page must enter the dirty-page table, in the order of its changes.
    pub(crate) fn is_only_here(&self, id: PageId, lsn: Lsn) -> bool {
        if !self.life.is_restoring() {
            return false;
        }
        let mut table = self.table_of(id);
        // The page was read from the data files, together with its neighbours. So the data files got a newer
        // version before the crash, and no log record says so.
        if table.remove_older(id, lsn) {
            reached("flash: redo found a page newer at home");
        }
        table.is_dirty(id) && !planted("flash: redo tells the ledger nothing of what only flash has")
    }

    /// Is called when redo has ended. `has_place` says whether a page is within its space.
    pub(crate) fn redone(&self, has_place: impl Fn(PageId) -> bool) {
        if !self.is_redo_running() {
            self.life.on(Event::RedoEnds);
            return;
        }
        for mut table in self.tables() {
            let (unseen, outside) =
                (table.remove_unverified_dirty(), table.remove_clean_if(|id| !has_place(id)));
            if unseen > 0 {
                reached("flash: a dirty slot that redo did not come by");
            }
            self.counters.not_restored.fetch_add(unseen + outside, Relaxed);
        }
        self.life.on(Event::RedoEnds);
        self.begin_keeping();
    }

    /// Is called if the device fails while redo runs. Removes dirty slots that are not verified yet, because
    /// redo can make their pages.
    #[cold]
    pub(in crate::flash) fn forget_unverified(&self) {
        if self.life.is_restoring() {
            let each = self.tables().map(|mut table| table.remove_unverified_dirty());
            self.counters.not_restored.fetch_add(each.sum(), Relaxed);
        }
    }

    /// Returns whether redo has not ended yet, and may use pages of the previous start.
    pub(in crate::flash) fn is_redo_running(&self) -> bool {
        self.life.is_restoring()
    }
}
