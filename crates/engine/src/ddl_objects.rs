//! DDL for constraints, partitions, views, roles, owners, grants and comments.
//!
//! Invariants
//! 1. A change of a table's constraints or partitions holds the table's exclusive lock. A new foreign key
//!    also locks the referenced table exclusively. Statements on the referenced table then get new plans,
//!    because they must check the referring rows.
//! 2. A statement that creates something on a view locks the view in shared mode. A drop or replacement locks
//!    the view exclusively. The same holds for a schema, and for a role that becomes an owner or gets a
//!    grant.
//! 3. Owners, grants and comments have no lock. They are replaced only if they are still as the transaction
//!    has read them. Otherwise the error is `StaleDefinition`.
//!
//! This module does not know SQL. The SQL layer checks under the lock whether existing rows satisfy a new
//! constraint.

use std::sync::Arc;

use varve_device::{planted, reached};

use crate::catalog::{
    About, Check, Definition, ForeignKey, NewView, ObjectChange, ObjectId, Part, RoleDef, TableDef, TableId,
    ViewDef,
};
use crate::error::{Error, ObjectKind, Result};
use crate::modes::LockMode;
use crate::system_tables;
use crate::transaction::Transaction;

impl Transaction {
    /// Adds a CHECK constraint, and assigns its id. The caller checks the existing rows afterwards.
    pub fn add_check(&mut self, table: TableId, check: Check) -> Result<Arc<TableDef>> {
        self.alter(table, |txn, def| {
            refuse_taken(def, &check.name)?;
            let id = ObjectId(txn.new_object_id()?);
            def.checks.push(Arc::new(Check { id, ..check }));
            Ok(())
        })
    }

    /// Adds a FOREIGN KEY constraint, and assigns its id. The caller checks the existing rows afterwards.
    pub fn add_foreign_key(&mut self, table: TableId, key: ForeignKey) -> Result<Arc<TableDef>> {
        let parent = key.parent;
        let referenced = self.exclusive(parent)?;
        let def = self.alter(table, |txn, def| {
            if let Some(stored) = [&*referenced, &*def].into_iter().find(|def| !def.is_paged()) {
                let (table, engine) = (&stored.name, &stored.engine);
                let what = format!("a foreign key from or to table \"{table}\" of engine {engine}");
                return Err(Error::Unsupported { what });
            }
            refuse_taken(def, &key.name)?;
            let id = ObjectId(txn.new_object_id()?);
            def.foreign_keys.push(Arc::new(ForeignKey { id, ..key }));
            Ok(())
        })?;
        self.reopen(parent)?;
        Ok(if parent == table { self.current(table)? } else { def })
    }

    /// Records whether all rows fulfil a CHECK or FOREIGN KEY constraint. The caller has checked the rows.
    pub fn set_valid(
        &mut self,
        table: TableId,
        constraint: ObjectId,
        is_valid: bool,
    ) -> Result<Arc<TableDef>> {
        self.alter(table, |_, def| {
            let others = def.not_valid.iter().copied().filter(|c| *c != constraint);
            def.not_valid = others.chain((!is_valid).then_some(constraint)).collect();
            Ok(())
        })
    }

    /// Drops a CHECK or FOREIGN KEY constraint.
    pub fn drop_constraint(&mut self, table: TableId, constraint: ObjectId) -> Result<Arc<TableDef>> {
        let old = self.exclusive(table)?;
        let parent = old.foreign_keys.iter().find(|k| k.id == constraint).map(|k| k.parent);
        if let Some(parent) = parent {
            self.exclusive(parent)?;
        }
        self.alter(table, |txn, def| {
            txn.forget_about(constraint)?;
            def.not_valid = def.not_valid.iter().copied().filter(|c| *c != constraint).collect();
            def.checks.retain(|c| c.id != constraint);
            def.foreign_keys.retain(|k| k.id != constraint);
            Ok(())
        })?;
        parent.map_or(Ok(()), |parent| self.reopen(parent))?;
        self.current(table)
    }

    /// Adds a partition to a table, and assigns its id.
    pub fn add_part(&mut self, table: TableId, part: Part) -> Result<Arc<TableDef>> {
        self.hold_schema(&part.schema)?;
        self.alter(table, |txn, def| {
            let id = txn.new_object_id()?;
            system_tables::add_name(&mut txn.cx, ObjectKind::Table, &part.schema, &part.name, id)?;
            parts_of(def)?.push(Part { id: ObjectId(id), ..part });
            Ok(())
        })
    }

    /// Removes a partition. The caller has deleted its rows before.
    pub fn drop_part(&mut self, table: TableId, part: ObjectId) -> Result<Arc<TableDef>> {
        self.alter(table, |txn, def| {
            let parts = parts_of(def)?;
            let stale = || Error::StaleDefinition { table: format!("part {}", part.0) };
            let at = parts.iter().position(|p| p.id == part).ok_or_else(stale)?;
            let gone = parts.remove(at);
            txn.forget_about(part)?;
            system_tables::remove_name(&mut txn.cx, &gone.schema, &gone.name)
        })
    }

