//! Scans tables by columns: passes the rows of a leaf together, if they lie in its columns and are visible.
//!
//! Invariants
//! 1. A row is passed by columns only if the view sees its newest version, which is not deleted. Other
//!    entries are read as `read.rs` reads them.
//! 2. A leaf is passed by, or read without a look at its entries, only as `leaf_facts.rs` allows it.
//! 3. Rows come in the order of their keys. An entry that must be read by itself ends the run of rows that
//!    are passed together.
//!
//! This module does not know conditions, or which columns are wanted.

use std::ops::ControlFlow;

use varve_pager::{Lsn, PageId};

use super::PagedStore;
use super::read::begun;
use crate::context::Context;
use crate::core::{Core, Sight, View};
use crate::error::Result;
use crate::ids::TxnId;
use crate::leaf_facts::{Known, LeafBounds};
use crate::leaf_rows::{LeafCounts, LeafRows, OnShown, Shown};
use crate::node::NodeRef;
use crate::row_access::ScanSpec;
use crate::tree::Scan;

/// How an entry is read.
enum Reading {
    /// The entry is read by columns, as the row with this number.
    ByColumns(u16),
    /// The entry is not read, because the view sees that its row is deleted.
    NoRow,
    /// The entry is read by itself.
    ByRow,
}

/// The leaf of a batch, and what is known about it.
struct OfLeaf<'b> {
    /// The view that reads it.
    view: View,
    page: PageId,
    lsn: Lsn,
    known: Known,
    bounds: &'b [LeafBounds],
}

/// Rows of a leaf that are passed together: slots of their entries, and numbers in the columns.
#[derive(Default)]
struct Run {
    slots: Vec<u16>,
    numbers: Vec<u16>,
}

/// The numbers of rows that were passed from one leaf.
#[derive(Default)]
struct Passed {
    by_columns: u64,
    single: u64,
}

impl PagedStore {
    /// Passes the visible rows within the bounds of `spec`, as `Reader::scan_leaves` describes.
    pub(crate) fn read_leaves(
        &self,
        cx: &mut Context,
        spec: &ScanSpec<'_>,
        bounds: &[LeafBounds],
        on_shown: &mut OnShown<'_>,
    ) -> Result<LeafCounts> {
        let mut scan = begun(cx, spec);
        let mut counts = LeafCounts::default();
        let outcome = self.scan_leaves(cx, &mut scan, bounds, &mut counts, on_shown);
        self.end_scan(cx, spec, scan, &outcome)?;
        outcome.map(|_| counts)
    }

    /// Returns `Break` if the closure ended the scan. Then the last key is in the buffers.
    fn scan_leaves(
        &self,
        cx: &mut Context,
        scan: &mut Scan,
        bounds: &[LeafBounds],
        counts: &mut LeafCounts,
        on_shown: &mut OnShown<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut run = Run::default();
        loop {
            cx.check_cancel()?;
            let view = cx.view()?;
            let mut of_leaf =
                OfLeaf { view, page: PageId::ROOT, lsn: Lsn::ZERO, known: Known::Nothing, bounds };
            let has_more = self.tree.next_leaf(&cx.core.pager, scan, &mut |page, lsn| {
                let known = cx.core.leaf_facts.known(page, lsn, view.floor, bounds);
                of_leaf = OfLeaf { page, lsn, known, ..of_leaf };
                known == Known::RuledOut
            })?;
            cx.core.purge.check_snapshot(view.snapshot)?;
            if !has_more {
                return Ok(ControlFlow::Continue(()));
            }
            if scan.is_empty() {
                counts.skipped += u64::from(of_leaf.known == Known::RuledOut);
                continue;
            }
            let mut passed = Passed::default();
            let is_settled = scan.has_whole_leaf() && of_leaf.known != Known::Nothing;
            let flow = if is_settled && scan.slot(0) == 0 {
                self.show_settled(cx, scan, &of_leaf, &mut run, &mut passed, on_shown)?
            } else {
                self.show_leaf(cx, scan, &of_leaf, &mut run, &mut passed, on_shown)?
            };
            counts.add(&passed);
            if flow.is_break() {
                return Ok(flow);
            }
        }
    }

