//! Runs ALTER ... OWNER TO and REASSIGN OWNED.
//!
//! Invariants
//! 1. The owner of a table also owns its indexes, and the sequences of its columns.
//! 2. Grants to the old owner, and grants by the old owner, pass to the new owner.
//!
//! This module does not know the syntax of the commands (`utility::owner`).

use varve_engine::{BOOTSTRAP_ROLE, Catalog, Grant, Named, ObjectId, Rights, TableId};

use super::Session;
use super::roles::Done;
use crate::error::{Result, SqlError, SqlState};
use crate::rights::{Holder, Kind, Object, denied, grant, memberships};
use crate::sink::Severity;
use crate::utility::owner::{Owned, OwnerChange, Word};
use crate::utility::role::RoleName;

/// Returns the command's name in messages.
fn name_of(change: &OwnerChange) -> &'static str {
    match change {
        OwnerChange::Of(Owned::Relation { word, .. }, _) => word.tag(),
        OwnerChange::Of(Owned::Schema(_), _) => "ALTER SCHEMA",
        OwnerChange::All(..) => "REASSIGN OWNED",
    }
}

impl Session {
    /// Runs a command that changes owners.
    pub(super) fn change_owner(&mut self, change: &OwnerChange) -> Result<&'static str> {
        self.in_turns(name_of(change), &mut |session| match change {
            OwnerChange::Of(Owned::Relation { word, name, if_exists }, to) => {
                session.own_relation(*word, name, *if_exists, to)
            }
            OwnerChange::Of(Owned::Schema(name), to) => session.own_schema(name, to),
            OwnerChange::All(from, to) => session.reassign(from, to),
        })
    }

    fn own_relation(
        &mut self,
        word: Word,
        written: &crate::ast::ObjectName,
        if_exists: bool,
        to: &RoleName,
    ) -> Done<&'static str> {
        let (catalog, holder) = self.rights()?;
        self.follow_catalog(&catalog);
        let (schema, name) = self.facts.path.find(&catalog, written)?;
        if written.0.len() > 1
            && let Some(schema) = catalog.schemas().find(|s| s.name == schema).map(|s| Object::schema(s))
            && !holder.may_any(&catalog, &schema, &[Rights::USAGE])
        {
            return Err(schema.denied().into());
        }
        let Some(named) = catalog.resolve(&schema, &name) else {
            if !if_exists {
                return Err(crate::names::undefined_table(written).into());
            }
            let message = format!("relation \"{name}\" does not exist, skipping");
            self.notices.push((Severity::Notice, SqlError::new(SqlState("00000"), message)));
            return Ok(word.tag());
        };
        let (object, decides) = objects(named, &name);
        if !holder.owns(&catalog, &decides) {
            return Err(object.not_owned().into());
        }
        word.check(&object)?;
        let to = self.role_named(to)?;
        let from = catalog.owner(decides.id);
        if from == to {
            return Ok(word.tag());
        }
        if matches!(named, Named::Part(..)) {
            return Err(SqlError::unsupported("another owner for a partition than for its table")
                .with_hint("Change the owner of the partitioned table.")
                .into());
        }
        match object.kind {
            Kind::Index => {
                let message = format!("cannot change owner of index \"{name}\"");
                let warning = SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
                    .with_hint("Change the ownership of the index's table, instead.");
                self.notices.push((Severity::Warning, warning));
                return Ok(word.tag());
            }
            Kind::Sequence => check_free(&catalog, &object)?,
            _ => {}
        }
        if !holder.is_superuser() {
            self.check_member(&catalog, to)?;
            check_may_create(&catalog, to, &schema)?;
        }
        self.hand_over(&catalog, object.id, to)?;
        Ok(word.tag())
    }

    fn own_schema(&mut self, name: &str, to: &RoleName) -> Done<&'static str> {
        let (catalog, holder) = self.rights()?;
        let Some(schema) = catalog.schemas().find(|s| s.name == name) else {
            let message = format!("schema \"{name}\" does not exist");
            return Err(SqlError::new(SqlState::INVALID_SCHEMA, message).into());
        };
        let object = Object::schema(schema);
        let to = self.role_named(to)?;
        if catalog.owner(object.id) == to {
            return Ok("ALTER SCHEMA");
        }
        if !holder.owns(&catalog, &object) {
            return Err(object.not_owned().into());
        }
        if !holder.is_superuser() {
            self.check_member(&catalog, to)?;
            if let Some(database) =
                catalog.database_by_id(self.facts.database_id).map(|d| Object::database(d))
                && !holder.may_any(&catalog, &database, &[Rights::CREATE])
            {
                return Err(database.denied().into());
            }
        }
        self.hand_over(&catalog, object.id, to)?;
        Ok("ALTER SCHEMA")
    }

    fn reassign(&mut self, from: &[RoleName], to: &RoleName) -> Done<&'static str> {
        let (catalog, holder) = self.rights()?;
        let from = from.iter().map(|role| self.role_named(role)).collect::<Result<Vec<_>>>()?;
        let may = |role: &ObjectId| holder.is(*role);
        if !from.iter().all(may) {
            return Err(denied("permission denied to reassign objects").into());
        }
        let to = self.role_named(to)?;
        if !may(&to) {
            return Err(denied("permission denied to reassign objects").into());
        }
        if from.contains(&BOOTSTRAP_ROLE) {
            let role = catalog.role_by_id(BOOTSTRAP_ROLE).map_or("postgres", |role| &role.name);
            let message = format!(
                "cannot reassign ownership of objects owned by role {role} because they are required by the database \
                 system"
            );
            return Err(SqlError::new(SqlState("2BP01"), message).into());
        }
        let relations = catalog.tables().map(|t| t.id.into()).chain(catalog.views().map(|v| v.id));
        let relations = relations.chain(catalog.sequences().map(|s| s.id.into()));
        let others = catalog.schemas().map(|s| s.id).chain(catalog.databases().map(|database| database.id));
        let all: Vec<ObjectId> = relations.chain(others).collect();
        for object in all.into_iter().filter(|object| from.contains(&catalog.owner(*object))) {
            self.hand_over(&catalog, object, to)?;
        }
        Ok("REASSIGN OWNED")
    }

    /// Fails with 42501 unless the session's role is a member of this role.
    pub(super) fn check_member(&self, catalog: &Catalog, role: ObjectId) -> Result<()> {
        let who = self.facts.who;
        if who.is_none_or(|who| memberships(catalog, who, &|_| true).contains(&role)) {
            return Ok(());
        }
        let name = catalog.role_by_id(role).map_or("", |role| &role.name);
        Err(denied(format!("must be member of role \"{name}\"")))
    }

    /// Makes the role the owner of the object, and of the sequences that columns of a table own.
    pub(super) fn hand_over(&mut self, catalog: &Catalog, object: ObjectId, to: ObjectId) -> Result<()> {
        self.hold_role(to)?;
        let sequences = catalog.sequences();
        let its = sequences.filter(|s| s.owned_by.is_some_and(|(table, _)| ObjectId::from(table) == object));
        let objects: Vec<ObjectId> = std::iter::once(object).chain(its.map(|s| s.id.into())).collect();
        for object in objects {
            let from = catalog.owner(object);
            self.transaction()?.set_about(object, |about| {
                about.owner = to;
                about.grants = about.grants.take().map(|grants| handed_over(grants, from, to));
            })?;
        }
        Ok(())
    }
}

