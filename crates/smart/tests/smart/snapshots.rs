//! The device's scan gives what the host's scan gives at the same snapshot, whatever happens beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use varve_engine::LeafLayout;
use varve_smart::{Client, ListedLeaf, OpenRequest, Output};

use crate::bed::{Bed, RC, RR, by_host, key, pairs, program, remove, set};

const LAYOUTS: [LeafLayout; 2] = [LeafLayout::ByRows, LeafLayout::ByColumns];

#[test]
fn a_quiet_table_is_read_by_the_device() {
    for layout in LAYOUTS {
        let bed = Bed::new();
        let def = bed.table(layout);
        bed.load(&def, 0..20_000);
        bed.settle();
        let mut txn = bed.begin(RC);
        let found = bed.scanned(&mut txn, &def);
        assert_eq!(found.len(), 20_000);
        assert_eq!(found, by_host(&mut txn, &def));
        let (by_device, deferred) = bed.leaves();
        assert!(by_device > 50 && deferred == 0, "{by_device} leaves by the device, {deferred} deferred");
        assert_eq!(bed.failures(), 0);
    }
}

/// The data file lacks the change, and the page in it is older than the bound.
#[test]
fn changes_that_are_only_in_the_pool_are_seen() {
    let bed = Bed::new();
    let def = bed.table(LeafLayout::ByRows);
    bed.load(&def, 0..5000);
    bed.settle();
    let mut writer = bed.begin(RC);
    set(&mut writer, &def, 17, -1);
    remove(&mut writer, &def, 4000);
    writer.commit().unwrap();
    bed.database.tick().unwrap();
    let found = bed.scanned(&mut bed.begin(RC), &def);
    assert_eq!((found.get(&17), found.get(&4000), found.len()), (Some(&-1), None, 4999));
    let (by_device, deferred) = bed.leaves();
    assert!(by_device > 0 && deferred > 0, "{by_device} by the device, {deferred} deferred");
}

/// The data file has a newer version than the snapshot sees.
#[test]
fn an_older_snapshot_sees_older_versions() {
    for layout in LAYOUTS {
        let bed = Bed::new();
        let def = bed.table(layout);
        bed.load(&def, 0..5000);
        bed.settle();
        let mut reader = bed.begin(RR);
        let before = by_host(&mut reader, &def);
        let mut writer = bed.begin(RC);
        (0..50).for_each(|id| set(&mut writer, &def, id, -1));
        (2000..2050).for_each(|id| remove(&mut writer, &def, id));
        writer.commit().unwrap();
        bed.load(&def, 6000..8000);
        bed.settle();
        assert_eq!(bed.scanned(&mut reader, &def), before);
        let after = bed.scanned(&mut bed.begin(RC), &def);
        assert_eq!((after.len(), after[&0], after.get(&2000)), (6950, -1, None));
        assert!(bed.leaves().0 > 0);
    }
}

#[test]
fn a_transaction_sees_its_own_changes_and_nobody_elses() {
    let bed = Bed::new();
    let def = bed.table(LeafLayout::ByColumns);
    bed.load(&def, 0..3000);
    bed.settle();
    let mut other = bed.begin(RC);
    set(&mut other, &def, 5, -5);
    let mut own = bed.begin(RC);
    set(&mut own, &def, 6, -6);
    bed.database.checkpoint_all().unwrap();
    let found = bed.scanned(&mut own, &def);
    assert_eq!((found[&5], found[&6], found.len()), (50, -6, 3000));
    other.rollback().unwrap();
    own.rollback().unwrap();
    bed.settle();
    assert_eq!(bed.scanned(&mut bed.begin(RC), &def)[&6], 60);
}

/// Rows that are longer than a page are in overflow chains, which the device does not read.
#[test]
fn large_rows_are_read_by_the_host() {
    let bed = Bed::new();
    let def = bed.table(LeafLayout::ByRows);
    bed.load(&def, 0..2000);
    let mut txn = bed.begin(RC);
    let table = txn.table(&def).unwrap();
    let long = "x".repeat(50_000);
    let row = [varve_engine::Datum::Int4(-1), varve_engine::Datum::Int4(7), varve_engine::Datum::Text(&long)];
    txn.insert(&table, &row).unwrap();
    txn.commit().unwrap();
    bed.settle();
    let found = bed.scanned(&mut bed.begin(RC), &def);
    assert_eq!((found.len(), found[&-1]), (2001, 7));
    assert!(bed.leaves().0 > 0 && bed.leaves().1 > 0);
}

