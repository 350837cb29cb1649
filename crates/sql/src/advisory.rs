//! Calls of the SQL functions for advisory locks.
//!
//! This module does not know which session has a lock (`engine`).

use varve_engine::AdvisoryKey;

/// What a function of advisory locks does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdvisoryAction {
    /// Waits for the key.
    Lock,
    /// Takes it if nobody is in the way.
    Try,
    /// Gives it back once.
    Unlock,
    /// Gives back all that the session has.
    UnlockAll,
}

/// A call of a function of advisory locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdvisoryCall {
    /// The key.
    pub key: AdvisoryKey,
    /// Others may have it too.
    pub is_shared: bool,
    /// It outlives the transaction.
    pub of_session: bool,
    /// What to do.
    pub action: AdvisoryAction,
}
