//! Recovery after a crash: analysis of the log, and redo. (The engine rolls back transactions without a
//! commit.)
//!
//! ```text
//!   control file --read_log--> analysis of all groups --begin_life--> in the control file --> log open for appending
//!                                                                                             |
//!   pager open <-- dirty pages and table <-- redo (page LSN < group end) <-- pool over the repaired files
//! ```
//!
//! Some log records change no page. They say, for example, that a page was written to the data files, or that
//! a page was discarded (its content is not needed any more).
//!
//! Invariants
//! 1. Redo applies a group of records to a page only if the page LSN is below the group's end. So applying a
//!    group a second time changes nothing, and a crash may interrupt recovery at any point.
//! 2. The data files change only after the control file has the log's new life. Until then recovery only
//!    reads.
//! 3. A format or image record has a whole page. Redo skips the records of a page before its last whole one.
//!    If the first record that redo needs is a whole one, the page is not read. This repairs torn pages,
//!    because only the image makes a torn page whole again.
//! 4. If a record says that the data files have a page with a later LSN, redo skips the page's older changes
//!    without reading the page. There are two exceptions. For a page that was repaired at this start, the LSN
//!    of its copy counts instead, because the copy may be older than that record says. Under full-page-log
//!    such a record is ignored if it comes after later changes of the page. The reason is that an earlier
//!    redo wrote the page before it came to these changes, and there is no image between.
//! 5. Redo also skips the changes that were already in the page's slot in the NVM page buffer (in persistent
//!    memory) when redo began. Redo does not rebuild such a page from a whole-page record. The rebuilt page
//!    would have a lower LSN than the image in the slot, which may be written to the data files meanwhile.
//! 6. If a record says that a page was discarded, redo skips the page's older records. The version of the
//!    page that these records change may never have been written.
//! 7. Redo skips the records of tablespaces that are not in use. They were dropped, and their numbers are
//!    never used again (`control/tablespaces.rs`).
//! 8. One thread applies the log, in log order. The pages of the next records are read ahead, and changed
//!    pages are written ahead (`windows.rs`).
//! 9. A page with an LSN beyond the log's end is damaged, and is refused. An operation that fails is damage,
//!    too. Redo continues after a page that can't be read, so that the error lists all damaged pages. The
//!    database does not open.
//! 10. All changes in log blocks before the redo position are stable in the data files. Redo never begins
//!     before this position, and only doublewrite copies with a later LSN repair pages. The log may be read
//!     from an earlier position, but only for records of the flash cache and for hints. After a shutdown with
//!     a seal, changed pages stay on flash. Then redo starts at the log's end (`flash/restart/seal.rs`).
//!
//! Recovery follows ARIES (Mohan et al. 1992, section 10), with two differences. Redo positions are at log
//! blocks. The log has no dirty-page table, because the oldest entry of the table in memory is the redo
//! position.
//!
//! This module does not know keys, transactions, or how pages are protected.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::Duration;

use smallvec::SmallVec;
use varve_device::{Directory, planted, reached};

use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, SpaceId};
use crate::base::lsn::Lsn;
use crate::base::page;
use crate::base::start_progress::StartProgress;
use crate::control::{Attached, Control, InForce, State, Superblock, random_id};
use crate::flash::FlashCache;
use crate::home::packed::note::{self, NOTE_MAP};
use crate::home::protection::Mended;
use crate::level::ledger::Ledger;
use crate::log::notes::discards;
use crate::log::notes::stored_forms::{self, Forms, NOTE_FORMS};
use crate::log::notes::written::{self, IMAGE_IGNORED};
use crate::log::redo::{self, RedoOps};
use crate::log::{Appended, Group, Known, Life, Log, LogConfig, Observe, Record, StoredLog, Tail};
use crate::pool::{PageX, Pool};

mod windows;

use crate::log::history::History;
use crate::log::notes::discarded::Discards;
use windows::{Ahead, Window};

