//! Runs utility commands.
//!
//! Invariants
//! 1. In a failed transaction block only COMMIT, ROLLBACK and ROLLBACK TO run.
//!
//! This module does not know the inside of plans.

use std::sync::Arc;

use crate::ast;
use varve_engine::{Datum, Value, predefined};

use super::plan::in_failed_transaction;
use super::{Block, Session};
use crate::bind::{Binder, Scope};
use crate::error::{Result, SqlError, SqlState};
use crate::oid::{self, Oid};
use crate::prepared::{Body, Prepared};
use crate::settings;
use crate::sink::{Column, CommandTag, Severity, Sink};
use crate::system::{self, statistics};
use crate::system_settings::{self, SystemSetting};
use crate::ty::{self, Ty, Typed};
use crate::utility::explain::shifted;
use crate::utility::{Discarded, Level, Modes, Utility};

/// Settings that belong to a transaction.
pub(super) const OF_TRANSACTION: [&str; 3] =
    ["transaction_isolation", "transaction_read_only", "transaction_deferrable"];

impl Session {
    /// Runs a utility command.
    pub(super) fn command(
        &mut self,
        command: &Utility,
        announce: bool,
        sink: &mut dyn Sink,
    ) -> Result<CommandTag> {
        if self.is_failed()
            && !matches!(command, Utility::Commit { .. } | Utility::Rollback { .. } | Utility::RollbackTo(_))
        {
            return Err(in_failed_transaction());
        }
        let tag = match command {
            Utility::Begin(modes, start) => {
                self.begin(*modes)?;
                if *start { "START TRANSACTION" } else { "BEGIN" }
            }
            Utility::Commit { chain } => return self.end(true, *chain),
            Utility::Rollback { chain } => return self.end(false, *chain),
            Utility::Savepoint(name) => {
                self.savepoint(name.clone())?;
                "SAVEPOINT"
            }
            Utility::Release(name) => {
                self.release(name)?;
                "RELEASE"
            }
            Utility::RollbackTo(name) => {
                self.rollback_to(name)?;
                "ROLLBACK"
            }
            Utility::Set { name, value, local } => self.set(name, value.as_deref(), *local)?,
            Utility::Reset(name) => {
                match name {
                    Some(name) => self.reset(name, false)?,
                    None => {
                        self.settings.reset_all();
                        self.after_settings();
                    }
                }
                "RESET"
            }
            other => return self.rare_command(other, announce, sink),
        };
        Ok(CommandTag::Plain(tag))
    }

    fn rare_command(&mut self, command: &Utility, announce: bool, sink: &mut dyn Sink) -> Result<CommandTag> {
        // As in PostgreSQL, several statements in one text count as a block.
        if announce
            && self.block == Block::Implicit
            && let Some(tag) = command.tag_if_alone()
        {
            return Err(not_in_block(tag));
        }
        let command = &*self.with_schemas(command)?;
        let tag = match command {
            Utility::SetTransaction(modes) => self.set_transaction(*modes)?,
            Utility::SetConstraints(names, put_off) => {
                self.set_constraints(names.as_deref(), *put_off)?;
                "SET CONSTRAINTS"
            }
            Utility::SetCharacteristics(modes) => self.set_characteristics(*modes)?,
            Utility::AlterSystem(name, value) => self.alter_system(name.as_deref(), value.as_deref())?,
            Utility::Show(name) => return self.show(name, announce, sink),
            Utility::SetCurrent { name, local } => {
                let value = self.current_value(name)?;
                self.set(name, Some(&value), *local)?
            }
            Utility::Discard(what) => self.discard(*what)?,
            Utility::Prepare { name, types, text, before } => {
                self.prepare_named(name, types, text).map_err(|e| shifted(e, *before))?
            }
            Utility::Execute(name, arguments) => return self.execute_named(name, arguments, announce, sink),
            Utility::Deallocate(None) => {
                self.statements = Arc::default();
                "DEALLOCATE ALL"
            }
            Utility::Deallocate(Some(name)) => {
                self.statement(name)?;
                self.close_statement(name);
                "DEALLOCATE"
            }
            Utility::Maintain(command) => self.maintain(command)?,
            Utility::Checkpoint => self.checkpoint()?,
            Utility::Lock(lock) => self.lock_tables(lock, announce && self.block == Block::Implicit)?,
            Utility::Copy(copy) => return self.copy(copy, sink),
            Utility::BaseBackup(command) => return self.base_backup(command, sink),
            Utility::Fetch { name, direction, moves } => {
                return self.fetch(name, *direction, *moves, announce, sink);
            }
            Utility::Close(name) => self.close_cursors(name.as_deref())?,
            Utility::Role(command) => self.role_command(command)?,
            Utility::View(options) => self.view_options(options)?,
            Utility::Owner(change) => self.change_owner(change)?,
            Utility::Database(command) => self.database_command(command)?,
            Utility::Tablespace(command) => self.tablespace_command(command)?,
            Utility::CreateExtension(name, if_not_exists) => self.create_extension(name, *if_not_exists)?,
            Utility::SetRole(name, local) => {
                self.warned_of_local(*local).set_role(name.as_deref(), *local)?
            }
            Utility::SetAuthorization(name, local) => {
                self.warned_of_local(*local).set_session_authorization(name.as_deref(), *local)?
            }
            _ => return Err(SqlError::internal("a command that is not run")),
        };
        Ok(CommandTag::Plain(tag))
    }

