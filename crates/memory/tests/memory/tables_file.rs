//! The file `tables.varve` is made and opened. If it does not fit, it is made again if it has no tables, and
//! refused if it has tables.

use std::sync::Arc;

use varve_device::{Directory, ErrorKind, Fault, Faulty, MemoryDirectory, Rule, VolatileMachine, When};
use varve_memory::{
    Allocator, EngineKind, MemoryError, MemoryTables, Owner, TABLES_FILE, TablesFileError, TablesNeed,
    look_into_tables,
};

const SIZE_BYTES: u64 = 1 << 20;
/// A database with tables that was shut down cleanly.
const NEED: TablesNeed = TablesNeed { database: 7, is_clean: true, has_tables: true };
/// One without tables.
const EMPTY: TablesNeed = TablesNeed { has_tables: false, ..NEED };

fn configured(directory: Arc<dyn Directory>) -> MemoryTables {
    MemoryTables { directory, size_bytes: SIZE_BYTES, partitions: 2 }
}

/// Returns a directory with a file in which an owner has a chunk.
fn made() -> (Arc<MemoryDirectory>, MemoryTables) {
    let directory = MemoryDirectory::new();
    let tables = configured(directory.clone());
    fill(&tables);
    (directory, tables)
}

fn fill(tables: &MemoryTables) {
    let opened = tables.open(&EMPTY).unwrap_or_else(|error| panic!("{error}"));
    let owner = Owner::new(300).unwrap_or_else(|| panic!("300 is an owner"));
    let allocator = opened.allocator();
    let chunk = allocator.allocate(owner, 100).unwrap_or_else(|error| panic!("{error}"));
    allocator.activate(chunk).unwrap_or_else(|error| panic!("{error}"));
}

fn chunks(tables: &MemoryTables, need: &TablesNeed) -> Result<usize, TablesFileError> {
    Ok(tables.open(need)?.allocator().active_chunks()?.len())
}

fn why(tables: &MemoryTables, need: &TablesNeed) -> String {
    tables.open(need).map(|_| ()).map_or_else(|error| error.to_string(), |()| "it opens".to_owned())
}

#[test]
fn a_file_is_made_once_and_opened_again() {
    let (directory, tables) = made();
    assert_eq!(chunks(&tables, &NEED), Ok(1));
    assert_eq!(chunks(&tables, &EMPTY), Ok(1), "what fits stays, although nothing is needed");
    let found = look_into_tables(&*directory, NEED.database).ok().flatten();
    let found = found.unwrap_or_else(|| panic!("there is a file"));
    assert_eq!((found.size_bytes, found.partitions, found.filled_tables), (SIZE_BYTES, 2, 1));
    assert_eq!(found.engines, []);
    assert_eq!(found.capacity_bytes - found.free_bytes, varve_memory::SEGMENT_BYTES);
    let opened = tables.open(&NEED).unwrap_or_else(|error| panic!("{error}"));
    drop(EngineKind::NvmInplace.open(opened.allocator(), 1).unwrap_or_else(|error| panic!("{error}")));
    let found = look_into_tables(&*directory, NEED.database).ok().flatten();
    assert_eq!(found.map(|found| found.engines), Some(vec![EngineKind::NvmInplace]));
}

#[test]
fn size_and_partitions_change_only_without_tables() {
    let (_, tables) = made();
    let larger = MemoryTables { size_bytes: 2 * SIZE_BYTES, ..tables.clone() };
    let more = MemoryTables { partitions: 3, ..tables.clone() };
    assert!(why(&larger, &NEED).contains("has 1048576 bytes, and nvm.tables is 2097152 bytes"));
    assert!(why(&more, &NEED).contains("is 2, and nvm.partitions is 3"));
    assert_eq!(chunks(&tables, &NEED), Ok(1), "refusing changes nothing");
    assert_eq!(chunks(&more, &EMPTY), Ok(0), "it is made again");
    assert_eq!(chunks(&more, &NEED), Ok(0), "and has its number");
    assert_eq!(chunks(&MemoryTables { size_bytes: 2 * SIZE_BYTES, ..more.clone() }, &EMPTY), Ok(0));
}

#[test]
fn a_missing_an_empty_and_a_foreign_file_are_refused_with_tables() {
    let (directory, tables) = made();
    let foreign = TablesNeed { database: 8, ..NEED };
    for need in [foreign, TablesNeed { has_tables: false, ..foreign }] {
        assert!(why(&tables, &need).contains("belongs to database 0x0000000000000007"));
    }
    directory.remove(TABLES_FILE).unwrap_or_else(|error| panic!("{error}"));
    assert!(why(&tables, &NEED).contains("is missing, and has tables"));
    assert_eq!(directory.exists(TABLES_FILE), Ok(false), "refusing makes no file");
    assert_eq!(look_into_tables(&*directory, 7), Ok(None));
    directory.map(TABLES_FILE, 4096).unwrap_or_else(|error| panic!("{error}"));
    assert!(why(&tables, &NEED).contains("is empty, and has tables"));
    assert!(why(&tables, &EMPTY).contains("has 4096 bytes, and nvm.tables is 1048576"));
    directory.remove(TABLES_FILE).unwrap_or_else(|error| panic!("{error}"));
    directory.map(TABLES_FILE, SIZE_BYTES).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(chunks(&tables, &EMPTY), Ok(0), "a file of zeros was made for it");
}

