//! Work that a change of a row needs in addition to the row itself: the overflow chain before it, and the
//! index entries after it.
//!
//! Invariants
//! 1. The undo record names an overflow chain before the second page of the chain is made. So a rollback or
//!    purge can always free the chain.
//! 2. Index entries are changed after the row. The new entry is made before the old one is marked as deleted.
//!
//! This module does not know the row's latch or why the row changes.

use std::sync::Arc;

use varve_pager::PageNo;

use super::PagedStore;
use super::write::Applied;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::overflow;
use crate::row_access::Change;
use crate::undo::Kind;

impl PagedStore {
    /// Makes the entries of a row that has none yet.
    pub(super) fn add_entries(&self, cx: &mut Context, key: &[u8], payload: &[u8]) -> Result<()> {
        let mut entry = std::mem::take(&mut cx.buffers.entry);
        let row = self.row(payload);
        let outcome = self.indexes.iter().try_for_each(|index| {
            match index.new_entry_key(&self.def, row, key, &mut entry)? {
                Some(shape) => self.add_entry(cx, index, &entry, shape, row),
                None => Ok(()),
            }
        });
        cx.buffers.entry = entry;
        outcome
    }

    /// Writes a payload to an overflow chain, which an undo record names. Returns the overflow pointer.
    pub(super) fn spill(&self, cx: &mut Context, payload: &[u8]) -> Result<Vec<u8>> {
        let core = Arc::clone(&cx.core);
        core.pager.reserve(self.tree.root().space(), 1)?;
        let first = cx.append_plain(Kind::Chain, self.tree.owner(), |mtr| {
            Ok(Some(overflow::begin(mtr, &self.tree)?))
        })?;
        let first = first.ok_or_else(|| Error::corrupt("a chain without a first page"))?;
        Ok(overflow::fill(&core.pager, &self.tree, first, payload)?)
    }

    pub(super) fn chain_of(&self, payload: &[u8]) -> Option<PageNo> {
        let is_pointer = !payload.is_empty() && overflow::is_pointer(payload);
        is_pointer.then(|| overflow::first_page(&self.tree, payload).no())
    }

    /// Changes the index entries, and inserts a row whose key changed at its new key.
    pub(super) fn follow_up(&self, cx: &mut Context, key: &[u8], applied: Applied) -> Result<()> {
        match &applied.change {
            Change::Skip | Change::Lock(_) => Ok(()),
            Change::Replace(_) if applied.is_plain => Ok(()),
            Change::Delete if cx.marks.is_some() => self.gather_entries(cx, key, &applied.old_row),
            Change::Delete => self.mark_entries(cx, key, &applied.old_row),
            Change::Replace(image) if applied.moves => {
                self.mark_entries(cx, key, &applied.old_row)?;
                let mut new_key = Vec::new();
                self.primary_key_of(self.row(image.as_bytes()), &mut new_key)?;
                self.insert_parts(cx, &new_key, image.as_bytes())
            }
            Change::Replace(image) => self.change_entries(cx, key, &applied.old_row, image.as_bytes()),
        }
    }

    /// Collects a deleted row's entries, which will be marked together with those of other rows.
    fn gather_entries(&self, cx: &mut Context, key: &[u8], old_row: &[u8]) -> Result<()> {
        let mut entry = std::mem::take(&mut cx.buffers.entry);
        let record_count = cx.record_count;
        let outcome = self.indexes.iter().enumerate().try_for_each(|(n, index)| {
            let has_one = index.entry_key(&self.def, self.row(old_row), key, &mut entry)?.is_some();
            match has_one && !self.gather(cx, n, &entry, record_count) {
                true => index.mark_entry(&cx.core, &entry, cx.id),
                false => Ok(()),
            }
        });
        cx.buffers.entry = entry;
        outcome.and_then(|()| self.bound_marks(cx))
    }

    pub(super) fn mark_entries(&self, cx: &mut Context, key: &[u8], old_row: &[u8]) -> Result<()> {
        let mut entry = Vec::new();
        for index in &self.indexes {
            if index.entry_key(&self.def, self.row(old_row), key, &mut entry)?.is_some() {
                index.mark_entry(&cx.core, &entry, cx.id)?;
            }
        }
        Ok(())
    }

    pub(super) fn change_entries(
        &self,
        cx: &mut Context,
        key: &[u8],
        old_row: &[u8],
        new_row: &[u8],
    ) -> Result<()> {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        let row = self.row(new_row);
        for index in &self.indexes {
            let before = index.entry_key(&self.def, self.row(old_row), key, &mut old)?;
            let after = index.new_entry_key(&self.def, row, key, &mut new)?;
            // For a row that is not in the index, the key is empty. The key of an entry is never empty.
            if old == new {
                continue;
            }
            if let Some(shape) = after {
                self.add_entry(cx, index, &new, shape, row)?;
            }
            if before.is_some() {
                index.mark_entry(&cx.core, &old, cx.id)?;
            }
        }
        Ok(())
    }
}
