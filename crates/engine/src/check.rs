//! Checks a whole database: pages, trees, rows, indexes, undo, allocation.
//!
//! The check includes the pager's check of all pages. It also checks every tree (`tree::check`), overflow
//! chains and rollback segments. Every row is compared with its schema, its key and its indexes. At the end,
//! the allocated pages must be exactly the reachable pages.
//!
//! Invariants
//! 1. Damage is reported, not returned as an error. The report names the first hundred findings.
//!
//! This module does not know how to repair.

use std::collections::HashSet;
use std::sync::Arc;

use varve_pager::{Access, PageId, SpaceId};

use crate::catalog::Catalog;
use crate::core::Core;
use crate::error::Result;
use crate::in_memory::{self, MemoryStore};
use crate::overflow;
use crate::paged::PagedStore;
use crate::root::Root;
use crate::tree::Checker;
use crate::undo::page::{HeaderPage, UndoPage, listed, undo_page};
use crate::undo::{RecordRef, not_undo};
use crate::{purge, recovery};

/// The result of [`crate::Database::check`].
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The number of pages that were checked.
    pub pages: u64,
    /// The number of rows that were checked.
    pub rows: u64,
    /// The damages in the order in which they were found, at most some hundred. If it is empty, the database
    /// is sound.
    pub damages: Vec<String>,
}

/// Checks everything, after the transactions that a crash has left unfinished are rolled back. No other
/// transaction may use the database meanwhile.
pub(crate) fn check(core: &Arc<Core>) -> Result<CheckReport> {
    recovery::finish_losers(core)?;
    purge::purge(core)?;
    // Holding this mutex keeps the background purge from changing pages during the check.
    let _purge_waits = core.purge.running.lock();
    let pages = core.pager.check()?;
    let mut report = CheckReport { pages: pages.pages, rows: 0, damages: pages.damages };
    let catalog = core.catalog.current();
    let mut checker = Checker::new();
    for table in catalog.system().iter().chain(catalog.open_tables()) {
        if let Some(store) = PagedStore::of(table) {
            report.rows += store.check(core, &mut checker)?;
        }
        if let Some(store) = MemoryStore::of(table) {
            report.rows += store.check(core, &mut report.damages)?;
        }
    }
    in_memory::check_chunks(core, &mut report.damages)?;
    check_undo(core, &catalog, &mut checker)?;
    check_allocation(core, &mut checker)?;
    check_region(core, &mut checker);
    let mut known: HashSet<String> = report.damages.iter().cloned().collect();
    // A page that cannot be read is found twice: by the check of all pages, and by the check of a structure.
    // It is reported once.
    report.damages.extend(checker.damages().iter().filter(|damage| known.insert((*damage).clone())).cloned());
    let more = checker.damage_count() - checker.damages().len() as u64;
    if more > 0 {
        report.damages.push(format!("and {more} more"));
    }
    Ok(report)
}

/// Checks the segments and chunks of the region with tables.
fn check_region(core: &Core, checker: &mut Checker) {
    let Some(region) = core.memory.get() else { return };
    if let Err(error) = region.allocator().check() {
        checker.damage(format!("{}: {error}", region.location()));
    }
}

fn check_undo(core: &Core, catalog: &Catalog, checker: &mut Checker) -> Result<()> {
    let Some(info) = Root::read(&core.pager)? else { return Ok(()) };
    let directory = undo_page(info.places[0].root);
    checker.claim(directory, info.places[0].owner);
    let headers =
        listed(&core.pager.fix_s(directory, Access::Sequential)?).ok_or_else(|| not_undo(directory))?;
    headers.into_iter().try_for_each(|header| check_segment(core, catalog, checker, header))
}

fn check_segment(core: &Core, catalog: &Catalog, checker: &mut Checker, header: PageId) -> Result<()> {
    let (owner, head, tail) = {
        let page = core.pager.fix_s(header, Access::Sequential)?;
        let read = HeaderPage::new(&page).ok_or_else(|| not_undo(header))?;
        (varve_pager::page::page_owner(&page), read.head(), read.tail())
    };
    checker.claim(header, owner);
    let (mut at, mut before) = (head, None);
    loop {
        let page = core.pager.fix_s(at, Access::Sequential)?.to_vec();
        let Some(read) = UndoPage::new(&page) else {
            checker.damage(format!("page {at} of rollback segment {header} is no undo page"));
            return Ok(());
        };
        if !checker.claim(at, owner) {
            return Ok(());
        }
        if read.previous() != before {
            checker.damage(format!("undo page {at} does not name the page before it"));
        }
        check_records(core, catalog, checker, read, at);
        match read.next() {
            Some(next) => (at, before) = (next, Some(at)),
            None if at == tail => return Ok(()),
            None => {
                checker.damage(format!("rollback segment {header} ends at {at}, not at {tail}"));
                return Ok(());
            }
        }
    }
}

/// Checks that undo records can be read. Overflow chains that wait for purge belong to them.
fn check_records(core: &Core, catalog: &Catalog, checker: &mut Checker, page: UndoPage<'_>, at: PageId) {
    for slot in 0..page.count() {
        let Some(record) = page.record(slot).and_then(RecordRef::decode) else {
            checker.damage(format!("record {slot} of undo page {at} cannot be read"));
            continue;
        };
        let payload = record.before.payload;
        let is_whole = overflow::is_pointer(payload) && record.chain.is_some();
        if let Some(store) = PagedStore::of_tree(catalog, record.tree).filter(|_| is_whole) {
            overflow::check(&core.pager, &store.tree, payload, checker);
        }
    }
}

/// Checks for each page of all spaces that it is allocated exactly if it is reachable.
fn check_allocation(core: &Core, checker: &mut Checker) -> Result<()> {
    let mut spaces = core.pager.spaces_of_tables();
    spaces.push(SpaceId::ROLLBACK);
    spaces.into_iter().try_for_each(|space| Ok(checker.compare_all_with_allocation(&core.pager, space)?))
}
