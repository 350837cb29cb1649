//! Plans of queries: SELECT and its clauses, and subqueries in expressions.
//!
//! This module does not know where rows come from (`source`) or how expressions are found in a query
//! (`walk`).

use std::sync::Arc;

use varve_engine::{LockStrength, TableDef, WhenHeld};

use super::calls::{AggCall, AggKind, WinCall};
use super::source::Source;
use crate::eval::Expr;
use crate::sink::Column;
use crate::ty::{Ty, Typed};

/// The plan of a query.
#[derive(Debug)]
pub struct Select {
    /// The source of the rows.
    pub source: Source,
    /// The condition that rows must fulfil.
    pub filter: Option<Expr>,
    /// The grouping, if there is one.
    pub aggregate: Option<Aggregate>,
    /// Calls of window functions over the input row, or over the group's slots. The values of the calls
    /// follow the columns or the slots.
    pub windows: Box<[WinCall]>,
    /// The computed columns. The ones from `visible` on are only for ORDER BY.
    pub outputs: Box<[Output]>,
    /// The number of outputs that the client sees.
    pub visible: usize,
    /// DISTINCT
    pub distinct: bool,
    /// DISTINCT ON: of the rows that are equal in these outputs, only the first one in the order of ORDER BY
    /// is returned.
    pub distinct_on: Box<[usize]>,
    /// ORDER BY. The list is empty if the access path returns rows in this order.
    pub order: Box<[SortKey]>,
    /// LIMIT
    pub limit: Option<Expr>,
    /// OFFSET
    pub offset: Option<Expr>,
    /// WITH TIES: rows whose sort keys equal those of the last row are returned, too.
    pub ties: bool,
    /// FOR UPDATE, FOR SHARE
    pub lock: Option<RowLock>,
    /// Whether only the runner of general queries can run the query. Its conditions and its order are as
    /// written.
    pub general: bool,
}

/// One computed column of a result.
#[derive(Debug, Clone)]
pub struct Output {
    /// The expression, over the input row or over the group's slots.
    pub expr: Expr,
    /// The type of the expression.
    pub t: Typed,
    /// The width to which char(n) is padded for the client.
    pub pad: Option<usize>,
}

/// One key of ORDER BY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortKey {
    /// The index of the output to sort by.
    pub output: usize,
    /// DESC
    pub descending: bool,
    /// NULLS FIRST
    pub nulls_first: bool,
}

/// Grouping and aggregation.
#[derive(Debug)]
pub struct Aggregate {
    /// The group keys, over the input row. Their values are the first slots.
    pub keys: Box<[Expr]>,
    /// The types of the keys.
    pub key_types: Box<[Typed]>,
    /// The aggregates. Their values are the slots after the keys.
    pub calls: Box<[AggCall]>,
    /// GROUPING SETS: the keys of each set. In the groups of a set, the other keys are NULL. The slot after
    /// the aggregates has the number of the group's set. The list is empty if there is one set with all keys.
    pub sets: Box<[Box<[usize]>]>,
    /// HAVING, as an expression over the slots.
    pub having: Option<Box<Expr>>,
    /// Whether there is no GROUP BY. Then there is one group, even without rows.
    pub single: bool,
}

/// What happens when another transaction has locked a row that must be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    /// The statement waits for the other transaction.
    Wait,
    /// NOWAIT: the statement fails with 55P03.
    Fail,
    /// SKIP LOCKED: the statement skips the row.
    Skip,
}

impl LockWait {
    /// Returns the same choice for partitions of memory-oriented engines, which are locked as a whole.
    pub fn when_held(self) -> WhenHeld {
        match self {
            LockWait::Wait => WhenHeld::Wait,
            LockWait::Fail => WhenHeld::Fail,
            LockWait::Skip => WhenHeld::Skip,
        }
    }
}

/// How a query locks the rows that it reads.
#[derive(Debug, Clone)]
pub struct RowLock {
    /// What to do if another transaction has locked a row.
    pub wait: LockWait,
    /// The strength of the lock.
    pub strength: LockStrength,
    /// The whole condition, for the row version that is locked.
    pub recheck: Option<Expr>,
    /// The tables whose rows are locked after a general query has found them.
    pub beside: Box<[LockedTable]>,
    /// The number of that query's outputs that the client sees. The columns of the tables follow them.
    pub shown: usize,
    /// LIMIT and OFFSET, if they count locked rows and not found rows.
    pub limit: (Option<Expr>, Option<Expr>),
}

/// A table whose rows are locked after a general query has found them.
#[derive(Debug, Clone)]
pub struct LockedTable {
    /// The table.
    pub table: Arc<TableDef>,
    /// The index of the output with the table's first column. The other columns follow.
    pub first: usize,
    /// The strength of the lock.
    pub strength: LockStrength,
}