/// The largest number of damaged pages that the error names. The others are only counted.
const DAMAGES_TOLD: usize = 100;

/// The result of analysis, which redo uses.
pub(crate) struct Plan {
    history: History,
    lives: Vec<Life>,
    /// How owners' pages are stored.
    forms: Forms,
    /// End of the last group with a whole-page record of the page.
    whole: HashMap<PageId, Lsn>,
    groups_count: u64,
    /// The tablespaces that are in use.
    tablespaces: Vec<SpaceId>,
}

/// Statistics of redo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedoReport {
    /// Groups read.
    pub groups_count: u64,
    /// Page changes applied.
    pub applied_count: u64,
    /// The number of changes that the page had already, or that concern discarded pages.
    pub skipped_count: u64,
    /// Bytes of log from where redo starts to the end.
    pub log_bytes: u64,
}

/// The steps of a start before the database was open, and the times that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Statistics of redo.
    pub redo: RedoReport,
    /// The time of analysis, which reads the log once.
    pub analysis_time: Duration,
    /// The time for opening the spaces and the levels. This includes the repair of torn pages, and reading
    /// the slot records of a flash cache.
    pub levels_time: Duration,
    /// The time of redo, which processes the log again, and reads the parts of it that are not in memory any
    /// more.
    pub redo_time: Duration,
}

impl Plan {
    /// Returns the plan for a log that begins with this life.
    pub(crate) fn empty(life: Life) -> Plan {
        Plan {
            history: History::empty(life.start),
            lives: vec![life],
            forms: Forms::new(),
            whole: HashMap::new(),
            groups_count: 0,
            tablespaces: Vec::new(),
        }
    }

    /// Returns what the log says about pages.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Repeats analysis up to the same end, from the redo position of the control file. This is needed if
    /// redo is necessary in spite of a seal.
    pub(crate) fn begun_at(self, log: &Log, block: &Superblock) -> Result<Plan> {
        let (redo, stable) = (block.redo, block.redo_start());
        let mut analysis = Analysis { stable, ..Analysis::default() };
        log.replay_first(&self.lives, redo..self.history.until, |group| analysis.group(group, &mut []))?;
        let plan = analysis.plan(redo..self.history.until, self.lives);
        Ok(Plan { tablespaces: self.tablespaces, ..plan })
    }

    /// Sets the tablespaces that are in use. Redo skips changes in all others.
    pub(crate) fn set_tablespaces(&mut self, tablespaces: Vec<SpaceId>) {
        self.tablespaces = tablespaces;
    }

    /// Returns where the log ends.
    pub(crate) fn until(&self) -> Lsn {
        self.history.until
    }

    /// Returns where reading the log starts.
    pub(crate) fn from(&self) -> Lsn {
        self.history.from
    }

    /// Returns where redo starts. All earlier changes are stable in the data files.
    pub(crate) fn stable(&self) -> Lsn {
        self.history.stable
    }

    /// Returns whether a change of the page that ends at `end` need not be redone. This is so if the data
    /// files have the page with the change, if a later whole-page record replaces the page, or if the page
    /// was discarded.
    fn is_past(&self, id: PageId, end: Lsn) -> bool {
        let is_home = self.history.written.get(&id).is_some_and(|written| end <= *written);
        let begins_later = self.whole.get(&id).is_some_and(|whole| end < *whole);
        let is_gone = || id.space().is_tablespace() && !self.tablespaces.contains(&id.space());
        is_home || begins_later || is_gone() || self.history.discards.covers(id, end)
    }

    /// Returns the forms in which pages are stored, for the owners that the log names.
    pub(crate) fn take_forms(&mut self) -> Forms {
        std::mem::take(&mut self.forms)
    }

