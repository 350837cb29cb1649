//! Purge removes the undo records of committed transactions, in commit order, when no snapshot needs them any
//! more.
//!
//! Invariants
//! 1. The horizon is an LSN that no registered snapshot is below. A transaction is purged only if its commit
//!    LSN is at or below the horizon.
//! 2. The horizon is published before the first undo record of a transaction below it is removed.
//! 3. If the rollback segments exceed their size limit, purge ignores the oldest snapshots. Statements with
//!    these snapshots then fail (SQLSTATE 72000). The ignored snapshots no longer delay purge.
//! 4. Undo may be retained for some time after a commit, for readers of the past (AS OF). The size limit is
//!    stronger than this time.
//!
//! This module does not know rows (`paged::purge`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use varve_device::{planted, reached};
use varve_pager::{Access, Lsn, PageId, SpaceId};

use crate::core::Core;
use crate::error::Result;
use crate::ids::{RollPointer, TxnId};
use crate::paged::PagedStore;
use crate::purge_queue::Finished;
use crate::table_counters::Present;
use crate::undo::page::{self, HeaderPage, UndoPage};
use crate::undo::{Kind, Mark, Record, not_undo};

/// The period after which the purge thread works without being woken.
const PERIOD: Duration = Duration::from_millis(20);
/// The number of transactions that are purged before the floor is raised again.
const ROUND_LEN: usize = 1024;

/// Runs the loop of the background thread.
pub(crate) fn run(core: &Core) {
    while core.purge.bell.wait(PERIOD) {
        // An error here comes from the pager, and other threads get it, too. Purge tries again later.
        let _ = purge(core);
    }
}

/// Raises the floor, and purges all undo that no snapshot needs.
pub(crate) fn purge(core: &Core) -> Result<()> {
    while purge_round(core)? >= ROUND_LEN && !core.purge.bell.is_stopped() {}
    Ok(())
}

fn purge_round(core: &Core) -> Result<usize> {
    let state = &core.purge;
    let mut record = state.running.lock();
    let durable = core.pager.durable_lsn();
    let early = planted("purge: snapshots are not waited for");
    let retained = state.retained_from(durable);
    let oldest = if early {
        durable
    } else {
        core.registry.purge_horizon(durable, retained, |upto| state.newest_commit(upto))
    };
    core.status.advance_floor(Lsn::new(oldest.get().max(state.forced.load(Ordering::SeqCst))));
    state.horizon.fetch_max(oldest.get(), Ordering::SeqCst);
    let mut count = purge_below(core, oldest, &mut record)?;
    while let Some(horizon) = beyond_limit(core) {
        state.forced.fetch_max(horizon.get(), Ordering::SeqCst);
        state.horizon.fetch_max(horizon.get(), Ordering::SeqCst);
        count += purge_below(core, horizon, &mut record)?;
    }
    Ok(count)
}

/// Returns the commit LSN up to which undo must be removed, if the rollback space is over its limit.
fn beyond_limit(core: &Core) -> Option<Lsn> {
    let limit = core.purge.limit_bytes?;
    let oldest = core.purge.oldest()?;
    let used = core.pager.stats().rollback_pages * core.pager.page_size() as u64;
    (used > limit && oldest <= core.pager.durable_lsn()).then_some(oldest)
}

fn purge_below(core: &Core, horizon: Lsn, record: &mut Record) -> Result<usize> {
    let mut count = 0;
    while let Some(mut finished) = core.purge.next_below(horizon) {
        if let Err(error) = purge_transaction(core, &mut finished, record) {
            core.purge.put_back(finished);
            return Err(error);
        }
        count += 1;
        if count == ROUND_LEN || core.purge.bell.is_stopped() {
            break;
        }
    }
    Ok(count)
}

/// Purges one transaction. It stores in `start` how far the purge got, because after a failure between two
/// freed pages the first page may already have another owner.
fn purge_transaction(core: &Core, finished: &mut Finished, record: &mut Record) -> Result<()> {
    while finished.start != finished.end {
        let at = finished.start;
        match read_at(core, at, record)? {
            UndoRead::Record => {
                purge_record(core, at, record)?;
                finished.start.slot += 1;
            }
            UndoRead::Next(page) => finished.start = Mark { page, slot: 0 },
        }
    }
    free_pages(core, finished)
}

/// The result of reading a position of the undo log.
enum UndoRead {
    /// A record.
    Record,
    /// The end of the page. The records continue in the next one.
    Next(PageId),
}