/// A query in an expression. Values of the outer query are its `Expr::Outer` values.
#[derive(Debug)]
pub struct Subquery {
    /// The value that the expression makes of the query's rows.
    pub kind: SubqueryKind,
    /// The query.
    pub select: Select,
    /// The types of the values that the outer query passes.
    pub given: Box<[Typed]>,
}

/// The value that an expression makes of the rows of its subquery.
#[derive(Debug)]
pub enum SubqueryKind {
    /// EXISTS: whether there is a row.
    Exists,
    /// The value of its only row, or NULL if there is no row. Several rows are the error 21000.
    Scalar,
    /// ARRAY(SELECT ...): the values of all rows, in their order.
    List,
    /// IN, op ANY: whether the test holds for a row. The test is over the subquery's row.
    Any(Expr),
    /// op ALL: whether the test holds for all rows.
    All(Expr),
}

impl Aggregate {
    fn needs_runner(&self) -> bool {
        let counts_blanks = |c: &AggCall| {
            c.distinct
                && c.input == Ty::Char
                && c.kind == AggKind::Count
                && !matches!(c.argument, Some(Expr::Column(_)))
        };
        !self.sets.is_empty()
            || self.key_types.iter().any(Typed::may_have_blanks)
            || self.calls.iter().any(|c| c.kind.needs_runner() || counts_blanks(c))
    }
}

impl Output {
    /// Returns an output of this type. char(n) is padded.
    pub fn new(expr: Expr, t: Typed) -> Output {
        let pad = if t.ty == Ty::Char { t.length() } else { None };
        Output { expr, t, pad }
    }

    /// Returns the same output without padding, for a value that is stored in a table. Tables store char(n)
    /// without blanks.
    #[must_use]
    pub fn unpadded(self) -> Output {
        Output { pad: None, ..self }
    }

    /// Returns the column that a client sees.
    pub fn column(&self, name: &str) -> Column {
        Column { name: name.into(), type_oid: self.t.ty.oid(), typmod: self.t.typmod, origin: None }
    }
}

impl Select {
    /// Returns a query that returns one row without columns, for the runner of general queries.
    pub fn nothing() -> Select {
        Select {
            source: Source::Nothing,
            filter: None,
            aggregate: None,
            windows: Box::default(),
            outputs: Box::default(),
            visible: 0,
            distinct: false,
            distinct_on: Box::default(),
            order: Box::default(),
            limit: None,
            offset: None,
            ties: false,
            lock: None,
            general: true,
        }
    }

    /// Returns the table that the executor of this crate reads, if there is one.
    pub fn table(&self) -> Option<&Arc<TableDef>> {
        match &self.source {
            Source::Table(t) => Some(&t.table),
            _ => None,
        }
    }

    /// Returns whether only the runner of general queries can run the query.
    pub fn is_general(&self) -> bool {
        self.general
    }

    /// Returns whether outputs have effects, such as taking advisory locks. These effects must happen only
    /// for the rows that are returned, so the outputs are computed after ORDER BY and LIMIT.
    fn acts_behind_order(&self) -> bool {
        let is_key = |n: usize| self.order.iter().any(|key| key.output == n);
        let mut others = self.outputs.iter().enumerate().filter(|(n, _)| !is_key(*n));
        let acts = |e: &Expr| {
            let mut volatile = false;
            e.walk(&mut |e| volatile |= matches!(e, Expr::Call(f, _) if f.volatile));
            volatile
        };
        !self.order.is_empty() && self.lock.is_none() && others.any(|(_, output)| acts(&output.expr))
    }

    /// Returns whether the query has a part that the executor of this crate cannot run with any access path.
    pub fn needs_runner(&self) -> bool {
        let general_source = matches!(
            self.source,
            Source::Query(_)
                | Source::Expand(_)
                | Source::Set(_)
                | Source::Target(_)
                | Source::Shared(_)
                | Source::Work(..)
        );
        let (mut queries, mut draws) = (false, false);
        self.walk(&mut |e| {
            queries |= matches!(e, Expr::Subquery(..));
            draws |= matches!(e, Expr::Call(f, _) if f.is_of_sequences());
        });
        // The executor can take values from sequences only while it reads no rows.
        let reads = !matches!(self.source, Source::Nothing) || self.aggregate.is_some();
        general_source
            || !self.distinct_on.is_empty()
            || self.distinct && self.outputs.iter().any(|output| output.t.may_have_blanks())
            || !self.windows.is_empty()
            || queries
            || draws && reads
            || self.acts_behind_order()
            || self.ties
            || self.aggregate.as_ref().is_some_and(Aggregate::needs_runner)
    }
}

impl Subquery {
    /// Returns the type of the subquery's result.
    pub fn result(&self) -> Typed {
        match self.kind {
            SubqueryKind::Scalar => self.select.outputs[0].t,
            SubqueryKind::List => {
                let element = self.select.outputs[0].t.ty;
                Typed::plain(element.array().unwrap_or(element))
            }
            SubqueryKind::Exists | SubqueryKind::Any(_) | SubqueryKind::All(_) => Typed::plain(Ty::Bool),
        }
    }
}
