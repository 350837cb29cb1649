//! A transaction's work in partitions: locks, changes, savepoints, the end.
//!
//! | step | order |
//! |---|---|
//! | commit | values of sequences are durable; the store commits; the definitions commit; tables are dropped |
//! | rollback | stores roll back; definitions are undone; tables are dropped |
//!
//! A crash between the two commits loses only what definitions have made: their tables are orphans, which the
//! next start drops. All other changes of one transaction are in one partition, or in pages.
//!
//! Invariants
//! 1. A partition stays locked until the transaction ends, even after ROLLBACK TO.
//! 2. If a transaction has changed a table of a partition, and other transactions see this table, the
//!    transaction changes nothing else.
//! 3. A statement with SKIP LOCKED reads no row of a partition that it has skipped (`passed_by`).

use std::sync::Arc;
use std::time::Duration;

use varve_memory::{Commit, EngineKind};

use super::spread_by;
use crate::catalog::TableDef;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::ids::TxnId;
use crate::modes::LockMode;
use crate::partitions::{
    DurableWrite, PartitionId, PartitionWork, Seal, StoreMarks, StoredTable, StoredTables,
};
use crate::row_access::WhenHeld;
use crate::waits::Got;

impl Context {
    #[inline]
    fn has_partition(&self, partition: PartitionId) -> bool {
        self.stores.as_ref().is_some_and(|work| work.locked.contains(&partition))
    }

    /// Locks a partition until the transaction ends.
    pub(crate) fn lock_partition(&mut self, partition: PartitionId) -> Result<()> {
        if self.has_partition(partition) {
            Ok(())
        } else {
            self.lock_partition_within(partition, self.timeout)
        }
    }

    #[cold]
    fn lock_partition_within(&mut self, partition: PartitionId, timeout: Option<Duration>) -> Result<()> {
        let mut waiting = self.waiting();
        waiting.patience.timeout = timeout;
        let got = waiting.lock(partition.tag(), LockMode::AccessExclusive, None)?;
        self.work().locked.push(partition);
        self.passed_by.retain(|passed| *passed != partition);
        if got == Got::AfterWait {
            // The statement has read nothing in this partition yet. So it may see the changes of the
            // transaction for which it has waited.
            self.renew_snapshot();
        }
        Ok(())
    }

    /// Locks a partition before rows are read. `when_held` says what to do if another transaction has locked
    /// it.
    pub(crate) fn reach_partition(&mut self, partition: PartitionId) -> Result<()> {
        match self.when_held {
            _ if self.has_partition(partition) => Ok(()),
            WhenHeld::Wait => self.lock_partition(partition),
            WhenHeld::Fail => self.lock_partition_within(partition, Some(Duration::ZERO)),
            // The whole statement skips this partition, even if it is no longer locked.
            WhenHeld::Skip if self.passed_by.contains(&partition) => Ok(()),
            WhenHeld::Skip => match self.lock_partition_within(partition, Some(Duration::ZERO)) {
                Err(Error::LockTimeout) => {
                    self.passed_by.push(partition);
                    Ok(())
                }
                outcome => outcome,
            },
        }
    }

    fn work(&mut self) -> &mut PartitionWork {
        self.stores.get_or_insert_default()
    }

    /// Records the partition before a row is changed. Fails with 0A000 if the transaction has changed
    /// something that cannot be committed together with the table.
    pub(crate) fn begin_store_write(&mut self, def: &TableDef, at: StoredTable) -> Result<()> {
        let work = self.stores.get_or_insert_default();
        match &work.durable {
            Some(durable) if durable.partition == at.partition => return Ok(()),
            _ if work.has_made(at) => {}
            Some(durable) => {
                return Err(Error::MixedStores { written: durable.table.clone(), refused: def.name.clone() });
            }
            None => self.begin_durable_write(def, at)?,
        }
        let work = self.work();
        if !work.open.contains(&at.partition) {
            work.open.push(at.partition);
        }
        Ok(())
    }

    #[cold]
    fn begin_durable_write(&mut self, def: &TableDef, at: StoredTable) -> Result<()> {
        if self.record_count > 0 {
            let written = self.newest_change()?;
            return Err(Error::MixedStores { written, refused: def.name.clone() });
        }
        // Without an id, the first change of a page calls `begin_write`, which checks again.
        self.end_identity()?;
        self.id = TxnId::NONE;
        self.core.registry.place(self.owner.slot).set_identity(self.id.get());
        self.work().durable = Some(DurableWrite { partition: at.partition, table: def.name.clone() });
        Ok(())
    }

    /// Returns the name of the table of the newest change of a page.
    fn newest_change(&mut self) -> Result<String> {
        self.read_top()?;
        let tree = self.record.decode().map(|record| record.tree);
        let catalog = self.core.catalog.current();
        let table = tree.and_then(|tree| catalog.table_of_tree(tree));
        let table = table.filter(|table| catalog.open_table(table.def().id).is_some());
        Ok(table.map_or_else(String::new, |table| table.def().name.clone()))
    }

    /// Returns the current state of the transaction's partitions, for a later rollback.
    pub(crate) fn store_marks(&self) -> StoreMarks {
        let Some(work) = &self.stores else { return StoreMarks::default() };
        let mark = |partition: &PartitionId| {
            let store = self.core.partitions.read(*partition).ok()?;
            Some((*partition, store.savepoint()))
        };
        StoreMarks { open: work.open.iter().filter_map(mark).collect(), seals: work.seals.len() }
    }

