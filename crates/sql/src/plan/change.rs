//! Plans of INSERT, UPDATE and DELETE.
//!
//! This module does not know the query that finds the rows to change (`select`).

use std::sync::Arc;

use varve_engine::{Part, TableDef};

use super::access::TableAccess;
use super::select::{Output, Select};
use crate::eval::Expr;
use crate::ty::Ty;

/// The plan of an INSERT.
#[derive(Debug)]
pub struct Insert {
    /// The table to insert into.
    pub table: Arc<TableDef>,
    /// The rules that each new row must fulfil.
    pub rules: Rules,
    /// The new rows.
    pub source: InsertSource,
    /// RETURNING: the values that the client gets for each row.
    pub returning: Option<Box<[Output]>>,
    /// ON CONFLICT
    pub on_conflict: OnConflict,
}

/// Rows to insert.
#[derive(Debug)]
pub enum InsertSource {
    /// Rows of VALUES. Each row has one expression for each table column.
    Values(Vec<Box<[Expr]>>),
    /// Rows of a query, and one expression over them for each table column.
    Query(Box<Select>, Box<[Expr]>),
    /// Rows of VALUES with subqueries. A query computes the values of the subqueries. Its first output is the
    /// ordinal of the row that the values belong to. Each row has one expression over the query's outputs for
    /// each table column.
    Queried(Box<Select>, Vec<Box<[Expr]>>),
}

impl InsertSource {
    /// Returns the query that returns the rows or some of their values, if there is one.
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
    /// The statement fails with 23505.
    Fail,
    /// DO NOTHING: the row is not inserted. `None` means that this holds for a conflict with any unique key.
    Nothing(Option<Arbiter>),
    /// DO UPDATE: the existing row is changed.
    Update(Box<Upsert>),
}

/// The unique key that decides which rows are a conflict.
#[derive(Debug, Clone)]
pub struct Arbiter {
    /// Name of the constraint or index.
    pub constraint: String,
    /// The columns of the key.
    pub key: Box<[usize]>,
}

/// ON CONFLICT ... DO UPDATE. Its expressions read the existing row, followed by the row that was to be
/// inserted.
#[derive(Debug)]
pub struct Upsert {
    /// The unique key for whose conflicts the update is made.
    pub arbiter: Arbiter,
    /// The rules that the changed row must fulfil.
    pub rules: Rules,
    /// The new values, by column ordinal.
    pub assignments: Box<[(usize, Expr)]>,
    /// The WHERE condition: the row is changed only if it is true.
    pub filter: Option<Expr>,
}

/// The conditions that new rows of a table must fulfil, except NOT NULL, which is in the definition.
#[derive(Debug, Default)]
pub struct Rules {
    /// The CHECK conditions, in the order of their names, as expressions over the table's row.
    pub checks: Box<[(Box<str>, Expr)]>,
    /// The partition that the statement names instead of its table, if it does so.
    pub part: Option<Part>,
    /// Whether the statement sets columns of foreign keys.
    pub refers: bool,
    /// Whether the statement changes columns that foreign keys refer to.
    pub is_referred: bool,
}

/// The plan of an UPDATE.
#[derive(Debug)]
pub struct Update {
    /// The table, and the access path to its rows.
    pub target: TableAccess,
    /// The condition on rows that the access path finds.
    pub filter: Option<Expr>,
    /// The whole condition, for the row version that is changed.
    pub recheck: Option<Expr>,
    /// The rules that each new row must fulfil.
    pub rules: Rules,
    /// The new values, by column ordinal, as expressions over the old row.
    pub assignments: Box<[(usize, Expr)]>,
    /// RETURNING: the values that the client gets for each new row.
    pub returning: Option<Box<[Output]>>,
    /// The general query that finds the rows, if there is one.
    pub found: Option<Box<RowFinder>>,
}

/// A general query that finds rows to change. Expressions about such a row read these values: the columns of
/// the other relations, the columns of the target, and the results of subqueries.
#[derive(Debug)]
pub struct RowFinder {
    /// The query. Its outputs are the row's key as bytes, the columns of the other relations, the values of
    /// subqueries, and the columns of the target in `seen`.
    pub query: Select,
    /// The number of columns of the other relations.
    pub others: usize,
    /// Columns of the target that subqueries, or conditions with subqueries, read. If the newest version of
    /// the row has other values in these columns, the query must run again for it.
    pub seen: Box<[usize]>,
    /// The types of the query's input row: columns of the other relations, columns of the target, key.
    pub types: Box<[Ty]>,
}

/// The plan of a DELETE.
#[derive(Debug)]
pub struct Delete {
    /// Whether foreign keys refer to the table.
    pub is_referred: bool,
    /// The table, and the access path to its rows.
    pub target: TableAccess,
    /// The condition on rows that the access path finds.
    pub filter: Option<Expr>,
    /// The whole condition, for the row version that is changed.
    pub recheck: Option<Expr>,
    /// RETURNING: the values that the client gets for each deleted row.
    pub returning: Option<Box<[Output]>>,
    /// The general query that finds the rows, if there is one.
    pub found: Option<Box<RowFinder>>,
}
