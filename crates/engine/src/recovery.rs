//! Opens a database. A new database is filled. For an existing one, the engine finds the rollback segments,
//! the catalog, and the transactions without a commit (losers).
//!
//! Invariants
//! 1. If a crash interrupts the creation of a database, the next start releases everything and creates it
//!    again.
//! 2. A loser is a transaction that had no commit when the database crashed. Losers are active, with their
//!    rows locked, before the first new transaction begins. They stay active until they are undone.
//!
//! This module does not know redo (the pager has done it).

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use varve_device::{Directory, reached};
use varve_memory::EngineKind;
use varve_pager::{Lsn, Pager, SpaceId};

use crate::bell::Bell;
use crate::catalog::Deriver;
use crate::catalog::{Catalog, CatalogState};
use crate::context::{Context, Loser};
use crate::core::{Core, Counters, Stripes};
use crate::error::{Error, Result};
use crate::ids::TreeAddress;
use crate::in_memory::MemoryEngine;
use crate::leaf_facts::LeafFacts;
use crate::paged::{PagedEngine, PagedStore, roll_back};
use crate::partitions::Partitions;
use crate::purge_queue::{Finished, PurgeState};
use crate::registry::Registry;
use crate::root::{Root, RootInfo};
use crate::row_access::Isolation;
use crate::serial::Recent;
use crate::share::Shares;
use crate::sort;
use crate::status::StatusTable;
use crate::system_tables::{self, SYSTEM_LEN};
use crate::table_counters::AllCounters;
use crate::table_engine::TableEngine;
use crate::tree::{Tree, TreeKind};
use crate::undo::{Mark, RestoredSegment, SegmentPool};
use crate::waits::Waits;

/// Position of the rollback directory in the root page. The system trees follow.
const DIRECTORY: usize = 0;
/// The period after which a failed rollback is tried again.
const RETRY_PERIOD: Duration = Duration::from_millis(200);
/// The pause between two checks whether another thread has rolled back the losers.
const LOSER_PAUSE: Duration = Duration::from_millis(20);

/// Opens the engine on a recovered pager.
pub(crate) fn open(
    pager: Pager,
    temporary: Arc<dyn Directory>,
    rollback_limit_bytes: Option<u64>,
    derive: Option<Deriver>,
) -> Result<Arc<Core>> {
    let info = match Root::read(&pager)? {
        Some(info) if info.is_ready => info,
        begun => create(&pager, begun)?,
    };
    sort::clean(&temporary)?;
    let core = assemble(pager, &info, temporary, rollback_limit_bytes, derive)?;
    core.catalog.install(system_tables::bare(&core, &info.places[1..]));
    if !info.is_ready {
        fill(&core)?;
    }
    load_catalog(&core)?;
    Ok(core)
}

/// Creates the structures of a new database.
fn create(pager: &Pager, begun: Option<RootInfo>) -> Result<RootInfo> {
    match begun {
        Some(info) => give_back(pager, &info)?,
        None => Root::create(pager)?,
    }
    let owner = pager.create_segment(SpaceId::ROLLBACK)?;
    Root::set_place(pager, DIRECTORY, TreeAddress::in_data(0, owner))?;
    let directory = SegmentPool::create(pager, owner)?;
    Root::set_place(pager, DIRECTORY, TreeAddress::in_data(directory.no().0, owner))?;
    for which in 1..=SYSTEM_LEN {
        let owner = pager.create_segment(SpaceId::DATA)?;
        Root::set_place(pager, which, TreeAddress::in_data(0, owner))?;
        let tree = Tree::create_in(pager, SpaceId::DATA, owner, TreeKind::Clustered)?;
        Root::set_place(pager, which, tree.address())?;
    }
    Root::read(pager)?.ok_or_else(|| Error::corrupt("the engine's root page is gone"))
}

/// Frees the structures of a creation that a crash interrupted.
fn give_back(pager: &Pager, info: &RootInfo) -> Result<()> {
    let directory = info.places[DIRECTORY];
    if directory.root != 0 {
        for owner in SegmentPool::owners(pager, directory.root)? {
            pager.drop_segment(SpaceId::ROLLBACK, owner)?;
        }
    }
    if directory.owner != 0 {
        Root::set_place(pager, DIRECTORY, TreeAddress::in_data(0, directory.owner))?;
        pager.drop_segment(SpaceId::ROLLBACK, directory.owner)?;
    }
    for place in info.places[1..].iter().filter(|p| p.owner != 0) {
        pager.drop_segment(SpaceId::DATA, place.owner)?;
    }
    Ok(())
}

fn assemble(
    pager: Pager,
    info: &RootInfo,
    temporary: Arc<dyn Directory>,
    rollback_limit_bytes: Option<u64>,
    derive: Option<Deriver>,
) -> Result<Arc<Core>> {
    let directory = crate::undo::page::undo_page(info.places[DIRECTORY].root);
    let (segments, found) = SegmentPool::open(&pager, directory)?;
    let (registry, status) = (Registry::new(), StatusTable::new(info.next_txn));
    let opened = pager.durable_lsn();
    registry.begin_at(opened);
    let (finished, losers) = sort_out(&registry, found);
    status.revive(&losers.iter().map(|loser| (loser.id, loser.owner)).collect::<Vec<_>>());
    let core = Core {
        pager,
        root: Root::default(),
        status,
        registry,
        waits: Waits::default(),
        shares: Shares::default(),
        recent: Recent::default(),
        segments,
        purge: PurgeState::new(finished, opened, rollback_limit_bytes),
        catalog: CatalogState::new(),
        rows: Stripes::new(),
        unique: Stripes::new(),
        counters: Counters::default(),
        leaf_facts: LeafFacts::default(),
        accesses: AllCounters::default(),
        id_limit: AtomicU64::new(info.next_txn.get()),
        engines: table_engines(),
        partitions: Partitions::default(),
        losers: losers.into(),
        temporary,
        derive,
        memory: OnceLock::new(),
    };
    Ok(Arc::new(core))
}

