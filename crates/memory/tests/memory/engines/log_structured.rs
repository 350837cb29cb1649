//! Properties of the log-structured engines that the common harness does not test: the cost of commits, a
//! start of `nvm_log` that does not depend on the data, the group commit of `log`, and merges in bounded
//! steps. Counts are exact.

use std::ops::Range;
use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory, Region};
use varve_memory::{
    Allocator, Commit, LogSettings, LogStructured, NvmLogSettings, NvmLogStructured, Store, StoreError,
    TableNo,
};

use super::life::with_table;
use super::{LSM, ROOT, engine, owner};
use crate::life::{DATABASE, REGION};

const TABLE: TableNo = TableNo::new(0);

fn region_of(directory: &MemoryDirectory) -> Arc<dyn Region> {
    directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"))
}

fn allocator_of(region: &Arc<dyn Region>) -> Arc<Allocator> {
    Arc::new(Allocator::open(Arc::clone(region), DATABASE).unwrap_or_else(|error| panic!("{error}")))
}

fn open_nvm(region: &Arc<dyn Region>, settings: NvmLogSettings) -> NvmLogStructured {
    let store = NvmLogStructured::open(allocator_of(region), ROOT, owner(1), settings);
    store.unwrap_or_else(|error| panic!("{error}"))
}

fn open_log(region: &Arc<dyn Region>, settings: LogSettings) -> LogStructured {
    let store = LogStructured::open(allocator_of(region), ROOT, owner(1), settings);
    store.unwrap_or_else(|error| panic!("{error}"))
}

fn insert(store: &mut dyn Store, number: u64) -> Commit {
    let (key, row) = (number.to_be_bytes(), [number as u8; 100]);
    let keys: [&[u8]; 3] = [&key, &key, &key];
    store.insert(TABLE, &keys, &row).unwrap_or_else(|error| panic!("{error}"));
    store.commit().unwrap_or_else(|error| panic!("{error}"))
}

fn add(store: &mut dyn Store, number: u64) {
    let _durable_or_pending = insert(store, number);
}

fn count(store: &dyn Store, numbers: Range<u64>) -> usize {
    let is_there = |number: &u64| store.get(TABLE, 0, &number.to_be_bytes(), &mut Vec::new()) == Ok(true);
    numbers.filter(is_there).count()
}

#[test]
fn a_commit_of_nvm_log_costs_few_fences() {
    let region = region_of(&with_table(engine("nvm_log"), 8 << 20));
    let mut store = open_nvm(&region, NvmLogSettings::default());
    let mut fences = |change: &dyn Fn(&mut NvmLogStructured)| {
        let before = region.tally().fences_count;
        change(&mut store);
        region.tally().fences_count - before
    };
    (0..50).for_each(|number| assert!(fences(&|store| add(store, number)) > 2));
    let inserts: Vec<u64> = (50..80).map(|number| fences(&|store| add(store, number))).collect();
    let usual = inserts.iter().filter(|count| **count == 3).count();
    assert!(usual > 15, "before the links, and 2 of the commit; more for neighbours and chunks: {inserts:?}");
    let patch = |store: &mut NvmLogStructured| {
        assert_eq!(store.patch(TABLE, &7_u64.to_be_bytes(), 3, &[9; 50]), Ok(true));
        assert_eq!(store.commit(), Ok(Commit::Durable));
    };
    assert_eq!(fences(&patch), 3, "in place");
    assert_eq!(fences(&|store| assert_eq!(store.commit(), Ok(Commit::Durable))), 0, "nothing was changed");
}

/// Returns the number of loads when a store with this number of rows and an open transaction is opened.
fn loads_of_a_start(rows: u64) -> u64 {
    let directory = with_table(engine("nvm_log"), 16 << 20);
    let region = region_of(&directory);
    let mut store = open_nvm(&region, NvmLogSettings { lsm: LSM });
    (0..rows).for_each(|number| add(&mut store, number));
    assert_eq!(store.patch(TABLE, &1_u64.to_be_bytes(), 3, &[9; 50]), Ok(true));
    drop(store);
    let allocator = allocator_of(&region);
    let before = region.tally().loads_count;
    let store = NvmLogStructured::open(allocator, ROOT, owner(1), NvmLogSettings { lsm: LSM });
    let loads = region.tally().loads_count - before;
    let mut row = Vec::new();
    let is_there = store.and_then(|store| store.get(TABLE, 0, &1_u64.to_be_bytes(), &mut row));
    assert_eq!((is_there, row), (Ok(true), vec![1; 100]), "the patch is taken back");
    loads
}

#[test]
fn a_start_of_nvm_log_depends_on_the_number_of_runs_only() {
    let (few, many) = (loads_of_a_start(40), loads_of_a_start(4000));
    println!("{few} loads with 40 rows, {many} with 4000");
    assert!(many < few + 40, "{few} loads with 40 rows, {many} with 4000");
}

