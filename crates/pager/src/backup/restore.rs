//! Makes a database of a chain of backups: an incremental backup, the backups that it is based on, and a full
//! backup as the last one.
//!
//! ```text
//!   verify all backups, find the moment in the archived log -> empty database
//!       -> place pages, newest backup first -> redo the newest one's log -> redo the archived log
//!       -> header pages get the new database id -> allocation maps -> clean shutdown
//! ```
//!
//! Invariants
//! 1. Nothing is made from a backup that is damaged, or if a backup of the chain is missing.
//! 2. An interrupted restore leaves a database that no start opens.
//! 3. Each page comes from the newest backup that has it. Redo applies a group of log records to a page only
//!    if the page LSN is below the group's end.
//! 4. A page may be missing in all backups only if it is not allocated at the end, or if the log makes it
//!    from its first byte on.
//!
//! Pages are placed through the buffer pool and the levels. So the restored database may have another layout,
//! page protection, compression or devices than the one from which the backup was taken.
//!
//! This module does not know where backups are stored, or what rows are. The engine rolls back the
//! transactions that had not committed, when it opens the database.

use std::sync::Arc;

use smallvec::SmallVec;
use varve_device::reached;

use super::archive::later::LaterLog;
use super::archive::store::TimelineName;
use super::page_set::PageSet;
use super::source::{ArchiveSource, BackupSource};
use super::verify::{self, BackupSummary, BackupVisitor, verify_backup};
use crate::api::mtr::Mtr;
use crate::api::pager::Pager;
use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageRange, SpaceId};
use crate::base::lsn::Lsn;
use crate::base::page::{self, PageDamage};
use crate::base::space_format::{DATABASE_OFFSET, Geometry};
use crate::config::PagerConfig;
use crate::control::tablespaces::{Listed, TablespacesInUse};
use crate::log::redo::{self, RedoOps};
use crate::log::{Appended, Group, Record};
use crate::open::restored;
use crate::open::tablespaces::{TablespaceParts, TablespacePlace};
use crate::pool::PageX;
use crate::running::shared::Shared;

/// Returns the location in the restored database of a tablespace that was at this location.
pub type MapLocation<'m> = &'m dyn Fn(&str) -> String;

/// What a restore has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    /// Pages that were placed.
    pub pages: u64,
    /// Changes of pages that were redone.
    pub changes: u64,
    /// The LSN of the restored state.
    pub end: Lsn,
    /// The newest time in the restored log, in microseconds since 1970, UTC, if an archive was restored.
    pub time_us: Option<u64>,
    /// The timelines of the same database in the archive that begin after this state.
    pub newer_timelines: Vec<TimelineName>,
    /// The id of the restored database.
    pub database: u64,
}

fn reading(source: &dyn BackupSource, visitor: &mut dyn BackupVisitor) -> Result<BackupSummary> {
    let mut file = source.open().map_err(|error| unreadable(source, &error))?;
    verify::read(&mut *file, visitor).map_err(|error| named(source, error))
}

fn unreadable(source: &dyn BackupSource, error: &std::io::Error) -> PagerError {
    PagerError::Backup { what: format!("{} cannot be read: {error}", source.name()) }
}

/// Adds the name of the backup to errors that are about its contents.
fn named(source: &dyn BackupSource, error: PagerError) -> PagerError {
    let what = match error {
        PagerError::Corrupt { what } | PagerError::Backup { what } => what,
        PagerError::DamagedPage { id, damage } => format!("page {id} is damaged: {damage}"),
        other => return other,
    };
    PagerError::Backup { what: format!("{}: {what}", source.name()) }
}

/// Verifies the backups of a chain, newest first, and that they belong together.
fn verify_chain(chain: &[&dyn BackupSource]) -> Result<Vec<BackupSummary>> {
    let mut summaries: Vec<BackupSummary> = Vec::new();
    for source in chain {
        let mut file = source.open().map_err(|error| unreadable(*source, &error))?;
        summaries.push(verify_backup(&mut *file).map_err(|error| named(*source, error))?);
    }
    for (at, newer) in summaries.iter().enumerate() {
        let (base, older) = (newer.start.base, summaries.get(at + 1));
        let fits = older.map_or(base.is_none(), |older| newer.is_based_on(older));
        if !fits {
            let what = match base {
                Some(base) => format!(
                    "{} is incremental: it needs the backup with id {:016x} as the next one",
                    chain[at].name(),
                    base.backup
                ),
                None => format!("{} is a full backup, and needs no other one", chain[at].name()),
            };
            return Err(PagerError::Backup { what });
        }
    }
    Ok(summaries)
}

