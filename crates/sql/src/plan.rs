//! Physical plans: what the executor runs.
//!
//! Invariants
//! 1. A plan holds the table definition it was made for; the engine refuses to open the table once that is stale, and the
//!    session plans again.
//! 2. Filters that an access path guarantees are not in `filter` any more.
//!
//! Does not know: how it came about (`bind`, `access`) or how it runs (`exec`).

use std::sync::Arc;

use varve_engine::{HashPart, ScanIndex, TableDef};

use crate::bind::aggregate::AggCall;
use crate::eval::Expr;
use crate::sink::Column;
use crate::system::SystemTable;
use crate::ty::{Ty, Typed};

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
}

/// Where rows come from.
#[derive(Debug)]
pub enum Source {
    /// One row of no columns.
    Nothing,
    /// A table.
    Table(TableAccess),
    /// generate_series(start, stop, step); one column.
    Series(Box<[Expr; 3]>, Ty),
    /// Rows of expressions.
    Values(Vec<Vec<Expr>>),
    /// Rows of two sources beside each other.
    Join(Box<Join>),
    /// Rows of a query in FROM.
    Query(Box<Select>),
    /// A system table.
    System(&'static SystemTable),
    /// Rows of tables that are read one within the other.
    Loops(Box<[Step]>),
}

/// One table of nested loops, read anew for each row that the steps before it give. Columns in its expressions are those of
/// the loops' row, which each step makes longer.
#[derive(Debug)]
pub struct Step {
    /// The table and the way in; keys may read the columns of the steps before.
    pub target: TableAccess,
    /// The table's columns that it adds to the row, by ordinal.
    pub columns: Box<[usize]>,
    /// Rows to keep.
    pub filter: Option<Expr>,
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
}

/// One computed column of a result.
#[derive(Debug, Clone)]
pub struct Output {
    /// The expression over the input row, or over the group's slots.
    pub expr: Expr,
    /// Its type.
    pub t: Typed,
    /// Width to pad char(n) to when shown.
    pub pad: Option<usize>,
}

/// One key of ORDER BY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortKey {
    /// Ordinal among the outputs.
    pub output: usize,
    /// DESC
    pub descending: bool,
    /// NULLS FIRST
    pub nulls_first: bool,
}

/// Grouping and aggregation.
#[derive(Debug)]
pub struct Aggregate {
    /// Group keys over the input row: slots 0...
    pub keys: Box<[Expr]>,
    /// Their types.
    pub key_types: Box<[Typed]>,
    /// Aggregates: the slots after the keys.
    pub calls: Box<[AggCall]>,
    /// HAVING, over the slots.
    pub having: Option<Expr>,
    /// There was no GROUP BY: one group, also of no rows.
    pub single: bool,
}

/// What happens when another transaction holds a row that is to be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    /// Wait for it.
    Wait,
    /// NOWAIT: fail with 55P03.
    Fail,
    /// SKIP LOCKED: leave the row out.
    Skip,
}

/// How rows that are read get locked.
#[derive(Debug, Clone)]
pub struct RowLock {
    /// Behaviour towards rows that are held by others.
    pub wait: LockWait,
    /// The whole condition, for the version that is locked.
    pub recheck: Option<Expr>,
}

/// SELECT.
#[derive(Debug)]
pub struct Select {
    /// Rows.
    pub source: Source,
    /// Rows to keep.
    pub filter: Option<Expr>,
    /// Grouping.
    pub aggregate: Option<Aggregate>,
    /// Computed columns; those past `visible` serve ORDER BY only.
    pub outputs: Box<[Output]>,
    /// How many outputs the client sees.
    pub visible: usize,
    /// DISTINCT
    pub distinct: bool,
    /// ORDER BY, empty if the access path delivers the order.
    pub order: Box<[SortKey]>,
    /// LIMIT
    pub limit: Option<Expr>,
    /// OFFSET
    pub offset: Option<Expr>,
    /// FOR UPDATE, FOR SHARE
    pub lock: Option<RowLock>,
}

/// What INSERT does with a row whose key exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnConflict {
    /// 23505
    Fail,
    /// Leave the row out, whatever constraint it violates (`None`) or only this one.
    Nothing(Option<String>),
}

/// What new rows of a table must fulfil beside NOT NULL, which its definition says.
#[derive(Debug, Default)]
pub struct Rules {
    /// CHECK constraints in the order of their names, over the table's row.
    pub checks: Box<[(Box<str>, Expr)]>,
    /// The part by whose name the table was named.
    pub part: Option<HashPart>,
    /// The statement gives values to columns of foreign keys.
    pub refers: bool,
    /// The statement changes columns that foreign keys refer to.
    pub is_referred: bool,
}

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
}

impl Output {
    /// An output of this type.
    pub fn new(expr: Expr, t: Typed) -> Output {
        let pad = if t.ty == Ty::Char { t.length() } else { None };
        Output { expr, t, pad }
    }

    /// The column that a client sees.
    pub fn column(&self, name: &str) -> Column {
        Column { name: name.into(), type_oid: self.t.ty.oid(), typmod: self.t.typmod }
    }
}

impl Plan {
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
            Plan::Insert(Insert { source: InsertSource::Query(query, _), .. }) => Some(query),
            _ => None,
        }
    }

    /// Whether a READ ONLY transaction refuses it.
    pub fn writes(&self) -> bool {
        !matches!(self, Plan::Select(Select { lock: None, .. }))
    }
}

impl Select {
    /// The table read from, if the executor of this crate reads one.
    pub fn table(&self) -> Option<&Arc<TableDef>> {
        match &self.source {
            Source::Table(t) => Some(&t.table),
            _ => None,
        }
    }

    /// Whether it takes a runner of general queries.
    pub fn is_general(&self) -> bool {
        matches!(self.source, Source::Join(_) | Source::Query(_))
    }

    /// All tables read from, in the order of the query.
    pub fn tables(&self) -> Vec<&Arc<TableDef>> {
        let mut out = Vec::new();
        self.source.each_table(&mut |t| out.push(t));
        out
    }
}

impl Source {
    /// Calls `f` with each table read from, in the order of the query.
    pub fn each_table<'s>(&'s self, f: &mut dyn FnMut(&'s Arc<TableDef>)) {
        match self {
            Source::Table(t) => f(&t.table),
            Source::Loops(steps) => steps.iter().for_each(|s| f(&s.target.table)),
            Source::Join(join) => {
                join.left.each_table(f);
                join.right.each_table(f);
            }
            Source::Query(select) => select.source.each_table(f),
            Source::Nothing | Source::Series(..) | Source::Values(_) | Source::System(_) => {}
        }
    }
}
