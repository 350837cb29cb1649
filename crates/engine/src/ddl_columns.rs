//! DDL of columns and names. Columns are added and dropped by a rewrite of the table. A new name needs no
//! rewrite.
//!
//! Invariants
//! 1. If an index, constraint or other object still needs a column, a rewrite that drops the column fails.
//!    The caller drops these objects first, by its own rules.
//! 2. After a rewrite the remaining definitions refer to columns by their new ordinals.
//!
//! This module does not know SQL or what a default or a condition means.

use std::sync::Arc;

use varve_device::{planted, reached};

use crate::catalog::{
    Check, ColumnDef, Definition, Derived, ForeignKey, IndexDef, KeyPart, Named, Partitions, PrimaryKey,
    SequenceDef, StorageOptions, TableDef, TableId, Use, ViewDef,
};
use crate::ddl::{check_column_count, invalid};
use crate::error::{Error, ObjectKind, Result};
use crate::ids::TreeAddress;
use crate::in_memory::MemoryStore;
use crate::paged::PagedStore;
use crate::reshape::{ColumnSource, Compute, Reshape};
use crate::row::RowSchema;
use crate::system_tables;
use crate::transaction::Transaction;
use crate::types::{ColumnType, Value};

impl Transaction {
    /// Renames a table.
    pub fn rename_table(&mut self, table: TableId, name: &str) -> Result<Arc<TableDef>> {
        self.alter(table, |txn, def| {
            system_tables::remove_name(&mut txn.cx, &def.schema, &def.name)?;
            system_tables::add_name(&mut txn.cx, ObjectKind::Table, &def.schema, name, table.0)?;
            def.name = name.to_owned();
            Ok(())
        })
    }

    /// Renames a column. `checks` are the texts of the CHECK constraints with the new name, in the order of
    /// the constraints. `derived` are the derived indexes with the new name, in their order.
    pub fn rename_column(
        &mut self,
        table: TableId,
        column: usize,
        name: &str,
        checks: Vec<String>,
        derived: Vec<Derived>,
    ) -> Result<Arc<TableDef>> {
        self.alter(table, |_, def| {
            if def.column(name).is_some() {
                return Err(Error::Duplicate { kind: ObjectKind::Column, name: name.to_owned() });
            }
            assert_eq!(checks.len(), def.checks.len(), "a text for each CHECK");
            for (check, text) in def.checks.iter_mut().zip(checks) {
                *check = Arc::new(Check { text, ..Check::clone(check) });
            }
            set_derived(def, derived);
            def.columns[column].name = name.to_owned();
            Ok(())
        })
    }

    /// Replaces the texts of the derived indexes of a table, in their order. The keys of the indexes stay the
    /// same.
    pub fn redefine_derived(&mut self, table: TableId, derived: Vec<Derived>) -> Result<Arc<TableDef>> {
        self.alter(table, |_, def| {
            set_derived(def, derived);
            Ok(())
        })
    }

    /// Renames a constraint of any kind.
    pub fn rename_constraint(&mut self, table: TableId, from: &str, to: &str) -> Result<Arc<TableDef>> {
        self.alter(table, |txn, def| {
            if def.has_constraint(to) {
                return Err(Error::Duplicate { kind: ObjectKind::Constraint, name: to.to_owned() });
            }
            let named = to.to_owned();
            if let Some(check) = def.checks.iter_mut().find(|c| c.name == from) {
                *check = Arc::new(Check { name: named, ..Check::clone(check) });
            } else if let Some(key) = def.foreign_keys.iter_mut().find(|k| k.name == from) {
                *key = Arc::new(ForeignKey { name: named, ..ForeignKey::clone(key) });
            } else if let Some(key) = def.primary_key.as_mut().filter(|k| k.name == from) {
                key.name = named;
                txn.rename_index(&def.schema, from, to, table.0)?;
            } else if let Some(index) = def.indexes.iter_mut().find(|i| i.constraint && i.name == from) {
                *index = Arc::new(IndexDef { name: named, ..IndexDef::clone(index) });
                txn.rename_index(&def.schema, from, to, index.id.0)?;
            } else {
                return Err(Error::Undefined { kind: ObjectKind::Constraint, name: from.to_owned() });
            }
            Ok(())
        })
    }

