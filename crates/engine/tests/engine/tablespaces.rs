//! Tables and indexes in tablespaces. In SQL this is `TABLESPACE` and `ALTER ... SET TABLESPACE`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::database::*;
use varve_device::{Directory, Fate, MemoryDirectory, RecordLog, Recorder, Timeline};
use varve_engine::{
    Change, Database, Datum, NewIndex, NewTable, NewTablespace, Options, PrimaryKey, ProtectionKind,
    RowImage, SpaceId, StorageOptions, TableDef, Transaction,
};
use varve_pager::{BadLocation, LocationFlaw, Locations};

/// Large enough for an overflow chain.
const LONG: usize = 30_000;

struct Places([Arc<dyn Directory>; 2]);

impl Locations for Places {
    fn open(&self, location: &str) -> Result<Arc<dyn Directory>, BadLocation> {
        match location {
            "a" => Ok(self.0[0].clone()),
            "b" => Ok(self.0[1].clone()),
            _ => Err(BadLocation::new(LocationFlaw::Missing, "it is not there")),
        }
    }
}

type Devices = [Arc<dyn Directory>; 3];

fn open_in([main, a, b]: Devices) -> Arc<Database> {
    let mut options: Options = options(&MemoryDirectory::new());
    let pager = &mut options.pager;
    pager.data = main.clone();
    pager.log = main.clone();
    pager.rollback = main.clone();
    pager.temporary = main.clone();
    pager.control = main;
    pager.locations = Arc::new(Places([a, b]));
    Database::open(options).unwrap()
}

fn in_memory() -> Devices {
    [0; 3].map(|_| MemoryDirectory::new() as Arc<dyn Directory>)
}

fn make(database: &Arc<Database>, name: &str) -> SpaceId {
    let new = NewTablespace {
        name: name.into(),
        location: name.into(),
        protection: ProtectionKind::DOUBLEWRITE,
        compression: None,
        note: Vec::new(),
    };
    database.create_tablespace(&new).unwrap()
}

fn new_table(name: &str, space: SpaceId) -> NewTable {
    let columns = vec![
        column("id", varve_engine::ColumnType::Int4),
        column("v", varve_engine::ColumnType::Int4),
        column("note", varve_engine::ColumnType::Text),
    ];
    let key = PrimaryKey { name: format!("{name}_pkey"), columns: vec![0] };
    let storage = StorageOptions { tablespace: Some(space), ..StorageOptions::default() };
    NewTable { primary_key: Some(key), storage, ..NewTable::new("public", name, columns) }
}

/// Makes a table in `rows`, with an index in `keys`.
fn make_table(txn: &mut Transaction, name: &str, rows: SpaceId, keys: SpaceId) -> Arc<TableDef> {
    let def = txn.create_table(new_table(name, rows)).unwrap();
    let index = NewIndex {
        table: def.id,
        name: format!("{name}_v"),
        columns: vec![1],
        unique: false,
        constraint: false,
        tablespace: Some(keys),
    };
    txn.create_index(index).unwrap()
}

fn put_long(txn: &mut Transaction, def: &TableDef, id: i32, v: i32) {
    let table = txn.table(def).unwrap();
    let note = "x".repeat(if id % 5 == 0 { LONG } else { 10 });
    txn.insert(&table, &[Datum::Int4(id), Datum::Int4(v), Datum::Text(&note)]).unwrap();
}

/// Changes each fifth row, so that old overflow chains wait for purge.
fn change_long(txn: &mut Transaction, def: &TableDef, count: i32) {
    txn.start_statement();
    let table = txn.table(def).unwrap();
    for id in (0..count).step_by(5) {
        let note = "y".repeat(LONG + 1);
        txn.modify(&table, &pk(id), &mut |row| {
            let data = [row.get(0), Datum::Int4(int(row.get(1)) + 1), Datum::Text(&note)];
            Ok(Change::Replace(RowImage::encode(row.schema(), &data)?))
        })
        .unwrap();
    }
}

fn named(database: &Arc<Database>, name: &str) -> Arc<TableDef> {
    begin(database, RC).catalog().table("public", name).unwrap().clone()
}

