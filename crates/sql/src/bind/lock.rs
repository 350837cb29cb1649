//! Binds the locking clauses: FOR UPDATE, FOR SHARE and their variants.
//!
//! This module does not know how rows are locked.

use std::sync::Arc;

use crate::ast;
use varve_engine::{LockStrength, TableDef};

use super::scope::Relation;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::plan::{JoinKind, LockWait, LockedTable, Output, RowLock, Select, Source};
use crate::ty::Typed;

/// Returns the locking clauses of a SELECT as one. The condition that is checked again is added with the
/// access path.
pub(super) fn row_lock(
    q: &ast::Query,
    s: &ast::Select,
    grouped: bool,
    relations: &[Relation],
) -> Result<Option<RowLock>> {
    let Some(first) = q.locks.first() else { return Ok(None) };
    if q.with_ties {
        return Err(SqlError::unsupported("WITH TIES of rows that are locked"));
    }
    if grouped {
        return Err(refused(first, "with", grouping_clause(s)));
    }
    if s.distinct.is_some() {
        return Err(refused(first, "with", "DISTINCT clause"));
    }
    for lock in &q.locks {
        check_target(lock, relations)?;
    }
    let strength = q.locks.iter().map(|lock| lock.strength).max().unwrap_or(LockStrength::Update);
    let wait = strictest(&q.locks);
    Ok(Some(RowLock { wait, strength, recheck: None, beside: Box::default(), shown: 0, limit: (None, None) }))
}

/// Adds the columns of each locked table after the outputs of a general query. The lock of a row needs them.
pub(super) fn give_locked(select: &mut Select, q: &ast::Query, relations: &[Relation]) -> Result<()> {
    let mut found = Vec::new();
    leaves(&select.source, 0, false, &mut found);
    let mut outputs = std::mem::take(&mut select.outputs).into_vec();
    let mut beside = Vec::new();
    for leaf in found {
        let alias = relations.iter().find(|r| r.first == leaf.first).map_or("", |r| r.alias.as_str());
        let clauses = q.locks.iter().filter(|lock| names(lock, alias));
        let Some(lock) = clauses.max_by_key(|lock| lock.strength) else { continue };
        let Some(table) = lockable(lock, &leaf)? else { continue };
        beside.push(LockedTable { table: table.clone(), first: outputs.len(), strength: lock.strength });
        let columns = table.columns.iter().enumerate();
        outputs.extend(columns.map(|(n, c)| Output {
            pad: None,
            ..Output::new(Expr::Column(leaf.first + n), Typed::of_column(c.column_type))
        }));
    }
    if let Some(lock) = &mut select.lock {
        (lock.beside, lock.shown) = (beside.into(), select.visible);
        // Rows that SKIP LOCKED skips do not count for LIMIT and OFFSET.
        if lock.wait == LockWait::Skip {
            lock.limit = (select.limit.take(), select.offset.take());
        }
    }
    select.visible = outputs.len();
    select.outputs = outputs.into();
    Ok(())
}

/// Returns whether a clause applies to the relation with this name.
fn names(lock: &ast::LockClause, alias: &str) -> bool {
    lock.of.as_ref().is_none_or(|of| of.last() == alias)
}

/// A relation of FROM within a join.
struct Leaf<'s> {
    source: &'s Source,
    first: usize,
    /// Whether a row of the join may have no row of this relation.
    may_be_missing: bool,
}

fn leaves<'s>(source: &'s Source, first: usize, may_be_missing: bool, out: &mut Vec<Leaf<'s>>) {
    let Source::Join(join) = source else { return out.push(Leaf { source, first, may_be_missing }) };
    let (left, right) = match join.kind {
        JoinKind::Inner => (false, false),
        JoinKind::Left => (false, true),
        JoinKind::Right => (true, false),
        JoinKind::Full => (true, true),
    };
    leaves(&join.left, first, may_be_missing || left, out);
    leaves(&join.right, first + join.left_width, may_be_missing || right, out);
}

