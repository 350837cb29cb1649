//! FOREIGN KEY: checks at the end of a statement or at COMMIT, and what ON DELETE and ON UPDATE do.
//!
//! Invariants
//! 1. A check looks at the newest committed rows and the own ones, never at the snapshot (decision 0508).
//! 2. Whoever refers to a row holds it until the end of the transaction; whoever deletes one has waited for its holders
//!    before it looks for rows that refer to it.
//! 3. A check that was put off looks whether there is still something to check.
//!
//! Does not know: which statement made the changes.

use std::collections::{HashSet, VecDeque};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bumpalo::Bump;
use varve_engine::{
    Action, Catalog, Change, Datum, ForeignKey, ObjectId, Outcome, RowImage, ScanSpec, Table, TableDef,
    TableId, Transaction, Value, key,
};

use super::keys::key_of;
use super::rules::shown_value;
use super::sought::{Sought, equal, fit_integer};
use super::{Facts, Failure, Row, definition};
use crate::bind::Binder;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Cx, Input, NoSequences};

/// One thing to look at.
#[derive(Debug)]
enum Work {
    /// A row of this table has these values in the columns of a foreign key.
    Refers { table: TableId, key: ObjectId, values: Vec<Value> },
    /// A row of this table is gone, or is another one by now.
    Gone { table: TableId, old: Vec<Value>, new: Option<Vec<Value>> },
    /// Nobody may refer to these values any more, by this foreign key of this table.
    Referred { table: TableId, key: ObjectId, values: Vec<Value> },
}

/// What a statement has changed that foreign keys are about.
#[derive(Debug, Default)]
pub struct Pending {
    work: VecDeque<Work>,
    /// Foreign keys with the values that are to be looked at anyway.
    seen: HashSet<(ObjectId, Vec<u8>)>,
}

/// Checks that wait for COMMIT, and what SET CONSTRAINTS said.
#[derive(Debug, Default)]
pub struct Deferred {
    work: Vec<Work>,
    /// SET CONSTRAINTS ALL: whether checks are put off.
    all: Option<bool>,
    /// SET CONSTRAINTS by name, since then.
    named: Vec<(ObjectId, bool)>,
}

impl Deferred {
    /// Whether nothing is to be done at COMMIT.
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// The transaction is over.
    pub fn clear(&mut self) {
        if self.all.is_some() || !self.named.is_empty() || !self.work.is_empty() {
            *self = Deferred::default();
        }
    }

    /// SET CONSTRAINTS; `None` is ALL.
    pub fn set(&mut self, keys: Option<&[ObjectId]>, put_off: bool) {
        match keys {
            None => {
                self.all = Some(put_off);
                self.named.clear();
            }
            Some(keys) => {
                self.named.retain(|(id, _)| !keys.contains(id));
                self.named.extend(keys.iter().map(|id| (*id, put_off)));
            }
        }
    }

    fn puts_off(&self, key: &ForeignKey) -> bool {
        let named = self.named.iter().find(|(id, _)| *id == key.id).map(|(_, put_off)| *put_off);
        key.deferrable && named.or(self.all).unwrap_or(key.initially_deferred)
    }

    /// Takes the checks that are no longer put off.
    pub fn take_due(&mut self, catalog: &Catalog, is_commit: bool) -> Pending {
        let (mut due, mut later) = (Pending::default(), Vec::new());
        for work in std::mem::take(&mut self.work) {
            let (Work::Refers { table, key, .. } | Work::Referred { table, key, .. }) = &work else {
                continue;
            };
            let key = catalog.table_by_id(*table).and_then(|t| foreign_key(&t, *key));
            match key {
                Some(key) if !is_commit && self.puts_off(&key) => later.push(work),
                Some(_) => due.work.push_back(work),
                None => {}
            }
        }
        self.work = later;
        due
    }
}