fn table_engines() -> Vec<Box<dyn TableEngine>> {
    let in_memory = EngineKind::ALL.map(|kind| Box::new(MemoryEngine(kind)) as Box<dyn TableEngine>);
    std::iter::once(Box::new(PagedEngine) as Box<dyn TableEngine>).chain(in_memory).collect()
}

/// Separates the committed transactions, whose undo purge removes, from the losers, whose segments are in
/// use.
fn sort_out(registry: &Registry, found: Vec<RestoredSegment>) -> (Vec<Finished>, Vec<Loser>) {
    let (mut finished, mut losers) = (Vec::new(), Vec::new());
    for found in found {
        let start = Mark { page: found.head, slot: 0 };
        if start != found.committed_end {
            let (header, end) = (found.header, found.committed_end);
            finished.push(Finished { lsn: Lsn::ZERO, header, start, end, time_us: 0 });
        }
        if let Some((id, segment)) = found.loser {
            let owner = registry.claim();
            registry.place(owner.slot).mark_loser();
            losers.push(Loser { owner, id, segment });
        }
    }
    (finished, losers)
}

/// Inserts the first rows in a transaction, and marks the database as complete.
fn fill(core: &Arc<Core>) -> Result<()> {
    let mut cx = Context::new(Arc::clone(core), Isolation::ReadCommitted, None);
    system_tables::fill(&mut cx)?;
    let lsn = cx.log_commit()?;
    core.pager.flush_log(lsn)?;
    cx.leave();
    Root::set_ready(&core.pager)?;
    Ok(core.pager.flush_log(core.pager.log().end())?)
}

fn load_catalog(core: &Arc<Core>) -> Result<()> {
    let mut cx = Context::new(Arc::clone(core), Isolation::ReadCommitted, None);
    let bare = core.catalog.current();
    let loaded = system_tables::load(&mut cx, core.catalog.derive(&bare, []))?;
    tell_storage(core, &loaded)?;
    core.catalog.install(loaded);
    cx.leave();
    Ok(())
}

/// Tells the pager the storage options of all definitions. Until now, redo has stored pages as they were
/// stored before.
fn tell_storage(core: &Core, catalog: &Catalog) -> Result<()> {
    let told = catalog.all_tables().filter_map(|def| Some((def, def.storage.compression?)));
    let owners: Vec<_> = told.flat_map(|(def, how)| def.owners().map(move |owner| (owner, how))).collect();
    Ok(core.pager.tell_compression(SpaceId::DATA, &owners)?)
}

/// Undoes all losers. Losers whose rollback fails stay.
pub(crate) fn undo_losers(core: &Arc<Core>) -> Result<usize> {
    let losers = std::mem::take(&mut *core.losers.lock());
    let mut count = 0;
    let mut outcome = Ok(());
    for loser in losers {
        let mut cx = Context::of_loser(Arc::clone(core), loser);
        let catalog = core.catalog.current();
        let undone = roll_back(&mut cx, 0, &|owner| PagedStore::of_tree(&catalog, owner))
            .and_then(|()| cx.end_identity());
        match cx.take_unfinished() {
            Some(loser) => core.losers.lock().push(loser),
            None => cx.leave(),
        }
        count += usize::from(undone.is_ok());
        reached("recovery: loser undone");
        outcome = outcome.and(undone);
    }
    outcome.map(|()| count)
}

/// Undoes all losers, or waits until another thread has undone them.
///
/// # Errors
/// A rollback that fails. Its loser stays.
pub(crate) fn finish_losers(core: &Arc<Core>) -> Result<()> {
    loop {
        undo_losers(core)?;
        if core.registry.any_loser().is_none() {
            return Ok(());
        }
        std::thread::sleep(LOSER_PAUSE);
    }
}

/// Waits until the present losers are undone, because DDL reads rows without checking their locks.
pub(crate) fn wait_for_losers(cx: &mut Context) -> Result<()> {
    let mut waiting = cx.waiting();
    loop {
        let released = cx.core.waits.releases();
        let waiting_for = cx.core.registry.any_loser();
        match waiting_for.filter(|owner| *owner != cx.owner) {
            Some(owner) => waiting.wait_for(owner, released)?,
            None => return Ok(()),
        }
    }
}

/// Runs the background thread, which undoes losers at the start, and tries failed rollbacks again.
pub(crate) fn run(core: &Arc<Core>, bell: &Bell) {
    loop {
        // An error here comes from the pager. Transactions that need the rows get it, too.
        let _ = undo_losers(core);
        if !bell.wait(RETRY_PERIOD) {
            return;
        }
    }
}
