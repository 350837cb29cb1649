//! Converts ALTER VIEW ... SET and RESET from the tree of PostgreSQL's parser.
//!
//! This module does not know what the options do (`rights`, `bind::view`).

use crate::ast;
use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableCmd, AlterTableStmt, AlterTableType, DefElem, Node, ObjectType, RangeVar,
};

use crate::error::{Result, SqlError, SqlState};
use crate::parse::view_option::security_invoker;

/// ALTER VIEW ... SET (...) or RESET (...)
#[derive(Debug, Clone)]
pub struct ViewOptions {
    /// The view.
    pub view: ast::ObjectName,
    /// IF EXISTS
    pub if_exists: bool,
    /// The value of `security_invoker` after the command.
    pub security_invoker: Option<bool>,
}

/// Returns the options that the statement sets. Returns `None` if the statement does something else.
pub(super) fn options(statement: &AlterTableStmt) -> Result<Option<ViewOptions>> {
    let (Some(view), [command], ObjectType::ObjectView) =
        (&statement.relation, statement.cmds.as_slice(), statement.objtype())
    else {
        return Ok(None);
    };
    let Some(NodeEnum::AlterTableCmd(command)) = &command.node else { return Ok(None) };
    let sets = match command.subtype() {
        AlterTableType::AtSetRelOptions => true,
        AlterTableType::AtResetRelOptions => false,
        _ => return Ok(None),
    };
    let mut after = None;
    for option in listed(command) {
        let given = option.arg.as_deref();
        let value =
            security_invoker(&option.defname, given.and_then(written).as_deref().or(given.map(|_| "")))?;
        if !sets && given.is_some() {
            let message = "RESET must not include values for parameters";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        after = Some(value).filter(|_| sets);
    }
    Ok(Some(ViewOptions { view: name(view), if_exists: statement.missing_ok, security_invoker: after }))
}

fn listed(command: &AlterTableCmd) -> impl Iterator<Item = &DefElem> {
    let list = match command.def.as_ref().and_then(|def| def.node.as_ref()) {
        Some(NodeEnum::List(list)) => list.items.as_slice(),
        _ => &[],
    };
    list.iter().filter_map(|item| match &item.node {
        Some(NodeEnum::DefElem(option)) => Some(option.as_ref()),
        _ => None,
    })
}

/// Returns the value of an option as text.
fn written(node: &Node) -> Option<String> {
    match node.node.as_ref()? {
        NodeEnum::String(s) => Some(s.sval.clone()),
        NodeEnum::Integer(n) => Some(n.ival.to_string()),
        NodeEnum::TypeName(t) => match t.names.last()?.node.as_ref()? {
            NodeEnum::String(s) => Some(s.sval.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn name(view: &RangeVar) -> ast::ObjectName {
    let parts = [&view.catalogname, &view.schemaname, &view.relname];
    let given = parts.into_iter().filter(|part| !part.is_empty());
    ast::ObjectName(given.map(ast::Ident::new).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> Result<Option<ViewOptions>> {
        match crate::parse::postgres::raw(sql)? {
            Some(NodeEnum::AlterTableStmt(statement)) => options(&statement),
            _ => Ok(None),
        }
    }

    #[test]
    fn values_are_read_as_postgresql_reads_them() {
        let set = |value: &str| read(&format!("alter view if exists s.v set (security_invoker{value})"));
        for (value, expected) in
            [("", true), (" = true", true), (" = off", false), (" = 0", false), (" = 'yes'", true)]
        {
            let read = set(value).unwrap().unwrap();
            assert_eq!(read.security_invoker, Some(expected), "{value}");
            assert_eq!((read.view.to_string().as_str(), read.if_exists), ("s.v", true));
        }
        assert_eq!(set(" = 7").unwrap_err().sqlstate.as_str(), "22023");
        let reset = read("alter view v reset (security_invoker)").unwrap().unwrap();
        assert_eq!(reset.security_invoker, None);
        assert!(read("alter view v rename to w").unwrap().is_none());
    }
}