impl Pending {
    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// A row was written; `old` is what it was before.
    pub fn wrote(&mut self, table: &TableDef, new: &[Datum<'_>], old: Option<&[Value]>) {
        for key in &table.foreign_keys {
            let has_null = key.columns.iter().any(|c| new[*c].is_null());
            let is_same = |old: &[Value]| key.columns.iter().all(|c| equal(&old[*c].as_datum(), &new[*c]));
            if has_null || old.is_some_and(is_same) {
                continue;
            }
            let mut packed = Vec::new();
            key.columns.iter().for_each(|c| table.push_key(&mut packed, *c, &new[*c]));
            if self.seen.insert((key.id, packed)) {
                let values = key.columns.iter().map(|c| new[*c].to_value()).collect();
                self.work.push_back(Work::Refers { table: table.id, key: key.id, values });
            }
        }
    }

    /// A row that others may refer to was deleted or changed.
    pub fn took(&mut self, table: &TableDef, old: Vec<Value>, new: Option<Vec<Value>>) {
        self.work.push_back(Work::Gone { table: table.id, old, new });
    }
}

/// Runs checks.
pub struct Checker<'x> {
    pub txn: &'x mut Transaction,
    pub facts: &'x Facts,
    pub deferred: &'x mut Deferred,
    /// Nothing can be put off any more.
    pub is_commit: bool,
}

