//! Merges clauses after a query in parentheses, such as ORDER BY and LIMIT, into the query. PostgreSQL does
//! the same.

use crate::ast::Query;
use crate::error::{Result, SqlError, SqlState};

/// Merges the clauses of `(inner) ORDER BY ... LIMIT ... FOR UPDATE` into the inner query, as PostgreSQL
/// does.
pub(super) fn without_parentheses(outer: &Query, inner: &Query) -> Result<Query> {
    let twice = |there: bool, clause: &str| match there {
        true => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("multiple {clause} clauses not allowed"))),
        false => Ok(()),
    };
    twice(!outer.order_by.is_empty() && !inner.order_by.is_empty(), "ORDER BY")?;
    twice(outer.is_limited() && inner.is_limited(), "LIMIT")?;
    let mut merged = inner.clone();
    if merged.order_by.is_empty() {
        merged.order_by.clone_from(&outer.order_by);
    }
    if !merged.is_limited() {
        (merged.limit, merged.offset) = (outer.limit.clone(), outer.offset.clone());
        merged.with_ties = outer.with_ties;
    }
    merged.locks.extend(outer.locks.iter().cloned());
    Ok(merged)
}
