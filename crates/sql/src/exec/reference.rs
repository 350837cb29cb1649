//! Executes FOREIGN KEY: the checks at the end of a statement or at COMMIT, and the actions of ON DELETE and
//! ON UPDATE.
//!
//! Invariants
//! 1. A check reads the newest committed rows and those of its own transaction, never the snapshot (decision
//!    0508).
//! 2. A transaction that writes a reference locks the referenced row until the transaction ends. A
//!    transaction that deletes a referenced row waits for these locks, and then looks for references.
//! 3. A deferred check first tests whether it is still needed.
//!
//! This module does not know which statement made the changes.

use std::collections::{HashSet, VecDeque};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bumpalo::Bump;
use varve_engine::{
    Action, Catalog, Change, Datum, ForeignKey, LockMode, ObjectId, Outcome, RowImage, ScanSpec, TableDef,
    TableId, Transaction, Value, key,
};

use super::rules::shown_value;
use super::sought::{Sought, equal, fit_integer};
use super::{Facts, Failure, Row, notice};
use crate::bind::Binder;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Cx, Input, NoSequences};

/// One foreign key check.
#[derive(Debug, Clone)]
enum Work {
    /// A row of this table has these values in the columns of a foreign key.
    Refers { table: TableId, key: ObjectId, values: Vec<Value> },
    /// A row of this table was deleted or changed.
    Gone { table: TableId, old: Referred, new: Option<Referred> },
    /// No row of this table may refer to these values any more by this foreign key.
    Referred { table: TableId, key: ObjectId, values: Vec<Value> },
}

/// The values of a row in the columns that foreign keys refer to.
#[derive(Debug, Clone)]
struct Referred {
    columns: Arc<[usize]>,
    values: Box<[Value]>,
}

impl Referred {
    fn of(columns: &Arc<[usize]>, row: &[Value]) -> Referred {
        let values = columns.iter().map(|c| row[*c].clone()).collect();
        Referred { columns: Arc::clone(columns), values }
    }

    fn get(&self, column: usize) -> &Value {
        let at = self.columns.iter().position(|c| *c == column);
        at.map_or(&Value::Null, |at| &self.values[at])
    }
}

/// The foreign key checks that the changes of a statement need.
#[derive(Debug, Default)]
pub struct Pending {
    work: VecDeque<Work>,
    /// The foreign keys and values that already have a check. They need no second one.
    seen: HashSet<(ObjectId, Vec<u8>)>,
    /// The table that was asked for last, and its columns that foreign keys refer to.
    referred: Option<(TableId, Arc<[usize]>)>,
}

/// Checks that are deferred to COMMIT, and the state of SET CONSTRAINTS.
#[derive(Debug, Default)]
pub struct Deferred {
    work: Vec<Work>,
    said: Said,
    /// The value of `work` before each time that checks were taken out of it. A rollback to a savepoint may
    /// restore it.
    past: Vec<Vec<Work>>,
}

/// The state of SET CONSTRAINTS.
#[derive(Debug, Default, Clone)]
struct Said {
    /// The last SET CONSTRAINTS ALL: whether checks are deferred.
    all: Option<bool>,
    /// Constraints that were set by name since then.
    named: Vec<(ObjectId, bool)>,
}

/// The state of deferred checks at a savepoint.
#[derive(Debug)]
pub struct DeferredMark {
    /// The number of times that checks had been taken out of `work`.
    taken: usize,
    work: usize,
    said: Said,
}

impl Deferred {
    /// Returns whether there is no check for COMMIT.
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Removes everything at the end of a transaction.
    pub fn clear(&mut self) {
        let is_used = !self.work.is_empty() || !self.past.is_empty();
        if is_used || self.said.all.is_some() || !self.said.named.is_empty() {
            *self = Deferred::default();
        }
    }

    /// Returns the state that a savepoint must restore.
    pub fn mark(&self) -> DeferredMark {
        DeferredMark { taken: self.past.len(), work: self.work.len(), said: self.said.clone() }
    }

