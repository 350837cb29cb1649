//! Rows of up to 16 MiB are stored in chains of pages. When a chain is freed, all its pages are free.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{new_pager, open_pager};
use varve_engine::overflow;
use varve_engine::tree::{Checker, Tree, TreeKind};
use varve_pager::{PageId, Pager, SpaceId};

fn begin(pager: &Pager, tree: &Tree) -> PageId {
    pager.reserve(SpaceId::DATA, 1).unwrap();
    let mut mtr = pager.begin().unwrap();
    let first = overflow::begin(&mut mtr, tree).unwrap();
    mtr.commit();
    first
}

fn write(pager: &Pager, tree: &Tree, payload: &[u8]) -> Vec<u8> {
    let first = begin(pager, tree);
    overflow::fill(pager, tree, first, payload).unwrap()
}

fn free(pager: &Pager, tree: &Tree, first: PageId) -> usize {
    let (mut next, mut freed) = (Some(first), 0);
    while let Some(page) = next {
        let mut mtr = pager.begin().unwrap();
        next = overflow::free_first(&mut mtr, tree, page).unwrap();
        mtr.commit();
        freed += 1;
    }
    freed
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn rows_of_all_lengths_come_back() {
    for page_bytes in [4096, 65536] {
        let pager = new_pager(page_bytes);
        let tree = Tree::create(&pager, SpaceId::DATA, TreeKind::Clustered).unwrap();
        let room = page_bytes - 40;
        let mut checker = Checker::new();
        for len in [1, room - 1, room, room + 1, 3 * room, 3 * room + 5] {
            let pointer = write(&pager, &tree, &payload(len));
            assert!(overflow::is_pointer(&pointer) && overflow::payload_bytes(&pointer) == len);
            let mut back = b"kept".to_vec();
            overflow::read(&pager, &tree, &pointer, &mut back).unwrap();
            assert_eq!(back, [&b"kept"[..], &payload(len)].concat());
            overflow::check(&pager, &tree, &pointer, &mut checker);
        }
        tree.check(&pager, &mut checker, &mut |_, _| ()).unwrap();
        checker.compare_with_allocation(&pager, SpaceId::DATA, tree.owner()).unwrap();
        assert_eq!(checker.damages(), [] as [String; 0]);
        begin(&pager, &tree);
        checker.compare_with_allocation(&pager, SpaceId::DATA, tree.owner()).unwrap();
        assert!(checker.damages()[0].contains("nothing refers to it"));
    }
}

#[test]
fn the_largest_row_comes_back() {
    let pager = open_pager(crate::common::new_directory(), 8192, 4 << 20);
    let tree = Tree::create(&pager, SpaceId::DATA, TreeKind::Clustered).unwrap();
    let wanted = payload(16 << 20);
    let pointer = write(&pager, &tree, &wanted);
    let mut back = Vec::new();
    overflow::read(&pager, &tree, &pointer, &mut back).unwrap();
    assert!(back == wanted);
    let freed = free(&pager, &tree, overflow::first_page(&tree, &pointer));
    assert_eq!(freed, (16usize << 20).div_ceil(8192 - 40));
}

#[test]
fn half_filled_chains_can_be_freed() {
    let pager = new_pager(4096);
    let tree = Tree::create(&pager, SpaceId::DATA, TreeKind::Clustered).unwrap();
    assert_eq!(free(&pager, &tree, begin(&pager, &tree)), 1);
}

#[test]
fn a_stub_that_points_elsewhere_is_damage() {
    let pager = new_pager(4096);
    let tree = Tree::create(&pager, SpaceId::DATA, TreeKind::Clustered).unwrap();
    let pointer = write(&pager, &tree, &payload(10_000));
    let other = Tree::create(&pager, SpaceId::DATA, TreeKind::Clustered).unwrap();
    assert!(overflow::read(&pager, &other, &pointer, &mut Vec::new()).is_err());
    let mut longer = pointer.clone();
    longer[1] = longer[1].wrapping_add(1);
    assert!(overflow::read(&pager, &tree, &longer, &mut Vec::new()).is_err());
    let mut checker = Checker::new();
    overflow::check(&pager, &tree, &longer, &mut checker);
    assert_eq!(checker.damage_count(), 1);
    overflow::check(&pager, &tree, &pointer, &mut checker);
    assert!(checker.damages()[1].contains("used twice"));
}

#[test]
fn a_stub_that_makes_no_sense_is_damage() {
    let pager = new_pager(4096);
    let tree = Tree::create(&pager, SpaceId::DATA, TreeKind::Clustered).unwrap();
    let pointer = write(&pager, &tree, &payload(10_000));
    let mut endless = pointer.clone();
    endless[1..5].fill(0xFF);
    for damaged in [&pointer[..1], &pointer[..5], &[&pointer[..], &[0]].concat(), &endless] {
        assert!(overflow::read(&pager, &tree, damaged, &mut Vec::new()).is_err(), "{damaged:?}");
        let mut checker = Checker::new();
        overflow::check(&pager, &tree, damaged, &mut checker);
        assert_eq!(checker.damage_count(), 1, "{damaged:?}");
    }
}
