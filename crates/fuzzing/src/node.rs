//! Fuzzes the slotted node of a B+tree. The target `node` reads from a node that has passed its check. The
//! target `node_redo` applies redo operations to any node.
//!
//! The input of `node` is a page and a key. The input of `node_redo` is a page and operations. An operation
//! has its number (u8), the length of its payload, and the payload.

use varve_engine::node::{NodeRef, check, split};
use varve_engine::redo::{EngineRedo, TREE_OPS_END};
use varve_pager::RedoOps;

use crate::input::Input;

const FIRST_OP: u8 = 16;

/// Checks that a node is found damaged, or that all functions that read it agree.
pub fn node(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let page = input.page();
    if check::damage(&page).is_some() {
        return;
    }
    let node = NodeRef::new(&page);
    let keys: Vec<Vec<u8>> = (0..node.len()).map(|index| node.key(index)).collect();
    for (index, key) in keys.iter().enumerate() {
        let found = node.search(key);
        assert!(found.exact && found.slot == index, "key {index} is not found at its place");
        assert_eq!(node.search_inside(key), found);
        read_entry(node, index);
    }
    let wanted = input.rest();
    let found = node.search(wanted);
    assert_eq!(found.slot, keys.partition_point(|key| key.as_slice() < wanted));
    assert_eq!(found.exact, keys.iter().any(|key| key == wanted));
    std::hint::black_box((node.free_bytes(), node.live_bytes(), node.upper_fence(), node.right()));
    if !node.is_leaf() {
        std::hint::black_box((split::cut_inner(node), (0..=node.len()).map(|at| node.child(at)).max()));
    } else if node.len() > 1 && node.search(wanted).slot <= node.len() {
        std::hint::black_box(split::cut_leaf(node, wanted, 15));
    }
}

fn read_entry(node: NodeRef<'_>, index: usize) {
    let value = node.whole_value(index);
    assert!(value.len() < node.page_bytes());
    if node.is_leaf() {
        let entry = node.entry(index);
        assert_eq!(entry.key(), node.key(index));
        assert!(value.ends_with(entry.payload(&mut Vec::new())));
        std::hint::black_box((entry.stamp(), entry.payload(&mut Vec::new()), entry.is_deleted()));
    }
}

/// Checks that redo operations of a damaged log, or on a damaged page, do not panic.
pub fn node_redo(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut page = input.page();
    while !input.is_empty() {
        let op = FIRST_OP + input.byte() % (TREE_OPS_END - FIRST_OP);
        // Both results are right, because the operation may not fit.
        let _ = EngineRedo.apply(op, &mut page, input.piece());
        std::hint::black_box(check::damage(&page));
    }
}
