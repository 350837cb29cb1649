//! Advisory locks. Their keys have a meaning only for applications. A session-level lock of this kind
//! outlives its transaction.
//!
//! Invariants
//! 1. A session keeps its session-level locks after a rollback. It has to release a lock as often as it took
//!    the lock. When the session ends, all its locks are released.
//!
//! This module does not know how a key is written in SQL.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;

use crate::core::Core;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::ids::Owner;
use crate::lock_queue::{AdvisoryKey, Grant, Holder, Request, Tag};
use crate::modes::LockMode;
use crate::registry::Party;
use crate::transaction::Transaction;
use crate::waits::{Got, Patience, WaitNotice, Wish};

/// A session's identity in the lock table. Locks of the session and of its transactions never conflict with
/// each other.
pub struct SessionLocks {
    core: Arc<Core>,
    party: Party,
    label: u32,
    /// The session-level locks that the session has.
    held: Mutex<HashSet<(AdvisoryKey, LockMode)>>,
}

impl std::fmt::Debug for SessionLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionLocks").field("label", &self.label).finish_non_exhaustive()
    }
}

/// Takes advisory locks while a transaction runs.
#[derive(Clone)]
pub struct Locker {
    core: Arc<Core>,
    owner: Owner,
    timeout: Option<Duration>,
    cancel: Option<Arc<AtomicBool>>,
    notice: Option<Arc<WaitNotice>>,
}

impl std::fmt::Debug for Locker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locker").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// Returns the mode of an advisory lock.
const fn mode(is_shared: bool) -> LockMode {
    if is_shared { LockMode::Share } else { LockMode::Exclusive }
}

impl Database {
    /// Returns the locks of a new session. [`Database::locks`] shows the session under this label.
    pub fn session_locks(&self, label: u32) -> SessionLocks {
        let core = Arc::clone(self.core());
        SessionLocks { party: core.waits.new_party(), core, label, held: Mutex::default() }
    }
}

impl Transaction {
    /// Records that this transaction belongs to the session.
    pub fn set_session(&mut self, session: &SessionLocks) {
        let place = self.cx.core.registry.place(self.cx.owner.slot);
        place.set_label(session.label);
        place.set_party(session.party);
    }

    /// Returns an object that takes advisory locks during the running statement.
    pub fn locker(&self) -> Locker {
        let (timeout, cancel, notice) =
            (self.cx.timeout, self.cx.cancel.clone(), self.cx.wait_notice.clone());
        Locker { core: Arc::clone(&self.cx.core), owner: self.cx.owner, timeout, cancel, notice }
    }
}

impl Locker {
    /// Locks a key until the end of the transaction, or for a session if one is given. Returns false if
    /// another party has the lock and `waits` is not set.
    pub fn lock(
        &self,
        key: AdvisoryKey,
        is_shared: bool,
        session: Option<&SessionLocks>,
        waits: bool,
    ) -> Result<bool> {
        let (registry, waiter, mode) = (&self.core.registry, self.owner, mode(is_shared));
        let holder = session.map_or(Holder::Transaction(waiter), |session| Holder::Session(session.label));
        let request = Request { party: registry.party(waiter.slot), holder, waiter, mode };
        let wish = Wish { tag: Tag::Advisory(key), strong: None, request, is_noted: false };
        let timeout = if waits { self.timeout } else { Some(Duration::ZERO) };
        let log = Some(self.core.pager.log());
        let (cancel, notice) = (self.cancel.as_deref(), self.notice.as_deref());
        let patience = Patience { timeout, deadline: None, cancel, log, notice };
        match self.core.waits.lock(registry, wish, patience) {
            Err(Error::LockTimeout) if !waits => return Ok(false),
            Ok(Got::Before) => {}
            Ok(_) => drop(session.map(|session| session.held.lock().insert((key, mode)))),
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}

impl SessionLocks {
    fn is_own(&self, grant: &Grant) -> bool {
        grant.party == self.party && matches!(grant.holder, Holder::Session(_))
    }

    /// Releases a session-level lock once. Returns false if the session does not have this lock.
    pub fn unlock(&self, key: AdvisoryKey, is_shared: bool) -> bool {
        let mode = mode(is_shared);
        let (core, tag) = (&self.core, Tag::Advisory(key));
        let was_there = core.waits.unlock(&core.registry, tag, mode, false, |grant| self.is_own(grant));
        let has_more = core.waits.look(|state| state.locks.has(tag, mode, |grant| self.is_own(grant)));
        if !has_more {
            self.held.lock().remove(&(key, mode));
        }
        was_there
    }

    /// Releases all session-level locks of the session.
    pub fn unlock_all(&self) {
        let core = &self.core;
        for (key, mode) in std::mem::take(&mut *self.held.lock()) {
            core.waits.unlock(&core.registry, Tag::Advisory(key), mode, true, |grant| self.is_own(grant));
        }
    }
}

impl Drop for SessionLocks {
    fn drop(&mut self) {
        self.unlock_all();
    }
}
