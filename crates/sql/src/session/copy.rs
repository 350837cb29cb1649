//! Runs COPY into a table, or out of a table or a query. The data goes through the connection, or is in a
//! file on the server.
//!
//! Invariants
//! 1. Only superusers may read or write a file on the server.
//!
//! This module does not know formats (`crate::copy`) or how rows are inserted (`exec::copy`).

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use varve_engine::{Error as EngineError, Rights, TableDef, Transaction, predefined};

use super::Session;
use super::run::Ran;
use crate::ast::{Ident, ObjectName};
use crate::bind::Binder;
use crate::bind::dml::insert_targets;
use crate::copy::out::{CopyOut, chosen};
use crate::copy::{Chosen, Copy, CopyEnd, CopyWhat};
use crate::error::{Result, SqlError, SqlState};
use crate::exec::Exec;
use crate::exec::copy::CopyPlan;
use crate::exec::reference::Pending;
use crate::names::{fold, object_name};
use crate::prepared::Body;
use crate::rights::{Kind, Object};
use crate::sink::{Column, CommandTag, CopyShape, Severity, Sink};
use crate::system::names::quoted;

/// Checks COPY FREEZE. As in PostgreSQL, it is allowed only if no other transaction can see rows of the
/// table.
fn check_freeze(txn: &Transaction, table: &TableDef) -> Result<()> {
    if table.partitions.is_some() {
        let message = "cannot perform COPY FREEZE on a partitioned table";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    if txn.has_new_tree(table) {
        return Ok(());
    }
    let message = "cannot perform COPY FREEZE because the table was not created or truncated in the current \
                   subtransaction";
    Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message))
}

/// The number of bytes that are read from a file at once.
const FILE_PIECE_BYTES: usize = 64 << 10;

impl Session {
    /// Runs COPY.
    pub(super) fn copy(&mut self, copy: &Copy, sink: &mut dyn Sink) -> Result<CommandTag> {
        let file = match &copy.place {
            CopyEnd::Client => None,
            CopyEnd::File(path) => {
                self.authorize_file(copy.is_from)?;
                Some(path)
            }
            CopyEnd::Program => return Err(no_program()),
        };
        match (copy.is_from, file) {
            (true, None) => self.copy_from(copy, sink),
            (true, Some(path)) => self.copy_from(copy, &mut FromFile { sink, path: path.as_str() }),
            (false, None) => self.copy_to(copy, sink),
            (false, Some(path)) => {
                if !Path::new(path).is_absolute() {
                    let message = "relative path not allowed for COPY to file";
                    return Err(SqlError::new(SqlState::INVALID_NAME, message));
                }
                self.copy_to(copy, &mut ToFile { sink, path, file: None })
            }
        }
    }

    fn authorize_file(&mut self, is_from: bool) -> Result<()> {
        let message = match is_from {
            true => {
                "must be superuser or have privileges of the pg_read_server_files role to COPY from a file"
            }
            false => {
                "must be superuser or have privileges of the pg_write_server_files role to COPY to a file"
            }
        };
        let role = if is_from { predefined::READ_SERVER_FILES } else { predefined::WRITE_SERVER_FILES };
        self.authorize_member(role, message).map_err(|e| {
            e.with_hint(
                "Anyone can COPY to stdout or from stdin. psql's \\copy command also works for anyone.",
            )
        })
    }

    /// Runs COPY FROM. If the table was changed while COPY waited for its lock, COPY is bound again.
    fn copy_from(&mut self, copy: &Copy, sink: &mut dyn Sink) -> Result<CommandTag> {
        loop {
            self.facts.check_cancel()?;
            match self.copy_current(copy, sink)? {
                Some(tag) => return Ok(tag),
                None => self.catalog = None,
            }
        }
    }