    /// Restores the state of a savepoint. Checks that have run since then are pending again, because the
    /// change that fulfilled them may be rolled back.
    pub fn restore(&mut self, mark: &DeferredMark) {
        match self.past.get(mark.taken) {
            None => self.work.truncate(mark.work),
            Some(then) => self.work = then[..mark.work].to_vec(),
        }
        self.said = mark.said.clone();
    }

    /// Runs SET CONSTRAINTS. `None` means ALL.
    pub fn set(&mut self, keys: Option<&[ObjectId]>, put_off: bool) {
        match keys {
            None => self.said = Said { all: Some(put_off), named: Vec::new() },
            Some(keys) => {
                self.said.named.retain(|(id, _)| !keys.contains(id));
                self.said.named.extend(keys.iter().map(|id| (*id, put_off)));
            }
        }
    }

    fn puts_off(&self, key: &ForeignKey) -> bool {
        let said = self.said.named.iter().find(|(id, _)| *id == key.id).map(|(_, put_off)| *put_off);
        key.deferrable && said.or(self.said.all).unwrap_or(key.initially_deferred)
    }

    /// Takes out the checks that are no longer deferred.
    pub fn take_due(&mut self, catalog: &Catalog, is_commit: bool) -> Pending {
        let (mut due, mut later) = (Pending::default(), Vec::new());
        for work in &self.work {
            let (Work::Refers { table, key, .. } | Work::Referred { table, key, .. }) = work else {
                continue;
            };
            let key = catalog.table_by_id(*table).and_then(|t| foreign_key(&t, *key));
            match key {
                Some(key) if !is_commit && self.puts_off(&key) => later.push(work.clone()),
                Some(_) => due.work.push_back(work.clone()),
                None => {}
            }
        }
        let all = std::mem::replace(&mut self.work, later);
        if !is_commit {
            self.past.push(all);
        }
        due
    }
}

impl Pending {
    /// Returns whether there are no checks.
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Records that a row was written. `old` is the row before the change.
    pub fn wrote(&mut self, table: &TableDef, new: &[Datum<'_>], old: Option<&[Value]>) {
        table.foreign_keys.iter().for_each(|key| self.refers(table, key, new, old));
    }

    /// Adds the check for one foreign key of a new row, unless its columns are unchanged or NULL.
    fn refers(&mut self, table: &TableDef, key: &ForeignKey, new: &[Datum<'_>], old: Option<&[Value]>) {
        let nulls = key.columns.iter().filter(|c| new[**c].is_null()).count();
        // With MATCH FULL, a key with some NULLs and some values is an error. The check reports it.
        let has_null = if key.match_full { nulls == key.columns.len() } else { nulls > 0 };
        let is_same = |old: &[Value]| key.columns.iter().all(|c| equal(&old[*c].as_datum(), &new[*c]));
        if has_null || old.is_some_and(is_same) {
            return;
        }
        let mut packed = Vec::new();
        key.columns.iter().for_each(|c| table.push_key(&mut packed, *c, &new[*c]));
        if self.seen.insert((key.id, packed)) {
            let values = key.columns.iter().map(|c| new[*c].to_value()).collect();
            self.work.push_back(Work::Refers { table: table.id, key: key.id, values });
        }
    }

    /// Records that a row was deleted or changed, if other rows may refer to its old values.
    pub fn took(
        &mut self,
        table: TableId,
        old: &[Value],
        new: Option<&[Value]>,
        catalog: impl FnOnce() -> Arc<Catalog>,
    ) {
        let columns = match &self.referred {
            Some((of, columns)) if *of == table => Arc::clone(columns),
            _ => {
                let columns = referred_columns(&catalog(), table);
                self.referred = Some((table, Arc::clone(&columns)));
                columns
            }
        };
        let is_same = |new: &[Value]| columns.iter().all(|c| same_value(&old[*c], &new[*c]));
        if !columns.is_empty() && !new.is_some_and(is_same) {
            let new = new.map(|new| Referred::of(&columns, new));
            self.work.push_back(Work::Gone { table, old: Referred::of(&columns, old), new });
        }
    }
}

/// Returns the columns of a table that foreign keys refer to.
fn referred_columns(catalog: &Catalog, table: TableId) -> Arc<[usize]> {
    let mut columns: Vec<usize> =
        catalog.children(table).flat_map(|(_, key)| key.parent_columns.iter().copied()).collect();
    columns.sort_unstable();
    columns.dedup();
    columns.into()
}

/// Runs checks.
pub struct Checker<'x> {
    pub txn: &'x mut Transaction,
    pub facts: &'x Facts,
    pub deferred: &'x mut Deferred,
    /// Whether the transaction commits, so that no check can be deferred any more.
    pub is_commit: bool,
    /// Whether the tables are locked, so that no other transaction can change them.
    pub is_alone: bool,
}

impl Checker<'_> {
    /// Runs the pending checks, and the checks that their actions lead to.
    pub fn settle(&mut self, mut pending: Pending) -> Result<()> {
        if pending.is_empty() {
            return Ok(());
        }
        let catalog = self.txn.catalog();
        while let Some(work) = pending.work.pop_front() {
            self.facts.check_cancel()?;
            match work {
                Work::Refers { table, key, values } => self.check_parent(&catalog, table, key, values)?,
                Work::Referred { table, key, values } => {
                    self.check_children(&catalog, table, key, &values)?
                }
                Work::Gone { table, old, new } => {
                    self.follow(&catalog, table, &old, new.as_ref(), &mut pending)?;
                }
            }
        }
        Ok(())
    }