    /// Runs SET TRANSACTION.
    fn set_transaction(&mut self, modes: Modes) -> Result<&'static str> {
        if self.in_block() {
            self.set_modes(modes)?;
        } else {
            self.warn(
                SqlState::NO_ACTIVE_TRANSACTION,
                "SET TRANSACTION can only be used in transaction blocks",
            );
        }
        Ok("SET")
    }

    /// Runs SET SESSION CHARACTERISTICS AS TRANSACTION.
    fn set_characteristics(&mut self, modes: Modes) -> Result<&'static str> {
        if let Some(level) = modes.level {
            self.settings.set("default_transaction_isolation", Some(level_name(level)), false)?;
        }
        let flags = [
            ("default_transaction_read_only", modes.read_only),
            ("default_transaction_deferrable", modes.deferrable),
        ];
        for (name, flag) in flags {
            let value = flag.map(|flag| if flag { "on" } else { "off" });
            value.map_or(Ok(()), |value| self.settings.set(name, Some(value), false))?;
        }
        self.after_settings();
        Ok("SET")
    }

    fn checkpoint(&mut self) -> Result<&'static str> {
        let message = "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT";
        self.authorize_member(predefined::CHECKPOINT, message)?;
        self.shared.engine.checkpoint_all()?;
        Ok("CHECKPOINT")
    }

    /// Runs SET CONSTRAINTS.
    fn set_constraints(&mut self, names: Option<&[ast::ObjectName]>, put_off: bool) -> Result<()> {
        let catalog = self.current_catalog();
        let mut keys = Vec::new();
        for name in names.unwrap_or_default() {
            let (_, last) = crate::names::object_name(name)?;
            let named = catalog.tables().flat_map(|t| &t.foreign_keys).filter(|k| k.name == last);
            let named: Vec<_> = named.collect();
            if named.is_empty() {
                let message = format!("constraint \"{last}\" does not exist");
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
            }
            if named.iter().any(|k| !k.deferrable) {
                let message = format!("constraint \"{last}\" is not deferrable");
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
            }
            keys.extend(named.iter().map(|k| k.id));
        }
        if !self.in_block() {
            let message = "SET CONSTRAINTS can only be used in transaction blocks";
            self.warn(SqlState::NO_ACTIVE_TRANSACTION, message);
            return Ok(());
        }
        self.deferred.set(names.map(|_| &keys[..]), put_off);
        if put_off { Ok(()) } else { self.check_deferred(false) }
    }

    /// Runs COMMIT and ROLLBACK. With AND CHAIN a new transaction with the same modes begins.
    fn end(&mut self, commit: bool, chain: bool) -> Result<CommandTag> {
        if chain {
            self.require_block(if commit { "COMMIT AND CHAIN" } else { "ROLLBACK AND CHAIN" })?;
        }
        if !self.in_block() {
            self.warn(SqlState::NO_ACTIVE_TRANSACTION, "there is no transaction in progress");
        }
        let modes = Modes {
            level: Some(self.level),
            read_only: Some(self.read_only),
            deferrable: Some(self.deferrable),
        };
        let commits = commit && self.block != Block::Failed;
        if commits {
            self.commit()?
        } else {
            self.rollback()?
        }
        if chain {
            self.begin(modes)?;
        }
        Ok(CommandTag::Plain(if commits { "COMMIT" } else { "ROLLBACK" }))
    }

    /// Returns the session. Warns if SET LOCAL is outside of a block, where it would end with its own
    /// statement. The caller checks the name and the value anyway.
    fn warned_of_local(&mut self, is_local: bool) -> &mut Session {
        if is_local && self.block == Block::Idle {
            self.warn(SqlState::NO_ACTIVE_TRANSACTION, "SET LOCAL can only be used in transaction blocks");
        }
        self
    }

    fn set(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<&'static str> {
        self.warned_of_local(local);
        let default = || self.settings.get(&format!("default_{name}")).unwrap_or_default();
        let given = value.map_or_else(default, str::to_owned);
        if let Some(modes) = settings::transaction_modes(name, &given)? {
            if self.in_block() {
                self.set_modes(modes)?;
            }
            return Ok("SET");
        }
        self.assign(name, value, local)?;
        if let Some(name) = settings::without_effect(name).filter(|_| value.is_some())
            && self.told_without_effect.insert(name)
        {
            self.warn(SqlState::WARNING, &format!("parameter \"{name}\" has no effect in Varve"));
        }
        Ok("SET")
    }

    /// Sets a setting of the session or of the transaction.
    pub(super) fn assign(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<()> {
        if let Some(modes) = settings::transaction_modes(name, value.unwrap_or_default()).ok().flatten() {
            return if self.in_block() { self.set_modes(modes) } else { Ok(()) };
        }
        match name {
            "role" => return self.set_role(value.filter(|v| *v != "none"), local).map(|_| ()),
            "session_authorization" => return self.set_session_authorization(value, local).map(|_| ()),
            _ => {}
        }
        self.check_may_set(name)?;
        self.settings.set(name, value, local)?;
        self.after_settings();
        Ok(())
    }

    /// Runs RESET of one setting.
    pub(super) fn reset(&mut self, name: &str, local: bool) -> Result<()> {
        self.assign(name, None, local)
    }

    /// Runs ALTER SYSTEM.
    fn alter_system(&mut self, name: Option<&str>, value: Option<&str>) -> Result<&'static str> {
        let refusal = match name {
            Some(name) => format!("permission denied to set parameter \"{name}\""),
            None => "permission denied to perform ALTER SYSTEM RESET ALL".to_owned(),
        };
        self.forbid_block("ALTER SYSTEM")?;
        self.authorize_superuser(&refusal)?;
        let shared = Arc::clone(&self.shared);
        let Some(system) = shared.process.program() else {
            return Err(SqlError::unsupported("ALTER SYSTEM in a program that embeds the database"));
        };
        let Some(name) = name else {
            system.reset_all()?;
            return Ok("ALTER SYSTEM");
        };
        let (asked, name) = (name, system_name(name));
        let is_of_sessions = shared.process.find(name).is_none() && self.settings.get(name).is_ok();
        if is_of_sessions {
            let what = format!("ALTER SYSTEM of {name}, which is a setting of sessions,");
            return Err(
                SqlError::unsupported(what).with_hint("Sessions SET it, or their start-up packet does.")
            );
        }
        system.alter(name, value).map_err(|refused| about(refused, asked))?;
        shared.process.find(name).iter().for_each(|setting| self.tell_altered(setting, asked));
        Ok("ALTER SYSTEM")
    }

    /// Adds notices about a setting that ALTER SYSTEM has changed under this name. They have a warning, and
    /// say whether the change is in effect.
    fn tell_altered(&mut self, setting: &SystemSetting, name: &str) {
        let value = &setting.value;
        if let Some(warning) = &setting.warning {
            self.warn(SqlState::WARNING, warning);
        }
        let message = match &setting.hidden {
            Some(hidden) => format!(
                "{name} is {value} for as long as the command line says so; a start without that makes it {hidden}"
            ),
            None if setting.is_pending() => format!("{name} changes when the server is started again"),
            None => return,
        };
        self.notices.push((Severity::Notice, SqlError::new(SqlState("00000"), message)));
    }

    /// Fails with 42501 if only superusers may set the setting, and with 55P02 if it is not a setting of a
    /// session.
    fn check_may_set(&mut self, name: &str) -> Result<()> {
        if self.settings.get(name).is_err()
            && let Some(setting) = self.shared.process.find(name)
        {
            return Err(system_settings::not_of_a_session(&setting));
        }
        match settings::check_for_all(name) {
            Err(refused) if self.holder().is_some() => Err(refused),
            _ => Ok(()),
        }
    }

    fn discard(&mut self, what: Discarded) -> Result<&'static str> {
        match what {
            Discarded::All => {}
            Discarded::Plans => {
                self.plans.clear();
                return Ok("DISCARD PLANS");
            }
            Discarded::Sequences => {
                self.sequences.clear();
                return Ok("DISCARD SEQUENCES");
            }
            // Varve has no temporary tables.
            Discarded::Temporary => return Ok("DISCARD TEMP"),
        }
        self.forbid_block("DISCARD ALL")?;
        self.set_session_authorization(None, false)?;
        self.settings.reset_all();
        self.after_settings();
        self.cursors.clear();
        self.statements = Arc::default();
        self.sequences.clear();
        self.locks.unlock_all();
        self.plans.clear();
        Ok("DISCARD ALL")
    }

    pub(super) fn forbid_block(&self, command: &str) -> Result<()> {
        if !self.in_block() {
            return Ok(());
        }
        Err(not_in_block(command))
    }

    fn prepare_named(&mut self, name: &str, types: &[ast::TypeName], text: &str) -> Result<&'static str> {
        let oid = |t: &ast::TypeName| ty::of_ast(t).map(|t| t.ty.oid());
        let oids: Vec<Oid> = types.iter().map(oid).collect::<Result<_>>()?;
        let prepared = self.prepare_current(text, &oids)?;
        if !matches!(prepared.body, Body::Plan(_)) {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "PREPARE takes SELECT, INSERT, UPDATE, DELETE or VALUES",
            ));
        }
        let message = std::mem::take(&mut self.message);
        self.keep_statement(name, prepared, Some(message))?;
        Ok("PREPARE")
    }

    fn execute_named(
        &mut self,
        name: &str,
        arguments: &[ast::Expr],
        announce: bool,
        sink: &mut dyn Sink,
    ) -> Result<CommandTag> {
        let prepared = self.statement_to_run(name)?;
        let values = self.arguments(name, &prepared, arguments)?;
        let params: Vec<Datum<'_>> = values.iter().map(Value::as_datum).collect();
        self.run_current(&prepared, &params, announce, sink)
    }

    /// Returns the values of EXECUTE's arguments.
    pub(super) fn arguments(
        &mut self,
        name: &str,
        prepared: &Prepared,
        arguments: &[ast::Expr],
    ) -> Result<Vec<Value>> {
        if arguments.len() != prepared.param_types.len() {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            let detail =
                format!("Expected {} parameters but got {}.", prepared.param_types.len(), arguments.len());
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).with_detail(detail));
        }
        let catalog = self.current_catalog();
        let mut values: Vec<Value> = Vec::with_capacity(arguments.len());
        for (argument, ty) in arguments.iter().zip(&prepared.param_types) {
            let path = self.facts.path.clone();
            let mut b = Binder::new(&catalog, "", &[])?.along(&path);
            let mut scope = Scope { no_aggregates: Some("EXECUTE parameters"), ..Scope::default() };
            let bound = b.expression(argument, &mut scope)?;
            let e = b.explicit(bound, Typed::plain(*ty))?.expr;
            values.push(self.evaluate(&e)?);
        }
        Ok(values)
    }

    /// Evaluates an expression that reads no row.
    fn evaluate(&mut self, e: &crate::eval::Expr) -> Result<Value> {
        use crate::eval::{Cx, Input, NoSequences};
        let env = self.facts.env(&NoSequences);
        let cx = Cx { params: &[], arena: &self.scratch.row_arena, env: &env };
        Ok(e.eval(&Input::None, &cx)?.to_value())
    }

    fn show(&mut self, name: &str, announce: bool, sink: &mut dyn Sink) -> Result<CommandTag> {
        if announce {
            sink.columns(&show_columns(name))?;
        }
        if let Some(table) = statistics::shown_by(name) {
            if let Some(reader) = system::readers(table.name) {
                let message =
                    format!("must be superuser or have privileges of {} to examine \"{name}\"", reader.1);
                self.authorize_member(reader.0, &message)?;
            }
            for row in table.rows(&self.world()) {
                let row: Vec<Datum<'_>> = row.iter().map(Value::as_datum).collect();
                sink.row(&row)?;
            }
            return Ok(CommandTag::Plain("SHOW"));
        }
        if name == "all" {
            let system = self.shared.process.all();
            let described = system.iter().map(|s| (s.name.to_owned(), s.value.clone(), s.description));
            let of_sessions = self.settings.all().into_iter().map(|(name, value)| (name, value, ""));
            let mut all: Vec<_> = of_sessions.chain(described).collect();
            all.sort_by_key(|(name, ..)| name.to_lowercase());
            for (name, value, description) in &all {
                sink.row(&[Datum::Text(name), Datum::Text(value), Datum::Text(description)])?;
            }
            return Ok(CommandTag::Plain("SHOW"));
        }
        let value = self.current_value(name)?;
        sink.row(&[Datum::Text(&value)])?;
        Ok(CommandTag::Plain("SHOW"))
    }

    /// Returns the value of a setting of the transaction, the session or the process.
    pub(super) fn current_value(&self, name: &str) -> Result<String> {
        match self.transaction_setting(name) {
            Some(value) => Ok(value.to_owned()),
            None => self.settings.get(name).or_else(|unknown| {
                let setting = self.shared.process.find(name);
                setting.map(|setting| setting.value).ok_or(unknown)
            }),
        }
    }

    /// Returns the value of a setting of the transaction (`OF_TRANSACTION`), or `None` for other settings.
    pub(super) fn transaction_setting(&self, name: &str) -> Option<&'static str> {
        let now = self.in_block();
        let on_off = |flag| if flag { "on" } else { "off" };
        Some(match name {
            "transaction_isolation" => level_name(if now { self.level } else { self.defaults.level }),
            "transaction_read_only" => on_off(if now { self.read_only } else { self.defaults.read_only }),
            "transaction_deferrable" => on_off(if now { self.deferrable } else { self.defaults.deferrable }),
            _ => return None,
        })
    }
}

