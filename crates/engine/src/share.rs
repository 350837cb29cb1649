//! Shared row locks, which several transactions may hold on one row: FOR SHARE and FOR KEY SHARE (decision
//! 0508). A foreign key takes FOR KEY SHARE on the parent row.
//!
//! The exclusive lock of a row's writer is the stamp in the row (the writer's transaction id). The holders of
//! shared locks are recorded here, in memory.
//!
//! Invariants
//! 1. A shared lock is recorded under the latch of the row's leaf, after a check that no uncommitted change
//!    conflicts with it. A writer looks here under the same latch before it stamps the row. So one of the two
//!    sees the other.
//! 2. While a row has a shared lock, every version that a rollback may restore is alive and has the same
//!    unique keys.
//! 3. When a transaction ends, its shared locks are removed after its commit is durable. A rollback to a
//!    savepoint removes the shared locks that were taken after the savepoint.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use varve_device::planted;

use crate::ids::Owner;

const SHARDS: usize = 64;

/// The strength of a row lock. Each strength conflicts with everything with which the one before conflicts,
/// and with more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockStrength {
    /// Conflicts only with `Update`: the row is not deleted, and keeps its unique keys.
    KeyShare,
    /// Conflicts with every change.
    Share,
    /// Conflicts with changes and `Share`.
    NoKeyUpdate,
    /// Conflicts with every other lock.
    Update,
}

impl LockStrength {
    /// Returns whether several transactions may have it at the same time.
    pub(crate) const fn is_shared(self) -> bool {
        matches!(self, Self::KeyShare | Self::Share)
    }
}

/// A share of a row, by the hash of tree and key.
pub(crate) type Share = (u64, LockStrength);

type Sharers = HashMap<u64, SmallVec<[(Owner, LockStrength); 2]>>;

/// The sharers by the hash of tree and key. Two keys with the same hash count as one.
pub(crate) struct Shares {
    shards: Box<[Mutex<Sharers>]>,
    /// The number of all shares.
    all: AtomicUsize,
    /// The number of shares of strength `LockStrength::Share`. Ordinary updates conflict only with these.
    whole: Apart,
}

/// A counter in its own cache lines, so that changes of other counters do not slow it down.
#[repr(align(128))]
#[derive(Default)]
struct Apart(AtomicUsize);

impl Default for Shares {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, all: AtomicUsize::new(0), whole: Apart::default() }
    }
}

impl Shares {
    fn shard(&self, hash: u64) -> &Mutex<Sharers> {
        &self.shards[hash as usize % SHARDS]
    }

    /// Records a share. Returns whether it is new.
    pub(crate) fn add(&self, (hash, strength): Share, owner: Owner) -> bool {
        let mut shard = self.shard(hash).lock();
        let sharers = shard.entry(hash).or_default();
        if sharers.iter().any(|(other, has)| *other == owner && *has >= strength) {
            return false;
        }
        sharers.push((owner, strength));
        for count in self.counts(strength) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    pub(crate) fn remove(&self, (hash, strength): Share, owner: Owner) {
        let mut shard = self.shard(hash).lock();
        let Some(sharers) = shard.get_mut(&hash) else { return };
        let Some(at) = sharers.iter().position(|share| *share == (owner, strength)) else { return };
        sharers.remove(at);
        if sharers.is_empty() {
            shard.remove(&hash);
        }
        for count in self.counts(strength) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn counts(&self, strength: LockStrength) -> impl Iterator<Item = &AtomicUsize> {
        let whole = (strength == LockStrength::Share).then_some(&self.whole.0);
        whole.into_iter().chain([&self.all])
    }

    /// Returns another transaction whose share prevents a lock of this strength for `me`. The caller has the
    /// latch of the row's leaf, which also orders the counters.
    #[inline]
    pub(crate) fn in_the_way(
        &self,
        strength: LockStrength,
        me: Owner,
        hash: impl FnOnce() -> u64,
    ) -> Option<Owner> {
        let count = match strength {
            LockStrength::KeyShare | LockStrength::Share => return None,
            LockStrength::NoKeyUpdate => &self.whole.0,
            LockStrength::Update => &self.all,
        };
        if count.load(Ordering::Relaxed) == 0 || planted("shares: who deletes a row looks at nobody") {
            return None;
        }
        let least = match strength {
            LockStrength::Update => LockStrength::KeyShare,
            _ => LockStrength::Share,
        };
        let hash = hash();
        let shard = self.shard(hash).lock();
        shard.get(&hash)?.iter().find(|(owner, has)| *owner != me && *has >= least).map(|(owner, _)| *owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_counted_once_and_are_in_the_way_of_others_only() {
        use LockStrength::{KeyShare, NoKeyUpdate, Share, Update};
        let shares = Shares::default();
        let (a, b) = (Owner { slot: 1, serial: 1 }, Owner { slot: 2, serial: 1 });
        assert!(
            shares.add((7, KeyShare), a) && !shares.add((7, KeyShare), a) && shares.add((7, KeyShare), b)
        );
        let in_the_way = |strength, me, hash| shares.in_the_way(strength, me, || hash);
        assert_eq!((in_the_way(Update, a, 7), in_the_way(Update, b, 7)), (Some(b), Some(a)));
        assert_eq!((in_the_way(Update, a, 8), in_the_way(NoKeyUpdate, a, 7)), (None, None));
        assert!(shares.add((7, Share), b) && !shares.add((7, KeyShare), b));
        assert_eq!((in_the_way(NoKeyUpdate, a, 7), in_the_way(NoKeyUpdate, b, 7)), (Some(b), None));
        shares.remove((7, Share), b);
        shares.remove((7, KeyShare), b);
        assert_eq!((in_the_way(Update, a, 7), in_the_way(Update, b, 7)), (None, Some(a)));
        shares.remove((7, KeyShare), a);
        assert!(shares.shard(7).lock().is_empty());
        assert_eq!((shares.all.into_inner(), shares.whole.0.into_inner()), (0, 0));
    }
}
