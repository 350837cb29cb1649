//! The index of a MemTable: a skip list (Pugh 1990), as in LevelDB. The Log engine of the paper is based on
//! LevelDB's design (Arulraj 2015, section 3.3).
//!
//! A pointer to a node leads to its middle. The links have negative offsets:
//!
//! | at | size | field |
//! |---:|---:|---|
//! | -8 (level + 1) | 8 each | pointer to the next node of this level; 0 = none |
//! | 0 | 8 | pointer to the newest record |
//! | 8 | 8 | number of levels |
//! | 16 | | the first record |
//!
//! A record has the pointer to the next older record (8 bytes, 0 = none), and an entry (`entry.rs`).
//!
//! Invariants
//! 1. Nodes of a level are in the order of their keys. A node of a level is in all lower levels, too.
//! 2. A node is linked by one word for each level. The links of the node itself are stored before. So a crash
//!    between these words leaves a valid list, in which the node is on some of its levels only. [`unlink`]
//!    takes it out of these levels.
//! 3. The number of levels follows from the key. So a list that is built again has the same size.
//!
//! This module does not know the arena or transactions.

use std::cmp::Ordering;

use super::entry::{EntryAt, EntryHead, HEAD_BYTES, Kind};
use super::key::{SearchKey, prefix};
use super::media::{Location, damaged};
use crate::layout::get_u64;
use crate::pointer::{Pointer, Word};
use crate::space::Space;
use crate::store_error::StoreResult;
use crate::tuple;

/// The largest number of levels.
pub(crate) const LEVELS_MAX: usize = 12;
/// The offset of the links to the first nodes in the first page of an arena.
const FIRST_AT: u64 = 64;
/// The number of bytes of a node before its first record.
pub(crate) const NODE_HEAD_BYTES: usize = 16;
/// The number of bytes of a record before its entry.
pub(crate) const RECORD_HEAD_BYTES: usize = 8;
const FIXED_BYTES: usize = NODE_HEAD_BYTES + RECORD_HEAD_BYTES + HEAD_BYTES;

/// Returns the number of levels of a node whose key has this hash: one in four nodes is also on the next
/// level.
pub(crate) fn levels_of(hash: u64) -> usize {
    (1 + hash.trailing_zeros() as usize / 2).min(LEVELS_MAX)
}

/// A skip list. It is identified by the page that has its first nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SkipList {
    pub(crate) page: Pointer,
}

/// The place where a key is in the list, or would be.
pub(crate) struct Neighbours {
    /// The node with the key.
    pub(crate) found: Option<Pointer>,
    /// The last node whose key is smaller; none if there is no smaller key.
    pub(crate) before: Pointer,
    /// For each level, the word with the link to the node of the key, or to the next node after the key.
    pub(crate) links: [Word; LEVELS_MAX],
    /// The nodes to which these words lead.
    pub(crate) next: [Pointer; LEVELS_MAX],
}

fn link_word(space: &Space, node: Pointer, level: usize) -> StoreResult<Word> {
    let before = 8 * (level as u64 + 1);
    let at = node.to_u64().checked_sub(before).ok_or(damaged("a node of a skip list", node.to_u64()))?;
    space.word(Pointer::from_u64(at), 0)
}

/// Compares the key of a node with another key.
fn compare(space: &Space, node: Pointer, key: &SearchKey<'_>) -> StoreResult<Ordering> {
    let mut bytes = [0; FIXED_BYTES];
    space.read(node, 0, &mut bytes)?;
    let head = bytes.last_chunk().and_then(EntryHead::decode);
    let head = head.ok_or(damaged("a node of a skip list", node.to_u64()))?;
    match prefix(head.table, head.index).cmp(&key.prefix) {
        Ordering::Equal => tuple::compare_bytes(space, node, FIXED_BYTES as u64, head.key_bytes, key.key),
        unequal => Ok(unequal),
    }
}

/// Returns the number of levels of a node.
pub(crate) fn levels(space: &Space, node: Pointer) -> StoreResult<usize> {
    let levels = space.load(space.word(node, 8)?) as usize;
    let is_possible = (1..=LEVELS_MAX).contains(&levels);
    is_possible.then_some(levels).ok_or(damaged("the levels of a node", node.to_u64()))
}

/// Returns the word with the pointer to the newest record of a node.
pub(crate) fn newest_word(space: &Space, node: Pointer) -> StoreResult<Word> {
    space.word(node, 0)
}

/// Returns the first record of a node.
pub(crate) fn first_record(node: Pointer) -> Pointer {
    Pointer::from_u64(node.to_u64() + NODE_HEAD_BYTES as u64)
}

