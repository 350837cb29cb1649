//! The pages of a tree were changed directly. The check names the damage.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{int_key, new_pager, put};
use varve_engine::node::edit::Frame;
use varve_engine::node::{NodeRef, Stamp};
use varve_engine::redo::{self, NodeOp};
use varve_engine::tree::{Checker, Tree, TreeKind};
use varve_pager::{Access, PageId, PageNo, Pager, SpaceId};

fn sample() -> (Pager, Tree) {
    let pager = new_pager(4096);
    let tree = Tree::create(&pager, SpaceId::DATA, TreeKind::Clustered).unwrap();
    for value in 0..2000 {
        put(&pager, &tree, &int_key(value), Stamp::default(), &[1; 80]);
    }
    (pager, tree)
}

fn child(pager: &Pager, parent: PageId, index: usize) -> PageId {
    let page = pager.fix_s(parent, Access::Random).unwrap();
    PageId::new(SpaceId::DATA, PageNo(NodeRef::new(&page).child(index)))
}

fn overwrite(pager: &Pager, page: PageId, offset: usize, bytes: &[u8]) {
    let mut mtr = pager.begin().unwrap();
    let held = mtr.x(page).unwrap();
    mtr.write(held, offset, bytes);
    mtr.commit();
}

fn damages(pager: &Pager, tree: &Tree) -> Vec<String> {
    let mut checker = Checker::new();
    tree.check(pager, &mut checker, &mut |_, _| ()).unwrap();
    checker.damages().to_vec()
}

#[test]
fn a_sound_tree_has_none() {
    let (pager, tree) = sample();
    assert_eq!(damages(&pager, &tree), [] as [String; 0]);
}

#[test]
fn wrong_sibling() {
    let (pager, tree) = sample();
    overwrite(&pager, child(&pager, tree.root(), 1), 44, &77u32.to_le_bytes());
    assert!(damages(&pager, &tree)[0].contains("has the right sibling 77"));
}

#[test]
fn child_used_twice() {
    let (pager, tree) = sample();
    let second = child(&pager, tree.root(), 1);
    overwrite(&pager, tree.root(), 48, &second.no().0.to_le_bytes());
    let found = damages(&pager, &tree);
    assert!(found.iter().any(|what| what.contains("used twice")), "{found:?}");
    assert!(found.iter().any(|what| what.contains("fences")), "{found:?}");
}

#[test]
fn head_garbage_and_level() {
    for (offset, bytes, wanted) in [
        (72, &[9u8, 9, 9, 9][..], "head of entry 0"),
        (40, &[1, 2, 0, 0], "garbage bytes"),
        (32, &[1], "value of entry"),
        (36, &[0, 0, 0, 0], "heap at 0"),
        (33, &[2], "value of entry"),
        (33, &[1], "flag about the prefix"),
    ] {
        let (pager, tree) = sample();
        overwrite(&pager, child(&pager, tree.root(), 2), offset, bytes);
        let found = damages(&pager, &tree);
        assert!(found[0].contains(wanted), "{offset}: {found:?}");
    }
}

#[test]
fn reading_another_tree_is_an_error() {
    let (pager, tree) = sample();
    let other = Tree::open(tree.root(), tree.owner() + 1, TreeKind::Clustered);
    let error = other.get(&pager, b"x", |_| ()).unwrap_err();
    assert!(error.to_string().contains("not a node of segment"), "{error}");
}

/// Builds a leaf again with columns of other widths. It stays sound, but does not fit the rest of the tree.
fn widen(pager: &Pager, leaf: PageId, widths: &[u8]) {
    let old = pager.fix_s(leaf, Access::Random).unwrap().to_vec();
    let node = NodeRef::new(&old);
    let entries = redo::entries(node, 0..node.len(), node.prefix().len());
    let mut new = old.clone();
    let frame = Frame { widths, ..Frame::of(node) };
    redo::change(&mut new, &NodeOp::Build { frame, entries: &entries }).unwrap();
    overwrite(pager, leaf, 32, &new[32..]);
}

#[test]
fn leaves_whose_columns_have_other_widths() {
    let (pager, tree) = sample();
    widen(&pager, child(&pager, tree.root(), 3), &[4, 0]);
    let found = damages(&pager, &tree);
    // The leaf is left out, so its left sibling seems to have a wrong right sibling.
    assert!(found.len() == 2 && found[0].contains("have the widths [4, 0]"), "{found:?}");
    let mut checker = Checker::new();
    tree.check_with_widths(&pager, &mut checker, &[4, 0], &mut |_, _| ()).unwrap();
    let found = checker.damages();
    assert!(found[0].contains("have the widths []") && found.len() > 3, "{found:?}");
}

#[test]
fn leaves_whose_columns_have_other_widths_are_not_merged() {
    let (pager, tree) = sample();
    let leaf = child(&pager, tree.root(), 3);
    widen(&pager, leaf, &[4, 0]);
    let keys: Vec<Vec<u8>> = {
        let page = pager.fix_s(leaf, Access::Random).unwrap();
        (0..NodeRef::new(&page).len()).map(|at| NodeRef::new(&page).key(at)).collect()
    };
    for key in &keys {
        let mut mtr = pager.begin().unwrap();
        let mut position = tree.locate_x(&pager, &mut mtr, key).unwrap();
        tree.remove(&mut mtr, &mut position);
        mtr.commit();
    }
    let error = tree.tidy(&pager, &keys[0]).unwrap_err();
    assert!(error.to_string().contains("other widths"), "{error}");
}
