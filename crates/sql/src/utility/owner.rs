//! Converts ALTER ... OWNER TO and REASSIGN OWNED from the tree of PostgreSQL's parser.
//!
//! This module does not know which roles may change owners (`session::owner`).

use crate::ast::ObjectName;
use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterOwnerStmt, AlterTableStmt, AlterTableType, Node, ObjectType, ReassignOwnedStmt, RoleSpec,
};

use super::role::{RoleName, role_name};
use super::{Utility, tag};
use crate::error::{Result, SqlError};
use crate::parse::postgres::node;

/// The word after ALTER.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// TABLE, which accepts views and sequences, too.
    Table,
    /// VIEW
    View,
    /// SEQUENCE
    Sequence,
    /// INDEX
    Index,
}

/// The object whose owner is changed.
#[derive(Debug, Clone)]
pub enum Owned {
    /// A table, view, sequence or index.
    Relation {
        /// The word for it.
        word: Word,
        /// Its name.
        name: ObjectName,
        /// IF EXISTS
        if_exists: bool,
    },
    /// A schema.
    Schema(String),
}

/// A change of owners.
#[derive(Debug, Clone)]
pub enum OwnerChange {
    /// ALTER ... OWNER TO
    Of(Owned, RoleName),
    /// REASSIGN OWNED BY ... TO
    All(Vec<RoleName>, RoleName),
}

/// Converts ALTER TABLE, VIEW, SEQUENCE or INDEX with OWNER TO. Returns `None` if the statement does
/// something else.
pub(super) fn of_relation(a: &AlterTableStmt) -> Result<Option<OwnerChange>> {
    let [Node { node: Some(NodeEnum::AlterTableCmd(command)) }] = a.cmds.as_slice() else { return Ok(None) };
    let Some(relation) = &a.relation else { return Ok(None) };
    if command.subtype() != AlterTableType::AtChangeOwner {
        return Ok(None);
    }
    let word = match a.objtype() {
        ObjectType::ObjectTable => Word::Table,
        ObjectType::ObjectView => Word::View,
        ObjectType::ObjectSequence => Word::Sequence,
        ObjectType::ObjectIndex => Word::Index,
        _ => return Ok(None),
    };
    let owned = Owned::Relation { word, name: node::relation(relation), if_exists: a.missing_ok };
    Ok(Some(OwnerChange::Of(owned, role_name(command.newowner.as_ref())?)))
}

/// Converts ALTER SCHEMA ... OWNER TO.
pub(super) fn of_object(statement: &NodeEnum, a: &AlterOwnerStmt) -> Result<Utility> {
    let name = a.object.as_ref().and_then(|object| object.node.as_ref());
    match (a.object_type(), name) {
        (ObjectType::ObjectSchema, Some(NodeEnum::String(name))) => {
            let to = role_name(a.newowner.as_ref())?;
            Ok(Utility::Owner(Box::new(OwnerChange::Of(Owned::Schema(name.sval.clone()), to))))
        }
        (ObjectType::ObjectDatabase, Some(NodeEnum::String(name))) => super::database::owner(&name.sval, a),
        (ObjectType::ObjectTablespace, Some(NodeEnum::String(name))) => {
            super::tablespace::owner(&name.sval, a)
        }
        _ => Err(tag::unsupported(statement)),
    }
}

/// Converts REASSIGN OWNED.
pub(super) fn reassign(r: &ReassignOwnedStmt) -> Result<Utility> {
    let name = |role: &Node| match &role.node {
        Some(NodeEnum::RoleSpec(role)) => role_name(Some::<&RoleSpec>(role)),
        _ => Err(SqlError::internal("a role that is none")),
    };
    let from = r.roles.iter().map(name).collect::<Result<_>>()?;
    Ok(Utility::Owner(Box::new(OwnerChange::All(from, role_name(r.newrole.as_ref())?))))
}