/// Returns the entry of a record.
pub(crate) fn entry_of(space: &Space, record: Pointer) -> StoreResult<EntryAt> {
    let mut bytes = [0; RECORD_HEAD_BYTES + HEAD_BYTES];
    space.read(record, 0, &mut bytes)?;
    let head = bytes.last_chunk().and_then(EntryHead::decode);
    let head = head.ok_or(damaged("a record of a MemTable", record.to_u64()))?;
    let at = record.to_u64() + RECORD_HEAD_BYTES as u64;
    let older = Pointer::from_u64(get_u64(&bytes, 0));
    Ok(EntryAt { location: Location::Region, at, head, older })
}

/// Returns the next older entry of the same key. A patch has a larger number than the patch below it, so a
/// damaged pointer cannot make a circle of patches.
pub(crate) fn older(space: &Space, entry: &EntryAt) -> StoreResult<EntryAt> {
    let older = entry_of(space, entry.older)?;
    let are_patches = entry.head.kind == Kind::Patch && older.head.kind == Kind::Patch;
    match are_patches && older.head.extra >= entry.head.extra {
        true => Err(damaged("a circle of patches", entry.older.to_u64())),
        false => Ok(older),
    }
}

/// Returns the newest entry of a node.
pub(crate) fn newest(space: &Space, node: Pointer) -> StoreResult<EntryAt> {
    entry_of(space, Pointer::from_u64(space.load(newest_word(space, node)?)))
}

/// Returns the next node of the lowest level.
pub(crate) fn next(space: &Space, node: Pointer) -> StoreResult<Pointer> {
    Ok(Pointer::from_u64(space.load(link_word(space, node, 0)?)))
}

/// The smallest number of bytes of a node: one link, the fields of the node, and its first record.
const NODE_BYTES_MIN: u64 = 8 + FIXED_BYTES as u64;

impl SkipList {
    fn first_word(&self, space: &Space, level: usize) -> StoreResult<Word> {
        space.word(self.page, FIRST_AT + 8 * level as u64)
    }

    fn word_behind(&self, space: &Space, node: Pointer, level: usize) -> StoreResult<Word> {
        if node.is_none() { self.first_word(space, level) } else { link_word(space, node, level) }
    }

    /// Returns the first node, or none if the list is empty.
    pub(crate) fn first(&self, space: &Space) -> StoreResult<Pointer> {
        Ok(Pointer::from_u64(space.load(self.first_word(space, 0)?)))
    }

    /// Searches a key.
    #[inline]
    pub(crate) fn find(&self, space: &Space, key: &SearchKey<'_>) -> StoreResult<Neighbours> {
        let word = self.first_word(space, 0)?;
        let mut found = Neighbours {
            found: None,
            before: Pointer::NONE,
            links: [word; LEVELS_MAX],
            next: [Pointer::NONE; LEVELS_MAX],
        };
        // If a node was not before the key on a higher level, it is not before the key on lower levels
        // either. So it is not compared again.
        let mut behind = Pointer::NONE;
        let (mut passed, nodes_max) = (0, space.chunks_max(NODE_BYTES_MIN));
        let levels = found.links.iter_mut().zip(&mut found.next).enumerate().rev();
        for (level, (link, next)) in levels {
            loop {
                *link = self.word_behind(space, found.before, level)?;
                *next = Pointer::from_u64(space.load(*link));
                if next.is_none() || *next == behind {
                    break;
                }
                match compare(space, *next, key)? {
                    Ordering::Less if passed == nodes_max => {
                        return Err(damaged("a circle in a skip list", next.to_u64()));
                    }
                    Ordering::Less => (found.before, passed) = (*next, passed + 1),
                    order => {
                        behind = *next;
                        found.found = (order == Ordering::Equal).then_some(*next);
                        break;
                    }
                }
            }
        }
        Ok(found)
    }
}

/// Takes a node out of the levels on which it is. The caller's function `store` stores the words.
pub(crate) fn unlink(
    space: &Space,
    list: SkipList,
    node: Pointer,
    mut store: impl FnMut(Word, u64) -> StoreResult<()>,
) -> StoreResult<()> {
    let mut key = Vec::new();
    let media = super::media::Media { space, files: None, cache: None };
    entry_of(space, first_record(node))?.whole_key(&media, &mut key)?;
    let neighbours = list.find(space, &SearchKey::whole(&key))?;
    let levels = levels(space, node)?;
    for (level, (link, next)) in neighbours.links.iter().zip(&neighbours.next).enumerate().take(levels) {
        if *next == node {
            store(*link, space.load(link_word(space, node, level)?))?;
        }
    }
    Ok(())
}
