//! Checks whether the session's role may run a statement.
//!
//! Invariants
//! 1. Rights are checked each time a statement runs, before it opens a table.
//! 2. A command without a known rule is allowed only to superusers.
//! 3. The result of a check is cached for one version of the catalog and one role. A version number is never
//!    used twice.
//!
//! This module does not know what roles and rights are (`crate::rights`).

use std::sync::Arc;

use crate::ast;
use crate::names::{fold, object_name};
use rustc_hash::FxHashSet;
use varve_engine::{
    BOOTSTRAP_ROLE, Catalog, Isolation, Named, ObjectId, Rights, SequenceDef, TableDef, Transaction,
    planted_panic,
};

use super::Session;
use crate::ast::{
    Comment, CommentKind, Constraint, ConstraintKind, Definition, DropKind, SequenceAction, TableAction,
    Truncate,
};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::plan::{OnConflict, Output, Plan, RowFinder, Select};
use crate::prepared::Prepared;
use crate::rights::{Holder, Kind, Need, Needed, Object, Who, denied};
use crate::system;

/// The largest number of statements that are remembered.
const REMEMBERED: usize = 1024;
/// The number of recent statements, which are found without a hash lookup.
const RECENT: usize = 16;

/// Statements that the role may run in this version of the catalog. Further executions of them need no check
/// of rights.
#[derive(Default)]
pub(super) struct Allowed {
    version: u64,
    who: Who,
    /// Recent statements, each at the index `number % RECENT`. They are found without a hash lookup.
    recent: [Option<u64>; RECENT],
    statements: FxHashSet<u64>,
}

impl Allowed {
    /// Returns whether the statement is known to be allowed.
    fn knows(&mut self, version: u64, who: Who, statement: u64) -> bool {
        if self.version != version || self.who != who || self.statements.len() >= REMEMBERED {
            self.statements.clear();
            (self.version, self.who, self.recent) = (version, who, [None; RECENT]);
        }
        let recent = &mut self.recent[statement as usize % RECENT];
        if *recent != Some(statement) {
            if !self.statements.contains(&statement) {
                return false;
            }
            *recent = Some(statement);
        }
        true
    }
}

impl Session {
    /// Fails with 42501 unless the role may run the statement with this plan.
    pub(super) fn authorize_statement(&mut self, prepared: &Prepared, plan: &Plan) -> Result<()> {
        planted_panic("panic at execute");
        let who = self.facts.who;
        let is_checked = who.is_some() || prepared.is_of_version;
        let Some(txn) = self.txn.as_mut().filter(|_| is_checked) else { return Ok(()) };
        let version = txn.catalog_version();
        if self.allowed.knows(version, who, prepared.id) {
            return Ok(());
        }
        self.authorize(plan, &prepared.needs)?;
        self.allowed.statements.insert(prepared.id);
        Ok(())
    }

    /// Returns the session's role with its current rights, or `None` for a superuser, who may do everything.
    pub(super) fn holder(&mut self) -> Option<(Arc<Catalog>, Holder)> {
        self.facts.who?;
        self.begin_engine();
        let catalog = self.txn.as_mut()?.catalog();
        let holder = Holder::of(&catalog, self.facts.who);
        (!holder.is_superuser()).then_some((catalog, holder))
    }

    /// Fails with 42501 unless the role may run the plan, which reads the relations in `needs`. The owner of
    /// a view must be allowed to read the relations that the view reads. This holds for each reader of the
    /// view, also for a superuser.
    pub(super) fn authorize(&mut self, plan: &Plan, needs: &[Need]) -> Result<()> {
        if self.facts.who.is_none() && needs.iter().all(|need| need.through.is_none()) {
            return Ok(());
        }
        let catalog = self.begin_engine().catalog();
        let holder = Holder::of(&catalog, self.facts.who);
        Check { catalog: &catalog, holder }.plan(plan, needs)
    }

    /// Fails with 42501 unless the role has this right on a table.
    pub(super) fn authorize_table(&mut self, table: &TableDef, right: Rights) -> Result<()> {
        match self.holder() {
            Some((catalog, holder)) => Check { catalog: &catalog, holder }.table(table, right),
            None => Ok(()),
        }
    }

