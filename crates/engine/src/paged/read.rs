//! Reads rows: by key, by range, by index.
//!
//! Invariants
//! 1. A reader loads the floor, a transaction id, before it reads a row. Transactions with an id below the
//!    floor have finished. If the newest version of a row is visible, the caller gets it from its page
//!    without a copy.
//! 2. An older version, or a row in an overflow chain, is assembled while no tree latch is held.
//! 3. An index entry counts only if the version that the snapshot sees has the entry's index columns.
//! 4. A row can be built from its index entry alone in one case. All changes of the entry's leaf are visible
//!    to every transaction, and the entry has no delete mark. Then the visible version is the one for which
//!    the entry was made (decision 0523).

use std::ops::{Bound, ControlFlow};

use super::earlier::Earlier;
use super::{PagedIndex, PagedStore, split_entry_key};
use crate::catalog::IndexId;
use crate::context::Context;
use crate::core::{Core, Sight, View};
use crate::entry_columns::Wanted;
use crate::error::Result;
use crate::ids::TxnId;
use crate::key;
use crate::node::EntryRef;
use crate::overflow;
use crate::row::RowRef;
use crate::row_access::{OnRow, ScanIndex, ScanSpec};
use crate::tree::{Direction, Scan};
use crate::versions::Version;
use crate::visible_version::{Look, Retry, look_back};

/// The result of the first attempt to read an entry, under the leaf's latch.
enum First {
    /// The caller has received the row.
    Shown,
    /// The view sees no row.
    NoRow,
    /// The version was copied. An older version or the overflow chain must still be read.
    Copied,
}

