//! Reads the rows of a leaf from the data file, if these are the rows that the host's snapshot sees.
//!
//! Invariants
//! 1. A leaf is used as a whole, or it is deferred as a whole.
//! 2. Bytes of the data file never cause a panic. A leaf that is damaged, or half written, is deferred.
//!
//! Decision 0370 says why the rows of an accepted leaf are those that the host would read.

use varve_engine::node::{KIND_NODE, NodeRef, check};
use varve_engine::{RowRef, RowSchema, fences_hash, overflow};
use varve_pager::{PageId, page};

use crate::decode::{RowSource, row_schema, widths};
use crate::program::Program;

/// The properties that a leaf must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafTest {
    /// The page.
    pub page: PageId,
    /// The hash of its fences, which are the lowest and the highest key that belong in the leaf.
    pub fences: u64,
    /// The owner of the tree's pages.
    pub owner: u32,
    /// The highest page LSN that the leaf may have.
    pub bound: u64,
    /// The floor: row versions of transactions with lower ids are visible.
    pub floor: u64,
}

/// The reason why a leaf is deferred, that is, left to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deferred {
    /// The checksum or the identity is wrong.
    Torn,
    /// The leaf was changed after the bound.
    Newer,
    /// The page is no leaf of this tree, or has other fences.
    Stranger,
    /// The bytes of the page are no leaf with rows of this table.
    Damaged,
    /// The visible version of a row can't be decided.
    Undecided,
    /// A row is in an overflow chain.
    Overflow,
}

/// Reads leaves of one table.
pub struct LeafReader {
    schema: RowSchema,
    widths: Vec<u8>,
}

impl LeafReader {
    /// Returns a reader of the program's table.
    pub fn new(program: &Program) -> LeafReader {
        LeafReader { schema: row_schema(program), widths: widths(program) }
    }

    /// Returns the layout of the rows.
    pub const fn schema(&self) -> &RowSchema {
        &self.schema
    }

    /// Returns the visible rows of a leaf, in key order.
    pub fn rows<'a>(&'a self, bytes: &'a [u8], test: &LeafTest) -> Result<Vec<RowSource<'a>>, Deferred> {
        page::verify(bytes, test.page).map_err(|_| Deferred::Torn)?;
        if page::page_lsn(bytes).get() > test.bound {
            return Err(Deferred::Newer);
        }
        if page::page_kind(bytes) != KIND_NODE || page::page_owner(bytes) != test.owner {
            return Err(Deferred::Stranger);
        }
        if check::damage(bytes).is_some() {
            return Err(Deferred::Damaged);
        }
        let node = NodeRef::new(bytes);
        if !node.is_leaf()
            || !node.is_stamped()
            || fences_hash(node.lower_fence(), node.upper_fence()) != test.fences
        {
            return Err(Deferred::Stranger);
        }
        if node.is_by_columns() && node.widths() != self.widths {
            return Err(Deferred::Damaged);
        }
        self.visible(node, test.floor)
    }

    fn visible<'a>(&'a self, node: NodeRef<'a>, floor: u64) -> Result<Vec<RowSource<'a>>, Deferred> {
        let mut rows = Vec::with_capacity(node.len());
        let columns = node.columns();
        for index in 0..node.len() {
            let entry = node.entry(index);
            if entry.txn() >= floor {
                return Err(Deferred::Undecided);
            }
            if entry.is_deleted() {
                continue;
            }
            match (columns, node.row_number(index)) {
                (Some(columns), Some(row)) => rows.push(RowSource::InColumns(columns, row)),
                _ => rows.push(RowSource::Whole(self.whole(stored(node, index))?)),
            }
        }
        Ok(rows)
    }

    fn whole<'a>(&'a self, row: &'a [u8]) -> Result<RowRef<'a>, Deferred> {
        if overflow::is_pointer(row) {
            return Err(Deferred::Overflow);
        }
        RowRef::checked(&self.schema, row).map_err(|_| Deferred::Damaged)
    }
}

/// Returns the row of an entry of a leaf by rows.
fn stored<'a>(node: NodeRef<'a>, index: usize) -> &'a [u8] {
    &node.value(index)[varve_engine::node::STAMP_BYTES..]
}