    /// Fails with 42501 unless the role has this right on an object of a schema.
    pub(super) fn authorize_object(&mut self, object: &Object, schema: &str, right: Rights) -> Result<()> {
        let Some((catalog, holder)) = self.holder() else { return Ok(()) };
        let check = Check { catalog: &catalog, holder };
        check.schema(schema, Rights::USAGE)?;
        check.need_any(object, &[right])
    }

    /// Decides what a role learns about a relation that does not exist. If the role may not use the schema
    /// that it has named, the error is about the schema.
    pub(super) fn of_missing_relation(&self, mut error: SqlError) -> SqlError {
        if error.sqlstate != SqlState::UNDEFINED_TABLE {
            return error;
        }
        let Some(schema) = error.subject.take().and_then(|subject| subject.schema) else { return error };
        let catalog = self.shared.engine.begin_in(self.facts.database_id, Isolation::ReadCommitted).catalog();
        let check = Check { catalog: &catalog, holder: Holder::of(&catalog, self.facts.who) };
        check.schema(&schema, Rights::USAGE).err().unwrap_or(error)
    }

    /// Fails with 42501 unless the role has one of these rights on a table.
    pub(super) fn authorize_any(&mut self, table: &TableDef, rights: &[Rights]) -> Result<()> {
        let Some((catalog, holder)) = self.holder() else { return Ok(()) };
        let check = Check { catalog: &catalog, holder };
        check.schema(&table.schema, Rights::USAGE)?;
        check.need_any(&table_object(table), rights)
    }

    /// Fails with 42501 unless the role is a member of this predefined role.
    pub(super) fn authorize_member(&mut self, role: ObjectId, message: &str) -> Result<()> {
        match self.holder() {
            Some((_, holder)) if !holder.is(role) => Err(denied(message)),
            _ => Ok(()),
        }
    }

    /// Fails with 42501 unless the role is a superuser.
    pub(super) fn authorize_superuser(&mut self, message: &str) -> Result<()> {
        if self.holder().is_some() { Err(denied(message)) } else { Ok(()) }
    }
}

/// Fails with 42501 unless the role may create, alter or drop the objects of the statement. Names are looked
/// up in the transaction's catalog.
pub(super) fn authorize_definition(statement: &Definition, txn: &mut Transaction, who: Who) -> Result<()> {
    let catalog = txn.catalog();
    let holder = Holder::of(&catalog, who);
    if holder.is_superuser() { Ok(()) } else { Check { catalog: &catalog, holder }.definition(statement) }
}

/// Makes the role the owner of all objects that the transaction has created, except the first `before` ones.
pub(super) fn own_what_is_new(
    before: usize,
    txn: &mut Transaction,
    who: Who,
) -> Result<(), varve_engine::Error> {
    // An object without a stored owner belongs to the first role, so nothing needs to be stored for it.
    let Some(role) = who.filter(|role| *role != BOOTSTRAP_ROLE) else { return Ok(()) };
    let new: Vec<ObjectId> = txn.made().skip(before).collect();
    if !new.is_empty() {
        txn.hold_role(role)?;
    }
    new.into_iter().try_for_each(|object| txn.set_about(object, |about| about.owner = role))
}

struct Check<'c> {
    catalog: &'c Catalog,
    holder: Holder,
}

