//! DDL of databases: CREATE, ALTER and DROP DATABASE.
//!
//! Invariants
//! 1. A new database gets the schema `public` of its template. A database and all its objects are dropped in
//!    one transaction, so a crash leaves all of them or none.
//! 2. The caller of a drop ensures that no session uses the database. The drop locks no object in it.
//!
//! This module does not know sessions, rights, or what a setting means.

use std::sync::Arc;

use crate::catalog::{
    About, BOOTSTRAP_ROLE, Catalog, DatabaseDef, Definition, ObjectChange, ObjectId, PUBLIC, SchemaDef,
    TEMPLATE0, TEMPLATE1, TableDef, predefined,
};
use crate::error::{Error, ObjectKind, Result};
use crate::system_tables;
use crate::transaction::Transaction;

impl Transaction {
    /// Makes a database, and returns its id, which is assigned here. The database gets the schema `public` of
    /// the template with its owner, rights and comment. If the schema was dropped in the template, the new
    /// database has none either. The caller checks that the template has no other objects.
    pub fn create_database(&mut self, new: DatabaseDef, template: ObjectId) -> Result<ObjectId> {
        let public = self.public_of(template);
        public.iter().flat_map(About::roles).try_for_each(|role| self.hold_role(role))?;
        self.whole(|txn| {
            let id = txn.new_object_id()?;
            system_tables::add_name(
                &mut txn.cx,
                ObjectKind::Database,
                system_tables::DATABASE_NAMES,
                &new.name,
                id,
            )?;
            let database = ObjectId(id);
            txn.store_new(id, Definition::Database(DatabaseDef { id: database, ..new }))?;
            if let Some(about) = public {
                txn.inside(database, |txn| txn.create_public(about))?;
            }
            Ok(database)
        })
    }

    /// Returns owner, rights and comment for a copy of the schema `public` of a database. Returns `None` if
    /// the schema was dropped there. The first templates do not store these values, so theirs are those of
    /// PostgreSQL.
    fn public_of(&mut self, template: ObjectId) -> Option<About> {
        let inside = self.catalog().of_database(template);
        let mut about = match inside.schemas().find(|schema| schema.name == PUBLIC) {
            Some(public) => match inside.about(public.id) {
                Some(about) => About::clone(about),
                None => About::new(ObjectId(0), public.id),
            },
            None if matches!(template, TEMPLATE0 | TEMPLATE1) => {
                let mut about = About::new(ObjectId(0), ObjectId(0));
                about.set_comment(None, Some(system_tables::PUBLIC_COMMENT.to_owned()));
                about
            }
            None => return None,
        };
        // Unless the schema was given to another role, it belongs to the owner of the database.
        if about.owner == BOOTSTRAP_ROLE {
            about.change_role(BOOTSTRAP_ROLE, predefined::DATABASE_OWNER);
        }
        Some(about)
    }

    fn create_public(&mut self, copied: About) -> Result<()> {
        let id = self.new_object_id()?;
        system_tables::add_name(&mut self.cx, ObjectKind::Schema, "", PUBLIC, id)?;
        let public = SchemaDef { id: ObjectId(id), database: self.cx.database, name: PUBLIC.to_owned() };
        self.store_new(id, Definition::Schema(public))?;
        self.set_about(ObjectId(id), |about| *about = About { id: about.id, ..copied })
    }

    /// Runs a call that uses the names of another database.
    fn inside<T>(&mut self, database: ObjectId, call: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let own = std::mem::replace(&mut self.cx.database, database);
        let outcome = call(self);
        self.cx.database = own;
        outcome
    }

    /// Changes the definition of a database, including its name.
    pub fn alter_database(&mut self, database: ObjectId, edit: impl FnOnce(&mut DatabaseDef)) -> Result<()> {
        let old = self.database_def(database)?;
        let mut new = DatabaseDef::clone(&old);
        edit(&mut new);
        new.id = database;
        self.whole(|txn| {
            if !system_tables::has_object(&mut txn.cx, database.0)? {
                return txn.store_predefined(new);
            }
            if old.name != new.name {
                system_tables::remove_name_of(
                    &mut txn.cx,
                    system_tables::DATABASE_NAMES,
                    &old.name,
                    database.0,
                )?;
                txn.name_database(&new)?;
            }
            txn.exchange(database, Definition::Database(DatabaseDef::clone(&old)), Definition::Database(new))
        })
    }

    fn name_database(&mut self, def: &DatabaseDef) -> Result<()> {
        system_tables::add_name(
            &mut self.cx,
            ObjectKind::Database,
            system_tables::DATABASE_NAMES,
            &def.name,
            def.id.0,
        )
    }

