//! DDL: changes of the catalog and of its trees, in ordinary transactions.
//!
//! Invariants
//! 1. A table is locked exclusively. Then its definition is read again and changed. New names are rows of the
//!    catalog.
//! 2. An undo record names a new segment before the segment gets a page. An undo record also names a segment
//!    that is to be dropped, and purge drops it later. So neither a crash nor a rollback leaves a segment
//!    without an owner.
//! 3. A call that fails has changed nothing.
//!
//! This module does not know SQL, for example IF EXISTS.

use std::sync::{Arc, OnceLock};

use varve_device::reached;
use varve_memory::EngineKind;
use varve_pager::SpaceId;

use crate::catalog::sequence_range::StoredSequence;
use crate::catalog::{
    Catalog, Check, Definition, Derived, Identity, IndexDef, IndexId, LeafLayout, NewIndex, NewTable,
    ObjectChange, ObjectId, Partitions, PrimaryKey, SchemaDef, StorageOptions, Table, TableDef, TableId,
};
use crate::error::{Error, ObjectKind, Result};
use crate::ids::TreeAddress;
use crate::in_memory::{self, MemoryStore};
use crate::modes::LockMode;
use crate::node::columns_max;
use crate::paged::PagedStore;
use crate::row::RowSchema;
use crate::system_tables;
use crate::table_lock::TableLock;
use crate::transaction::Transaction;
use crate::tree::{Tree, TreeKind};
use crate::undo::Kind;
use crate::waits::Got;

/// The most columns of a table.
const COLUMNS_MAX: usize = 1600;
/// The most columns of a key.
const KEY_COLUMNS_MAX: usize = 32;

impl Transaction {
    /// Binds the running statement to the present catalog, and returns its version. A statement looks up
    /// names, columns and dependents before it takes locks. From now until the end of the statement, a call
    /// that gets an exclusive lock fails with `StaleDefinition` if another transaction has committed a
    /// definition since. The lock is kept, so the repeated statement makes progress.
    pub fn bind_definitions(&mut self) -> u64 {
        *self.bound.insert(self.cx.core.catalog.current().version())
    }

    /// Locks a table until the transaction ends (LOCK TABLE). The error is `StaleDefinition` if the table
    /// does not exist any more.
    pub fn lock_table(&mut self, table: TableId, mode: LockMode) -> Result<()> {
        self.locked_in(table, mode).map(|_| ())
    }

    /// Locks a table exclusively until the transaction ends.
    pub fn lock_exclusive(&mut self, table: TableId) -> Result<()> {
        self.lock_table(table, LockMode::AccessExclusive)
    }

    /// Makes a schema.
    pub fn create_schema(&mut self, name: &str) -> Result<()> {
        self.refuse_in_template()?;
        self.whole(|txn| {
            let id = txn.new_object_id()?;
            system_tables::add_name(&mut txn.cx, ObjectKind::Schema, "", name, id)?;
            let def = SchemaDef { id: ObjectId(id), database: txn.cx.database, name: name.to_owned() };
            txn.store_new(id, Definition::Schema(def)).map(|_| ())
        })
    }

    /// Locks a schema, so that no other transaction can create anything in it until this one ends. Waits for
    /// transactions that are doing so.
    pub fn lock_schema(&mut self, name: &str) -> Result<()> {
        let schema = self.schema(name)?;
        self.lock_alone(&self.cx.core.catalog.lock_of_object(schema), name)
    }

    fn schema(&mut self, name: &str) -> Result<ObjectId> {
        let missing = || Error::Undefined { kind: ObjectKind::Schema, name: name.to_owned() };
        self.catalog().schemas().find(|s| s.name == name).map(|s| s.id).ok_or_else(missing)
    }

    /// Drops an empty schema.
    pub fn drop_schema(&mut self, name: &str) -> Result<()> {
        self.lock_schema(name)?;
        let catalog = self.catalog();
        let missing = || Error::Undefined { kind: ObjectKind::Schema, name: name.to_owned() };
        let schema = catalog.schemas().find(|s| s.name == name).ok_or_else(missing)?;
        if !catalog.is_empty_schema(name) {
            let what = format!("schema {name}");
            return Err(Error::Dependent { what, because: "it is not empty".into() });
        }
        let id = schema.id;
        self.whole(|txn| {
            system_tables::remove_name_of(&mut txn.cx, "", name, id.0)?;
            system_tables::remove_object(&mut txn.cx, id.0)?;
            txn.forget_about(id)?;
            txn.note_change(ObjectChange::Schema(id, None));
            Ok(())
        })
    }

