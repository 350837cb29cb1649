//! The executor: runs plans in a transaction.
//!
//! Invariants
//! 1. A row is valid only inside its scan callback, unless it was copied into the result arena.
//! 2. Buffers and arenas belong to the session and are reused. So for a statement that this executor runs,
//!    the number of memory allocations does not grow with the number of rows.
//! 3. On an error the executor never rolls back. The session does.
//!
//! This module does not know transaction blocks or caches.

mod alter;
mod change;
mod comment;
pub mod copy;
pub mod definition;
mod drop;
pub mod group;
mod identity;
mod insert;
pub mod keys;
pub mod lock;
mod loops;
pub mod moments;
pub mod notice;
mod part;
pub mod reference;
mod retype;
mod rules;
pub mod select;
mod sequence;
mod sequence_ddl;
pub mod series;
pub mod sets;
mod sort;
mod sought;
pub mod sum;
pub(crate) mod tablespace;
mod unnest;
mod upsert;
mod view;
pub mod watch;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bumpalo::Bump;
use smallvec::SmallVec;
use varve_engine::{Catalog, Datum, LockMode, Table, TableDef, Transaction};

pub use sequence::Beside;

use change::FoundRows;
use reference::{Checker, Deferred, Pending};
use watch::{At, Meter, Watch};

use crate::error::{Result, SqlError, SqlState, Subject};
use crate::eval::{self, Cx, Env, Input, Lists, NoSequences, Sequences};
use crate::plan::{Output, Plan};
use crate::rights::Who;
use crate::sequence_memory::SequenceMemory;
use crate::sink::{CommandTag, Sink};
use crate::system::SystemContext;
use crate::ty::Ty;

/// The buffers that a session lends to its statements.
#[derive(Default)]
pub struct Scratch {
    /// Values of one row. The arena is reset after each row.
    pub row_arena: Bump,
    /// Values of the result. The arena is reset after each statement.
    pub result_arena: Bump,
    /// The key that is being built.
    pub key: Vec<u8>,
    /// The ranges of the current scan.
    pub ranges: keys::Ranges,
    /// The keys of the rows to change.
    pub found: keys::KeyList,
    /// The buffers of the steps of nested loops.
    pub levels: Vec<loops::Level>,
}

/// The largest size, in bytes, of each buffer that a session keeps between statements.
const SCRATCH_KEEP_BYTES: usize = 64 << 10;

impl Scratch {
    /// Ends a statement. Large buffers are freed, so that an idle session stays small.
    pub fn end_statement(&mut self) {
        for arena in [&mut self.row_arena, &mut self.result_arena] {
            if arena.allocated_bytes() > SCRATCH_KEEP_BYTES {
                *arena = Bump::new();
            } else {
                arena.reset();
            }
        }
        if self.key.capacity() + self.ranges.held_bytes() + self.found.held_bytes() > SCRATCH_KEEP_BYTES {
            self.key = Vec::new();
            self.ranges = keys::Ranges::default();
            self.found = keys::KeyList::default();
        }
        if self.levels.iter().map(loops::Level::held_bytes).sum::<usize>() > SCRATCH_KEEP_BYTES {
            self.levels = Vec::new();
        }
    }
}

/// Facts about the session that expressions may read.
pub struct Facts {
    /// Name of the role that the session acts as.
    pub user: String,
    /// Name of the role that the session has logged in as, or SET SESSION AUTHORIZATION has set.
    pub session_user: String,
    /// The role of `user`.
    pub who: Who,
    /// The role of `session_user`.
    pub session_who: Who,
    /// The search path for names without a schema.
    pub path: crate::path::Path,
    /// The name of the session's database.
    pub database: String,
    /// The id of the session's database.
    pub database_id: varve_engine::ObjectId,
    /// The process id in the cancel key.
    pub process_id: i32,
    /// Whether the statement's transaction is read-only.
    pub read_only: bool,
    /// The start of the transaction, in microseconds since 2000-01-01 UTC. It is read from the clock at the
    /// first use.
    pub now_us: Cell<Option<i64>>,
    /// Time zone and styles of dates and intervals.
    pub forms: crate::time::TimeForms,
    /// The client's encoding.
    pub encoding: crate::encoding::Encoding,
    /// The access method of new tables without USING.
    pub table_method: crate::table_method::TableMethod,
    /// The tablespace of new tables and indexes without TABLESPACE. An empty name means the data space.
    pub default_tablespace: String,
    /// The time for which the statement waits for a lock.
    pub lock_timeout: Option<std::time::Duration>,
    /// State of `random()`.
    pub random: Cell<u64>,
    /// A flag that another thread sets to end the statement.
    pub cancel: Arc<AtomicBool>,
    /// The state that catalog functions and system tables read. It is set while a statement with one of these
    /// runs.
    pub world: Option<Arc<SystemContext>>,
}