    /// Renames an index. If it belongs to a constraint, the constraint is renamed, too.
    pub fn rename_index_of(&mut self, table: TableId, from: &str, to: &str) -> Result<Arc<TableDef>> {
        self.alter(table, |txn, def| {
            let named = to.to_owned();
            let id = if let Some(key) = def.primary_key.as_mut().filter(|key| key.name == from) {
                key.name = named;
                table.0
            } else if let Some(index) = def.indexes.iter_mut().find(|index| index.name == from) {
                *index = Arc::new(IndexDef { name: named, ..IndexDef::clone(index) });
                index.id.0
            } else {
                return Err(Error::Undefined { kind: ObjectKind::Index, name: from.to_owned() });
            };
            txn.rename_index(&def.schema, from, to, id)
        })
    }

    /// Moves a table with its indexes to another schema. Its sequences stay in their schema.
    pub fn move_table(&mut self, table: TableId, schema: &str) -> Result<Arc<TableDef>> {
        self.hold_schema(schema)?;
        self.alter(table, |txn, def| {
            let names: Vec<(String, ObjectKind, u32)> = def
                .names()
                .filter_map(|(_, name, named)| {
                    let (kind, id) = match named {
                        Named::Table(id) => (ObjectKind::Table, id.0),
                        Named::PrimaryKey(id) => (ObjectKind::Index, id.0),
                        Named::Index(_, id) => (ObjectKind::Index, id.0),
                        // Parts have schemas of their own.
                        _ => return None,
                    };
                    Some((name.to_owned(), kind, id))
                })
                .collect();
            for (name, kind, id) in names {
                system_tables::remove_name(&mut txn.cx, &def.schema, &name)?;
                system_tables::add_name(&mut txn.cx, kind, schema, &name, id)?;
            }
            def.schema = schema.to_owned();
            Ok(())
        })
    }

    fn rename_index(&mut self, schema: &str, from: &str, to: &str, id: u32) -> Result<()> {
        system_tables::remove_name(&mut self.cx, schema, from)?;
        system_tables::add_name(&mut self.cx, ObjectKind::Index, schema, to, id)
    }

    /// Sets how the table's pages are stored after this transaction's commit. Existing pages change when they
    /// are written again, or [rewritten](Self::rewrite).
    /// If the layout changes, the table is rewritten.
    pub fn set_storage(&mut self, table: TableId, storage: StorageOptions) -> Result<Arc<TableDef>> {
        let old = self.exclusive(table)?;
        if storage.layout != old.storage.layout || storage.tablespace != old.storage.tablespace {
            if !old.is_paged() {
                let what = format!("SET (layout) and SET TABLESPACE for a table of engine {}", old.engine);
                return Err(Error::Unsupported { what });
            }
            let def = TableDef { storage, ..TableDef::clone(&old) };
            return self.whole(|txn| txn.rebuild(&old, def, None));
        }
        self.alter(table, |txn, def| {
            if let (Some(_), false) = (storage.compression, def.is_paged()) {
                let what = format!("SET (compression) for a table of engine {}", def.engine);
                return Err(Error::Unsupported { what });
            }
            if let Some(how) = storage.compression {
                // The control file is written here, because a commit must not fail when it cannot be written.
                txn.cx.core.pager.prepare_compression(how)?;
            }
            def.storage = storage;
            Ok(())
        })
    }

    /// Moves the rows of a table, unchanged, to new trees without gaps, stored as the table says (VACUUM
    /// FULL).
    pub fn rewrite(&mut self, table: TableId) -> Result<Arc<TableDef>> {
        let old = self.exclusive(table)?;
        self.whole(|txn| txn.rebuild(&old, TableDef::clone(&old), None))
    }

    /// Drops the primary key. The rows keep their order, under row ids.
    pub fn drop_primary_key(&mut self, table: TableId) -> Result<Arc<TableDef>> {
        let old = self.exclusive(table)?;
        let missing = || Error::StaleDefinition { table: old.name.clone() };
        let key = old.primary_key.clone().ok_or_else(missing)?;
        self.whole(|txn| {
            system_tables::remove_name(&mut txn.cx, &old.schema, &key.name)?;
            let def = TableDef { primary_key: None, ..TableDef::clone(&old) };
            txn.rebuild(&old, def, None)
        })
    }