/// Returns the number of pages that trees have in a space.
fn pages_in(database: &Arc<Database>, space: SpaceId) -> u64 {
    database.pager().owners(space).unwrap().values().sum()
}

fn settled(database: &Arc<Database>) {
    database.tick().unwrap();
    is_sound(database);
}

#[test]
fn a_table_and_its_index_are_in_their_tablespaces() {
    let devices = in_memory();
    let database = open_in(devices.clone());
    let (a, b) = (make(&database, "a"), make(&database, "b"));
    let before = pages_in(&database, SpaceId::DATA);
    let mut txn = begin(&database, RC);
    let def = make_table(&mut txn, "t", a, b);
    (0..500).for_each(|id| put_long(&mut txn, &def, id, id % 7));
    txn.commit().unwrap();
    assert_eq!(def.indexes[0].tablespace(), Some(b));
    assert_eq!(database.io_traces().len(), 3, "the I/O of each device is counted");
    let mut txn = begin(&database, RC);
    change_long(&mut txn, &def, 500);
    txn.rollback().unwrap();
    let mut txn = begin(&database, RC);
    change_long(&mut txn, &def, 500);
    txn.commit().unwrap();
    settled(&database);
    assert!(pages_in(&database, a) > 300 && pages_in(&database, b) > 0);
    assert!(pages_in(&database, SpaceId::DATA) < before + 10, "only the catalog grows");
    let sizes = database.sizes().unwrap();
    assert!(sizes.table_bytes(&def) > 300 * 8192 && sizes.index_bytes(&def.indexes[0]) > 0);
    let expected = all(&database, &def);
    database.shutdown().unwrap();
    drop(database);
    let database = open_in(devices);
    let def = named(&database, "t");
    assert_eq!((def.storage.tablespace, def.indexes[0].tablespace()), (Some(a), Some(b)));
    assert_eq!(all(&database, &def), expected);
    assert_eq!(
        by_v(&mut begin(&database, RC), &def, 6).len(),
        expected.iter().filter(|row| row.1 == 6).count()
    );
    is_sound(&database);
}

#[test]
fn a_table_and_its_index_move_between_tablespaces() {
    let devices = in_memory();
    let database = open_in(devices.clone());
    let (a, b) = (make(&database, "a"), make(&database, "b"));
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", false);
    load(&database, &def, (0..2000).map(|id| (id, id % 9)));
    let expected = all(&database, &def);
    for (rows, keys) in [(Some(a), Some(b)), (Some(b), None), (None, Some(a)), (None, None)] {
        let mut txn = begin(&database, RC);
        let def = named(&database, "t");
        let def = txn.set_storage(def.id, StorageOptions { tablespace: rows, ..def.storage }).unwrap();
        let def = txn.set_index_tablespace(def.id, def.indexes[0].id, keys).unwrap();
        txn.commit().unwrap();
        settled(&database);
        assert_eq!((def.storage.tablespace, def.indexes[0].tablespace()), (rows, keys));
        assert_eq!(all(&database, &def), expected);
        assert_eq!(by_v(&mut begin(&database, RC), &def, 4).len(), 222);
        for space in [a, b] {
            let is_used = rows == Some(space) || keys == Some(space);
            assert_eq!(pages_in(&database, space) > 0, is_used, "{space:?}");
        }
    }
    // A move that is rolled back leaves everything where it was.
    let def = named(&database, "t");
    let mut txn = begin(&database, RC);
    txn.set_storage(def.id, StorageOptions { tablespace: Some(a), ..def.storage }).unwrap();
    txn.rollback().unwrap();
    settled(&database);
    assert_eq!((pages_in(&database, a), all(&database, &def)), (0, expected));
    assert!(database.drop_tablespace(a).unwrap());
}

#[test]
fn a_tablespace_is_dropped_only_without_tables() {
    let devices = in_memory();
    let database = open_in(devices);
    let a = make(&database, "a");
    let mut txn = begin(&database, RC);
    let def = make_table(&mut txn, "t", SpaceId::DATA, a);
    txn.commit().unwrap();
    assert!(!database.drop_tablespace(a).unwrap());
    load(&database, &def, (0..100).map(|id| (id, id)));
    let old = begin(&database, RR);
    let mut txn = begin(&database, RC);
    txn.drop_table(def.id).unwrap();
    txn.commit().unwrap();
    // The pages of the dropped table wait for purge, which the drop does. An older snapshot delays it.
    drop(old);
    assert!(database.drop_tablespace(a).unwrap());
    let mut txn = begin(&database, RC);
    assert_eq!(state(txn.create_table(new_table("u", a))), "42704");
    txn.rollback().unwrap();
    settled(&database);
}

