//! Estimates of the entries of a tree, of its leaves, and of the part below a key.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Random, check, int_key, new_pager, put};
use varve_engine::node::Stamp;
use varve_engine::tree::{Tree, TreeKind};
use varve_pager::SpaceId;

const ENTRIES: i64 = 20_000;

#[test]
fn estimates_are_near_in_trees_of_ascending_and_of_random_keys() {
    for is_shuffled in [false, true] {
        let pager = new_pager(4096);
        let tree = Tree::create(&pager, SpaceId::DATA, TreeKind::Clustered).unwrap();
        let mut keys: Vec<i64> = (0..ENTRIES).collect();
        if is_shuffled {
            let mut random = Random::new(5);
            (1..keys.len()).rev().for_each(|n| keys.swap(n, random.below(n + 1)));
        }
        for key in keys {
            put(&pager, &tree, &int_key(key), Stamp { txn: 1, roll: 0, flags: 0 }, &[7; 100]);
        }
        let (entries, pages) = check(&pager, &tree);
        let estimate = tree.estimate(&pager, 24).unwrap();
        let near = |estimate: u64, exact: usize| {
            (exact as f64 * 0.9..=exact as f64 * 1.1).contains(&(estimate as f64))
        };
        assert!(near(estimate.entries, entries.len()), "{estimate:?}");
        assert!(near(estimate.leaves, pages), "{estimate:?} of {pages} pages");
        for key in [0, 1, 500, 5_000, 10_001, 19_000, ENTRIES - 1, ENTRIES] {
            // The children of a node have different numbers of entries, which the estimate does not know.
            let below = tree.fraction_below(&pager, &int_key(key)).unwrap().unwrap();
            assert!((below - key as f64 / ENTRIES as f64).abs() < 0.15, "{key}: {below}");
        }
    }
}

#[test]
fn an_empty_tree_has_nothing_below_any_key() {
    let pager = new_pager(4096);
    let tree = Tree::create(&pager, SpaceId::DATA, TreeKind::Clustered).unwrap();
    let estimate = tree.estimate(&pager, 24).unwrap();
    assert_eq!((estimate.entries, estimate.leaves), (0, 1));
    assert_eq!(tree.fraction_below(&pager, b"any").unwrap(), Some(0.0));
    assert_eq!(tree.fraction_below(&pager, b"").unwrap(), Some(0.0));
}
