//! Plans of INSERT, UPDATE and DELETE.
//!
//! This module knows nothing about the query that finds the rows to change (`select`).

use std::sync::Arc;

use varve_engine::{Part, TableDef};

use super::access::TableAccess;
use super::select::{Output, Select};
use crate::eval::Expr;
use crate::ty::Ty;

/// INSERT.
#[derive(Debug)]
pub struct Insert {
    /// The table.
    pub table: Arc<TableDef>,
    /// What each new row must fulfil.
    pub rules: Rules,
    /// The new rows.
    pub source: InsertSource,
    /// What the client gets back of each row.
    pub returning: Option<Box<[Output]>>,
    /// ON CONFLICT
    pub on_conflict: OnConflict,
}

/// Rows to insert.
#[derive(Debug)]
pub enum InsertSource {
    /// One expression for each table column.
    Values(Vec<Box<[Expr]>>),
    /// Rows of a query, and for each table column an expression over them.
    Query(Box<Select>, Box<[Expr]>),
    /// Rows of VALUES with subqueries: a query gives the values of these. Its first output is the ordinal of
    /// the row that they are for; the row has for each table column an expression over the query's outputs.
    Queried(Box<Select>, Vec<Box<[Expr]>>),
}

impl InsertSource {
    /// The query that gives the rows, or values of them.
    pub fn query(&self) -> Option<&Select> {
        match self {
            InsertSource::Values(_) => None,
            InsertSource::Query(query, _) | InsertSource::Queried(query, _) => Some(query),
        }
    }
}

/// What INSERT does with a row whose key exists.
#[derive(Debug)]
pub enum OnConflict {
    /// 23505
    Fail,
    /// Leave the row out, whatever constraint it violates (`None`) or only this one.
    Nothing(Option<Arbiter>),
    /// Change the row that is there.
    Update(Box<Upsert>),
}

/// The unique key that decides what a conflict is.
#[derive(Debug, Clone)]
pub struct Arbiter {
    /// Name of the constraint or index.
    pub constraint: String,
    /// Its columns.
    pub key: Box<[usize]>,
}

/// ON CONFLICT ... DO UPDATE. Expressions are over the row that is there, then the row that was to be
/// inserted.
#[derive(Debug)]
pub struct Upsert {
    /// What is met so.
    pub arbiter: Arbiter,
    /// What the changed row must fulfil.
    pub rules: Rules,
    /// New values by column ordinal.
    pub assignments: Box<[(usize, Expr)]>,
    /// Whether to change the row at all.
    pub filter: Option<Expr>,
}

/// The conditions that new rows of a table must fulfil, except NOT NULL, which is in the definition.
#[derive(Debug, Default)]
pub struct Rules {
    /// CHECK constraints in the order of their names, over the table's row.
    pub checks: Box<[(Box<str>, Expr)]>,
    /// The part by whose name the table was named.
    pub part: Option<Part>,
    /// The statement gives values to columns of foreign keys.
    pub refers: bool,
    /// The statement changes columns that foreign keys refer to.
    pub is_referred: bool,
}

/// UPDATE.
#[derive(Debug)]
pub struct Update {
    /// The table and the way to its rows.
    pub target: TableAccess,
    /// Condition on rows found by the access path.
    pub filter: Option<Expr>,
    /// The whole condition, for the version that is changed.
    pub recheck: Option<Expr>,
    /// What each new row must fulfil.
    pub rules: Rules,
    /// New values by column ordinal, over the old row.
    pub assignments: Box<[(usize, Expr)]>,
    /// What the client gets back of each new row.
    pub returning: Option<Box<[Output]>>,
    /// What finds the rows, if a general query does.
    pub found: Option<Box<RowFinder>>,
}

/// A general query that finds rows to change. Expressions about such a row read these values: the columns of
/// the other relations, the columns of the target, and the results of subqueries.
#[derive(Debug)]
pub struct RowFinder {
    /// Its outputs: the row's key as bytes, the columns of the other relations, the values of subqueries, and
    /// the columns of the target in `seen`.
    pub query: Select,
    /// How many columns the other relations have.
    pub others: usize,
    /// Columns of the target that subqueries, or conditions with subqueries, read. If the version that is
    /// changed has other values there, what was found does not hold for it.
    pub seen: Box<[usize]>,
    /// Types of the row that the query looks at: other relations, target, key.
    pub types: Box<[Ty]>,
}

/// DELETE.
#[derive(Debug)]
pub struct Delete {
    /// Foreign keys refer to the table.
    pub is_referred: bool,
    /// The table and the way to its rows.
    pub target: TableAccess,
    /// Condition on rows found by the access path.
    pub filter: Option<Expr>,
    /// The whole condition, for the version that is changed.
    pub recheck: Option<Expr>,
    /// What the client gets back of each old row.
    pub returning: Option<Box<[Output]>>,
    /// What finds the rows, if a general query does.
    pub found: Option<Box<RowFinder>>,
}
