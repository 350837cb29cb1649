//! Executes UPDATE and DELETE.
//!
//! Invariants
//! 1. A change by primary key is one call of the engine. Every other access path first collects the keys of
//!    its rows. So a row that moves within the scanned index is not changed twice.
//! 2. The condition and the new values are evaluated on the newest version, and again after each wait for a
//!    lock.
//! 3. A statement changes no row twice, because it remembers the rows that it has changed, also by their new
//!    keys.
//! 4. RETURNING shows a row only after it has been changed.
//! 5. A general query, which DataFusion runs, reads other relations and subqueries at the statement's
//!    snapshot. The row that the statement changes is the newest version. If that version is newer than the
//!    snapshot, the row is locked, and the subqueries run again for it.
//!
//! This module does not know locks or versions.

use std::collections::HashSet;

use varve_engine::{
    Change, Datum, Outcome, Partitions, RowImage, RowRef, Table, TableDef, Transaction, Value,
};

use super::keys::{KeyList, Landed, key_of, point_key};
use super::sequence::{Drawn, InTransaction};
use super::watch::{At, Watch};
use super::{Exec, Failure, Row, Scratch, project};
use crate::error::Result;
use crate::eval::{Cx, Expr, Input, NoSequences};
use crate::plan::{Access, Delete, Output, RowFinder, TableAccess, Update};
use crate::sink::Sink;
use crate::value_bytes::push_image;

/// Decides what to do with the newest version of a row. The slice has the other values that a general query
/// has found for the row: first the columns of the other relations, then the values of subqueries.
type Decide<'d> = dyn for<'a> Fn(&RowRef<'a>, &'a [Datum<'a>], &Cx<'a>, &mut Made) -> Result<Change> + 'd;

/// A row that a general query has found: its key, and the other values of the query.
pub type FoundRow = (Box<[u8]>, Box<[Value]>);

/// The results of a decision besides the change.
#[derive(Default)]
struct Made {
    /// The values of RETURNING.
    returned: Vec<Value>,
    /// The row's key after the change.
    key: Vec<u8>,
    /// The row before and after the change, if foreign keys must be checked for it.
    linked: Option<(Vec<Value>, Option<Vec<Value>>)>,
    /// The newest version of the row, if the query has read an older one. The row was locked instead of
    /// changed.
    newer: Option<Vec<Value>>,
}

/// Runs the query that found a row again, for another version of this row. The argument has the other
/// relations' columns, the row, and its key. The result is `None` if this version must not be changed.
pub type Again<'a> = dyn FnMut(&mut Transaction, Vec<Value>) -> Result<Option<Box<[Value]>>> + 'a;

/// Rows that a general query has found.
pub struct FoundRows<'f> {
    /// The part of the plan that describes the query.
    pub found: &'f RowFinder,
    /// The rows.
    pub rows: Vec<FoundRow>,
    /// Runs the query again for one row.
    pub again: &'f mut Again<'f>,
}

