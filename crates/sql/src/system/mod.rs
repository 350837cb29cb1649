//! The system tables `pg_catalog` and `information_schema`. Their rows are computed from the catalog when a
//! query reads them.
//!
//! | file | what |
//! |---|---|
//! | `shapes.txt` | names, OIDs, kinds and columns of all system tables, as PostgreSQL 15 has them; those of Varve's own from 16000 |
//! | `types.txt` | PostgreSQL's `pg_type` for the types that Varve knows |
//! | `relations.rs` | the relations of a database |
//! | `relation_tables.rs` | the tables about them (pg_class, pg_attribute, pg_index, ...) |
//! | `constraints.rs` | the constraints of a database |
//! | `constraint_tables.rs` | pg_constraint |
//! | `others.rs` | roles, schemas, types, comments |
//! | `counts.rs` | what PostgreSQL's programs for watching a server ask (pg_stat_database, pg_statio_user_tables, ...) |
//! | `watched.rs`, `settings.txt` | settings, sessions, counts |
//! | `held.rs` | prepared statements and cursors of the session |
//! | `statements.rs` | pg_stat_statements, and pages of statements by level |
//! | `statistics.rs` | tables of Varve's own: counters, levels, durability |
//! | `information.rs` | information_schema |
//! | `deparse.rs` | the queries of views, laid out |
//! | `conditions.rs` | conditions and other expressions that the catalog keeps, laid out |
//! | `definitions.rs` | definitions as text (`pg_get_indexdef` and its relatives) |
//! | `show.rs` | names of OIDs, access lists |
//!
//! Invariants
//! 1. A system table has PostgreSQL's columns in PostgreSQL's order. The types are the same, too, except for
//!    types that Varve lacks: aclitem, inet and pg_node_tree are text, xid is oid.
//! 2. The OID of an object is its id in the catalog. Two kinds of objects have no id there: the index of a
//!    primary key, and a default. Their OID is computed from the id of the table and never changes (`ids`).
//! 3. Features that Varve lacks (triggers, policies, publications) have tables without rows.
//!
//! This module does not know expressions or how rows are filtered or joined.

pub mod conditions;
mod constraint_tables;
pub mod constraints;
mod counts;
pub mod definitions;
mod deparse;
pub mod extensions;
mod held;
pub mod ids;
mod information;
pub mod names;
mod others;
mod privileges;
mod relation_tables;
mod relations;
pub mod show;
mod statements;
pub mod statistics;
pub mod tablespaces;
mod types;
mod watched;

use std::sync::{Arc, LazyLock, OnceLock};

use parking_lot::Mutex;
use varve_engine::{
    Array, Catalog, ColumnType, Database, Datum, IndexDef, LockMode, Locker, ObjectId, SequenceDrawer,
    SessionLocks, Sizes, Value, predefined,
};

use crate::activity::Watched;
use crate::advisory::{AdvisoryAction, AdvisoryCall};
use crate::error::{Result, SqlError};
use crate::path::Path;
use crate::rights::{self, Holder, Who};
use crate::sequence_memory::SequenceMemory;
use crate::settings::{self, DescribedSetting, Settings};
use crate::statement_stats::StatementStats;
use crate::system_settings::{self, ProcessSettings};
use crate::ty::{Reg, Ty};

use conditions::MeaningOf;
use definitions::Printing;

pub use held::HeldObjects;
pub(crate) use held::{HeldCursor, ShownStatement, ShownStatements};
pub use others::LANGUAGES;
pub use relations::{Relation, What, namespace, parts_of, relation};
pub use statements::reset as reset_statements;
pub use types::{type_named, type_row, types};
pub use watched::described;

/// The state from which system tables and catalog functions are computed.
pub struct SystemContext {
    /// The catalog that the statement sees.
    pub catalog: Arc<Catalog>,
    /// Name of the database.
    pub database: String,
    /// The settings, including changes that the statement itself has made.
    pub settings: Mutex<Settings>,
    /// The settings of the transaction.
    pub of_transaction: [(&'static str, &'static str); 3],
    /// Requests of the statement to its session.
    pub asked: Mutex<Asked>,
    /// The sizes of tables and indexes, since the first use.
    pub sizes: OnceLock<Sizes>,
    /// The session's role.
    pub who: Who,
    /// The search path for names without a schema.
    pub path: Path,
    /// Takes values from sequences while the transaction is reading or changing rows.
    pub drawer: SequenceDrawer,
    /// Whether the transaction is read-only.
    pub read_only: bool,
    /// The values that the session has taken from sequences.
    pub drawn: Arc<SequenceMemory>,
    /// Whether the client wants the result in binary. Then types such as regclass are shown as OIDs.
    pub shows_oids: bool,
    /// The objects that take advisory locks for the transaction, and for the session.
    pub locks: (Locker, Arc<SessionLocks>),
    /// The storage engine.
    pub engine: Arc<Database>,
    /// The state of all sessions, and the results of ANALYZE.
    pub watched: Arc<Watched>,
    /// The statistics of statements.
    pub statements: Arc<StatementStats>,
    /// The settings of the process.
    pub process: ProcessSettings,
    /// Finds the meaning of expressions that the catalog stores as text.
    pub meaning_of: MeaningOf,
    /// The session's prepared statements and cursors.
    pub held: HeldObjects,
}

