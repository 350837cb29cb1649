//! Tables can have different compression settings and layouts, which their pages in the data file show.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::database::*;
use varve_device::MemoryDirectory;
use varve_engine::node::{NodeRef, columns_max};
use varve_engine::{
    Algorithm, ColumnType, Compression, Database, LeafLayout, NewTable, PrimaryKey, StorageOptions, TableDef,
};

const PAGE_BYTES: u64 = 8192;
const KIND_FREE: u8 = 0;

fn how(algorithm: Algorithm) -> StorageOptions {
    StorageOptions { compression: Some(Compression::of(algorithm)), ..StorageOptions::default() }
}

fn create_with(database: &Arc<Database>, name: &str, storage: StorageOptions) -> Arc<TableDef> {
    let columns =
        vec![column("id", ColumnType::Int4), column("v", ColumnType::Int4), column("note", ColumnType::Text)];
    let primary_key = Some(PrimaryKey { name: format!("{name}_pkey"), columns: vec![0] });
    let mut txn = database.begin(RC);
    let def = txn
        .create_table(NewTable { primary_key, storage, ..NewTable::new("public", name, columns) })
        .unwrap();
    txn.commit().unwrap();
    def
}

/// Returns the number of pages in the data file by their owner and form. Form 0 is plain, others are the code
/// of an algorithm.
fn forms(directory: &MemoryDirectory) -> BTreeMap<(u32, u8), usize> {
    let images = directory.images();
    let (_, file) = images.iter().find(|(name, _)| name == "data.varve").unwrap();
    let mut forms = BTreeMap::new();
    let mut page = vec![0; PAGE_BYTES as usize];
    for no in 0..file.len_bytes() / PAGE_BYTES {
        file.read(no * PAGE_BYTES, &mut page);
        if page[18] == KIND_FREE {
            continue;
        }
        let owner = u32::from_le_bytes([page[20], page[21], page[22], page[23]]);
        *forms.entry((owner, if page[19] == 1 { page[24] } else { 0 })).or_default() += 1;
    }
    forms
}

/// Returns the forms of the pages of owners that were made after `last`.
fn codes_after(directory: &MemoryDirectory, last: u32) -> BTreeMap<u8, usize> {
    let mut codes = BTreeMap::new();
    for ((owner, code), count) in forms(directory) {
        if owner > last {
            *codes.entry(code).or_default() += count;
        }
    }
    codes
}

fn last_owner(directory: &MemoryDirectory) -> u32 {
    forms(directory).keys().map(|(owner, _)| *owner).max().unwrap()
}

fn write_all(database: &Arc<Database>) {
    database.tick().unwrap();
    while database.pager().tick_write(100).unwrap() > 0 {}
}

fn alter(database: &Arc<Database>, def: &TableDef, storage: StorageOptions) -> Arc<TableDef> {
    let mut txn = database.begin(RC);
    let def = txn.set_storage(def.id, storage).unwrap();
    txn.commit().unwrap();
    def
}

fn touch(database: &Arc<Database>, def: &TableDef, ids: std::ops::Range<i32>) {
    let mut txn = begin(database, RC);
    for id in ids {
        update(&mut txn, def, id, |v| v + 1).unwrap();
    }
    txn.commit().unwrap();
}

#[test]
fn a_table_and_its_indexes_are_stored_as_it_says() {
    let (directory, database) = fresh();
    write_all(&database);
    let before = last_owner(&directory);
    let def = create_with(&database, "t", how(Algorithm::Zstd));
    load(&database, &def, (0..3000).map(|i| (i, i % 7)));
    let def = index_on_v(&database, &def, "t_v", false);
    write_all(&database);
    let codes = codes_after(&directory, before);
    assert_eq!(codes.keys().copied().collect::<Vec<_>>(), [Algorithm::Zstd.code()], "{codes:?}");
    database.shutdown().unwrap();
    drop(database);
    // This must also hold after a restart.
    let database = open(&directory);
    let def = database.begin(RC).catalog().table_by_id(def.id).unwrap();
    assert_eq!(def.storage, how(Algorithm::Zstd));
    touch(&database, &def, 0..3000);
    write_all(&database);
    let codes = codes_after(&directory, before);
    assert_eq!(codes.keys().copied().collect::<Vec<_>>(), [Algorithm::Zstd.code()], "{codes:?}");
    assert_eq!(by_v(&mut begin(&database, RC), &def, 3).len(), 3000 / 7 + 1);
    is_sound(&database);
}

