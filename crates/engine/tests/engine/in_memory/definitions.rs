//! Definitions of tables: what is made and dropped with them, and what is refused.

use varve_engine::{
    Compression, DatabaseDef, Error, LeafLayout, NewIndex, ObjectKind, StorageOptions, TEMPLATE1, Value,
};

use super::*;

/// Checks the database before and after a restart. The check finds the chunks of a table that was not dropped
/// in its store as lost.
fn is_sound_after_restart(directory: &Arc<dyn Directory>, database: Arc<Database>) -> Arc<Database> {
    is_sound(&database);
    drop(database);
    let database = open_in(directory, 1).unwrap();
    is_sound(&database);
    database
}

fn free_bytes(database: &Database) -> u64 {
    database.tables_region().unwrap().allocator().free_bytes()
}

#[test]
fn a_rolled_back_table_leaves_nothing() {
    for engine in ENGINES {
        let (directory, database) = empty(1);
        let mut txn = begin(&database, RC);
        let def = make_in(&mut txn, "t", engine, false).unwrap();
        put(&mut txn, &def, 1, 10).unwrap();
        let savepoint = txn.savepoint();
        let other = make_in(&mut txn, "u", engine, false).unwrap();
        put(&mut txn, &other, 1, 10).unwrap();
        txn.rollback_to(savepoint).unwrap();
        assert_eq!(rows(&mut txn, &def).unwrap(), [(1, 10)], "{engine}");
        txn.rollback().unwrap();
        let database = is_sound_after_restart(&directory, database);
        assert_eq!(make(&database, "t", engine).name, "t");
    }
}

#[test]
fn dropping_and_truncating_wait_for_the_commit() {
    for engine in ENGINES {
        let (directory, database) = empty(1);
        let def = make(&database, "t", engine);
        load(&database, &def, [(1, 10)]);
        let mut txn = begin(&database, RC);
        txn.truncate(def.id).unwrap();
        let now = txn.catalog().table_by_id(def.id).unwrap();
        put(&mut txn, &now, 5, 50).unwrap();
        txn.rollback().unwrap();
        assert_eq!(all(&database, &find(&database, "t")), [(1, 10)], "{engine}");
        let mut txn = begin(&database, RC);
        txn.truncate(def.id).unwrap();
        txn.commit().unwrap();
        assert_eq!(all(&database, &find(&database, "t")), [], "{engine}");
        load(&database, &find(&database, "t"), [(2, 20)]);
        let mut txn = begin(&database, RC);
        txn.drop_table(def.id).unwrap();
        txn.rollback().unwrap();
        assert_eq!(all(&database, &find(&database, "t")), [(2, 20)], "{engine}");
        let mut txn = begin(&database, RC);
        txn.drop_table(def.id).unwrap();
        txn.commit().unwrap();
        let database = is_sound_after_restart(&directory, database);
        assert!(database.begin(RC).catalog().table("public", "t").is_none());
    }
}

#[test]
fn a_dropped_database_takes_its_tables_along() {
    for engine in ENGINES {
        let (directory, database) = empty(1);
        let kept = make(&database, "kept", engine);
        load(&database, &kept, [(1, 10)]);
        let mut txn = begin(&database, RC);
        let app = txn.create_database(DatabaseDef::new("app"), TEMPLATE1).unwrap();
        txn.commit().unwrap();
        let mut txn = database.begin_in(app, RC);
        let def = make_in(&mut txn, "t", engine, true).unwrap();
        let new = NewIndex {
            table: def.id,
            name: "t_v".into(),
            columns: vec![1],
            unique: false,
            constraint: false,
            tablespace: None,
        };
        txn.create_index(new).unwrap();
        txn.commit().unwrap();
        let mut txn = begin(&database, RC);
        txn.drop_database(app).unwrap();
        txn.rollback().unwrap();
        is_sound(&database);
        let mut txn = begin(&database, RC);
        txn.drop_database(app).unwrap();
        txn.commit().unwrap();
        assert_eq!(all(&database, &kept), [(1, 10)], "{engine}");
        let free = free_bytes(&database);
        let database = is_sound_after_restart(&directory, database);
        assert_eq!(free_bytes(&database), free, "{engine}: the start had a table to drop");
    }
}