/// Requests of functions to the session, which are executed after the statement.
#[derive(Default)]
pub struct Asked {
    /// Calls of set_config: the name, the value, and whether the setting ends with the transaction.
    pub settings: Vec<(String, Option<String>, bool)>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

impl SystemContext {
    /// Returns the value of a setting as SHOW prints it. Fails with 42704 if there is no such setting.
    pub fn setting(&self, name: &str) -> Result<String> {
        let own = self.of_transaction.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        if let Some((_, value)) = own {
            return Ok((*value).to_owned());
        }
        let of_session = self.settings.lock().get(name);
        of_session.or_else(|unknown| {
            let setting = self.process.find(name);
            setting.map(|setting| setting.value).ok_or(unknown)
        })
    }

    /// Returns all settings of the session, by their names.
    pub fn all_settings(&self) -> Vec<DescribedSetting> {
        let mut all = self.settings.lock().described();
        for (name, value) in &self.of_transaction {
            if let Some(setting) = all.iter_mut().find(|setting| setting.name == *name) {
                (setting.value, setting.source) = ((*value).to_owned(), "override");
            }
        }
        all
    }

    /// Runs set_config. The statement sees the new value at once, and the session sees it after the
    /// statement.
    pub fn set(&self, name: &str, value: Option<&str>, is_local: bool) -> Result<String> {
        if !Holder::of(&self.catalog, self.who).is_superuser() {
            settings::check_for_all(name)?;
        }
        if self.settings.lock().get(name).is_err()
            && let Some(setting) = self.process.find(name)
        {
            return Err(system_settings::not_of_a_session(&setting));
        }
        if let Some(role) = value.filter(|value| name.eq_ignore_ascii_case("role") && *value != "none") {
            self.catalog.role(role).ok_or_else(|| rights::no_such_value(role))?;
        }
        let of_transaction = match value {
            Some(value) => settings::transaction_modes(&name.to_ascii_lowercase(), value)?.map(|_| value),
            None => None,
        };
        let shown = match of_transaction {
            Some(value) => value.to_owned(),
            None => {
                let mut settings = self.settings.lock();
                settings.set(name, value, is_local)?;
                settings.get(name).unwrap_or_default()
            }
        };
        self.asked.lock().settings.push((name.to_ascii_lowercase(), value.map(str::to_owned), is_local));
        Ok(shown)
    }

    /// Returns the scans of these secondary indexes, and the rows that they have passed.
    pub fn index_accesses(&self, indexes: &[Arc<IndexDef>]) -> (u64, u64) {
        let accesses = indexes.iter().map(|index| self.engine.index_accesses(index.id));
        accesses.fold((0, 0), |(scans, rows), index| (scans + index.key_scans, rows + index.key_rows))
    }

    /// Returns the context for printing definitions.
    pub fn printing(&self, pretty: bool) -> Printing<'_> {
        Printing { catalog: &self.catalog, path: &self.path, meaning_of: self.meaning_of, pretty }
    }

    /// Adds a warning, which the client gets after the statement.
    pub fn warn(&self, message: String) {
        self.asked.lock().warnings.push(message);
    }

    /// Executes a function of advisory locks. Returns whether it got the lock.
    pub fn lock(&self, call: &AdvisoryCall) -> Result<bool> {
        let (locker, session) = &self.locks;
        let AdvisoryCall { key, is_shared, of_session, action } = *call;
        match action {
            AdvisoryAction::Lock | AdvisoryAction::Try => {
                let session = of_session.then_some(&**session);
                Ok(locker.lock(key, is_shared, session, action == AdvisoryAction::Lock)?)
            }
            AdvisoryAction::Unlock => {
                let was_there = session.unlock(key, is_shared);
                if !was_there {
                    let mode = if is_shared { LockMode::Share } else { LockMode::Exclusive };
                    self.warn(format!("you don't own a lock of type {}", mode.name()));
                }
                Ok(was_there)
            }
            AdvisoryAction::UnlockAll => {
                session.unlock_all();
                Ok(true)
            }
        }
    }

