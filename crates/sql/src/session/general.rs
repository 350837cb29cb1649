//! Passes general queries to their runner, DataFusion.

use std::sync::Arc;
use std::time::Duration;

use bumpalo::Bump;
use varve_engine::{
    Datum, Error as EngineError, LockMode, Outcome, Table, TableDef, TemporaryQuota, Transaction, Value,
};

use super::explain::run_general;
use super::run::Ran;
use super::{Block, Session};
use crate::error::{Result, SqlError};
use crate::eval::{Cx, Env, Expr, Input, NoSequences};
use crate::exec::keys::key_of;
use crate::exec::lock::{is_held, not_at_once};
use crate::exec::reference::Pending;
use crate::exec::select::Window;
use crate::exec::{Exec, Row, shown};
use crate::explain::Step;
use crate::general::{Around, General, Limits, OnlyRow, Query, Rates};
use crate::kept::KeptRows;
use crate::plan::{Access, LockWait, Plan, RowLock, Select, Source, TableAccess};
use crate::prepared::Prepared;
use crate::settings::Settings;
use crate::sink::{CommandTag, Sink};
use crate::smart_mode::SmartMode;
use crate::system::SystemContext;

/// The number of rows above which the runner of general queries saves more time than its planning takes.
const LARGE_ROWS: u64 = 10_000;
/// The number of paths through a tree from which its rows are estimated.
const SAMPLED_PATHS: usize = 3;

/// Opens the tables of a query. Returns `None` if a definition is out of date.
fn opened(txn: &mut Transaction, select: &Select) -> Result<Option<Vec<Arc<Table>>>> {
    let mode = if select.lock.is_some() { LockMode::RowShare } else { LockMode::AccessShare };
    let mut tables = Vec::new();
    for def in select.tables() {
        let wait = wait_at(select, &def);
        txn.set_when_held(wait.when_held());
        match txn.table_for(&def, mode) {
            Ok(table) => tables.push(table),
            Err(EngineError::StaleDefinition { .. } | EngineError::Undefined { .. }) => return Ok(None),
            Err(e) => return Err(not_at_once(e.into(), wait, &def.name)),
        }
    }
    Ok(Some(tables))
}

/// Returns what the query does if another transaction has locked rows of the table that the query must lock.
fn wait_at(select: &Select, def: &TableDef) -> LockWait {
    let lock = select.lock.as_ref().filter(|lock| lock.beside.iter().any(|beside| beside.table.id == def.id));
    lock.map_or(LockWait::Wait, |lock| lock.wait)
}

impl Session {
    /// Returns the limits of a general query: `work_mem` and `temp_file_limit`.
    fn limits(&self) -> Limits {
        let work_bytes = self.settings.bytes("work_mem").unwrap_or(u64::MAX);
        Limits {
            work_bytes,
            temporary: self.temporary(),
            join_method: self.settings.join_method(),
            smart_scan: self.settings.smart_scan(),
        }
    }

    /// Returns the session's quota for temporary files, with the current `temp_file_limit`.
    fn temporary(&self) -> Arc<TemporaryQuota> {
        self.temporary.set_limit(self.settings.bytes("temp_file_limit").unwrap_or(u64::MAX));
        self.temporary.clone()
    }

    /// Returns an empty store for rows. Its size counts for `temp_file_limit`.
    pub(super) fn kept_rows(&self) -> KeptRows {
        KeptRows::new(self.shared.engine(), self.temporary())
    }

    fn general(&self, select: &Select) -> Result<Arc<dyn General>> {
        let what = match &select.source {
            _ if !select.distinct_on.is_empty() => "DISTINCT ON",
            _ if !select.windows.is_empty() => "a window function",
            Source::Join(_) => "a join",
            Source::Query(_) => "a subquery in FROM",
            Source::Expand(_) => "a function that gives a set",
            Source::Shared(_) => "WITH",
            Source::Set(set) => set.kind.name(),
            _ => "a subquery",
        };
        self.shared.general.clone().ok_or_else(|| SqlError::unsupported(what))
    }

