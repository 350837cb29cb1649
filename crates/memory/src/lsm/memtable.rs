//! A MemTable: the newest entries, in an arena with a skip list.
//!
//! A change is *planned* first: its entry is stored, but nothing leads to it yet. Then the change is
//! *applied*: a few words are stored that lead to the entry. Between these steps an engine makes the change
//! durable in its log, or writes into its log how to undo the change.
//!
//! Invariants
//! 1. A plan needs no further room if the room for the change was reserved.
//! 2. If the newest entry of this MemTable has all bytes that a patch changes, the patch is made in place. So
//!    a row that is changed often needs no more room.
//! 3. To undo a change, no room is needed.
//!
//! This module does not know logs or runs.

use super::arena::{Arena, Position};
use super::entry::{EntryBytes, HEAD_BYTES, Kind, Piece};
use super::key::SearchKey;
use super::media::{Media, damaged};
use super::skip_list::{
    self, LEVELS_MAX, NODE_HEAD_BYTES, Neighbours, RECORD_HEAD_BYTES, SkipList, levels_of,
};
use crate::pointer::{Pointer, Word};
use crate::space::Space;
use crate::store_error::StoreResult;

/// The largest number of bytes that the MemTable needs for an entry in addition to the entry's own bytes.
const OVERHEAD_BYTES: usize = 8 * LEVELS_MAX + NODE_HEAD_BYTES + RECORD_HEAD_BYTES + 8;

/// Returns the largest number of bytes that these entries can need.
fn room_for<'e>(entries: impl Iterator<Item = &'e [u8]>) -> usize {
    entries.map(|entry| entry.len() + OVERHEAD_BYTES).sum()
}

/// A MemTable that is not immutable.
pub(crate) struct MemTable {
    arena: Arena,
    /// A buffer for the bytes of a new node or record.
    bytes: Vec<u8>,
}

/// A change that was planned, and can be applied.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Planned {
    /// A new node with its first record.
    Node { node: Pointer, levels: usize, links: [Word; LEVELS_MAX] },
    /// A new record of a node.
    Record { node: Pointer, record: Pointer, older: Pointer },
    /// Bytes to be changed in place.
    Bytes { at: Pointer, len_bytes: usize },
}

impl Planned {
    /// Returns whether two changes store to the same links. Then the second one has to be planned again,
    /// after the first one was applied.
    pub(crate) fn shares_links(&self, other: &Planned) -> bool {
        match (self, other) {
            (Planned::Node { levels, links, .. }, Planned::Node { levels: more, links: others, .. }) => {
                links.iter().zip(others).take(*levels.min(more)).any(|(link, other)| link == other)
            }
            _ => false,
        }
    }
}

/// Returns the bytes of the piece of a new patch, which has only one.
fn piece_bytes<'e>(entry: &EntryBytes<'e>) -> Option<&'e [u8]> {
    let piece = Piece::decode(entry.value)?;
    entry.value.get(piece.whole_bytes() - piece.len_bytes..piece.whole_bytes())
}

impl MemTable {
    pub(crate) fn new(arena: Arena) -> MemTable {
        MemTable { arena, bytes: Vec::new() }
    }

    /// Returns a new volatile MemTable for the same owner.
    ///
    /// Errors: the region is full.
    pub(crate) fn fresh(&self, space: &Space) -> StoreResult<MemTable> {
        self.arena.fresh(space).map(MemTable::new)
    }

    pub(crate) fn list(&self) -> SkipList {
        SkipList { page: self.arena.page() }
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(crate) fn arena_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }

    pub(crate) fn position(&self) -> Position {
        self.arena.position()
    }