/// Restores a database from a chain of backups, newest first, into the empty place that `config` names. The
/// page size is that of the backup.
pub fn restore(
    config: PagerConfig,
    ops: Arc<dyn RedoOps>,
    chain: &[&dyn BackupSource],
    location: MapLocation<'_>,
) -> Result<RestoreReport> {
    restore_until(config, ops, chain, None, location)
}

/// Does the same as `restore`. With an archive, it also redoes the archived log after the backup, up to a
/// moment.
pub fn restore_until(
    mut config: PagerConfig,
    ops: Arc<dyn RedoOps>,
    chain: &[&dyn BackupSource],
    archive: Option<ArchiveSource<'_>>,
    location: MapLocation<'_>,
) -> Result<RestoreReport> {
    let summaries = verify_chain(chain)?;
    let (Some(newest), Some(first)) = (chain.first(), summaries.first()) else {
        return Err(PagerError::Backup { what: "there is no backup to restore".into() });
    };
    let later = archive.map(|archive| LaterLog::find(archive, *newest, first)).transpose()?;
    config.page_size = first.start.page_size as usize;
    config.background = false;
    let listed = later.as_ref().and_then(LaterLog::tablespaces).unwrap_or_else(|| first.end.listed_in_use());
    let tablespaces = find_tablespaces(&config, &listed, location)?;
    let end = later.as_ref().map_or(first.end.end, LaterLog::stop);
    let shared = Arc::new(restored::create(config, first.end.next.max(end), ops)?);
    make_spaces(&shared, first, &listed, &tablespaces)?;
    let mut restoring = Restoring::new(&shared, &listed);
    for (at, source) in chain.iter().enumerate() {
        restoring.step = if at == 0 { Step::PlaceAll } else { Step::PlaceMissing };
        reading(*source, &mut restoring)?;
    }
    restoring.step = Step::Redo;
    reading(*newest, &mut restoring)?;
    if let Some(later) = &later {
        restoring.step = Step::RedoLater;
        later.each_group(|group| restoring.group(group))?;
    }
    let (pages, changes) = (restoring.pages, restoring.changes);
    let absent = std::mem::take(&mut restoring.absent);
    let missing = std::mem::take(&mut restoring.missing);
    finish(&shared, &absent, &missing)?;
    let database = shared.started.database;
    Pager::restored(shared).shutdown()?;
    let time_us = later.as_ref().and_then(LaterLog::time_us);
    let newer_timelines = later.as_ref().map_or_else(Vec::new, |later| later.newer().to_vec());
    Ok(RestoreReport { pages, changes, end, time_us, newer_timelines, database })
}

/// A tablespace that a restore makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredTablespace {
    /// Its name.
    pub name: String,
    /// Its location in the database that was backed up.
    pub location: String,
}

/// Returns the tablespaces that `restore_until` makes. It reads the archive, but makes nothing.
pub fn tablespaces_until(
    newest: &dyn BackupSource,
    archive: ArchiveSource<'_>,
) -> Result<Vec<RestoredTablespace>> {
    let mut file = newest.open().map_err(|error| unreadable(newest, &error))?;
    let summary = verify_backup(&mut *file).map_err(|error| named(newest, error))?;
    let later = LaterLog::find(archive, newest, &summary)?;
    let listed = later.tablespaces().unwrap_or_else(|| summary.end.listed_in_use());
    let each =
        listed.all.into_iter().map(|Listed { name, location, .. }| RestoredTablespace { name, location });
    Ok(each.collect())
}

/// Finds the directories of the tablespaces, and refuses those that are in use.
fn find_tablespaces(
    config: &PagerConfig,
    listed: &TablespacesInUse,
    location: MapLocation<'_>,
) -> Result<Vec<TablespacePlace>> {
    let moved = |listed: &Listed| Listed { location: location(&listed.location), ..listed.clone() };
    listed
        .all
        .iter()
        .map(|listed| {
            let place = TablespacePlace::of(config, moved(listed))?;
            place.refuse_unfit(config.page_size)?;
            Ok(place)
        })
        .collect()
}

