//! A store that is damaged is left as it is: its tables cannot be used, and all others can.

use varve_memory::{Allocator, TABLES_FILE};

use super::*;

/// Overwrites the data that the root of a store refers to.
fn damage(directory: &Arc<dyn Directory>, database: u64, engine: &str) {
    let region = directory.map(TABLES_FILE, REGION_BYTES).unwrap();
    let first = Allocator::open(Arc::clone(&region), database).unwrap().root_value(&format!("{engine} 0"));
    let first = first.unwrap();
    assert!(first > 0, "{engine}");
    region.store(first, &[0xFF; 64]);
}

/// Returns the text of an error of a damaged store, with its SQLSTATE and hint.
fn refused<T>(outcome: Result<T>, engine: &str) -> Error {
    let Err(error) = outcome else { panic!("{engine}: it was not refused") };
    let text = error.to_string();
    let names = ["tables.varve", &format!("engine {engine} in partition 0")].map(|name| text.contains(name));
    assert_eq!((error.sqlstate(), names), ("XX001", [true; 2]), "{engine}: {text}");
    assert!(error.hint().is_some_and(|hint| hint.contains("backup")), "{engine}");
    error
}

/// Reads a table, and writes to it.
fn use_table(database: &Arc<Database>, name: &str) -> Result<()> {
    let def = find(database, name);
    let mut txn = begin(database, RC);
    let table = txn.table(&def)?;
    txn.get(&table, &pk(1), &mut |_| {})?;
    txn.insert(&table, &[Datum::Int4(2), Datum::Int4(20), Datum::Text("note")])?;
    txn.rollback()
}

#[test]
fn other_tables_are_used_beside_a_damaged_store() {
    for engine in ENGINES {
        let (directory, database) = empty(2);
        for name in ENGINES {
            let def = make(&database, name, name);
            load(&database, &def, [(1, 10)]);
        }
        let id = database.pager().database_id();
        database.shutdown().unwrap();
        drop(database);
        damage(&directory, id, engine);

        let database = open_in(&directory, 2).unwrap();
        let warnings = database.warnings().join("\n");
        assert!(warnings.contains(&format!("engine {engine} in partition 0")), "{engine}: {warnings}");
        let error = refused(use_table(&database, engine), engine);
        for name in ENGINES.into_iter().filter(|name| *name != engine) {
            use_table(&database, name).unwrap();
            assert_eq!(all(&database, &find(&database, name)), [(1, 10)], "{engine}, {name}");
        }
        // A new table goes to another partition. It is not one of the tables that cannot be read.
        let new = make(&database, "new", engine);
        load(&database, &new, [(1, 10), (2, 20)]);
        let damages = database.check().unwrap().damages;
        let named = format!("table {engine} (engine {engine}, partition 0): {error}");
        assert_eq!(damages, [named, error.to_string()], "{engine}");

        let mut txn = database.begin(RC);
        txn.drop_table(find(&database, engine).id).unwrap();
        txn.commit().unwrap();
        database.shutdown().unwrap();
        drop((database, new));
        let database = open_in(&directory, 2).unwrap();
        assert_eq!(all(&database, &find(&database, "new")), [(1, 10), (2, 20)], "{engine}");
        for name in ENGINES.into_iter().filter(|name| *name != engine) {
            use_table(&database, name).unwrap();
        }
    }
}

#[test]
fn an_engine_whose_only_partition_is_damaged_makes_no_table() {
    let (directory, database) = empty(1);
    make(&database, "t", "nvm_inplace");
    let id = database.pager().database_id();
    database.shutdown().unwrap();
    drop(database);
    damage(&directory, id, "nvm_inplace");
    let database = open_in(&directory, 1).unwrap();
    let mut txn = database.begin(RC);
    refused(make_in(&mut txn, "u", "nvm_inplace", true), "nvm_inplace");
    drop(txn);
    load(&database, &make(&database, "u", "nvm_log"), [(1, 10)]);
}
