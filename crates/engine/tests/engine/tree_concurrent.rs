//! Readers, scans and writers work on one tree, while its nodes are split and merged. No entry is lost, and
//! none is seen twice.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Random, check, get, int_key, new_directory, new_pager, open_pager, put, remove};
use varve_engine::node::Stamp;
use varve_engine::tree::{Direction, Scan, Tree, TreeKind};
use varve_pager::{Pager, SpaceId};

const KEYS: i64 = 3000;
/// Every tenth key stays for the whole test.
const STABLE: i64 = 10;

fn payload(value: i64, len: usize) -> Vec<u8> {
    [&value.to_le_bytes()[..], &vec![value as u8; len]].concat()
}

fn change(pager: &Pager, tree: &Tree, seed: u64, steps: usize) {
    let mut random = Random::new(seed);
    for step in 0..steps {
        let value = random.below(KEYS as usize) as i64;
        // Phases of growth and of shrinking.
        if value % STABLE == 0 || random.below(10) < if (step / 500) % 2 == 0 { 7 } else { 1 } {
            put(pager, tree, &int_key(value), Stamp::default(), &payload(value, random.below(150)));
        } else {
            remove(pager, tree, &int_key(value));
        }
    }
}

fn read(pager: &Pager, tree: &Tree, done: &AtomicBool) {
    let mut random = Random::new(77);
    while !done.load(Ordering::Relaxed) {
        let value = random.below(KEYS as usize) as i64;
        match get(pager, tree, &int_key(value)) {
            Some(found) => assert_eq!(found[..8], value.to_le_bytes()),
            None => assert_ne!(value % STABLE, 0, "a stable key is gone"),
        }
    }
}

fn scan(pager: &Pager, tree: &Tree, done: &AtomicBool, direction: Direction) {
    let mut scan = Scan::new(Bound::Unbounded, Bound::Unbounded, direction, 0);
    while !done.load(Ordering::Relaxed) {
        scan.reset(Bound::Unbounded, Bound::Unbounded, direction, 0);
        let (mut last, mut stable) = (None::<Vec<u8>>, 0);
        while tree.next_batch(pager, &mut scan).unwrap() {
            for index in 0..scan.len() {
                let (key, value) =
                    (scan.entry(index).key(), scan.entry(index).payload(&mut Vec::new()).to_vec());
                let ordered = last.as_ref().is_none_or(|last| match direction {
                    Direction::Forward => *last < key,
                    Direction::Backward => *last > key,
                });
                assert!(ordered, "a scan went back");
                let value = i64::from_le_bytes(value[..8].try_into().unwrap());
                assert_eq!(int_key(value), key);
                stable += i64::from(value % STABLE == 0);
                last = Some(key);
            }
        }
        assert_eq!(stable, KEYS / STABLE, "a scan missed a stable key");
    }
}

#[test]
fn readers_and_writers_in_memory() {
    readers_and_writers(&new_pager(4096), 10_000);
}

#[test]
fn readers_and_writers_beyond_memory() {
    readers_and_writers(&open_pager(new_directory(), 4096, 64 * 4096), 2000);
}

fn readers_and_writers(pager: &Pager, steps: usize) {
    let tree = Tree::create(pager, SpaceId::DATA, TreeKind::Clustered).unwrap();
    for value in (0..KEYS).step_by(STABLE as usize) {
        put(pager, &tree, &int_key(value), Stamp::default(), &payload(value, 5));
    }
    let done = AtomicBool::new(false);
    let (tree, done) = (&tree, &done);
    std::thread::scope(|scope| {
        let readers = [
            scope.spawn(move || read(pager, tree, done)),
            scope.spawn(move || scan(pager, tree, done, Direction::Forward)),
            scope.spawn(move || scan(pager, tree, done, Direction::Backward)),
        ];
        let writers: Vec<_> =
            (1..=3).map(|seed| scope.spawn(move || change(pager, tree, seed, steps))).collect();
        let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
    let (entries, _) = check(pager, tree);
    assert!(entries.len() >= (KEYS / STABLE) as usize);
}
