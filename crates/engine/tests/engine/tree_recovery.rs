//! A tree is the same after a crash and redo.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use crate::common::{Random, any_row, check, int_key, new_directory, open_pager, put, remove};
use varve_engine::node::Stamp;
use varve_engine::tree::{Tree, TreeKind};
use varve_pager::SpaceId;

#[test]
fn redo_rebuilds_the_tree() {
    for (page_bytes, widths) in [(4096, &[][..]), (16384, &[]), (4096, &[8, 0, 4]), (16384, &[0, 2, 0])] {
        let directory = new_directory();
        let mut random = Random::new(3);
        let mut model = BTreeMap::new();
        let pager = open_pager(directory.clone(), page_bytes, 256 * page_bytes);
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        let tree = Tree::create_with(&pager, SpaceId::DATA, owner, TreeKind::Clustered, widths).unwrap();
        let root = tree.root();
        let mut open = Some((pager, tree));
        for round in 0..4 {
            let (pager, tree) = open.take().unwrap();
            for _ in 0..1500 {
                let key = int_key(random.below(2000) as i64);
                if random.below(3) > 0 {
                    let len = random.below(200);
                    let payload = match widths {
                        [] => random.bytes(len),
                        _ => any_row(&mut random, widths, 200).unwrap(),
                    };
                    put(&pager, &tree, &key, Stamp::default(), &payload);
                    model.insert(key, payload);
                } else {
                    assert_eq!(remove(&pager, &tree, &key), model.remove(&key).is_some());
                }
            }
            if round % 2 == 0 {
                pager.tick_write(20).unwrap();
            }
            let end = pager.log().end();
            pager.flush_log(end).unwrap();
            drop((pager, tree));
            let pager = open_pager(directory.clone(), page_bytes, 256 * page_bytes);
            let tree = Tree::open(root, owner, TreeKind::Clustered);
            assert_eq!(check(&pager, &tree).0, model.clone().into_iter().collect::<Vec<_>>());
            open = Some((pager, tree));
        }
    }
}