    /// Makes a table.
    pub fn create_table(&mut self, new: NewTable) -> Result<Arc<TableDef>> {
        self.hold_schema(&new.schema)?;
        check_table(&new)?;
        self.whole(|txn| {
            let id = txn.new_object_id()?;
            system_tables::add_name(&mut txn.cx, ObjectKind::Table, &new.schema, &new.name, id)?;
            if let Some(key) = &new.primary_key {
                system_tables::add_name(&mut txn.cx, ObjectKind::Index, &new.schema, &key.name, id)?;
            }
            let place = TreeAddress::in_data(0, 0);
            let mut def = table_def(new, TableId(id), txn.cx.database, place);
            match EngineKind::from_name(&def.engine) {
                Some(_) if def.storage.tablespace.is_some() => {
                    let what = format!("a tablespace for a table of engine {}", def.engine);
                    return Err(Error::Unsupported { what });
                }
                Some(kind) => {
                    def.set_stored_tables(&txn.cx.new_stored_tables(kind, &def)?);
                    in_memory::refuse_key(&def, def.primary_key.as_ref().map(|key| &*key.columns))?;
                }
                None => {
                    def.place = txn.new_tree_of_rows(&def)?;
                    txn.cx.core.catalog.trees.note_creator(def.place.owner, txn.cx.id);
                }
            }
            for check in &mut def.checks {
                let id = ObjectId(txn.new_object_id()?);
                *check = Arc::new(Check { id, ..Check::clone(check) });
            }
            txn.store_table(def, true)
        })
    }

    /// Drops a table with its indexes, parts and the sequences it owns. Fails while another table refers to
    /// it.
    pub fn drop_table(&mut self, table: TableId) -> Result<()> {
        let def = self.exclusive(table)?;
        let catalog = self.catalog();
        if let Some((child, _)) = catalog.children(table).find(|(child, _)| child.id != table) {
            let (what, because) =
                (format!("table {}", def.name), format!("table {} refers to it", child.name));
            return Err(Error::Dependent { what, because });
        }
        let mut parents: Vec<_> = def.foreign_keys.iter().map(|k| k.parent).filter(|p| *p != table).collect();
        parents.dedup();
        for parent in &parents {
            self.exclusive(*parent)?;
        }
        self.whole(|txn| {
            let owned = catalog.sequences().filter(|s| s.owned_by.is_some_and(|(t, _)| t == table));
            for sequence in owned {
                txn.remove_sequence(sequence)?;
            }
            txn.forget_about_table(&def)?;
            for (schema, name, _) in def.names() {
                system_tables::remove_name(&mut txn.cx, schema, name)?;
            }
            txn.give_up_rows(&def)?;
            system_tables::remove_object(&mut txn.cx, table.0)?;
            txn.note_change(ObjectChange::Table(table, None));
            parents.iter().try_for_each(|parent| txn.reopen(*parent))
        })
    }

    fn forget_about_table(&mut self, def: &TableDef) -> Result<()> {
        self.forget_about(def.id)?;
        def.parts_with_about().try_for_each(|object| self.forget_about(object))
    }

    /// Empties a table.
    pub fn truncate(&mut self, table: TableId) -> Result<()> {
        let old = self.exclusive(table)?;
        self.whole(|txn| {
            let mut def = TableDef::clone(&old);
            if !old.is_paged() {
                txn.cx.replace_stored_tables(&mut def)?;
                return txn.store_table(def, false).map(|_| ());
            }
            def.place = txn.new_tree_of_rows(&old)?;
            txn.cx.core.catalog.trees.note_rewriter(def.place.owner, txn.cx.id);
            txn.give_up(old.place)?;
            for index in &mut def.indexes {
                txn.give_up(index.place)?;
                let place = txn.new_tree_of_keys(old.storage, index.place.space)?;
                *index = Arc::new(IndexDef { place, ..IndexDef::clone(index) });
            }
            txn.store_table(def, false).map(|_| ())
        })
    }