    /// Enters the versions that repaired pages have in the data files. Redo skips their older changes.
    ///
    /// So redo never puts a version there that is older than the log's records say. If redo crashed, the next
    /// start would rely on these records, and lose the changes between.
    pub(crate) fn note_mended(&mut self, mended: &[Mended]) {
        if planted("redo: a mended page is taken for home") {
            return;
        }
        self.history.written.extend(mended.iter().map(|page| (page.id, page.lsn)));
    }

    /// Enters the pages, and the LSNs of their images, that the level above the data files has before redo
    /// changes it. Redo reads these images, whatever log records say about the data files. While redo runs,
    /// the images may be written to the data files, but no page moves in the other direction.
    pub(crate) fn note_held(&mut self, held: impl Iterator<Item = (PageId, Lsn)>) {
        self.history.written.extend(held);
    }
}

/// A log that was read. Nothing was changed yet.
pub(crate) struct ReadLog {
    stored: StoredLog,
    tail: Tail,
    plan: Plan,
}

/// The values that the control file gets in the write that begins the log's new life. They are not valid
/// before, nor after a start that was refused.
#[derive(Clone, Copy, Default)]
pub(crate) struct News {
    /// The region that the database gets.
    pub(crate) attached: Option<Attached>,
    /// A protection that the control file must have before the first log record.
    pub(crate) protection: Option<InForce>,
}

impl News {
    fn tell(self, block: &mut Superblock) {
        if let Some(region) = self.attached {
            block.attach(region);
        }
        block.protection = self.protection.unwrap_or(block.protection);
        block.state = if block.state == State::Clean { State::Open } else { block.state };
        block.sealed = None;
    }
}

/// Writes how far analysis has come.
pub(crate) struct CountedLog<'p> {
    pub(crate) progress: &'p StartProgress,
    /// Where reading the log starts.
    pub(crate) from: Lsn,
}

impl Observe for CountedLog<'_> {
    fn observe(&mut self, lsn: Lsn, _record: &Record<'_>) -> Result<()> {
        self.progress.note_analysed(lsn.max(self.from).since(self.from));
        Ok(())
    }
}

/// Reads the log from the redo position. `keeps_images` means that only images in the log repair pages.
/// `kept_bytes` is the number of log bytes that may stay in memory until redo.
pub(crate) fn read_log(
    config: LogConfig,
    block: Superblock,
    keeps_images: bool,
    kept_bytes: usize,
    observers: &mut [&mut dyn Observe],
) -> Result<ReadLog> {
    StoredLog::require_any(&*config.directory)?;
    let stored = StoredLog::open(config, block.database)?;
    stored.keep_read(kept_bytes);
    let mut analysis = Analysis { keeps_images, stable: block.redo_start(), ..Analysis::default() };
    let is_end = block.state == State::Clean;
    let known = Known { lsn: block.durable, why: if is_end { SHUT_DOWN } else { NOTED }, is_end };
    let tail =
        stored.each_group(&block.lives, block.redo, known, |group| analysis.group(group, observers))?;
    let plan = analysis.plan(block.redo..tail.next, block.lives);
    Ok(ReadLog { stored, tail, plan })
}

const SHUT_DOWN: &str = "the database was shut down cleanly at";
const NOTED: &str = "the control file notes as durable";

impl ReadLog {
    /// Returns where the log ends.
    pub(crate) fn until(&self) -> Lsn {
        self.plan.until()
    }

    /// Returns an error if redo could not begin at `redo`, because a segment between it and the start of
    /// reading is missing.
    pub(crate) fn require_from(&self, redo: Lsn) -> Result<()> {
        Ok(self.stored.require_segments(redo, self.plan.from())?)
    }

    /// Returns the empty log of a new database.
    pub(crate) fn empty(config: LogConfig, database: u64) -> Result<ReadLog> {
        let (stored, tail) = (StoredLog::open(config, database)?, Tail::empty());
        let life = Life { incarnation: 1, after: tail.next, start: stored.next_start(tail) };
        Ok(ReadLog { stored, tail, plan: Plan::empty(life) })
    }

