//! Converts CREATE, ALTER and DROP DATABASE from the tree of PostgreSQL's parser.
//!
//! This module does not know which databases exist or who may change them (`session::database`).

use pg_query::protobuf::{
    AlterDatabaseSetStmt, AlterDatabaseStmt, AlterOwnerStmt, CreatedbStmt, DropdbStmt, Node, RenameStmt,
};

use super::node::{self, Opt, Source};
use super::role::{RoleName, role_name};
use super::{Utility, setting};
use crate::encoding::Encoding;
use crate::error::{Result, SqlError, SqlState};
use crate::names::clipped;

/// A command about databases.
#[derive(Debug, Clone)]
pub enum DatabaseCommand {
    /// CREATE DATABASE
    Create(String, Vec<DatabaseOption>),
    /// ALTER DATABASE name options
    Alter(String, Vec<DatabaseOption>),
    /// ALTER DATABASE name SET, RESET
    Set(String, Box<Utility>),
    /// ALTER DATABASE ... RENAME TO
    Rename(String, String),
    /// ALTER DATABASE ... OWNER TO
    Owner(String, RoleName),
    /// DROP DATABASE
    Drop {
        /// The database.
        name: String,
        /// IF EXISTS
        if_exists: bool,
        /// Whether FORCE is given. Then its sessions are ended.
        force: bool,
    },
}

impl DatabaseCommand {
    /// Returns the command's tag, if the command runs only in a transaction of its own.
    pub fn tag_if_alone(&self) -> Option<&'static str> {
        match self {
            DatabaseCommand::Create(..) => Some("CREATE DATABASE"),
            DatabaseCommand::Drop { .. } => Some("DROP DATABASE"),
            _ => None,
        }
    }
}

/// An option of CREATE and ALTER DATABASE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseOption {
    /// OWNER
    Owner(RoleName),
    /// TEMPLATE
    Template(String),
    /// TABLESPACE
    Tablespace(String),
    /// CONNECTION LIMIT
    ConnectionLimit(i32),
    /// ALLOW_CONNECTIONS
    AllowsConnections(bool),
    /// IS_TEMPLATE
    IsTemplate(bool),
}

fn command(command: DatabaseCommand) -> Utility {
    Utility::Database(Box::new(command))
}

/// Converts CREATE DATABASE.
pub(super) fn create(source: Source<'_>, c: &CreatedbStmt) -> Result<Utility> {
    Ok(command(DatabaseCommand::Create(clipped(c.dbname.clone()), database_options(source, &c.options)?)))
}

/// Converts ALTER DATABASE.
pub(super) fn alter(source: Source<'_>, a: &AlterDatabaseStmt) -> Result<Utility> {
    Ok(command(DatabaseCommand::Alter(clipped(a.dbname.clone()), database_options(source, &a.options)?)))
}

/// Converts ALTER DATABASE ... SET, RESET.
pub(super) fn set(a: &AlterDatabaseSetStmt) -> Result<Utility> {
    let Some(set) = &a.setstmt else { return Err(SqlError::internal("ALTER DATABASE ... SET of nothing")) };
    Ok(command(DatabaseCommand::Set(clipped(a.dbname.clone()), Box::new(setting::set(set)?))))
}

/// Converts ALTER DATABASE ... RENAME TO.
pub(super) fn rename(r: &RenameStmt) -> Utility {
    command(DatabaseCommand::Rename(clipped(r.subname.clone()), clipped(r.newname.clone())))
}

/// Converts ALTER DATABASE ... OWNER TO.
pub(super) fn owner(name: &str, a: &AlterOwnerStmt) -> Result<Utility> {
    let to = role_name(a.newowner.as_ref())?;
    Ok(command(DatabaseCommand::Owner(clipped(name.to_owned()), to)))
}

