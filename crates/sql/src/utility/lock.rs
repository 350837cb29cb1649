//! Converts LOCK TABLE from the tree of PostgreSQL's parser.
//!
//! This module does not know how tables are locked (`session::lock`).

use crate::ast;
use pg_query::protobuf::LockStmt;
use varve_engine::LockMode;

use super::Utility;
use super::node::relations;
use crate::error::{Result, SqlError};

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

/// Converts LOCK. The modes have PostgreSQL's numbers, from 1 (its storage/lockdefs.h).
pub(super) fn lock(l: &LockStmt) -> Result<Utility> {
    let mode = usize::try_from(l.mode).ok().and_then(|number| LockMode::ALL.get(number.checked_sub(1)?));
    let mode = *mode.ok_or_else(|| SqlError::internal(format!("a lock of mode {}", l.mode)))?;
    Ok(Utility::Lock(LockTable { tables: relations(&l.relations)?, mode, at_once: l.nowait }))
}