    /// Opens the log for appending after its end, in a new life that the control file gets first. `directory`
    /// has the control file.
    pub(crate) fn begin_life(
        self,
        directory: &dyn Directory,
        control: &Control,
        news: News,
    ) -> Result<(Log, Plan)> {
        let ReadLog { stored, tail, plan } = self;
        stored.make_durable()?;
        let incarnation = control.get().next_incarnation();
        let start = stored.next_start(tail);
        let mark = random_id();
        control.begin_start(directory, tail.next, |block| {
            block.begin_life(Life { incarnation, after: tail.next, start });
            block.announce_mark(mark);
            news.tell(block);
        })?;
        Ok((stored.resume(incarnation, tail, control.get().redo)?, plan))
    }
}

/// Begins an empty log in the place that `config` names. Its LSNs are after those of the old log, which is
/// not needed any more. `directory` has the control file.
pub(crate) fn begin_empty_log(
    config: LogConfig,
    directory: &dyn Directory,
    control: &Control,
    news: News,
) -> Result<(Log, Plan)> {
    let segment_bytes = config.segment_bytes;
    let block = control.get();
    let (stored, tail) = StoredLog::begin_empty(config, block.database, block.log_end())?;
    let life = Life { incarnation: block.next_incarnation(), after: tail.next, start: tail.next };
    control.begin_start(directory, life.after, |block| {
        block.begin_empty_log(life, segment_bytes);
        block.announce_mark(random_id());
        news.tell(block);
    })?;
    reached("open: an empty log");
    let log = stored.resume(life.incarnation, tail, tail.next)?;
    Ok((log, Plan::empty(life)))
}

#[derive(Default)]
struct Analysis {
    /// Whether torn pages are repaired only by images in the log (full-page-log).
    keeps_images: bool,
    discards: Discards,
    written: HashMap<PageId, Lsn>,
    forms: Forms,
    whole: HashMap<PageId, Lsn>,
    /// Where redo starts.
    stable: Lsn,
    changed_before: HashMap<PageId, Lsn>,
    /// For each page with changes that are not stable, the end of the last group that changes it.
    needed: HashMap<PageId, Lsn>,
    groups_count: u64,
}

impl Analysis {
    fn plan(self, range: Range<Lsn>, lives: Vec<Life>) -> Plan {
        let Range { start: from, end: until } = range;
        let Analysis { stable, discards, written, forms, whole, changed_before, groups_count, .. } = self;
        let stable = stable.max(from);
        let history = History { from, stable, until, discards, written, changed_before };
        Plan { history, lives, forms, whole, groups_count, tablespaces: Vec::new() }
    }

    fn group(&mut self, group: Group<'_>, observers: &mut [&mut dyn Observe]) -> Result<()> {
        self.groups_count += 1;
        for record in group.records {
            let record = record.map_err(|why| PagerError::Corrupt {
                what: format!("the log's group at LSN {} makes no sense: {why}", group.start),
            })?;
            self.record(group.block, group.end, &record)?;
            observers.iter_mut().try_for_each(|observer| observer.observe(group.end, &record))?;
        }
        Ok(())
    }

