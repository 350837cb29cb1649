//! What one transaction has done in partitions.
//!
//! Invariants
//! 1. A transaction has changes in a partition exactly if the partition is among `open`. The store of the
//!    partition then has an open transaction, which is this one's.
//! 2. At most one partition has changes of tables that existed before the transaction (`durable`). Then the
//!    transaction has no undo record.
//!
//! What it does not know: the stores.

use smallvec::SmallVec;
use varve_memory::Savepoint;

use super::{PartitionId, StoredTable};

/// A moment of a transaction in its partitions.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreMarks {
    /// Moments of the open transactions of stores. A partition that is not among them had none.
    pub(crate) open: SmallVec<[(PartitionId, Savepoint); 1]>,
    /// How many seals there were.
    pub(crate) seals: usize,
}

/// The early commit of a store whose transaction has only changed tables that are not visible yet. It makes
/// room for a definition, which a store makes outside of its transactions.
#[derive(Debug)]
pub(crate) struct Seal {
    pub(crate) partition: PartitionId,
    pub(crate) at: Savepoint,
}

/// Changes of tables that others can see when the store has committed.
#[derive(Debug)]
pub(crate) struct DurableWrite {
    pub(crate) partition: PartitionId,
    /// The name of the table that was changed first.
    pub(crate) table: String,
}

/// A table of a store, and how many undo records the transaction had behind the one of its definition.
type TableAt = (u64, StoredTable);

/// What one transaction has done in partitions.
#[derive(Debug, Default)]
pub(crate) struct PartitionWork {
    pub(crate) locked: SmallVec<[PartitionId; 2]>,
    pub(crate) open: SmallVec<[PartitionId; 1]>,
    pub(crate) durable: Option<DurableWrite>,
    /// The moment at which the running statement began.
    pub(crate) statement: StoreMarks,
    pub(crate) seals: Vec<Seal>,
    /// Tables of stores that it has made.
    made: Vec<TableAt>,
    /// Tables of stores that are to be dropped when it has committed.
    given_up: Vec<TableAt>,
    /// Tables of stores that are to be dropped when it has ended in any way.
    garbage: Vec<StoredTable>,
}

impl PartitionWork {
    /// Whether a table is the transaction's own, which no other transaction sees before it commits.
    pub(crate) fn has_made(&self, at: StoredTable) -> bool {
        self.made.iter().any(|(_, made)| *made == at)
    }

    /// Whether it has made a table in the partition before it had more than `records` undo records.
    fn has_made_before(&self, partition: PartitionId, records: u64) -> bool {
        self.made.iter().any(|(at, made)| *at <= records && made.partition == partition)
    }

    /// Whether the state of a partition at an earlier moment can't be restored: rows of a table that stays
    /// were changed since, and then committed.
    pub(crate) fn is_lost(&self, partition: PartitionId, marks: &StoreMarks, records: u64) -> bool {
        let mut later = self.seals.iter().skip(marks.seals).filter(|seal| seal.partition == partition);
        let (Some(seal), is_last) = (later.next(), later.next().is_none()) else { return false };
        let is_exact = is_last && marks.open.contains(&(partition, seal.at));
        !is_exact && self.has_made_before(partition, records)
    }

    /// Notes a table that was made for the definition whose undo record comes next.
    pub(crate) fn note_made(&mut self, at: StoredTable, records: u64) {
        self.made.push((records + 1, at));
    }

    /// Notes a table that the definition whose undo record comes next does not need.
    pub(crate) fn note_given_up(&mut self, at: StoredTable, records: u64) {
        self.given_up.push((records + 1, at));
    }

    /// Definitions were taken back until `records` undo records were left.
    pub(crate) fn forget_definitions(&mut self, records: u64) {
        let is_undone = |(at, _): &TableAt| *at > records;
        self.garbage.extend(self.made.iter().filter(|made| is_undone(made)).map(|(_, at)| *at));
        self.made.retain(|made| !is_undone(made));
        self.given_up.retain(|given_up| !is_undone(given_up));
    }

    /// The transaction is over: the tables that nothing refers to any more.
    pub(crate) fn take_garbage(&mut self, is_committed: bool) -> Vec<StoredTable> {
        let unneeded = if is_committed { &mut self.given_up } else { &mut self.made };
        self.garbage.extend(unneeded.drain(..).map(|(_, at)| at));
        std::mem::take(&mut self.garbage)
    }

    /// A partition has no changes any more.
    pub(crate) fn close(&mut self, partition: PartitionId) {
        self.open.retain(|open| *open != partition);
        if self.durable.as_ref().is_some_and(|durable| durable.partition == partition) {
            self.durable = None;
        }
    }
}