    /// Returns whether the arena has room for these entries without a new chunk.
    pub(crate) fn has_room<'e>(&self, entries: impl Iterator<Item = &'e [u8]>) -> bool {
        self.arena.has_room(room_for(entries))
    }

    /// Makes sure that the arena has room for these entries.
    ///
    /// Errors: the region is full.
    pub(crate) fn reserve<'e>(
        &mut self,
        space: &Space,
        entries: impl Iterator<Item = &'e [u8]>,
    ) -> StoreResult<()> {
        self.arena.reserve(space, room_for(entries))
    }

    /// Stores an entry. Nothing leads to it yet.
    ///
    /// Errors: the region is full, and no room was reserved.
    pub(crate) fn plan(&mut self, space: &Space, entry: &[u8]) -> StoreResult<Planned> {
        let decoded = EntryBytes::decode(entry).ok_or(damaged("a new entry", 0))?;
        let key = decoded.search_key();
        let neighbours = self.list().find(space, &key)?;
        match neighbours.found {
            None => self.plan_node(space, &key, &neighbours, entry),
            Some(node) => match self.in_place(space, node, &decoded)? {
                Some(planned) => Ok(planned),
                None => self.plan_record(space, node, entry),
            },
        }
    }

    /// Returns a change in place of the bytes that a patch changes, if the newest entry of the node has these
    /// bytes.
    fn in_place(&self, space: &Space, node: Pointer, entry: &EntryBytes<'_>) -> StoreResult<Option<Planned>> {
        let Some(piece) = Piece::decode(entry.value).filter(|_| entry.head.kind == Kind::Patch) else {
            return Ok(None);
        };
        let newest = skip_list::newest(space, node)?;
        let from = match newest.head.kind {
            Kind::Row => newest.value_at() + (newest.head.extra + piece.at) as u64,
            Kind::Patch if newest.head.value_bytes == piece.whole_bytes() => {
                let mut bytes = [0; 8];
                space.read(Pointer::from_u64(newest.value_at()), 0, &mut bytes)?;
                match Piece::decode(&bytes) == Some(piece) {
                    true => newest.value_at() + bytes.len() as u64,
                    false => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(Planned::Bytes { at: Pointer::from_u64(from), len_bytes: piece.len_bytes }))
    }

    fn plan_record(&mut self, space: &Space, node: Pointer, entry: &[u8]) -> StoreResult<Planned> {
        let older = space.load(skip_list::newest_word(space, node)?);
        self.bytes.clear();
        self.bytes.extend_from_slice(&older.to_le_bytes());
        self.bytes.extend_from_slice(entry);
        let record = self.arena.take(space, self.bytes.len())?;
        self.arena.store(space, record, &self.bytes)?;
        Ok(Planned::Record { node, record, older: Pointer::from_u64(older) })
    }

    fn plan_node(
        &mut self,
        space: &Space,
        key: &SearchKey<'_>,
        neighbours: &Neighbours,
        entry: &[u8],
    ) -> StoreResult<Planned> {
        let levels = levels_of(key.hash());
        let links_bytes = 8 * levels;
        let len_bytes = links_bytes + NODE_HEAD_BYTES + RECORD_HEAD_BYTES + entry.len();
        let at = self.arena.take(space, len_bytes)?;
        let node = Pointer::from_u64(at.to_u64() + links_bytes as u64);
        self.bytes.clear();
        let next = neighbours.next.iter().take(levels).rev();
        let next = next.map(|next| next.to_u64());
        let words = next.chain([skip_list::first_record(node).to_u64(), levels as u64, 0]);
        words.for_each(|word| self.bytes.extend_from_slice(&word.to_le_bytes()));
        self.bytes.extend_from_slice(entry);
        self.arena.store(space, at, &self.bytes)?;
        Ok(Planned::Node { node, levels, links: neighbours.links })
    }

    /// Applies a planned change. From then on, readers see it.
    pub(crate) fn apply(&self, space: &Space, planned: &Planned, entry: &[u8]) -> StoreResult<()> {
        match planned {
            Planned::Node { node, levels, links } => {
                let mut links = links.iter().take(*levels);
                links.try_for_each(|link| self.arena.store_word(space, *link, node.to_u64()))
            }
            Planned::Record { node, record, .. } => self.set_newest(space, *node, *record),
            Planned::Bytes { at, .. } => {
                let decoded = EntryBytes::decode(entry).ok_or(damaged("a new entry", 0))?;
                self.arena.store(space, *at, piece_bytes(&decoded).unwrap_or_default())
            }
        }
    }

    /// Makes another record the newest one of a node. To undo a new record, this is the next older one.
    pub(crate) fn set_newest(&self, space: &Space, node: Pointer, record: Pointer) -> StoreResult<()> {
        self.arena.store_word(space, skip_list::newest_word(space, node)?, record.to_u64())
    }

    /// Takes a node out of the list, to undo a new node.
    pub(crate) fn unlink(&self, space: &Space, node: Pointer) -> StoreResult<()> {
        let store = |word: Word, value| self.arena.store_word(space, word, value);
        skip_list::unlink(space, self.list(), node, store)
    }

    /// Stores old bytes in place, to undo a patch.
    pub(crate) fn restore(&self, space: &Space, at: Pointer, before: &[u8]) -> StoreResult<()> {
        self.arena.store(space, at, before)
    }

    /// Collects the facts about the keys that a Bloom filter and the choice of merges need. Reads the whole
    /// MemTable.
    pub(crate) fn census(&self, space: &Space) -> StoreResult<Census> {
        let (mut census, mut key, mut before) = (Census::default(), Vec::new(), Vec::new());
        let media = Media { space, files: None, cache: None };
        let mut node = self.list().first(space)?;
        while !node.is_none() {
            let newest = skip_list::newest(space, node)?;
            newest.whole_key(&media, &mut key)?;
            if key <= before {
                // Otherwise a circle would never end.
                return Err(damaged("the order of keys in a MemTable", node.to_u64()));
            }
            census.hashes.push(SearchKey::whole(&key).hash());
            census.tombstones += u64::from(newest.head.kind == Kind::Tombstone);
            std::mem::swap(&mut key, &mut before);
            node = skip_list::next(space, node)?;
        }
        Ok(census)
    }
}

/// Facts about the keys of a MemTable.
#[derive(Default)]
pub(crate) struct Census {
    /// The hash of each key.
    pub(crate) hashes: Vec<u64>,
    /// The number of keys whose newest entry is a tombstone.
    pub(crate) tombstones: u64,
}

fn checksum(levels: u64, key: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&levels.to_le_bytes()), key)
}

/// Returns the checksum of a node that is made for an entry: a checksum of the number of levels, and of the
/// head and key of the entry.
pub(crate) fn checksum_of(levels: usize, entry: &[u8]) -> u32 {
    let key_bytes = EntryBytes::decode(entry).map_or(0, |decoded| decoded.key.len());
    checksum(levels as u64, entry.get(..HEAD_BYTES + key_bytes).unwrap_or_default())
}

/// Returns the checksum of a node in the region, or `None` if it is no node.
pub(crate) fn checksum_at(space: &Space, node: Pointer) -> Option<u32> {
    let levels = skip_list::levels(space, node).ok()?;
    let record = skip_list::entry_of(space, skip_list::first_record(node)).ok()?;
    let mut bytes = vec![0; HEAD_BYTES + record.head.key_bytes];
    space.read(Pointer::from_u64(record.at), 0, &mut bytes).ok()?;
    Some(checksum(levels as u64, &bytes))
}
