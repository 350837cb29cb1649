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

/// The queries that WITH has named, as far as they are in reach.
#[derive(Debug, Default)]
pub(super) struct NamedQueries {
    /// The queries, innermost last.
    pub(super) queries: Vec<NamedQuery>,
    /// Those of them whose bodies are being bound.
    pub(super) recursing: Vec<usize>,
    /// How many recursive queries there are so far in the statement.
    pub(super) recursions: usize,
}

/// Names and types of columns.
pub(super) type Columns = Vec<(String, Typed)>;

/// Rows of a named query.
pub(super) struct NamedRows {
    /// Where they come from.
    pub(super) source: Source,
    /// Names and types of their columns.
    pub(super) columns: Columns,
    /// What the columns show.
    pub(super) origins: Vec<Option<Origin>>,
}

/// A named query.
#[derive(Debug, Clone)]
pub(super) struct NamedQuery {
    /// The name.
    pub(super) name: String,
    /// Names for its columns, from the first on.
    pub(super) columns: Vec<String>,
    /// What it is.
    pub(super) query: Rc<ast::Query>,
    /// How many queries were around its WITH.
    pub(super) levels: usize,
    /// WITH RECURSIVE: its name means itself in its body.
    pub(super) open: bool,
    /// What all uses share.
    pub(super) shared: Option<(Arc<Shared>, Columns)>,
    /// What its columns show.
    pub(super) origins: Vec<Option<Origin>>,
    /// Its second part is being bound.
    pub(super) work: Option<WorkTable>,
}

/// The rows of a recursive query as its second part sees them.
#[derive(Debug, Clone)]
pub(super) struct WorkTable {
    /// The number of the recursive query.
    pub(super) id: usize,
    /// Names and types of its columns.
    pub(super) columns: Columns,
    /// How often they were named.
    pub(super) uses: usize,
    /// How many subqueries in expressions were around the second part.
    pub(super) subqueries: usize,
}