impl Checker<'_> {
    /// Looks at what is pending, and at what that leads to.
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
                    self.follow(&catalog, table, &old, new.as_deref(), &mut pending)?;
                }
            }
        }
        Ok(())
    }

    /// 23503 if the row that is referred to is not there; else it is held.
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
        if self.hold_parent(&parent, &key, &values)? {
            return Ok(());
        }
        // A check that was put off: the row may be gone or changed.
        if key.deferrable && self.children(&child, &key, &values, true)?.is_empty() {
            return Ok(());
        }
        Err(not_present(&child, &key, &parent, &values))
    }

    fn hold_parent(&mut self, parent: &TableDef, key: &ForeignKey, values: &[Value]) -> Result<bool> {
        let opened = self.txn.table(parent)?;
        let Some(sought) = Sought::of(parent, &key.parent_columns, values) else { return Ok(false) };
        loop {
            let Some(row_key) = sought.find(self.txn, &opened)? else { return Ok(false) };
            if self.txn.share_row(&opened, &row_key, &mut |row| sought.is(&row))? {
                return Ok(true);
            }
        }
    }

    /// 23503 if somebody refers to these values.
    fn check_children(
        &mut self,
        catalog: &Catalog,
        table: TableId,
        key: ObjectId,
        values: &[Value],
    ) -> Result<()> {
        let Some((child, key)) = known(catalog, table, key) else { return Ok(()) };
        let Some(parent) = catalog.table_by_id(key.parent) else { return Ok(()) };
        let opened = self.txn.table(&parent)?;
        let is_back = match Sought::of(&parent, &key.parent_columns, values) {
            Some(sought) if key.on_delete != Action::Restrict => sought.find(self.txn, &opened)?.is_some(),
            _ => false,
        };
        if is_back || self.children(&child, &key, values, true)?.is_empty() {
            return Ok(());
        }
        Err(still_referenced(&child, &key, &parent, values))
    }

    /// What becomes of the rows that refer to a row that is gone or changed.
    fn follow(
        &mut self,
        catalog: &Catalog,
        table: TableId,
        old: &[Value],
        new: Option<&[Value]>,
        pending: &mut Pending,
    ) -> Result<()> {
        let children: Vec<_> = catalog.children(table).map(|(t, k)| (Arc::clone(t), Arc::clone(k))).collect();
        for (child, key) in children {
            let values: Vec<Value> = key.parent_columns.iter().map(|c| old[*c].clone()).collect();
            let same = |new: &[Value]| key.parent_columns.iter().all(|c| same_value(&old[*c], &new[*c]));
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
                    if !self.children(&child, &key, &values, true)?.is_empty() {
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
                    // A default may be what it was.
                    if action == Action::SetDefault {
                        pending.work.push_back(work);
                    }
                }
            }
        }
        Ok(())
    }

    /// What the referring columns become; `None` if the rows are deleted.
    fn given(
        &self,
        catalog: &Catalog,
        child: &TableDef,
        key: &ForeignKey,
        action: Action,
        new: Option<&[Value]>,
    ) -> Result<Option<Vec<(usize, Value)>>> {
        let columns = key.columns.iter();
        Ok(match (action, new) {
            (Action::Cascade, None) => None,
            (Action::Cascade, Some(new)) => {
                let mut given = Vec::with_capacity(key.columns.len());
                for (own, theirs) in columns.zip(&key.parent_columns) {
                    let t = child.columns[*own].column_type;
                    let fitted = fit_integer(&new[*theirs], t).ok_or_else(|| {
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

    /// Deletes rows that refer, or gives them other values.
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
        let is_referred = catalog.children(child.id).next().is_some();
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
            if is_referred {
                await_holders(self.txn, &opened, &row_key, &old)?;
                pending.took(child, old, new);
            }
        }
        Ok(())
    }

    /// Keys of the rows that refer to these values; of one of them if that is enough.
    fn children(
        &mut self,
        child: &TableDef,
        key: &ForeignKey,
        values: &[Value],
        is_one_enough: bool,
    ) -> Result<Vec<Vec<u8>>> {
        let opened = self.txn.table(child)?;
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

/// A row was deleted or changed: waits until nobody else relies on it.
pub fn await_holders(txn: &mut Transaction, table: &Table, found: &[u8], old: &[Value]) -> Result<()> {
    let def = table.def();
    if def.primary_key.is_none() {
        return Ok(txn.await_sharers(table, found)?);
    }
    // The row may have been followed from the key where it was found.
    let mut row_key = Vec::new();
    key_of(def, |column| old[column].as_datum(), &mut row_key);
    Ok(txn.await_sharers(table, &row_key)?)
}

/// ALTER TABLE ... ADD FOREIGN KEY: adds it, then looks at the rows.
pub(super) fn add_foreign_key(
    table: &Arc<TableDef>,
    key: ForeignKey,
    txn: &mut Transaction,
    facts: &Facts,
) -> definition::Result<()> {
    let name = key.name.clone();
    let def = txn.add_foreign_key(table.id, key)?;
    let opened = txn.table(&def)?;
    let mut pending = Pending::default();
    txn.newest_reader().scan(&opened, &ScanSpec::ALL, &mut |_, row| {
        let values: Row<'_> = (0..def.columns.len()).map(|c| row.get(c)).collect();
        pending.wrote(&def, &values, None);
        Ok(ControlFlow::Continue(()))
    })?;
    let added = def.foreign_keys.iter().find(|k| k.name == name).map(|k| k.id);
    pending.work.retain(|work| matches!(work, Work::Refers { key, .. } if Some(*key) == added));
    let mut deferred = Deferred::default();
    let mut checker = Checker { txn, facts, deferred: &mut deferred, is_commit: true };
    Ok(checker.settle(pending)?)
}

fn foreign_key(table: &TableDef, id: ObjectId) -> Option<Arc<ForeignKey>> {
    table.foreign_keys.iter().find(|k| k.id == id).cloned()
}

/// A table and its foreign key, unless one of them was dropped meanwhile.
fn known(catalog: &Catalog, table: TableId, key: ObjectId) -> Option<(Arc<TableDef>, Arc<ForeignKey>)> {
    let table = catalog.table_by_id(table)?;
    let key = foreign_key(&table, key)?;
    Some((table, key))
}

pub(super) fn same_value(a: &Value, b: &Value) -> bool {
    equal(&a.as_datum(), &b.as_datum()) || matches!((a, b), (Value::Null, Value::Null))
}

/// `(a, b)=(1, 2)`
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
