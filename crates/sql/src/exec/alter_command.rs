//! Runs ALTER SEQUENCE, ALTER INDEX and what ALTER TABLE says of identity columns and schemas.
//!
//! Invariants
//! 1. Only the owner of what is altered may do it; who moves something to a schema may make things there.
//!
//! Does not know: how the commands are written (`utility::alter`).

use sqlparser::ast::ObjectName;
use varve_engine::{Catalog, Named, ObjectId, Rights, Transaction};

use super::Facts;
use super::alter::{Alter, rename_index};
use super::definition::{Notices, Result, notice};
use super::sequence_ddl::{SequenceChange, SequenceDdl};
use crate::bind::alter::Alteration;
use crate::bind::{object_name, undefined_table};
use crate::error::{SqlError, SqlState};
use crate::rights::{Holder, Kind, Object};
use crate::utility::alter::{AlterCommand, Change, IdentityChange};

/// Runs the command.
pub fn alter(
    command: &AlterCommand,
    txn: &mut Transaction,
    facts: &Facts,
    notices: &mut Notices,
) -> Result<&'static str> {
    let catalog = txn.catalog();
    let (schema, name) = place(&command.name, facts, &catalog)?;
    let named = catalog.resolve(&schema, &name);
    if let Some(named) = named {
        check_owner(&catalog, facts, named, &name)?;
    }
    match &command.change {
        Change::Sequence(change) => {
            if let SequenceChange::SetSchema(schema) = change {
                check_create(&catalog, facts, schema)?;
            }
            SequenceDdl { txn, facts, notices }.alter((schema, name), command.if_exists, change)
        }
        Change::RenameIndex(to) => rename_index((&schema, &name), to, command.if_exists, txn, notices),
        Change::SetSchema(_) | Change::Identity(..) => {
            let Some(Named::Table(id)) = named else { return no_table(command, named, &name, notices) };
            let table = catalog.table_by_id(id).ok_or_else(|| undefined_table(&command.name))?;
            let alteration = match &command.change {
                Change::SetSchema(schema) => {
                    check_create(&catalog, facts, schema)?;
                    Alteration::SetSchema(schema.clone())
                }
                Change::Identity(column, change) => {
                    let ordinal = table.column(column).ok_or_else(|| {
                        let message =
                            format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
                        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
                    })?;
                    of_identity(ordinal, change)
                }
                _ => return Err(SqlError::internal("no change of a table").into()),
            };
            Alter { txn, facts, notices }.apply(table, alteration)?;
            Ok("ALTER TABLE")
        }
    }
}

fn of_identity(ordinal: usize, change: &IdentityChange) -> Alteration {
    match change {
        IdentityChange::Add(kind, options) => {
            Alteration::AddIdentity(ordinal, *kind, Box::new(options.clone()))
        }
        IdentityChange::Set(kind, options) => {
            Alteration::SetIdentity(ordinal, *kind, Box::new(options.clone()))
        }
        IdentityChange::Drop(if_exists) => Alteration::DropIdentity(ordinal, *if_exists),
    }
}

fn no_table(
    command: &AlterCommand,
    named: Option<Named>,
    name: &str,
    notices: &mut Notices,
) -> Result<&'static str> {
    if named.is_some() {
        let message = format!("\"{name}\" is not a table");
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into());
    }
    let missing = undefined_table(&command.name);
    if !command.if_exists {
        return Err(missing.into());
    }
    notice(notices, "00000", format!("{}, skipping", missing.message));
    Ok("ALTER TABLE")
}

/// Schema and name of what the command names.
fn place(name: &ObjectName, facts: &Facts, catalog: &Catalog) -> Result<(String, String)> {
    let (schema, last) = object_name(name)?;
    if name.0.len() > 1 {
        return Ok((schema, last));
    }
    let schema = facts.path.schema_of(catalog, &last).map_or(schema, str::to_owned);
    Ok((schema, last))
}

fn check_owner(catalog: &Catalog, facts: &Facts, named: Named, name: &str) -> Result<()> {
    let (id, kind): (ObjectId, Kind) = match named {
        Named::Sequence(id) => (id.into(), Kind::Sequence),
        Named::View(id) | Named::Part(_, id) => (id, Kind::Table),
        Named::Table(id) | Named::Index(id, _) | Named::PrimaryKey(id) => (id.into(), Kind::Table),
    };
    let object = Object::new(id, kind, name);
    let holder = Holder::of(catalog, facts.who);
    if holder.is_superuser() || holder.owns(catalog, &object) {
        Ok(())
    } else {
        Err(object.not_owned().into())
    }
}

fn check_create(catalog: &Catalog, facts: &Facts, schema: &str) -> Result<()> {
    let Some(schema) = catalog.schemas().iter().find(|s| s.name == schema) else { return Ok(()) };
    let object = Object::schema(schema);
    let holder = Holder::of(catalog, facts.who);
    let may = holder.is_superuser() || holder.may_any(catalog, &object, &[Rights::CREATE]);
    if may { Ok(()) } else { Err(object.denied().into()) }
}