fn read_at(core: &Core, at: Mark, record: &mut Record) -> Result<UndoRead> {
    let page = core.pager.fix_s(at.page, Access::Sequential)?;
    let read = UndoPage::new(&page).ok_or_else(|| not_undo(at.page))?;
    match read.record(at.slot) {
        Some(bytes) => {
            record.copy_from(bytes);
            Ok(UndoRead::Record)
        }
        None => read.next().map(UndoRead::Next).ok_or_else(|| not_undo(at.page)),
    }
}

/// Returns the tables and indexes in the catalog.
fn present(core: &Core) -> Present {
    let mut present = Present::default();
    for def in core.catalog.current().all_tables() {
        present.tables.insert(def.id);
        present.indexes.extend(def.indexes.iter().map(|index| index.id));
    }
    present
}

fn purge_record(core: &Core, at: Mark, record: &Record) -> Result<()> {
    let read = record.decode().ok_or_else(|| not_undo(at.page))?;
    core.purge.purged_count.fetch_add(1, Ordering::Relaxed);
    reached("purge: record");
    match read.kind {
        Kind::DropSegment => {
            reached("purge: dropped table or index");
            core.forget_tree(read.tree);
            core.accesses.note_drop(|| present(core));
            Ok(core.pager.drop_segment(SpaceId::DATA, read.tree)?)
        }
        Kind::UpdatePlain if read.chain.is_none() => Ok(()),
        Kind::Update | Kind::UpdatePlain | Kind::Delete => {
            let catalog = core.catalog.current();
            let pointer = RollPointer::new(at.page.no(), at.slot as u16, TxnId::new(read.txn.get()));
            match PagedStore::of_tree(&catalog, read.tree) {
                Some(store) => store.purge_row(core, &read, pointer),
                // The tree was dropped together with its segment.
                None => Ok(()),
            }
        }
        Kind::Insert | Kind::Lock | Kind::NewSegment | Kind::Chain => Ok(()),
    }
}

/// Frees the pages before the one where the transaction's records end.
fn free_pages(core: &Core, finished: &Finished) -> Result<()> {
    while free_head(core, finished.header, finished.end.page)? {}
    Ok(())
}

fn free_head(core: &Core, header: PageId, keep: PageId) -> Result<bool> {
    let mut mtr = core.pager.begin()?;
    let held = mtr.x(header)?;
    let (head, tail) = {
        let read = HeaderPage::new(mtr.page(held)).ok_or_else(|| not_undo(header))?;
        (read.head(), read.tail())
    };
    if head == keep || head == tail {
        return Ok(false);
    }
    let oldest = mtr.x(head)?;
    let next = UndoPage::new(mtr.page(oldest)).and_then(UndoPage::next).ok_or_else(|| not_undo(head))?;
    let following = mtr.x(next)?;
    let further = UndoPage::new(mtr.page(following)).ok_or_else(|| not_undo(next))?.next();
    mtr.free(head)?;
    page::set_links(&mut mtr, following, None, further);
    page::set_ends(&mut mtr, held, next, tail);
    mtr.commit();
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use varve_device::MemoryDirectory;
    use varve_pager::{Pager, PagerConfig};

    use super::*;
    use crate::context::Context;
    use crate::recovery;
    use crate::redo::EngineRedo;
    use crate::row_access::Isolation;

    fn core() -> Arc<Core> {
        let mut config = PagerConfig::new(MemoryDirectory::new());
        config.pool_bytes = 8 << 20;
        config.log_segment_bytes = 1 << 20;
        config.log_capacity_bytes = 16 << 20;
        config.background = false;
        let temporary = Arc::clone(&config.temporary);
        let pager = Pager::open(config, Arc::new(EngineRedo)).unwrap();
        recovery::open(pager, temporary, Some(1), None).unwrap()
    }

    fn commit_something(core: &Arc<Core>) -> TxnId {
        let mut cx = Context::new(Arc::clone(core), Isolation::ReadCommitted, None);
        for _ in 0..1000 {
            cx.append_plain(Kind::Chain, 99, |_| Ok(None)).unwrap();
        }
        let lsn = cx.log_commit().unwrap();
        core.pager.flush_log(lsn).unwrap();
        cx.leave();
        cx.id
    }

    /// In an earlier version, the floor stayed below every later transaction until the session ended, and
    /// their statuses were kept.
    #[test]
    fn a_snapshot_that_was_refused_does_not_hold_the_floor() {
        let core = core();
        let mut reader = Context::new(Arc::clone(&core), Isolation::RepeatableRead, None);
        commit_something(&core);
        reader.view().unwrap();
        for _ in 0..3 {
            let id = commit_something(&core);
            purge(&core).unwrap();
            assert!(reader.view().is_err());
            purge(&core).unwrap();
            assert!(core.status.floor() > id, "the floor is {} and {id} is over", core.status.floor());
        }
        reader.leave();
    }
}
