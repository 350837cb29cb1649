//! Key-share locks: who relies on rows that others may update, but not delete or give another key (decision 0508).
//!
//! Invariants
//! 1. A share is noted under the latch of the row's leaf, after the row was found alive there; who deletes the row stamps it
//!    under that latch first and looks here afterwards. So one of the two sees the other.
//! 2. A transaction's shares go when it ends, after its commit is durable.
//!
//! Does not know: why a row is relied on.

use std::collections::HashMap;

use parking_lot::Mutex;
use smallvec::SmallVec;
use varve_pager::PagerError;

use crate::catalog::Table;
use crate::context::Context;
use crate::core::{Hold, hash_key};
use crate::error::{Error, Result};
use crate::ids::{Owner, TxnId};
use crate::paged::PagedStore;
use crate::reader::Reader;
use crate::row::RowRef;
use crate::transaction::Transaction;

const SHARDS: usize = 64;

type Sharers = HashMap<u64, SmallVec<[Owner; 2]>>;

/// Sharers by the hash of tree and key; two keys with one hash count as one.
pub(crate) struct Shares(Box<[Mutex<Sharers>]>);

impl Default for Shares {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl Shares {
    fn shard(&self, hash: u64) -> &Mutex<Sharers> {
        &self.0[hash as usize % SHARDS]
    }

    /// Notes a share; whether it is new.
    fn add(&self, hash: u64, owner: Owner) -> bool {
        let mut shard = self.shard(hash).lock();
        let sharers = shard.entry(hash).or_default();
        let is_new = !sharers.contains(&owner);
        if is_new {
            sharers.push(owner);
        }
        is_new
    }

    pub(crate) fn remove(&self, hash: u64, owner: Owner) {
        let mut shard = self.shard(hash).lock();
        if let Some(sharers) = shard.get_mut(&hash) {
            sharers.retain(|sharer| *sharer != owner);
            if sharers.is_empty() {
                shard.remove(&hash);
            }
        }
    }

    /// Somebody else who shares.
    fn other(&self, hash: u64, me: Owner) -> Option<Owner> {
        self.shard(hash).lock().get(&hash)?.iter().copied().find(|sharer| *sharer != me)
    }
}

/// What was found in the place of a row that is to be shared.
enum Found {
    Shared,
    Missing,
    Wait(Owner),
}

impl PagedStore {
    fn share(&self, cx: &mut Context, key: &[u8], is_it: &mut dyn FnMut(RowRef<'_>) -> bool) -> Result<bool> {
        let hash = hash_key(self.tree.owner(), key);
        loop {
            match self.try_share(cx, key, hash, is_it)? {
                Found::Wait(owner) => cx.wait_for(owner, self.tree.owner(), key)?,
                found => {
                    // Others who wait for the same end may share too.
                    cx.pass_on();
                    return Ok(matches!(found, Found::Shared));
                }
            }
        }
    }

    /// One look under the leaf's latch.
    fn try_share(
        &self,
        cx: &mut Context,
        key: &[u8],
        hash: u64,
        is_it: &mut dyn FnMut(RowRef<'_>) -> bool,
    ) -> Result<Found> {
        let core = std::sync::Arc::clone(&cx.core);
        let found = self.tree.get(&core.pager, key, |entry| {
            let held = core.hold(TxnId::new(entry.stamp().txn), cx.id);
            let other = match held {
                Hold::Busy(owner) => Found::Wait(owner),
                Hold::Mine | Hold::Free(_) => Found::Missing,
            };
            if entry.is_deleted() {
                return Ok(other);
            }
            let mut spare = Vec::new();
            let row = self.whole_row(&core, entry.payload(), &mut spare)?;
            if !is_it(self.row(row)) {
                return Ok(other);
            }
            if core.shares.add(hash, cx.owner) {
                cx.shared.push(hash);
            }
            Ok(Found::Shared)
        });
        found.map_err(Error::from)?.unwrap_or(Ok(Found::Missing))
    }
}

impl Transaction {
    /// Relies on a row until the end: nobody else deletes it or changes its key meanwhile. Waits for who has done so and
    /// not ended. False if the newest row is gone, or `is_it` does not know it again.
    pub fn share_row(
        &mut self,
        table: &Table,
        key: &[u8],
        is_it: &mut dyn FnMut(RowRef<'_>) -> bool,
    ) -> Result<bool> {
        paged(table)?.share(&mut self.cx, key, is_it)
    }

    /// After a row was deleted, or what others refer to in it was changed: waits until nobody else relies on it.
    pub fn await_sharers(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        let tree = paged(table)?.tree.owner();
        let hash = hash_key(tree, key);
        while let Some(sharer) = self.cx.core.shares.other(hash, self.cx.owner) {
            self.cx.wait_for(sharer, tree, key)?;
            self.cx.has_taken();
            // One that ended without leaving: its commit is not durable, or its rollback goes on in the background.
            self.cx.core.pager.log().check().map_err(PagerError::from)?;
        }
        Ok(())
    }

    /// A reader of what is committed now, and of the own changes, whatever the isolation level.
    pub fn newest_reader(&mut self) -> Reader {
        Reader::of(self.cx.for_newest(), self.readers.get_or_insert_default())
    }
}

fn paged(table: &Table) -> Result<&PagedStore> {
    crate::ddl::paged(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_counted_once_and_seen_by_others_only() {
        let shares = Shares::default();
        let (a, b) = (Owner { slot: 1, serial: 1 }, Owner { slot: 2, serial: 1 });
        assert!(shares.add(7, a) && !shares.add(7, a) && shares.add(7, b));
        assert_eq!((shares.other(7, a), shares.other(7, b), shares.other(8, a)), (Some(b), Some(a), None));
        shares.remove(7, b);
        assert_eq!((shares.other(7, a), shares.other(7, b)), (None, Some(a)));
        shares.remove(7, a);
        assert!(shares.shard(7).lock().is_empty());
    }
}
