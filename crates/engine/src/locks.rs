//! Lists the locks that transactions hold or wait for, for pg_locks and similar views.
//!
//! Invariants
//! 1. The result is not a consistent snapshot: the registry and the locks are read one after the other, while
//!    transactions continue.
//!
//! This module does not know sessions. The list names a transaction by the label that its session has set.

use std::collections::HashSet;

use crate::catalog::ObjectId;
use crate::core::Core;
use crate::database::Database;
use crate::ids::Owner;
use crate::lock_queue::{AdvisoryKey, Grant, Holder, Tag};
use crate::modes::LockMode;
use crate::registry::{Party, Registry};
use crate::waits::{Edge, On, State};

/// The identity of a running transaction: its slot, and its serial number there.
pub type LockOwner = (u32, u64);

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// A transaction. Each transaction locks itself until it ends.
    Whole(LockOwner),
    /// The identity of a transaction that has written. A transaction that waits for one of its rows waits for
    /// this lock.
    Identity(u64),
    /// A table, view, schema or role.
    Object(ObjectId),
    /// An advisory lock.
    Advisory(AdvisoryKey),
    /// A partition of a memory-oriented engine, by the engine's name and the partition's number.
    Partition(&'static str, u16),
}

/// A lock that is held or requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// The transaction that has it or waits for it; `None` for a session outside of its transactions.
    pub owner: Option<LockOwner>,
    /// The label of the transaction.
    pub label: u32,
    /// The locked object.
    pub on: Locked,
    /// The mode.
    pub mode: LockMode,
    /// Whether it is held. If not, it is requested.
    pub is_granted: bool,
    /// Whether it is recorded only in the transaction's slot.
    pub is_fast: bool,
}

impl Database {
    /// Returns all locks of labelled transactions except row locks. A transaction that waits for a row is
    /// shown as waiting for the transaction that has the row.
    pub fn locks(&self) -> Vec<LockInfo> {
        let core = self.core();
        let owners = core.registry.owners();
        let mut out: Vec<LockInfo> = owners.flat_map(|owner| held_at_place(core, owner)).collect();
        core.waits.look(|state| {
            out.extend(queued_locks(&core.registry, state));
            out.extend(state.edges.values().filter_map(|edge| awaited(&core.registry, edge)));
        });
        out
    }

    /// Returns the labels of the transactions for which the transaction with this label waits: first holders
    /// of the lock, then those ahead in the queue.
    pub fn blockers(&self, label: u32) -> Vec<u32> {
        let core = self.core();
        let registry = &core.registry;
        core.waits.look(|state| {
            let labels = labels(registry, state);
            let labelled = |edge: &&Edge| registry.place(edge.waiter.slot).label() == Some(label);
            let waiting = state.edges.values().filter(labelled);
            let parties = waiting.flat_map(|edge| blockers_of(registry, state, edge));
            parties.filter_map(|party| labels.iter().find(|(p, _)| *p == party)).map(|(_, l)| *l).collect()
        })
    }
}

/// Returns the parties with the labels of their transactions, or of their sessions if these have locks
/// outside of transactions.
fn labels(registry: &Registry, state: &State) -> Vec<(Party, u32)> {
    let slots = registry.owners().map(|owner| owner.slot);
    let labelled = slots.filter_map(|slot| Some((registry.party(slot), registry.place(slot).label()?)));
    let mut labels: Vec<_> = labelled.collect();
    let of_sessions = |_, grant: &Grant| {
        if let Holder::Session(label) = grant.holder {
            labels.push((grant.party, label));
        }
    };
    state.locks.each(of_sessions, |_, _| {});
    labels
}

fn blockers_of(registry: &Registry, state: &State, edge: &Edge) -> Vec<Party> {
    let party = registry.party(edge.waiter.slot);
    match edge.on {
        On::Held { by, .. } => vec![registry.party(by.slot)],
        On::Queued { tag, mode } => {
            let mut found = state.locks.hard(registry, tag, party, mode);
            let ahead = state.locks.ahead(tag, party, mode);
            ahead.into_iter().for_each(|other| {
                if !found.contains(&other) {
                    found.push(other)
                }
            });
            found
        }
    }
}

/// Returns an exclusive lock of a transaction on itself, or `None` if it has no label.
fn info(registry: &Registry, owner: Owner) -> Option<LockInfo> {
    let label = registry.place(owner.slot).label()?;
    let owner = (owner.slot, owner.serial);
    let (on, mode) = (Locked::Whole(owner), LockMode::Exclusive);
    Some(LockInfo { owner: Some(owner), label, on, mode, is_granted: true, is_fast: true })
}

fn held_at_place(core: &Core, owner: Owner) -> Vec<LockInfo> {
    let Some(own) = info(&core.registry, owner) else { return Vec::new() };
    let place = core.registry.place(owner.slot);
    let mut out = vec![own];
    if place.identity() != 0 {
        out.push(LockInfo { on: Locked::Identity(place.identity()), is_fast: false, ..own });
    }
    for (table, modes) in place.noted_tables() {
        let noted = LockMode::ALL.into_iter().filter(|mode| mode.bit() & modes != 0);
        out.extend(noted.map(|mode| LockInfo { on: Locked::Object(ObjectId(table)), mode, ..own }));
    }
    out
}

/// Locks with a queue, held and requested. A lock that a party has both for its transaction and for its
/// session is listed once.
fn queued_locks(registry: &Registry, state: &State) -> Vec<LockInfo> {
    let (mut granted, mut awaited) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    state.locks.each(
        |tag, grant| {
            if seen.insert((tag, grant.party, grant.mode)) {
                granted.extend(of_holder(registry, grant.holder, locked(tag), grant.mode));
            }
        },
        |tag, request| {
            let info = info(registry, request.waiter);
            let (on, mode) = (locked(tag), request.mode);
            awaited.extend(info.map(|info| LockInfo { on, mode, is_granted: false, is_fast: false, ..info }));
        },
    );
    granted.extend(awaited);
    granted
}

fn of_holder(registry: &Registry, holder: Holder, on: Locked, mode: LockMode) -> Option<LockInfo> {
    let whole = match holder {
        Holder::Transaction(owner) => info(registry, owner)?,
        Holder::Session(label) => LockInfo { owner: None, label, on, mode, is_granted: true, is_fast: false },
    };
    Some(LockInfo { on, mode, is_fast: false, ..whole })
}

const fn locked(tag: Tag) -> Locked {
    match tag {
        Tag::Object(id) => Locked::Object(ObjectId(id)),
        Tag::Advisory(key) => Locked::Advisory(key),
        Tag::Partition(kind, number) => Locked::Partition(kind.name(), number),
    }
}

/// Returns the lock that a transaction waits for if it waits for another transaction.
fn awaited(registry: &Registry, edge: &Edge) -> Option<LockInfo> {
    let On::Held { by, .. } = edge.on else { return None };
    let on = match registry.place(by.slot).identity() {
        0 => Locked::Whole((by.slot, by.serial)),
        id => Locked::Identity(id),
    };
    let waiter = info(registry, edge.waiter)?;
    Some(LockInfo { on, mode: LockMode::Share, is_granted: false, is_fast: false, ..waiter })
}
