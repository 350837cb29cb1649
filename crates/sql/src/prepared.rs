//! A prepared statement, which has been parsed and typed, and the portal that runs it.
//!
//! Invariants
//! 1. Parameter types and result columns never change after `prepare`. If the catalog has changed, a new plan
//!    is made. If the new plan has other columns, the statement fails with 0A000, as in PostgreSQL.
//! 2. Sessions share a `Prepared`, so it does not change. The only exception is the link to its successor,
//!    which is set once.
//! 3. The state of one execution is in the `Portal`.
//!
//! This module does not know names of statements (`session`) or transactions.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use varve_engine::{ColumnType, Datum, Value};

use crate::ast::{AsOf, Definition};
use crate::error::Result;
use crate::eval::Expr;
use crate::kept::KeptRows;
use crate::oid::{self, Oid};
use crate::parse;
use crate::plan::Plan;
use crate::rights::Need;
use crate::sink::Column;
use crate::system::HeldCursor;
use crate::text;
use crate::ty::Ty;
use crate::utility::Utility;

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// The kind and the content of a statement.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are plans, and one hop less leads to them")]
pub(crate) enum Body {
    /// An empty statement.
    Empty,
    /// A statement that runs on rows.
    Plan(Plan),
    /// A statement that changes the catalog.
    Definition(Box<Definition>),
    /// A statement for the session.
    Utility(Utility),
}

/// A prepared statement.
#[derive(Debug)]
pub struct Prepared {
    /// A number that is unique in this process.
    pub(crate) id: u64,
    pub(crate) sql: Box<str>,
    /// Parameter types as declared by the client.
    pub(crate) declared: Box<[Oid]>,
    pub(crate) param_types: Box<[Ty]>,
    pub(crate) param_oids: Box<[Oid]>,
    pub(crate) columns: Option<Box<[Column]>>,
    pub(crate) body: Body,
    /// Whether a parameter is char(n), whose trailing blanks must be removed.
    pub(crate) trims: bool,
    /// Whether it reads the catalog when it runs.
    pub(crate) reads_world: bool,
    /// Whether a parameter is an interval with fields, which affect how a literal is read.
    pub(crate) has_interval_fields: bool,
    /// Number of the search path for which it was planned.
    pub(crate) path: u32,
    /// Version of the catalog for which it was planned.
    pub(crate) catalog_version: u64,
    /// Whether it is valid only for this version. It reads views, whose texts no lock protects, or sequences
    /// by their OIDs.
    pub(crate) is_of_version: bool,
    /// The relations that it reads in FROM, and the roles that need the rights.
    pub(crate) needs: Box<[Need]>,
    /// Queries that run before it. Their results are parameters after those of the client.
    pub(crate) before: Box<[Before]>,
    /// The moment that it reads, if that is not the present.
    pub(crate) as_of: Option<Box<MomentOf>>,
    /// The same statement, planned for a later catalog.
    pub(crate) successor: OnceLock<Arc<Prepared>>,
}

/// The moment that a query with AS OF reads.
#[derive(Debug)]
pub(crate) enum MomentOf {
    /// The moment as it is written.
    Text(AsOf),
    /// The value of an expression that reads no row. It is a `timestamptz`, or the text of an LSN.
    Value(Expr),
}

/// A query that runs before a statement, and the number (from 0) of the parameter for its result.
#[derive(Debug)]
pub(crate) struct Before {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) place: usize,
    /// The type of the elements, if the result is an array of all rows.
    pub(crate) list_of: Option<Ty>,
}

impl Prepared {
    pub(crate) fn new(
        sql: &str,
        declared: &[Oid],
        param_types: Vec<Ty>,
        columns: Option<Vec<Column>>,
        body: Body,
        catalog_version: u64,
    ) -> Prepared {
        Prepared {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            sql: sql.into(),
            declared: declared.into(),
            param_oids: param_types.iter().map(|ty| ty.oid()).collect(),
            trims: param_types.contains(&Ty::Char),
            reads_world: false,
            has_interval_fields: false,
            param_types: param_types.into(),
            columns: columns.map(Into::into),
            body,
            path: 0,
            catalog_version,
            is_of_version: false,
            needs: Box::default(),
            before: Box::default(),
            as_of: None,
            successor: OnceLock::new(),
        }
    }