    /// Returns whether the runner of general queries gets a query that the executor could run, too, because
    /// the runner is faster. This holds for aggregates over a whole large table. With a smart device it can
    /// also hold for a query without aggregates. If `smart_scan` forces the device, the runner gets even a
    /// query over a small table. The runner does not know an order that the access path gives.
    pub(super) fn is_for_runner(&mut self, select: &Select) -> bool {
        let Source::Table(TableAccess { table, access: Access::Full, in_order: false, .. }) = &select.source
        else {
            return false;
        };
        let Some(general) = &self.shared.general else { return false };
        let smart = match general.has_smart_device() {
            true => self.settings.smart_scan(),
            false => SmartMode::Off,
        };
        let may_be_smart = smart == SmartMode::On || smart == SmartMode::Auto && select.filter.is_some();
        if select.aggregate.is_none() && !may_be_smart || select.lock.is_some() || select.is_volatile() {
            return false;
        }
        if smart == SmartMode::On {
            return true;
        }
        let txn = self.begin_engine();
        // The estimate needs no locks on partitions.
        let Ok(table) = txn.table_by_rows(table, LockMode::AccessShare) else { return false };
        txn.reader().estimate(&table, SAMPLED_PATHS).is_ok_and(|about| about.entries >= LARGE_ROWS)
    }

