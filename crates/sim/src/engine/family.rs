//! A workload on a table of parents and a table of children with a foreign key. The key is enforced as in the
//! SQL layer. An insert of a child takes a shared lock on the parent row. A delete of a parent looks for its
//! children.
//!
//! The column `balance` of a child holds the id of its parent. A session deletes only its own rows, but its
//! rows refer to rows of all sessions.
//!
//! Invariants
//! 1. After every crash each child has a parent.
//!
//! Cascades and deferred checks are not tested here.

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};

use varve_engine::{
    Action, Change, Datum, Error, ForeignKey, NewIndex, ObjectId, Outcome, ScanIndex, ScanSpec, Table,
    TableDef, Transaction, key as keys,
};

use super::session::{Session, data, key, new_table, primary_key, stored};
use super::{Done, SCHEMA, SESSIONS, Worker, image_of, text};
use crate::model::{Effect, Row};

pub(super) const PARENTS: &str = "parents";
pub(super) const CHILDREN: &str = "children";
const KEY: &str = "children_fkey";

/// The column of a child that refers, and the column of a parent to which it refers.
const REFERS: usize = 2;
const REFERRED: usize = 0;

impl Worker<'_> {
    pub(super) fn make_family(&mut self) -> Done {
        let mut session = self.begin();
        session.start(&self.committed);
        let mut made = Vec::new();
        for name in [PARENTS, CHILDREN] {
            made.push(session.txn.create_table(new_table(name, Some(primary_key(name)))).map_err(text)?.id);
            session.effects.push(Effect::CreateTable(name.into()));
        }
        let (parent, table, index) = (made[0], made[1], "children_by_parent".to_owned());
        let new = NewIndex {
            table,
            name: index.clone(),
            columns: vec![REFERS],
            unique: false,
            constraint: false,
            tablespace: None,
        };
        session.txn.create_index(new).map_err(text)?;
        session.effects.push(Effect::CreateIndex(CHILDREN.into(), index));
        let key = ForeignKey {
            id: ObjectId(0),
            name: KEY.into(),
            columns: vec![REFERS],
            parent,
            parent_columns: vec![REFERRED],
            on_delete: Action::NoAction,
            on_update: Action::NoAction,
            deferrable: false,
            initially_deferred: false,
            match_full: false,
        };
        session.txn.add_foreign_key(table, key).map_err(text)?;
        session.effects.push(Effect::Fact(format!("{CHILDREN}/key/{KEY}"), Some(PARENTS.into())));
        self.commit(session)
    }

    pub(super) fn write_family(&mut self, session: &mut Session, slot: usize) -> Done {
        match self.dice(8) {
            0 | 1 => {
                let id = self.some_key(slot, true);
                let row = self.some_row();
                let table = session.table(PARENTS)?;
                session.txn.insert(&table, &data(id, &row)).map_err(text)?;
                session.effects.push(Effect::Put(PARENTS.into(), id, row));
                Ok(())
            }
            2 | 3 => self.add_child(session, slot),
            4 => self.move_child(session, slot),
            5 => self.remove_child(session, slot),
            _ => self.remove_parent(session, slot),
        }
    }

    /// Returns a parent that may exist. It is often one of the newest, so that sessions use the same parents.
    fn some_parent(&mut self) -> i64 {
        let newest = self.newest_parent(|_| true);
        if let Some(id) = newest.filter(|_| self.dice(8) > 0) {
            return id;
        }
        let slot = self.dice(SESSIONS as u64) as usize;
        self.some_key(slot, false)
    }

    fn newest_parent(&mut self, is_wanted: impl Fn(i64) -> bool) -> Option<i64> {
        let at = self.dice(5) as usize;
        let ids = self.committed.tables.get(PARENTS)?.rows.keys().rev().copied();
        ids.filter(|id| is_wanted(*id)).nth(at)
    }

    /// Takes a shared lock on a parent. Returns false if it does not exist, or if another session may delete
    /// it.
    fn hold_parent(session: &mut Session, parent: i64) -> Result<bool, String> {
        let table = session.table(PARENTS)?;
        match session.txn.share_row(&table, &key(table.def(), parent), &mut |_| true) {
            Err(Error::LockTimeout) => Ok(false),
            held => held.map_err(text),
        }
    }

    fn add_child(&mut self, session: &mut Session, slot: usize) -> Done {
        let (parent, id) = (self.some_parent(), self.some_key(slot, true));
        let row = Row { balance: parent, ..self.some_row() };
        let table = session.table(CHILDREN)?;
        session.txn.insert(&table, &data(id, &row)).map_err(text)?;
        if !Self::hold_parent(session, parent)? {
            return session.txn.rollback_statement().map_err(text);
        }
        session.effects.push(Effect::Put(CHILDREN.into(), id, row));
        Ok(())
    }

    fn move_child(&mut self, session: &mut Session, slot: usize) -> Done {
        let (id, parent) = (self.some_key(slot, false), self.some_parent());
        let Some(row) = session.expected(&self.committed, CHILDREN, id).cloned() else { return Ok(()) };
        if !Self::hold_parent(session, parent)? {
            return Ok(());
        }
        let row = Row { balance: parent, ..row };
        let table = session.table(CHILDREN)?;
        let image = image_of(table.def(), id, &row)?;
        self.modify(session, &table, id, &mut |_| Change::Replace(image.clone()))?;
        session.effects.push(Effect::Put(CHILDREN.into(), id, row));
        Ok(())
    }

    fn remove_child(&mut self, session: &mut Session, slot: usize) -> Done {
        let id = self.some_key(slot, false);
        if session.expected(&self.committed, CHILDREN, id).is_none() {
            return Ok(());
        }
        let table = session.table(CHILDREN)?;
        self.modify(session, &table, id, &mut |_| Change::Delete)?;
        session.effects.push(Effect::Remove(CHILDREN.into(), id));
        Ok(())
    }

    /// Deletes a parent, unless another session has locked it or a child refers to it.
    fn remove_parent(&mut self, session: &mut Session, slot: usize) -> Done {
        let own = self.newest_parent(|id| id % SESSIONS as i64 == slot as i64);
        let Some(id) = own else { return Ok(()) };
        if session.expected(&self.committed, PARENTS, id).is_none() {
            return Ok(());
        }
        let table = session.table(PARENTS)?;
        match session.txn.modify(&table, &key(table.def(), id), &mut |_| Ok(Change::Delete)) {
            Ok(Outcome::Changed) => {}
            Ok(_) | Err(Error::LockTimeout) => return Ok(()),
            Err(error) => return Err(text(error)),
        }
        let children = session.table(CHILDREN)?;
        if has_child(&mut session.txn, &children, id)? {
            return session.txn.rollback_statement().map_err(text);
        }
        session.effects.push(Effect::Remove(PARENTS.into(), id));
        Ok(())
    }
}