#[test]
fn indexes_and_columns_are_changed_by_copying() {
    for engine in ENGINES {
        let (directory, database) = empty(1);
        let def = make(&database, "t", engine);
        load(&database, &def, (0..3000).map(|id| (id, id / 2)));
        let new = NewIndex {
            table: def.id,
            name: "t_v".into(),
            columns: vec![1],
            unique: true,
            constraint: false,
            tablespace: None,
        };
        let mut txn = begin(&database, RC);
        let error = txn.create_index(new.clone()).unwrap_err();
        assert!(matches!(error, Error::UniqueViolation { .. }), "{error}");
        let def = txn.create_index(NewIndex { unique: false, ..new }).unwrap();
        txn.commit().unwrap();
        is_sound(&database);
        let mut txn = begin(&database, RC);
        let kept = |column: usize| (def.columns[column].clone(), varve_engine::ColumnSource::Column(column));
        let added = (column("w", ColumnType::Int4), varve_engine::ColumnSource::Value(Value::Int4(7)));
        let def = txn.rewrite_columns(def.id, vec![kept(0), kept(1), added]).unwrap();
        txn.commit().unwrap();
        let expected: Vec<_> = (0..3000).map(|id| (id, id / 2)).collect();
        assert_eq!(all(&database, &def), expected, "{engine}");
        let mut txn = begin(&database, RC);
        let def = txn.drop_index(def.id, def.indexes[0].id).map(|()| def).unwrap();
        let def = txn.drop_primary_key(def.id).unwrap();
        txn.commit().unwrap();
        let database = is_sound_after_restart(&directory, database);
        let now = find(&database, "t");
        assert_eq!((now.indexes.len(), now.columns.len(), def.primary_key.is_none()), (0, 3, true));
        assert_eq!(all(&database, &now), expected, "{engine}");
    }
}

#[test]
fn what_the_engines_do_not_have_is_refused_by_name() {
    let (_, database) = empty(1);
    let mut txn = begin(&database, RC);
    let columns = || vec![column("id", ColumnType::Int4)];
    let compressed =
        StorageOptions { compression: Some(Compression::default()), ..StorageOptions::default() };
    let new = NewTable {
        engine: Some("nvm_inplace".into()),
        storage: compressed,
        ..NewTable::new("public", "c", columns())
    };
    let error = txn.create_table(new).unwrap_err();
    assert_eq!(
        (error.sqlstate(), &*error.to_string()),
        ("0A000", "WITH (compression) for a table of engine nvm_inplace is not supported")
    );
    let by_columns = NewTable {
        engine: Some("nvm_inplace".into()),
        storage: StorageOptions { layout: LeafLayout::ByColumns, ..StorageOptions::default() },
        ..NewTable::new("public", "c", columns())
    };
    let error = txn.create_table(by_columns).unwrap_err();
    assert_eq!(
        (error.sqlstate(), &*error.to_string()),
        ("0A000", "WITH (layout = 'pax') for a table of engine nvm_inplace is not supported")
    );
    let unknown = NewTable { engine: Some("heapless".into()), ..NewTable::new("public", "c", columns()) };
    let error = txn.create_table(unknown).unwrap_err();
    assert!(matches!(error, Error::Undefined { kind: ObjectKind::Engine, .. }));
    assert_eq!(
        (error.sqlstate(), &*error.to_string()),
        ("42704", "access method \"heapless\" does not exist")
    );
}

#[test]
fn without_a_region_the_engines_say_how_to_get_one() {
    let (_, database) = fresh();
    let mut txn = begin(&database, RC);
    let error = make_in(&mut txn, "t", "nvm_inplace", true).unwrap_err();
    assert_eq!(
        (error.sqlstate(), &*error.to_string()),
        ("55000", "table engine nvm_inplace has no persistent memory")
    );
    assert_eq!(
        error.hint(),
        Some("Set `device` and `tables` in section [nvm] of varve.toml, and start again.")
    );
}