    /// Passes all rows of a leaf that is settled (`leaf_facts.rs`).
    fn show_settled(
        &self,
        cx: &mut Context,
        scan: &Scan,
        of_leaf: &OfLeaf<'_>,
        run: &mut Run,
        passed: &mut Passed,
        on_shown: &mut OnShown<'_>,
    ) -> Result<ControlFlow<()>> {
        run.slots.extend(0..scan.len() as u16);
        run.numbers.extend(0..scan.len() as u16);
        if of_leaf.known == (Known::Settled { needs_more: true }) {
            self.learn(cx, scan.leaf(), of_leaf, None, run);
        }
        self.show_run(cx, scan.leaf(), run, passed, on_shown)
    }

    fn learn(&self, cx: &Context, leaf: NodeRef<'_>, of_leaf: &OfLeaf<'_>, newest: Option<TxnId>, run: &Run) {
        let Some(columns) = leaf.columns() else { return };
        let Run { slots, numbers } = run;
        let rows = LeafRows { schema: &self.schema, leaf, columns, slots, numbers };
        cx.core.leaf_facts.learn(of_leaf.page, of_leaf.lsn, newest, &rows, of_leaf.bounds);
    }

    fn show_leaf(
        &self,
        cx: &mut Context,
        scan: &Scan,
        of_leaf: &OfLeaf<'_>,
        run: &mut Run,
        passed: &mut Passed,
        on_shown: &mut OnShown<'_>,
    ) -> Result<ControlFlow<()>> {
        let (leaf, view) = (scan.leaf(), of_leaf.view);
        let mut newest = TxnId::NONE;
        for at in 0..scan.len() {
            let slot = scan.slot(at);
            match reading(&cx.core, &view, leaf, slot, &mut newest) {
                Reading::ByColumns(number) => {
                    run.slots.push(slot as u16);
                    run.numbers.push(number);
                }
                Reading::NoRow => {}
                Reading::ByRow => {
                    if self.show_run(cx, leaf, run, passed, on_shown)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    let flow = self.show_entry(cx, view, scan.entry(at), &mut |key, row| {
                        passed.single += 1;
                        let flow = on_shown(Shown::Row(key, row))?;
                        Ok(if flow.is_break() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                    })?;
                    if flow.is_break() {
                        return Ok(flow);
                    }
                }
            }
        }
        let is_in_order = run.numbers.iter().zip(0..).all(|(number, at)| *number == at);
        if run.numbers.len() == leaf.len() && is_in_order && newest < view.floor && scan.slot(0) == 0 {
            self.learn(cx, leaf, of_leaf, Some(newest), run);
        }
        self.show_run(cx, leaf, run, passed, on_shown)
    }

    /// Passes the rows of a run, and empties it.
    fn show_run(
        &self,
        cx: &mut Context,
        leaf: NodeRef<'_>,
        run: &mut Run,
        passed: &mut Passed,
        on_shown: &mut OnShown<'_>,
    ) -> Result<ControlFlow<()>> {
        let Some(columns) = leaf.columns().filter(|_| !run.numbers.is_empty()) else {
            return Ok(ControlFlow::Continue(()));
        };
        let Run { slots, numbers } = &*run;
        let rows = LeafRows { schema: &self.schema, leaf, columns, slots, numbers };
        passed.by_columns += numbers.len() as u64;
        let flow = on_shown(Shown::Leaf(&rows))?;
        if let ControlFlow::Break(taken) = flow {
            rows.copy_key(taken - 1, &mut cx.buffers.key);
        }
        run.slots.clear();
        run.numbers.clear();
        Ok(if flow.is_break() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

#[inline]
fn reading(core: &Core, view: &View, leaf: NodeRef<'_>, slot: usize, newest: &mut TxnId) -> Reading {
    let Some(row) = leaf.row_in_columns(slot) else { return Reading::ByRow };
    let txn = TxnId::new(row.txn);
    *newest = txn.max(*newest);
    match core.sight(view, txn) {
        Sight::Seen if row.is_deleted => Reading::NoRow,
        Sight::Seen => Reading::ByColumns(row.number),
        Sight::Unseen | Sight::Stale => Reading::ByRow,
    }
}

impl LeafCounts {
    fn add(&mut self, passed: &Passed) {
        self.whole_rows += passed.single;
        match (passed.by_columns, passed.single) {
            // The scan has seen no row of this leaf.
            (0, 0) => {}
            (_, 0) => self.by_columns += 1,
            (0, _) => self.by_rows += 1,
            _ => self.mixed += 1,
        }
    }
}