impl PagedStore {
    #[inline]
    pub(super) fn read_row(
        &self,
        cx: &mut Context,
        key: &[u8],
        found: &mut dyn FnMut(RowRef<'_>),
    ) -> Result<bool> {
        let view = cx.view()?;
        if let Some(serial) = &cx.serial {
            serial.read_point(self.tree.owner(), key);
        }
        let core = &*cx.core;
        let (version, spare) = (&mut cx.buffers.version, &mut cx.buffers.row);
        let first = self
            .tree
            .get(&core.pager, key, |entry| self.first_look(core, &view, entry, version, spare, found))?;
        match first {
            // If the rollback limit is exceeded, purge may have removed the row after the view was made.
            None | Some(First::NoRow) => core.purge.check_snapshot(view.snapshot).map(|()| false),
            Some(First::Shown) => Ok(true),
            Some(First::Copied) => self.read_copied(cx, view, key, found),
        }
    }

    #[inline]
    fn first_look(
        &self,
        core: &Core,
        view: &View,
        entry: EntryRef<'_>,
        version: &mut Version,
        spare: &mut Vec<u8>,
        found: &mut dyn FnMut(RowRef<'_>),
    ) -> First {
        let payload = entry.payload(spare);
        match core.sight(view, TxnId::new(entry.txn())) {
            Sight::Seen if entry.is_deleted() => First::NoRow,
            Sight::Seen if !overflow::is_pointer(payload) => {
                found(self.row(payload));
                First::Shown
            }
            _ => {
                version.set(entry.stamp(), payload);
                First::Copied
            }
        }
    }

    #[cold]
    fn read_copied(
        &self,
        cx: &mut Context,
        view: View,
        key: &[u8],
        found: &mut dyn FnMut(RowRef<'_>),
    ) -> Result<bool> {
        let core = &*cx.core;
        let version = &mut cx.buffers.version;
        if !self.settle(core, view, key, version)? {
            return Ok(false);
        }
        let row = self.seen_row(core, view, &version.payload, &mut cx.buffers.row)?;
        found(self.row(row));
        Ok(true)
    }

    /// Replaces `version`, a copy of the newest version of a key, by the version that the view sees. Returns
    /// false if the view sees none. While the copy is out of date, the row is read again.
    pub(super) fn settle(
        &self,
        core: &Core,
        mut view: View,
        key: &[u8],
        version: &mut Version,
    ) -> Result<bool> {
        let mut retry = Retry::default();
        loop {
            let newest = version.stamp;
            match look_back(core, &view, self.tree.owner(), key, version) {
                Ok(Look::Row) => return Ok(true),
                Ok(Look::NoRow) => break,
                Ok(Look::Stale) => retry.again(core, &view, newest, None)?,
                Err(error) => retry.again(core, &view, newest, Some(error))?,
            }
            view.floor = core.status.floor();
            core.purge.check_snapshot(view.snapshot)?;
            if !self.copy_newest(core, key, version)? {
                break;
            }
        }
        // If the rollback limit is exceeded, purge may have removed the row after the view was made.
        core.purge.check_snapshot(view.snapshot).map(|()| false)
    }

    /// Returns the row of a version that the view sees.
    fn seen_row<'a>(
        &self,
        core: &Core,
        view: View,
        payload: &'a [u8],
        spare: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        let row = self.whole_row(core, payload, spare);
        if overflow::is_pointer(payload) {
            // If the rollback limit is exceeded, purge may have freed the chain while it was read.
            core.purge.check_snapshot(view.snapshot)?;
        }
        row
    }

    /// Copies the newest version of a key. Returns false if there is none.
    pub(super) fn copy_newest(&self, core: &Core, key: &[u8], version: &mut Version) -> Result<bool> {
        let mut spare = Vec::new();
        let found =
            self.tree.get(&core.pager, key, |entry| version.set(entry.stamp(), entry.payload(&mut spare)))?;
        Ok(found.is_some())
    }

    pub(crate) fn read_range(
        &self,
        cx: &mut Context,
        spec: &ScanSpec<'_>,
        on_row: &mut OnRow<'_>,
    ) -> Result<()> {
        let mut scan = begun(cx, spec);
        let outcome = match spec.index {
            ScanIndex::Primary => self.scan_rows(cx, &mut scan, on_row),
            ScanIndex::Secondary(id) => {
                self.index(id).and_then(|index| self.scan_index(cx, index, spec.columns, &mut scan, on_row))
            }
        };
        self.end_scan(cx, spec, scan, &outcome)?;
        outcome.map(|_| ())
    }

    /// Keeps the buffers of a scan for the next one. Under SERIALIZABLE, records what the scan has read.
    pub(super) fn end_scan(
        &self,
        cx: &mut Context,
        spec: &ScanSpec<'_>,
        scan: Box<Scan>,
        outcome: &Result<ControlFlow<()>>,
    ) -> Result<()> {
        cx.buffers.scan = Some(scan);
        match cx.serial {
            Some(_) => self.note_range(cx, spec, matches!(outcome, Ok(ControlFlow::Break(())))),
            None => Ok(()),
        }
    }

    /// Records the range that a scan has read, under SERIALIZABLE. If the closure ended the scan, the range
    /// ends at the last row.
    #[cold]
    fn note_range(&self, cx: &Context, spec: &ScanSpec<'_>, ended_early: bool) -> Result<()> {
        let Some(serial) = &cx.serial else { return Ok(()) };
        let (tree, last) = match spec.index {
            ScanIndex::Primary => (self.tree.owner(), &cx.buffers.key),
            ScanIndex::Secondary(id) => (self.index(id)?.tree.owner(), &cx.buffers.entry),
        };
        let (mut lower, mut upper) = (spec.lower, spec.upper);
        match (ended_early, spec.reverse) {
            (false, _) => {}
            (true, false) => upper = Bound::Included(last),
            (true, true) => lower = Bound::Included(last),
        }
        serial.read_range(tree, lower, upper);
        Ok(())
    }

    /// Returns `Break` if the callback ended the scan. Then the last key is in the buffers.
    fn scan_rows(
        &self,
        cx: &mut Context,
        scan: &mut Scan,
        on_row: &mut OnRow<'_>,
    ) -> Result<ControlFlow<()>> {
        loop {
            cx.check_cancel()?;
            let view = cx.view()?;
            let has_more = self.tree.next_batch(&cx.core.pager, scan)?;
            cx.core.purge.check_snapshot(view.snapshot)?;
            if !has_more {
                return Ok(ControlFlow::Continue(()));
            }
            for at in 0..scan.len() {
                if self.show_entry(cx, view, scan.entry(at), on_row)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
    }

    /// Passes the row of an entry, if the snapshot sees one. Each entry of a scan comes through here, so this is
    /// inlined into both kinds of scans.
    #[inline(always)]
    pub(super) fn show_entry(
        &self,
        cx: &mut Context,
        view: View,
        entry: EntryRef<'_>,
        on_row: &mut OnRow<'_>,
    ) -> Result<ControlFlow<()>> {
        let core = &*cx.core;
        let buffers = &mut cx.buffers;
        let payload = entry.payload(&mut buffers.row);
        buffers.key.clear();
        entry.append_key(&mut buffers.key);
        match core.sight(&view, TxnId::new(entry.txn())) {
            Sight::Seen if entry.is_deleted() => Ok(ControlFlow::Continue(())),
            Sight::Seen if !overflow::is_pointer(payload) => on_row(&buffers.key, self.row(payload)),
            _ => {
                buffers.version.set(entry.stamp(), payload);
                if !self.settle(core, view, &buffers.key, &mut buffers.version)? {
                    return Ok(ControlFlow::Continue(()));
                }
                let row = self.seen_row(core, view, &buffers.version.payload, &mut buffers.row)?;
                on_row(&buffers.key, self.row(row))
            }
        }
    }

    fn scan_index(
        &self,
        cx: &mut Context,
        index: &PagedIndex,
        columns: Option<&[usize]>,
        scan: &mut Scan,
        on_row: &mut OnRow<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut earlier = Earlier::default();
        // While this transaction's marks are pending, its entries do not show which rows it has deleted.
        let covering = columns.filter(|_| !cx.has_late_marks()).and_then(|c| index.columns.wanted(c));
        loop {
            cx.check_cancel()?;
            let view = cx.view()?;
            let has_more = index.tree.next_batch(&cx.core.pager, scan)?;
            cx.core.purge.check_snapshot(view.snapshot)?;
            if !has_more {
                return Ok(ControlFlow::Continue(()));
            }
            // All changes of this leaf are visible to every transaction, so its entries match their rows.
            let is_settled = TxnId::new(scan.newest_txn()) < view.floor;
            for at in 0..scan.len() {
                let entry = scan.entry(at);
                if is_settled && entry.is_deleted() {
                    continue;
                }
                let flow = match covering.filter(|_| is_settled) {
                    Some(wanted) => self.show_covered(cx, index, wanted, entry, on_row)?,
                    None => self.show_indexed(cx, view, index, &mut earlier, entry, on_row)?,
                };
                if flow.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
    }

    /// Passes the columns that the entry has to the callback. The row is visible.
    fn show_covered(
        &self,
        cx: &mut Context,
        index: &PagedIndex,
        wanted: Wanted,
        entry: EntryRef<'_>,
        on_row: &mut OnRow<'_>,
    ) -> Result<ControlFlow<()>> {
        let buffers = &mut cx.buffers;
        buffers.entry.clear();
        entry.append_key(&mut buffers.entry);
        let (index_key, key) = split_entry_key(&buffers.entry)?;
        index.columns.read(wanted, [index_key, key], &self.schema, &mut buffers.row)?;
        on_row(key, self.row(&buffers.row))
    }

    fn show_indexed(
        &self,
        cx: &mut Context,
        view: View,
        index: &PagedIndex,
        earlier: &mut Earlier,
        entry: EntryRef<'_>,
        on_row: &mut OnRow<'_>,
    ) -> Result<ControlFlow<()>> {
        let core = &*cx.core;
        let buffers = &mut cx.buffers;
        buffers.entry.clear();
        entry.append_key(&mut buffers.entry);
        let (_, key) = split_entry_key(&buffers.entry)?;
        if earlier.rules_out(key, &buffers.entry) || !self.copy_newest(core, key, &mut buffers.version)? {
            core.purge.check_snapshot(view.snapshot)?;
            return Ok(ControlFlow::Continue(()));
        }
        let is_newest = matches!(core.sight(&view, TxnId::new(buffers.version.stamp.txn)), Sight::Seen);
        if !self.settle(core, view, key, &mut buffers.version)? {
            earlier.note(key, None);
            return Ok(ControlFlow::Continue(()));
        }
        let row = self.row(self.seen_row(core, view, &buffers.version.payload, &mut buffers.row)?);
        index.entry_key(&self.def, row, key, &mut buffers.key)?;
        if !is_newest {
            earlier.note(key, Some(&buffers.key));
        }
        if buffers.key != buffers.entry {
            return Ok(ControlFlow::Continue(()));
        }
        on_row(key, row)
    }

    pub(super) fn read_unique(
        &self,
        cx: &mut Context,
        index: IndexId,
        start: &[u8],
        found: &mut dyn FnMut(&[u8], RowRef<'_>),
    ) -> Result<bool> {
        let mut end = start.to_vec();
        key::prefix_end(&mut end);
        let spec = ScanSpec {
            index: ScanIndex::Secondary(index),
            lower: Bound::Included(start),
            upper: Bound::Excluded(&end),
            reverse: false,
            limit_hint: Some(2),
            columns: None,
        };
        let mut is_found = false;
        self.read_range(cx, &spec, &mut |key, row| {
            found(key, row);
            is_found = true;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(is_found)
    }

    /// Returns the largest row id in the tree, 0 if it is empty.
    pub(super) fn last_row_id(&self, core: &Core) -> Result<u64> {
        let mut scan = Scan::new(Bound::Unbounded, Bound::Unbounded, Direction::Backward, 1);
        while self.tree.next_batch(&core.pager, &mut scan)? {
            if !scan.is_empty() {
                return Ok(row_id(&scan.entry(0).key()));
            }
        }
        Ok(0)
    }
}

/// Begins a scan, with the buffers of an earlier one if there are any.
pub(super) fn begun(cx: &mut Context, spec: &ScanSpec<'_>) -> Box<Scan> {
    let direction = if spec.reverse { Direction::Backward } else { Direction::Forward };
    let limit = spec.limit_hint.map_or(0, |rows| rows.max(1));
    match cx.buffers.scan.take() {
        Some(mut scan) => {
            scan.reset(spec.lower, spec.upper, direction, limit);
            scan
        }
        None => Box::new(Scan::new(spec.lower, spec.upper, direction, limit)),
    }
}

/// Returns the number in a row id's key: tag, then 8 bytes with the sign bit flipped.
fn row_id(key: &[u8]) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&key[1..9]);
    u64::from_be_bytes(raw) ^ (1 << 63)
}