/// Returns the table of a relation to which a clause applies. Returns `None` if the relation has no rows to
/// lock and the clause does not name it.
fn lockable<'s>(lock: &ast::LockClause, leaf: &Leaf<'s>) -> Result<Option<&'s Arc<TableDef>>> {
    let refused = |what: &str| {
        let message = format!("{} cannot be applied to {what}", name(lock));
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
    };
    let is_named = lock.of.is_some();
    match leaf.source {
        Source::Table(_) if leaf.may_be_missing => refused("the nullable side of an outer join"),
        Source::Table(t) if t.table.primary_key.is_none() => {
            let what = format!("{} over a join, of a table without primary key", name(lock));
            Err(SqlError::unsupported(what))
        }
        Source::Table(t) => Ok(Some(&t.table)),
        Source::Query(_) | Source::Set(_) => {
            Err(SqlError::unsupported(format!("{} of a subquery", name(lock))))
        }
        Source::Series(..) | Source::Unnest(_) | Source::Expand(_) if is_named => refused("a function"),
        Source::Shared(_) | Source::Work(..) if is_named => refused("a WITH query"),
        _ => Ok(None),
    }
}

/// Refuses a lock on VALUES, which has no rows to lock.
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
    match () {
        () if !s.group_by.is_empty() => "GROUP BY clause",
        () if s.having.is_some() => "HAVING clause",
        () => "aggregate functions",
    }
}

fn refused(lock: &ast::LockClause, how: &str, what: &str) -> SqlError {
    let message = format!("{} is not allowed {how} {what}", name(lock));
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

/// Checks that `OF name` names a relation of the query.
fn check_target(lock: &ast::LockClause, relations: &[Relation]) -> Result<()> {
    let Some(of) = &lock.of else { return Ok(()) };
    let [wanted] = of.0.as_slice() else {
        let message = format!("{} must specify unqualified relation names", name(lock));
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    };
    let wanted = &wanted.value;
    if relations.iter().any(|r| r.alias == *wanted) {
        return Ok(());
    }
    let message = format!("relation \"{wanted}\" in {} clause not found in FROM clause", name(lock));
    Err(SqlError::new(SqlState::UNDEFINED_TABLE, message))
}

/// Returns the strictest wait policy. NOWAIT overrides SKIP LOCKED, and SKIP LOCKED overrides waiting, as in
/// PostgreSQL.
fn strictest(locks: &[ast::LockClause]) -> LockWait {
    match locks.iter().map(|lock| lock.wait).max() {
        Some(ast::LockWait::NoWait) => LockWait::Fail,
        Some(ast::LockWait::SkipLocked) => LockWait::Skip,
        Some(ast::LockWait::Wait) | None => LockWait::Wait,
    }
}

/// Fails with 0A000 for locks on the result of a set operation.
pub(super) fn refuse_on_set(strength: Option<LockStrength>) -> Result<()> {
    let Some(strength) = strength else { return Ok(()) };
    let message = format!("{} is not allowed with UNION/INTERSECT/EXCEPT", clause(strength));
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
}

fn name(lock: &ast::LockClause) -> &'static str {
    clause(lock.strength)
}

/// Returns the words of a locking clause.
pub fn clause(strength: LockStrength) -> &'static str {
    match strength {
        LockStrength::Update => "FOR UPDATE",
        LockStrength::NoKeyUpdate => "FOR NO KEY UPDATE",
        LockStrength::Share => "FOR SHARE",
        LockStrength::KeyShare => "FOR KEY SHARE",
    }
}

/// Fails with 0A000 for locks on rows of set-returning functions in the select list.
pub fn refuse_with_sets(select: &Select) -> Result<()> {
    let Some(lock) = &select.lock else { return Ok(()) };
    let message =
        format!("{} is not allowed with set-returning functions in the target list", clause(lock.strength));
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
}

/// Fails with 0A000 for locks on rows of a query with window functions.
pub fn refuse_with_windows(select: &Select) -> Result<()> {
    let Some(lock) = select.lock.as_ref().filter(|_| !select.windows.is_empty()) else { return Ok(()) };
    let message = format!("{} is not allowed with window functions", clause(lock.strength));
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
}