#[test]
fn a_damaged_file_is_refused_and_kept() {
    let (directory, tables) = made();
    let region = directory.map(TABLES_FILE, SIZE_BYTES).unwrap_or_else(|error| panic!("{error}"));
    region.store_word(16, 1);
    for need in [NEED, EMPTY] {
        assert!(why(&tables, &need).contains("the checksum of the header"));
        assert_eq!(region.load_word(16), 1);
    }
    region.store_word(0, 1);
    assert!(why(&tables, &EMPTY).contains("holds no allocator: its first word is 0x0000000000000001"));
}

#[test]
fn an_unfinished_file_is_finished() {
    let directory = MemoryDirectory::new();
    let region = directory.map(TABLES_FILE, SIZE_BYTES).unwrap_or_else(|error| panic!("{error}"));
    let formatted = Allocator::format(region, NEED.database).map(|_| ());
    assert_eq!(formatted, Ok::<(), MemoryError>(()));
    let tables = configured(directory);
    assert!(why(&tables, &NEED).contains("is 0, and nvm.partitions is 2"));
    assert_eq!(tables.open(&EMPTY).map(|opened| opened.partitions()).ok(), Some(2));
    assert_eq!(chunks(&tables, &NEED), Ok(0));
}

#[test]
fn emulated_memory_is_lost_with_the_machine() {
    let machine = VolatileMachine::new();
    let tables = configured(machine.clone());
    fill(&tables);
    let crashed = TablesNeed { is_clean: false, ..NEED };
    assert_eq!(chunks(&configured(machine.after_process_death()), &crashed), Ok(1));
    let off = configured(machine.after_power_loss());
    assert!(why(&off, &crashed).contains("did not survive the restart"));
    let without = TablesNeed { has_tables: false, ..crashed };
    assert_eq!(chunks(&off, &without), Ok(0), "nothing of the database was there");
    let opened = tables.open(&NEED).unwrap_or_else(|error| panic!("{error}"));
    assert!(opened.warning().is_some_and(|warning| warning.contains("emulated by a file")));
    opened.settle().unwrap_or_else(|error| panic!("{error}"));
    let off = machine.after_power_loss();
    assert_eq!(chunks(&configured(off.clone()), &NEED), Ok(1), "a clean shutdown keeps it");
    assert_eq!(chunks(&configured(off), &crashed), Ok(1), "which has noted this start of the machine");
}

/// Each operation on the directory and on the file fails in turn. Each failure is an error, and a later start
/// succeeds.
#[test]
fn a_file_whose_operations_fail_loses_nothing() {
    let mut failed = 0;
    for has_file in [false, true] {
        for nth in 1..40_u64 {
            let directory = MemoryDirectory::new();
            if has_file {
                fill(&configured(directory.clone()));
            }
            let faulty = Faulty::wrap(directory.clone());
            let kind = if nth % 2 == 0 { ErrorKind::NoSpace } else { ErrorKind::Io(5) };
            let when = When::Nth(nth.div_ceil(2));
            faulty.arm(Rule { operation: None, space: None, when, fault: Fault::Fails(kind) });
            let need = if has_file { NEED } else { EMPTY };
            let opened = configured(faulty.clone()).open(&need).map(|opened| opened.settle());
            let is_error = !matches!(opened, Ok(Ok(())));
            assert!(!is_error || faulty.fired_count() > 0, "an error without a fault");
            failed += u64::from(is_error);
            let found = chunks(&configured(directory.clone()), &need);
            assert_eq!(found, Ok(usize::from(has_file)), "operation {nth} failed: {}", faulty.fired_count());
        }
    }
    assert!(failed >= 4, "{failed} starts met an error");
}

#[test]
fn a_log_of_changes_does_not_fill_the_file() {
    let tables = MemoryTables { size_bytes: 8 * SIZE_BYTES, ..configured(MemoryDirectory::new()) };
    let opened = tables.open(&EMPTY).unwrap_or_else(|error| panic!("{error}"));
    let store = EngineKind::Inplace.open(opened.allocator(), 0);
    let mut store = store.unwrap_or_else(|error| panic!("{error}"));
    let owner = Owner::new(300).unwrap_or_else(|| panic!("300 is an owner"));
    let table = store.create_table(owner, 1).unwrap_or_else(|error| panic!("{error}"));
    let row = vec![7; 60_000];
    let rounds = 4 * tables.size_bytes / row.len() as u64;
    for round in 0..rounds {
        let inserted =
            store.insert(table, &[b"key"], &row).and_then(|()| store.commit()).and_then(|_| store.sync());
        inserted.unwrap_or_else(|error| panic!("round {round} of {rounds}: {error}"));
        let deleted = store.delete(table, b"key").and_then(|_| store.commit()).and_then(|_| store.sync());
        deleted.unwrap_or_else(|error| panic!("round {round} of {rounds}: {error}"));
    }
}
