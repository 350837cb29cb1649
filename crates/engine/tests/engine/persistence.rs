//! Committed rows are there after a restart, after a shutdown as well as after a crash.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::database::*;
use varve_device::{
    AlignedBuf, Directory as _, Durability, MemoryDirectory, OpenHow, Purpose, Space, take_reached,
};
use varve_engine::Database;
use varve_pager::{FLASH_FILE, FlashConfig, FlashDesign, FlashSettings};

#[test]
fn rows_survive_a_clean_restart() {
    let (directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, (0..500).map(|i| (i, i * 2)));
    database.shutdown().unwrap();
    drop(database);
    let database = open(&directory);
    let def = database.begin(RC).catalog().table("public", "t").unwrap();
    assert_eq!(all(&database, &def), (0..500).map(|i| (i, i * 2)).collect::<Vec<_>>());
    is_sound(&database);
}

#[test]
fn rows_survive_without_a_shutdown_and_losers_are_undone() {
    let (directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, (0..300).map(|i| (i, 1)));
    let mut loser = begin(&database, RC);
    for id in 0..300 {
        update(&mut loser, &def, id, |_| 2).unwrap();
    }
    put(&mut loser, &def, 1000, 3).unwrap();
    load(&database, &def, [(500, 5)]);
    std::mem::forget(loser);
    let directory = varve_device::MemoryDirectory::from_images(directory.images());
    let database = open(&directory);
    let def = database.begin(RC).catalog().table("public", "t").unwrap();
    let expect: Vec<_> = (0..300).map(|i| (i, 1)).chain([(500, 5)]).collect();
    assert_eq!(all(&database, &def), expect);
    is_sound(&database);
}

/// A new user found this fault: a sealed cache had lost pages that the engine reads first. The pager was
/// open, but these pages were no longer in the cache.
#[test]
fn what_a_start_reads_first_is_redone_where_a_sealed_cache_has_lost_it() {
    let mut opened_again = [0; 2];
    for (design, seed) in [FlashDesign::DualWrite, FlashDesign::LazyCleaning]
        .into_iter()
        .flat_map(|design| (0..24).map(move |seed| (design, seed)))
    {
        let (directory, flash) = (MemoryDirectory::new(), MemoryDirectory::new());
        let open = || {
            let mut options = options(&directory);
            options.pager.pool_bytes = 1 << 20;
            options.pager.flash = Some(FlashConfig::with(
                flash.clone(),
                FlashSettings { design, ..FlashSettings::of_size(4 << 20) },
            ));
            Database::open(options)
        };
        let database = open().unwrap();
        let def = create(&database, "t");
        let rows: Vec<(i32, i32)> = (0..2000).map(|id| (id, id * 2 + seed)).collect();
        load(&database, &def, rows.iter().copied());
        database.shutdown().unwrap();
        drop(database);
        let file = flash.open(FLASH_FILE, OpenHow::existing(Space::Flash)).unwrap();
        let mut garbage = AlignedBuf::new(4096);
        garbage.fill(0xAB);
        // The garbage is written after the header and the records.
        for block in (20..file.len_bytes().unwrap() / 4096).filter(|block| block % 24 == seed as u64) {
            file.write_at(block * 4096, &garbage, Purpose::FlashPage, Durability::Now).unwrap();
        }
        drop(file);
        take_reached();
        let opened = open().expect("what is lost is redone");
        if take_reached().contains_key("open: once more, behind what is read first") {
            opened_again[usize::from(design == FlashDesign::LazyCleaning)] += 1;
            let told = opened.pager().warnings().join("; ");
            assert!(
                told.contains("another one redid what only the cache had") && !told.contains("restart"),
                "{told}"
            );
        }
        // A lost page that is read later stops the database. The next start has all rows.
        let has_all = |database: &Arc<Database>| {
            let def = database.begin(RC).catalog().table("public", "t").unwrap();
            let mut txn = begin(database, RC);
            rows.iter().try_for_each(|(id, v)| {
                txn.start_statement();
                see_again(&mut txn, &def, *id).map(|found| assert_eq!(found, Some(*v), "row {id}"))
            })
        };
        if let Err(stopped) = has_all(&opened) {
            assert!(stopped.to_string().contains("restart it to recover from the log"), "{stopped}");
            drop(opened);
            let opened = open().unwrap();
            has_all(&opened).unwrap();
            is_sound(&opened);
        }
    }
    assert!(
        opened_again.iter().all(|times| *times > 0),
        "{opened_again:?}: the engine's own reads met no lost frame"
    );
}
