//! Calls of the SQL functions for advisory locks.
//!
//! This module does not know which session has a lock (the engine knows it).

use varve_engine::AdvisoryKey;

/// The action of a function for advisory locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdvisoryAction {
    /// Locks the key, and waits if necessary.
    Lock,
    /// Locks the key if no other session has a conflicting lock.
    Try,
    /// Releases the lock once.
    Unlock,
    /// Releases all locks of the session.
    UnlockAll,
}

/// A call of a function for advisory locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdvisoryCall {
    /// The key.
    pub key: AdvisoryKey,
    /// Whether the lock is shared.
    pub is_shared: bool,
    /// Whether the lock stays after the transaction.
    pub of_session: bool,
    /// The action.
    pub action: AdvisoryAction,
}