    /// Makes a secondary index over the rows of a table.
    pub fn create_index(&mut self, new: NewIndex) -> Result<Arc<TableDef>> {
        let old = self.exclusive(new.table)?;
        check_key_columns(&new.columns, old.columns.len())?;
        in_memory::refuse_key(&old, new.unique.then_some(&*new.columns))?;
        self.build_new_index(&old, new, None)
    }

    /// Makes an index over expressions, or with a condition. `new.columns` are the columns that it reads.
    pub fn create_derived_index(&mut self, new: NewIndex, derived: Derived) -> Result<Arc<TableDef>> {
        let old = self.exclusive(new.table)?;
        if !old.is_paged() {
            let what =
                format!("an index with an expression or a condition on a table of engine {}", old.engine);
            return Err(Error::Unsupported { what });
        }
        let count = derived.keys.len();
        if count == 0 || count > KEY_COLUMNS_MAX {
            return invalid(format!("a key has from 1 to {KEY_COLUMNS_MAX} columns, not {count}"));
        }
        self.build_new_index(&old, new, Some(Arc::new(derived)))
    }

    fn build_new_index(
        &mut self,
        old: &Arc<TableDef>,
        new: NewIndex,
        derived: Option<Arc<Derived>>,
    ) -> Result<Arc<TableDef>> {
        self.whole(|txn| {
            let id = txn.new_object_id()?;
            system_tables::add_name(&mut txn.cx, ObjectKind::Index, &old.schema, &new.name, id)?;
            let owner = if old.is_paged() { txn.new_segment(old.storage)? } else { 0 };
            if !old.is_paged() && new.tablespace.is_some() {
                let what = format!("a tablespace for an index of engine {}", old.engine);
                return Err(Error::Unsupported { what });
            }
            let space = new.tablespace.unwrap_or(SpaceId::DATA);
            let table = txn.open_own(old)?;
            let index = IndexDef {
                id: IndexId(id),
                name: new.name,
                columns: new.columns,
                unique: new.unique,
                constraint: new.constraint,
                derived,
                place: TreeAddress { space, root: 0, owner },
            };
            if !old.is_paged() {
                let mut def = TableDef::clone(old);
                def.indexes.push(Arc::new(index));
                return txn.rebuild(old, def, None);
            }
            let tree = PagedStore::needed(&table)?.build_index(&mut txn.cx, &index)?;
            let place = tree.address();
            let mut def = TableDef::clone(old);
            def.indexes.push(Arc::new(IndexDef { place, ..index }));
            txn.store_table(def, false)
        })
    }

    /// Writes a secondary index again, in a tablespace or (`None`) in the data space.
    pub fn set_index_tablespace(
        &mut self,
        table: TableId,
        index: IndexId,
        tablespace: Option<SpaceId>,
    ) -> Result<Arc<TableDef>> {
        let old = self.exclusive(table)?;
        let missing = || Error::StaleDefinition { table: old.name.clone() };
        let before = Arc::clone(old.index(index).ok_or_else(missing)?);
        if !old.is_paged() {
            let what = format!("SET TABLESPACE for an index of engine {}", old.engine);
            return Err(Error::Unsupported { what });
        }
        self.whole(|txn| {
            reached("ddl: index moved");
            let space = tablespace.unwrap_or(SpaceId::DATA);
            let place = TreeAddress { space, root: 0, owner: txn.new_segment(old.storage)? };
            let moved = IndexDef { place, ..IndexDef::clone(&before) };
            let table = txn.open_own(&old)?;
            let tree = PagedStore::needed(&table)?.build_index(&mut txn.cx, &moved)?;
            txn.give_up(before.place)?;
            let moved = Arc::new(IndexDef { place: tree.address(), ..moved });
            let mut def = TableDef::clone(&old);
            def.indexes.iter_mut().filter(|one| one.id == index).for_each(|one| *one = Arc::clone(&moved));
            txn.store_table(def, false)
        })
    }