/// Leaves are listed. Then they are split, merged and written, and then the device reads them. It defers all
/// leaves that changed. The rows of the others are the same as when the list was made.
#[test]
fn leaves_that_changed_since_the_list_was_made_are_deferred() {
    let bed = Bed::new();
    let def = bed.table(LeafLayout::ByRows);
    bed.load(&def, (0..20_000).map(|id| id * 2));
    bed.settle();
    let mut txn = bed.begin(RR);
    let table = txn.table(&def).unwrap();
    let mut reader = txn.reader();
    let leaves = reader.home_leaves(&table, &[], 4096).unwrap().unwrap();
    assert!(leaves.next().is_none() && (0..leaves.pages().len()).all(|leaf| !leaves.is_newer(leaf)));
    let mut writer = bed.begin(RC);
    (4000..8000).for_each(|id| remove(&mut writer, &def, id * 2));
    writer.commit().unwrap();
    bed.load(&def, (0..2000).map(|id| id * 2 + 1));
    bed.settle();
    let listed = |n: usize| ListedLeaf { page: leaves.pages()[n], fences: leaves.fences(n) };
    let request = OpenRequest {
        owner: leaves.owner,
        bound: leaves.bound.get(),
        floor: leaves.floor,
        page_bytes: reader.page_bytes() as u32,
        identity: 0,
        file: "data.varve".into(),
        program: program(&def, None, Output::Columns(vec![0])),
        leaves: (0..leaves.pages().len()).map(listed).collect(),
    };
    let count = request.leaves.len();
    let mut client = Client::connect(bed.device.address(), &key(), None, Duration::from_secs(20)).unwrap();
    // A wrong hash of the fences defers every leaf.
    let mut strange = request.clone();
    strange.leaves.iter_mut().for_each(|leaf| leaf.fences ^= 1);
    let mut all_deferred = 0;
    let session = client.open(strange).unwrap();
    loop {
        let part = client.get(session).unwrap();
        assert!(part.batch.is_empty());
        all_deferred += part.deferred.len();
        if part.is_end {
            break;
        }
    }
    assert_eq!(all_deferred, count);
    let session = client.open(request).unwrap();
    let mut deferred = Vec::new();
    loop {
        let part = client.get(session).unwrap();
        deferred.extend(part.deferred.iter().map(|leaf| *leaf as usize));
        if part.is_end {
            break;
        }
    }
    // The first 4,000 ids were split, those from 8,000 to 16,000 deleted.
    let (begin, middle) = (count / 20, count * 3 / 10);
    assert!(deferred.contains(&begin) && deferred.contains(&middle), "{count}: {deferred:?}");
    assert!(!deferred.contains(&(count * 9 / 10)) && deferred.len() < count * 3 / 4, "{count}: {deferred:?}");
}

/// The device defers leaves above the bound, and does not return deleted rows, whatever else the page says.
#[test]
fn leaves_above_the_bound_are_deferred_and_deleted_rows_are_not_returned() {
    for layout in LAYOUTS {
        let bed = Bed::new();
        let def = bed.table(layout);
        bed.load(&def, 0..3000);
        bed.settle();
        // As long as this snapshot needs them, deleted rows stay in their leaves with a mark.
        let mut older = bed.begin(RR);
        assert_eq!(by_host(&mut older, &def).len(), 3000);
        let mut writer = bed.begin(RC);
        (0..1000).for_each(|id| remove(&mut writer, &def, id));
        writer.commit().unwrap();
        bed.settle();
        let mut txn = bed.begin(RC);
        let table = txn.table(&def).unwrap();
        let mut reader = txn.reader();
        let leaves = reader.home_leaves(&table, &[], 4096).unwrap().unwrap();
        let listed = |n: usize| ListedLeaf { page: leaves.pages()[n], fences: leaves.fences(n) };
        let mut request = OpenRequest {
            owner: leaves.owner,
            bound: leaves.bound.get(),
            floor: u64::MAX,
            page_bytes: reader.page_bytes() as u32,
            identity: 0,
            file: "data.varve".into(),
            program: program(&def, None, Output::Columns(vec![0, 1])),
            leaves: (0..leaves.pages().len()).map(listed).collect(),
        };
        let mut client =
            Client::connect(bed.device.address(), &key(), None, Duration::from_secs(20)).unwrap();
        let session = client.open(request.clone()).unwrap();
        let part = client.get(session).unwrap();
        assert!(part.is_end && part.deferred.is_empty(), "{:?}", part.deferred);
        let batch = arrow_ipc::reader::StreamReader::try_new(&part.batch[..], None).unwrap().next();
        let ids: Vec<i32> = pairs(&[batch.unwrap().unwrap()]).into_keys().collect();
        assert_eq!(ids, (1000..3000).collect::<Vec<_>>());
        request.bound = 1;
        let session = client.open(request).unwrap();
        let part = client.get(session).unwrap();
        assert_eq!((part.deferred.len(), part.batch.len()), (leaves.pages().len(), 0));
    }
}

