//! Gives pages of the file back to the region.
//!
//! Deletes leave free pages everywhere in the file, and only pages at its end can be cut off. So while more
//! than half of the pages are free, nodes are moved from the end of the file to free pages before it: their
//! paths are copied, as for a change. Each freed page pays for a few leaves, so the work of a batch is in
//! proportion to what it has freed.
//!
//! Invariants
//! 1. Nodes are moved in batches of their own, without changes of transactions. So a crash leaves either
//!    place of a node.
//! 2. If the region is full, no more nodes are moved. That is no error.
//!
//! This module does not know rows.

use super::nodes::{FileNodes, NextLeaf};
use crate::cow_tree::{CowMedium, Trees};
use crate::store_error::{StoreError, StoreResult};

/// The number of leaves that are visited for each page that a batch has freed.
const LEAVES_OF_FREED_PAGE: u64 = 4;
/// The number of leaves whose paths are moved in one batch. Each of them takes frames of the page cache.
const LEAVES_AT_ONCE: u64 = 64;

/// Moves nodes if the file is sparse, and cuts the file. No batch is open.
pub(super) fn shrink(trees: &mut Trees<FileNodes>) -> StoreResult<()> {
    let mut leaves = LEAVES_OF_FREED_PAGE * trees.nodes.map.take_freed();
    while leaves > 0
        && let Some(dense_end) = trees.nodes.map.dense_end()
    {
        let count = leaves.min(LEAVES_AT_ONCE);
        leaves -= count;
        trees.nodes.map.rewind();
        let moved = (0..count).try_for_each(|_| move_leaf(trees, dense_end));
        let is_full = moved.as_ref().is_err_and(StoreError::is_full);
        if !is_full {
            moved?;
        }
        if trees.nodes.cache.get_mut().dirty_count() > 0 {
            trees.nodes.end_batch(&mut trees.roots)?;
        }
        if is_full {
            break;
        }
    }
    trees.nodes.map.take_freed();
    let FileNodes { space, map, file, cache, .. } = &mut trees.nodes;
    match map.cut(file)? {
        true => Ok(space.allocator().free_empty_slabs(cache.get_mut().owner())?),
        false => Ok(()),
    }
}

/// Moves the path to the next leaf, if one of its nodes is not before `dense_end`.
fn move_leaf(trees: &mut Trees<FileNodes>, dense_end: u64) -> StoreResult<()> {
    let next = trees.nodes.next_leaf.take().filter(|next| trees.roots.trees().any(|tree| tree == next.tree));
    let first = || trees.roots.trees().next().map(|tree| NextLeaf { tree, key: Vec::new() });
    let Some(NextLeaf { tree, mut key }) = next.or_else(first) else { return Ok(()) };
    let has_next = trees.move_path(tree, &mut key, |node| node.0 >= dense_end)?;
    trees.nodes.next_leaf = match has_next {
        true => Some(NextLeaf { tree, key }),
        false => {
            let next = trees.roots.trees().skip_while(|other| *other != tree).nth(1);
            next.map(|tree| NextLeaf { tree, key: Vec::new() })
        }
    };
    Ok(())
}
