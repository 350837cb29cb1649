//! Executes SELECT ... FOR UPDATE. It first finds keys, and then locks row by row.
//!
//! Invariants
//! 1. The whole condition and the outputs are evaluated on the locked version, and again after each wait.
//! 2. Rows are locked in the order in which they are returned. No more rows are locked than LIMIT allows.
//! 3. With NOWAIT and SKIP LOCKED the statement never waits for a lock of a row, or of a partition.
//!
//! This module does not know the wire protocol or transaction blocks.

use std::ops::ControlFlow;
use std::time::Duration;

use varve_engine::{Datum, Outcome, RowRef, Table, Value};

use super::keys::{KeyList, Landed, key_of, point_key};
use super::select::{Emit, Window, get_apart, prepare_ranges, scan};
use super::sequence::{Drawn, InTransaction};
use super::sort::{CollectedRow, Sorter};
use super::watch::{At, Watch};
use super::{Exec, Failure, Row, Scratch, project};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Cx, Expr, Input, NoSequences, keep_in};
use crate::plan::{Access, LockWait, RowLock, Select, Source};

/// A SELECT ... FOR UPDATE, and its progress.
struct Locking<'p> {
    plan: &'p Select,
    table: &'p Table,
    lock: &'p RowLock,
    window: Window,
    count: u64,
    /// The number of keys that are done, in the order of the scan.
    next: usize,
    /// The keys of locked rows that the snapshot has under another key.
    landed: Landed,
}