    /// Moves the rows of a table to new trees with these columns, of which none is computed. Columns that are
    /// not among the sources are dropped. The call fails if a key, an index, a constraint, the partition key
    /// or a view still needs one of them.
    pub fn rewrite_columns(
        &mut self,
        table: TableId,
        columns: Vec<(ColumnDef, ColumnSource)>,
    ) -> Result<Arc<TableDef>> {
        self.recompute_columns(table, columns, &mut |_, _| Ok(Value::Null))
    }

    /// Does the same as `rewrite_columns`, but `compute` returns the value of each computed column in each
    /// row.
    pub fn recompute_columns(
        &mut self,
        table: TableId,
        columns: Vec<(ColumnDef, ColumnSource)>,
        compute: &mut Compute<'_>,
    ) -> Result<Arc<TableDef>> {
        let old = self.exclusive(table)?;
        if columns.is_empty() {
            return invalid("tables must have at least one column".into());
        }
        check_column_count(columns.len())?;
        let (columns, sources): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let place = |old: usize| sources.iter().position(|source| source.before() == Some(old));
        self.whole(|txn| {
            let def = reshape(&old, columns, &place)?;
            txn.move_what_names_columns(&old, &place)?;
            txn.rebuild(&old, def, Some(Reshape { sources: &sources, compute }))
        })
    }

    /// Changes the types of columns without rewriting rows. The caller ensures that the stored values are the
    /// same with the new types, in rows and in keys.
    pub fn retype_columns(&mut self, table: TableId, types: &[(usize, ColumnType)]) -> Result<Arc<TableDef>> {
        self.alter(table, |_, def| {
            for (column, column_type) in types {
                let width = def.columns[*column].column_type.fixed_width_bytes();
                assert_eq!(width, column_type.fixed_width_bytes(), "a type whose values take other room");
                def.columns[*column].column_type = *column_type;
            }
            let types: Vec<_> = def.columns.iter().map(|c| c.column_type).collect();
            def.row_schema = Arc::new(RowSchema::new(&types));
            Ok(())
        })
    }

    /// Updates the ordinals of the table's columns in other definitions.
    fn move_what_names_columns(
        &mut self,
        table: &TableDef,
        place: &dyn Fn(usize) -> Option<usize>,
    ) -> Result<()> {
        let catalog = self.catalog();
        for sequence in catalog.sequences() {
            if let Some((owner, column)) = sequence.owned_by
                && owner == table.id
            {
                match place(column) {
                    Some(column) => {
                        let owned_by = Some((owner, column));
                        self.replace_sequence(SequenceDef { owned_by, ..SequenceDef::clone(sequence) })?;
                    }
                    None => self.remove_sequence(sequence)?,
                }
            }
        }
        for view in catalog.views() {
            let mut moved = ViewDef::clone(view);
            for Use { columns, .. } in moved.uses.iter_mut().filter(|u| u.object == table.id.into()) {
                *columns = moved_all(columns, place).ok_or_else(|| needed(table, &view.name))?;
            }
            if moved != **view {
                let old = Definition::View(ViewDef::clone(view));
                self.exchange(view.id, old, Definition::View(moved))?;
            }
        }
        for (child, _) in catalog.children(table.id).filter(|(child, _)| child.id != table.id) {
            self.alter(child.id, |_, def| {
                for key in def.foreign_keys.iter_mut().filter(|k| k.parent == table.id) {
                    let columns = moved_all(&key.parent_columns, place);
                    let parent_columns = columns.ok_or_else(|| needed(table, &key.name))?;
                    *key = Arc::new(ForeignKey { parent_columns, ..ForeignKey::clone(key) });
                }
                Ok(())
            })?;
        }
        if catalog.about(table.id).is_some_and(|about| about.comments.iter().any(|c| c.column.is_some())) {
            self.set_about(table.id, |about| {
                about.comments.retain_mut(|comment| match comment.column {
                    None => true,
                    Some(column) => {
                        comment.column = place(column);
                        comment.column.is_some()
                    }
                });
            })?;
        }
        Ok(())
    }

