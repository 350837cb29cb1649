//! The sources of a plan's rows: tables, joins, set-returning functions, subqueries.
//!
//! This module does not know what a query does with the rows (`select`).

use std::sync::Arc;

use varve_engine::TableDef;

use super::access::TableAccess;
use super::select::Select;
use crate::eval::Expr;
use crate::system::SystemTable;
use crate::ty::{Ty, Typed};

/// Where rows come from.
#[derive(Debug)]
pub enum Source {
    /// One row of no columns.
    Nothing,
    /// A table.
    Table(TableAccess),
    /// A table whose rows a statement is to change: behind its columns, the row's key as bytes.
    Target(Arc<TableDef>),
    /// generate_series(start, stop, step); one column.
    Series(Box<[Expr; 3]>, Ty),
    /// unnest(a, b, ...)
    Unnest(Box<Unnest>),
    /// Rows of a query, each as often as functions give rows for it.
    Expand(Box<Expand>),
    /// Rows of expressions, and the types of their columns.
    Values(Vec<Vec<Expr>>, Box<[Ty]>),
    /// Rows of two sources beside each other.
    Join(Box<Join>),
    /// Rows of a query in FROM.
    Query(Box<Select>),
    /// A system table.
    System(&'static SystemTable),
    /// Rows of UNION, INTERSECT or EXCEPT; its row is that of either side.
    Set(Box<SetOperation>),
    /// Rows of tables that are read one within the other.
    Loops(Box<[Step]>),
    /// Rows of a query that WITH has named.
    Shared(Arc<Shared>),
    /// In the second part of a recursive query of this number: the rows that the turn before has added, which
    /// have these types.
    Work(usize, Box<[Ty]>),
}

/// A query that WITH has named. However often it is read, there is one of it.
#[derive(Debug)]
pub struct Shared {
    /// What gives its rows.
    pub body: SharedBody,
    /// Types of its columns.
    pub types: Box<[Ty]>,
    /// [NOT] MATERIALIZED, if written.
    pub materialized: Option<bool>,
    /// It may give other rows at each run.
    pub varies: bool,
}

/// What gives the rows of a query that WITH has named.
#[derive(Debug)]
pub enum SharedBody {
    /// A query, which reads nothing of the queries around.
    Query(Box<Select>),
    /// One that reads itself.
    Recursive(Box<Recursion>),
}

/// WITH RECURSIVE: the rows of a query, then those that another one makes of them, and of these, until there
/// are no more.
#[derive(Debug)]
pub struct Recursion {
    /// Its number, by which its second part names it.
    pub id: usize,
    /// UNION ALL: a row may come more than once.
    pub all: bool,
    /// The rows to begin with.
    pub first: Select,
    /// The rows that follow from those of the turn before.
    pub then: Select,
}

/// One table of nested loops. It is read for each row of the earlier steps. Columns in its expressions are
/// those of the loops' row, to which each step adds its columns.
#[derive(Debug)]
pub struct Step {
    /// The table and the way in; keys may read the columns of the steps before.
    pub target: TableAccess,
    /// The table's columns that it adds to the row, by ordinal.
    pub columns: Box<[usize]>,
    /// Rows to keep.
    pub filter: Option<Expr>,
}

/// What a set operation makes of two queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetKind {
    /// UNION
    Union,
    /// INTERSECT
    Intersect,
    /// EXCEPT
    Except,
}

impl SetKind {
    /// As written.
    pub fn name(self) -> &'static str {
        match self {
            SetKind::Union => "UNION",
            SetKind::Intersect => "INTERSECT",
            SetKind::Except => "EXCEPT",
        }
    }
}

/// UNION, INTERSECT or EXCEPT of queries whose outputs have the same types.
#[derive(Debug)]
pub struct SetOperation {
    /// Which.
    pub kind: SetKind,
    /// ALL: rows are counted, not only there or not.
    pub all: bool,
    /// Two queries, or more of a UNION.
    pub sides: Vec<Select>,
}

/// Arrays whose elements become rows, in parallel. Shorter arrays are filled with NULL.
#[derive(Debug, Clone)]
pub struct Unnest {
    /// The arrays.
    pub arrays: Box<[Expr]>,
    /// WITH ORDINALITY: behind the elements, the number of the row.
    pub numbered: bool,
    /// Types of all columns.
    pub types: Box<[Ty]>,
}

/// The rows of a query, expanded by functions that return sets. The functions' values follow the columns of
/// the row, in parallel.
#[derive(Debug)]
pub struct Expand {
    /// The rows.
    pub rows: Select,
    /// The functions.
    pub calls: Box<[SetCall]>,
    /// WITH ORDINALITY: behind the values, the number of the row among those that one row becomes.
    pub numbered: bool,
    /// Types of the columns that are added.
    pub types: Box<[Ty]>,
}

/// A function that gives a set of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetFunction {
    /// generate_series of start, stop and step; values of this type.
    Series(Ty),
    /// unnest: the elements of an array.
    Elements,
    /// regexp_matches of text, pattern and flags.
    Matches,
    /// So many rows, numbered from 0: of grouping sets.
    Copies(usize),
}

/// A call of a function that gives a set.
#[derive(Debug, Clone)]
pub struct SetCall {
    /// The function.
    pub function: SetFunction,
    /// Its arguments over the row, and their types.
    pub arguments: Vec<(Expr, Ty)>,
    /// The type of a value.
    pub output: Typed,
}

/// Which rows without a partner stay in a join, beside NULLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// None.
    Inner,
    /// Those of the left side.
    Left,
    /// Those of the right side.
    Right,
    /// All.
    Full,
}

/// A join; its row is the left row, then the right one.
#[derive(Debug)]
pub struct Join {
    /// Which rows stay alone.
    pub kind: JoinKind,
    /// Left side.
    pub left: Source,
    /// Right side.
    pub right: Source,
    /// Columns of the left side.
    pub left_width: usize,
    /// Conditions over the joined row, all of which must hold.
    pub on: Vec<Expr>,
    /// LATERAL: the right side is run for each row of the left one, which gives it these values of itself.
    pub lateral: Option<Lateral>,
}

/// The values of the left row that the right side of a lateral join uses: its `Expr::Outer` values.
#[derive(Debug)]
pub struct Lateral {
    /// The values, over the left row.
    pub given: Box<[Expr]>,
    /// Their types.
    pub types: Box<[Typed]>,
}

impl Expand {
    /// The arguments of its functions.
    pub fn arguments(&self) -> impl Iterator<Item = &Expr> {
        self.calls.iter().flat_map(|call| call.arguments.iter().map(|(e, _)| e))
    }
}

impl Source {
    /// Whether it joins the working table of a recursive query.
    pub fn joins_work(&self) -> bool {
        match self {
            Source::Work(..) => true,
            Source::Join(join) => join.left.joins_work() || join.right.joins_work(),
            _ => false,
        }
    }
}
