//! Cursors. A cursor is a position in the order of keys, in a MemTable or a run.
//!
//! Invariants
//! 1. A cursor borrows nothing, so that a merge can keep it between two steps. The MemTable or run does not
//!    change meanwhile, or else the cursor is not used again.
//!
//! This module does not know other cursors.

use std::cmp::Ordering;

use super::entry::EntryAt;
use super::key::SearchKey;
use super::media::{Media, damaged};
use super::node::{Node, node_bytes};
use super::run::{LEVELS_MAX, PackedRun, RunForm};
use super::skip_list::{self, SkipList};
use crate::pointer::Pointer;
use crate::store::Direction;
use crate::store_error::StoreResult;

/// The position of a cursor relative to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seek {
    /// The cursor moves to the first key that is not smaller than the given one.
    AtLeast,
    /// The first key that is larger.
    Above,
    /// The cursor moves to the last key that is not larger than the given one.
    AtMost,
    /// The last key that is smaller.
    Below,
}

/// A node on the path from the root of a run to a leaf.
struct PathNode {
    bytes: Vec<u8>,
    number: usize,
}

enum State {
    MemTable { list: SkipList, node: Pointer },
    Packed { run: PackedRun, path: Vec<PathNode> },
}

/// A cursor.
pub(crate) struct Cursor {
    state: State,
    /// The newest entry at the cursor's position, or `None` before the first or after the last key.
    pub(crate) entry: Option<EntryAt>,
    /// The key at the cursor's position, with table and index.
    pub(crate) key: Vec<u8>,
    /// The key before the last step.
    before: Vec<u8>,
}

impl Cursor {
    pub(crate) fn new(form: &RunForm) -> Cursor {
        let state = match form {
            RunForm::MemTable(list) => State::MemTable { list: *list, node: Pointer::NONE },
            RunForm::Packed(run) => State::Packed { run: *run, path: Vec::new() },
        };
        Cursor { state, entry: None, key: Vec::new(), before: Vec::new() }
    }

    /// Moves the cursor to a key, or next to it, as `seek` says.
    pub(crate) fn seek(&mut self, media: &Media<'_>, key: &SearchKey<'_>, seek: Seek) -> StoreResult<()> {
        match &mut self.state {
            State::MemTable { list, node } => {
                let neighbours = list.find(media.space, key)?;
                *node = match (seek, neighbours.found) {
                    (Seek::AtLeast | Seek::AtMost, Some(found)) => found,
                    (Seek::Above, Some(found)) => skip_list::next(media.space, found)?,
                    (Seek::AtLeast | Seek::Above, None) => neighbours.next[0],
                    (Seek::AtMost | Seek::Below, _) => neighbours.before,
                };
            }
            State::Packed { run, path } => {
                descend(media, run, path, key)?;
                let Some(leaf) = path.last_mut() else { return self.settle(media) };
                let with_equal = matches!(seek, Seek::Above | Seek::AtMost);
                let node = Node::of(&leaf.bytes).ok_or(damaged("a node of a run", run.root))?;
                let before = node.count_before(media, run.location, key, with_equal)?;
                match seek {
                    Seek::AtLeast | Seek::Above => {
                        leaf.number = before;
                        if before == node.count {
                            leaf.number -= 1;
                            move_packed(media, run, path, Direction::Forward)?;
                        }
                    }
                    Seek::AtMost | Seek::Below => match before.checked_sub(1) {
                        Some(number) => leaf.number = number,
                        None => {
                            leaf.number = 0;
                            move_packed(media, run, path, Direction::Backward)?;
                        }
                    },
                }
            }
        }
        self.settle(media)
    }

    /// Moves the cursor to the next key in a direction.
    ///
    /// Errors: the next key is not beyond this one, because the run is damaged. So no damage makes a scan
    /// endless.
    pub(crate) fn step(&mut self, media: &Media<'_>, direction: Direction) -> StoreResult<()> {
        self.before.clone_from(&self.key);
        match (&mut self.state, direction) {
            (State::MemTable { node, .. }, Direction::Forward) => {
                *node = skip_list::next(media.space, *node)?;
            }
            (State::MemTable { list, node }, Direction::Backward) => {
                *node = list.find(media.space, &SearchKey::whole(&self.key))?.before;
            }
            (State::Packed { run, path }, _) => move_packed(media, run, path, direction)?,
        }
        self.settle(media)?;
        let Some(entry) = &self.entry else { return Ok(()) };
        let beyond = match direction {
            Direction::Forward => Ordering::Greater,
            Direction::Backward => Ordering::Less,
        };
        match self.key.cmp(&self.before) == beyond {
            true => Ok(()),
            false => Err(damaged("the order of keys in a run", entry.at)),
        }
    }

    /// Reads the entry at the new position, and its key.
    fn settle(&mut self, media: &Media<'_>) -> StoreResult<()> {
        self.entry = match &self.state {
            State::MemTable { node, .. } if node.is_none() => None,
            State::MemTable { node, .. } => Some(skip_list::newest(media.space, *node)?),
            State::Packed { run, path } => match path.last() {
                Some(leaf) => {
                    let node = Node::of(&leaf.bytes).ok_or(damaged("a node of a run", run.root))?;
                    Some(EntryAt::read(media, run.location, node.entry(leaf.number).entry)?)
                }
                None => None,
            },
        };
        match &self.entry {
            Some(entry) => entry.whole_key(media, &mut self.key),
            None => Ok(()),
        }
    }
}

/// Fills the path to the leaf that has a key, or would have it.
fn descend(
    media: &Media<'_>,
    run: &PackedRun,
    path: &mut Vec<PathNode>,
    key: &SearchKey<'_>,
) -> StoreResult<()> {
    path.clear();
    let mut at = run.root;
    while path.len() < LEVELS_MAX {
        let mut bytes = vec![0; node_bytes(run.location)];
        let node = Node::read(media, run.location, at, &mut bytes)?;
        let number = node.count_before(media, run.location, key, true)?.saturating_sub(1);
        let (is_leaf, child) = (node.is_leaf, node.entry(number).child);
        path.push(PathNode { bytes, number });
        if is_leaf {
            return Ok(());
        }
        at = child;
    }
    Err(damaged("a run with too many levels", run.root))
}

/// Changes a path, so that it leads to the neighbour of its entry. After the last entry, the path becomes
/// empty.
fn move_packed(
    media: &Media<'_>,
    run: &PackedRun,
    path: &mut Vec<PathNode>,
    direction: Direction,
) -> StoreResult<()> {
    let depth = path.len();
    while let Some(last) = path.last_mut() {
        let node = Node::of(&last.bytes).ok_or(damaged("a node of a run", run.root))?;
        let next = match direction {
            Direction::Forward => Some(last.number + 1).filter(|next| *next < node.count),
            Direction::Backward => last.number.checked_sub(1),
        };
        let Some(number) = next else {
            path.pop();
            continue;
        };
        last.number = number;
        let mut child = node.entry(number).child;
        while path.len() < depth {
            let mut bytes = vec![0; node_bytes(run.location)];
            let node = Node::read(media, run.location, child, &mut bytes)?;
            let number = if direction == Direction::Forward { 0 } else { node.count - 1 };
            child = node.entry(number).child;
            path.push(PathNode { bytes, number });
        }
        break;
    }
    Ok(())
}
