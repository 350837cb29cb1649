//! Physical plans: what the executor runs.
//!
//! Invariants
//! 1. A plan holds the table definition it was made for; the engine refuses to open the table once that is stale, and the
//!    session plans again.
//! 2. Filters that an access path guarantees are not in `filter` any more.
//!
//! Does not know: how it came about (`bind`, `access`) or how it runs (`exec`).

mod aggregate;
mod change;
mod select;
mod source;
mod walk;
mod window;

use std::sync::Arc;

use varve_engine::{ScanIndex, TableDef};

use crate::eval::Expr;

// One vocabulary, whose files nobody needs to know who reads or makes plans.
pub use aggregate::{AggCall, AggKind, Moment};
pub use change::{Arbiter, Delete, Found, Insert, InsertSource, OnConflict, Rules, Update, Upsert};
pub use select::{
    Aggregate, LockWait, LockedTable, Output, RowLock, Select, SortKey, Subquery, SubqueryKind,
};
pub use source::{
    Expand, Join, JoinKind, Lateral, Recursion, SetCall, SetFunction, SetKind, SetOperation, Shared,
    SharedBody, Source, Step, Unnest,
};
pub use window::{Exclude, Frame, FrameBound, FrameUnits, WinCall, WinFunction, WinOrder};

/// A statement that runs on rows.
#[derive(Debug)]
pub enum Plan {
    /// SELECT, VALUES
    Select(Select),
    /// INSERT
    Insert(Insert),
    /// UPDATE
    Update(Update),
    /// DELETE
    Delete(Delete),
}

/// Some values of an index key from its first column on, then perhaps bounds for the next one.
#[derive(Debug, Clone, Default)]
pub struct KeyRange {
    /// Values that the first columns equal.
    pub equal: Vec<Expr>,
    /// The one of them that is an array, of which each element is meant: as many ranges as it has elements.
    pub each: Option<usize>,
    /// Lower bound of the next column, and whether it is included.
    pub lower: Option<(Expr, bool)>,
    /// Upper bound of the next column, and whether it is included.
    pub upper: Option<(Expr, bool)>,
}

/// How rows are found.
#[derive(Debug, Clone)]
pub enum Access {
    /// All rows in primary key order.
    Full,
    /// The row with this primary key: one expression for each key column.
    Point(Box<[Expr]>),
    /// The rows in ranges of an index.
    Ranges {
        /// Which tree.
        index: ScanIndex,
        /// Ordinals of its columns.
        columns: Box<[usize]>,
        /// The ranges, in no order; they may overlap.
        ranges: Box<[KeyRange]>,
    },
}

/// A table and the way into it.
#[derive(Debug)]
pub struct TableAccess {
    /// The table.
    pub table: Arc<TableDef>,
    /// The way.
    pub access: Access,
    /// From the end of the index.
    pub reverse: bool,
    /// The only columns of its rows that are read, if the index has them all.
    pub reads: Option<Box<[usize]>>,
}

impl TableAccess {
    /// All rows.
    pub fn whole(table: Arc<TableDef>) -> TableAccess {
        TableAccess { table, access: Access::Full, reverse: false, reads: None }
    }

    /// Notes the columns that are read of its rows: the index may be enough for them.
    pub fn note_reads(&mut self, columns: &[usize]) {
        if let Access::Ranges { index, .. } = self.access {
            self.reads = self.table.covers(index, columns).then(|| columns.into());
        }
    }
}

impl Plan {
    /// Whether it is an INSERT that may be run several times, with a row's parameters each time.
    pub fn repeats(&self) -> bool {
        matches!(self, Plan::Insert(Insert { source: InsertSource::Values(_), .. }))
    }

    /// The table that the plan changes, if any.
    pub fn changed_table(&self) -> Option<&Arc<TableDef>> {
        match self {
            Plan::Select(_) => None,
            Plan::Insert(i) => Some(&i.table),
            Plan::Update(u) => Some(&u.target.table),
            Plan::Delete(d) => Some(&d.target.table),
        }
    }

    /// The query whose rows the plan gives or inserts.
    pub fn query(&self) -> Option<&Select> {
        match self {
            Plan::Select(select) => Some(select),
            Plan::Insert(i) => i.source.query(),
            _ => None,
        }
    }

    /// The general query that it runs or that finds its rows, if there is one.
    pub fn general(&self) -> Option<&Select> {
        match self {
            Plan::Select(select) => Some(select).filter(|s| s.general),
            Plan::Insert(i) => i.source.query().filter(|q| q.general),
            Plan::Update(u) => u.found.as_ref().map(|f| &f.query),
            Plan::Delete(d) => d.found.as_ref().map(|f| &f.query),
        }
    }

    /// What finds the rows to change, if a general query does.
    pub fn found(&self) -> Option<&Found> {
        match self {
            Plan::Update(u) => u.found.as_deref(),
            Plan::Delete(d) => d.found.as_deref(),
            Plan::Select(_) | Plan::Insert(_) => None,
        }
    }

    /// Whether a READ ONLY transaction refuses it.
    pub fn writes(&self) -> bool {
        !matches!(self, Plan::Select(Select { lock: None, .. }))
    }
}