/// Everything that a plan needs to run.
pub struct Exec<'x> {
    /// The transaction.
    pub txn: &'x mut Transaction,
    /// The catalog, for sequences by name.
    pub catalog: &'x mut Option<Arc<Catalog>>,
    /// Facts about the session.
    pub facts: &'x Facts,
    /// Buffers.
    pub scratch: &'x mut Scratch,
    /// The last values of sequences, for currval.
    pub sequences: &'x SequenceMemory,
    /// The parameters of the plan, for `group_count` runs one after the other.
    pub params: &'x [Datum<'x>],
    /// The number of times that an INSERT of one row runs. Each run has its own parameters.
    pub group_count: usize,
    /// The foreign key checks to run at the end of the statement.
    pub pending: Pending,
    /// The foreign key checks to run at the end of the transaction.
    pub deferred: &'x mut Deferred,
    /// Records what each step does, for EXPLAIN ANALYZE.
    pub meter: Option<&'x Meter>,
}

/// A row of values. Up to 16 columns are on the stack.
pub type Row<'a> = SmallVec<[Datum<'a>; 16]>;

/// The opened tables of a plan.
pub struct Opened {
    /// The table that is changed.
    pub table: Option<Arc<Table>>,
    /// The tables that SELECT, or the query of INSERT, reads, in the order of the plan.
    pub sources: SmallVec<[Arc<Table>; 2]>,
}

impl Opened {
    /// Opens the tables of a plan.
    pub fn open(plan: &Plan, txn: &mut Transaction) -> Result<Opened, varve_engine::Error> {
        let mode = LockMode::RowExclusive;
        let open = |def: &Arc<TableDef>| match plan.looks_for_conflicts() {
            true => txn.table_for(def, mode),
            false => txn.table_by_rows(def, mode),
        };
        let table = plan.changed_table().map(open).transpose()?;
        let (mut sources, mut result) = (SmallVec::new(), Ok(()));
        if let Some(query) = plan.query() {
            let mode = if query.lock.is_some() { LockMode::RowShare } else { LockMode::AccessShare };
            if let Some(lock) = &query.lock {
                txn.set_when_held(lock.wait.when_held());
            }
            query.source.each_table(&mut |def| match txn.table_by_rows(def, mode) {
                Ok(table) => sources.push(table),
                Err(e) => result = Err(e),
            });
        }
        result.map(|()| Opened { table, sources })
    }

    fn table(&self) -> Result<&Arc<Table>> {
        self.table.as_ref().ok_or_else(|| SqlError::internal("a plan without its table"))
    }
}

impl Facts {
    /// Returns the settings for reading texts of times.
    pub fn reading(&self) -> crate::time::Reading<'_> {
        crate::time::Reading::new(&self.forms, &self.now_us)
    }

    /// Returns the environment of expressions.
    pub fn env<'a>(&'a self, sequences: &'a dyn Sequences) -> Env<'a> {
        Env {
            now_us: &self.now_us,
            forms: &self.forms,
            encoding: self.encoding,
            user: &self.user,
            session_user: &self.session_user,
            database: &self.database,
            process_id: self.process_id,
            random: &self.random,
            cancel: &self.cancel,
            world: self.world.as_deref(),
            sequences,
            lists: Lists::default(),
        }
    }

    /// Fails with 57014 if the statement was cancelled.
    pub fn check_cancel(&self) -> Result<()> {
        eval::unless_cancelled(&self.cancel)
    }
}

impl Exec<'_> {
    /// Runs a plan to its end.
    pub fn run(&mut self, plan: &Plan, opened: &Opened, sink: &mut dyn Sink) -> Result<CommandTag> {
        let tag = self.run_kind(plan, opened, sink).map_err(|e| match plan.changed_table() {
            Some(table) => violated(e, table),
            None => e,
        })?;
        self.settle()?;
        self.scratch.end_statement();
        Ok(tag)
    }

    /// Runs the foreign key checks at the end of a statement.
    fn settle(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let (txn, facts, deferred) = (&mut *self.txn, self.facts, &mut *self.deferred);
        Checker { txn, facts, deferred, is_commit: false, is_alone: false }.settle(pending)
    }

    /// Runs an INSERT, UPDATE or DELETE of rows that a general query has returned.
    pub fn run_found(
        &mut self,
        plan: &Plan,
        table: &Table,
        rows: Vec<Box<[varve_engine::Value]>>,
        again: &mut change::Again<'_>,
        sink: &mut dyn Sink,
    ) -> Result<CommandTag> {
        self.tell(|meter| meter.begin(At::Change));
        let tag = match (plan, plan.found()) {
            (Plan::Insert(i), _) => self.insert_found(i, table, &rows, sink).map(CommandTag::Insert),
            (Plan::Update(u), Some(found)) => {
                let found = FoundRows { found, rows: keyed(rows)?, again };
                self.update_found(u, table, found, sink).map(CommandTag::Update)
            }
            (Plan::Delete(d), Some(found)) => {
                let found = FoundRows { found, rows: keyed(rows)?, again };
                self.delete_found(d, table, found, sink).map(CommandTag::Delete)
            }
            _ => Err(SqlError::internal("a change whose rows no query finds")),
        };
        let tag = tag.map_err(|e| violated(e, table.def()))?;
        self.settle()?;
        self.scratch.end_statement();
        Ok(tag)
    }

    /// Calls `what` with the meter, if there is one.
    fn tell(&self, what: impl FnOnce(&Meter)) {
        if let Some(meter) = self.meter {
            what(meter);
        }
    }

    fn run_kind(&mut self, plan: &Plan, opened: &Opened, sink: &mut dyn Sink) -> Result<CommandTag> {
        Ok(match plan {
            Plan::Select(s) => {
                let count = self.select(s, &opened.sources, &mut |row| sink.row(row))?;
                CommandTag::Select(count)
            }
            Plan::Insert(i) => CommandTag::Insert(self.insert(i, opened, sink)?),
            Plan::Update(u) => CommandTag::Update(self.update(u, opened.table()?, sink)?),
            Plan::Delete(d) => CommandTag::Delete(self.delete(d, opened.table()?, sink)?),
        })
    }

    /// Evaluates an expression that reads no row, such as LIMIT.
    fn scalar(&mut self, e: &eval::Expr) -> Result<varve_engine::Value> {
        let env = self.facts.env(&NoSequences);
        let cx = Cx { params: self.params, arena: &self.scratch.row_arena, env: &env };
        let value = e.eval(&Input::None, &cx)?.to_value();
        self.scratch.row_arena.reset();
        Ok(value)
    }
}

