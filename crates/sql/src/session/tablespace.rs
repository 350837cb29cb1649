//! Runs CREATE, ALTER and DROP TABLESPACE.
//!
//! Invariants
//! 1. Each command is durable when it returns, and runs only outside of transaction blocks.
//! 2. A tablespace belongs to all databases. The storage engine stores it with its name, and with a note,
//!    which is its owner.
//!
//! This module does not know what is in a tablespace (`varve_engine`).

use std::sync::Arc;

use varve_engine::{
    Catalog, Compression, Isolation, NewTablespace, ObjectId, ProtectionKind, Tablespace, Transaction,
};

use super::Session;
use super::command::not_in_block;
use crate::ast::StorageOption;
use crate::bind::storage;
use crate::error::{Result, SqlError, SqlState};
use crate::exec::tablespace::missing;
use crate::rights::{Holder, denied, no_role};
use crate::sink::Severity;
use crate::system::tablespaces::{note_of, owner_of};
use crate::utility::role::RoleName;
use crate::utility::tablespace::TablespaceCommand;

/// Options of PostgreSQL that are accepted, but have no effect in Varve.
const WITHOUT_MEANING: [&str; 4] =
    ["seq_page_cost", "random_page_cost", "effective_io_concurrency", "maintenance_io_concurrency"];

impl Session {
    /// Runs a command about tablespaces.
    pub(super) fn tablespace_command(&mut self, command: &TablespaceCommand) -> Result<&'static str> {
        let tag = command.tag_if_alone().unwrap_or("ALTER TABLESPACE");
        self.forbid_block(tag)?;
        if self.txn.as_ref().is_some_and(Transaction::has_begun) {
            return Err(not_in_block(tag));
        }
        if self.read_only {
            return Err(SqlError::read_only(tag));
        }
        let catalog = self.shared.engine.begin_in(self.facts.database_id, Isolation::ReadCommitted).catalog();
        match command {
            TablespaceCommand::Create { name, owner, location, options } => {
                self.create_tablespace(&catalog, name, owner.as_ref(), (location, options))?;
            }
            TablespaceCommand::Drop(name, if_exists) => self.drop_tablespace(&catalog, name, *if_exists)?,
            TablespaceCommand::SetOptions(name, options, is_reset) => {
                let before = self.owned_tablespace(&catalog, name)?;
                let (protection, compression) = read(options)?;
                let is_same = protection.is_none_or(|kind| kind.name() == before.protection)
                    && compression.is_none_or(|how| Some(how) == before.compression);
                if *is_reset || !is_same {
                    let what = "ALTER TABLESPACE that changes the protection or the compression";
                    return Err(SqlError::unsupported(what).with_hint(
                        "Make another tablespace, and move the tables with ALTER TABLE ... SET TABLESPACE.",
                    ));
                }
            }
            TablespaceCommand::Rename(from, to) => {
                let before = self.owned_tablespace(&catalog, from)?;
                check_name(to)?;
                self.check_free(to)?;
                self.shared.engine.change_tablespace(before.id, to, &before.note)?;
            }
            TablespaceCommand::Owner(name, to) => {
                let before = self.owned_tablespace(&catalog, name)?;
                let to = self.role_for_tablespace(&catalog, to)?;
                if !Holder::of(&catalog, self.facts.who).is_superuser() {
                    self.check_member(&catalog, to)?;
                }
                self.shared.engine.change_tablespace(before.id, name, &note_of(to))?;
            }
        }
        Ok(tag)
    }

    fn create_tablespace(
        &self,
        catalog: &Arc<Catalog>,
        name: &str,
        owner: Option<&RoleName>,
        (location, options): (&str, &[StorageOption]),
    ) -> Result<()> {
        if !Holder::of(catalog, self.facts.who).is_superuser() {
            let message = format!("permission denied to create tablespace \"{name}\"");
            return Err(denied(message).with_hint("Must be superuser to create a tablespace."));
        }
        let owner = match owner {
            Some(role) => self.role_for_tablespace(catalog, role)?,
            None => self.facts.who.unwrap_or(varve_engine::BOOTSTRAP_ROLE),
        };
        check_name(name)?;
        self.check_free(name)?;
        let (protection, compression) = read(options)?;
        let new = NewTablespace {
            name: name.to_owned(),
            location: location.to_owned(),
            protection: protection.unwrap_or(ProtectionKind::DOUBLEWRITE),
            compression,
            note: note_of(owner),
        };
        self.shared.engine.create_tablespace(&new)?;
        Ok(())
    }

    fn drop_tablespace(&mut self, catalog: &Arc<Catalog>, name: &str, if_exists: bool) -> Result<()> {
        if if_exists && !is_known(name) && self.find_tablespace(name).is_none() {
            let message = format!("tablespace \"{name}\" does not exist, skipping");
            self.notices.push((Severity::Notice, SqlError::new(SqlState("00000"), message)));
            return Ok(());
        }
        let found = self.owned_tablespace(catalog, name)?;
        if self.shared.engine.drop_tablespace(found.id)? {
            return Ok(());
        }
        let message = format!("tablespace \"{name}\" is not empty");
        Err(SqlError::new(SqlState("55000"), message).with_hint(
            "Move or drop its tables and indexes. Old snapshots may need dropped ones for a while.",
        ))
    }

    fn find_tablespace(&self, name: &str) -> Option<Tablespace> {
        self.shared.engine.tablespaces().into_iter().find(|one| one.name == name)
    }

    /// The tablespace, if this role owns it.
    fn owned_tablespace(&self, catalog: &Arc<Catalog>, name: &str) -> Result<Tablespace> {
        let not_owned = || denied(format!("must be owner of tablespace {name}"));
        if is_known(name) {
            return Err(not_owned());
        }
        let found = self.find_tablespace(name).ok_or_else(|| missing(name))?;
        let holder = Holder::of(catalog, self.facts.who);
        if holder.is_superuser() || holder.is(owner_of(&found)) { Ok(found) } else { Err(not_owned()) }
    }

    fn check_free(&self, name: &str) -> Result<()> {
        if self.find_tablespace(name).is_none() {
            return Ok(());
        }
        let message = format!("tablespace \"{name}\" already exists");
        Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message))
    }

    fn role_for_tablespace(&self, catalog: &Catalog, role: &RoleName) -> Result<ObjectId> {
        match role {
            RoleName::Named(name) => catalog.role(name).map(|role| role.id).ok_or_else(|| no_role(name)),
            _ => Ok(self.facts.who.unwrap_or(varve_engine::BOOTSTRAP_ROLE)),
        }
    }
}