    /// Runs COPY FROM with the current definition of the table. Returns `None` if this definition is out of
    /// date.
    fn copy_current(&mut self, copy: &Copy, sink: &mut dyn Sink) -> Result<Option<CommandTag>> {
        let plan = self.bind_copy(copy)?;
        if self.read_only {
            return Err(SqlError::read_only("COPY FROM"));
        }
        self.begin_engine();
        let Some(txn) = &mut self.txn else { return Err(SqlError::internal("no transaction")) };
        txn.start_statement();
        let table = match txn.table(&plan.table) {
            Ok(table) => table,
            Err(EngineError::StaleDefinition { .. } | EngineError::Undefined { .. }) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        if plan.format.freeze {
            check_freeze(txn, &plan.table)?;
        }
        let mut exec = Exec {
            txn,
            catalog: &mut self.catalog,
            facts: &self.facts,
            scratch: &mut self.scratch,
            sequences: &self.sequences,
            params: &[],
            group_count: 1,
            pending: Pending::default(),
            deferred: &mut self.deferred,
            meter: None,
        };
        exec.copy(&plan, &table, sink).map(Some)
    }

    fn bind_copy(&mut self, copy: &Copy) -> Result<CopyPlan> {
        let CopyWhat::Table(name, columns) = &copy.what else {
            return Err(SqlError::internal("COPY FROM of a query"));
        };
        self.refuse_others(name, true)?;
        let catalog = self.current_catalog();
        let path = self.facts.path.clone();
        let mut b = Binder::new(&catalog, &copy.sql, &[])?.along(&path);
        let (table, targets, defaults) = insert_targets(&mut b, name, columns)?;
        self.authorize_table(&table, Rights::INSERT)?;
        let rules = b.rules(&table)?;
        let filter = copy.filter.as_ref().map(|e| b.copy_filter(e, &table)).transpose()?;
        let names: Vec<&str> = targets.iter().map(|ordinal| &*table.columns[*ordinal].name).collect();
        let known = |column: &str| match table.column(column) {
            Some(_) => Ok(()),
            None => Err(no_column(column, &table.name)),
        };
        let flags = |c: &Chosen, option: &str| chosen(c, &names, option, &known);
        let not_null = flags(&copy.format.force_not_null, "FORCE_NOT_NULL")?;
        let null = flags(&copy.format.force_null, "FORCE_NULL")?;
        let format = copy.format.clone();
        Ok(CopyPlan { table, targets, defaults, rules, filter, format, not_null, null })
    }

    /// Runs COPY TO.
    fn copy_to(&mut self, copy: &Copy, sink: &mut dyn Sink) -> Result<CommandTag> {
        let mut out = CopyOut::new(sink, &copy.format, &self.facts);
        match &copy.what {
            CopyWhat::Query(text, before) => {
                let run = self.copy_query(text, &mut out);
                run.map_err(|e| SqlError { position: e.position.map(|p| p + before), ..e })?;
            }
            CopyWhat::Table(name, columns) => {
                let text = self.table_query(copy, name, columns)?;
                self.copy_query(&text, &mut out).map_err(|e| SqlError { position: None, ..e })?;
            }
        }
        out.finish()?;
        Ok(CommandTag::Copy(out.rows))
    }

    /// Returns the text of the query that reads a table's rows.
    fn table_query(&mut self, copy: &Copy, name: &ObjectName, columns: &[Ident]) -> Result<String> {
        self.refuse_others(name, false)?;
        let (schema, last) = object_name(name)?;
        let catalog = self.current_catalog();
        if let Some(table) = catalog.table(&schema, &last) {
            if table.partitions.is_some() {
                let message = format!("cannot copy from partitioned table \"{last}\"");
                return Err(wrong_kind(message).with_hint(TRY_QUERY));
            }
            let mut named = Vec::new();
            for column in columns.iter().map(fold) {
                table.column(&column).ok_or_else(|| no_column(&column, &last))?;
                if named.contains(&column) {
                    let message = format!("column \"{column}\" specified more than once");
                    return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
                }
                named.push(column);
            }
            let names: Vec<&str> = match named.is_empty() {
                true => table.columns.iter().map(|c| &*c.name).collect(),
                false => named.iter().map(String::as_str).collect(),
            };
            chosen(&copy.format.force_quote, &names, "FORCE_QUOTE", &|column| match table.column(column) {
                Some(_) => Ok(()),
                None => Err(no_column(column, &last)),
            })?;
        }
        let list = |names: &[Ident], between: &str| {
            names.iter().map(|name| quoted(&name.value)).collect::<Vec<_>>().join(between)
        };
        let columns = if columns.is_empty() { "*".to_owned() } else { list(columns, ", ") };
        Ok(format!("SELECT {columns} FROM {}", list(&name.0, ".")))
    }

    /// Fails with 42809 for a relation that has no rows of its own.
    fn refuse_others(&mut self, name: &ObjectName, is_from: bool) -> Result<()> {
        let (schema, last) = object_name(name)?;
        let catalog = self.current_catalog();
        let direction = if is_from { "to" } else { "from" };
        if let Some(view) = catalog.view(&schema, &last) {
            let right = if is_from { Rights::INSERT } else { Rights::SELECT };
            self.authorize_object(&Object::new(view.id, Kind::View, &last), &schema, right)?;
            let message = format!("cannot copy {direction} view \"{last}\"");
            return Err(wrong_kind(message).with_hint(match is_from {
                true => "To enable copying to a view, provide an INSTEAD OF INSERT trigger.",
                false => TRY_QUERY,
            }));
        }
        if catalog.sequence(&schema, &last).is_some() {
            return Err(wrong_kind(format!("cannot copy {direction} sequence \"{last}\"")));
        }
        Ok(())
    }

    fn copy_query(&mut self, text: &str, out: &mut CopyOut<'_>) -> Result<()> {
        let mut prepared = self.prepare_any(text, &[])?;
        loop {
            if !matches!(prepared.body, Body::Plan(_)) {
                return Err(SqlError::unsupported("COPY of this statement"));
            }
            if prepared.columns.is_none() {
                let message = "COPY query must have a RETURNING clause";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            if !prepared.param_types.is_empty() {
                return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"));
            }
            match self.run(&prepared, &[], 1, true, out)? {
                Ran::Done(_) => return Ok(()),
                Ran::Stale => prepared = self.prepare_again(text, &[])?,
            }
        }
    }
}

const TRY_QUERY: &str = "Try the COPY (SELECT ...) TO variant.";

fn wrong_kind(message: String) -> SqlError {
    SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
}

fn no_column(column: &str, table: &str) -> SqlError {
    let message = format!("column \"{column}\" of relation \"{table}\" does not exist");
    SqlError::new(SqlState::UNDEFINED_COLUMN, message)
}

/// Refuses COPY with a program. A server that starts programs for its clients would be a security risk.
fn no_program() -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "COPY from or to a program is not supported").with_hint(
        "Varve starts no programs. Use COPY FROM STDIN or TO STDOUT, or psql's \\copy with a program.",
    )
}