impl Check<'_> {
    fn plan(&self, plan: &Plan, needs: &[Need]) -> Result<()> {
        if !self.holder.is_superuser() {
            self.change(plan)?;
        }
        needs.iter().try_for_each(|need| self.read(need))?;
        match plan.query() {
            Some(query) if !self.holder.is_superuser() => self.locks(query),
            _ => Ok(()),
        }
    }

    /// Checks the rights on the table that a plan changes.
    fn change(&self, plan: &Plan) -> Result<()> {
        match plan {
            Plan::Select(_) => Ok(()),
            Plan::Insert(insert) => {
                self.table(&insert.table, Rights::INSERT)?;
                match &insert.on_conflict {
                    OnConflict::Fail | OnConflict::Nothing(None) => {}
                    // DO NOTHING with an arbiter shows whether a key exists, so it needs SELECT.
                    OnConflict::Nothing(Some(_)) => self.table(&insert.table, Rights::SELECT)?,
                    OnConflict::Update(_) => {
                        self.table(&insert.table, Rights::UPDATE)?;
                        self.table(&insert.table, Rights::SELECT)?;
                    }
                }
                self.reads(&insert.table, insert.returning.iter().flatten().map(expression))
            }
            Plan::Update(update) => {
                self.table(&update.target.table, Rights::UPDATE)?;
                let found = update.found.as_deref();
                self.found(found, &update.target.table)?;
                let assigned = update.assignments.iter().map(|(_, e)| e);
                let returned = update.returning.iter().flatten().map(expression);
                let read = update.recheck.iter().chain(assigned).chain(returned);
                self.reads_of(&update.target.table, found, read)
            }
            Plan::Delete(delete) => {
                self.table(&delete.target.table, Rights::DELETE)?;
                let found = delete.found.as_deref();
                self.found(found, &delete.target.table)?;
                let returned = delete.returning.iter().flatten().map(expression);
                self.reads_of(&delete.target.table, found, delete.recheck.iter().chain(returned))
            }
        }
    }

    /// Checks the right to read a relation in FROM. The session's role must have it. If a view reads the
    /// relation, the owner of the view must have it instead.
    fn read(&self, need: &Need) -> Result<()> {
        let owner = need.through.map(|view| Holder::of(self.catalog, Some(self.catalog.owner(view))));
        let holder = owner.as_ref().unwrap_or(&self.holder);
        match &need.what {
            Needed::System(name) => match system::readers(name) {
                _ if holder.is_superuser() => Ok(()),
                Some((reader, _)) if !holder.is(reader) => {
                    Err(denied(format!("permission denied for view {name}")))
                }
                None if *name == "pg_authid" => Err(denied("permission denied for table pg_authid")),
                None if *name == "pg_shadow" => Err(denied("permission denied for view pg_shadow")),
                _ => Ok(()),
            },
            Needed::Relation { object, schema } => {
                if owner.is_none() {
                    self.schema(schema, Rights::USAGE)?;
                }
                let may = holder.may_any(self.catalog, object, &[Rights::SELECT]);
                if may { Ok(()) } else { Err(object.denied()) }
            }
        }
    }

    /// Checks the rights for FOR UPDATE and FOR SHARE.
    fn locks(&self, select: &Select) -> Result<()> {
        let Some(lock) = &select.lock else { return Ok(()) };
        let is_locked =
            |t: &&Arc<TableDef>| lock.beside.is_empty() || lock.beside.iter().any(|l| l.table.id == t.id);
        let tables = select.tables();
        let mut locked = tables.iter().filter(is_locked);
        locked.try_for_each(|table| self.need_any(&table_object(table), &[Rights::UPDATE]))
    }

    fn found(&self, found: Option<&RowFinder>, target: &Arc<TableDef>) -> Result<()> {
        let reads = found.is_some_and(|found| !found.seen.is_empty());
        if reads { self.table(target, Rights::SELECT) } else { Ok(()) }
    }

    /// Checks SELECT on a table, if expressions of a change read its columns.
    fn reads<'e>(&self, table: &TableDef, expressions: impl Iterator<Item = &'e Expr>) -> Result<()> {
        self.reads_of(table, None, expressions)
    }

    /// Does the same as `reads` for input rows in which the table's columns may follow those of other
    /// relations.
    fn reads_of<'e>(
        &self,
        table: &TableDef,
        found: Option<&RowFinder>,
        mut expressions: impl Iterator<Item = &'e Expr>,
    ) -> Result<()> {
        let first = found.map_or(0, |found| found.others);
        let own = first..first + table.columns.len();
        let reads = |e: &Expr| {
            let mut reads = false;
            e.walk(&mut |part| reads |= matches!(part, Expr::Column(n) if own.contains(n)));
            reads
        };
        if expressions.any(reads) { self.table(table, Rights::SELECT) } else { Ok(()) }
    }

    fn table(&self, table: &TableDef, right: Rights) -> Result<()> {
        self.schema(&table.schema, Rights::USAGE)?;
        self.need_any(&table_object(table), &[right])
    }

    fn schema(&self, name: &str, right: Rights) -> Result<()> {
        match self.catalog.schemas().find(|s| s.name == name) {
            Some(schema) => self.need_any(&Object::schema(schema), &[right]),
            None => Ok(()),
        }
    }

    fn need_any(&self, object: &Object, rights: &[Rights]) -> Result<()> {
        if self.holder.may_any(self.catalog, object, rights) { Ok(()) } else { Err(object.denied()) }
    }

    /// Checks the rights for a definition. A name that does not exist is not reported here. The execution
    /// reports it.
    fn definition(&self, statement: &Definition) -> Result<()> {
        match statement {
            Definition::CreateTable(t) => {
                self.creates(&t.name)?;
                t.columns.iter().try_for_each(|c| self.refer(&c.constraints))?;
                self.refer(&t.constraints)?;
                t.partition_of.as_ref().map_or(Ok(()), |of| self.owner_of(&of.parent))
            }
            Definition::CreateTableAs(t) => self.creates(&t.name),
            Definition::CreateView(v) => {
                self.creates(&v.name)?;
                if v.or_replace { self.owner_of(&v.name) } else { Ok(()) }
            }
            Definition::CreateSequence(s) => self.creates(&s.name),
            Definition::CreateIndex(i) => self.owner_of(&i.table),
            Definition::AlterTable(a) => {
                self.owner_of(&a.name)?;
                a.actions.iter().try_for_each(|action| match action {
                    TableAction::AddConstraint(constraint) => self.refer(std::slice::from_ref(constraint)),
                    TableAction::AddColumn { column, .. } => self.refer(&column.constraints),
                    TableAction::SetSchema(schema) => self.schema(&fold(schema), Rights::CREATE),
                    _ => Ok(()),
                })
            }
            Definition::AlterSequence(s) => {
                self.owner_of(&s.name)?;
                match &s.action {
                    SequenceAction::SetSchema(schema) => self.schema(schema, Rights::CREATE),
                    _ => Ok(()),
                }
            }
            Definition::RenameIndex(r) => self.owner_of(&r.name),
            Definition::MoveIndex(m) => self.owner_of(&m.name),
            Definition::Comment(c) => self.comments(c),
            Definition::Truncate(t) => self.truncates(t),
            Definition::CreateSchema(_) => match self.catalog.database_by_id(self.catalog.database()) {
                Some(database) => self.need_any(&Object::database(database), &[Rights::CREATE]),
                None => Ok(()),
            },
            Definition::Drop(d) if d.kind == DropKind::Schema => {
                d.names.iter().try_for_each(|name| self.owner_of_schema(name))
            }
            Definition::Drop(d) => d.names.iter().try_for_each(|name| self.may_drop(name)),
        }
    }

    /// Checks the rights for COMMENT ON. The role must be the owner of the object, or of the column's table.
    fn comments(&self, c: &Comment) -> Result<()> {
        use CommentKind::{Column, Constraint, Database, Index, Role, Schema, Sequence, Table, View};
        let name = &c.name;
        match c.kind {
            Table | View | Sequence | Index => self.owner_of(name),
            Schema => self.owner_of_schema(name),
            Database => {
                let last = name.0.last().map(fold).unwrap_or_default();
                match self.catalog.database_named(&last).map(|database| Object::database(database)) {
                    Some(object) if !self.holder.owns(self.catalog, &object) => Err(object.not_owned()),
                    _ => Ok(()),
                }
            }
            Column | Constraint => {
                let parts = name.0.split_last().map_or(&[][..], |(_, of)| of);
                if parts.is_empty() { Ok(()) } else { self.owner_of(&ast::ObjectName(parts.to_vec())) }
            }
            Role => Err(denied("permission denied: only superusers may run this statement")),
        }
    }

    /// Checks the rights for TRUNCATE. With CASCADE, the tables that refer to the named ones are checked,
    /// too.
    fn truncates(&self, t: &Truncate) -> Result<()> {
        let mut tables: Vec<Arc<TableDef>> = Vec::new();
        for name in &t.tables {
            let (schema, name) = object_name(name)?;
            tables.extend(self.catalog.table(&schema, &name));
        }
        let mut at = 0;
        while let Some(table) = tables.get(at).cloned() {
            self.table(&table, Rights::TRUNCATE)?;
            if t.restart_identity {
                self.owns_sequences_of(&table)?;
            }
            let children = self.catalog.children(table.id).filter(|_| t.cascade).map(|(child, _)| child);
            let new: Vec<_> = children.filter(|c| tables.iter().all(|t| t.id != c.id)).cloned().collect();
            tables.extend(new);
            at += 1;
        }
        Ok(())
    }

    /// Checks the rights for RESTART IDENTITY. It resets sequences, so the role must be their owner.
    fn owns_sequences_of(&self, table: &TableDef) -> Result<()> {
        let is_its = |s: &&Arc<SequenceDef>| s.owned_by.is_some_and(|(owner, _)| owner == table.id);
        self.catalog.sequences().filter(is_its).try_for_each(|s| {
            let object = Object::new(s.id, Kind::Sequence, &s.name);
            if self.holder.owns(self.catalog, &object) { Ok(()) } else { Err(object.not_owned()) }
        })
    }

    /// Checks the right to refer to a table. A foreign key can keep rows from being deleted, and can show
    /// which keys exist.
    fn refer(&self, constraints: &[Constraint]) -> Result<()> {
        constraints.iter().try_for_each(|constraint| {
            let ConstraintKind::ForeignKey(key) = &constraint.kind else { return Ok(()) };
            let (schema, name) = object_name(&key.table)?;
            let table = self.catalog.table(&schema, &name);
            table.map_or(Ok(()), |table| self.table(&table, Rights::REFERENCES))
        })
    }

    fn creates(&self, name: &ast::ObjectName) -> Result<()> {
        self.schema(&object_name(name)?.0, Rights::CREATE)
    }

    fn owner_of(&self, name: &ast::ObjectName) -> Result<()> {
        let (schema, name) = object_name(name)?;
        let Some((object, asked)) = named(self.catalog, &schema, &name) else { return Ok(()) };
        if self.holder.owns(self.catalog, &object) {
            return Ok(());
        }
        Err(Object { kind: asked, name, ..object }.not_owned())
    }

    /// Checks the right to drop an object. The owner of a schema may drop the objects of other roles in it,
    /// but not change them.
    fn may_drop(&self, name: &ast::ObjectName) -> Result<()> {
        let (schema, _) = object_name(name)?;
        let around = self.catalog.schemas().find(|s| s.name == schema);
        match around {
            Some(schema) if self.holder.owns(self.catalog, &Object::schema(schema)) => Ok(()),
            _ => self.owner_of(name),
        }
    }

    fn owner_of_schema(&self, name: &ast::ObjectName) -> Result<()> {
        let wanted = object_name(name)?.1;
        let Some(schema) = self.catalog.schemas().find(|s| s.name == wanted) else { return Ok(()) };
        let object = Object::schema(schema);
        if self.holder.owns(self.catalog, &object) { Ok(()) } else { Err(object.not_owned()) }
    }
}

