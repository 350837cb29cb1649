//! Runs CREATE, ALTER and DROP DATABASE. When a session begins, it also checks the database and applies its
//! settings.
//!
//! Invariants
//! 1. CREATE and DROP DATABASE are transactions of their own, and durable when the command returns.
//! 2. A database is dropped only when it has no session. New sessions wait during the drop, and then get an
//!    error.
//!
//! This module does not know the content of a database or how it is stored (`varve_engine`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use varve_engine::{Catalog, DatabaseDef, Isolation, ObjectId, Rights, TEMPLATE1, Transaction};

use super::command::not_in_block;
use super::identity::Identity;
use super::roles::Done;
use super::{Session, SessionParams, SqlDatabase};
use crate::activity::{Closing, Seat};
use crate::error::{Result, SqlError, SqlState};
use crate::exec::notice::Failed;
use crate::exec::tablespace;
use crate::rights::{Holder, Object, Who, denied};
use crate::settings::{self, Settings};
use crate::sink::Severity;
use crate::utility::Utility;
use crate::utility::database::{DatabaseCommand, DatabaseOption};
use crate::utility::role::RoleName;

/// The time for which a command waits until the other sessions of a database have ended (as in PostgreSQL).
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_PERIOD: Duration = Duration::from_millis(20);

impl Session {
    /// Runs a command about databases.
    pub(super) fn database_command(&mut self, command: &DatabaseCommand) -> Result<&'static str> {
        match command {
            DatabaseCommand::Create(name, options) => self.alone("CREATE DATABASE", &mut |session, txn| {
                session.create_database(txn, name, options).map(|()| None)
            }),
            DatabaseCommand::Drop { name, if_exists, force } => self.drop_database(name, *if_exists, *force),
            DatabaseCommand::Alter(name, options) => {
                self.in_turns("ALTER DATABASE", &mut |session| session.alter_database(name, options))
            }
            DatabaseCommand::Set(name, set) => {
                self.in_turns("ALTER DATABASE", &mut |session| session.set_of_database(name, set))
            }
            DatabaseCommand::Rename(from, to) => {
                self.in_turns("ALTER DATABASE", &mut |session| session.rename_database(from, to))
            }
            DatabaseCommand::Owner(name, to) => {
                self.in_turns("ALTER DATABASE", &mut |session| session.own_database(name, to))
            }
        }
    }

    /// Runs a change in a transaction of its own, and commits it. If another transaction has changed the same
    /// objects, the change is run again from its start. In a transaction block the error is 25001. The object
    /// that the change returns lives until the commit.
    fn alone(
        &mut self,
        tag: &'static str,
        change: &mut dyn FnMut(&mut Session, &mut Transaction) -> Done<Option<Closing>>,
    ) -> Result<&'static str> {
        self.forbid_block(tag)?;
        if self.txn.as_ref().is_some_and(Transaction::has_begun) {
            return Err(not_in_block(tag));
        }
        if self.read_only {
            return Err(SqlError::read_only(tag));
        }
        loop {
            self.facts.check_cancel()?;
            let mut txn = self.shared.engine.begin_in(self.facts.database_id, Isolation::ReadCommitted);
            txn.set_cancel(Some(self.facts.cancel.clone()));
            txn.set_session(&self.locks);
            txn.start_statement();
            match change(self, &mut txn) {
                Ok(_closing) => {
                    txn.commit()?;
                    break;
                }
                Err(Failed::Stale) => txn.rollback()?,
                Err(Failed::Error(error)) => {
                    txn.rollback()?;
                    return Err(error);
                }
            }
        }
        self.catalog = None;
        Ok(tag)
    }

    fn create_database(&mut self, txn: &mut Transaction, name: &str, options: &[DatabaseOption]) -> Done<()> {
        let catalog = txn.catalog();
        let holder = Holder::of(&catalog, self.facts.who);
        let owner = options.iter().find_map(|option| match option {
            DatabaseOption::Owner(role) => Some(self.role_of_name(&catalog, role)),
            _ => None,
        });
        let owner = owner.transpose()?;
        if !self.makes_databases(&catalog, &holder) {
            return Err(denied("permission denied to create database").into());
        }
        if let Some(owner) = owner.filter(|_| !holder.is_superuser()) {
            self.check_member(&catalog, owner)?;
        }
        let template = template_of(&catalog, &holder, options)?;
        self.check_tablespace(options, &catalog)?;
        if catalog.database_named(name).is_some() {
            return Err(already_there(name).into());
        }
        let mut new = DatabaseDef::new(name);
        options.iter().for_each(|option| option.apply(&mut new));
        let id = txn.create_database(new, template)?;
        if let Some(owner) = owner.or(self.facts.who) {
            txn.hold_role(owner)?;
            txn.set_about(id, |about| about.owner = owner)?;
        }
        Ok(())
    }

    fn drop_database(&mut self, name: &str, if_exists: bool, force: bool) -> Result<&'static str> {
        self.alone("DROP DATABASE", &mut |session, txn| {
            let catalog = txn.catalog();
            let Some(database) = catalog.database_named(name) else {
                if !if_exists {
                    return Err(missing(name).into());
                }
                let message = format!("database \"{name}\" does not exist, skipping");
                session.notices.push((Severity::Notice, SqlError::new(SqlState("00000"), message)));
                return Ok(None);
            };
            session.check_drop_database(&catalog, database)?;
            let closing = session.close_database(database, force)?;
            txn.drop_database(database.id)?;
            session.shared.forget_plans(database.id);
            Ok(Some(closing))
        })
    }

    fn check_drop_database(&self, catalog: &Catalog, database: &DatabaseDef) -> Result<()> {
        let object = Object::database(database);
        if !Holder::of(catalog, self.facts.who).owns(catalog, &object) {
            return Err(object.not_owned());
        }
        if database.is_template {
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, "cannot drop a template database"));
        }
        if database.id == self.facts.database_id {
            return Err(SqlError::new(SqlState::OBJECT_IN_USE, "cannot drop the currently open database"));
        }
        Ok(())
    }

    /// Keeps new sessions out of a database while the guard lives. Fails with 55006 if other sessions are
    /// still in the database after `PATIENCE`.
    fn close_database(&mut self, database: &DatabaseDef, force: bool) -> Result<Closing> {
        let closing = self.shared.watched().close(database.id);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let others = closing.sessions();
            if others.is_empty() {
                return Ok(closing);
            }
            if force {
                others.iter().for_each(|session| {
                    session.end();
                });
            }
            if Instant::now() >= deadline {
                return Err(in_use(&database.name, others.len()));
            }
            self.facts.check_cancel()?;
            thread::sleep(LOOK_PERIOD);
        }
    }

    /// Finds the database of a command that needs the owner of the database.
    fn owned_database(&mut self, name: &str) -> Done<(Arc<Catalog>, Holder, Arc<DatabaseDef>)> {
        let (catalog, holder) = self.rights()?;
        let database = catalog.database_named(name).ok_or_else(|| missing(name))?.clone();
        let object = Object::database(&database);
        if !holder.owns(&catalog, &object) {
            return Err(object.not_owned().into());
        }
        Ok((catalog, holder, database))
    }

    fn alter_database(&mut self, name: &str, options: &[DatabaseOption]) -> Done<&'static str> {
        let (catalog, _, database) = self.owned_database(name)?;
        if options.contains(&DatabaseOption::AllowsConnections(false))
            && database.id == self.facts.database_id
        {
            let message = "cannot disallow connections for current database";
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into());
        }
        self.check_tablespace(options, &catalog)?;
        self.transaction()?
            .alter_database(database.id, |def| options.iter().for_each(|option| option.apply(def)))?;
        Ok("ALTER DATABASE")
    }

    fn set_of_database(&mut self, name: &str, set: &Utility) -> Done<&'static str> {
        let (_, holder, database) = self.owned_database(name)?;
        let (setting, value) = match set {
            Utility::Set { name, value, .. } => (Some(name), value.clone()),
            Utility::Reset(name) => (name.as_ref(), None),
            Utility::SetCurrent { name, .. } => (Some(name), Some(self.current_value(name)?)),
            _ => return Err(SqlError::unsupported("this setting of a database").into()),
        };
        if let Some(setting) = setting {
            if !holder.is_superuser() {
                settings::check_for_all(setting)?;
            }
            match &value {
                Some(value) => Settings::default().set(setting, Some(value), false)?,
                None => Settings::default().set(setting, None, false)?,
            }
        }
        self.transaction()?.alter_database(database.id, |def| {
            def.settings.retain(|(name, _)| setting.is_some_and(|setting| name != setting));
            def.settings.extend(setting.cloned().zip(value));
        })?;
        Ok("ALTER DATABASE")
    }

    fn rename_database(&mut self, from: &str, to: &str) -> Done<&'static str> {
        let (catalog, holder, database) = self.owned_database(from)?;
        if !self.makes_databases(&catalog, &holder) {
            return Err(denied("permission denied to rename database").into());
        }
        if catalog.database_named(to).is_some() {
            return Err(already_there(to).into());
        }
        if database.id == self.facts.database_id {
            let message = "current database cannot be renamed";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into());
        }
        let _closing = self.close_database(&database, false)?;
        self.transaction()?.alter_database(database.id, |def| def.name = to.to_owned())?;
        Ok("ALTER DATABASE")
    }

    fn own_database(&mut self, name: &str, to: &RoleName) -> Done<&'static str> {
        let to = self.role_named(to)?;
        let (catalog, holder) = self.rights()?;
        let database = catalog.database_named(name).ok_or_else(|| missing(name))?;
        if catalog.owner(database.id) == to {
            return Ok("ALTER DATABASE");
        }
        let (_, _, database) = self.owned_database(name)?;
        if !holder.is_superuser() {
            self.check_member(&catalog, to)?;
        }
        if !self.makes_databases(&catalog, &holder) {
            return Err(denied("permission denied to change owner of database").into());
        }
        self.hand_over(&catalog, database.id, to)?;
        Ok("ALTER DATABASE")
    }

    /// Refuses a tablespace other than `pg_default`, because each table and each index has its own tablespace.
    fn check_tablespace(&self, options: &[DatabaseOption], catalog: &Catalog) -> Result<()> {
        let said = options.iter().find_map(|option| match option {
            DatabaseOption::Tablespace(name) => Some(name.as_str()),
            _ => None,
        });
        match said {
            None | Some("pg_default") => Ok(()),
            Some("pg_global") => {
                let message = "pg_global cannot be used as default tablespace";
                Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
            }
            Some(name) => {
                let found = self.shared.engine.tablespace_named(name);
                tablespace::usable(found, name, catalog, &self.facts)?;
                let hint =
                    "ALTER DATABASE ... SET default_tablespace chooses a tablespace for its new tables.";
                Err(SqlError::unsupported("a tablespace of a database").with_hint(hint))
            }
        }
    }

    fn makes_databases(&self, catalog: &Catalog, holder: &Holder) -> bool {
        let own = self.facts.who.and_then(|id| catalog.role_by_id(id));
        holder.is_superuser() || own.is_some_and(|role| role.makes_databases)
    }

    fn role_of_name(&self, catalog: &Catalog, role: &RoleName) -> Result<ObjectId> {
        match role {
            RoleName::Named(name) => {
                catalog.role(name).map(|role| role.id).ok_or_else(|| crate::rights::no_role(name))
            }
            _ => self.facts.who.ok_or_else(|| SqlError::internal("a session without a role")),
        }
    }
}

