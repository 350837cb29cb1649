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

/// The source of a query's rows.
#[derive(Debug)]
pub enum Source {
    /// One row without columns.
    Nothing,
    /// A table.
    Table(TableAccess),
    /// A table whose rows a statement changes. The row's key follows its columns, as bytes.
    Target(Arc<TableDef>),
    /// generate_series(start, stop, step), with one column.
    Series(Box<[Expr; 3]>, Ty),
    /// unnest(a, b, ...)
    Unnest(Box<Unnest>),
    /// Rows of a query, each repeated for the rows that functions return for it.
    Expand(Box<Expand>),
    /// Rows of expressions (VALUES), and the types of their columns.
    Values(Vec<Vec<Expr>>, Box<[Ty]>),
    /// A join of two sources.
    Join(Box<Join>),
    /// Rows of a query in FROM.
    Query(Box<Select>),
    /// A system table.
    System(&'static SystemTable),
    /// Rows of UNION, INTERSECT or EXCEPT.
    Set(Box<SetOperation>),
    /// Rows of tables that are read in nested loops.
    Loops(Box<[Step]>),
    /// Rows of a query that WITH has named.
    Shared(Arc<Shared>),
    /// In the second part of the recursive query with this number: the rows that the previous iteration has
    /// added, and their types.
    Work(usize, Box<[Ty]>),
}

/// A query that WITH has named. All its uses share one value of this type.
#[derive(Debug)]
pub struct Shared {
    /// The query that returns its rows.
    pub body: SharedBody,
    /// The types of its columns.
    pub types: Box<[Ty]>,
    /// [NOT] MATERIALIZED, if written.
    pub materialized: Option<bool>,
    /// Whether two runs may return different rows.
    pub varies: bool,
}

/// The query for a name of WITH.
#[derive(Debug)]
pub enum SharedBody {
    /// A query that uses no values of outer queries.
    Query(Box<Select>),
    /// A query that reads its own rows.
    Recursive(Box<Recursion>),
}

/// WITH RECURSIVE. The first query returns the first rows. Then the second query makes new rows of the rows
/// that were added last, until there are no new ones.
#[derive(Debug)]
pub struct Recursion {
    /// The number by which the second part refers to the query.
    pub id: usize,
    /// UNION ALL: equal rows are kept.
    pub all: bool,
    /// The first query.
    pub first: Select,
    /// The second query, which reads the rows of the previous iteration.
    pub then: Select,
}

/// One table of nested loops. It is read for each row of the earlier steps. Its expressions read the row of
/// the loops, to which each step adds its columns.
#[derive(Debug)]
pub struct Step {
    /// The table and its access path. Keys may read the columns of earlier steps.
    pub target: TableAccess,
    /// The ordinals of the table's columns that the step adds to the row.
    pub columns: Box<[usize]>,
    /// The condition that rows must fulfil.
    pub filter: Option<Expr>,
}

/// The kind of a set operation.
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
    /// Returns the SQL keyword.
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
    /// The kind of the operation.
    pub kind: SetKind,
    /// ALL: equal rows count separately.
    pub all: bool,
    /// The sides: two queries, or more for UNION.
    pub sides: Vec<Select>,
}

/// Arrays whose elements become rows, in parallel. Shorter arrays are filled with NULL.
#[derive(Debug, Clone)]
pub struct Unnest {
    /// The arrays.
    pub arrays: Box<[Expr]>,
    /// WITH ORDINALITY: the number of the row follows the elements.
    pub numbered: bool,
    /// Types of all columns.
    pub types: Box<[Ty]>,
}

/// The rows of a query, expanded by functions that return sets. The functions' values follow the columns of
/// the row, in parallel.
#[derive(Debug)]
pub struct Expand {
    /// The rows to expand.
    pub rows: Select,
    /// The functions.
    pub calls: Box<[SetCall]>,
    /// WITH ORDINALITY: a number follows the values. It counts the rows that are made of one input row.
    pub numbered: bool,
    /// The types of the added columns.
    pub types: Box<[Ty]>,
}

/// A set-returning function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetFunction {
    /// generate_series of start, stop and step, with values of this type.
    Series(Ty),
    /// unnest: the elements of an array.
    Elements,
    /// regexp_matches of text, pattern and flags.
    Matches,
    /// This number of rows, with the values 0, 1 and so on. Grouping sets use it.
    Copies(usize),
}

/// A call of a set-returning function.
#[derive(Debug, Clone)]
pub struct SetCall {
    /// The function.
    pub function: SetFunction,
    /// The arguments, as expressions over the row, and their types.
    pub arguments: Vec<(Expr, Ty)>,
    /// The type of a value.
    pub output: Typed,
}

/// Which rows without a partner are returned, filled up with NULLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// No rows (inner join).
    Inner,
    /// The rows of the left side.
    Left,
    /// The rows of the right side.
    Right,
    /// The rows of both sides.
    Full,
}

/// A join. Its row is the left row followed by the right row.
#[derive(Debug)]
pub struct Join {
    /// Which rows without a partner are returned.
    pub kind: JoinKind,
    /// Left side.
    pub left: Source,
    /// Right side.
    pub right: Source,
    /// The number of columns of the left side.
    pub left_width: usize,
    /// Conditions over the joined row, all of which must hold.
    pub on: Vec<Expr>,
    /// LATERAL: the right side runs once for each left row, with these values of the left row.
    pub lateral: Option<Lateral>,
}

/// The values of the left row that the right side of a lateral join uses: its `Expr::Outer` values.
#[derive(Debug)]
pub struct Lateral {
    /// The values, over the left row.
    pub given: Box<[Expr]>,
    /// The types of the values.
    pub types: Box<[Typed]>,
}

impl Expand {
    /// Returns the arguments of all calls.
    pub fn arguments(&self) -> impl Iterator<Item = &Expr> {
        self.calls.iter().flat_map(|call| call.arguments.iter().map(|(e, _)| e))
    }
}

impl Source {
    /// Returns whether the source joins the working table of a recursive query.
    pub fn joins_work(&self) -> bool {
        match self {
            Source::Work(..) => true,
            Source::Join(join) => join.left.joins_work() || join.right.joins_work(),
            _ => false,
        }
    }
}
