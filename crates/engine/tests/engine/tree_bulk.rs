//! Bulk building gives the same tree contents as inserting one by one, in well-filled pages.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Random, any_row, check, get, int_key, new_pager, put};
use varve_engine::node::{NodeRef, Stamp};
use varve_engine::tree::{BulkError, Tree, TreeKind, bulk_build};
use varve_pager::{Access, PageId, PageNo, Pager, SpaceId};

type Entry = Result<(Vec<u8>, Stamp, Vec<u8>), String>;

fn build(pager: &Pager, kind: TreeKind, entries: Vec<Entry>) -> Result<Tree, BulkError<String>> {
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    bulk_build(pager, SpaceId::DATA, owner, kind, &[], entries)
}

fn entries(count: i64, payload_bytes: usize) -> Vec<Entry> {
    (0..count)
        .map(|value| Ok((int_key(value * 3), Stamp::default(), vec![value as u8; payload_bytes])))
        .collect()
}

#[test]
fn builds_trees_of_every_height() {
    for page_bytes in [4096, 65536] {
        for count in [0, 1, 2, 30, 31, 500, 20_000] {
            let pager = new_pager(page_bytes);
            let tree = build(&pager, TreeKind::Clustered, entries(count, 100)).unwrap();
            let (found, pages) = check(&pager, &tree);
            let wanted: Vec<_> =
                entries(count, 100).into_iter().map(|e| e.map(|(k, _, p)| (k, p)).unwrap()).collect();
            assert_eq!(found, wanted);
            let live = count as usize * 127;
            assert!(
                pages < 4 || live * 100 > pages * page_bytes * 85,
                "{count}: {pages} pages of {page_bytes}"
            );
        }
    }
}

#[test]
fn the_tree_can_be_changed_afterwards() {
    let pager = new_pager(4096);
    let tree = build(&pager, TreeKind::Clustered, entries(3000, 60)).unwrap();
    for value in 0..9000 {
        put(&pager, &tree, &int_key(value), Stamp::default(), b"new");
    }
    assert_eq!(check(&pager, &tree).0.len(), 9000);
    assert_eq!(get(&pager, &tree, &int_key(5)), Some(b"new".to_vec()));
}

#[test]
fn secondary_trees_are_dense() {
    let pager = new_pager(8192);
    let input = (0..50_000).map(|value| Ok((int_key(value), Stamp { txn: 7, ..Stamp::default() }, vec![])));
    let tree = build(&pager, TreeKind::Secondary, input.collect()).unwrap();
    let (found, pages) = check(&pager, &tree);
    assert_eq!(found.len(), 50_000);
    assert!(pages < 100, "{pages} pages for keys of two bytes behind their prefix");
}

/// All rows of a built tree are in columns, in key order.
#[test]
fn leaves_by_columns() {
    let widths = [8, 0, 4, 0, 1];
    let mut random = Random::new(1);
    let pager = new_pager(8192);
    let rows: Vec<_> = (0..3000).map(|_| any_row(&mut random, &widths, 300).unwrap()).collect();
    let input = rows.iter().enumerate();
    let input = input.map(|(n, row)| Ok::<_, String>((int_key(n as i64), Stamp::default(), row.clone())));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let tree = bulk_build(&pager, SpaceId::DATA, owner, TreeKind::Clustered, &widths, input).unwrap();
    let (found, pages) = check(&pager, &tree);
    assert!(found.into_iter().map(|(_, row)| row).eq(rows));
    let root = pager.fix_s(tree.root(), Access::Random).unwrap();
    let root = NodeRef::new(&root);
    assert_eq!((root.level(), root.len() + 2), (1, pages));
    for child in 0..=root.len() {
        let leaf = PageId::new(SpaceId::DATA, PageNo(root.child(child)));
        let leaf = pager.fix_s(leaf, Access::Random).unwrap();
        let leaf = NodeRef::new(&leaf);
        assert!((0..leaf.len()).all(|slot| leaf.row_number(slot) == Some(slot)), "leaf {child}");
        assert_eq!(leaf.columns().map(|columns| columns.rows()), Some(leaf.len()));
    }
}

#[test]
fn unsorted_and_failing_input_is_refused() {
    let pager = new_pager(4096);
    let twice =
        vec![Ok((b"a".to_vec(), Stamp::default(), vec![])), Ok((b"a".to_vec(), Stamp::default(), vec![]))];
    let error = build(&pager, TreeKind::Clustered, twice).unwrap_err();
    assert!(matches!(error, BulkError::NotAscending { key } if key == b"a"));
    let error = build(&pager, TreeKind::Clustered, vec![Err("input".into())]).unwrap_err();
    assert!(matches!(error, BulkError::Input(why) if why == "input"));
}