    /// Drops a secondary index.
    pub fn drop_index(&mut self, table: TableId, index: IndexId) -> Result<()> {
        let old = self.exclusive(table)?;
        let missing = || Error::StaleDefinition { table: old.name.clone() };
        let gone = Arc::clone(old.index(index).ok_or_else(missing)?);
        self.whole(|txn| {
            system_tables::remove_name(&mut txn.cx, &old.schema, &gone.name)?;
            txn.forget_about(index)?;
            let mut def = TableDef::clone(&old);
            def.indexes.retain(|i| i.id != index);
            if !old.is_paged() {
                return txn.rebuild(&old, def, None).map(|_| ());
            }
            txn.give_up(gone.place)?;
            txn.store_table(def, false).map(|_| ())
        })
    }

    /// Adds a primary key to a table that has none. The table is rebuilt in the order of the key.
    pub fn add_primary_key(&mut self, table: TableId, key: PrimaryKey) -> Result<Arc<TableDef>> {
        let old = self.exclusive(table)?;
        check_key_columns(&key.columns, old.columns.len())?;
        in_memory::refuse_key(&old, Some(&*key.columns))?;
        if old.primary_key.is_some() {
            let what = format!("multiple primary keys for table \"{}\" are not allowed", old.name);
            return Err(Error::InvalidDefinition { what });
        }
        self.whole(|txn| {
            system_tables::add_name(&mut txn.cx, ObjectKind::Index, &old.schema, &key.name, table.0)?;
            let mut def = TableDef::clone(&old);
            key.columns.iter().for_each(|column| def.columns[*column].not_null = true);
            def.primary_key = Some(key);
            txn.rebuild(&old, def, None)
        })
    }

    /// Replaces the default expression and NOT NULL of a column. The error is 23502 if a row has NULL there.
    pub fn alter_column(
        &mut self,
        table: TableId,
        column: usize,
        default: Option<String>,
        not_null: bool,
    ) -> Result<Arc<TableDef>> {
        let old = self.exclusive(table)?;
        if column >= old.columns.len() {
            return Err(Error::Undefined { kind: ObjectKind::Column, name: format!("number {column}") });
        }
        self.whole(|txn| {
            let mut def = TableDef::clone(&old);
            if not_null && !old.columns[column].not_null {
                let table = txn.open_own(&old)?;
                match MemoryStore::of(&table) {
                    Some(store) => store.refuse_nulls(&mut txn.cx, column)?,
                    None => PagedStore::needed(&table)?.refuse_nulls(&txn.cx, column)?,
                }
            }
            def.columns[column].default = default;
            def.columns[column].not_null = not_null;
            txn.store_table(def, false)
        })
    }

    /// Makes a column an identity column, or an ordinary column again. `default` takes values from its
    /// sequence.
    pub fn set_identity(
        &mut self,
        table: TableId,
        column: usize,
        identity: Option<Identity>,
        default: Option<String>,
    ) -> Result<Arc<TableDef>> {
        self.alter(table, |_, def| {
            def.columns[column].identity = identity;
            def.columns[column].default = default;
            Ok(())
        })
    }

    /// Runs a call. If it fails, its changes are undone.
    pub(crate) fn whole<T>(&mut self, call: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mark = self.undo_point();
        let outcome = call(self);
        if outcome.is_err() {
            // The first error is reported. If the undo fails, too, the transaction cannot be committed.
            let _ = self.undo_to(&mark);
            self.cx.pass_on();
        }
        outcome
    }

    /// Locks the schema of a new object until the transaction ends, so that the schema is not dropped.
    pub(crate) fn hold_schema(&mut self, name: &str) -> Result<()> {
        let schema = self.schema(name)?;
        self.hold(schema)?;
        // During the wait the schema may have been dropped, and another one with this name made.
        if self.schema(name)? == schema {
            Ok(())
        } else {
            Err(Error::StaleDefinition { table: name.to_owned() })
        }
    }

    pub(crate) fn new_object_id(&self) -> Result<u32> {
        let given = system_tables::advance_sequence(
            &self.cx.core,
            system_tables::OBJECT_IDS,
            |StoredSequence { next, .. }| Ok((next, StoredSequence { next: next + 1, is_ended: false })),
        )?;
        let given = given.ok_or_else(|| Error::corrupt("the row that gives out object ids is gone"))?;
        u32::try_from(given.result)
            .map_err(|_| Error::Unsupported { what: "more than four billion objects".into() })
    }

    /// Locks a table exclusively, and returns its current definition. The error is `StaleDefinition` if the
    /// table was dropped, perhaps during the wait.
    pub(crate) fn exclusive(&mut self, table: TableId) -> Result<Arc<TableDef>> {
        self.locked_in(table, LockMode::AccessExclusive)
    }

