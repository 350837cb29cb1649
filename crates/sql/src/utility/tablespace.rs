//! Converts CREATE, ALTER and DROP TABLESPACE from the tree of PostgreSQL's parser.
//!
//! This module does not know which tablespaces exist or who may change them (`session::tablespace`).

use pg_query::protobuf::{
    AlterOwnerStmt, AlterTableSpaceOptionsStmt, CreateTableSpaceStmt, DropTableSpaceStmt, RenameStmt,
};

use super::Utility;
use super::role::{RoleName, role_name};
use crate::ast::StorageOption;
use crate::error::Result;
use crate::names::clipped;
use crate::parse::postgres::node;

/// A command about tablespaces.
#[derive(Debug, Clone)]
pub enum TablespaceCommand {
    /// CREATE TABLESPACE
    Create {
        /// Its name.
        name: String,
        /// OWNER
        owner: Option<RoleName>,
        /// LOCATION
        location: String,
        /// WITH (...)
        options: Vec<StorageOption>,
    },
    /// ALTER TABLESPACE name SET (...) or RESET (...): the options, and whether RESET
    SetOptions(String, Vec<StorageOption>, bool),
    /// ALTER TABLESPACE name RENAME TO
    Rename(String, String),
    /// ALTER TABLESPACE name OWNER TO
    Owner(String, RoleName),
    /// DROP TABLESPACE: the name, and whether IF EXISTS
    Drop(String, bool),
}

impl TablespaceCommand {
    /// Returns the command's tag, if the command runs only outside of a transaction block.
    pub fn tag_if_alone(&self) -> Option<&'static str> {
        match self {
            TablespaceCommand::Create { .. } => Some("CREATE TABLESPACE"),
            TablespaceCommand::Drop(..) => Some("DROP TABLESPACE"),
            _ => Some("ALTER TABLESPACE"),
        }
    }
}

fn command(command: TablespaceCommand) -> Utility {
    Utility::Tablespace(Box::new(command))
}

/// Converts CREATE TABLESPACE.
pub(super) fn create(c: &CreateTableSpaceStmt) -> Result<Utility> {
    let name = clipped(c.tablespacename.clone());
    let owner = c.owner.as_ref().map(|owner| role_name(Some(owner))).transpose()?;
    let (location, options) = (c.location.clone(), node::storage_options(&c.options)?);
    Ok(command(TablespaceCommand::Create { name, owner, location, options }))
}

/// Converts ALTER TABLESPACE ... SET, RESET.
pub(super) fn options(a: &AlterTableSpaceOptionsStmt) -> Result<Utility> {
    let options = node::storage_options(&a.options)?;
    Ok(command(TablespaceCommand::SetOptions(clipped(a.tablespacename.clone()), options, a.is_reset)))
}

/// Converts ALTER TABLESPACE ... RENAME TO.
pub(super) fn rename(r: &RenameStmt) -> Utility {
    command(TablespaceCommand::Rename(clipped(r.subname.clone()), clipped(r.newname.clone())))
}

/// Converts ALTER TABLESPACE ... OWNER TO.
pub(super) fn owner(name: &str, a: &AlterOwnerStmt) -> Result<Utility> {
    let to = role_name(a.newowner.as_ref())?;
    Ok(command(TablespaceCommand::Owner(clipped(name.to_owned()), to)))
}

/// Converts DROP TABLESPACE.
pub(super) fn drop(d: &DropTableSpaceStmt) -> Utility {
    command(TablespaceCommand::Drop(clipped(d.tablespacename.clone()), d.missing_ok))
}