/// Makes the files of the tablespaces, and all files as long as they were at the end of the backup.
fn make_spaces(
    shared: &Shared,
    summary: &BackupSummary,
    in_use: &TablespacesInUse,
    tablespaces: &[TablespacePlace],
) -> Result<()> {
    let (database, end) = (shared.started.database, &summary.end);
    if !tablespaces.is_empty() {
        let listed = tablespaces.iter().map(|place| place.listed.clone()).collect();
        let mut list = shared.tablespaces.lock();
        list.update(&*shared.config.control, &shared.control, |list| {
            list.take_over(listed, in_use.next);
        })?;
    }
    let parts = TablespaceParts {
        config: &shared.config,
        database,
        ledger: &shared.ledger,
        log: &shared.log,
        compressions: &shared.compressions,
        trim: &shared.trim,
    };
    for place in tablespaces {
        let id = place.listed.id;
        place.make(&parts, shared.spaces.layouts())?;
        shared.spaces.make_tablespace(Geometry::of(id, shared.config.page_size), database, 0)?;
        shared.spaces.add(id, shared.config.page_size);
    }
    end.spaces.iter().try_for_each(|(space, pages)| match shared.spaces.geometry(*space) {
        Ok(_) => shared.spaces.lengthen_to(*space, *pages),
        // The tablespace was dropped when the backup ended, or later.
        Err(_) => Ok(()),
    })
}

/// What is done with the contents of a backup that is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// All pages are placed.
    PlaceAll,
    /// Only the pages that a newer backup did not have are placed.
    PlaceMissing,
    /// The log of the backup is redone.
    Redo,
    /// The archived log after the backup is redone.
    RedoLater,
}

/// A database that is being restored.
struct Restoring<'s> {
    shared: &'s Arc<Shared>,
    tablespaces: Vec<SpaceId>,
    /// The number of the next tablespace. Those with smaller numbers that are not in use were dropped.
    next_tablespace: u32,
    step: Step,
    /// Pages that an older backup of the chain must have.
    missing: PageSet,
    /// Pages that a log record changes, and that are not there.
    absent: PageSet,
    pages: u64,
    changes: u64,
    /// Pages that were changed since changed pages were written.
    dirty: usize,
}

/// A page that the present group changes. `page` is `None` if it is not changed.
struct Touched<'s> {
    id: PageId,
    page: Option<PageX<'s>>,
}

