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

/// SELECT.
#[derive(Debug)]
pub struct Select {
    /// Rows.
    pub source: Source,
    /// Rows to keep.
    pub filter: Option<Expr>,
    /// Grouping.
    pub aggregate: Option<Aggregate>,
    /// Window calls over the input row, or over the group's slots; what they give stands behind these.
    pub windows: Box<[WinCall]>,
    /// Computed columns; those past `visible` serve ORDER BY only.
    pub outputs: Box<[Output]>,
    /// How many outputs the client sees.
    pub visible: usize,
    /// DISTINCT
    pub distinct: bool,
    /// DISTINCT ON: of rows that are equal in these outputs, the first in the order of ORDER BY stays.
    pub distinct_on: Box<[usize]>,
    /// ORDER BY, empty if the access path delivers the order.
    pub order: Box<[SortKey]>,
    /// LIMIT
    pub limit: Option<Expr>,
    /// OFFSET
    pub offset: Option<Expr>,
    /// WITH TIES: rows that are equal to the last one in ORDER BY are taken, too.
    pub ties: bool,
    /// FOR UPDATE, FOR SHARE
    pub lock: Option<RowLock>,
    /// Only a runner of general queries runs it; its conditions and its order are as written.
    pub general: bool,
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
    /// GROUPING SETS: the keys of each set; those that it lacks are NULL in its groups, and behind the
    /// aggregates stands the number of the group's set. None: all keys are one set.
    pub sets: Box<[Box<[usize]>]>,
    /// HAVING, over the slots.
    pub having: Option<Box<Expr>>,
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

impl LockWait {
    /// The same for partitions of memory-oriented engines, which are locked as a whole.
    pub fn when_held(self) -> WhenHeld {
        match self {
            LockWait::Wait => WhenHeld::Wait,
            LockWait::Fail => WhenHeld::Fail,
            LockWait::Skip => WhenHeld::Skip,
        }
    }
}

/// How rows that are read get locked.
#[derive(Debug, Clone)]
pub struct RowLock {
    /// Behaviour towards rows that are held by others.
    pub wait: LockWait,
    /// Whom it keeps out.
    pub strength: LockStrength,
    /// The whole condition, for the version that is locked.
    pub recheck: Option<Expr>,
    /// The tables whose rows are locked beside a general query.
    pub beside: Box<[LockedTable]>,
    /// How many outputs the client sees of that query; behind them are columns of the tables.
    pub shown: usize,
    /// LIMIT and OFFSET, if they count rows that were locked and not rows that were found.
    pub limit: (Option<Expr>, Option<Expr>),
}

/// A table whose rows are locked after a general query has found them.
#[derive(Debug, Clone)]
pub struct LockedTable {
    /// The table.
    pub table: Arc<TableDef>,
    /// The output that its first column is; the others follow.
    pub first: usize,
    /// Whom the lock keeps out.
    pub strength: LockStrength,
}

/// A query in an expression. Values of the outer query are its `Expr::Outer` values.
#[derive(Debug)]
pub struct Subquery {
    /// What becomes of its rows.
    pub kind: SubqueryKind,
    /// The query.
    pub select: Select,
    /// Types of what it is given.
    pub given: Box<[Typed]>,
}

/// What a subquery in an expression is to it.
#[derive(Debug)]
pub enum SubqueryKind {
    /// EXISTS: whether there is a row.
    Exists,
    /// The only value of its only row; NULL without a row, 21000 if there are more.
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
    /// An output of this type.
    pub fn new(expr: Expr, t: Typed) -> Output {
        let pad = if t.ty == Ty::Char { t.length() } else { None };
        Output { expr, t, pad }
    }

    /// The same for another table, in which a value of char(n) is kept without blanks.
    #[must_use]
    pub fn unpadded(self) -> Output {
        Output { pad: None, ..self }
    }

    /// The column that a client sees.
    pub fn column(&self, name: &str) -> Column {
        Column { name: name.into(), type_oid: self.t.ty.oid(), typmod: self.t.typmod, origin: None }
    }
}

impl Select {
    /// One row of no columns, for a runner of general queries.
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

    /// The table read from, if the executor of this crate reads one.
    pub fn table(&self) -> Option<&Arc<TableDef>> {
        match &self.source {
            Source::Table(t) => Some(&t.table),
            _ => None,
        }
    }

    /// Whether only a runner of general queries runs it.
    pub fn is_general(&self) -> bool {
        self.general
    }

    /// Whether outputs have effects (they take advisory locks, say), which are to come about for the rows
    /// that are returned alone: behind the order and LIMIT.
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

    /// Whether it has a part that the executor of this crate cannot run, with any access path.
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
        // The executor draws from sequences only while it reads nothing.
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
    /// The type of its result.
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
