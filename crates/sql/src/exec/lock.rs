//! SELECT ... FOR UPDATE: finds keys first, then locks row by row.
//!
//! Invariants
//! 1. The whole condition and the outputs are evaluated on the version that is locked, again after each wait.
//! 2. Rows are locked in the order in which they are given, and none behind the last one that LIMIT asks for.
//! 3. NOWAIT and SKIP LOCKED never wait, not even when a wait would be a deadlock.
//!
//! Does not know: the wire; transaction blocks.

use std::ops::ControlFlow;
use std::time::Duration;

use varve_engine::{Change, Datum, Outcome, RowRef, Table, Value};

use super::keys::{KeyList, Landed, key_of};
use super::select::{Emit, Window, prepare_ranges, scan};
use super::sort::{Held, Sorter};
use super::{Exec, Failure, Row, Scratch, project};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Cx, Input, NoSequences, keep_in};
use crate::plan::{LockWait, RowLock, Select, Source, TableAccess};

/// How far SELECT ... FOR UPDATE has come.
struct Locking {
    window: Window,
    count: u64,
    /// Keys before this one, in the order of the scan, are done.
    next: usize,
    /// Rows that were found elsewhere.
    landed: Landed,
}

impl Exec<'_> {
    /// Runs a SELECT that locks; the number of rows given to `emit`.
    pub(super) fn locking(
        &mut self,
        plan: &Select,
        table: &Table,
        lock: &RowLock,
        window: Window,
        emit: &mut Emit<'_>,
    ) -> Result<u64> {
        let Source::Table(target) = &plan.source else {
            return Err(SqlError::internal("a lock without a table"));
        };
        let unsorted = Select { limit: None, offset: None, ..select_of_keys(plan, target) };
        let mut progress = Locking { window, count: 0, next: 0, landed: Landed::default() };
        if lock.wait != LockWait::Wait {
            self.txn.set_lock_timeout(Some(Duration::ZERO));
        }
        let result = self.find_and_lock(plan, &unsorted, table, lock, &mut progress, emit);
        if lock.wait != LockWait::Wait {
            self.txn.set_lock_timeout(self.facts.lock_timeout);
        }
        result
    }

    /// Rows that are gone or no longer match when they are locked do not count against LIMIT: if the first keys were not
    /// enough, the scan (of the same snapshot, hence in the same order) is repeated to its end.
    fn find_and_lock(
        &mut self,
        plan: &Select,
        keys_plan: &Select,
        table: &Table,
        lock: &RowLock,
        progress: &mut Locking,
        emit: &mut Emit<'_>,
    ) -> Result<u64> {
        let cap = progress.window.reach();
        let mut keys = KeyList::default();
        self.keys_in_order(keys_plan, table, cap, &mut keys)?;
        self.lock_rows(plan, table, lock, progress, &keys, emit)?;
        if progress.count < progress.window.take && Some(keys.len()) == cap {
            keys.clear();
            self.keys_in_order(keys_plan, table, None, &mut keys)?;
            self.lock_rows(plan, table, lock, progress, &keys, emit)?;
        }
        Ok(progress.count)
    }

    fn lock_rows(
        &mut self,
        plan: &Select,
        table: &Table,
        lock: &RowLock,
        progress: &mut Locking,
        keys: &KeyList,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let env = self.facts.env(&NoSequences);
        let Scratch { row_arena, .. } = &mut *self.scratch;
        while progress.next < keys.len() && progress.count < progress.window.take {
            let n = progress.next;
            progress.next += 1;
            if progress.landed.holds(keys.get(n)) {
                continue;
            }
            let mut at = Vec::new();
            let mut failure = Failure::default();
            let mut locked: Vec<Value> = Vec::new();
            let params = self.params;
            let outcome = self.txn.modify(table, keys.get(n), &mut |row| {
                let cx = Cx { params, arena: row_arena, env: &env };
                let decided = decide_lock(plan, &row, &cx, &mut locked);
                key_of(table.def(), |column| row.get(column), &mut at);
                row_arena.reset();
                Ok(failure.catch(decided, Change::Skip))
            });
            match failure.resolve(outcome) {
                Ok(Outcome::Changed) => {}
                Ok(Outcome::Missing | Outcome::Skipped) => continue,
                Err(e) if lock.wait == LockWait::Skip && is_held(&e) => continue,
                Err(e) => return Err(not_at_once(e, lock, table)),
            }
            progress.landed.note(keys.get(n), &at);
            if progress.window.skip > 0 {
                progress.window.skip -= 1;
                continue;
            }
            let row: Row<'_> = locked.iter().map(Value::as_datum).collect();
            emit(&row)?;
            progress.count += 1;
        }
        Ok(())
    }

    /// Keys of the rows that a plan of keys gives, in its order, as many as `cap`.
    fn keys_in_order(
        &mut self,
        plan: &Select,
        table: &Table,
        cap: Option<usize>,
        out: &mut KeyList,
    ) -> Result<()> {
        let Source::Table(target) = &plan.source else { return Ok(()) };
        let env = self.facts.env(&NoSequences);
        let Scratch { row_arena, result_arena, ranges, .. } = &mut *self.scratch;
        prepare_ranges(ranges, table, &target.access, self.params, row_arena, &env)?;
        let sorter = (!plan.order.is_empty()).then(|| Sorter::new(&plan.order, 0, false));
        let mut held: Vec<(Held<'_>, usize)> = Vec::new();
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
            let order = sorter.order_of(&held);
            let mut sorted = KeyList::default();
            order.into_iter().take(cap).for_each(|n| sorted.push(out.get(n)));
            *out = sorted;
        }
        Ok(())
    }
}

/// Whether the row could not be had because somebody else holds it.
fn is_held(e: &SqlError) -> bool {
    matches!(e.sqlstate, SqlState::LOCK_NOT_AVAILABLE | SqlState::DEADLOCK)
}

/// The error of a lock that NOWAIT could not have, in PostgreSQL's words.
fn not_at_once(e: SqlError, lock: &RowLock, table: &Table) -> SqlError {
    if lock.wait != LockWait::Fail || !is_held(&e) {
        return e;
    }
    let message = format!("could not obtain lock on row in relation \"{}\"", table.def().name);
    SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message)
}

/// Condition and outputs on the version to be locked.
fn decide_lock<'a>(
    plan: &'a Select,
    row: &RowRef<'a>,
    cx: &Cx<'a>,
    locked: &mut Vec<Value>,
) -> Result<Change> {
    locked.clear();
    let input = Input::Row(*row);
    if let Some(recheck) = plan.lock.as_ref().and_then(|l| l.recheck.as_ref())
        && !recheck.is_true(&input, cx)?
    {
        return Ok(Change::Skip);
    }
    let values = project(&plan.outputs[..plan.visible], &input, cx)?;
    locked.extend(values.iter().map(Datum::to_value));
    Ok(Change::LockOnly)
}

/// The same rows in the same order, without what the client sees.
fn select_of_keys(plan: &Select, target: &TableAccess) -> Select {
    Select {
        source: Source::Table(TableAccess {
            table: target.table.clone(),
            access: target.access.clone(),
            reverse: target.reverse,
        }),
        filter: plan.filter.clone(),
        aggregate: None,
        outputs: plan.outputs.clone(),
        visible: plan.visible,
        distinct: false,
        order: plan.order.clone(),
        limit: None,
        offset: None,
        lock: None,
    }
}