    /// Returns the plan of a general query for EXPLAIN, or `None` if a definition is out of date.
    pub(super) fn explain_general(
        &mut self,
        select: &Select,
        params: &[Datum<'_>],
        rates: Option<Rates>,
    ) -> Result<Option<Step>> {
        let general = self.general(select)?;
        let limits = self.limits();
        let around = Arc::new(Around::new(&self.facts, params));
        self.go_back(None)?;
        let txn = self.begin_engine();
        txn.start_statement();
        let Some(tables) = opened(txn, select)? else { return Ok(None) };
        let query = Query { select, tables, txn, around, only: None, statement: None, limits };
        general.explain(query, rates).map(Some)
    }

    /// Runs an INSERT, UPDATE or DELETE whose rows come from a general query. The statement has already
    /// begun. All rows are found before the first one is changed.
    pub(super) fn run_general_change(
        &mut self,
        prepared: &Prepared,
        plan: &Plan,
        query: &Select,
        params: &[Datum<'_>],
        announce: bool,
        sink: &mut dyn Sink,
    ) -> Result<Ran> {
        let general = self.general(query)?;
        let limits = self.limits();
        let Some(txn) = &mut self.txn else { return Err(SqlError::internal("no transaction")) };
        let Some(tables) = opened(txn, query)? else { return Ok(Ran::Stale) };
        let target = match plan.changed_table().map(|def| txn.table(def)).transpose() {
            Ok(target) => target.ok_or_else(|| SqlError::internal("a change without its table"))?,
            Err(EngineError::StaleDefinition { .. } | EngineError::Undefined { .. }) => {
                return Ok(Ran::Stale);
            }
            Err(e) => return Err(e.into()),
        };
        if announce && let Some(columns) = &prepared.columns {
            sink.columns(columns)?;
        }
        let around = Arc::new(Around::new(&self.facts, params));
        let mut rows: Vec<Box<[Value]>> = Vec::new();
        let (opened, env, its) = (tables.clone(), around.clone(), limits.clone());
        let statement = kept_as(prepared, &self.settings);
        let whole =
            Query { select: query, tables: opened, txn, around: env, only: None, statement, limits: its };
        run_general(&*general, self.analysis.as_deref(), whole, &mut |row| {
            rows.push(row.iter().map(Datum::to_value).collect());
            Ok(())
        })?;
        note_drawn(txn, self.facts.world.as_deref());
        let types = plan.found().map_or(&[][..], |found| &found.types);
        let mut again = |txn: &mut Transaction, values: Vec<Value>| {
            let only = Some(OnlyRow { values, types: types.to_vec() });
            let (tables, around, limits) = (tables.clone(), around.clone(), limits.clone());
            let mut given = None;
            let one = Query { select: query, tables, txn, around, only, statement: None, limits };
            general.run(one, &mut |row| {
                // The first value of the row is the key.
                given.get_or_insert_with(|| row[1..].iter().map(Datum::to_value).collect());
                Ok(())
            })?;
            Ok(given)
        };
        let mut exec = Exec {
            txn,
            catalog: &mut self.catalog,
            facts: &self.facts,
            scratch: &mut self.scratch,
            sequences: &self.sequences,
            params,
            group_count: 1,
            pending: Pending::default(),
            deferred: &mut self.deferred,
            meter: self.analysis.as_deref().map(|analysis| &analysis.meter),
        };
        let tag = exec.run_found(plan, &target, rows, &mut again, sink)?;
        if self.block == Block::Open
            && let Some(txn) = &mut self.txn
        {
            txn.end_statement();
        }
        Ok(Ran::Done(tag))
    }

    /// Runs a general query that locks rows. The statement has begun. First the query finds rows, and then
    /// they are locked one by one. If a row has changed meanwhile, the query runs again and sees the commits
    /// up to then. The rows that it has found are locked already, so the repetitions end.
    fn run_general_locking(
        &mut self,
        select: &Select,
        lock: &RowLock,
        params: &[Datum<'_>],
        statement: Option<u64>,
        sink: &mut dyn Sink,
    ) -> Result<Option<u64>> {
        let general = self.general(select)?;
        let limits = self.limits();
        let timeout = self.facts.lock_timeout;
        loop {
            self.facts.check_cancel()?;
            let Some(txn) = &mut self.txn else { return Err(SqlError::internal("no transaction")) };
            let Some(tables) = opened(txn, select)? else { return Ok(None) };
            let around = Arc::new(Around::new(&self.facts, params));
            let mut rows: Vec<Box<[Value]>> = Vec::new();
            let limits = limits.clone();
            let query = Query { select, tables, txn, around, only: None, statement, limits };
            run_general(&*general, self.analysis.as_deref(), query, &mut |row| {
                rows.push(row.iter().map(Datum::to_value).collect());
                Ok(())
            })?;
            let window = reach(lock, params, &self.facts.env(&NoSequences))?;
            if lock.wait != LockWait::Wait {
                txn.set_lock_timeout(Some(Duration::ZERO));
            }
            let locked = lock_found(txn, lock, &window, rows);
            txn.set_lock_timeout(timeout);
            let Some(rows) = locked? else {
                txn.start_statement();
                continue;
            };
            let env = self.facts.env(&NoSequences);
            let mut arena = Bump::new();
            for row in &rows {
                let cx = Cx { params, arena: &arena, env: &env };
                let outputs = select.outputs.iter().zip(row.iter()).take(lock.shown);
                let values =
                    outputs.map(|(o, value)| shown(o, value.as_datum(), &cx)).collect::<Result<Row<'_>>>()?;
                sink.row(&values)?;
                drop(values);
                arena.reset();
            }
            return Ok(Some(rows.len() as u64));
        }
    }

    /// Runs a general query. The statement has already begun.
    pub(super) fn run_general(
        &mut self,
        prepared: &Prepared,
        select: &Select,
        params: &[Datum<'_>],
        announce: bool,
        sink: &mut dyn Sink,
    ) -> Result<Ran> {
        let general = self.general(select)?;
        let limits = self.limits();
        let Some(txn) = &mut self.txn else { return Err(SqlError::internal("no transaction")) };
        let Some(tables) = opened(txn, select)? else { return Ok(Ran::Stale) };
        if announce && let Some(columns) = &prepared.columns {
            sink.columns(columns)?;
        }
        let statement = kept_as(prepared, &self.settings);
        if let Some(lock) = &select.lock {
            drop(tables);
            let count = self.run_general_locking(select, lock, params, statement, sink)?;
            return Ok(count.map_or(Ran::Stale, |count| Ran::Done(CommandTag::Select(count))));
        }
        let around = Arc::new(Around::new(&self.facts, params));
        let query = Query { select, tables, txn, around, only: None, statement, limits };
        let env = self.facts.env(&NoSequences);
        let mut arena = Bump::new();
        let count = run_general(&*general, self.analysis.as_deref(), query, &mut |row| {
            let cx = Cx { params, arena: &arena, env: &env };
            let outputs = select.outputs.iter().zip(row);
            let values = outputs.map(|(o, value)| shown(o, *value, &cx)).collect::<Result<Row<'_>>>()?;
            sink.row(&values)?;
            drop(values);
            arena.reset();
            Ok(())
        })?;
        if let Some(txn) = &mut self.txn {
            note_drawn(txn, self.facts.world.as_deref());
            if self.block == Block::Open {
                txn.end_statement();
            }
        }
        Ok(Ran::Done(CommandTag::Select(count)))
    }
}

/// Tells the transaction which values the query has taken from sequences. The commit of the transaction waits
/// until these values are durable.
fn note_drawn(txn: &mut Transaction, world: Option<&SystemContext>) {
    if let Some(world) = world {
        txn.note_drawn(&world.drawer);
    }
}

/// Returns the number under which the runner may keep the plan of a statement. Returns `None` if the
/// statement must be planned for each execution.
fn kept_as(prepared: &Prepared, settings: &Settings) -> Option<u64> {
    let is_custom = settings.is("plan_cache_mode", "force_custom_plan");
    // The rows of system tables are computed when a query is planned, so such a plan cannot be kept.
    (!prepared.reads_world && !is_custom).then_some(prepared.id)
}

/// Returns the LIMIT and OFFSET that count locked rows.
fn reach(lock: &RowLock, params: &[Datum<'_>], env: &Env<'_>) -> Result<Window> {
    let arena = Bump::new();
    let cx = Cx { params, arena: &arena, env };
    let value = |e: &Option<Expr>| -> Result<Option<Value>> {
        e.as_ref().map(|e| Ok(e.eval(&Input::None, &cx)?.to_value())).transpose()
    };
    Window::of(value(&lock.limit.0)?, value(&lock.limit.1)?)
}

type Rows = Vec<Box<[Value]>>;

/// Locks the table rows from which the rows of a query were made. Returns `None` if one of them has changed
/// meanwhile. Rows that SKIP LOCKED skips are not returned.
fn lock_found(txn: &mut Transaction, lock: &RowLock, window: &Window, rows: Rows) -> Result<Option<Rows>> {
    let (mut kept, mut left) = (Rows::new(), window.skip);
    for row in rows {
        if kept.len() as u64 >= window.take {
            break;
        }
        match lock_row(txn, lock, &row)? {
            Locked::Changed => return Ok(None),
            Locked::Held => {}
            Locked::Yes if left > 0 => left -= 1,
            Locked::Yes => kept.push(row),
        }
    }
    Ok(Some(kept))
}

enum Locked {
    Yes,
    /// Another transaction has locked the row.
    Held,
    /// The row was changed or deleted meanwhile.
    Changed,
}

fn lock_row(txn: &mut Transaction, lock: &RowLock, row: &[Value]) -> Result<Locked> {
    let mut key = Vec::new();
    for locked in &lock.beside {
        let table = txn.table_for(&locked.table, LockMode::RowShare)?;
        let seen = &row[locked.first..][..locked.table.columns.len()];
        key_of(&locked.table, |column| seen[column].as_datum(), &mut key);
        let mut is_same = true;
        let outcome = txn.lock_row(&table, &key, locked.strength, &mut |newest| {
            let same = |(n, value): (usize, &Value)| same_datum(&newest.get(n), &value.as_datum());
            is_same = seen.iter().enumerate().all(same);
            Ok(true)
        });
        match outcome.map_err(SqlError::from) {
            Ok(Outcome::Changed) if is_same => {}
            Ok(_) => return Ok(Locked::Changed),
            Err(e) if lock.wait == LockWait::Skip && is_held(&e) => return Ok(Locked::Held),
            Err(e) => return Err(not_at_once(e, lock.wait, &locked.table.name)),
        }
    }
    Ok(Locked::Yes)
}

fn same_datum(a: &Datum<'_>, b: &Datum<'_>) -> bool {
    a.is_null() == b.is_null() && (a.is_null() || a.order(b).is_eq())
}
