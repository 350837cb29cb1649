//! Converts BEGIN, COMMIT, savepoints, and the modes of transactions from the tree of PostgreSQL's parser.

use pg_query::NodeEnum;
use pg_query::protobuf::{ConstraintsSetStmt, Node, TransactionStmt, TransactionStmtKind};

use super::node::{Opt, options, relations};
use super::{Level, Modes, Utility};
use crate::error::{Result, SqlError};
use crate::settings;

/// Converts BEGIN, COMMIT, ROLLBACK and the commands of savepoints.
pub(super) fn transaction(t: &TransactionStmt) -> Result<Utility> {
    use TransactionStmtKind::{
        TransStmtBegin, TransStmtCommit, TransStmtCommitPrepared, TransStmtPrepare, TransStmtRelease,
        TransStmtRollback, TransStmtRollbackPrepared, TransStmtRollbackTo, TransStmtSavepoint,
        TransStmtStart, Undefined,
    };
    let savepoint = || t.savepoint_name.clone();
    Ok(match t.kind() {
        TransStmtBegin => Utility::Begin(modes(&t.options)?, false),
        TransStmtStart => Utility::Begin(modes(&t.options)?, true),
        TransStmtCommit => Utility::Commit { chain: t.chain },
        TransStmtRollback => Utility::Rollback { chain: t.chain },
        TransStmtSavepoint => Utility::Savepoint(savepoint()),
        TransStmtRelease => Utility::Release(savepoint()),
        TransStmtRollbackTo => Utility::RollbackTo(savepoint()),
        TransStmtPrepare => return Err(SqlError::unsupported("PREPARE TRANSACTION")),
        TransStmtCommitPrepared => return Err(SqlError::unsupported("COMMIT PREPARED")),
        TransStmtRollbackPrepared => return Err(SqlError::unsupported("ROLLBACK PREPARED")),
        Undefined => return Err(SqlError::internal("a command for transactions that does nothing")),
    })
}

/// Converts ISOLATION LEVEL, READ ONLY and DEFERRABLE. If a mode is given twice, the last one counts.
pub(super) fn modes(list: &[Node]) -> Result<Modes> {
    let mut modes = Modes::default();
    for option in options(list)? {
        match option.name() {
            "transaction_isolation" => modes.level = Some(level(option)?),
            "transaction_read_only" => modes.read_only = Some(is_on(option)),
            "transaction_deferrable" => modes.deferrable = Some(is_on(option)),
            other => return Err(SqlError::internal(format!("a transaction's mode {other}"))),
        }
    }
    Ok(modes)
}

fn level(option: Opt<'_>) -> Result<Level> {
    let name = option.needed_text()?;
    settings::level_named(&name)
        .ok_or_else(|| SqlError::internal(format!("an isolation level {name} of the grammar")))
}

fn is_on(option: Opt<'_>) -> bool {
    match option.value() {
        Some(NodeEnum::AConst(_)) | None => option.truth().unwrap_or(true),
        Some(_) => option.number() != Some(0),
    }
}

/// Converts SET CONSTRAINTS.
pub(super) fn constraints(c: &ConstraintsSetStmt) -> Result<Utility> {
    let names = relations(&c.constraints)?;
    Ok(Utility::SetConstraints((!names.is_empty()).then_some(names), c.deferred))
}
