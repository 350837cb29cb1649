//! Tables with PARTITION BY HASH are spread over the partitions of their engine.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::thread;
use std::time::Duration;

use varve_engine::{
    Datum, Error, Isolation, LockMode, NewIndex, Outcome, PartitionMethod, ScanIndex, ScanSpec, WhenHeld,
    key, key_hash,
};

use super::*;

/// `CREATE TABLE name (id int [PRIMARY KEY], v int, note text) PARTITION BY HASH (id)`
fn make_spread_in(txn: &mut Transaction, name: &str, engine: &str, keyed: bool) -> Result<Arc<TableDef>> {
    let columns =
        vec![column("id", ColumnType::Int4), column("v", ColumnType::Int4), column("note", ColumnType::Text)];
    let key = PrimaryKey { name: format!("{name}_pkey"), columns: vec![0] };
    txn.create_table(NewTable {
        primary_key: keyed.then_some(key),
        engine: Some(engine.to_owned()),
        partition_by: Some((PartitionMethod::Hash, vec![0])),
        ..NewTable::new("public", name, columns)
    })
}

fn make_spread(database: &Arc<Database>, name: &str, engine: &str, keyed: bool) -> Arc<TableDef> {
    let mut txn = database.begin(RC);
    let def = make_spread_in(&mut txn, name, engine, keyed).unwrap();
    txn.commit().unwrap();
    def
}

/// Inserts rows, each in a transaction of its own.
fn load_each(database: &Arc<Database>, def: &TableDef, rows: impl IntoIterator<Item = (i32, i32)>) {
    rows.into_iter().for_each(|row| load(database, def, [row]));
}

fn partition_of(id: i32, count: u64) -> u64 {
    key_hash(std::iter::once(Datum::Int4(id))) % count
}

/// Returns the ids from 1 on that are in a partition.
fn ids_of(partition: u64, count: u64) -> impl Iterator<Item = i32> {
    (1..).filter(move |id| partition_of(*id, count) == partition)
}

fn put_by_rows(txn: &mut Transaction, def: &TableDef, id: i32, v: i32) -> Result<()> {
    let table = txn.table_by_rows(def, LockMode::RowExclusive)?;
    txn.insert(&table, &[Datum::Int4(id), Datum::Int4(v), Datum::Text("note")])
}

fn see_by_rows(txn: &mut Transaction, def: &TableDef, id: i32) -> Result<Option<i32>> {
    let table = txn.table_by_rows(def, LockMode::AccessShare)?;
    let mut v = None;
    txn.get(&table, &pk(id), &mut |row| v = Some(int(row.get(1))))?;
    Ok(v)
}

#[test]
fn rows_of_all_partitions_are_read_in_the_order_of_each_index() {
    for engine in ENGINES {
        for keyed in [true, false] {
            let (directory, database) = empty(3);
            let def = make_spread(&database, "t", engine, keyed);
            load_each(&database, &def, (0..100).map(|id| (id, 1000 - id)));
            let mut txn = database.begin(RC);
            let new = NewIndex {
                table: def.id,
                name: "i".into(),
                columns: vec![1],
                unique: false,
                constraint: false,
                tablespace: None,
            };
            txn.create_index(new).unwrap();
            txn.commit().unwrap();
            drop((def, database));
            let database = open_in(&directory, 3).unwrap();
            is_sound(&database);
            let def = find(&database, "t");
            load_each(&database, &def, (100..130).map(|id| (id, 1000 - id)));
            let mut found = all(&database, &def);
            if !keyed {
                found.sort_unstable();
            }
            assert_eq!(found, (0..130).map(|id| (id, 1000 - id)).collect::<Vec<_>>(), "{engine}");
            let index = ScanIndex::Secondary(def.indexes[0].id);
            let mut txn = begin(&database, RC);
            let by_v = collect(&mut txn, &def, &ScanSpec { index, ..ScanSpec::ALL }).unwrap();
            assert!(by_v.is_sorted_by_key(|(_, v)| *v) && by_v.len() == 130, "{engine}");
            let down = collect(&mut txn, &def, &ScanSpec { index, reverse: true, ..ScanSpec::ALL }).unwrap();
            assert_eq!(down, by_v.into_iter().rev().collect::<Vec<_>>(), "{engine}");
            drop(txn);
            is_sound(&database);
        }
    }
}