    fn locked_in(&mut self, table: TableId, mode: LockMode) -> Result<Arc<TableDef>> {
        let catalog = self.catalog();
        let open = catalog.open_table(table);
        let name = open.map_or_else(|| format!("table {}", table.0), |t| t.def().name.clone());
        let missing = || Error::StaleDefinition { table: name.clone() };
        let lock = Arc::clone(&open.ok_or_else(missing)?.lock);
        self.lock_as(&lock, mode, &name)?;
        self.catalog().table_by_id(table).ok_or_else(missing)
    }

    /// Takes an exclusive lock. The error is `StaleDefinition` if the statement was bound to another catalog
    /// than the present one.
    pub(crate) fn lock_alone(&mut self, lock: &TableLock, name: &str) -> Result<()> {
        self.lock_as(lock, LockMode::AccessExclusive, name)
    }

    fn lock_as(&mut self, lock: &TableLock, mode: LockMode, name: &str) -> Result<()> {
        crate::recovery::wait_for_losers(&mut self.cx)?;
        if lock.lock(mode, self.cx.waiting())? == Got::Before {
            return Ok(());
        }
        self.cx.renew_snapshot();
        match self.bound {
            Some(version) if version != self.cx.core.catalog.current().version() => {
                Err(Error::StaleDefinition { table: name.to_owned() })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn open_own(&mut self, def: &TableDef) -> Result<Arc<Table>> {
        let missing = || Error::StaleDefinition { table: def.name.clone() };
        self.catalog().open_table(def.id).cloned().ok_or_else(missing)
    }

    /// Makes a segment, which a rollback drops. All its pages are stored as the table says.
    pub(crate) fn new_segment(&mut self, storage: StorageOptions) -> Result<u32> {
        if let Some(how) = storage.compression {
            self.cx.core.pager.prepare_compression(how)?;
        }
        let owner = self.cx.core.pager.create_segment(SpaceId::DATA)?;
        self.cx.append_plain(Kind::NewSegment, owner, |_| Ok(None))?;
        self.cx.new_trees.push(owner);
        if storage.compression.is_some() {
            self.cx.core.pager.set_compression(SpaceId::DATA, &[(owner, storage.compression)]);
        }
        Ok(owner)
    }

    fn new_tree_of_keys(&mut self, storage: StorageOptions, space: SpaceId) -> Result<TreeAddress> {
        let owner = self.new_segment(storage)?;
        let tree = Tree::create_in(&self.cx.core.pager, space, owner, TreeKind::Secondary)?;
        Ok(tree.address())
    }

    fn new_tree_of_rows(&mut self, def: &TableDef) -> Result<TreeAddress> {
        self.check_leaf_columns(def)?;
        let owner = self.new_segment(def.storage)?;
        let (pager, widths) = (&self.cx.core.pager, def.leaf_widths());
        let tree = Tree::create_with(pager, def.storage.space(), owner, TreeKind::Clustered, &widths)?;
        Ok(tree.address())
    }

    /// Returns an error if a leaf by columns cannot have all columns of the table.
    pub(crate) fn check_leaf_columns(&self, def: &TableDef) -> Result<()> {
        let (count, most) = (def.leaf_widths().len(), columns_max(self.cx.core.pager.page_size()));
        if count <= most {
            return Ok(());
        }
        let what = format!(
            "tables WITH (layout = 'pax') can have at most {most} columns with pages of this size, not {count}"
        );
        Err(Error::TooManyColumns { what })
    }

    /// Drops the rows and indexes of a table when this transaction commits.
    pub(crate) fn give_up_rows(&mut self, def: &TableDef) -> Result<()> {
        if !def.is_paged() {
            for at in def.stored_tables() {
                self.cx.lock_partition(at.partition)?;
                self.cx.give_up_stored(at);
            }
            return Ok(());
        }
        def.indexes.iter().try_for_each(|index| self.give_up(index.place))?;
        self.give_up(def.place)
    }

    /// Gives up a segment. Purge drops it when this transaction is committed, and no older snapshot is left.
    pub(crate) fn give_up(&mut self, place: TreeAddress) -> Result<()> {
        self.cx.append_plain(Kind::DropSegment, place.owner, |_| Ok(None)).map(|_| ())
    }

    pub(crate) fn store_new(&mut self, id: u32, definition: Definition) -> Result<()> {
        system_tables::add_object(&mut self.cx, id, &definition)?;
        let change = system_tables::opened(&self.cx.core, definition);
        self.note_made(change);
        Ok(())
    }

    pub(crate) fn store_table(&mut self, def: TableDef, is_new: bool) -> Result<Arc<TableDef>> {
        let (id, definition) = (def.id, Definition::Table(Box::new(def)));
        if is_new {
            self.store_new(id.0, definition)?;
        } else {
            system_tables::set_object(&mut self.cx, id.0, &definition)?;
            let change = system_tables::opened(&self.cx.core, definition);
            self.note_change(change);
        }
        self.catalog().table_by_id(id).ok_or_else(|| Error::corrupt("a new table is not in the catalog"))
    }
}

impl Catalog {
    fn is_empty_schema(&self, name: &str) -> bool {
        let parts = |t: &TableDef| t.partitions.iter().flat_map(|p| &p.parts).any(|p| p.schema == name);
        self.tables().all(|t| t.schema != name && !parts(t))
            && self.sequences().all(|s| s.schema != name)
            && self.views().all(|v| v.schema != name)
    }
}

pub(crate) fn invalid<T>(what: String) -> Result<T> {
    Err(Error::InvalidDefinition { what })
}

/// Returns an error if no table can have this many columns.
pub(crate) fn check_column_count(count: usize) -> Result<()> {
    if count > COLUMNS_MAX {
        return Err(Error::TooManyColumns { what: format!("tables can have at most {COLUMNS_MAX} columns") });
    }
    Ok(())
}

fn check_table(new: &NewTable) -> Result<()> {
    check_column_count(new.columns.len())?;
    for (at, column) in new.columns.iter().enumerate() {
        if new.columns[..at].iter().any(|c| c.name == column.name) {
            return Err(Error::Duplicate { kind: ObjectKind::Column, name: column.name.clone() });
        }
    }
    if let Some(engine) = new.engine.as_ref().filter(|e| *e != "paged") {
        if EngineKind::from_name(engine).is_none() {
            return Err(Error::Undefined { kind: ObjectKind::Engine, name: engine.clone() });
        }
        in_memory::refuse_kinds(new, engine)?;
        if new.storage.layout == LeafLayout::ByColumns {
            return Err(Error::Unsupported {
                what: format!("WITH (layout = 'pax') for a table of engine {engine}"),
            });
        }
    }
    match &new.primary_key {
        Some(key) => check_key_columns(&key.columns, new.columns.len()),
        None => Ok(()),
    }
}

fn check_key_columns(columns: &[usize], column_count: usize) -> Result<()> {
    if columns.is_empty() || columns.len() > KEY_COLUMNS_MAX {
        return invalid(format!("a key has from 1 to {KEY_COLUMNS_MAX} columns, not {}", columns.len()));
    }
    match columns.iter().find(|c| **c >= column_count) {
        Some(column) => invalid(format!("a key names column {column} of a table with {column_count}")),
        None => Ok(()),
    }
}

fn table_def(new: NewTable, id: TableId, database: ObjectId, place: TreeAddress) -> TableDef {
    let mut columns = new.columns;
    if let Some(key) = &new.primary_key {
        key.columns.iter().for_each(|column| columns[*column].not_null = true);
    }
    let types: Vec<_> = columns.iter().map(|c| c.column_type).collect();
    TableDef {
        id,
        database,
        schema: new.schema,
        name: new.name,
        columns,
        primary_key: new.primary_key,
        indexes: Vec::new(),
        checks: new.checks.into_iter().map(Arc::new).collect(),
        foreign_keys: Vec::new(),
        partitions: new.partition_by.map(|(method, columns)| Partitions {
            method,
            columns,
            parts: Vec::new(),
        }),
        is_unlogged: new.is_unlogged,
        not_valid: Box::default(),
        storage: new.storage,
        engine: new.engine.unwrap_or_else(|| "paged".into()),
        place,
        spread: Box::default(),
        row_schema: Arc::new(RowSchema::new(&types)),
        handle: OnceLock::new(),
    }
}