/// Tables and tablespaces are created, changed, moved and dropped. After a crash at any moment, each
/// transaction is there completely or not at all.
#[test]
fn a_crash_at_any_moment_leaves_whole_transactions() {
    let log = RecordLog::new();
    let devices: Devices =
        [0; 3].map(|_| Recorder::wrap(MemoryDirectory::new(), log.clone()) as Arc<dyn Directory>);
    let database = open_in(devices);
    let a = make(&database, "a");
    let mut txn = begin(&database, RC);
    let def = make_table(&mut txn, "t", a, SpaceId::DATA);
    (0..40).for_each(|id| put_long(&mut txn, &def, id, 0));
    txn.commit().unwrap();
    log.mark(1);
    let settle = || while database.pager().tick_write(100).unwrap() > 0 {};
    settle();
    let mut txn = begin(&database, RC);
    change_long(&mut txn, &def, 40);
    txn.commit().unwrap();
    log.mark(2);
    let b = make(&database, "b");
    let mut txn = begin(&database, RC);
    let moved = txn.set_storage(def.id, StorageOptions { tablespace: Some(b), ..def.storage }).unwrap();
    txn.commit().unwrap();
    log.mark(3);
    database.tick().unwrap();
    settle();
    database.checkpoint().unwrap();
    assert!(database.drop_tablespace(a).unwrap());
    log.mark(4);
    let mut txn = begin(&database, RC);
    txn.drop_table(moved.id).unwrap();
    txn.commit().unwrap();
    log.mark(5);
    drop(database);
    let mut timeline = Timeline::new(log.recording());
    let end = timeline.end();
    for cut in (1..=60).map(|part| end * part / 60) {
        timeline.advance(cut);
        let mark = timeline.marks().last().copied().unwrap_or(0);
        let pending = timeline.pending().len() as u64;
        for style in 0..3 {
            let fate = |n: u64| match style {
                0 => Fate::Absent,
                1 => Fate::Present,
                _ if n.is_multiple_of(2) => Fate::Torn { unit_bytes: 512, seed: cut + n },
                _ => Fate::Absent,
            };
            let fates: Vec<Fate> = (0..pending).map(fate).collect();
            let images = timeline.image(&fates);
            let devices: Vec<Arc<dyn Directory>> = images.into_iter().map(|one| one as _).collect();
            let database = open_in(devices.try_into().ok().unwrap());
            judge(&database, mark, &format!("cut {cut} of {end}, style {style}"));
        }
    }
}

fn judge(database: &Arc<Database>, mark: u64, what: &str) {
    database.tick().unwrap();
    let report = database.check().unwrap();
    assert_eq!(report.damages, Vec::<String>::new(), "{what}");
    let table = begin(database, RC).catalog().table("public", "t");
    let Some(def) = table else {
        assert!(mark == 0 || mark >= 4, "{what}: the table is gone after step {mark}");
        return;
    };
    assert!(mark < 5, "{what}: the table is there after step {mark}");
    let rows = all(database, &def);
    let changed = rows.iter().filter(|row| row.1 == 1).count();
    assert!(
        rows.len() == 40 && (changed == 0 || changed == 8),
        "{what}: {} rows, {changed} changed",
        rows.len()
    );
    assert!(changed == 8 || mark < 2, "{what}: a change of step 2 is lost after step {mark}");
    let names: Vec<String> = database.tablespaces().into_iter().map(|one| one.name).collect();
    let at = database.tablespaces().into_iter().find(|one| Some(one.id) == def.storage.tablespace).unwrap();
    assert!(at.name == "b" || mark < 3, "{what}: the move of step 3 is lost after step {mark}");
    assert!(
        !names.iter().any(|name| name == "a") || mark < 4,
        "{what}: a is there after step {mark}: {names:?}"
    );
}