/// Separates the first value of each row, which is the key of the row to change.
fn keyed(rows: Vec<Box<[varve_engine::Value]>>) -> Result<Vec<change::FoundRow>> {
    let split = |row: Box<[varve_engine::Value]>| {
        let mut values = row.into_vec().into_iter();
        match values.next() {
            Some(varve_engine::Value::Bytea(key)) => Ok((key.into(), values.collect())),
            _ => Err(SqlError::internal("a row to change without its key")),
        }
    };
    rows.into_iter().map(split).collect()
}

/// Evaluates outputs in the form that clients see.
pub fn project<'a>(outputs: &'a [Output], row: &Input<'a>, cx: &Cx<'a>) -> Result<Row<'a>> {
    let mut out = Row::new();
    for output in outputs {
        let value = output.expr.eval(row, cx)?;
        out.push(shown(output, value, cx)?);
    }
    Ok(out)
}

/// Returns one value in the form that clients see. A char(n) is padded with blanks, and an OID type with
/// names (such as regclass) shows the name.
#[inline]
pub fn shown<'a>(output: &Output, value: Datum<'a>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    if let Some(width) = output.pad {
        return Ok(eval::pad(value, width, cx.arena));
    }
    match output.t.ty {
        Ty::Reg(_) if cx.env.world()?.shows_oids => Ok(value),
        Ty::Reg(kind) => eval::reg::shown(kind, value, cx),
        _ => Ok(value),
    }
}

/// Carries an `SqlError` out of a callback that the engine calls.
#[derive(Default)]
pub struct Failure(Option<SqlError>);

impl Failure {
    /// Keeps the error and returns `stop`, the value that makes the engine stop.
    pub fn catch<T>(&mut self, result: Result<T>, stop: T) -> T {
        match result {
            Ok(value) => value,
            Err(e) => {
                self.0 = Some(e);
                stop
            }
        }
    }

    /// Returns whether an error is kept.
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Keeps an error.
    pub fn set(&mut self, e: SqlError) {
        self.0 = Some(e);
    }

    /// Returns the kept error, or else the engine's result.
    pub fn resolve<T>(self, result: Result<T, varve_engine::Error>) -> Result<T> {
        match self.0 {
            Some(e) => Err(e),
            None => Ok(result?),
        }
    }
}

impl From<varve_engine::Error> for SqlError {
    fn from(e: varve_engine::Error) -> Self {
        let mut out = SqlError::new(SqlState(e.sqlstate()), e.to_string());
        if let Some(detail) = e.detail() {
            out = out.with_detail(detail);
        }
        if let Some(hint) = e.hint() {
            out = out.with_hint(hint);
        }
        if let Some(page) = e.damaged_page() {
            out.subject = Some(Box::new(Subject { page: Some(page), ..Subject::default() }));
        }
        if let varve_engine::Error::UniqueViolation { constraint, key, .. } = &e {
            let names: Vec<&str> = key.iter().map(|part| part.name.as_str()).collect();
            let values = key.iter().map(|part| rules::shown_value(part.value.as_datum(), part.column_type));
            let values: Vec<String> = values.collect();
            let detail = format!("Key ({})=({}) already exists.", names.join(", "), values.join(", "));
            out = out.of_constraint(constraint).with_detail(detail);
        }
        out
    }
}

/// Returns the names the table in an error about one of its constraints.
fn violated(e: SqlError, table: &TableDef) -> SqlError {
    match e.sqlstate {
        SqlState::UNIQUE_VIOLATION => e.of_table(&table.schema, &table.name),
        _ => e,
    }
}