impl Exec<'_> {
    /// Runs an UPDATE. Returns the number of changed rows.
    pub(super) fn update(&mut self, plan: &Update, table: &Table, sink: &mut dyn Sink) -> Result<u64> {
        let def = table.def().clone();
        let decide = |row: &RowRef<'_>, _: &[Datum<'_>], cx: &Cx<'_>, made: &mut Made| {
            new_version(plan, &def, row, &Input::Row(*row), cx, made)
        };
        let returns = plan.returning.is_some();
        self.change(table, &plan.target, plan.filter.as_ref(), &decide, (false, returns), sink)
    }

    /// Runs a DELETE. Returns the number of deleted rows.
    pub(super) fn delete(&mut self, plan: &Delete, table: &Table, sink: &mut dyn Sink) -> Result<u64> {
        let decide = |row: &RowRef<'_>, _: &[Datum<'_>], cx: &Cx<'_>, made: &mut Made| {
            removed(plan, table.def(), row, &Input::Row(*row), cx, made)
        };
        let returns = plan.returning.is_some();
        self.change(table, &plan.target, plan.filter.as_ref(), &decide, (true, returns), sink)
    }

    /// Runs an UPDATE of rows that a general query has found.
    pub fn update_found(
        &mut self,
        plan: &Update,
        table: &Table,
        found: FoundRows<'_>,
        sink: &mut dyn Sink,
    ) -> Result<u64> {
        let (def, others) = (table.def().clone(), found.found.others);
        let decide = |row: &RowRef<'_>, given: &[Datum<'_>], cx: &Cx<'_>, made: &mut Made| {
            let values = beside(&def, row, given, others);
            new_version(plan, &def, row, &Input::Slots(&values), cx, made)
        };
        self.change_found(table, found, &decide, plan.returning.is_some(), sink)
    }

    /// Runs a DELETE of rows that a general query has found.
    pub fn delete_found(
        &mut self,
        plan: &Delete,
        table: &Table,
        found: FoundRows<'_>,
        sink: &mut dyn Sink,
    ) -> Result<u64> {
        let (def, others) = (table.def().clone(), found.found.others);
        let decide = |row: &RowRef<'_>, given: &[Datum<'_>], cx: &Cx<'_>, made: &mut Made| {
            let values = beside(&def, row, given, others);
            removed(plan, &def, row, &Input::Slots(&values), cx, made)
        };
        self.change_found(table, found, &decide, plan.returning.is_some(), sink)
    }

    /// Changes the rows that a query has found. If the query has found a row several times, only the first
    /// change of it is made.
    fn change_found(
        &mut self,
        table: &Table,
        found: FoundRows<'_>,
        decide: &Decide<'_>,
        returns: bool,
        sink: &mut dyn Sink,
    ) -> Result<u64> {
        let FoundRows { found, rows, again } = found;
        let def = table.def().clone();
        let guarded = |row: &RowRef<'_>, given: &[Datum<'_>], cx: &Cx<'_>, made: &mut Made| {
            if is_as_found(found, row, given) {
                return decide(row, given, cx, made);
            }
            made.newer = Some(whole(row, &def));
            key_of(&def, |column| row.get(column), &mut made.key);
            Ok(Change::Lock(varve_engine::LockStrength::NoKeyUpdate))
        };
        let (mut made, mut landed, mut done) = (Made::default(), Landed::default(), HashSet::new());
        let mut count = 0;
        for (key, given) in rows {
            self.facts.check_cancel()?;
            if done.contains(&key) {
                continue;
            }
            if self.change_newest(table, &key, given, &guarded, &landed, found, again, &mut made)? {
                landed.note(&key, &made.key);
                self.note_links(table, &mut made);
                done.insert(key);
                count += self.count_one(true, returns, &made.returned, sink)?;
            }
        }
        Ok(count)
    }

    /// Changes one row that was found. As long as the newest version of the row has other values than the
    /// query has read, the query runs again for this version.
    #[expect(clippy::too_many_arguments, reason = "what one row needs, and what it leaves")]
    #[expect(clippy::boxed_local, reason = "each turn replaces it by what `again` gives")]
    fn change_newest(
        &mut self,
        table: &Table,
        key: &[u8],
        mut given: Box<[Value]>,
        decide: &Decide<'_>,
        landed: &Landed,
        found: &RowFinder,
        again: &mut Again<'_>,
        made: &mut Made,
    ) -> Result<bool> {
        let mut key = key.to_vec();
        loop {
            let values: Row<'_> = given.iter().map(Value::as_datum).collect();
            let changed = self.change_one(table, &key, &values, decide, landed, made)?;
            drop(values);
            let Some(newer) = made.newer.take() else { return Ok(changed) };
            if !made.key.is_empty() {
                key.clone_from(&made.key);
            }
            let others = given[..found.others].iter().cloned();
            let row = others.chain(newer).chain([Value::Bytea(key.clone())]).collect();
            let Some(next) = again(self.txn, row)? else { return Ok(false) };
            given = next;
        }
    }

    fn change(
        &mut self,
        table: &Table,
        target: &TableAccess,
        filter: Option<&Expr>,
        decide: &Decide<'_>,
        (deletes, returns): (bool, bool),
        sink: &mut dyn Sink,
    ) -> Result<u64> {
        let mut made = Made::default();
        self.tell(|meter| meter.begin(At::Change));
        if let Access::Point(parts) = &target.access {
            let env = self.facts.env(&NoSequences);
            let Scratch { row_arena, key, .. } = &mut *self.scratch;
            let cx = Cx { params: self.params, arena: row_arena, env: &env };
            let found = point_key(key, table.def(), parts, &Input::None, &cx)?;
            row_arena.reset();
            if !found {
                return Ok(0);
            }
            let key = std::mem::take(&mut self.scratch.key);
            let changed = self.change_one(table, &key, &[], decide, &Landed::default(), &mut made);
            if matches!(changed, Ok(true)) {
                self.note_links(table, &mut made);
            }
            self.scratch.key = key;
            // One call has found and changed the row, so the source's step is recorded now.
            self.tell(|meter| {
                meter.begin(At::Source);
                meter.gave(At::Source, u64::from(matches!(changed, Ok(true))));
                meter.enter(At::Change);
            });
            return self.count_one(changed?, returns, &made.returned, sink);
        }
        self.find_rows(table, target, filter)?;
        self.tell(|meter| meter.enter(At::Change));
        let found = std::mem::take(&mut self.scratch.found);
        let count = match deletes {
            true => self.delete_keys(table, &found, decide, returns, sink)?,
            false => self.change_keys(table, &found, decide, returns, sink)?,
        };
        self.scratch.found = found;
        Ok(count)
    }

    fn change_keys(
        &mut self,
        table: &Table,
        found: &KeyList,
        decide: &Decide<'_>,
        returns: bool,
        sink: &mut dyn Sink,
    ) -> Result<u64> {
        let (mut made, mut landed, mut count) = (Made::default(), Landed::default(), 0);
        for n in 0..found.len() {
            self.facts.check_cancel()?;
            let key = found.get(n);
            let changed = self.change_one(table, key, &[], decide, &landed, &mut made)?;
            if changed {
                landed.note(key, &made.key);
                self.note_links(table, &mut made);
            }
            count += self.count_one(changed, returns, &made.returned, sink)?;
        }
        Ok(count)
    }

    /// Deletes the rows with these keys. Rows in the same leaf are deleted together.
    fn delete_keys(
        &mut self,
        table: &Table,
        found: &KeyList,
        decide: &Decide<'_>,
        returns: bool,
        sink: &mut dyn Sink,
    ) -> Result<u64> {
        self.txn.begin_deletes(table);
        let outcome = self.delete_in_runs(table, found, decide, returns, sink);
        let ended = self.txn.end_deletes(table);
        let count = outcome?;
        ended?;
        Ok(count)
    }

    fn delete_in_runs(
        &mut self,
        table: &Table,
        found: &KeyList,
        decide: &Decide<'_>,
        returns: bool,
        sink: &mut dyn Sink,
    ) -> Result<u64> {
        let (mut one, mut together, mut count, mut n) = (Made::default(), Vec::new(), 0, 0);
        while n < found.len() {
            self.facts.check_cancel()?;
            n += self.delete_run(table, found, n, decide, &mut together)?;
            for made in &mut together {
                self.note_links(table, made);
                count += self.count_one(true, returns, &made.returned, sink)?;
            }
            // The run has ended before this key. `change_one` deletes this row, or reports why it cannot be
            // deleted.
            if n < found.len() {
                let changed =
                    self.change_one(table, found.get(n), &[], decide, &Landed::default(), &mut one)?;
                if changed {
                    self.note_links(table, &mut one);
                }
                count += self.count_one(changed, returns, &one.returned, sink)?;
                n += 1;
            }
        }
        Ok(count)
    }

    /// Deletes a run of rows, beginning with key number `from`. Returns the number of keys in the run.
    /// `together` gets the results of each deleted row.
    fn delete_run(
        &mut self,
        table: &Table,
        found: &KeyList,
        from: usize,
        decide: &Decide<'_>,
        together: &mut Vec<Made>,
    ) -> Result<usize> {
        let drawn = Drawn::default();
        let env = self.facts.env(&drawn);
        let params = self.params;
        let Scratch { row_arena, .. } = &mut *self.scratch;
        together.clear();
        let mut keys = (from..found.len()).map(|n| found.get(n));
        let run = self.txn.delete_run(table, &mut keys, &mut |row| {
            drawn.start();
            let mut made = Made::default();
            let cx = Cx { params, arena: row_arena, env: &env };
            let decided = decide(&row, &[], &cx, &mut made);
            row_arena.reset();
            // An error, or an expression that needs the transaction (`Drawn`), ends the run. Then
            // `change_one` handles this row.
            let is_wanted = match decided {
                Ok(Change::Delete) => true,
                Ok(Change::Skip) => false,
                _ => return None,
            };
            if drawn.wanted().is_some() {
                return None;
            }
            if is_wanted {
                together.push(made);
            }
            Some(is_wanted)
        })?;
        // The last decision may be about a row that no longer fitted into the run.
        together.truncate(run.deleted);
        Ok(run.passed)
    }

    /// Adds the foreign key checks for a changed row to `pending`.
    fn note_links(&mut self, table: &Table, made: &mut Made) {
        let Some((old, new)) = made.linked.take() else { return };
        let def = table.def();
        if let Some(new) = &new {
            let row: Row<'_> = new.iter().map(Value::as_datum).collect();
            self.pending.wrote(def, &row, Some(&old));
        }
        self.pending.took(def.id, &old, new.as_deref(), || self.txn.catalog());
    }

    fn count_one(
        &self,
        changed: bool,
        returns: bool,
        returned: &[Value],
        sink: &mut dyn Sink,
    ) -> Result<u64> {
        if changed && returns {
            let row: Row<'_> = returned.iter().map(Value::as_datum).collect();
            sink.row(&row)?;
        }
        Ok(u64::from(changed))
    }

    fn change_one(
        &mut self,
        table: &Table,
        key: &[u8],
        given: &[Datum<'_>],
        decide: &Decide<'_>,
        landed: &Landed,
        made: &mut Made,
    ) -> Result<bool> {
        let drawn = Drawn::default();
        loop {
            let outcome = self.try_change(table, key, given, decide, landed, made, &drawn);
            let Some(wanted) = drawn.wanted() else { return Ok(outcome? == Outcome::Changed) };
            let sequences = InTransaction::new(self.txn, self.catalog, self.sequences, self.facts);
            let value = sequences.answer(&wanted, self.facts.world.as_deref())?;
            drawn.give(wanted, value);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one step of change_one, cut out of it")]
    fn try_change(
        &mut self,
        table: &Table,
        key: &[u8],
        given: &[Datum<'_>],
        decide: &Decide<'_>,
        landed: &Landed,
        made: &mut Made,
        drawn: &Drawn,
    ) -> Result<Outcome> {
        let env = self.facts.env(drawn);
        let params = self.params;
        let Scratch { row_arena, .. } = &mut *self.scratch;
        let mut failure = Failure::default();
        let outcome = self.txn.modify(table, key, &mut |row| {
            if landed.holds(table.def(), &row, &mut made.key) {
                return Ok(Change::Skip);
            }
            drawn.start();
            let cx = Cx { params, arena: row_arena, env: &env };
            let decided = decide(&row, given, &cx, made);
            row_arena.reset();
            Ok(failure.catch(decided, Change::Skip))
        });
        failure.resolve(outcome)
    }
}

fn passes<'a>(condition: Option<&'a Expr>, row: &Input<'a>, cx: &Cx<'a>) -> Result<bool> {
    condition.map_or(Ok(true), |c| c.is_true(row, cx))
}

fn new_version(
    plan: &Update,
    def: &TableDef,
    row: &RowRef<'_>,
    input: &Input<'_>,
    cx: &Cx<'_>,
    made: &mut Made,
) -> Result<Change> {
    made.returned.clear();
    made.linked = None;
    if !passes(plan.recheck.as_ref(), input, cx)? {
        return Ok(Change::Skip);
    }
    let mut values: Row<'_> = (0..def.columns.len()).map(|c| row.get(c)).collect();
    for (column, e) in &plan.assignments {
        values[*column] = e.eval(input, cx)?;
    }
    let moves = |p: &Partitions| plan.assignments.iter().any(|(c, _)| p.columns.contains(c));
    if let Some(partitions) = def.partitions.as_ref().filter(|p| moves(p)) {
        plan.rules.check_part(def, partitions, &values)?;
    }
    plan.rules.hold_in_part(def, &values, cx)?;
    let image = RowImage::encode(def.row_schema(), &values).map_err(varve_engine::Error::from)?;
    returned_new(plan, &values, input, cx, &mut made.returned)?;
    key_of(def, |column| values[column], &mut made.key);
    if plan.rules.refers || plan.rules.is_referred {
        made.linked = Some((whole(row, def), Some(values.iter().map(Datum::to_value).collect())));
    }
    Ok(Change::Replace(image))
}

/// Decides whether DELETE removes a row.
fn removed(
    plan: &Delete,
    def: &TableDef,
    row: &RowRef<'_>,
    input: &Input<'_>,
    cx: &Cx<'_>,
    made: &mut Made,
) -> Result<Change> {
    made.returned.clear();
    made.linked = None;
    if !passes(plan.recheck.as_ref(), input, cx)? {
        return Ok(Change::Skip);
    }
    give_back(plan.returning.as_deref(), input, cx, &mut made.returned)?;
    if plan.is_referred {
        made.linked = Some((whole(row, def), None));
    }
    Ok(Change::Delete)
}

fn whole(row: &RowRef<'_>, def: &TableDef) -> Vec<Value> {
    (0..def.columns.len()).map(|c| row.get(c).to_value()).collect()
}

/// Returns whether the row still has the column values for which the query has run its subqueries. These
/// values are the last ones of `given`.
fn is_as_found(found: &RowFinder, row: &RowRef<'_>, given: &[Datum<'_>]) -> bool {
    let values = &given[given.len() - found.seen.len()..];
    let (mut now, mut then) = (Vec::new(), Vec::new());
    found.seen.iter().for_each(|column| push_image(&mut now, &row.get(*column)));
    values.iter().for_each(|value| push_image(&mut then, value));
    now == then
}

/// Returns the input of expressions in a statement with other relations: columns of the other relations, the
/// row, values of subqueries.
fn beside<'a>(def: &TableDef, row: &RowRef<'a>, given: &'a [Datum<'a>], others: usize) -> Row<'a> {
    let own = (0..def.columns.len()).map(|c| row.get(c));
    given[..others].iter().copied().chain(own).chain(given[others..].iter().copied()).collect()
}

/// Computes RETURNING of an UPDATE, with the new row in place of the old one.
fn returned_new<'a>(
    plan: &'a Update,
    new: &'a [Datum<'a>],
    old: &Input<'a>,
    cx: &Cx<'a>,
    returned: &mut Vec<Value>,
) -> Result<()> {
    let (Input::Slots(seen), Some(found)) = (old, &plan.found) else {
        return give_back(plan.returning.as_deref(), &Input::Slots(new), cx, returned);
    };
    let mut values: Row<'_> = seen.iter().copied().collect();
    values[found.others..][..new.len()].copy_from_slice(new);
    give_back(plan.returning.as_deref(), &Input::Slots(cx.arena.alloc_slice_copy(&values)), cx, returned)
}

/// Computes RETURNING. The values are shown only after the change.
fn give_back<'a>(
    outputs: Option<&'a [Output]>,
    row: &Input<'a>,
    cx: &Cx<'a>,
    returned: &mut Vec<Value>,
) -> Result<()> {
    let Some(outputs) = outputs else { return Ok(()) };
    let shown = project(outputs, row, cx)?;
    returned.extend(shown.iter().map(Datum::to_value));
    Ok(())
}
