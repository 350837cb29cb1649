//! Sets delete marks of index entries. A statement that deletes many rows collects the marks and sets them in
//! the order of the entries. So each leaf is found and latched once for all its entries, not once for each
//! row.
//!
//! Invariants
//! 1. Until its mark is set, an entry stays live. Readers use the row, which is already changed. The marks
//!    are set before the statement ends, so a transaction that sees the rows as deleted finds marked entries.
//! 2. If the change of a row is undone, its pending mark is dropped. Statements that collect marks create no
//!    entries, so they never create an entry with a pending mark.
//!
//! This module does not know which rows are deleted, or why.

use varve_device::reached;

use super::index::may_exist;
use super::{PagedIndex, PagedStore};
use crate::context::Context;
use crate::core::Core;
use crate::error::Result;
use crate::ids::TxnId;
use crate::marks::{Entries, Marks};
use crate::node::{FLAG_DELETED, Stamp};
use crate::sort::Arena;

/// Memory limit of collected marks. Above it they are set.
const GATHERED_BYTES_MAX: usize = 16 << 20;
/// The most entries that one mini-transaction marks.
const MARKED_MAX: usize = 128;

impl PagedStore {
    /// Starts collecting the marks of deleted rows' entries.
    pub(super) fn gather_marks(&self, cx: &mut Context) {
        let of_index = self.indexes.iter().map(|_| Entries::default()).collect();
        cx.marks = Some(Marks { owner: self.tree.owner(), of_index });
    }

    /// Sets the collected marks, and stops collecting.
    pub(super) fn settle_marks(&self, cx: &mut Context) -> Result<()> {
        let Some(mut marks) = cx.marks.take() else { return Ok(()) };
        self.set_marks(cx, &mut marks)
    }

    /// Collects an entry of the row whose undo record is the last of `record_count`. Returns false if marks
    /// are not collected.
    pub(super) fn gather(&self, cx: &mut Context, index: usize, entry: &[u8], record_count: u64) -> bool {
        let marks = cx.marks.as_mut().filter(|marks| marks.owner == self.tree.owner());
        let Some(entries) = marks.and_then(|marks| marks.of_index.get_mut(index)) else { return false };
        entries.keys.push(entry, &[]);
        entries.records.push(record_count);
        true
    }

    /// Returns whether marks of this table are collected.
    pub(super) fn gathers(&self, cx: &Context) -> bool {
        cx.marks.as_ref().is_some_and(|marks| marks.owner == self.tree.owner())
    }

    /// Sets the marks if there are too many.
    pub(super) fn bound_marks(&self, cx: &mut Context) -> Result<()> {
        let Some(mut marks) = cx.marks.take_if(|marks| marks.memory_bytes() > GATHERED_BYTES_MAX) else {
            return Ok(());
        };
        // An error ends the statement, and its rows are restored with their entries.
        self.set_marks(cx, &mut marks)?;
        cx.marks = Some(marks);
        Ok(())
    }

    fn set_marks(&self, cx: &Context, marks: &mut Marks) -> Result<()> {
        for (index, entries) in self.indexes.iter().zip(&mut marks.of_index) {
            entries.keys.sort();
            index.mark_all(&cx.core, &entries.keys, cx.id)?;
            entries.keys.clear();
            entries.records.clear();
        }
        Ok(())
    }
}

impl PagedIndex {
    /// Sets the delete marks of those entries that exist. The entries are in order.
    fn mark_all(&self, core: &Core, entries: &Arena, txn: TxnId) -> Result<()> {
        let stamp = Stamp { txn: txn.get(), roll: 0, flags: FLAG_DELETED };
        let mut done = 0;
        while let Some((first, _)) = entries.pair(done) {
            done += 1;
            if !may_exist(core, first) {
                continue;
            }
            let mut mtr = core.pager.begin()?;
            let mut at = self.tree.locate_x(&core.pager, &mut mtr, first)?;
            let end = done + MARKED_MAX;
            while at.found {
                self.tree.stamp(&mut mtr, &at, stamp);
                let next = if done < end { entries.pair(done) } else { None };
                let Some((key, _)) = next.filter(|(key, _)| may_exist(core, key)) else { break };
                at = self.tree.find_beside(&mtr, &at, key);
                if at.found {
                    reached("delete: entries marked together");
                    done += 1;
                }
            }
            mtr.commit();
        }
        Ok(())
    }
}
