//! Tables are made and dropped, also with crashes in between.

use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory, RecordLog, Recorder, Region, Timeline};
use varve_memory::{Allocator, Store, StoreError, StoreTable, TableNo};

use super::model::INDEXES;
use super::random::no_chunk_is_lost;
use super::{ENGINES, Engine, life, owner};
use crate::crash::{choices, cuts};
use crate::life::{DATABASE, REGION, empty};
use crate::removal::{Subject, in_two_threads};
use crate::rng::Rng;
use crate::skipping::Call;
use crate::traced::{Calls, Traced};

const REGION_BYTES: u64 = 3 << 20;

fn insert(store: &mut dyn Store, table: TableNo, number: u32) {
    let key = number.to_be_bytes();
    let keys: [&[u8]; INDEXES] = [&key, &key, &key];
    store.insert(table, &keys, &[7; 300]).unwrap_or_else(|error| panic!("row {number}: {error}"));
}

fn create(store: &mut dyn Store, of: u16) -> TableNo {
    store.create_table(owner(of), INDEXES).unwrap_or_else(|error| panic!("owner {of}: {error}"))
}

fn rows_count(store: &dyn Store, table: TableNo) -> usize {
    store_rows(store, table).unwrap_or_else(|error| panic!("{error}"))
}

/// Checks that every active chunk belongs to the store.
fn check_chunks(allocator: &Allocator, store: &dyn Store) {
    no_chunk_is_lost(allocator, store).unwrap_or_else(|error| panic!("{error}"));
}

fn open(engine: &Engine, region: Arc<dyn Region>) -> (Arc<Allocator>, Box<dyn Store>) {
    let allocator = Arc::new(Allocator::open(region, DATABASE).unwrap_or_else(|error| panic!("{error}")));
    let store = (engine.open)(Arc::clone(&allocator));
    let store = store.unwrap_or_else(|error| panic!("{}: {error}", engine.name));
    (allocator, store)
}

#[test]
fn a_number_and_an_owner_are_used_again() {
    for engine in &ENGINES {
        let directory = life::with_table(engine, REGION_BYTES);
        let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
        let (allocator, mut store) = open(engine, Arc::clone(&region));
        let taken = store.create_table(owner(2), INDEXES);
        assert_eq!(taken, Err(StoreError::OwnerTaken { owner: 2 }), "{}", engine.name);
        let second = create(&mut *store, 3);
        (0..500).for_each(|number| insert(&mut *store, second, number));
        assert_eq!(store.drop_table(second), Err(StoreError::InTransaction));
        store.commit().and_then(|_| store.sync()).unwrap_or_else(|error| panic!("{error}"));
        let free_bytes = allocator.free_bytes();
        store.drop_table(second).unwrap_or_else(|error| panic!("{}: {error}", engine.name));
        let is_free = allocator.free_bytes() > free_bytes;
        assert!(is_free, "{}", engine.name);
        assert_eq!(allocator.used_bytes(owner(3)), Ok(0), "{}", engine.name);
        let no_table = StoreError::NoIndex { table: second.number(), index: 0 };
        assert_eq!(store.drop_table(second), Err(no_table));
        assert_eq!(create(&mut *store, 3), second);
        insert(&mut *store, second, 1);
        store.commit().and_then(|_| store.sync()).unwrap_or_else(|error| panic!("{error}"));
        drop((store, allocator));
        let (allocator, store) = open(engine, region);
        let listed = |number, of| StoreTable { number, owner: owner(of), indexes: INDEXES };
        assert_eq!(store.tables(), [listed(TableNo::new(0), 2), listed(second, 3)], "{}", engine.name);
        assert_eq!(rows_count(&*store, second), 1);
        check_chunks(&allocator, &*store);
    }
}

#[test]
fn a_thousand_tables() {
    for engine in &ENGINES {
        let directory = empty(300 << 20);
        let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
        let (_, mut store) = open(engine, Arc::clone(&region));
        let made: Vec<TableNo> = (0..1000).map(|number| create(&mut *store, 100 + number)).collect();
        insert(&mut *store, made[999], 5);
        store.commit().and_then(|_| store.sync()).unwrap_or_else(|error| panic!("{error}"));
        made.iter().step_by(2).for_each(|table| {
            store.drop_table(*table).unwrap_or_else(|error| panic!("{}: {error}", engine.name));
        });
        drop(store);
        let (allocator, store) = open(engine, region);
        assert_eq!(store.tables().len(), 500, "{}", engine.name);
        assert_eq!(rows_count(&*store, made[999]), 1);
        check_chunks(&allocator, &*store);
    }
}