/// Changes the error about a refused setting, so that it has the name that the client knows.
fn about(refused: SqlError, asked: &str) -> SqlError {
    let name = system_name(asked);
    if name == asked {
        return refused;
    }
    let in_file = name.replacen('_', ".", 1);
    let message = refused.message.replace(&in_file, asked).replace(name, asked);
    SqlError { message: message.into(), ..refused }
}

/// Returns the name of a setting of the process, if PostgreSQL calls it `name` and Varve has another name for
/// it.
fn system_name(name: &str) -> &str {
    match name {
        "max_connections" => "server_max_connections",
        "authentication_timeout" => "server_authentication_timeout",
        "temp_file_limit" => "query_temporary",
        "default_table_access_method" => "nvm_default_access_method",
        "log_checkpoints" => "server_log_checkpoints",
        "log_connections" => "server_log_connections",
        "log_disconnections" => "server_log_disconnections",
        "log_lock_waits" => "server_log_lock_waits",
        "log_min_duration_statement" => "server_log_min_duration_statement",
        "log_temp_files" => "server_log_temp_files",
        other => other,
    }
}

/// Returns the columns of SHOW.
pub(super) fn show_columns(name: &str) -> Vec<Column> {
    if let Some(table) = statistics::shown_by(name) {
        let column = |(name, ty, _): &(&str, Ty, bool)| Column {
            name: (*name).into(),
            type_oid: ty.oid(),
            typmod: -1,
            origin: None,
        };
        return table.columns.iter().map(column).collect();
    }
    let text = |name: &str| Column { name: name.into(), type_oid: oid::TEXT, typmod: -1, origin: None };
    match name {
        "all" => vec![text("name"), text("setting"), text("description")],
        "timezone" => vec![text("TimeZone")],
        "datestyle" => vec![text("DateStyle")],
        "intervalstyle" => vec![text("IntervalStyle")],
        other => vec![text(other)],
    }
}

/// Returns the error 25001: the command cannot run in a transaction block.
pub(super) fn not_in_block(command: &str) -> SqlError {
    let message = format!("{command} cannot run inside a transaction block");
    SqlError::new(SqlState::ACTIVE_TRANSACTION, message)
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::ReadCommitted => "read committed",
        Level::RepeatableRead => "repeatable read",
        Level::Serializable => "serializable",
    }
}
