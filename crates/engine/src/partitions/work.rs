//! The work that one transaction has done in partitions.
//!
//! Invariants
//! 1. A transaction has changes in a partition exactly if the partition is among `open`. Then the store of
//!    the partition has an open transaction, which belongs to this transaction.
//! 2. At most one partition has changes of tables that existed before the transaction (`durable`). Then the
//!    transaction has no undo record.
//!
//! This module does not know the stores.

use smallvec::SmallVec;
use varve_memory::Savepoint;

use super::{PartitionId, StoredTable};

/// The state of a transaction's partitions at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreMarks {
    /// The savepoints of the open transactions of stores. A partition that is not listed had no open
    /// transaction.
    pub(crate) open: SmallVec<[(PartitionId, Savepoint); 1]>,
    /// The number of seals at this moment.
    pub(crate) seals: usize,
}

/// The early commit of a store's open transaction. A store creates or drops a table only while it has no open
/// transaction, so a CREATE TABLE in the middle of an SQL transaction must commit the store first. This is
/// allowed only if the SQL transaction itself has made all tables that it has changed in this store.
#[derive(Debug)]
pub(crate) struct Seal {
    pub(crate) partition: PartitionId,
    pub(crate) at: Savepoint,
}

/// Changes of tables that other transactions can see after the commit of the store.
#[derive(Debug)]
pub(crate) struct DurableWrite {
    pub(crate) partition: PartitionId,
    /// The name of the table that was changed first.
    pub(crate) table: String,
}

/// A table of a store, and the number of the transaction's undo records up to the record of the table's
/// definition.
type TableAt = (u64, StoredTable);

/// The work that one transaction has done in partitions.
#[derive(Debug, Default)]
pub(crate) struct PartitionWork {
    pub(crate) locked: SmallVec<[PartitionId; 2]>,
    pub(crate) open: SmallVec<[PartitionId; 1]>,
    pub(crate) durable: Option<DurableWrite>,
    /// The state when the running statement began.
    pub(crate) statement: StoreMarks,
    pub(crate) seals: Vec<Seal>,
    /// Tables of stores that the transaction has made.
    made: Vec<TableAt>,
    /// Tables of stores that are dropped if the transaction commits.
    given_up: Vec<TableAt>,
    /// Tables of stores that are dropped at the end of the transaction in any case.
    garbage: Vec<StoredTable>,
}

impl PartitionWork {
    /// Returns whether the transaction has made this table, so that no other transaction sees it before the
    /// commit.
    pub(crate) fn has_made(&self, at: StoredTable) -> bool {
        self.made.iter().any(|(_, made)| *made == at)
    }

    /// Returns whether the transaction has made a table in the partition before it had more than `records`
    /// undo records.
    fn has_made_before(&self, partition: PartitionId, records: u64) -> bool {
        self.made.iter().any(|(at, made)| *at <= records && made.partition == partition)
    }

    /// Returns whether the state of a partition at an earlier moment cannot be restored. This is so if rows
    /// of a table that remains after the rollback were changed since then, and a seal has committed the
    /// changes.
    pub(crate) fn is_lost(&self, partition: PartitionId, marks: &StoreMarks, records: u64) -> bool {
        let mut later = self.seals.iter().skip(marks.seals).filter(|seal| seal.partition == partition);
        let (Some(seal), is_last) = (later.next(), later.next().is_none()) else { return false };
        let is_exact = is_last && marks.open.contains(&(partition, seal.at));
        !is_exact && self.has_made_before(partition, records)
    }

    /// Records a table that was made for the definition whose undo record comes next.
    pub(crate) fn note_made(&mut self, at: StoredTable, records: u64) {
        self.made.push((records + 1, at));
    }

    /// Records a table that is no longer needed after the definition whose undo record comes next.
    pub(crate) fn note_given_up(&mut self, at: StoredTable, records: u64) {
        self.given_up.push((records + 1, at));
    }

    /// Forgets definitions that were undone, so that only `records` undo records are left.
    pub(crate) fn forget_definitions(&mut self, records: u64) {
        let is_undone = |(at, _): &TableAt| *at > records;
        self.garbage.extend(self.made.iter().filter(|made| is_undone(made)).map(|(_, at)| *at));
        self.made.retain(|made| !is_undone(made));
        self.given_up.retain(|given_up| !is_undone(given_up));
    }

    /// Takes and returns the tables that no definition refers to any more, at the end of the transaction.
    pub(crate) fn take_garbage(&mut self, is_committed: bool) -> Vec<StoredTable> {
        let unneeded = if is_committed { &mut self.given_up } else { &mut self.made };
        self.garbage.extend(unneeded.drain(..).map(|(_, at)| at));
        std::mem::take(&mut self.garbage)
    }

    /// Removes a partition that has no changes any more.
    pub(crate) fn close(&mut self, partition: PartitionId) {
        self.open.retain(|open| *open != partition);
        if self.durable.as_ref().is_some_and(|durable| durable.partition == partition) {
            self.durable = None;
        }
    }
}
