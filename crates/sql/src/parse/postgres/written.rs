//! Writes expressions and queries as text for the catalog, with the library of PostgreSQL's parser.
//!
//! Invariants
//! 1. The written text is parsed to the same tree.
//!
//! This module does not know what the text means.

use pg_query::NodeEnum;
use pg_query::protobuf::{LimitOption, Node, ResTarget, SelectStmt, SetOperation};

use crate::error::{Result, SqlError};

/// Writes an expression as text.
pub(super) fn expression(node: &Node) -> Result<String> {
    let target = ResTarget { val: Some(Box::new(node.clone())), ..ResTarget::default() };
    let query = SelectStmt {
        target_list: vec![Node { node: Some(NodeEnum::ResTarget(Box::new(target))) }],
        limit_option: LimitOption::Default.into(),
        op: SetOperation::SetopNone.into(),
        ..SelectStmt::default()
    };
    let text = self::query(&query)?;
    let text = text.strip_prefix("SELECT ").ok_or_else(|| SqlError::internal("a written query is none"))?;
    Ok(text.to_owned())
}

/// Writes a query as text.
pub(super) fn query(query: &SelectStmt) -> Result<String> {
    let node = NodeEnum::SelectStmt(Box::new(query.clone()));
    let text = node.deparse(pg_query::DeparseOptions::default());
    text.map_err(|e| SqlError::internal(format!("a query that was read cannot be written: {e}")))
}

/// Writes a query with these names for its outputs. Returns `None` if its first select list does not have one
/// item for each name.
pub fn with_outputs(mut query: SelectStmt, names: &[&str]) -> Result<Option<String>> {
    let mut first = &mut query;
    while let Some(left) = &mut first.larg {
        first = left;
    }
    if first.target_list.len() != names.len() {
        return Ok(None);
    }
    for (item, name) in first.target_list.iter_mut().zip(names) {
        let Some(NodeEnum::ResTarget(target)) = &mut item.node else { return Ok(None) };
        let own = match target.val.as_ref().and_then(|value| value.node.as_ref()) {
            Some(NodeEnum::ColumnRef(c)) => match c.fields.last().and_then(|field| field.node.as_ref()) {
                Some(NodeEnum::String(own)) => Some(&own.sval),
                _ => return Ok(None),
            },
            _ => None,
        };
        let says_so = own.is_some_and(|own| own == name);
        target.name = if says_so { String::new() } else { (*name).to_owned() };
    }
    self::query(&query).map(Some)
}