/// Returns whether a child refers to a parent. The child may be committed, or the transaction's own.
fn has_child(txn: &mut Transaction, children: &Table, parent: i64) -> Result<bool, String> {
    let def = children.def();
    let mut lower = Vec::new();
    def.push_key(&mut lower, REFERS, &Datum::Int8(parent));
    let mut upper = lower.clone();
    keys::prefix_end(&mut upper);
    let index = def.indexes.first().map_or(ScanIndex::Primary, |index| ScanIndex::Secondary(index.id));
    let spec =
        ScanSpec { index, lower: Bound::Included(&lower), upper: Bound::Excluded(&upper), ..ScanSpec::ALL };
    let mut found = false;
    let on_row = &mut |_: &[u8], _: varve_engine::RowRef<'_>| {
        found = true;
        Ok(ControlFlow::Break(()))
    };
    txn.newest_reader().scan(children, &spec, on_row).map_err(text)?;
    Ok(found)
}

/// Returns the children without their parents.
pub(super) fn orphans(txn: &mut Transaction) -> Result<Vec<String>, String> {
    let catalog = txn.catalog();
    let (Some(parents), Some(children)) = (catalog.table(SCHEMA, PARENTS), catalog.table(SCHEMA, CHILDREN))
    else {
        return Ok(Vec::new());
    };
    let ids: BTreeSet<i64> = rows(txn, &parents)?.into_iter().map(|(id, _)| id).collect();
    let orphans = rows(txn, &children)?.into_iter().filter(|(_, child)| !ids.contains(&child.balance));
    Ok(orphans.map(|(id, child)| format!("child {id} has no parent {}", child.balance)).collect())
}

/// Returns all rows of a table.
pub(super) fn rows(txn: &mut Transaction, def: &TableDef) -> Result<Vec<(i64, Row)>, String> {
    let table = txn.table(def).map_err(text)?;
    let mut found = Vec::new();
    txn.scan(&table, &ScanSpec::ALL, &mut |_, row| {
        found.push(stored(row));
        Ok(ControlFlow::Continue(()))
    })
    .map_err(text)?;
    found.into_iter().collect()
}
