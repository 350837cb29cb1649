//! LOCK TABLE.
//!
//! Does not know: how tables are locked (`session::lock`).

use pg_query::protobuf::LockStmt;
use sqlparser::ast;

use super::Utility;
use super::node::relations;
use crate::error::{Result, SqlError};

/// PostgreSQL's table locks, from the weakest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    /// ACCESS SHARE
    AccessShare,
    /// ROW SHARE
    RowShare,
    /// ROW EXCLUSIVE
    RowExclusive,
    /// SHARE UPDATE EXCLUSIVE
    ShareUpdateExclusive,
    /// SHARE
    Share,
    /// SHARE ROW EXCLUSIVE
    ShareRowExclusive,
    /// EXCLUSIVE
    Exclusive,
    /// ACCESS EXCLUSIVE
    AccessExclusive,
}

/// LOCK TABLE.
#[derive(Debug, Clone)]
pub struct LockTable {
    /// Tables.
    pub tables: Vec<ast::ObjectName>,
    /// Mode.
    pub mode: LockMode,
    /// NOWAIT
    pub at_once: bool,
}

/// The modes by their numbers, from 1 (PostgreSQL's storage/lockdefs.h).
const MODES: [LockMode; 8] = [
    LockMode::AccessShare,
    LockMode::RowShare,
    LockMode::RowExclusive,
    LockMode::ShareUpdateExclusive,
    LockMode::Share,
    LockMode::ShareRowExclusive,
    LockMode::Exclusive,
    LockMode::AccessExclusive,
];

/// LOCK
pub(super) fn lock(l: &LockStmt) -> Result<Utility> {
    let mode = usize::try_from(l.mode).ok().and_then(|number| MODES.get(number.checked_sub(1)?));
    let mode = *mode.ok_or_else(|| SqlError::internal(format!("a lock of mode {}", l.mode)))?;
    Ok(Utility::Lock(LockTable { tables: relations(&l.relations)?, mode, at_once: l.nowait }))
}