    /// Returns the sizes of tables and indexes. They are computed at the first use in a statement.
    pub fn sizes(&self) -> Result<&Sizes> {
        if self.sizes.get().is_none() {
            let _ = self.sizes.set(self.engine.sizes()?);
        }
        self.sizes.get().ok_or_else(|| SqlError::internal("sizes that are lost"))
    }
}

impl std::fmt::Debug for SystemContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SystemContext of catalog version {}", self.catalog.version())
    }
}

/// A system table.
pub struct SystemTable {
    /// `pg_catalog` or `information_schema`.
    pub schema: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its OID in `pg_class`.
    pub oid: u32,
    /// Whether PostgreSQL has a view of this name, and not a table.
    pub is_view: bool,
    /// Whether these are the rows of a function without arguments, and not a relation.
    pub is_function: bool,
    /// Names and types of its columns, and whether they are NOT NULL.
    pub columns: Vec<(&'static str, Ty, bool)>,
    fill: Fill,
}

/// Returns the role whose members, beside superusers, may read a system table about places and devices of the
/// database, and the role's name. Returns `None` for tables that every role may read.
pub fn readers(table: &str) -> Option<(ObjectId, &'static str)> {
    match table {
        "varve_durability" => Some((predefined::READ_ALL_SETTINGS, "pg_read_all_settings")),
        "varve_archive" | "varve_devices" | "varve_io" | "varve_io_trace" | "varve_levels" | "varve_nvm" => {
            Some((predefined::READ_ALL_STATS, "pg_read_all_stats"))
        }
        _ => None,
    }
}

/// The code that computes rows.
type Fill = fn(&SystemContext, &mut Rows<'_>);

impl std::fmt::Debug for SystemTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

impl SystemTable {
    /// Returns all rows of the table.
    pub fn rows(&self, world: &SystemContext) -> Vec<Box<[Value]>> {
        let blank = self.columns.iter().map(|(_, ty, not_null)| blank(*ty, *not_null)).collect();
        let mut rows = Rows { table: self, blank, rows: Vec::new() };
        (self.fill)(world, &mut rows);
        rows.rows
    }
}

/// Returns the value of a column for which `fill` sets no value.
fn blank(ty: Ty, not_null: bool) -> Value {
    if !not_null {
        return Value::Null;
    }
    match ty {
        Ty::Bool => Value::Bool(false),
        Ty::Int2 => Value::Int2(0),
        Ty::Int4 => Value::Int4(0),
        Ty::Int8 | Ty::Oid | Ty::Reg(_) => Value::Int8(0),
        Ty::Float4 => Value::Float4(0.0),
        Ty::Int2Vector => Value::Array(Array::vector(ColumnType::Int2)),
        Ty::OidVector => Value::Array(Array::vector(ColumnType::Int8)),
        _ => Value::Text(String::new()),
    }
}

/// The rows of a system table, while they are made.
pub struct Rows<'t> {
    table: &'t SystemTable,
    blank: Box<[Value]>,
    rows: Vec<Box<[Value]>>,
}

impl Rows<'_> {
    /// Adds a row. Columns that are not in `cells` have their blank value.
    pub fn add(&mut self, cells: impl IntoIterator<Item = (&'static str, Value)>) {
        self.rows.push(self.blank.clone());
        self.set(cells);
    }

    /// Sets more cells of the row that was added last.
    pub fn set(&mut self, cells: impl IntoIterator<Item = (&'static str, Value)>) {
        let Some(row) = self.rows.last_mut() else { return };
        for (name, value) in cells {
            let at = self.table.columns.iter().position(|(column, ..)| *column == name);
            match at.and_then(|at| row.get_mut(at)) {
                Some(cell) => *cell = value,
                None => debug_assert!(false, "{:?} has no column {name}", self.table),
            }
        }
    }
}

/// Returns a text cell.
fn text(value: impl Into<String>) -> Value {
    Value::Text(value.into())
}

/// Returns an oid cell.
fn oid(value: u32) -> Value {
    Value::Int8(i64::from(value))
}

/// Returns a "char" cell.
fn char1(value: char) -> Value {
    Value::Text(value.to_string())
}

/// Returns a YES or NO of information_schema.
fn yes(value: bool) -> Value {
    text(if value { "YES" } else { "NO" })
}

/// Returns an array cell.
fn list<'v>(element: ColumnType, values: impl IntoIterator<Item = Datum<'v>>) -> Value {
    let mut array = Array::new(element);
    values.into_iter().for_each(|value| array.push(value));
    Value::Array(array)
}

/// Returns a vector cell.
fn vector<'v>(element: ColumnType, values: impl IntoIterator<Item = Datum<'v>>) -> Value {
    let mut array = Array::vector(element);
    values.into_iter().for_each(|value| array.push(value));
    Value::Array(array)
}