/// Writers insert, update and delete without a pause, and pages are written. Each scan by the device equals
/// the host's scan in the same snapshot.
#[test]
fn scans_beside_writers_give_the_snapshot() {
    for layout in LAYOUTS {
        let bed = Arc::new(Bed::new());
        let def = bed.table(layout);
        bed.load(&def, (0..12_000).map(|id| id * 3));
        bed.settle();
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..2)
            .map(|part| {
                let (bed, def, stop) = (Arc::clone(&bed), Arc::clone(&def), Arc::clone(&stop));
                std::thread::spawn(move || write(&bed, &def, &stop, part))
            })
            .collect();
        let until = Instant::now() + Duration::from_secs(4);
        let mut scans = 0;
        while Instant::now() < until || scans < 10 {
            let mut txn = bed.begin(RR);
            let found = bed.scanned(&mut txn, &def);
            assert_eq!(found, by_host(&mut txn, &def), "scan {scans}");
            txn.commit().unwrap();
            scans += 1;
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let (by_device, deferred) = bed.leaves();
        assert!(by_device > 100 && deferred > 100, "{by_device} by the device, {deferred} deferred");
        assert_eq!(bed.failures(), 0);
    }
}

/// Changes rows of one part of the table: every writer has its own ids.
fn write(bed: &Bed, def: &varve_engine::TableDef, stop: &AtomicBool, part: i32) {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let mut txn = bed.begin(RC);
        let start = (round * 7919 + part * 6000) % 6000 + part * 6000;
        for id in start..start + 20 {
            match round % 4 {
                0 => remove(&mut txn, def, id * 3),
                _ => set(&mut txn, def, id * 3, round),
            }
        }
        if round % 5 == 0 {
            txn.rollback().unwrap();
        } else {
            txn.commit().unwrap();
        }
        // New ids between the old ones, so that leaves are split.
        let base = 100_000_000 * (part + 1) + round * 50;
        bed.load(def, base..base + 50);
        if round % 8 == 0 {
            bed.settle();
        }
    }
}

/// The lists have one leaf each, and leaves are merged between the first two lists. Together the lists have
/// each row once.
#[test]
fn a_list_begins_where_the_list_before_ended_though_leaves_were_merged() {
    let bed = Bed::new();
    let def = bed.table(LeafLayout::ByRows);
    bed.load(&def, 0..20_000);
    bed.settle();
    // As long as this snapshot needs them, deleted rows stay in their leaves with a mark.
    let mut older = bed.begin(RR);
    assert_eq!(by_host(&mut older, &def).len(), 20_000);
    let mut writer = bed.begin(RC);
    (0..20_000).filter(|id| id % 20 != 0).for_each(|id| remove(&mut writer, &def, id));
    writer.commit().unwrap();
    let mut txn = bed.begin(RR);
    let expected = by_host(&mut txn, &def);
    assert_eq!(expected.len(), 1000);
    let table = txn.table(&def).unwrap();
    let mut reader = txn.reader();
    let count = |reader: &mut varve_engine::Reader| {
        reader.home_leaves(&table, &[], 4096).unwrap().unwrap().pages().len()
    };
    let before = count(&mut reader);
    let mut from = Some(Vec::new());
    let (mut lists, mut rows) = (0, 0);
    while let Some(start) = from {
        let leaves = reader.home_leaves(&table, &start, 1).unwrap().unwrap();
        assert_eq!(leaves.pages().len(), 1);
        let (lower, upper) = leaves.keys(0);
        assert_eq!(lower, std::ops::Bound::Included(start.as_slice()));
        let range = (lower.map(<[u8]>::to_vec), upper.map(<[u8]>::to_vec));
        rows += crate::sessions::rows_between(&mut reader, &table, range.0, range.1).num_rows();
        if lists == 0 {
            older.rollback().unwrap();
            older = bed.begin(RC);
            bed.settle();
            assert!(count(&mut reader) * 2 < before, "{} of {before} leaves are left", count(&mut reader));
        }
        if lists == 1 {
            // The leaf has keys below those of the list, so the device defers it.
            let request = OpenRequest {
                owner: leaves.owner,
                bound: u64::MAX,
                floor: u64::MAX,
                page_bytes: reader.page_bytes() as u32,
                identity: 0,
                file: "data.varve".into(),
                program: program(&def, None, Output::Columns(vec![0])),
                leaves: vec![ListedLeaf { page: leaves.pages()[0], fences: leaves.fences(0) }],
            };
            let mut client =
                Client::connect(bed.device.address(), &key(), None, Duration::from_secs(20)).unwrap();
            let session = client.open(request).unwrap();
            assert_eq!(client.get(session).unwrap().deferred, [0]);
        }
        lists += 1;
        from = leaves.next().map(<[u8]>::to_vec);
    }
    assert_eq!(rows, expected.len());
}
