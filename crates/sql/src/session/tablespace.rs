//! Runs CREATE, ALTER and DROP TABLESPACE.
//!
//! Invariants
//! 1. Each command is durable when it returns, and runs only outside of transaction blocks.
//! 2. A tablespace belongs to all databases. The storage engine stores it with its name, and with a note:
//!    its owner, and options of PostgreSQL.
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
use crate::system::tablespaces::{Note, owner_of};
use crate::utility::role::RoleName;
use crate::utility::tablespace::TablespaceCommand;

/// The greatest value of `effective_io_concurrency` and `maintenance_io_concurrency`.
const CONCURRENCY_MAX: i64 = 1000;

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
                if is_known(name) && Holder::of(&catalog, self.facts.who).is_superuser() {
                    return Err(SqlError::unsupported(format!("options of tablespace {name}")));
                }
                let before = self.owned_tablespace(&catalog, name)?;
                let note = if *is_reset { reset(&before, options)? } else { set(&before, options)? };
                self.shared.engine.change_tablespace(before.id, name, &note.encode())?;
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
                let note = Note { owner: to, ..Note::of(&before) };
                self.shared.engine.change_tablespace(before.id, name, &note.encode())?;
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
        let Options { protection, compression, others } = read(options)?;
        let new = NewTablespace {
            name: name.to_owned(),
            location: location.to_owned(),
            protection: protection.unwrap_or(ProtectionKind::DOUBLEWRITE),
            compression,
            note: Note { owner, options: others }.encode(),
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
        self.shared.engine.tablespace_named(name)
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

/// The options of a tablespace in a statement.
#[derive(Default)]
struct Options {
    protection: Option<ProtectionKind>,
    compression: Option<Compression>,
    /// Options of PostgreSQL, which are stored and have no effect: names and values.
    others: Vec<(String, String)>,
}

fn invalid(message: String) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn read(options: &[StorageOption]) -> Result<Options> {
    let (mut read, mut of_pages, mut names) = (Options::default(), Vec::new(), Vec::new());
    for option in options {
        let (name, value) = (option.name.as_str(), option.value.as_deref().unwrap_or("true").trim());
        if names.contains(&name) {
            return Err(storage::twice(name));
        }
        names.push(name);
        match name {
            "protection" => read.protection = Some(protection_named(value)?),
            "compression" | "compression_level" => of_pages.push(option.clone()),
            _ => {
                check_other(name, value)?;
                read.others.push((name.to_owned(), value.to_owned()));
            }
        }
    }
    Ok(Options { compression: storage::of_new_table(&of_pages)?.compression, ..read })
}

/// Checks an option of PostgreSQL.
fn check_other(name: &str, value: &str) -> Result<()> {
    match name {
        "seq_page_cost" | "random_page_cost" => storage::not_negative(name, value).map(drop),
        "effective_io_concurrency" | "maintenance_io_concurrency" => {
            storage::integer(name, value, 0, CONCURRENCY_MAX).map(drop)
        }
        _ => Err(invalid(match name.split_once('.') {
            Some((namespace, _)) => format!("unrecognized parameter namespace \"{namespace}\""),
            None => format!("unrecognized parameter \"{name}\""),
        })),
    }
}

/// The note after SET of these options.
fn set(before: &Tablespace, options: &[StorageOption]) -> Result<Note> {
    let Options { protection, compression, others } = read(options)?;
    if protection.is_some_and(|kind| kind.name() != before.protection) {
        return Err(fixed("protection"));
    }
    if compression.is_some_and(|how| Some(how) != before.compression) {
        return Err(fixed("compression"));
    }
    let mut note = Note::of(before);
    note.options.retain(|(name, _)| !others.iter().any(|(new, _)| new == name));
    note.options.extend(others);
    Ok(note)
}

/// The note after RESET of these options. As in PostgreSQL, unknown names are no error.
fn reset(before: &Tablespace, options: &[StorageOption]) -> Result<Note> {
    storage::check_reset(options)?;
    let mut note = Note::of(before);
    for StorageOption { name, .. } in options {
        match name.as_str() {
            "protection" if before.protection != ProtectionKind::DOUBLEWRITE.name() => {
                return Err(fixed("protection"));
            }
            "compression" | "compression_level" if before.compression.is_some() => {
                return Err(fixed("compression"));
            }
            _ => note.options.retain(|(other, _)| other != name),
        }
    }
    Ok(note)
}

/// The error for a change of an option that is fixed when the tablespace is made.
fn fixed(what: &str) -> SqlError {
    SqlError::unsupported(format!("ALTER TABLESPACE that changes the {what}"))
        .with_hint("Make another tablespace, and move the tables with ALTER TABLE ... SET TABLESPACE.")
}

fn protection_named(name: &str) -> Result<ProtectionKind> {
    let kinds = ProtectionKind::OF_TABLESPACES;
    let found = kinds.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| match name.to_ascii_lowercase().as_str() {
        "nvm" | "nvm-dwb" | "full-page-log" => {
            SqlError::unsupported(format!("protection {name} for one tablespace"))
        }
        _ => {
            let [first, second, third] = kinds.map(ProtectionKind::name);
            invalid(format!("invalid value for enum option \"protection\": {name}"))
                .with_detail(format!("Valid values are \"{first}\", \"{second}\", and \"{third}\"."))
        }
    })
}