impl Exec<'_> {
    /// Runs a SELECT that locks rows. Returns the number of rows that `emit` has got.
    pub(super) fn locking(
        &mut self,
        plan: &Select,
        table: &Table,
        lock: &RowLock,
        window: Window,
        emit: &mut Emit<'_>,
    ) -> Result<u64> {
        let landed = Landed::default();
        let mut progress = Locking { plan, table, lock, window, count: 0, next: 0, landed };
        if lock.wait != LockWait::Wait {
            self.txn.set_lock_timeout(Some(Duration::ZERO));
        }
        let result = self.find_and_lock(&mut progress, emit);
        if lock.wait != LockWait::Wait {
            self.txn.set_lock_timeout(self.facts.lock_timeout);
        }
        result
    }

    /// A row that is deleted, or no longer fulfils the condition when it is locked, does not count for LIMIT.
    /// So if the first keys were not enough, the scan is repeated to its end. If a repeated scan of the same
    /// snapshot could return other rows or another order, all keys are read at once.
    fn find_and_lock(&mut self, progress: &mut Locking<'_>, emit: &mut Emit<'_>) -> Result<u64> {
        let Locking { plan, table, .. } = *progress;
        let is_volatile = plan.filter.as_ref().is_some_and(Expr::is_volatile);
        let is_whole = is_volatile || !plan.order.is_empty();
        let cap = progress.window.reach().filter(|_| !is_whole);
        let mut keys = std::mem::take(&mut self.scratch.found);
        self.tell(|meter| meter.begin(At::Lock));
        self.keys_in_order(plan, table, cap, &mut keys)?;
        self.lock_rows(progress, &keys, emit)?;
        if progress.count < progress.window.take && Some(keys.len()) == cap {
            self.keys_in_order(plan, table, None, &mut keys)?;
            self.lock_rows(progress, &keys, emit)?;
        }
        self.scratch.found = keys;
        Ok(progress.count)
    }

    fn lock_rows(&mut self, progress: &mut Locking<'_>, keys: &KeyList, emit: &mut Emit<'_>) -> Result<()> {
        let Locking { table, lock, .. } = *progress;
        while progress.next < keys.len() && progress.count < progress.window.take {
            self.facts.check_cancel()?;
            let n = progress.next;
            progress.next += 1;
            let (drawn, mut locked) = (Drawn::default(), Vec::new());
            let outcome = loop {
                let outcome = self.try_lock(progress, keys.get(n), &drawn, &mut locked);
                let Some(wanted) = drawn.wanted() else { break outcome };
                let sequences = InTransaction::new(self.txn, self.catalog, self.sequences, self.facts);
                let value = sequences.answer(&wanted, self.facts.world.as_deref())?;
                drawn.give(wanted, value);
            };
            match outcome {
                Ok(Outcome::Changed) => {}
                Ok(Outcome::Missing | Outcome::Skipped) => continue,
                Err(e) if lock.wait == LockWait::Skip && is_held(&e) => continue,
                Err(e) => return Err(not_at_once(e, lock.wait, &table.def().name)),
            }
            progress.landed.note(keys.get(n), &self.scratch.key);
            if progress.window.skip > 0 {
                progress.window.skip -= 1;
                continue;
            }
            emit(&locked.iter().map(Value::as_datum).collect::<Row<'_>>())?;
            progress.count += 1;
            if let Some(meter) = self.meter {
                meter.gave(At::Lock, 1);
                meter.gave(At::Limit, 1);
            }
        }
        Ok(())
    }

    /// Makes one attempt to lock a row. If it succeeds, `locked` has the outputs.
    fn try_lock(
        &mut self,
        progress: &Locking<'_>,
        key: &[u8],
        drawn: &Drawn,
        locked: &mut Vec<Value>,
    ) -> Result<Outcome> {
        let Locking { plan, table, lock, ref landed, .. } = *progress;
        let (params, env) = (self.params, self.facts.env(drawn));
        let Scratch { row_arena, key: at, .. } = &mut *self.scratch;
        let mut failure = Failure::default();
        let outcome = self.txn.lock_row(table, key, lock.strength, &mut |row| {
            if landed.holds(table.def(), &row, at) {
                return Ok(false);
            }
            drawn.start();
            let cx = Cx { params, arena: row_arena, env: &env };
            let decided = decide_lock(plan, &row, &cx, locked);
            key_of(table.def(), |column| row.get(column), at);
            row_arena.reset();
            Ok(failure.catch(decided, false))
        });
        failure.resolve(outcome)
    }

    /// Finds the key for an access by primary key, if the snapshot has a row with this key that passes the
    /// filter.
    fn key_found(&mut self, plan: &Select, parts: &[Expr], table: &Table, out: &mut KeyList) -> Result<()> {
        let env = self.facts.env(&NoSequences);
        let Scratch { row_arena, key, .. } = &mut *self.scratch;
        let cx = Cx { params: self.params, arena: row_arena, env: &env };
        if !point_key(key, table.def(), parts, &Input::None, &cx)? {
            return Ok(());
        }
        let mut passes = Ok(false);
        get_apart(self.txn, table, key, self.facts, &mut |row| {
            passes = plan.filter.as_ref().map_or(Ok(true), |f| f.is_true(&Input::Row(row), &cx));
        })?;
        if passes? {
            out.push(key);
        }
        row_arena.reset();
        Ok(())
    }

    /// Collects the keys of the rows that the plan finds, in the order of the plan. At most `cap` keys are
    /// read if the scan returns them in this order.
    fn keys_in_order(
        &mut self,
        plan: &Select,
        table: &Table,
        cap: Option<usize>,
        out: &mut KeyList,
    ) -> Result<()> {
        self.tell(|meter| {
            meter.begin(At::Sort);
            meter.begin(At::Source);
        });
        self.keys_of(plan, table, cap, out)?;
        self.tell(|meter| {
            meter.gave(At::Source, out.len() as u64);
            meter.gave(At::Sort, out.len() as u64);
            meter.enter(At::Lock);
        });
        Ok(())
    }

    fn keys_of(&mut self, plan: &Select, table: &Table, cap: Option<usize>, out: &mut KeyList) -> Result<()> {
        out.clear();
        let Source::Table(target) = &plan.source else {
            return Err(SqlError::internal("a lock without a table"));
        };
        if let Access::Point(parts) = &target.access {
            return self.key_found(plan, parts, table, out);
        }
        let env = self.facts.env(&NoSequences);
        let Scratch { row_arena, result_arena, ranges, .. } = &mut *self.scratch;
        prepare_ranges(ranges, table, &target.access, self.params, row_arena, &env)?;
        let sorter = (!plan.order.is_empty()).then(|| Sorter::new(&plan.order, 0, false));
        let mut held: Vec<(CollectedRow<'_>, usize)> = Vec::new();
        let mut failure = Failure::default();
        let params = self.params;
        let cap = cap.unwrap_or(usize::MAX);
        let scanned = scan(self.txn, table, target, ranges, None, &mut |key, row| {
            let cx = Cx { params, arena: row_arena, env: &env };
            let input = Input::Row(row);
            let step = (|| -> Result<ControlFlow<()>> {
                if let Some(filter) = &plan.filter
                    && !filter.is_true(&input, &cx)?
                {
                    return Ok(ControlFlow::Continue(()));
                }
                out.push(key);
                if let Some(sorter) = &sorter {
                    let mut values = Row::new();
                    for output in &plan.outputs {
                        values.push(keep_in(result_arena, output.expr.eval(&input, &cx)?));
                    }
                    held.push((sorter.hold(result_arena.alloc_slice_copy(&values)), out.len() - 1));
                    return Ok(ControlFlow::Continue(()));
                }
                Ok(if out.len() >= cap { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })();
            row_arena.reset();
            Ok(failure.catch(step, ControlFlow::Break(())))
        });
        failure.resolve(scanned)?;
        if let Some(sorter) = &sorter {
            let order = sorter.order_of(&held, &env)?;
            let mut sorted = KeyList::default();
            order.into_iter().for_each(|n| sorted.push(out.get(n)));
            *out = sorted;
        }
        Ok(())
    }
}

/// Returns whether the error means that another transaction holds the row.
pub fn is_held(e: &SqlError) -> bool {
    matches!(e.sqlstate, SqlState::LOCK_NOT_AVAILABLE | SqlState::DEADLOCK)
}

/// Returns PostgreSQL's error for a row that NOWAIT could not lock. Other errors are returned as they are.
pub fn not_at_once(e: SqlError, wait: LockWait, table: &str) -> SqlError {
    if wait != LockWait::Fail || !is_held(&e) {
        return e;
    }
    let message = format!("could not obtain lock on row in relation \"{table}\"");
    SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message)
}

/// Evaluates the condition and the outputs on the version that would be locked. Returns whether to lock it.
fn decide_lock<'a>(plan: &'a Select, row: &RowRef<'a>, cx: &Cx<'a>, locked: &mut Vec<Value>) -> Result<bool> {
    locked.clear();
    let input = Input::Row(*row);
    if let Some(recheck) = plan.lock.as_ref().and_then(|l| l.recheck.as_ref())
        && !recheck.is_true(&input, cx)?
    {
        return Ok(false);
    }
    let values = project(&plan.outputs[..plan.visible], &input, cx)?;
    locked.extend(values.iter().map(Datum::to_value));
    Ok(true)
}