/// Returns the number that a column has in PostgreSQL.
fn attnum(ordinal: usize) -> i16 {
    i16::try_from(ordinal + 1).unwrap_or(i16::MAX)
}

/// Returns all system tables.
pub fn tables() -> &'static [SystemTable] {
    static TABLES: LazyLock<Vec<SystemTable>> = LazyLock::new(read_shapes);
    &TABLES
}

/// Returns the system table of this name.
pub fn table(schema: &str, name: &str) -> Option<&'static SystemTable> {
    tables().iter().find(|t| t.name == name && t.schema == schema && !t.is_function)
}

/// Returns the rows of a set-returning function without arguments. They are the rows of a system table, or of
/// a view over it.
pub fn function_rows(name: &str) -> Option<&'static SystemTable> {
    let table_name = match name {
        "pg_show_all_settings" => "pg_settings",
        "pg_lock_status" => "pg_locks",
        "pg_cursor" => "pg_cursors",
        "pg_prepared_statement" => "pg_prepared_statements",
        "pg_available_extensions" | "pg_timezone_abbrevs" | "pg_timezone_names" => name,
        _ => return tables().iter().find(|t| t.name == name && t.is_function),
    };
    table("pg_catalog", table_name)
}

/// Reads `shapes.txt`. Each table has a line `schema.name oid kind`, followed by indented lines of
/// `column:type`. `!` follows a type that is NOT NULL.
fn read_shapes() -> Vec<SystemTable> {
    let mut tables: Vec<SystemTable> = Vec::new();
    for line in include_str!("shapes.txt").lines() {
        let mut words = line.split_whitespace();
        if line.starts_with(' ') {
            if let Some(table) = tables.last_mut() {
                table.columns.extend(words.filter_map(column));
            }
        } else if let (Some(name), Some(oid), Some(kind)) = (words.next(), words.next(), words.next())
            && let Some((schema, name)) = name.split_once('.')
            && let Ok(oid) = oid.parse()
        {
            let fill = fill_of(schema, name);
            tables.push(SystemTable {
                schema,
                name,
                oid,
                is_view: kind == "v",
                is_function: kind == "f",
                columns: Vec::new(),
                fill,
            });
        }
    }
    tables
}

fn column(written: &'static str) -> Option<(&'static str, Ty, bool)> {
    let (name, ty) = written.split_once(':')?;
    let bare = ty.trim_end_matches('!');
    Some((name, shape_type(bare)?, bare.len() < ty.len()))
}

/// Returns a type as `shapes.txt` writes it.
fn shape_type(name: &str) -> Option<Ty> {
    Some(match name {
        "_text" => Ty::Array(&Ty::Text),
        "_name" => Ty::Array(&Ty::Name),
        "_oid" => Ty::Array(&Ty::Oid),
        "_int2" => Ty::Array(&Ty::Int2),
        "_char" => Ty::Array(&Ty::Char1),
        "_bool" => Ty::Array(&Ty::Bool),
        "regproc" => Ty::Reg(Reg::Proc),
        "regtype" => Ty::Reg(Reg::Type),
        name => Ty::of_oid(type_named(name)?.oid)?,
    })
}

fn fill_of(schema: &str, name: &str) -> Fill {
    let found = match schema {
        "pg_catalog" => {
            let named = relation_tables::fill(name).or_else(|| constraint_tables::fill(name));
            let named = named.or_else(|| others::fill(name)).or_else(|| watched::fill(name));
            let named = named.or_else(|| extensions::fill(name)).or_else(|| held::fill(name));
            let named = named.or_else(|| statistics::fill(name)).or_else(|| counts::fill(name));
            named.or_else(|| statements::fill(name))
        }
        _ => information::fill(name).or_else(|| privileges::fill(name)),
    };
    found.unwrap_or(|_, _| {})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_shapes_is_read() {
        let text = include_str!("shapes.txt");
        let columns = text.lines().filter(|l| l.starts_with(' ')).flat_map(str::split_whitespace).count();
        assert_eq!(tables().iter().map(|t| t.columns.len()).sum::<usize>(), columns);
        assert_eq!(tables().len(), text.lines().filter(|l| !l.starts_with(' ')).count());
        assert!(table("pg_catalog", "pg_class").is_some_and(|t| t.oid == 1259 && t.columns.len() == 33));
    }
}