    /// Makes a view.
    pub fn create_view(&mut self, new: NewView) -> Result<Arc<ViewDef>> {
        self.hold_schema(&new.schema)?;
        self.whole(|txn| {
            let id = txn.new_object_id()?;
            system_tables::add_name(&mut txn.cx, ObjectKind::View, &new.schema, &new.name, id)?;
            let def = view_def(new, ObjectId(id), txn.cx.database);
            txn.store_new(id, Definition::View(def.clone()))?;
            Ok(Arc::new(def))
        })
    }

    /// Locks a view until the transaction ends, for an object that will read it. The error is
    /// `StaleDefinition` if the view has changed.
    pub fn hold_view(&mut self, view: &ViewDef) -> Result<()> {
        self.hold(view.id)?;
        match *self.view(view.id)? == *view {
            true => Ok(()),
            false => Err(Error::StaleDefinition { table: view.name.clone() }),
        }
    }

    /// Locks an object that is no table until the transaction ends, so that no other transaction drops it.
    /// The caller must read its definition again afterwards.
    pub(crate) fn hold(&mut self, object: ObjectId) -> Result<()> {
        let id = TableId(object.0);
        let mode = LockMode::AccessShare;
        if !self.has_locked(id, mode) {
            self.cx.core.catalog.lock_of_object(object).lock_weak(mode, self.cx.waiting())?;
            self.locked.push((id, mode));
        }
        Ok(())
    }

    fn exclusive_view(&mut self, view: ObjectId) -> Result<Arc<ViewDef>> {
        let name = self.view(view)?.name.clone();
        self.lock_alone(&self.cx.core.catalog.lock_of_object(view), &name)?;
        self.view(view)
    }

    /// Replaces the query and the columns of a view. With another name, also renames it.
    pub fn replace_view(&mut self, view: ObjectId, new: NewView) -> Result<()> {
        let old = self.exclusive_view(view)?;
        self.whole(|txn| {
            if (&old.schema, &old.name) != (&new.schema, &new.name) {
                system_tables::remove_name_of(&mut txn.cx, &old.schema, &old.name, view.0)?;
                system_tables::add_name(&mut txn.cx, ObjectKind::View, &new.schema, &new.name, view.0)?;
            }
            let new = Definition::View(view_def(new, view, old.database));
            txn.exchange(view, Definition::View(ViewDef::clone(&old)), new)
        })
    }

    /// Drops a view.
    pub fn drop_view(&mut self, view: ObjectId) -> Result<()> {
        let old = self.exclusive_view(view)?;
        self.whole(|txn| {
            system_tables::remove_name_of(&mut txn.cx, &old.schema, &old.name, view.0)?;
            system_tables::remove_object(&mut txn.cx, view.0)?;
            txn.forget_about(view)?;
            txn.note_change(ObjectChange::View(view, None));
            Ok(())
        })
    }

    fn view(&mut self, view: ObjectId) -> Result<Arc<ViewDef>> {
        let stale = || Error::StaleDefinition { table: format!("view {}", view.0) };
        self.catalog().view_by_id(view).cloned().ok_or_else(stale)
    }

    /// Makes a role, and assigns its id.
    pub fn create_role(&mut self, role: RoleDef) -> Result<ObjectId> {
        self.whole(|txn| {
            let id = txn.new_object_id()?;
            system_tables::add_name(
                &mut txn.cx,
                ObjectKind::Role,
                system_tables::ROLE_NAMES,
                &role.name,
                id,
            )?;
            let role = RoleDef { id: ObjectId(id), ..role };
            txn.store_new(id, Definition::Role(role))?;
            Ok(ObjectId(id))
        })
    }

    /// Changes a role, including its name.
    pub fn alter_role(&mut self, role: ObjectId, edit: impl FnOnce(&mut RoleDef)) -> Result<()> {
        let old = self.role(role)?;
        let mut new = RoleDef::clone(&old);
        edit(&mut new);
        new.id = role;
        self.whole(|txn| {
            if old.name != new.name {
                system_tables::remove_name_of(&mut txn.cx, system_tables::ROLE_NAMES, &old.name, role.0)?;
                system_tables::add_name(
                    &mut txn.cx,
                    ObjectKind::Role,
                    system_tables::ROLE_NAMES,
                    &new.name,
                    role.0,
                )?;
            }
            txn.exchange(role, Definition::Role(RoleDef::clone(&old)), Definition::Role(new))
        })
    }

    /// Locks a role until the transaction ends, for an object that will belong to it, or a grant to it. The
    /// error is `Undefined` if the role does not exist any more.
    pub fn hold_role(&mut self, role: ObjectId) -> Result<()> {
        let name = self.catalog().role_by_id(role).map_or_else(|| role.0.to_string(), |r| r.name.clone());
        self.hold(role)?;
        let missing = || Error::Undefined { kind: ObjectKind::Role, name };
        self.catalog().role_by_id(role).map(|_| ()).ok_or_else(missing)
    }

