//! FOR UPDATE and its kin.
//!
//! Invariants
//! 1. The parser is given FOR UPDATE and FOR SHARE only; what else was written stands as a mark in OF (`parse/rewrite.rs`).
//!
//! Does not know: how rows are locked.

use sqlparser::ast;
use varve_engine::LockStrength;

use super::fold;
use super::scope::Relation;
use crate::error::{Result, SqlError, SqlState};
use crate::parse::LOCK_MARK;
use crate::plan::{LockWait, RowLock};

/// The locking clauses of a SELECT as one; the condition to check again is added with the access path.
pub(super) fn row_lock(
    q: &ast::Query,
    s: &ast::Select,
    grouped: bool,
    relations: &[Relation],
) -> Result<Option<RowLock>> {
    let Some(first) = q.locks.first() else { return Ok(None) };
    if grouped {
        return Err(refused(first, "with", grouping_clause(s)));
    }
    if matches!(s.distinct, Some(ast::Distinct::Distinct | ast::Distinct::On(_))) {
        return Err(refused(first, "with", "DISTINCT clause"));
    }
    for lock in &q.locks {
        check_target(lock, relations)?;
    }
    if relations.len() > 1 {
        return Err(SqlError::unsupported(format!("{} over a join", name(first))));
    }
    let strength = q.locks.iter().map(strength).max().unwrap_or(LockStrength::Update);
    Ok(Some(RowLock { wait: strictest(&q.locks), strength, recheck: None }))
}

/// The mark that the rewriting of tokens leaves, and the name behind it.
fn written(lock: &ast::LockClause) -> (Option<&str>, &[ast::ObjectNamePart]) {
    let parts = lock.of.as_ref().map_or(&[][..], |of| &of.0);
    let mark = parts.first().and_then(|p| p.as_ident()).and_then(|i| i.value.strip_prefix(LOCK_MARK));
    (mark, if mark.is_some() { &parts[1..] } else { parts })
}

fn strength(lock: &ast::LockClause) -> LockStrength {
    match (lock.lock_type, written(lock).0) {
        (ast::LockType::Update, None) => LockStrength::Update,
        (ast::LockType::Update, Some(_)) => LockStrength::NoKeyUpdate,
        (ast::LockType::Share, None) => LockStrength::Share,
        (ast::LockType::Share, Some(_)) => LockStrength::KeyShare,
    }
}

/// VALUES has no rows that could be locked.
pub(super) fn refuse_on_values(q: &ast::Query) -> Result<()> {
    match q.locks.first() {
        None => Ok(()),
        Some(lock) => {
            let message = format!("{} cannot be applied to VALUES", name(lock));
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
        }
    }
}

fn grouping_clause(s: &ast::Select) -> &'static str {
    match &s.group_by {
        ast::GroupByExpr::Expressions(list, _) if list.is_empty() && s.having.is_some() => "HAVING clause",
        ast::GroupByExpr::Expressions(list, _) if list.is_empty() => "aggregate functions",
        _ => "GROUP BY clause",
    }
}

fn refused(lock: &ast::LockClause, how: &str, what: &str) -> SqlError {
    let message = format!("{} is not allowed {how} {what}", name(lock));
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

/// `OF name` must name one of the query's relations.
fn check_target(lock: &ast::LockClause, relations: &[Relation]) -> Result<()> {
    let (_, of) = written(lock);
    if of.is_empty() {
        return Ok(());
    }
    let [part] = of else {
        let message = format!("{} must specify unqualified relation names", name(lock));
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    };
    let wanted = part.as_ident().map(fold).unwrap_or_default();
    if relations.iter().any(|r| r.alias == wanted) {
        return Ok(());
    }
    let message = format!("relation \"{wanted}\" in {} clause not found in FROM clause", name(lock));
    Err(SqlError::new(SqlState::UNDEFINED_TABLE, message))
}

/// NOWAIT wins over SKIP LOCKED, which wins over waiting, as in PostgreSQL.
fn strictest(locks: &[ast::LockClause]) -> LockWait {
    let any = |wanted: ast::NonBlock| locks.iter().any(|l| l.nonblock == Some(wanted));
    if any(ast::NonBlock::Nowait) {
        LockWait::Fail
    } else if any(ast::NonBlock::SkipLocked) {
        LockWait::Skip
    } else {
        LockWait::Wait
    }
}

fn name(lock: &ast::LockClause) -> &'static str {
    clause(strength(lock))
}

/// A locking clause in words.
pub fn clause(strength: LockStrength) -> &'static str {
    match strength {
        LockStrength::Update => "FOR UPDATE",
        LockStrength::NoKeyUpdate => "FOR NO KEY UPDATE",
        LockStrength::Share => "FOR SHARE",
        LockStrength::KeyShare => "FOR KEY SHARE",
    }
}