    fn record(&mut self, block: Lsn, lsn: Lsn, record: &Record<'_>) -> Result<()> {
        match *record {
            Record::Change { page, op, .. } => {
                if block < self.stable {
                    self.changed_before.insert(page, lsn);
                }
                self.change(lsn, page, op);
            }
            Record::Note { kind: discards::NOTE_DISCARD, payload } => {
                let ranges = discards::decode(payload).ok_or_else(|| nonsense("discarded", lsn))?;
                ranges.into_iter().for_each(|range| self.discards.insert(range, lsn));
            }
            Record::Note { kind: written::NOTE_WRITTEN, payload } => {
                let images = written::decode(payload).ok_or_else(|| nonsense("written", lsn))?;
                images.into_iter().for_each(|(id, image_lsn)| self.is_home(id, image_lsn));
            }
            Record::Note { kind: NOTE_MAP, payload } => {
                let pages = note::decode(payload).ok_or_else(|| nonsense("stored", lsn))?;
                // A page that was only moved has the same content, so its record says nothing about changes.
                let written = pages.into_iter().filter(|(_, said)| !said.is_moved);
                written.for_each(|(space, said)| self.is_home(PageId::new(space, said.no), said.lsn));
            }
            Record::Note { kind: NOTE_FORMS, payload } => {
                // The record is only a hint. If a later version of the program wrote it in another format, it
                // is ignored.
                let forms = stored_forms::decode(payload).into_iter().flatten();
                self.forms.extend(forms.map(|(space, owner, how)| ((space, owner), how)));
            }
            Record::Note { .. } => {}
        }
        Ok(())
    }

    fn change(&mut self, lsn: Lsn, page: PageId, op: u8) {
        // A whole-page record after another change of the same group does not count, because redo applies the
        // other change first.
        let is_first = self.needed.get(&page).is_none_or(|last| *last < lsn);
        if redo::is_whole_page(op) && is_first && !planted(IMAGE_IGNORED) {
            self.whole.insert(page, lsn);
        }
        self.needed.insert(page, lsn);
    }

    fn is_home(&mut self, id: PageId, image_lsn: Lsn) {
        let holds_all = self.needed.get(&id).map(|last| *last <= image_lsn);
        let hides = planted("full-page-log: notes of redo hide images");
        if self.keeps_images && holds_all == Some(false) && !hides {
            reached("recovery: note of a page that was changed later");
            return;
        }
        self.written.insert(id, image_lsn);
        if holds_all == Some(true) {
            self.needed.remove(&id);
        }
    }
}

fn nonsense(what: &str, lsn: Lsn) -> PagerError {
    PagerError::Corrupt { what: format!("the note of {what} pages at LSN {lsn} makes no sense") }
}

/// Repeats all changes that pages lack, up to the end of the log that analysis found.
pub(crate) fn redo(over: Over<'_>, log: &Log, ops: &dyn RedoOps, plan: &Plan) -> Result<RedoReport> {
    let Over { pool, ledger, cache, has_threads, progress } = over;
    let report = RedoReport {
        groups_count: plan.groups_count,
        log_bytes: plan.until().max(plan.stable()).since(plan.stable()),
        ..RedoReport::default()
    };
    let damages = BTreeMap::new();
    let mut redo = Redo { pool, ledger, cache, ops, plan, damages, report };
    let all_bytes = report.log_bytes;
    let apply = |window: &Window| {
        window.groups().try_for_each(|group| {
            progress.note_redone(group.end.max(plan.stable()).since(plan.stable()), all_bytes);
            redo.group(group)
        })
    };
    Ahead { pool, log, plan }.each_window(has_threads, apply)?;
    progress.note_redone(all_bytes, all_bytes);
    all_damages(redo.damages).map_or(Ok(redo.report), Err)
}

/// Returns one error that names all damaged pages. `None` means that there are none.
fn all_damages(damages: BTreeMap<PageId, PagerError>) -> Option<PagerError> {
    let count = damages.len();
    if count < 2 {
        return damages.into_values().next();
    }
    let told = damages.values().take(DAMAGES_TOLD).map(|damage| match damage {
        PagerError::DamagedPage { id, damage } => format!("{id} ({damage})"),
        PagerError::NoSuchPage { id, pages } => format!("{id} (its space has {pages} pages)"),
        other => other.to_string(),
    });
    let told: Vec<String> = told.collect();
    let more = if count > told.len() { ", the first of them" } else { "" };
    let what = format!(
        "redo needs {count} pages that are damaged{more}: {}; restore their spaces from a backup",
        told.join(", ")
    );
    Some(PagerError::Corrupt { what })
}