    /// Stores the definition of a predefined database at its first change.
    fn store_predefined(&mut self, def: DatabaseDef) -> Result<()> {
        let stale = Error::StaleDefinition { table: format!("database {}", def.name) };
        let id = def.id.0;
        let definition = Definition::Database(def.clone());
        system_tables::add_object(&mut self.cx, id, &definition).map_err(|error| match error {
            Error::UniqueViolation { .. } => stale,
            other => other,
        })?;
        self.name_database(&def)?;
        self.note_change(system_tables::opened(&self.cx.core, definition));
        Ok(())
    }

    /// Locks a database, so that no other transaction can change or drop it until this one ends.
    pub fn lock_database(&mut self, database: ObjectId) -> Result<()> {
        let name = self.database_def(database)?.name.clone();
        self.lock_alone(&self.cx.core.catalog.lock_of_object(database), &name)
    }

    /// Drops a database with all its objects. The caller ensures that no session uses it.
    pub fn drop_database(&mut self, database: ObjectId) -> Result<()> {
        self.lock_database(database)?;
        let old = self.database_def(database)?;
        if old.is_predefined() {
            return Err(Error::Unsupported { what: format!("DROP DATABASE {}", old.name) });
        }
        let catalog = self.catalog().of_database(database);
        self.whole(|txn| {
            txn.inside(database, |txn| txn.drop_contents(&catalog))?;
            system_tables::remove_name_of(&mut txn.cx, system_tables::DATABASE_NAMES, &old.name, database.0)?;
            txn.remove(&catalog, database, ObjectChange::Database(database, None))
        })
    }

    fn drop_contents(&mut self, catalog: &Catalog) -> Result<()> {
        for view in catalog.views() {
            system_tables::remove_name(&mut self.cx, &view.schema, &view.name)?;
            self.remove(catalog, view.id, ObjectChange::View(view.id, None))?;
        }
        for sequence in catalog.sequences() {
            system_tables::remove_name(&mut self.cx, &sequence.schema, &sequence.name)?;
            system_tables::remove_sequence(&mut self.cx, sequence.state)?;
            self.remove(catalog, sequence.id, ObjectChange::Sequence(sequence.id, None))?;
        }
        catalog.tables().try_for_each(|table| self.drop_whole_table(catalog, table))?;
        for schema in catalog.schemas() {
            system_tables::remove_name(&mut self.cx, "", &schema.name)?;
            self.remove(catalog, schema.id, ObjectChange::Schema(schema.id, None))?;
        }
        Ok(())
    }

    /// Drops a table even if other objects refer to it, because these are dropped, too.
    fn drop_whole_table(&mut self, catalog: &Catalog, def: &Arc<TableDef>) -> Result<()> {
        for (schema, name, _) in def.names() {
            system_tables::remove_name(&mut self.cx, schema, name)?;
        }
        for about in def.parts_with_about().filter_map(|object| catalog.about(object)) {
            self.forget(about)?;
        }
        self.give_up_rows(def)?;
        self.remove(catalog, def.id, ObjectChange::Table(def.id, None))
    }

    /// Removes a definition, and the object's owner, grants and comments.
    fn remove(&mut self, catalog: &Catalog, id: impl Into<ObjectId>, change: ObjectChange) -> Result<()> {
        let id = id.into();
        system_tables::remove_object(&mut self.cx, id.0)?;
        if let Some(about) = catalog.about(id) {
            self.forget(about)?;
        }
        self.note_change(change);
        Ok(())
    }

    /// Removes owner, grants and comments of an object.
    pub(crate) fn forget(&mut self, about: &About) -> Result<()> {
        let name = about.object.0.to_string();
        system_tables::remove_name_of(&mut self.cx, system_tables::ABOUT_NAMES, &name, about.id.0)?;
        system_tables::remove_object(&mut self.cx, about.id.0)?;
        self.note_change(ObjectChange::About(about.object, None));
        Ok(())
    }

    fn database_def(&mut self, database: ObjectId) -> Result<Arc<DatabaseDef>> {
        let stale = || Error::StaleDefinition { table: format!("database {}", database.0) };
        self.catalog().database_by_id(database).cloned().ok_or_else(stale)
    }

    /// Returns the error `Unsupported` in a template, because new databases are made without a copy of its
    /// objects.
    pub(crate) fn refuse_in_template(&self) -> Result<()> {
        match self.cx.database {
            TEMPLATE0 | TEMPLATE1 => {
                Err(Error::Unsupported { what: "a schema in a template database".into() })
            }
            _ => Ok(()),
        }
    }
}
