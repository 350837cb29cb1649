//! Physical plans: the input of the executor.
//!
//! Invariants
//! 1. A plan contains the table definition for which it was made. If the definition is out of date, the
//!    engine refuses to open the table, and the session makes a new plan.
//! 2. Conditions that the access path guarantees are not in `filter`.
//!
//! This module does not know how a plan is made (`bind`, `access`) or how it runs (`exec`).

mod access;
mod calls;
mod change;
mod select;
mod source;
mod walk;

use std::sync::Arc;

use varve_engine::TableDef;

// All types are exported here, so users of plans do not need to know the files.
pub use access::{Access, KeyRange, TableAccess};
pub use calls::{
    AggCall, AggKind, Exclude, Frame, FrameBound, FrameUnits, Moment, OrderKey, WinCall, WinFunction,
};
pub use change::{Arbiter, Delete, Insert, InsertSource, OnConflict, RowFinder, Rules, Update, Upsert};
pub use select::{
    Aggregate, LockWait, LockedTable, Output, RowLock, Select, SortKey, Subquery, SubqueryKind,
};
pub use source::{
    Expand, Join, JoinKind, Lateral, Recursion, SetCall, SetFunction, SetKind, SetOperation, Shared,
    SharedBody, Source, Step, Unnest,
};

/// A statement that runs on rows.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a plan is behind the pointer of its prepared statement")]
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

impl Plan {
    /// Returns whether it is an INSERT that can run several times, each time with the parameters of a row.
    pub fn repeats(&self) -> bool {
        matches!(self, Plan::Insert(Insert { source: InsertSource::Values(_), .. }))
    }

    /// Returns whether it is an INSERT that searches for rows with the keys of its rows (ON CONFLICT).
    pub fn looks_for_conflicts(&self) -> bool {
        matches!(self, Plan::Insert(insert) if !matches!(insert.on_conflict, OnConflict::Fail))
    }

    /// Returns the table that the plan changes, if any.
    pub fn changed_table(&self) -> Option<&Arc<TableDef>> {
        match self {
            Plan::Select(_) => None,
            Plan::Insert(i) => Some(&i.table),
            Plan::Update(u) => Some(&u.target.table),
            Plan::Delete(d) => Some(&d.target.table),
        }
    }

    /// Returns the query whose rows the plan returns or inserts.
    pub fn query(&self) -> Option<&Select> {
        match self {
            Plan::Select(select) => Some(select),
            Plan::Insert(i) => i.source.query(),
            _ => None,
        }
    }

    /// Returns the general query that the plan runs or that finds its rows, if there is one.
    pub fn general(&self) -> Option<&Select> {
        match self {
            Plan::Select(select) => Some(select).filter(|s| s.general),
            Plan::Insert(i) => i.source.query().filter(|q| q.general),
            Plan::Update(u) => u.found.as_ref().map(|f| &f.query),
            Plan::Delete(d) => d.found.as_ref().map(|f| &f.query),
        }
    }

    /// Returns the part that finds the rows to change, if a general query finds them.
    pub fn found(&self) -> Option<&RowFinder> {
        match self {
            Plan::Update(u) => u.found.as_deref(),
            Plan::Delete(d) => d.found.as_deref(),
            Plan::Select(_) | Plan::Insert(_) => None,
        }
    }

    /// Returns whether a READ ONLY transaction refuses it.
    pub fn writes(&self) -> bool {
        !matches!(self, Plan::Select(Select { lock: None, .. }))
    }
}
