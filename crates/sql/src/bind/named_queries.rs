//! The list of queries that WITH clauses have named.
//!
//! Invariants
//! 1. A name means the newest query of this name in the list.
//!
//! This module does not know how the named queries are bound (`with`).

use std::rc::Rc;
use std::sync::Arc;

use crate::ast;
use crate::plan::{Shared, Source};
use crate::sink::Origin;
use crate::ty::Typed;

/// The queries that WITH has named and that the bound part can use.
#[derive(Debug, Default)]
pub(super) struct NamedQueries {
    /// The queries, innermost last.
    pub(super) queries: Vec<NamedQuery>,
    /// The queries among them whose bodies are being bound.
    pub(super) recursing: Vec<usize>,
    /// The number of recursive queries in the statement so far.
    pub(super) recursions: usize,
}

/// Names and types of columns.
pub(super) type Columns = Vec<(String, Typed)>;

/// Rows of a named query.
pub(super) struct NamedRows {
    /// The source of the rows.
    pub(super) source: Source,
    /// Names and types of their columns.
    pub(super) columns: Columns,
    /// The origins of the columns' values.
    pub(super) origins: Vec<Option<Origin>>,
}

/// A named query.
#[derive(Debug, Clone)]
pub(super) struct NamedQuery {
    /// The name.
    pub(super) name: String,
    /// Names for its columns, from the first on.
    pub(super) columns: Vec<String>,
    /// The query itself.
    pub(super) query: Rc<ast::Query>,
    /// The number of queries around its WITH.
    pub(super) levels: usize,
    /// Whether its name means the query itself in its body (WITH RECURSIVE).
    pub(super) open: bool,
    /// The plan and the columns that all uses share.
    pub(super) shared: Option<(Arc<Shared>, Columns)>,
    /// The origins of its columns' values.
    pub(super) origins: Vec<Option<Origin>>,
    /// The work table, while the second part of the query is bound.
    pub(super) work: Option<WorkTable>,
}

/// The rows of a recursive query as its second part sees them.
#[derive(Debug, Clone)]
pub(super) struct WorkTable {
    /// The number of the recursive query.
    pub(super) id: usize,
    /// Names and types of its columns.
    pub(super) columns: Columns,
    /// The number of uses of its name.
    pub(super) uses: usize,
    /// The number of subqueries in expressions around the second part.
    pub(super) subqueries: usize,
}