    /// Locks the row that a foreign key refers to. Fails with 23503 if there is no such row.
    fn check_parent(
        &mut self,
        catalog: &Catalog,
        table: TableId,
        key: ObjectId,
        values: Vec<Value>,
    ) -> Result<()> {
        let Some((child, key)) = known(catalog, table, key) else { return Ok(()) };
        if !self.is_commit && self.deferred.puts_off(&key) {
            self.deferred.work.push(Work::Refers { table, key: key.id, values });
            return Ok(());
        }
        let Some(parent) = catalog.table_by_id(key.parent) else { return Ok(()) };
        if values.iter().any(Value::is_null) {
            return Err(half_null(&child, &key));
        }
        if self.hold_parent(&parent, &key, &values)? {
            return Ok(());
        }
        // If the check was deferred, the referring row may have been deleted or changed since then.
        if key.deferrable && self.children(&child, &key, &values, true)?.is_empty() {
            return Ok(());
        }
        Err(not_present(&child, &key, &parent, &values))
    }

    fn hold_parent(&mut self, parent: &TableDef, key: &ForeignKey, values: &[Value]) -> Result<bool> {
        let opened = self.txn.table_for(parent, LockMode::RowShare)?;
        let Some(sought) = Sought::of(parent, &key.parent_columns, values) else { return Ok(false) };
        // As in PostgreSQL, a row that the transaction's snapshot does not see does not count.
        let keeps_snapshot = self.txn.isolation().keeps_snapshot();
        if keeps_snapshot && sought.find(&mut self.txn.constraint_reader(), &opened)?.is_none() {
            return Ok(false);
        }
        while let Some(row_key) = sought.find(&mut self.txn.newest_reader(), &opened)? {
            if self.is_alone || self.txn.share_row(&opened, &row_key, &mut |row| sought.is(&row))? {
                return Ok(true);
            }
        }
        match keeps_snapshot {
            true => Err(varve_engine::Error::SerializationFailure.into()),
            false => Ok(false),
        }
    }

    /// Fails with 23503 if a row refers to these values.
    fn check_children(
        &mut self,
        catalog: &Catalog,
        table: TableId,
        key: ObjectId,
        values: &[Value],
    ) -> Result<()> {
        let Some((child, key)) = known(catalog, table, key) else { return Ok(()) };
        let Some(parent) = catalog.table_by_id(key.parent) else { return Ok(()) };
        let opened = self.txn.table_for(&parent, LockMode::RowShare)?;
        let is_back = match Sought::of(&parent, &key.parent_columns, values) {
            Some(sought) if key.on_delete != Action::Restrict => {
                sought.find(&mut self.txn.newest_reader(), &opened)?.is_some()
            }
            _ => false,
        };
        if is_back || !self.has_child(&child, &key, values)? {
            return Ok(());
        }
        Err(still_referenced(&child, &key, &parent, values))
    }