    /// Returns the parameter types for ParameterDescription, `$1` first.
    pub fn param_types(&self) -> &[Oid] {
        &self.param_oids
    }

    /// Returns the column type as which the parameter `index` (from 0) is decoded. It is text for types
    /// without a column type, including arrays.
    pub fn param_column_type(&self, index: usize) -> ColumnType {
        self.param_oids.get(index).and_then(|o| oid::column_type(*o)).unwrap_or(ColumnType::Text)
    }

    /// Returns the result columns, or `None` (NoData) if the statement returns no rows.
    pub fn columns(&self) -> Option<&[Column]> {
        self.columns.as_deref()
    }

    /// Returns whether this is a SELECT, VALUES or TABLE, which changes no rows.
    pub fn is_query(&self) -> bool {
        matches!(self.body, Body::Plan(Plan::Select(_)))
    }

    /// Returns the text that was prepared.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Returns whether this is the statement for this text, these declared types and this path.
    pub(crate) fn is_for(&self, sql: &str, declared: &[Oid], path: u32) -> bool {
        self.path == path && *self.sql == *sql && *self.declared == *declared
    }

    /// Reads a parameter in text form as a value of its type.
    pub(crate) fn parse_param(
        &self,
        index: usize,
        text: &str,
        reading: &crate::time::Reading<'_>,
    ) -> Result<Value> {
        text::parse_as(text, self.param_oids.get(index).copied().unwrap_or(oid::TEXT), reading)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let body = std::mem::replace(&mut self.body, Body::Empty);
        if matches!(body, Body::Definition(_) | Body::Utility(_)) {
            parse::on_deep_stack(&self.sql, || drop(body));
        }
        // There may be a successor for each DDL statement since this one was prepared, so they are dropped in
        // a loop.
        let mut next = self.successor.take();
        while let Some(mut alone) = next.and_then(Arc::into_inner) {
            next = alone.successor.take();
        }
    }
}

/// Removes trailing blanks of char(n) parameters.
pub(crate) fn trimmed<'a>(types: &[Ty], params: &[Datum<'a>]) -> Vec<Datum<'a>> {
    let trim = |(i, d): (usize, &Datum<'a>)| match (types.get(i % types.len().max(1)), d) {
        (Some(Ty::Char), Datum::Text(t)) => Datum::Text(t.trim_end_matches(' ')),
        _ => *d,
    };
    params.iter().enumerate().map(trim).collect()
}

/// The number of savepoints that were open when a portal was made. It is `ENDED` after these were rolled
/// back.
#[derive(Debug)]
pub(crate) struct PortalLife(AtomicUsize);

const ENDED: usize = usize::MAX;

impl PortalLife {
    /// Returns the state of a portal that is made after this number of savepoints.
    pub(crate) fn new(savepoints: usize) -> PortalLife {
        PortalLife(AtomicUsize::new(savepoints))
    }

    /// Returns whether its portal may run.
    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) != ENDED
    }

    /// Records that the savepoint is released. The portal then belongs to the savepoint before it.
    pub(crate) fn adopt(&self, savepoint: usize) {
        self.0.fetch_min(savepoint, Ordering::Relaxed);
    }

    /// Ends the portal if it was made after this savepoint, because everything after it is rolled back.
    pub(crate) fn end_behind(&self, savepoint: usize) {
        if self.0.load(Ordering::Relaxed) > savepoint {
            self.0.store(ENDED, Ordering::Relaxed);
        }
    }
}

/// The state of one portal between Execute messages. A new portal starts at the beginning.
#[derive(Debug, Default)]
pub struct Portal {
    pub(crate) pending: Option<PendingRows>,
    /// Whether all rows were returned.
    pub(crate) finished: bool,
    /// The state of the portal, if it was made after a savepoint.
    pub(crate) life: Option<Arc<PortalLife>>,
    /// The entry in `pg_cursors`, if it has a name.
    pub(crate) shown: Option<Arc<HeldCursor>>,
}

impl Portal {
    /// Returns whether no older savepoint has been rolled back since it was made.
    pub fn is_open(&self) -> bool {
        self.life.as_ref().is_none_or(|life| life.is_open())
    }
}

/// The rows of a suspended portal. All are computed at its first Execute, and returned in slices.
#[derive(Debug)]
pub(crate) struct PendingRows {
    pub(crate) rows: KeptRows,
    /// The number of the next row.
    pub(crate) next: u64,
}