impl Word {
    fn tag(self) -> &'static str {
        match self {
            Word::Table => "ALTER TABLE",
            Word::View => "ALTER VIEW",
            Word::Sequence => "ALTER SEQUENCE",
            Word::Index => "ALTER INDEX",
        }
    }

    /// Fails with 42809 if the object has another kind than the command says. ALTER TABLE accepts all kinds.
    fn check(self, object: &Object) -> Result<()> {
        let (kind, what) = match self {
            Word::Table => return Ok(()),
            Word::View => (Kind::View, "a view"),
            Word::Sequence => (Kind::Sequence, "a sequence"),
            Word::Index => (Kind::Index, "an index"),
        };
        if object.kind == kind {
            return Ok(());
        }
        let message = format!("\"{}\" is not {what}", object.name);
        Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message))
    }
}

/// Returns the object of a name, and the object whose owner counts. For an index, the second one is its
/// table.
fn objects(named: Named, name: &str) -> (Object, Object) {
    let of_table =
        |table: TableId, kind| (Object::new(table, kind, name), Object::new(table, Kind::Table, name));
    let itself = |object: Object| (object.clone(), object);
    match named {
        Named::Table(id) => itself(Object::new(id, Kind::Table, name)),
        // A partition has no owner of its own.
        Named::Part(table, _) => of_table(table, Kind::Table),
        Named::View(id) => itself(Object::new(id, Kind::View, name)),
        Named::Sequence(id) => itself(Object::new(id, Kind::Sequence, name)),
        Named::Index(table, _) | Named::PrimaryKey(table) => of_table(table, Kind::Index),
    }
}

/// Fails with 0A000 for a sequence that a column owns, because its owner is always the table's owner.
fn check_free(catalog: &Catalog, sequence: &Object) -> Result<()> {
    let def = catalog.sequences().find(|s| ObjectId::from(s.id) == sequence.id);
    let table = def.and_then(|def| catalog.table_by_id(def.owned_by?.0));
    let Some(table) = table else { return Ok(()) };
    let name = &sequence.name;
    let message = format!("cannot change owner of sequence \"{name}\"");
    let detail = format!("Sequence \"{name}\" is linked to table \"{}\".", table.name);
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_detail(detail))
}

/// Fails with 42501 unless the new owner may create objects in the schema.
fn check_may_create(catalog: &Catalog, role: ObjectId, schema: &str) -> Result<()> {
    let Some(schema) = catalog.schemas().find(|s| s.name == schema) else { return Ok(()) };
    let object = Object::schema(schema);
    match Holder::of(catalog, Some(role)).may_any(catalog, &object, &[Rights::CREATE]) {
        true => Ok(()),
        false => Err(object.denied()),
    }
}

/// Returns the grants after a change of the owner. Grants to the old owner, and by the old owner, pass to the
/// new one.
fn handed_over(grants: Vec<Grant>, from: ObjectId, to: ObjectId) -> Vec<Grant> {
    let mut after = Vec::with_capacity(grants.len());
    for old in grants {
        let grantee = if old.grantee == Some(from) { Some(to) } else { old.grantee };
        let grantor = if old.grantor == from { to } else { old.grantor };
        grant(&mut after, Grant { grantee, grantor, ..old });
    }
    after
}
