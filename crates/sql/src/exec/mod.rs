//! The executor: runs plans in a transaction.
//!
//! Invariants
//! 1. A row is valid only inside its scan callback, unless it was copied into the result arena.
//! 2. Buffers and arenas belong to the session and are reused. So for a statement that this executor runs,
//!    the number of memory allocations does not grow with the number of rows.
//! 3. On an error the executor never rolls back. The session does.
//!
//! This module knows nothing about transaction blocks and caches.

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

/// What a session lends to its statements.
#[derive(Default)]
pub struct Scratch {
    /// Reset after each row.
    pub row_arena: Bump,
    /// Reset after each statement.
    pub result_arena: Bump,
    /// The key being built.
    pub key: Vec<u8>,
    /// Ranges of the running scan.
    pub ranges: keys::Ranges,
    /// Keys of rows to change.
    pub found: keys::KeyList,
    /// Steps of nested loops.
    pub levels: Vec<loops::Level>,
}

/// What a session keeps of its scratch between statements, each part, in bytes.
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

/// Facts about the session that expressions may ask for.
pub struct Facts {
    /// Name of the role that the session acts as.
    pub user: String,
    /// Name of the role that it speaks for.
    pub session_user: String,
    /// The role of `user`.
    pub who: Who,
    /// The role of `session_user`.
    pub session_who: Who,
    /// Where names without a schema are looked for.
    pub path: crate::path::Path,
    /// Name of the database.
    pub database: String,
    /// The database.
    pub database_id: varve_engine::ObjectId,
    /// Process id of the cancel key.
    pub process_id: i32,
    /// The running statement's transaction is read-only.
    pub read_only: bool,
    /// Start of the transaction, microseconds since 2000-01-01 UTC; read from the clock when first asked for.
    pub now_us: Cell<Option<i64>>,
    /// Time zone and styles of dates and intervals.
    pub forms: crate::time::TimeForms,
    /// The encoding that the client speaks.
    pub encoding: crate::encoding::Encoding,
    /// The access method of new tables without USING.
    pub table_method: crate::table_method::TableMethod,
    /// How long locks are waited for.
    pub lock_timeout: Option<std::time::Duration>,
    /// State of `random()`.
    pub random: Cell<u64>,
    /// Set by another thread to end the statement.
    pub cancel: Arc<AtomicBool>,
    /// What catalog functions and system tables ask, while a statement that was bound with one runs.
    pub world: Option<Arc<SystemContext>>,
}

/// Everything a plan runs with.
pub struct Exec<'x> {
    /// The transaction.
    pub txn: &'x mut Transaction,
    /// The catalog, for sequences by name.
    pub catalog: &'x mut Option<Arc<Catalog>>,
    /// Session facts.
    pub facts: &'x Facts,
    /// Buffers.
    pub scratch: &'x mut Scratch,
    /// What currval remembers.
    pub sequences: &'x SequenceMemory,
    /// Parameters, `group_count` times as many as the plan has.
    pub params: &'x [Datum<'x>],
    /// How many times an INSERT of one row is to run, with successive parameters.
    pub group_count: usize,
    /// Foreign keys to look at when the statement ends.
    pub pending: Pending,
    /// Those to look at when the transaction ends.
    pub deferred: &'x mut Deferred,
    /// Notes what each step does, if somebody asks.
    pub meter: Option<&'x Meter>,
}

/// Up to this many columns live on the stack.
pub type Row<'a> = SmallVec<[Datum<'a>; 16]>;

/// The tables of a plan, opened.
pub struct Opened {
    /// The table that is changed.
    pub table: Option<Arc<Table>>,
    /// The tables that are read by SELECT, or by the query of INSERT, in its order.
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
    /// How texts of times are read.
    pub fn reading(&self) -> crate::time::Reading<'_> {
        crate::time::Reading::new(&self.forms, &self.now_us)
    }

    /// The environment of expressions.
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

    /// 57014 if the statement was cancelled.
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

    /// The end of a statement: what it has done to foreign keys.
    fn settle(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let (txn, facts, deferred) = (&mut *self.txn, self.facts, &mut *self.deferred);
        Checker { txn, facts, deferred, is_commit: false, is_alone: false }.settle(pending)
    }

    /// Runs a change of rows that a general query has given or found.
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

    /// Tells the meter, if there is one.
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

    /// Evaluates an expression of no row, such as LIMIT.
    fn scalar(&mut self, e: &eval::Expr) -> Result<varve_engine::Value> {
        let env = self.facts.env(&NoSequences);
        let cx = Cx { params: self.params, arena: &self.scratch.row_arena, env: &env };
        let value = e.eval(&Input::None, &cx)?.to_value();
        self.scratch.row_arena.reset();
        Ok(value)
    }
}

/// Rows with their first value, the key, apart.
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

/// Evaluates outputs, padded as clients see them.
pub fn project<'a>(outputs: &'a [Output], row: &Input<'a>, cx: &Cx<'a>) -> Result<Row<'a>> {
    let mut out = Row::new();
    for output in outputs {
        let value = output.expr.eval(row, cx)?;
        out.push(shown(output, value, cx)?);
    }
    Ok(out)
}

/// One value as clients see it: char(n) padded, OIDs with names as these.
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

/// Carries an error of ours out through a callback of the engine.
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

    /// Whether an error is kept.
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Keeps an error.
    pub fn set(&mut self, e: SqlError) {
        self.0 = Some(e);
    }

    /// The kept error, else the engine's result.
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

/// Names the table in an error about one of its constraints.
fn violated(e: SqlError, table: &TableDef) -> SqlError {
    match e.sqlstate {
        SqlState::UNIQUE_VIOLATION => e.of_table(&table.schema, &table.name),
        _ => e,
    }
}