/// The number of rows of the new table. The rows are long, so that each of them takes several neighbouring
/// free segments.
const NEW_ROWS: u32 = 3;
const NEW_ROW_BYTES: usize = 100_000;
/// The number of moments of a crash that are checked.
const CUTS: usize = 250;

/// The state after each call: the owner and the number of rows of each table, in the order of their numbers.
/// Table 0 (owner 2) is dropped, then table 1 (owner 3). A new table gets the number of one of them and the
/// owner of the other, and then long rows. It is dropped, too, and the next table gets its number at once.
/// This next table is dropped without rows.
const STATES: [&[(u16, u16, usize)]; 8] = [
    &[(0, 2, 40), (1, 3, 40)],
    &[(1, 3, 40)],
    &[],
    &[(0, 3, 0)],
    &[(0, 3, NEW_ROWS as usize)],
    &[],
    &[(0, 4, 0)],
    &[],
];

fn check_image(engine: &Engine, image: &Arc<MemoryDirectory>, mark: u64) -> Result<(), String> {
    let copy = MemoryDirectory::from_images(image.images());
    let region = copy.map(REGION, 4096).map_err(|error| error.to_string())?;
    let allocator = Arc::new(Allocator::open(region, DATABASE).map_err(|error| error.to_string())?);
    let mut store = (engine.open)(Arc::clone(&allocator)).map_err(|error| error.to_string())?;
    let tables = tables_of(&*store)?;
    // This is what the calls that have returned leave, and what the next one may leave.
    if !STATES.iter().skip(mark as usize).take(2).any(|state| **state == tables) {
        return Err(format!("tables {tables:?} behind {mark} calls"));
    }
    no_chunk_is_lost(&allocator, &*store)?;
    // The store continues. A new table must not share anything with the others.
    let new = store.create_table(owner(5), INDEXES).map_err(|error| error.to_string())?;
    let key = 7_u64.to_be_bytes();
    let inserted = store.insert(new, &[&key, &key, &key], &[1; 80_000]);
    inserted.and_then(|()| store.commit()).and_then(|_| store.sync()).map_err(|error| error.to_string())?;
    let (news, others): (Vec<_>, Vec<_>) =
        tables_of(&*store)?.into_iter().partition(|(number, _, _)| *number == new.number());
    match news == [(new.number(), 5, 1)] && others == tables {
        true => no_chunk_is_lost(&allocator, &*store),
        false => Err(format!("tables {tables:?}, with a new one {others:?} and {news:?}")),
    }
}

/// Returns the number, owner and rows of each table.
fn tables_of(store: &dyn Store) -> Result<Vec<(u16, u16, usize)>, String> {
    let with_rows = |table: &StoreTable| {
        let rows = store_rows(store, table.number)?;
        Ok((table.number.number(), table.owner.number(), rows))
    };
    store.tables().iter().map(with_rows).collect()
}

fn store_rows(store: &dyn Store, table: TableNo) -> Result<usize, String> {
    let mut count = 0;
    let mut on_row = |_: &[u8], _: &[u8]| {
        count += 1;
        std::ops::ControlFlow::Continue(())
    };
    let all = varve_memory::KeyRange::ALL;
    let scanned = store.scan(table, 0, &all, varve_memory::Direction::Forward, &mut on_row);
    scanned.map(|()| count).map_err(|error| error.to_string())
}

