//! Who holds and who awaits which locks, for those who look what a session waits for.
//!
//! Invariants
//! 1. What is told was so about now: places, locks and edges are read one after the other, and nobody is stopped for it.
//!
//! Does not know: sessions; a transaction is known by the label that it was given.

use crate::catalog::ObjectId;
use crate::core::Core;
use crate::database::Database;
use crate::ids::Owner;
use crate::table_lock::wished;
use crate::transaction::Transaction;
use crate::waits::Obstacle;

/// A transaction while it lasts: its place, and which one of that place it is.
pub type LockOwner = (u32, u64);

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// A transaction, which locks itself as long as it lasts.
    Whole(LockOwner),
    /// The identity of a transaction that has written; who waits for one of its rows waits for this.
    Identity(u64),
    /// A table, view, schema or role.
    Object(ObjectId),
}

/// A lock that is held or awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// Who has it or wants it.
    pub owner: LockOwner,
    /// The label that this transaction was given.
    pub label: u32,
    /// It has written.
    pub has_written: bool,
    /// What it locks.
    pub on: Locked,
    /// Others may have it too.
    pub is_shared: bool,
    /// It is held, not awaited.
    pub is_granted: bool,
}

impl Transaction {
    /// Names this transaction for [`Database::locks`], which shows only those that were named.
    pub fn set_label(&mut self, label: u32) {
        self.cx.core.registry.place(self.cx.owner.slot).set_label(label);
    }
}

impl Database {
    /// All locks of labelled transactions, but for those of rows: who waits for a row waits for the transaction that has it.
    pub fn locks(&self) -> Vec<LockInfo> {
        let core = self.core();
        let owners = core.registry.owners();
        let mut out: Vec<LockInfo> = owners.flat_map(|owner| held_at_place(core, owner)).collect();
        let edges = core.waits.edges();
        for (table, owner) in core.catalog.exclusive_owners() {
            let is_granted = !edges.contains(&(owner, Obstacle::UsersOf(table), None));
            let on = Locked::Object(ObjectId(table));
            out.extend(info(core, owner).map(|info| LockInfo { on, is_granted, ..info }));
        }
        for (waiter, on, wish) in edges {
            let (on, is_shared) = match (on, wish) {
                (Obstacle::UsersOf(_), _) => continue,
                (Obstacle::Held(..), Some((table, is_shared))) => {
                    (Locked::Object(ObjectId(table)), is_shared)
                }
                (Obstacle::Held(holder, _), None) => (identity(core, holder), true),
            };
            out.extend(info(core, waiter).map(|info| LockInfo { on, is_shared, is_granted: false, ..info }));
        }
        out
    }
}

/// An exclusive lock of a transaction on itself; `None` if it has no label.
fn info(core: &Core, owner: Owner) -> Option<LockInfo> {
    let place = core.registry.place(owner.slot);
    let label = place.label()?;
    let owner = (owner.slot, owner.serial);
    let has_written = place.identity() != 0;
    Some(LockInfo { owner, label, has_written, on: Locked::Whole(owner), is_shared: false, is_granted: true })
}

fn held_at_place(core: &Core, owner: Owner) -> Vec<LockInfo> {
    let Some(own) = info(core, owner) else { return Vec::new() };
    let place = core.registry.place(owner.slot);
    let mut out = vec![own];
    if own.has_written {
        out.push(LockInfo { on: Locked::Identity(place.identity()), ..own });
    }
    let object = |table| LockInfo { on: Locked::Object(ObjectId(table)), is_shared: true, ..own };
    out.extend(place.noted_tables().into_iter().map(object));
    out
}

/// What who waits for a transaction waits for.
fn identity(core: &Core, holder: Owner) -> Locked {
    match core.registry.place(holder.slot).identity() {
        0 => Locked::Whole((holder.slot, holder.serial)),
        id => Locked::Identity(id),
    }
}

/// A waiter, what is in its way, and if that is a table: which one, and whether it would share it.
pub(crate) type Awaited = (Owner, Obstacle, Option<(u32, bool)>);

impl crate::waits::Waits {
    fn edges(&self) -> Vec<Awaited> {
        self.each_edge(|waiter, on, want| {
            (waiter, on, wished(want).filter(|_| matches!(on, Obstacle::Held(..))))
        })
    }
}