    /// Records the state at the beginning of a statement.
    #[cold]
    pub(crate) fn mark_statement(&mut self) {
        let marks = self.store_marks();
        self.work().statement = marks;
    }

    /// Undoes the changes since `marks`.
    #[cold]
    pub(crate) fn undo_stores(&mut self, marks: &StoreMarks, records: u64) -> Result<()> {
        let work = self.work();
        let (open, locked) = (work.open.clone(), work.locked.clone());
        for partition in open {
            let is_sealed =
                self.work().seals.iter().skip(marks.seals).any(|seal| seal.partition == partition);
            let mark = marks.open.iter().find(|(marked, _)| *marked == partition && !is_sealed);
            let mut store = self.core.partitions.write(partition)?;
            match mark {
                Some((_, savepoint)) => store.rollback_to(*savepoint)?,
                None => {
                    store.rollback()?;
                    drop(store);
                    self.work().close(partition);
                }
            }
        }
        let work = self.work();
        match locked.iter().any(|partition| work.is_lost(*partition, marks, records)) {
            true => Err(Error::Unsupported {
                what: "going back to before a definition, in a transaction that has made the table and changed it,".into(),
            }),
            false => Ok(()),
        }
    }

    /// Commits the open transaction of a store early, so that a definition can be made. This is allowed only
    /// if the transaction has changed only tables that it has made itself. These tables are dropped with all
    /// their rows if the transaction does not commit.
    fn seal(&mut self, partition: PartitionId) -> Result<()> {
        let work = self.work();
        if let Some(durable) = &work.durable {
            return Err(Error::MixedStores { written: durable.table.clone(), refused: String::new() });
        }
        if !work.open.contains(&partition) {
            return Ok(());
        }
        let mut store = self.core.partitions.write(partition)?;
        let at = store.savepoint();
        if store.commit()? == Commit::Pending {
            store.sync()?;
        }
        drop(store);
        let work = self.work();
        work.seals.push(Seal { partition, at });
        work.close(partition);
        Ok(())
    }

    /// Prepares the stores for another thread, which continues the transaction.
    #[cold]
    pub(crate) fn hand_over_stores(&self) {
        for partition in self.stores.iter().flat_map(|work| &work.open) {
            // Without a store there is nothing to wait for.
            let _none = self.core.partitions.read(*partition).map(|store| store.hand_over());
        }
    }

    /// Commits in all stores, durably.
    #[cold]
    pub(crate) fn commit_stores(&mut self) -> Result<()> {
        while let Some(partition) = self.work().open.last().copied() {
            let mut store = self.core.partitions.write(partition)?;
            if store.commit()? == Commit::Pending {
                store.sync()?;
            }
            drop(store);
            self.work().close(partition);
        }
        Ok(())
    }

    /// Drops tables that no definition refers to, at the end of the transaction, while its partitions are
    /// still locked. If a table cannot be dropped now, the next start drops it.
    #[cold]
    pub(crate) fn end_stores(&mut self, is_committed: bool) {
        let Some(mut work) = self.stores.take() else { return };
        let partitions = &self.core.partitions;
        for partition in work.open.drain(..) {
            let _rolled_back = partitions.write(partition).map(|mut store| store.rollback());
        }
        for at in work.take_garbage(is_committed) {
            let _dropped_later = partitions.drop_table(at);
        }
    }

    /// Makes the tables in stores for a new definition: one table, or one in each store if the table is
    /// spread.
    pub(crate) fn new_stored_tables(&mut self, kind: EngineKind, def: &TableDef) -> Result<StoredTables> {
        let core = Arc::clone(&self.core);
        let chosen = core.partitions.choose(kind)?;
        let indexes = 1 + def.indexes.len();
        match spread_by(def) {
            Some(_) => core.partitions.of_engine(kind).map(|at| self.new_table_in(at, indexes)).collect(),
            None => Ok(StoredTables::from([self.new_table_in(chosen, indexes)?])),
        }
    }

    /// Makes new tables in the same stores for a changed definition. The old ones are dropped when the
    /// transaction commits.
    pub(crate) fn replace_stored_tables(&mut self, def: &mut TableDef) -> Result<()> {
        let old = def.stored_tables();
        let indexes = 1 + def.indexes.len();
        let new: Result<StoredTables> =
            old.iter().map(|at| self.new_table_in(at.partition, indexes)).collect();
        def.set_stored_tables(&new?);
        old.iter().for_each(|at| self.give_up_stored(*at));
        Ok(())
    }

    /// Makes a table in the store of a partition, for the definition that is made next.
    fn new_table_in(&mut self, partition: PartitionId, indexes: usize) -> Result<StoredTable> {
        self.lock_partition(partition)?;
        self.seal(partition)?;
        let at = self.core.partitions.create_table(partition, indexes)?;
        let records = self.record_count;
        self.work().note_made(at, records);
        Ok(at)
    }

    /// Records that a table is dropped when the transaction commits. The definition that is made next does
    /// not need the table.
    pub(crate) fn give_up_stored(&mut self, at: StoredTable) {
        let records = self.record_count;
        self.work().note_given_up(at, records);
    }
}
