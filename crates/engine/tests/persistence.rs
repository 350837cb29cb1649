//! What was committed is there after a restart, clean or not.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod database;

use database::*;

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