impl DatabaseOption {
    fn apply(&self, def: &mut DatabaseDef) {
        match self {
            DatabaseOption::Owner(_) | DatabaseOption::Template(_) | DatabaseOption::Tablespace(_) => {}
            DatabaseOption::ConnectionLimit(limit) => def.connection_limit = *limit,
            DatabaseOption::AllowsConnections(allows) => def.allows_connections = *allows,
            DatabaseOption::IsTemplate(is) => def.is_template = *is,
        }
    }
}

/// Returns the template of a new database. The template must be empty except for the schema `public`, because
/// the new database is created without other objects.
fn template_of(catalog: &Catalog, holder: &Holder, options: &[DatabaseOption]) -> Result<ObjectId> {
    let named = options.iter().find_map(|option| match option {
        DatabaseOption::Template(name) => Some(name),
        _ => None,
    });
    let template = match named {
        Some(name) => catalog.database_named(name).ok_or_else(|| {
            let message = format!("template database \"{name}\" does not exist");
            SqlError::new(SqlState::UNDEFINED_DATABASE, message)
        })?,
        None => match catalog.database_by_id(TEMPLATE1) {
            Some(template) => template,
            None => return Ok(TEMPLATE1),
        },
    };
    if !template.is_template && !holder.owns(catalog, &Object::database(template)) {
        return Err(denied(format!("permission denied to copy database \"{}\"", template.name)));
    }
    let inside = catalog.of_database(template.id);
    let has_relations = inside.tables().next().is_some()
        || inside.views().next().is_some()
        || inside.sequences().next().is_some();
    if has_relations || inside.schemas().any(|schema| schema.name != varve_engine::catalog::PUBLIC) {
        let detail = format!("The database \"{}\" has tables, views, sequences or schemas.", template.name);
        return Err(
            SqlError::unsupported("CREATE DATABASE with a template that has objects").with_detail(detail)
        );
    }
    Ok(template.id)
}