/// Altered options apply to pages that are written after the commit. A rewrite of the table applies them to
/// all its pages.
#[test]
fn altering_counts_from_the_commit_on() {
    let (directory, database) = fresh();
    write_all(&database);
    let before = last_owner(&directory);
    let codes = || codes_after(&directory, before).into_keys().collect::<Vec<_>>();
    let def = create(&database, "t");
    load(&database, &def, (0..3000).map(|i| (i, 1)));
    write_all(&database);
    assert_eq!(codes(), [0]);
    let mut txn = database.begin(RC);
    txn.set_storage(def.id, how(Algorithm::Lz4)).unwrap();
    txn.rollback().unwrap();
    let def = database.begin(RC).catalog().table_by_id(def.id).unwrap();
    assert_eq!(def.storage, StorageOptions::default());
    touch(&database, &def, 0..3000);
    write_all(&database);
    assert_eq!(codes(), [0], "rolled back");
    let def = alter(&database, &def, how(Algorithm::Lz4));
    touch(&database, &def, 0..1);
    write_all(&database);
    assert_eq!(codes(), [0, Algorithm::Lz4.code()], "old pages stay as they are");
    let def = alter(&database, &def, how(Algorithm::Zlib));
    let last = last_owner(&directory);
    let mut txn = database.begin(RC);
    let def = txn.rewrite(def.id).unwrap();
    txn.commit().unwrap();
    write_all(&database);
    let made = codes_after(&directory, last);
    assert_eq!(made.keys().copied().collect::<Vec<_>>(), [Algorithm::Zlib.code()], "{made:?}");
    assert_eq!(all(&database, &def).len(), 3000);
    let def = alter(&database, &def, StorageOptions::default());
    touch(&database, &def, 0..3000);
    write_all(&database);
    let plain = codes_after(&directory, last);
    // An inner node in which nothing has changed stays as it is.
    assert!(
        plain[&0] > 10 && plain.get(&Algorithm::Zlib.code()).is_none_or(|count| *count <= 2),
        "{plain:?}"
    );
    is_sound(&database);
}

/// A dropped table leaves nothing. The next table may get the number of its owner, but not its compression.
#[test]
fn dropped_and_rolled_back_tables_are_forgotten() {
    let (directory, database) = fresh();
    write_all(&database);
    let before = last_owner(&directory);
    for round in 0..3 {
        let def = create_with(&database, "gone", how(Algorithm::Zstd));
        load(&database, &def, (0..100).map(|i| (i, 1)));
        let mut txn = database.begin(RC);
        if round == 1 {
            txn.truncate(def.id).unwrap();
        }
        txn.drop_table(def.id).unwrap();
        txn.commit().unwrap();
        let mut txn = database.begin(RC);
        let columns = vec![column("id", ColumnType::Int4)];
        txn.create_table(NewTable {
            storage: how(Algorithm::Lz4),
            ..NewTable::new("public", "never", columns)
        })
        .unwrap();
        txn.rollback().unwrap();
        write_all(&database);
    }
    let plain: Vec<_> = (0..8).map(|n| create(&database, &format!("t{n}"))).collect();
    for def in &plain {
        load(&database, def, (0..500).map(|i| (i, 1)));
    }
    write_all(&database);
    let owners = forms(&directory);
    let of_plain: usize = plain.len();
    let stored_plain = owners.iter().filter(|((owner, code), _)| *owner > before && *code == 0).count();
    assert!(stored_plain >= of_plain, "{owners:?}");
    is_sound(&database);
}