/// The parts of the pager that redo uses.
#[derive(Clone, Copy)]
pub(crate) struct Over<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) ledger: &'a Ledger,
    /// The flash cache, which may have pages that the data files lack.
    pub(crate) cache: Option<&'a FlashCache>,
    /// Whether other threads may read and write pages for redo.
    pub(crate) has_threads: bool,
    pub(crate) progress: &'a StartProgress,
}

struct Redo<'a> {
    pool: &'a Pool,
    ledger: &'a Ledger,
    cache: Option<&'a FlashCache>,
    ops: &'a dyn RedoOps,
    plan: &'a Plan,
    /// Pages that could not be read.
    damages: BTreeMap<PageId, PagerError>,
    report: RedoReport,
}

/// A page of the present group. `page` is `None` if the page lacks no change of this group.
struct Touched<'a> {
    id: PageId,
    page: Option<PageX<'a>>,
}

impl<'a> Redo<'a> {
    fn group(&mut self, group: Group<'_>) -> Result<()> {
        let at = Appended { block: group.block, start: group.start, end: group.end };
        let mut pages: SmallVec<[Touched<'a>; 6]> = SmallVec::new();
        for record in group.records {
            let record = record.map_err(|why| PagerError::Corrupt {
                what: format!("the log's group at LSN {} makes no sense: {why}", group.start),
            })?;
            let Record::Change { page, op, payload } = record else { continue };
            self.change(&mut pages, at, page, op, payload)?;
        }
        pages.iter_mut().filter_map(|touched| touched.page.as_mut()).for_each(|page| page.stamp(&at));
        Ok(())
    }

    fn change(
        &mut self,
        pages: &mut SmallVec<[Touched<'a>; 6]>,
        at: Appended,
        id: PageId,
        op: u8,
        payload: &[u8],
    ) -> Result<()> {
        let known = pages.iter().position(|touched| touched.id == id);
        let place = match known {
            Some(place) => place,
            None => {
                pages.push(Touched { id, page: self.open(id, op, at)? });
                pages.len() - 1
            }
        };
        let Some(page) = &mut pages[place].page else {
            self.report.skipped_count += 1;
            return Ok(());
        };
        self.report.applied_count += 1;
        reached("recovery: change redone");
        if planted("redo: every 50th change is skipped") && self.report.applied_count.is_multiple_of(50) {
            return Ok(());
        }
        redo::apply(self.ops, id, page.bytes_mut(), op, payload).map_err(|why| PagerError::Corrupt {
            what: format!("redo of page {id} at LSN {}: {why}; page or log is damaged", at.end),
        })
    }

    /// Returns the page, if it lacks the changes of the group `at`.
    fn open(&mut self, id: PageId, op: u8, at: Appended) -> Result<Option<PageX<'a>>> {
        let end = at.end;
        if self.plan.is_past(id, end) || self.damages.contains_key(&id) {
            return Ok(None);
        }
        let page: Result<PageX<'a>> =
            if redo::is_whole_page(op) { self.pool.create(id) } else { self.pool.fix(id, Access::Random) };
        let page = match page {
            Err(damage @ (PagerError::DamagedPage { .. } | PagerError::NoSuchPage { .. })) => {
                reached("recovery: redo goes on past a damaged page");
                self.damages.insert(id, damage);
                return Ok(None);
            }
            page => page?,
        };
        let again = planted("redo: applied twice");
        let is_behind = again || page::page_lsn(&page) < end;
        if is_behind && page.is_clean() {
            page.announce();
        }
        if !is_behind && self.cache.is_some_and(|cache| cache.is_only_here(id, page::page_lsn(&page))) {
            // The data files may lack this change, and the flash cache may be lost.
            reached("recovery: flash has a change that home may lack");
            self.ledger.first_change(id, at.block, at.start);
        }
        Ok(Some(page).filter(|_| is_behind))
    }
}