/// The sink for COPY FROM a file. It reads the bytes from the file.
struct FromFile<'s> {
    sink: &'s mut dyn Sink,
    path: &'s str,
}

/// The sink for COPY TO a file. It writes the bytes to the file. The file is created with the first bytes.
struct ToFile<'s> {
    sink: &'s mut dyn Sink,
    path: &'s str,
    file: Option<BufWriter<File>>,
}

fn file_error(path: &str, what: &str, e: &std::io::Error) -> SqlError {
    use std::io::ErrorKind::{IsADirectory, NotFound, PermissionDenied, StorageFull};
    let (state, why) = match e.kind() {
        NotFound => (SqlState::UNDEFINED_FILE, "No such file or directory".to_owned()),
        PermissionDenied => (SqlState::INSUFFICIENT_PRIVILEGE, "Permission denied".to_owned()),
        IsADirectory => (SqlState::WRONG_OBJECT_TYPE, "Is a directory".to_owned()),
        StorageFull => (SqlState::DISK_FULL, "No space left on device".to_owned()),
        _ => (SqlState::IO_ERROR, e.to_string()),
    };
    SqlError::new(state, format!("could not {what}: {why}").replace("PATH", path))
}

fn open_error(path: &str, is_from: bool, e: &std::io::Error) -> SqlError {
    let (what, hint) = match is_from {
        true => ("open file \"PATH\" for reading", "COPY FROM instructs the server process to read a file."),
        false => ("open file \"PATH\" for writing", "COPY TO instructs the server process to write a file."),
    };
    let hint = format!("{hint} You may want a client-side facility such as psql's \\copy.");
    file_error(path, what, e).with_hint(hint)
}

impl Sink for FromFile<'_> {
    fn columns(&mut self, columns: &[Column]) -> Result<()> {
        self.sink.columns(columns)
    }

    fn row(&mut self, row: &[varve_engine::Datum<'_>]) -> Result<()> {
        self.sink.row(row)
    }

    fn complete(&mut self, tag: &CommandTag) -> Result<()> {
        self.sink.complete(tag)
    }

    fn empty(&mut self) -> Result<()> {
        self.sink.empty()
    }

    fn notice(&mut self, severity: Severity, notice: &SqlError) {
        self.sink.notice(severity, notice);
    }

    fn copy_in(&mut self, _: CopyShape, feed: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if Path::new(self.path).is_dir() {
            return Err(wrong_kind(format!("\"{}\" is a directory", self.path)));
        }
        let mut file = File::open(self.path).map_err(|e| open_error(self.path, true, &e))?;
        let mut piece = vec![0; FILE_PIECE_BYTES];
        loop {
            let count = file.read(&mut piece);
            match count.map_err(|e| file_error(self.path, "read from COPY file", &e))? {
                0 => return Ok(()),
                count => feed(&piece[..count])?,
            }
        }
    }
}

impl ToFile<'_> {
    fn write(&mut self, f: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
        let Some(file) = &mut self.file else {
            return Err(SqlError::internal("COPY to a file that is not open"));
        };
        f(file).map_err(|e| file_error(self.path, "write to COPY file", &e))
    }
}

impl Sink for ToFile<'_> {
    fn columns(&mut self, columns: &[Column]) -> Result<()> {
        self.sink.columns(columns)
    }

    fn row(&mut self, row: &[varve_engine::Datum<'_>]) -> Result<()> {
        self.sink.row(row)
    }

    fn complete(&mut self, tag: &CommandTag) -> Result<()> {
        self.sink.complete(tag)
    }

    fn empty(&mut self) -> Result<()> {
        self.sink.empty()
    }

    fn notice(&mut self, severity: Severity, notice: &SqlError) {
        self.sink.notice(severity, notice);
    }

    fn copy_out(&mut self, _: CopyShape) -> Result<()> {
        let file = File::create(self.path).map_err(|e| open_error(self.path, false, &e))?;
        self.file = Some(BufWriter::new(file));
        Ok(())
    }

    fn copy_data(&mut self, piece: &[u8]) -> Result<()> {
        self.write(|file| file.write_all(piece))
    }

    fn copy_done(&mut self) -> Result<()> {
        self.write(Write::flush)
    }
}
