//! Stored procedures run serially in their partition, and at the same time as those of other partitions.

use std::sync::{Arc, Barrier};
use std::thread;

use varve_engine::{
    Change, Datum, Error, LockMode, Outcome, Partition, PartitionMethod, RowImage, TableDef, key_hash,
};

use super::*;

/// Makes accounts that are spread over two partitions.
fn accounts(engine: &str) -> (Arc<Database>, Arc<TableDef>) {
    let (_, database) = empty(2);
    let columns = vec![column("id", ColumnType::Int4), column("v", ColumnType::Int4)];
    let mut txn = database.begin(RC);
    let def = txn
        .create_table(NewTable {
            primary_key: Some(PrimaryKey { name: "account_pkey".into(), columns: vec![0] }),
            engine: Some(engine.to_owned()),
            partition_by: Some((PartitionMethod::Hash, vec![0])),
            ..NewTable::new("public", "account", columns)
        })
        .unwrap();
    let table = txn.table(&def).unwrap();
    (0..8).for_each(|id| txn.insert(&table, &[Datum::Int4(id), Datum::Int4(100)]).unwrap());
    txn.commit().unwrap();
    (database, def)
}

/// Returns two accounts of a partition.
fn two_in(number: u64) -> [i32; 2] {
    let mut ids = (0..8).filter(|id| key_hash(std::iter::once(Datum::Int4(*id))) % 2 == number);
    [ids.next().unwrap(), ids.next().unwrap()]
}

fn add(txn: &mut Transaction, def: &TableDef, id: i32, amount: i32) -> Result<Outcome> {
    let table = txn.table_by_rows(def, LockMode::RowExclusive)?;
    txn.modify(&table, &pk(id), &mut |row| {
        let data = [row.get(0), Datum::Int4(int(row.get(1)) + amount)];
        Ok(Change::Replace(RowImage::encode(row.schema(), &data)?))
    })
}

fn transfer(database: &Arc<Database>, def: &TableDef, [from, to]: [i32; 2], amount: i32) -> Result<()> {
    let partition = database.partition_of(def, &[Datum::Int4(from)])?;
    database.run_procedure(partition, |txn| {
        add(txn, def, from, -amount)?;
        add(txn, def, to, amount)?;
        Ok(())
    })
}

#[test]
fn procedures_of_two_partitions_run_side_by_side() {
    for engine in ENGINES {
        let (database, def) = accounts(engine);
        let both_inside = Barrier::new(2);
        thread::scope(|scope| {
            for number in 0..2 {
                let (database, def, both_inside) = (&database, &def, &both_inside);
                scope.spawn(move || {
                    let [from, _] = two_in(number);
                    let partition = database.partition_of(def, &[Datum::Int4(from)]).unwrap();
                    assert_eq!((partition.number(), partition.engine().name()), (number as u16, engine));
                    let changed = database.run_procedure(partition, |txn| {
                        let changed = add(txn, def, from, 1)?;
                        // The procedure ends only if the other procedure runs at the same time.
                        both_inside.wait();
                        Ok(changed)
                    });
                    assert_eq!(changed.unwrap(), Outcome::Changed);
                });
            }
        });
        let sum: i32 = all(&database, &def).iter().map(|(_, v)| v).sum();
        assert_eq!(sum, 802, "{engine}");
    }
}

#[test]
fn procedures_of_one_partition_are_serial() {
    for engine in ENGINES {
        let (database, def) = accounts(engine);
        thread::scope(|scope| {
            for number in [0, 1, 0, 1] {
                let (database, def) = (&database, &def);
                scope.spawn(move || {
                    (0..100).for_each(|_| transfer(database, def, two_in(number), 1).unwrap());
                });
            }
        });
        for number in 0..2 {
            let [from, to] = two_in(number);
            let rows = all(&database, &def);
            let v = |id: i32| rows.iter().find(|(has, _)| *has == id).unwrap().1;
            assert_eq!((v(from), v(to)), (-100, 300), "{engine}");
        }
        is_sound(&database);
    }
}

#[test]
fn a_procedure_that_fails_has_changed_nothing() {
    let (database, def) = accounts("nvm_inplace");
    let [from, to] = two_in(0);
    let partition = database.partition_of(&def, &[Datum::Int4(from)]).unwrap();
    let failed: Result<()> = database.run_procedure(partition, |txn| {
        add(txn, &def, from, -500)?;
        Err(Error::SerializationFailure)
    });
    assert!(matches!(failed, Err(Error::SerializationFailure)));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        database.run_procedure(partition, |txn| -> Result<()> {
            add(txn, &def, from, -500)?;
            panic!("a procedure's own fault");
        })
    }));
    assert!(panicked.is_err());
    // A procedure cannot use another partition.
    let [other, _] = two_in(1);
    assert!(matches!(transfer(&database, &def, [from, other], 5), Err(Error::MixedStores { .. })));
    transfer(&database, &def, [from, to], 7).unwrap();
    let changed: Vec<_> = all(&database, &def).into_iter().filter(|(_, v)| *v != 100).collect();
    let mut expected = vec![(from, 93), (to, 107)];
    expected.sort_unstable();
    assert_eq!(changed, expected);
}

#[test]
fn partitions_are_those_of_tables_in_persistent_memory() {
    let (_, database) = empty(2);
    let (first, second) = (make(&database, "a", "nvm_inplace"), make(&database, "b", "nvm_inplace"));
    let of = |def: &TableDef| database.partition_of(def, &[]).map(Partition::number);
    assert_ne!(of(&first).unwrap(), of(&second).unwrap());
    let paged = create(&database, "paged");
    assert_eq!(of(&paged).unwrap_err().sqlstate(), "0A000");
    let (database, def) = accounts("inplace");
    assert_eq!(database.partition_of(&def, &[]).unwrap_err().sqlstate(), "42P16");
}

#[test]
fn padding_of_a_partition_key_does_not_count() {
    let (_, database) = empty(2);
    let mut txn = database.begin(RC);
    let def = txn
        .create_table(NewTable {
            primary_key: Some(PrimaryKey { name: "item_pkey".into(), columns: vec![0] }),
            engine: Some("nvm_inplace".to_owned()),
            partition_by: Some((PartitionMethod::Hash, vec![0])),
            ..NewTable::new("public", "item", vec![column("code", ColumnType::Char(5))])
        })
        .unwrap();
    txn.commit().unwrap();
    for code in ["a", "bc", "def", "ghij", "x", "yz"] {
        let [plain, padded] = [code.to_owned(), format!("{code:5}")]
            .map(|code| database.partition_of(&def, &[Datum::Text(&code)]).unwrap());
        assert_eq!(plain, padded, "{code}");
    }
}