fn expression(output: &Output) -> &Expr {
    &output.expr
}

fn table_object(table: &TableDef) -> Object {
    Object::new(table.id, Kind::Table, &table.name)
}

/// Returns the object whose owner decides about a name, and the kind of the named object. For an index, this
/// is the table of the index.
fn named(catalog: &Catalog, schema: &str, name: &str) -> Option<(Object, Kind)> {
    Some(match catalog.resolve(schema, name)? {
        Named::Table(id) | Named::Part(id, _) => (Object::new(id, Kind::Table, name), Kind::Table),
        Named::Index(id, _) | Named::PrimaryKey(id) => (Object::new(id, Kind::Table, name), Kind::Index),
        Named::Sequence(id) => (Object::new(id, Kind::Sequence, name), Kind::Sequence),
        Named::View(id) => (Object::new(id, Kind::View, name), Kind::View),
    })
}

/// Finds the table, view or sequence that GRANT names.
pub(super) fn grantable(
    catalog: &Catalog,
    holder: &Holder,
    name: &ast::ObjectName,
) -> Result<Object, SqlError> {
    let (schema, plain) = object_name(name)?;
    if let Some(schema) = catalog.schemas().find(|s| s.name == schema).map(|s| Object::schema(s))
        && !holder.may_any(catalog, &schema, &[Rights::USAGE])
    {
        return Err(schema.denied());
    }
    if matches!(catalog.resolve(&schema, &plain), Some(Named::Part(..))) {
        return Err(SqlError::unsupported("rights on a partition")
            .with_hint("Rights are those of the partitioned table."));
    }
    match named(catalog, &schema, &plain) {
        Some((object, kind)) if kind != Kind::Index => Ok(object),
        _ => Err(crate::names::undefined_table(name)),
    }
}