#[test]
fn a_range_continues_behind_the_row_at_which_it_ended() {
    let (_, database) = empty(4);
    let def = make_spread(&database, "t", "nvm_inplace", true);
    load_each(&database, &def, (0..40).map(|id| (id, id)));
    let mut txn = begin(&database, RC);
    let table = txn.table(&def).unwrap();
    let (mut ids, mut last) = (Vec::new(), Vec::new());
    loop {
        let lower = if last.is_empty() { Bound::Unbounded } else { Bound::Excluded(&*last) };
        let before = ids.len();
        let spec = ScanSpec { lower, ..ScanSpec::ALL };
        txn.scan(&table, &spec, &mut |_, row| {
            ids.push(int(row.get(0)));
            Ok(if ids.len() % 7 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
        .unwrap();
        if ids.len() == before || !ids.len().is_multiple_of(7) {
            break;
        }
        last = txn.place(ScanIndex::Primary).to_vec();
    }
    assert_eq!(ids, (0..40).collect::<Vec<_>>());
}

#[test]
fn transactions_in_two_partitions_do_not_wait() {
    for engine in ENGINES {
        let (_, database) = empty(2);
        let def = make_spread(&database, "t", engine, true);
        let [a, b] = [0, 1].map(|partition| ids_of(partition, 2).next().unwrap());
        let mut first = begin(&database, Isolation::Serializable);
        put_by_rows(&mut first, &def, a, 1).unwrap();
        let mut second = begin(&database, RC);
        second.set_lock_timeout(Some(Duration::from_millis(5)));
        put_by_rows(&mut second, &def, b, 2).unwrap();
        assert!(matches!(see_by_rows(&mut second, &def, a), Err(Error::LockTimeout)), "{engine}");
        first.commit().unwrap();
        assert_eq!(see_by_rows(&mut second, &def, a).unwrap(), Some(1), "{engine}");
        second.commit().unwrap();
        let mut expected = vec![(a, 1), (b, 2)];
        expected.sort_unstable();
        assert_eq!(all(&database, &def), expected, "{engine}");
    }
}

#[test]
fn a_whole_table_locks_all_partitions() {
    let (_, database) = empty(2);
    let def = make_spread(&database, "t", "nvm_inplace", true);
    let mut reader = begin(&database, RC);
    reader.table(&def).unwrap();
    for id in [0, 1].map(|partition| ids_of(partition, 2).next().unwrap()) {
        let mut other = begin(&database, RC);
        other.set_lock_timeout(Some(Duration::from_millis(5)));
        assert!(matches!(put_by_rows(&mut other, &def, id, 1), Err(Error::LockTimeout)));
    }
}

#[test]
fn changes_in_two_partitions_are_refused_unless_the_table_is_new() {
    for engine in ENGINES {
        let (directory, database) = empty(2);
        let def = make_spread(&database, "t", engine, true);
        let [a, b] = [0, 1].map(|partition| ids_of(partition, 2).next().unwrap());
        let mut txn = begin(&database, RC);
        put(&mut txn, &def, a, 1).unwrap();
        let error = put(&mut txn, &def, b, 2).unwrap_err();
        let text = "cannot change rows of table \"t\" in two partitions in one transaction";
        assert_eq!((error.sqlstate(), &*error.to_string()), ("0A000", text), "{engine}");
        assert!(matches!(rekey(&mut txn, &def, a, b), Err(Error::MixedStores { .. })), "{engine}");
        assert_eq!(see(&mut txn, &def, b), None);
        txn.commit().unwrap();
        assert_eq!(all(&database, &def), [(a, 1)], "{engine}");
        let mut txn = begin(&database, RC);
        let new = make_spread_in(&mut txn, "new", engine, true).unwrap();
        (0..20).for_each(|id| put(&mut txn, &new, id, id).unwrap());
        assert_eq!(rekey(&mut txn, &new, 3, 50).unwrap(), Outcome::Changed, "{engine}");
        let moved = ids_of(partition_of(50, 2), 2).find(|id| *id > 50).unwrap();
        assert!(matches!(rekey(&mut txn, &new, 4, 5), Err(Error::UniqueViolation { .. })), "{engine}");
        assert_eq!(rekey(&mut txn, &new, 50, moved).unwrap(), Outcome::Changed, "{engine}");
        txn.commit().unwrap();
        let mut expected: BTreeMap<i32, i32> = (0..20).map(|id| (id, id)).collect();
        expected.remove(&3);
        expected.insert(moved, 3);
        drop((def, new, database));
        let database = open_in(&directory, 2).unwrap();
        assert_eq!(all(&database, &find(&database, "new")), expected.into_iter().collect::<Vec<_>>());
        is_sound(&database);
    }
}

#[test]
fn a_unique_key_has_the_columns_of_the_partition_key() {
    let (_, database) = empty(2);
    let def = make_spread(&database, "t", "inplace", false);
    let mut txn = begin(&database, RC);
    let index = |columns: Vec<usize>| NewIndex {
        table: def.id,
        name: format!("i{}", columns.len()),
        columns,
        unique: true,
        constraint: false,
        tablespace: None,
    };
    assert!(matches!(txn.create_index(index(vec![1])), Err(Error::Unsupported { .. })));
    let def = txn.create_index(index(vec![1, 0])).unwrap();
    txn.commit().unwrap();
    load_each(&database, &def, (0..20).map(|id| (id, id)));
    let mut txn = begin(&database, RC);
    let refused = put(&mut txn, &def, 7, 7);
    assert!(matches!(refused, Err(Error::UniqueViolation { .. })));
    let table = txn.table(&def).unwrap();
    let mut wanted = Vec::new();
    [7, 7].iter().for_each(|v| key::push(&mut wanted, ColumnType::Int4, &Datum::Int4(*v)));
    let mut id = None;
    let is_there =
        txn.get_by_unique(&table, def.indexes[0].id, &wanted, &mut |_, row| id = Some(int(row.get(0))));
    assert_eq!((is_there.unwrap(), id), (true, Some(7)));
}

#[test]
fn changes_of_form_keep_all_rows() {
    for engine in ENGINES {
        let (directory, database) = empty(2);
        let def = make_spread(&database, "t", engine, false);
        load_each(&database, &def, (0..30).map(|id| (id, id)));
        let mut txn = begin(&database, RC);
        let key = PrimaryKey { name: "t_pkey".into(), columns: vec![0] };
        txn.add_primary_key(def.id, key).unwrap();
        txn.commit().unwrap();
        let mut txn = begin(&database, RC);
        txn.drop_primary_key(def.id).unwrap();
        txn.rollback().unwrap();
        let rows: Vec<_> = (0..30).map(|id| (id, id)).collect();
        assert_eq!(all(&database, &find(&database, "t")), rows, "{engine}");
        is_sound(&database);
        let mut txn = begin(&database, RC);
        txn.drop_primary_key(def.id).unwrap();
        txn.commit().unwrap();
        load_each(&database, &find(&database, "t"), [(7, 7)]);
        assert_eq!(all(&database, &find(&database, "t")).len(), 31, "{engine}");
        is_sound(&database);
        let mut txn = begin(&database, RC);
        txn.truncate(def.id).unwrap();
        txn.commit().unwrap();
        assert_eq!(all(&database, &find(&database, "t")), [], "{engine}");
        let mut txn = begin(&database, RC);
        txn.drop_table(def.id).unwrap();
        txn.commit().unwrap();
        is_sound(&database);
        drop((def, database));
        is_sound(&open_in(&directory, 2).unwrap());
    }
}

#[test]
fn two_threads_change_two_partitions() {
    let (_, database) = empty(2);
    let def = make_spread(&database, "t", "nvm_inplace", true);
    thread::scope(|scope| {
        for partition in 0..2 {
            let (database, def) = (&database, &def);
            scope.spawn(move || {
                for id in ids_of(partition, 2).take(100) {
                    let mut txn = begin(database, RC);
                    put_by_rows(&mut txn, def, id, partition as i32).unwrap();
                    txn.commit().unwrap();
                }
            });
        }
    });
    let rows = all(&database, &def);
    assert_eq!(rows.len(), 200);
    assert!(rows.iter().all(|(id, v)| partition_of(*id, 2) == *v as u64));
    is_sound(&database);
}

/// Returns the result, or `None` if a lock was not free in time.
fn in_time<T>(outcome: Result<T>) -> Option<T> {
    match outcome {
        Err(Error::LockTimeout) => None,
        outcome => Some(outcome.unwrap()),
    }
}

/// Returns what a statement that locks rows sees: whether it finds the id by key, and the ids of a scan and
/// of a reader.
fn seen_locking(txn: &mut Transaction, def: &TableDef, id: i32) -> Result<(bool, Vec<i32>, Vec<i32>)> {
    let table = txn.table_by_rows(def, LockMode::RowShare)?;
    let is_there = txn.get(&table, &pk(id), &mut |_| {})?;
    let (mut scanned, mut read) = (Vec::new(), Vec::new());
    txn.scan(&table, &ScanSpec::ALL, &mut |_, row| {
        scanned.push(int(row.get(0)));
        Ok(ControlFlow::Continue(()))
    })?;
    let table = txn.table_for(def, LockMode::RowShare)?;
    txn.reader().scan(&table, &ScanSpec::ALL, &mut |_, row| {
        read.push(int(row.get(0)));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((is_there, scanned, read))
}

#[test]
fn a_statement_may_pass_by_partitions_that_are_held() {
    for engine in ENGINES {
        let (_, database) = empty(2);
        let def = make_spread(&database, "t", engine, true);
        let [held, free] = [0, 1].map(|partition| ids_of(partition, 2).next().unwrap());
        load_each(&database, &def, [(held, 1), (free, 1)]);
        let mut holder = begin(&database, RC);
        assert_eq!(in_time(see_by_rows(&mut holder, &def, held)), Some(Some(1)));

        let mut other = begin(&database, RC);
        other.set_when_held(WhenHeld::Fail);
        let table = other.table_by_rows(&def, LockMode::RowShare).unwrap();
        assert_eq!(in_time(other.get(&table, &pk(free), &mut |_| {})), Some(true), "{engine}");
        assert_eq!(in_time(other.get(&table, &pk(held), &mut |_| {})), None, "{engine}");
        other.rollback().unwrap();

        let mut other = begin(&database, RC);
        other.set_when_held(WhenHeld::Skip);
        let seen = seen_locking(&mut other, &def, held);
        assert_eq!(in_time(seen), Some((false, vec![free], vec![free])), "{engine}");
        // A change waits, and so does the next statement.
        other.set_lock_timeout(Some(Duration::from_millis(5)));
        assert_eq!(in_time(put_by_rows(&mut other, &def, held, 2)), None, "{engine}");
        other.start_statement();
        assert_eq!(in_time(see_by_rows(&mut other, &def, held)), None, "{engine}");
        // A statement that skips the partition skips it to its end.
        other.set_when_held(WhenHeld::Skip);
        assert_eq!(
            in_time(seen_locking(&mut other, &def, free)),
            Some((true, vec![free], vec![free])),
            "{engine}"
        );
        holder.commit().unwrap();
        assert_eq!(
            in_time(seen_locking(&mut other, &def, held)),
            Some((false, vec![free], vec![free])),
            "{engine}"
        );
        other.start_statement();
        other.set_when_held(WhenHeld::Skip);
        let mut both = vec![held, free];
        both.sort_unstable();
        assert_eq!(
            in_time(seen_locking(&mut other, &def, held)),
            Some((true, both.clone(), both)),
            "{engine}"
        );
        other.commit().unwrap();
    }
}