/// Redo writes pages of tables before their definitions are read. Afterwards, the definitions apply again.
#[test]
fn a_killed_database_reads_its_compressed_tables() {
    let (directory, database) = fresh();
    write_all(&database);
    let before = last_owner(&directory);
    let def = create_with(&database, "t", how(Algorithm::Zstd));
    load(&database, &def, (0..3000).map(|i| (i, 1)));
    write_all(&database);
    database.checkpoint().unwrap();
    touch(&database, &def, 0..3000);
    let young = create_with(&database, "young", how(Algorithm::Lz4));
    load(&database, &young, (0..3000).map(|i| (i, 1)));
    let directory = MemoryDirectory::from_images(directory.images());
    let database = open(&directory);
    let find = |name| database.begin(RC).catalog().table("public", name).unwrap();
    let (def, young) = (find("t"), find("young"));
    assert_eq!(all(&database, &def), (0..3000).map(|i| (i, 2)).collect::<Vec<_>>());
    assert_eq!(all(&database, &young).len(), 3000);
    write_all(&database);
    let codes: Vec<u8> = codes_after(&directory, before).into_keys().collect();
    assert_eq!(codes, [Algorithm::Lz4.code(), Algorithm::Zstd.code()]);
    is_sound(&database);
}

/// Returns how many leaves by columns the data file has, among the pages of owners after `last`.
fn leaves_by_columns(directory: &MemoryDirectory, last: u32) -> usize {
    let images = directory.images();
    let (_, file) = images.iter().find(|(name, _)| name == "data.varve").unwrap();
    let mut page = vec![0; PAGE_BYTES as usize];
    let is_by_columns = |no: &u64| {
        file.read(no * PAGE_BYTES, &mut page);
        let owner = u32::from_le_bytes([page[20], page[21], page[22], page[23]]);
        let is_node = page[18] == varve_engine::node::KIND_NODE && owner > last;
        is_node && NodeRef::new(&page).columns().is_some_and(|columns| columns.rows() > 0)
    };
    (0..file.len_bytes() / PAGE_BYTES).filter(is_by_columns).count()
}

#[test]
fn rows_lie_by_columns_if_the_table_says_so() {
    let (directory, database) = fresh();
    write_all(&database);
    let last = last_owner(&directory);
    let by_columns = StorageOptions { layout: LeafLayout::ByColumns, ..StorageOptions::default() };
    let rows = create_with(&database, "by_rows", StorageOptions::default());
    load(&database, &rows, (0..3000).map(|i| (i, i)));
    write_all(&database);
    assert_eq!(leaves_by_columns(&directory, last), 0);
    let def = create_with(&database, "t", by_columns);
    load(&database, &def, (0..3000).map(|i| (i, i)));
    let def = index_on_v(&database, &def, "t_v", false);
    write_all(&database);
    assert!(leaves_by_columns(&directory, last) > 5, "leaves that were split");
    database.shutdown().unwrap();
    drop(database);
    let database = open(&directory);
    let def = database.begin(RC).catalog().table_by_id(def.id).unwrap();
    assert_eq!(def.storage, by_columns);
    touch(&database, &def, 0..3000);
    assert_eq!(by_v(&mut begin(&database, RC), &def, 3).len(), 1);
    is_sound(&database);
    let def = alter(&database, &def, StorageOptions::default());
    assert_eq!(all(&database, &def).len(), 3000);
    let def = alter(&database, &def, by_columns);
    assert_eq!(all(&database, &def), (0..3000).map(|i| (i, i + 1)).collect::<Vec<_>>());
    is_sound(&database);
}

#[test]
fn a_leaf_by_columns_has_a_limit_of_columns() {
    let (_, database) = fresh();
    let most = columns_max(PAGE_BYTES as usize);
    let storage = StorageOptions { layout: LeafLayout::ByColumns, ..StorageOptions::default() };
    let new = |count: usize| {
        let columns = (0..count).map(|n| column(&format!("c{n}"), ColumnType::Int4)).collect();
        NewTable { storage, ..NewTable::new("public", format!("t{count}"), columns) }
    };
    let mut txn = database.begin(RC);
    txn.create_table(new(most)).unwrap();
    let error = txn.create_table(new(most + 1)).unwrap_err();
    assert!(error.to_string().contains(&format!("at most {most} columns")), "{error}");
    assert_eq!(error.sqlstate(), "54011");
    let wide = NewTable { storage: StorageOptions::default(), ..new(most + 1) };
    let wide = txn.create_table(wide).unwrap();
    let error = txn.set_storage(wide.id, storage).unwrap_err();
    assert!(error.to_string().contains(&format!("at most {most} columns")), "{error}");
    assert_eq!(error.sqlstate(), "54011");
    txn.commit().unwrap();
    is_sound(&database);
}