#[test]
fn a_group_of_commits_of_log_costs_two_fences() {
    let region = region_of(&with_table(engine("log"), 8 << 20));
    let mut store = open_log(&region, LogSettings::default());
    insert(&mut store, 0);
    assert_eq!(store.sync(), Ok(()));
    let before = region.tally().fences_count;
    assert!((1..11).all(|number| insert(&mut store, number) == Commit::Pending));
    assert_eq!(region.tally().fences_count, before, "a commit waits for the sync");
    assert_eq!(store.sync(), Ok(()));
    assert_eq!(region.tally().fences_count, before + 2, "the bytes, then the length");
    assert_eq!(store.commit(), Ok(Commit::Durable), "nothing was changed, and nothing waits");
    (20..30).for_each(|number| add(&mut store, number));
    drop(store);
    let store = open_log(&region, LogSettings::default());
    assert_eq!((count(&store, 0..11), count(&store, 20..30)), (11, 0), "what was synced is there");
}

#[test]
fn a_flush_shortens_the_start_of_log() {
    let region = region_of(&with_table(engine("log"), 16 << 20));
    let settings = LogSettings { lsm: LSM, ..LogSettings::default() };
    let mut store = open_log(&region, settings);
    for number in 0..2000 {
        insert(&mut store, number);
        if number % 10 == 9 {
            assert_eq!(store.sync(), Ok(()));
        }
    }
    drop(store);
    let store = open_log(&region, settings);
    let read_bytes = store.file_calls().read_bytes;
    println!("{read_bytes} bytes read at the start");
    assert!(read_bytes < 60_000, "{read_bytes} bytes of log, manifest and Bloom filters");
    assert_eq!(count(&store, 0..2000), 2000);
}

/// Returns the bytes that lookups of some rows read from files, the first time and the second time, and the
/// bytes that the cache takes then.
fn read_bytes_of_lookups(cache_bytes: usize) -> [u64; 3] {
    let region = region_of(&with_table(engine("log"), 16 << 20));
    let settings = LogSettings { lsm: LSM, cache_bytes, ..LogSettings::default() };
    let allocator = allocator_of(&region);
    let mut store = LogStructured::open(Arc::clone(&allocator), ROOT, owner(1), settings)
        .unwrap_or_else(|error| panic!("{error}"));
    (0..1500).for_each(|number| add(&mut store, number));
    assert_eq!(store.sync(), Ok(()));
    let used_bytes = || allocator.used_bytes(owner(1)).unwrap_or_else(|error| panic!("{error}"));
    let (read_before, used_before) = (store.file_calls().read_bytes, used_bytes());
    assert_eq!(count(&store, 0..100), 100);
    let read_between = store.file_calls().read_bytes;
    assert_eq!(count(&store, 0..100), 100);
    [read_between - read_before, store.file_calls().read_bytes - read_between, used_bytes() - used_before]
}

#[test]
fn a_cache_of_blocks_saves_reads_of_files_and_has_a_bound() {
    let [first, second, used] = read_bytes_of_lookups(0);
    assert!(first > 100_000 && second == first && used == 0, "{first}, {second} and {used} bytes");
    let [first, second, used] = read_bytes_of_lookups(4 << 20);
    assert!(first > 0 && second == 0 && used >= first, "{first}, {second} and {used} bytes");
    let [first, second, used] = read_bytes_of_lookups(16_384);
    assert!(second > 0 && used == 16_384, "{first}, {second} and {used} bytes");
}

/// Each commit merges a part of the rows. A merge of all rows at once would be most of the loads of all
/// commits.
#[test]
fn no_commit_waits_for_a_whole_merge() {
    let region = region_of(&with_table(engine("nvm_log"), 32 << 20));
    let mut store = open_nvm(&region, NvmLogSettings { lsm: LSM });
    let commits = (0..4000).map(|number| {
        let before = region.tally().loads_count;
        insert(&mut store, number);
        region.tally().loads_count - before
    });
    let commits: Vec<u64> = commits.collect();
    let (most, sum) = (commits.iter().max().copied().unwrap_or_default(), commits.iter().sum::<u64>());
    println!("{most} loads of the longest commit, {sum} of all");
    assert!(most * 20 < sum, "{most} loads of one commit, {sum} of all 4000");
}

#[test]
fn deleted_rows_leave_the_tree() {
    let region = region_of(&with_table(engine("nvm_log"), 8 << 20));
    let mut store = open_nvm(&region, NvmLogSettings { lsm: LSM });
    (0..500).for_each(|number| add(&mut store, number));
    for number in 0..500_u64 {
        assert_eq!(store.delete(TABLE, &number.to_be_bytes()), Ok(true));
        assert_eq!(store.commit(), Ok(Commit::Durable));
    }
    assert_eq!(count(&store, 0..500), 0);
    let chunks = store.chunks().map_or(0, |chunks| chunks.len());
    assert!(chunks < 40, "{chunks} chunks hold no row");
    let no_table = store.get(TableNo::new(9), 0, b"key", &mut Vec::new());
    assert_eq!(no_table, Err(StoreError::NoIndex { table: 9, index: 0 }));
}