    /// Moves the rows of a locked table to new trees. `columns` says where each column comes from.
    pub(crate) fn rebuild(
        &mut self,
        old: &Arc<TableDef>,
        mut def: TableDef,
        columns: Option<Reshape<'_, '_>>,
    ) -> Result<Arc<TableDef>> {
        reached("ddl: table rewritten");
        let columns = columns.filter(|_| !planted("rewrite: the rows' new columns are not there"));
        let table = self.open_own(old)?;
        if let Some(store) = MemoryStore::of(&table) {
            store.rebuild(&mut self.cx, &mut def, columns)?;
            return self.store_table(def, false);
        }
        self.check_leaf_columns(&def)?;
        let owner = self.new_segment(def.storage)?;
        let tree = PagedStore::needed(&table)?.rebuild(&mut self.cx, &def, owner, columns)?;
        def.place = tree.address();
        self.cx.core.catalog.trees.note_rewriter(owner, self.cx.id);
        self.give_up(old.place)?;
        let bare = TableDef { indexes: Vec::new(), ..TableDef::clone(&def) };
        let rebuilt = PagedStore::open(&self.cx.core, &Arc::new(bare));
        let storage = def.storage;
        for index in &mut def.indexes {
            self.give_up(index.place)?;
            let place = TreeAddress { owner: self.new_segment(storage)?, root: 0, ..index.place };
            let tree = rebuilt.build_index(&mut self.cx, &IndexDef { place, ..IndexDef::clone(index) })?;
            let place = tree.address();
            *index = Arc::new(IndexDef { place, ..IndexDef::clone(index) });
        }
        self.store_table(def, false)
    }
}

fn set_derived(def: &mut TableDef, derived: Vec<Derived>) {
    assert_eq!(derived.len(), def.derived_indexes().count(), "one for each derived index");
    for (index, derived) in def.indexes.iter_mut().filter(|index| !index.is_plain()).zip(derived) {
        *index = Arc::new(IndexDef { derived: Some(Arc::new(derived)), ..IndexDef::clone(index) });
    }
}

fn needed(table: &TableDef, by: &str) -> Error {
    Error::Dependent { what: format!("a column of table {}", table.name), because: format!("{by} needs it") }
}

fn moved_all(columns: &[usize], place: &dyn Fn(usize) -> Option<usize>) -> Option<Vec<usize>> {
    columns.iter().map(|column| place(*column)).collect()
}

/// Returns the definition with other columns. It still names the old trees.
fn reshape(
    old: &TableDef,
    columns: Vec<ColumnDef>,
    place: &dyn Fn(usize) -> Option<usize>,
) -> Result<TableDef> {
    let moved = |columns: &[usize], by: &str| moved_all(columns, place).ok_or_else(|| needed(old, by));
    let types: Vec<_> = columns.iter().map(|c| c.column_type).collect();
    let mut def = TableDef { columns, row_schema: Arc::new(RowSchema::new(&types)), ..TableDef::clone(old) };
    if let Some(PrimaryKey { name, columns }) = &mut def.primary_key {
        *columns = moved(columns, name)?;
    }
    if let Some(Partitions { columns, .. }) = &mut def.partitions {
        *columns = moved(columns, "the partition key")?;
    }
    for index in &mut def.indexes {
        let columns = moved(&index.columns, &index.name)?;
        let mut derived = index.derived.as_deref().cloned();
        for key in derived.iter_mut().flat_map(|derived| &mut derived.keys) {
            if let KeyPart::Column(ordinal) = key {
                *ordinal = place(*ordinal).ok_or_else(|| needed(old, &index.name))?;
            }
        }
        let derived = derived.map(Arc::new);
        *index = Arc::new(IndexDef { columns, derived, ..IndexDef::clone(index) });
    }
    for check in &mut def.checks {
        let columns = moved(&check.columns, &check.name)?;
        *check = Arc::new(Check { columns, ..Check::clone(check) });
    }
    for key in &mut def.foreign_keys {
        let columns = moved(&key.columns, &key.name)?;
        let parent_columns = match key.parent == old.id {
            true => moved(&key.parent_columns, &key.name)?,
            false => key.parent_columns.clone(),
        };
        *key = Arc::new(ForeignKey { columns, parent_columns, ..ForeignKey::clone(key) });
    }
    Ok(def)
}