/// Records a life in which a table is dropped, and another one is made.
pub fn recorded(engine: &'static Engine) -> Subject<'static> {
    let directory = life::with_table(engine, REGION_BYTES);
    let log = RecordLog::new();
    {
        let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
        let (_, mut store) = open(engine, region);
        let second = create(&mut *store, 3);
        for table in [TableNo::new(0), second] {
            (0..40).for_each(|number| insert(&mut *store, table, number));
        }
        store.commit().and_then(|_| store.sync()).unwrap_or_else(|error| panic!("{error}"));
    }
    let recorder = Recorder::wrap(Arc::clone(&directory), Arc::clone(&log));
    let region = recorder.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let traced = Traced::wrap(region, Arc::clone(&log), Calls::All);
    let (_, mut store) = open(engine, Arc::clone(&traced) as Arc<dyn Region>);
    let mut marks = 1..;
    let mut mark = || log.mark(marks.next().unwrap_or_default());
    for number in [0, 1] {
        let dropped = traced.during(Call::DropTable, || store.drop_table(TableNo::new(number)));
        dropped.unwrap_or_else(|error| panic!("{}: {error}", engine.name));
        mark();
    }
    let table = traced.during(Call::CreateTable, || create(&mut *store, 3));
    mark();
    for number in 0..NEW_ROWS {
        let key = number.to_be_bytes();
        let inserted = store.insert(table, &[&key, &key, &key], &[7; NEW_ROW_BYTES]);
        inserted.unwrap_or_else(|error| panic!("{}: {error}", engine.name));
    }
    store.commit().and_then(|_| store.sync()).unwrap_or_else(|error| panic!("{error}"));
    mark();
    let dropped = traced.during(Call::DropTable, || store.drop_table(table));
    dropped.unwrap_or_else(|error| panic!("{}: {error}", engine.name));
    mark();
    traced.during(Call::CreateTable, || create(&mut *store, 4));
    mark();
    let dropped = traced.during(Call::DropTable, || store.drop_table(table));
    dropped.unwrap_or_else(|error| panic!("{}: {error}", engine.name));
    mark();
    let judge = move |image: &Arc<MemoryDirectory>, mark| check_image(engine, image, mark);
    Subject { recording: in_two_threads(log.recording()), sites: traced.sites(), judge: Box::new(judge) }
}

/// Each crash while two tables are dropped, and another one is made, leaves what the calls have acknowledged.
#[test]
#[ignore = "a longer search, which `make crash` runs"]
fn many_crashes_of_drops_leave_whole_tables() {
    for engine in &ENGINES {
        let Subject { recording, judge, .. } = recorded(engine);
        let cuts = cuts(&recording);
        let (mut rng, mut images, mut timeline) = (Rng::new(7), 0, Timeline::new(recording));
        for cut in cuts.iter().copied().step_by(cuts.len().div_ceil(CUTS)) {
            timeline.advance(cut);
            let mark = timeline.marks().last().copied().unwrap_or_default();
            for fates in choices(&timeline.pending(), &mut rng) {
                images += 1;
                let [image] = &timeline.image(&fates)[..] else { panic!("one device was recorded") };
                judge(image, mark).unwrap_or_else(|error| panic!("{}: {error}", engine.name));
            }
        }
        assert!(images > 50, "{}: {images} images", engine.name);
    }
}

/// Tables 0 (owner 2) and 1 (owner 3) existed. Table 1 is dropped, and made again for owner 4.
fn check_first_image(engine: &Engine, image: &Arc<MemoryDirectory>) {
    let region = image.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let (allocator, store) = open(engine, region);
    let owners: Vec<u16> = store.tables().iter().map(|table| table.owner.number()).collect();
    assert!([&[2, 3][..], &[2], &[2, 4]].contains(&&owners[..]), "{}: owners {owners:?}", engine.name);
    if owners == [2, 3] {
        assert_eq!(rows_count(&*store, TableNo::new(1)), 40, "{}", engine.name);
    }
    check_chunks(&allocator, &*store);
}

/// Each crash while a table is dropped, and another one is made, leaves whole tables and loses no chunk.
#[test]
fn a_drop_survives_a_crash() {
    for engine in &ENGINES {
        let directory = life::with_table(engine, REGION_BYTES);
        let log = RecordLog::new();
        {
            let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
            let (_, mut store) = open(engine, region);
            let second = create(&mut *store, 3);
            (0..40).for_each(|number| insert(&mut *store, second, number));
            store.commit().and_then(|_| store.sync()).unwrap_or_else(|error| panic!("{error}"));
        }
        let recorder = Recorder::wrap(Arc::clone(&directory), Arc::clone(&log));
        let region = recorder.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
        let (_, mut store) = open(engine, region);
        let second = TableNo::new(1);
        store.drop_table(second).unwrap_or_else(|error| panic!("{}: {error}", engine.name));
        create(&mut *store, 4);
        drop(store);
        let (mut rng, mut images, mut timeline) = (Rng::new(7), 0, Timeline::new(log.recording()));
        for cut in (1..=timeline.end()).step_by(3) {
            timeline.advance(cut);
            for fates in choices(&timeline.pending(), &mut rng) {
                images += 1;
                let [image] = &timeline.image(&fates)[..] else { panic!("one device was recorded") };
                check_first_image(engine, image);
            }
        }
        assert!(images > 50, "{}: {images} images", engine.name);
    }
}