/// Converts DROP DATABASE.
pub(super) fn drop(source: Source<'_>, d: &DropdbStmt) -> Result<Utility> {
    let mut force = false;
    for given in node::options(&d.options)? {
        match given.name() {
            "force" => force = true,
            other => return Err(unknown("DROP DATABASE", other, given.position(source))),
        }
    }
    let name = clipped(d.dbname.clone());
    Ok(command(DatabaseCommand::Drop { name, if_exists: d.missing_ok, force }))
}

fn unknown(of: &str, option: &str, position: Option<u32>) -> SqlError {
    node::syntax(format!("unrecognized {of} option \"{option}\"")).at(position)
}

fn database_options(source: Source<'_>, list: &[Node]) -> Result<Vec<DatabaseOption>> {
    let (mut names, mut options): (Vec<&str>, Vec<DatabaseOption>) = Default::default();
    for given in node::options(list)? {
        if names.contains(&given.name()) {
            return Err(node::redundant(given.position(source)));
        }
        names.push(given.name());
        options.extend(option(source, given)?);
    }
    Ok(options)
}

/// Converts one option. Returns `None` if it asks for something that always holds in Varve.
fn option(source: Source<'_>, given: Opt<'_>) -> Result<Option<DatabaseOption>> {
    // The value is DEFAULT.
    if given.value().is_none() {
        return Ok(None);
    }
    let text = given.needed_text()?;
    Ok(match given.name() {
        "owner" => Some(DatabaseOption::Owner(RoleName::Named(clipped(text)))),
        "template" => Some(DatabaseOption::Template(clipped(text))),
        "connection_limit" => Some(DatabaseOption::ConnectionLimit(limit(source, given)?)),
        "allow_connections" => Some(DatabaseOption::AllowsConnections(given.flag()?)),
        "is_template" => Some(DatabaseOption::IsTemplate(given.flag()?)),
        "encoding" => encoding(&text).map(|()| None)?,
        "locale" | "lc_collate" | "lc_ctype" => locale(&text).map(|()| None)?,
        "locale_provider" if text == "libc" => None,
        "tablespace" => Some(DatabaseOption::Tablespace(clipped(text))),
        "strategy" => strategy(&text).map(|()| None)?,
        "collation_version" => None,
        name @ ("locale_provider" | "icu_locale" | "oid") => {
            return Err(SqlError::unsupported(format!("CREATE DATABASE ... {}", name.to_uppercase())));
        }
        other => {
            return Err(node::syntax(format!("option \"{other}\" not recognized")).at(given.position(source)));
        }
    })
}

fn limit(source: Source<'_>, given: Opt<'_>) -> Result<i32> {
    let number = given.number().ok_or_else(|| node::syntax("connection_limit requires an integer value"))?;
    if number < -1 {
        let message = format!("invalid connection limit: {number}");
        let error = SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
        return Err(error.at(given.position(source)));
    }
    Ok(number)
}

fn encoding(name: &str) -> Result<()> {
    let named = name.parse().map_or_else(|_| Encoding::named(name), Encoding::numbered);
    if named == Some(Encoding::UTF8) {
        return Ok(());
    }
    match named {
        Some(_) => Err(SqlError::unsupported(format!("a database in the encoding {name}"))
            .with_hint("All databases are kept in UTF8; client_encoding may be another one.")),
        None => {
            let message = format!("{name} is not a valid encoding name");
            Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message))
        }
    }
}

/// Fails for other locales than C, because Varve always sorts texts by bytes.
fn locale(name: &str) -> Result<()> {
    let lower = name.to_ascii_lowercase();
    match matches!(lower.as_str(), "c" | "posix" | "c.utf-8" | "c.utf8") {
        true => Ok(()),
        false => Err(SqlError::unsupported(format!("a database with the locale \"{name}\""))
            .with_hint("Texts are ordered by their bytes: say LOCALE 'C', or nothing.")),
    }
}

fn strategy(name: &str) -> Result<()> {
    if ["wal_log", "file_copy"].iter().any(|known| name.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    let message = format!("invalid create database strategy \"{name}\"");
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
        .with_hint("Valid strategies are \"wal_log\", and \"file_copy\"."))
}
