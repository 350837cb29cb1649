//! A tree behaves like a sorted map: random changes, point reads, and scans in both directions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::common::{
    Random, any_row, check, get, int_key, new_directory, new_pager, open_pager, put, remove,
};
use varve_engine::node::{Stamp, key_bytes_max, payload_bytes_max};
use varve_engine::tree::{Direction, Scan, Tree, TreeError, TreeKind};
use varve_pager::{Pager, SpaceId};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// How a test chooses its keys.
#[derive(Clone, Copy, Debug)]
enum Keys {
    Integers,
    Long,
    Mixed,
}

fn any_key(random: &mut Random, keys: Keys, page_bytes: usize) -> Vec<u8> {
    match keys {
        Keys::Integers => int_key(random.below(3000) as i64),
        Keys::Long => {
            let mut key = vec![b'k'; random.below(key_bytes_max(page_bytes) - 2)];
            key.extend((random.below(300) as u16).to_be_bytes());
            key
        }
        Keys::Mixed if random.below(2) == 0 => int_key(random.below(500) as i64),
        Keys::Mixed => {
            let len = random.below(60);
            random.bytes(len)
        }
    }
}

/// The columns of the rows in trees by columns.
const WIDTHS: &[u8] = &[4, 0, 8, 0, 1, 16, 2, 0, 8, 4];

fn any_payload(random: &mut Random, key: &[u8], page_bytes: usize, widths: &[u8]) -> Vec<u8> {
    let limit = payload_bytes_max(page_bytes, key.len());
    // Some payloads are not rows, for example overflow pointers.
    if !widths.is_empty() && random.below(10) > 0 {
        return any_row(random, widths, limit).unwrap();
    }
    let len = match random.below(20) {
        0 => limit,
        1..=3 => random.below(limit),
        _ => random.below(120.min(limit)),
    };
    random.bytes(len)
}

fn expected(model: &Model, lower: Bound<&[u8]>, upper: Bound<&[u8]>, direction: Direction) -> Vec<Vec<u8>> {
    let inside = |key: &[u8]| {
        let above = match lower {
            Bound::Included(bound) => key >= bound,
            Bound::Excluded(bound) => key > bound,
            Bound::Unbounded => true,
        };
        above
            && match upper {
                Bound::Included(bound) => key <= bound,
                Bound::Excluded(bound) => key < bound,
                Bound::Unbounded => true,
            }
    };
    let keys = model.keys().filter(|key| inside(key)).cloned();
    match direction {
        Direction::Forward => keys.collect(),
        Direction::Backward => keys.rev().collect(),
    }
}

fn scanned(pager: &Pager, tree: &Tree, scan: &mut Scan, model: &Model) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    while tree.next_batch(pager, scan).unwrap() {
        for index in 0..scan.len() {
            let entry = scan.entry(index);
            assert_eq!(model.get(&entry.key()).map(Vec::as_slice), Some(entry.payload(&mut Vec::new())));
            keys.push(entry.key());
        }
    }
    assert!(!tree.next_batch(pager, scan).unwrap());
    keys
}

fn check_scans(pager: &Pager, tree: &Tree, model: &Model, random: &mut Random, keys: Keys) {
    let mut scan = Scan::new(Bound::Unbounded, Bound::Unbounded, Direction::Forward, 0);
    for round in 0..24 {
        let (a, b) = (any_key(random, keys, pager.page_size()), any_key(random, keys, pager.page_size()));
        let bound = |which: usize, key: &'static [u8]| match which {
            0 => Bound::Unbounded,
            1 => Bound::Included(key),
            _ => Bound::Excluded(key),
        };
        let (a, b): (&'static [u8], &'static [u8]) = (a.leak(), b.leak());
        let (lower, upper) = (bound(random.below(3), a), bound(random.below(3), b));
        let direction = if round % 2 == 0 { Direction::Forward } else { Direction::Backward };
        scan.reset(lower, upper, direction, [0, 1, 7][random.below(3)]);
        let seen = scanned(pager, tree, &mut scan, model);
        assert_eq!(seen, expected(model, lower, upper, direction), "{lower:?} {upper:?} {direction:?}");
    }
}

/// Runs over leaves by rows, then over leaves by columns.
fn run(seed: u64, page_bytes: usize, keys: Keys, steps: usize) {
    run_over(&new_pager(page_bytes), seed, keys, steps, &[]);
    run_over(&new_pager(page_bytes), seed, keys, steps, WIDTHS);
}

fn run_over(pager: &Pager, seed: u64, keys: Keys, steps: usize, widths: &[u8]) {
    let page_bytes = pager.page_size();
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let tree = Tree::create_with(pager, SpaceId::DATA, owner, TreeKind::Clustered, widths).unwrap();
    let (mut model, mut random) = (Model::new(), Random::new(seed));
    for step in 0..steps {
        let key = any_key(&mut random, keys, page_bytes);
        // Grow first, then shrink, so that both splits and merges happen.
        if random.below(10) < if step < steps / 2 { 8 } else { 2 } {
            let payload = any_payload(&mut random, &key, page_bytes, widths);
            put(pager, &tree, &key, Stamp { txn: step as u64, roll: !0, flags: 0 }, &payload);
            model.insert(key, payload);
        } else {
            assert_eq!(remove(pager, &tree, &key), model.remove(&key).is_some());
        }
        let probe = any_key(&mut random, keys, page_bytes);
        assert_eq!(get(pager, &tree, &probe), model.get(&probe).cloned());
        if step == steps / 2 || step == steps - 1 {
            assert_eq!(check(pager, &tree).0, model.clone().into_iter().collect::<Vec<_>>());
            check_scans(pager, &tree, &model, &mut random, keys);
        }
    }
    for key in model.keys() {
        assert!(remove(pager, &tree, key));
    }
    let (left, pages) = check(pager, &tree);
    // Inner nodes with separators of a quarter page count as well filled and need not merge.
    let most = if matches!(keys, Keys::Long) { 30 } else { 1 };
    assert!(left.is_empty() && pages <= most, "{pages} pages are left of an emptied tree");
}

