//! Decides which entries a change of a row adds.
//!
//! Invariants
//! 1. A refused change adds nothing. A row or a reference is added only under a key that no other row has.
//! 2. Entries of one change have different keys.
//!
//! This module does not know how entries get into the MemTable.

use super::entry::{EntryBuffer, Kind, NewPatch, SecondaryKeys};
use super::key::{SearchKey, TableId};
use super::media::damaged;
use super::tables::LsmTable;
use super::view::View;
use crate::store_error::{StoreError, StoreResult};

/// The largest number of patches above a row. The next change after that writes the whole row, so that a read
/// needs only few entries.
const PATCHES_MAX: usize = 8;

/// Adds the entries of a new row to a buffer.
///
/// Errors: an index has one of the keys already.
pub(crate) fn insert(
    view: &View<'_>,
    table: TableId,
    keys: &[&[u8]],
    row: &[u8],
    entries: &mut EntryBuffer,
) -> StoreResult<()> {
    for (index, key) in keys.iter().enumerate() {
        if view.newest(&SearchKey::of(table, index, key))?.is_some() {
            return Err(StoreError::Duplicate { index });
        }
    }
    let Some((primary, secondary)) = keys.split_first() else { return Ok(()) };
    entries.add_row(&SearchKey::of(table, 0, primary), secondary, row);
    for (index, key) in (1..).zip(secondary) {
        entries.add_reference(&SearchKey::of(table, index, key), primary);
    }
    Ok(())
}

/// Adds the entries of a row that replaces the row with the same primary key. Returns whether there is such a
/// row.
///
/// Errors: an index has a key of the new row already, for another row.
pub(crate) fn replace(
    view: &View<'_>,
    table: TableId,
    keys: &[&[u8]],
    row: &[u8],
    entries: &mut EntryBuffer,
) -> StoreResult<bool> {
    let Some((primary, secondary)) = keys.split_first() else { return Ok(false) };
    let primary_key = SearchKey::of(table, 0, primary);
    let mut old_keys = Vec::new();
    if !old_secondary(view, &primary_key, secondary.len(), &mut old_keys)? {
        return Ok(false);
    }
    let changed = || {
        let pairs = (1..).zip(SecondaryKeys(&old_keys).zip(secondary));
        pairs.filter(|(_, (old, new))| old != *new).map(|(index, (old, new))| ChangedKey { index, old, new })
    };
    for ChangedKey { index, new, .. } in changed() {
        if view.newest(&SearchKey::of(table, index, new))?.is_some() {
            return Err(StoreError::Duplicate { index });
        }
    }
    entries.add_row(&primary_key, secondary, row);
    for ChangedKey { index, old, new } in changed() {
        entries.add_tombstone(&SearchKey::of(table, index, old));
        entries.add_reference(&SearchKey::of(table, index, new), primary);
    }
    Ok(true)
}

/// A secondary key that differs between the old and the new version of a row.
struct ChangedKey<'k> {
    index: usize,
    old: &'k [u8],
    new: &'k [u8],
}

/// Copies the encoded secondary keys of a row. Returns whether the row is there. A table with one index has
/// no secondary keys, so only the newest entry is read.
fn old_secondary(
    view: &View<'_>,
    primary: &SearchKey<'_>,
    count: usize,
    keys: &mut Vec<u8>,
) -> StoreResult<bool> {
    if count == 0 {
        return Ok(view.newest(primary)?.is_some());
    }
    let Some(base) = view.base(primary)? else { return Ok(false) };
    base.secondary(&view.media, keys)?;
    Ok(true)
}

/// Bytes of a row that are to be changed.
#[derive(Clone, Copy)]
pub(crate) struct PatchedBytes<'p> {
    /// The byte of the row at which these bytes begin.
    pub(crate) at: usize,
    pub(crate) bytes: &'p [u8],
}

/// Adds an entry with the patch, or with the whole row if the row has many patches. Returns whether the row
/// is there.
///
/// Errors: the patch reaches beyond the end of the row.
pub(crate) fn patch(
    view: &View<'_>,
    key: &SearchKey<'_>,
    patched: PatchedBytes<'_>,
    entries: &mut EntryBuffer,
) -> StoreResult<bool> {
    let PatchedBytes { at, bytes } = patched;
    let Some(newest) = view.newest(key)? else { return Ok(false) };
    let row_bytes = newest.head.row_bytes;
    if at.checked_add(bytes.len()).is_none_or(|end| end > row_bytes) {
        return Err(StoreError::PatchRange { at, len_bytes: bytes.len(), row_bytes });
    }
    if bytes.is_empty() {
        return Ok(true);
    }
    let patches = if newest.head.kind == Kind::Patch { newest.head.extra } else { 0 };
    if patches < PATCHES_MAX {
        entries.add_patch(key, &NewPatch { row_bytes, at, bytes, number: patches + 1 });
        return Ok(true);
    }
    let (mut row, mut secondary) = (Vec::new(), Vec::new());
    let is_there = view.row(key, &mut row)?;
    let base = view.base(key)?.filter(|_| is_there).ok_or(damaged("the entries of a row", newest.at))?;
    base.secondary(&view.media, &mut secondary)?;
    if let Some(place) = row.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
    entries.add_encoded_row(key, &secondary, &row);
    Ok(true)
}

/// Adds tombstones for all keys of a row. Returns whether the row is there.
pub(crate) fn delete(
    view: &View<'_>,
    table: &LsmTable,
    key: &[u8],
    entries: &mut EntryBuffer,
) -> StoreResult<bool> {
    let primary = SearchKey::of(table.id, 0, key);
    let mut old_keys = Vec::new();
    if !old_secondary(view, &primary, table.indexes - 1, &mut old_keys)? {
        return Ok(false);
    }
    entries.add_tombstone(&primary);
    for (index, old) in (1..).zip(SecondaryKeys(&old_keys)) {
        entries.add_tombstone(&SearchKey::of(table.id, index, old));
    }
    Ok(true)
}