impl<'s> Restoring<'s> {
    fn new(shared: &'s Arc<Shared>, in_use: &TablespacesInUse) -> Restoring<'s> {
        Restoring {
            shared,
            tablespaces: in_use.all.iter().map(|one| one.id).collect(),
            next_tablespace: in_use.next,
            step: Step::PlaceAll,
            missing: PageSet::default(),
            absent: PageSet::default(),
            pages: 0,
            changes: 0,
            dirty: 0,
        }
    }

    /// Returns whether the page is in a space of the restored database, and within its file.
    fn has_place(&self, id: PageId) -> bool {
        let is_known = !id.space().is_tablespace() || self.tablespaces.contains(&id.space());
        is_known && self.shared.spaces.has_place(id)
    }

    /// Makes the space of the page longer if the database has made it longer since the backup. Nothing in the
    /// log says so, but each page is formatted by the log before it is used.
    fn lengthen_for(&self, id: PageId) -> Result<()> {
        let space = id.space();
        if space.is_tablespace() && !self.tablespaces.contains(&space) {
            if u32::from(space.0) < self.next_tablespace {
                return Ok(());
            }
            let what = format!(
                "the archived log changes page {id} of a tablespace that it does not name: the server ran without an \
                 archive when the tablespace was made; use a later backup"
            );
            return Err(PagerError::Backup { what });
        }
        if self.shared.spaces.has_place(id) {
            return Ok(());
        }
        reached("restore: a space grows");
        let geometry = self.shared.spaces.geometry(space)?;
        let pages = (geometry.extent_of(id) + 1).saturating_mul(geometry.extent_pages);
        self.shared.spaces.lengthen_to(space, pages)
    }

    /// Writes changed pages if there are many, so that frames are free.
    fn relieve(&mut self) -> Result<()> {
        self.dirty += 1;
        let frames = self.shared.pool.frame_count();
        if self.dirty < (frames / 8).max(1) {
            return Ok(());
        }
        self.shared.clean_oldest(std::mem::take(&mut self.dirty))?;
        Ok(())
    }

    /// Returns a page for a change that ends at `end`. Returns `None` if the page has the change, or if the
    /// backups do not have the page.
    fn open(&mut self, id: PageId, op: u8, end: Lsn) -> Result<Option<PageX<'s>>> {
        if self.step == Step::RedoLater {
            self.lengthen_for(id)?;
        }
        if !self.has_place(id) {
            return Ok(None);
        }
        let found: Result<PageX<'s>> = self.shared.pool.fix(id, Access::Random);
        let page = match found {
            Ok(page) => page,
            Err(PagerError::DamagedPage { damage: PageDamage::Zero, .. }) if redo::is_whole_page(op) => {
                self.absent.remove(id);
                self.missing.remove(id);
                self.shared.pool.create(id)?
            }
            Err(PagerError::DamagedPage { damage: PageDamage::Zero, .. }) => {
                reached("restore: a change of a page that was freed");
                self.absent.insert(id);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let is_behind = page::page_lsn(&page) < end;
        Ok(Some(page).filter(|_| is_behind))
    }

    fn change(
        &mut self,
        pages: &mut SmallVec<[Touched<'s>; 6]>,
        end: Lsn,
        id: PageId,
        op: u8,
        payload: &[u8],
    ) -> Result<()> {
        let at = match pages.iter().position(|touched| touched.id == id) {
            Some(at) => at,
            None => {
                pages.push(Touched { id, page: self.open(id, op, end)? });
                pages.len() - 1
            }
        };
        let Some(page) = &mut pages[at].page else { return Ok(()) };
        self.changes += 1;
        redo::apply(&*self.shared.ops, id, page.bytes_mut(), op, payload).map_err(|why| PagerError::Corrupt {
            what: format!("redo of page {id} at LSN {end}: {why}; page or log of the backup is damaged"),
        })
    }
}

impl BackupVisitor for Restoring<'_> {
    fn page(&mut self, id: PageId, bytes: &[u8]) -> Result<()> {
        let is_wanted = match self.step {
            Step::PlaceAll => true,
            Step::PlaceMissing => self.missing.remove(id),
            Step::Redo | Step::RedoLater => false,
        };
        if !is_wanted || !self.has_place(id) {
            return Ok(());
        }
        let mut page = self.shared.pool.create(id)?;
        page.bytes_mut().copy_from_slice(bytes);
        // LSN 0 means that a page was never changed. A page that is placed has changed.
        let end = page::page_lsn(&page).max(Lsn::new(1));
        page.announce();
        page.stamp(&Appended { block: Lsn::ZERO, start: Lsn::ZERO, end });
        drop(page);
        self.pages += 1;
        self.relieve()
    }

    fn same(&mut self, range: PageRange) -> Result<()> {
        if self.step == Step::PlaceAll {
            self.missing.insert_all(range);
        }
        Ok(())
    }

    fn group(&mut self, group: Group<'_>) -> Result<()> {
        if !matches!(self.step, Step::Redo | Step::RedoLater) {
            return Ok(());
        }
        let at = Appended { block: group.block, start: group.start, end: group.end };
        let mut pages: SmallVec<[Touched<'_>; 6]> = SmallVec::new();
        for record in group.records {
            let record = record.map_err(|why| PagerError::Corrupt {
                what: format!("the log's group at LSN {} makes no sense: {why}", group.start),
            })?;
            let Record::Change { page, op, payload } = record else { continue };
            self.change(&mut pages, group.end, page, op, payload)?;
        }
        for page in pages.iter_mut().filter_map(|touched| touched.page.as_mut()) {
            if page.is_clean() {
                page.announce();
            }
            page.stamp(&at);
        }
        let count = pages.len();
        drop(pages);
        (0..count).try_for_each(|_| self.relieve())
    }
}

/// Gives the header pages the id of the new database, reads the allocation maps, and checks that no allocated
/// page is missing.
fn finish(shared: &Arc<Shared>, absent: &PageSet, missing: &PageSet) -> Result<()> {
    let database = shared.started.database;
    let mut mtr = Mtr::new(shared);
    let headers = shared.spaces.headers().into_iter().map(|id| mtr.x(id)).collect::<Result<Vec<_>>>()?;
    for header in headers {
        let bytes = [database.to_le_bytes(), 0_u64.to_le_bytes()].concat();
        mtr.write(header, DATABASE_OFFSET, &bytes);
    }
    let end = mtr.commit();
    shared.log.flush(end)?;
    shared.spaces.load_again(&shared.pool, database)?;
    let lost = absent.each().chain(missing.each()).find(|id| shared.spaces.is_allocated(*id));
    lost.map_or(Ok(()), |id| {
        let what = format!("page {id} is in use, and no backup of the chain has it: use another backup");
        Err(PagerError::Backup { what })
    })
}