    /// Locks a role until the transaction ends, so that no new object depends on it. Waits for transactions
    /// that are making such objects.
    pub fn lock_role(&mut self, role: ObjectId) -> Result<()> {
        let name = self.role(role)?.name.clone();
        self.lock_alone(&self.cx.core.catalog.lock_of_object(role), &name)
    }

    /// Drops a role. The caller has checked that nothing belongs to it.
    pub fn drop_role(&mut self, role: ObjectId) -> Result<()> {
        self.lock_role(role)?;
        let old = self.role(role)?;
        self.whole(|txn| {
            system_tables::remove_name_of(&mut txn.cx, system_tables::ROLE_NAMES, &old.name, role.0)?;
            system_tables::remove_object(&mut txn.cx, role.0)?;
            txn.forget_about(role)?;
            txn.note_change(ObjectChange::Role(role, None));
            Ok(())
        })
    }

    fn role(&mut self, role: ObjectId) -> Result<Arc<RoleDef>> {
        let stale = || Error::StaleDefinition { table: format!("role {}", role.0) };
        self.catalog().role_by_id(role).cloned().ok_or_else(stale)
    }

    /// Changes what is kept about an object: its owner, grants and comments.
    pub fn set_about(&mut self, object: impl Into<ObjectId>, edit: impl FnOnce(&mut About)) -> Result<()> {
        let object = object.into();
        let old = self.catalog().about(object).cloned();
        self.whole(|txn| {
            let mut new = match &old {
                Some(old) => About::clone(old),
                None => About::new(ObjectId(0), object),
            };
            if !new.is_stored() {
                new.id = ObjectId(txn.new_object_id()?);
            }
            edit(&mut new);
            new.object = object;
            match old.filter(|old| old.is_stored()) {
                Some(old) => {
                    let id = old.id;
                    txn.exchange(id, Definition::About(About::clone(&old)), Definition::About(new))
                }
                None => txn.store_about(new),
            }
        })
    }

    fn store_about(&mut self, new: About) -> Result<()> {
        let id = new.id.0;
        let name = new.object.0.to_string();
        let added = system_tables::add_name(
            &mut self.cx,
            ObjectKind::Constraint,
            system_tables::ABOUT_NAMES,
            &name,
            id,
        );
        added.map_err(|error| match error {
            Error::Duplicate { name, .. } => Error::StaleDefinition { table: format!("object {name}") },
            other => other,
        })?;
        self.store_new(id, Definition::About(new))
    }

    /// Removes owner, grants and comments of an object that is dropped.
    pub(crate) fn forget_about(&mut self, object: impl Into<ObjectId>) -> Result<()> {
        let object = object.into();
        let Some(old) = self.catalog().about(object).cloned() else { return Ok(()) };
        if planted("catalog: what is kept about an object stays when it goes") {
            return Ok(());
        }
        reached("catalog: nothing is kept about an object any more");
        self.forget(&old)
    }

    /// Replaces a definition that no lock protects.
    pub(crate) fn exchange(&mut self, id: ObjectId, old: Definition, new: Definition) -> Result<()> {
        system_tables::exchange_object(&mut self.cx, id.0, &old, &new)?;
        let change = system_tables::opened(&self.cx.core, new);
        self.note_change(change);
        Ok(())
    }

    /// Changes a table's definition under its exclusive lock. The rows do not change.
    pub(crate) fn alter(
        &mut self,
        table: TableId,
        edit: impl FnOnce(&mut Self, &mut TableDef) -> Result<()>,
    ) -> Result<Arc<TableDef>> {
        let old = self.exclusive(table)?;
        self.whole(|txn| {
            let mut def = TableDef::clone(&old);
            edit(txn, &mut def)?;
            txn.store_table(def, false)
        })
    }

    /// Makes statements that use this table, which is locked, get new plans.
    pub(crate) fn reopen(&mut self, table: TableId) -> Result<()> {
        let def = TableDef::clone(&*self.current(table)?);
        let change = system_tables::opened(&self.cx.core, Definition::Table(Box::new(def)));
        self.note_change(change);
        Ok(())
    }

    fn current(&mut self, table: TableId) -> Result<Arc<TableDef>> {
        let stale = || Error::StaleDefinition { table: format!("table {}", table.0) };
        self.catalog().table_by_id(table).ok_or_else(stale)
    }
}

fn view_def(new: NewView, id: ObjectId, database: ObjectId) -> ViewDef {
    let NewView { schema, name, columns, text, uses, security_invoker } = new;
    ViewDef { id, database, schema, name, columns, text, uses, security_invoker }
}

fn refuse_taken(def: &TableDef, name: &str) -> Result<()> {
    match def.has_constraint(name) {
        true => Err(Error::Duplicate { kind: ObjectKind::Constraint, name: name.to_owned() }),
        false => Ok(()),
    }
}

fn parts_of(def: &mut TableDef) -> Result<&mut Vec<Part>> {
    let name = &def.name;
    let refused = || Error::InvalidDefinition { what: format!("\"{name}\" is not partitioned") };
    def.partitions.as_mut().map(|p| &mut p.parts).ok_or_else(refused)
}