fn is_known(name: &str) -> bool {
    matches!(name, "pg_default" | "pg_global")
}

fn check_name(name: &str) -> Result<()> {
    if !name.starts_with("pg_") {
        return Ok(());
    }
    let message = format!("unacceptable tablespace name \"{name}\"");
    Err(SqlError::new(SqlState("42939"), message)
        .with_detail("The prefix \"pg_\" is reserved for system tablespaces."))
}

/// The protection and the compression in a list of options.
fn read(options: &[StorageOption]) -> Result<(Option<ProtectionKind>, Option<Compression>)> {
    let mut protection = None;
    let mut of_pages = Vec::new();
    for option in options {
        let value = option.value.as_deref().unwrap_or("true");
        match option.name.as_str() {
            "protection" => protection = Some(protection_named(value)?),
            "compression" | "compression_level" => of_pages.push(option.clone()),
            name if WITHOUT_MEANING.contains(&name) => {}
            name => {
                let message = format!("unrecognized parameter \"{name}\"");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
        }
    }
    Ok((protection, storage::of_new_table(&of_pages)?.compression))
}

fn protection_named(name: &str) -> Result<ProtectionKind> {
    let kinds = [ProtectionKind::DOUBLEWRITE, ProtectionKind::AtomicWrite, ProtectionKind::None];
    let found = kinds.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| match name.to_ascii_lowercase().as_str() {
        "nvm" | "nvm-dwb" | "full-page-log" => {
            SqlError::unsupported(format!("protection {name} for one tablespace"))
        }
        _ => {
            let message = format!("invalid value for enum option \"protection\": {name}");
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                .with_detail("Valid values are \"doublewrite\", \"atomic-write\", and \"none\".")
        }
    })
}