    /// Applies ON DELETE or ON UPDATE to the rows that refer to a deleted or changed row.
    fn follow(
        &mut self,
        catalog: &Catalog,
        table: TableId,
        old: &Referred,
        new: Option<&Referred>,
        pending: &mut Pending,
    ) -> Result<()> {
        let children: Vec<_> = catalog.children(table).map(|(t, k)| (Arc::clone(t), Arc::clone(k))).collect();
        for (child, key) in children {
            let values: Vec<Value> = key.parent_columns.iter().map(|c| old.get(*c).clone()).collect();
            let same =
                |new: &Referred| key.parent_columns.iter().all(|c| same_value(old.get(*c), new.get(*c)));
            if values.iter().any(|v| matches!(v, Value::Null)) || new.is_some_and(same) {
                continue;
            }
            let action = if new.is_some() { key.on_update } else { key.on_delete };
            let work = Work::Referred { table: child.id, key: key.id, values: values.clone() };
            match action {
                Action::NoAction if !self.is_commit && self.deferred.puts_off(&key) => {
                    self.deferred.work.push(work);
                }
                Action::NoAction => pending.work.push_back(work),
                Action::Restrict => {
                    if self.has_child(&child, &key, &values)? {
                        let parent = catalog.table_by_id(table);
                        return Err(parent.map_or_else(
                            || SqlError::internal("a table that is gone"),
                            |parent| still_referenced(&child, &key, &parent, &values),
                        ));
                    }
                }
                Action::Cascade | Action::SetNull | Action::SetDefault => {
                    let given = self.given(catalog, &child, &key, action, new)?;
                    let rows = self.children(&child, &key, &values, false)?;
                    self.change_children(catalog, &child, &key, (rows, &values), given.as_deref(), pending)?;
                    // The default may be the value that was just deleted, so the check is needed afterwards.
                    if action == Action::SetDefault {
                        pending.work.push_back(work);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the new values of the referring columns, or `None` if the rows are deleted.
    fn given(
        &self,
        catalog: &Catalog,
        child: &TableDef,
        key: &ForeignKey,
        action: Action,
        new: Option<&Referred>,
    ) -> Result<Option<Vec<(usize, Value)>>> {
        let columns = key.columns.iter();
        Ok(match (action, new) {
            (Action::Cascade, None) => None,
            (Action::Cascade, Some(new)) => {
                let mut given = Vec::with_capacity(key.columns.len());
                for (own, theirs) in columns.zip(&key.parent_columns) {
                    let t = child.columns[*own].column_type;
                    let fitted = fit_integer(new.get(*theirs), t).ok_or_else(|| {
                        let message = format!("{} out of range", crate::ty::Typed::of_column(t).ty.name());
                        SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message)
                    })?;
                    given.push((*own, fitted));
                }
                Some(given)
            }
            (Action::SetDefault, _) => {
                let mut given = Vec::with_capacity(key.columns.len());
                for column in columns {
                    let default = Binder::new(catalog, "", &[])?.bound_default(&child.columns[*column])?;
                    let arena = Bump::new();
                    let env = self.facts.env(&NoSequences);
                    let cx = Cx { params: &[], arena: &arena, env: &env };
                    given.push((*column, default.eval(&Input::None, &cx)?.to_value()));
                }
                Some(given)
            }
            _ => Some(columns.map(|c| (*c, Value::Null)).collect()),
        })
    }

    /// Deletes the referring rows, or changes their referring columns.
    fn change_children(
        &mut self,
        catalog: &Catalog,
        child: &Arc<TableDef>,
        key: &ForeignKey,
        (rows, values): (Vec<Vec<u8>>, &[Value]),
        given: Option<&[(usize, Value)]>,
        pending: &mut Pending,
    ) -> Result<()> {
        let opened = self.txn.table(child)?;
        let rules = Binder::new(catalog, "", &[])?.rules(child)?;
        let Some(sought) = Sought::of(child, &key.columns, values) else { return Ok(()) };
        let env = self.facts.env(&NoSequences);
        for row_key in rows {
            let (mut old, mut new): (Vec<Value>, Option<Vec<Value>>) = (Vec::new(), None);
            let (mut failure, mut arena) = (Failure::default(), Bump::new());
            let outcome = self.txn.modify(&opened, &row_key, &mut |row| {
                if !sought.is(&row) {
                    return Ok(Change::Skip);
                }
                old = (0..child.columns.len()).map(|c| row.get(c).to_value()).collect();
                let Some(given) = given else { return Ok(Change::Delete) };
                let mut row: Row<'_> = old.iter().map(Value::as_datum).collect();
                given.iter().for_each(|(column, value)| row[*column] = value.as_datum());
                let cx = Cx { params: &[], arena: &arena, env: &env };
                let held = rules.hold(child, &row, &cx).and_then(|()| {
                    Ok(RowImage::encode(child.row_schema(), &row).map_err(varve_engine::Error::from)?)
                });
                new = Some(row.iter().map(Datum::to_value).collect());
                Ok(failure.catch(held.map(Change::Replace), Change::Skip))
            });
            arena.reset();
            if failure.resolve(outcome)? != Outcome::Changed {
                continue;
            }
            if let Some(new) = &new {
                let row: Row<'_> = new.iter().map(Value::as_datum).collect();
                pending.wrote(child, &row, Some(&old));
            }
            pending.took(child.id, &old, new.as_deref(), || self.txn.catalog());
        }
        Ok(())
    }

    /// Returns whether a row refers to these values. Waits for a transaction that is deleting such a row.
    fn has_child(&mut self, child: &TableDef, key: &ForeignKey, values: &[Value]) -> Result<bool> {
        let opened = self.txn.table_for(child, LockMode::RowShare)?;
        let Some(sought) = Sought::of(child, &key.columns, values) else { return Ok(false) };
        while let Some(row_key) = self.children(child, key, values, true)?.first() {
            if self.txn.share_row(&opened, row_key, &mut |row| sought.is(&row))? {
                return Ok(true);
            }
            self.facts.check_cancel()?;
        }
        Ok(false)
    }

    /// Returns the keys of the rows that refer to these values, or only the key of the first one.
    fn children(
        &mut self,
        child: &TableDef,
        key: &ForeignKey,
        values: &[Value],
        is_one_enough: bool,
    ) -> Result<Vec<Vec<u8>>> {
        let opened = self.txn.table_for(child, LockMode::RowShare)?;
        let Some(sought) = Sought::of(child, &key.columns, values) else { return Ok(Vec::new()) };
        let (index, prefix) = sought.path();
        let mut upper = prefix.clone();
        key::prefix_end(&mut upper);
        let is_bounded = !prefix.is_empty();
        let spec = ScanSpec {
            index,
            lower: if is_bounded { Bound::Included(&prefix) } else { Bound::Unbounded },
            upper: if is_bounded { Bound::Excluded(&upper) } else { Bound::Unbounded },
            reverse: false,
            limit_hint: None,
            columns: None,
        };
        let mut found = Vec::new();
        self.txn.newest_reader().scan(&opened, &spec, &mut |row_key, row| {
            if !sought.is(&row) {
                return Ok(ControlFlow::Continue(()));
            }
            found.push(row_key.to_vec());
            Ok(if is_one_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(found)
    }
}

/// Checks that all rows of a locked table refer to existing rows.
pub(super) fn check_rows(
    def: &Arc<TableDef>,
    key: &ForeignKey,
    txn: &mut Transaction,
    facts: &Facts,
) -> notice::Result<()> {
    let mut from = None;
    loop {
        let (some, next) = some_referring(txn, def, key, from.as_deref())?;
        let mut deferred = Deferred::default();
        let mut checker = Checker { txn, facts, deferred: &mut deferred, is_commit: true, is_alone: true };
        checker.settle(some)?;
        from = next;
        if from.is_none() {
            return Ok(());
        }
    }
}

/// The number of values that are checked in one batch.
const VALUES_AT_ONCE: usize = 4096;

/// Returns the values that the next rows of a table refer to by a new foreign key, and the key of the row
/// after which the next batch begins.
fn some_referring(
    txn: &mut Transaction,
    def: &TableDef,
    added: &ForeignKey,
    from: Option<&[u8]>,
) -> notice::Result<(Pending, Option<Vec<u8>>)> {
    let opened = txn.table(def)?;
    let (mut pending, mut next) = (Pending::default(), None);
    let lower = from.map_or(Bound::Unbounded, Bound::Excluded);
    let spec = ScanSpec { lower, ..ScanSpec::ALL };
    txn.newest_reader().scan(&opened, &spec, &mut |row_key, row| {
        let values: Row<'_> = (0..def.columns.len()).map(|c| row.get(c)).collect();
        pending.refers(def, added, &values, None);
        if pending.work.len() < VALUES_AT_ONCE {
            return Ok(ControlFlow::Continue(()));
        }
        next = Some(row_key.to_vec());
        Ok(ControlFlow::Break(()))
    })?;
    Ok((pending, next))
}

fn foreign_key(table: &TableDef, id: ObjectId) -> Option<Arc<ForeignKey>> {
    table.foreign_keys.iter().find(|k| k.id == id).cloned()
}

/// Returns the table and its foreign key, or `None` if one of them was dropped meanwhile.
fn known(catalog: &Catalog, table: TableId, key: ObjectId) -> Option<(Arc<TableDef>, Arc<ForeignKey>)> {
    let table = catalog.table_by_id(table)?;
    let key = foreign_key(&table, key)?;
    Some((table, key))
}

pub(super) fn same_value(a: &Value, b: &Value) -> bool {
    equal(&a.as_datum(), &b.as_datum()) || matches!((a, b), (Value::Null, Value::Null))
}

/// Returns the key as messages show it: `(a, b)=(1, 2)`.
fn shown_key(table: &TableDef, columns: &[usize], values: &[Value]) -> String {
    let names: Vec<&str> = columns.iter().map(|c| &*table.columns[*c].name).collect();
    let values = columns.iter().zip(values);
    let values = values.map(|(c, v)| shown_value(v.as_datum(), table.columns[*c].column_type));
    format!("({})=({})", names.join(", "), values.collect::<Vec<_>>().join(", "))
}

fn violation(message: String, child: &TableDef, key: &ForeignKey) -> SqlError {
    SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, message)
        .of_table(&child.schema, &child.name)
        .of_constraint(&key.name)
}

fn half_null(child: &TableDef, key: &ForeignKey) -> SqlError {
    let message = format!(
        "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
        child.name, key.name
    );
    violation(message, child, key)
        .with_detail("MATCH FULL does not allow mixing of null and nonnull key values.")
}

fn not_present(child: &TableDef, key: &ForeignKey, parent: &TableDef, values: &[Value]) -> SqlError {
    let message = format!(
        "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
        child.name, key.name
    );
    let shown = shown_key(child, &key.columns, values);
    let detail = format!("Key {shown} is not present in table \"{}\".", parent.name);
    violation(message, child, key).with_detail(detail)
}

fn still_referenced(child: &TableDef, key: &ForeignKey, parent: &TableDef, values: &[Value]) -> SqlError {
    let message = format!(
        "update or delete on table \"{}\" violates foreign key constraint \"{}\" on table \"{}\"",
        parent.name, key.name, child.name
    );
    let shown = shown_key(parent, &key.parent_columns, values);
    let detail = format!("Key {shown} is still referenced from table \"{}\".", child.name);
    violation(message, child, key).with_detail(detail)
}
