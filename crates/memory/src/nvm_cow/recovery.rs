//! The start of a store: it reads the current directory, and frees chunks that are in the list of the last
//! batch.
//!
//! Invariants
//! 1. A start reads the directories and one list, so its time depends on the length of one batch only.
//! 2. A start that a crash interrupts is repeated: freeing a chunk again changes nothing.
//! 3. Only the stores of one name use the owner of a listed chunk. So a listed chunk that is active belongs
//!    to this store, and is really the chunk that the list means (decision 0115).
//!
//! This module does not know rows.

use super::directory::Directory;
use super::list::ChunkList;
use crate::pointer::Owner;
use crate::space::{OwnedChunk, Space};
use crate::store_error::StoreResult;

/// Frees the chunks that a batch has left allocated because a crash interrupted it.
pub(super) fn recover(space: &Space, directory: &Directory, owner: Owner) -> StoreResult<ChunkList> {
    let list = ChunkList::open(space, owner, directory.list)?;
    let unfinished = list.read(space, directory.batch() + 1)?;
    let is_unfinished = !unfinished.is_empty();
    let listed = if is_unfinished { unfinished } else { list.read(space, directory.batch())? };
    // If the batch has not flipped the master record, its new chunks are garbage. If it has flipped, its old
    // chunks are.
    let garbage = listed.iter().filter(|listed| listed.is_old != is_unfinished);
    let garbage: Vec<OwnedChunk> = garbage.map(|listed| listed.chunk).collect();
    space.free_allocated(&garbage)?;
    Ok(list)
}