/// Returns the error 3D000: there is no database of this name.
pub(super) fn missing(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_DATABASE, format!("database \"{name}\" does not exist"))
}

/// Returns the error 42P04: a database of this name exists already.
fn already_there(name: &str) -> SqlError {
    SqlError::new(SqlState::DUPLICATE_DATABASE, format!("database \"{name}\" already exists"))
}

/// Returns the error 55006: other sessions are in the database.
fn in_use(name: &str, others: usize) -> SqlError {
    let message = format!("database \"{name}\" is being accessed by other users");
    let detail = match others {
        1 => "There is 1 other session using the database.".to_owned(),
        n => format!("There are {n} other sessions using the database."),
    };
    SqlError::new(SqlState::OBJECT_IN_USE, message).with_detail(detail)
}

/// Finds a database by name. Fails with 3D000 if there is none.
pub(super) fn named(catalog: &Catalog, name: &str) -> Result<Arc<DatabaseDef>> {
    catalog.database_named(name).cloned().ok_or_else(|| missing(name))
}

/// Finds the database that a session asks for, and counts the session as one of its connections. The error is
/// 3D000 if no database has this name, and 55000 if it allows no connections. It is 42501 if the role has no
/// right to connect, and 53300 if the database has too many connections already.
pub(super) fn enter(
    shared: &SqlDatabase,
    catalog: &Catalog,
    params: &SessionParams,
    identity: &Identity,
    cancel: Arc<AtomicBool>,
) -> Result<(Arc<DatabaseDef>, Seat)> {
    let asked = named(catalog, &params.database)?;
    let place = (identity.name(), params.peer, asked.id);
    let seat = shared.watched().enter(params.process_id, place, cancel);
    // The session may have waited for a DROP DATABASE, so the database is looked up again.
    let catalog = shared.engine().begin_in(asked.id, Isolation::ReadCommitted).catalog();
    check_entry(&catalog, &asked, identity.who(), &seat)?;
    Ok((asked, seat))
}

fn check_entry(catalog: &Catalog, asked: &DatabaseDef, who: Who, seat: &Seat) -> Result<()> {
    let database = catalog.database_by_id(asked.id).ok_or_else(|| missing(&asked.name))?;
    let name = &database.name;
    if !database.allows_connections {
        let message = format!("database \"{name}\" is not currently accepting connections");
        return Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message));
    }
    let holder = Holder::of(catalog, who);
    if !holder.may_any(catalog, &Object::database(database), &[Rights::CONNECT]) {
        return Err(denied(format!("permission denied for database \"{name}\""))
            .with_detail("User does not have CONNECT privilege."));
    }
    let limit = usize::try_from(database.connection_limit).ok();
    if !holder.is_superuser() && limit.is_some_and(|limit| seat.sessions_in(database.id) > limit) {
        let message = format!("too many connections for database \"{name}\"");
        return Err(SqlError::new(SqlState::TOO_MANY_CONNECTIONS, message));
    }
    Ok(())
}