#[test]
fn small_pages() {
    (0..3).for_each(|seed| run(seed, 4096, Keys::Integers, 3000));
    (0..3).for_each(|seed| run(seed, 4096, Keys::Mixed, 3000));
}

#[test]
fn long_keys() {
    (0..3).for_each(|seed| run(seed, 4096, Keys::Long, 600));
    run(9, 8192, Keys::Long, 600);
}

#[test]
fn default_pages() {
    run(1, 8192, Keys::Integers, 5000);
    run(2, 8192, Keys::Mixed, 5000);
}

#[test]
fn large_pages() {
    run(1, 65536, Keys::Mixed, 3000);
    run(2, 65536, Keys::Long, 300);
}

#[test]
fn more_pages_than_memory() {
    let pager = open_pager(new_directory(), 4096, 40 * 4096);
    run_over(&pager, 5, Keys::Integers, 4000, &[]);
    run_over(&pager, 6, Keys::Integers, 4000, WIDTHS);
    assert!(pager.stats().evictions > 0, "the data fitted in memory");
}

/// A range of 100 rows in sysbench ends after 7 leaves of 4 KiB. Earlier, 32 leaves were read ahead for each
/// such range.
#[test]
fn nothing_is_read_ahead_beyond_the_end_of_a_range() {
    let directory = new_directory();
    let pager = open_pager(directory.clone(), 4096, 1024 * 4096);
    let tree = Tree::create(&pager, SpaceId::DATA, TreeKind::Clustered).unwrap();
    for value in 0..4000 {
        put(&pager, &tree, &int_key(value), Stamp::default(), &[b'x'; 190]);
    }
    pager.shutdown().unwrap();
    drop(pager);
    let pager = open_pager(directory, 4096, 1024 * 4096);
    let reads = || pager.stats().misses + pager.stats().prefetched;
    for (first, direction) in [(500, Direction::Forward), (2500, Direction::Backward)] {
        let before = reads();
        let (lower, upper) = (int_key(first), int_key(first + 99));
        let mut scan = Scan::new(Bound::Included(&lower), Bound::Included(&upper), direction, 0);
        let mut found = 0;
        while tree.next_batch(&pager, &mut scan).unwrap() {
            found += scan.len();
        }
        let read = reads() - before;
        assert_eq!(found, 100);
        assert!((6..=12).contains(&read), "{read} pages were read for 100 rows, {direction:?}");
    }
}

#[test]
fn keys_have_a_limit() {
    let pager = new_pager(4096);
    let tree = Tree::create(&pager, SpaceId::DATA, TreeKind::Secondary).unwrap();
    let key = vec![7; key_bytes_max(4096) + 1];
    let mut mtr = pager.begin().unwrap();
    let error = tree.locate_x(&pager, &mut mtr, &key).unwrap_err();
    assert!(matches!(error, TreeError::KeyTooLong { bytes, limit } if bytes == limit + 1));
}

#[test]
fn ascending_inserts_fill_leaves() {
    let pager = new_pager(8192);
    let tree = Tree::create(&pager, SpaceId::DATA, TreeKind::Clustered).unwrap();
    let count = 20_000;
    for value in 0..count {
        put(&pager, &tree, &int_key(value), Stamp::default(), &[b'x'; 100]);
    }
    let (entries, pages) = check(&pager, &tree);
    assert_eq!(entries.len(), count as usize);
    let full = pages as f64 * 8192.0;
    let live = count as f64 * (100 + 15 + 2 + 8 + 2) as f64;
    assert!(live / full > 0.90, "{pages} pages for {live} live bytes: {}", live / full);
}

#[test]
fn secondary_leaves_carry_flags_and_their_newest_transaction() {
    let pager = new_pager(4096);
    let tree = Tree::create(&pager, SpaceId::DATA, TreeKind::Secondary).unwrap();
    for value in 0..2000u64 {
        put(
            &pager,
            &tree,
            &int_key(value as i64),
            Stamp { txn: value, roll: 0, flags: (value % 2) as u8 },
            &[],
        );
    }
    let mut scan = Scan::new(Bound::Unbounded, Bound::Unbounded, Direction::Forward, 0);
    let mut seen = 0;
    while tree.next_batch(&pager, &mut scan).unwrap() {
        for index in 0..scan.len() {
            assert_eq!(scan.entry(index).is_deleted(), seen % 2 == 1);
            assert!(scan.newest_txn() >= seen);
            seen += 1;
        }
    }
    assert_eq!(seen, 2000);
}

#[test]
fn queues_do_not_leave_empty_leaves_behind() {
    let pager = new_pager(4096);
    let tree = Tree::create(&pager, SpaceId::DATA, TreeKind::Clustered).unwrap();
    for value in 0..10_000 {
        put(&pager, &tree, &int_key(value), Stamp::default(), &[b'x'; 50]);
        if value >= 100 {
            assert!(remove(&pager, &tree, &int_key(value - 100)));
        }
    }
    let (entries, pages) = check(&pager, &tree);
    assert!(entries.len() == 100 && pages < 8, "{pages} pages for {} rows", entries.len());
}
