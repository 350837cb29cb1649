//! The results of binding: an expression with its type, and a query with its columns.

use crate::eval::Expr;
use crate::plan::{Output, Select};
use crate::sink::{Column, Origin};
use crate::ty::Typed;

/// A bound expression with its type.
#[derive(Debug, Clone)]
pub struct Bound {
    /// The expression.
    pub expr: Expr,
    /// Its type.
    pub t: Typed,
    /// The position of its beginning in the text.
    pub at: Option<u32>,
}

/// A bound query and the columns it shows.
#[derive(Debug)]
pub struct BoundQuery {
    /// The plan.
    pub select: Select,
    /// Names and types of the columns for the client.
    pub columns: Vec<Column>,
}

impl BoundQuery {
    /// Returns the origins of its columns.
    pub(super) fn origins(&self) -> Vec<Option<Origin>> {
        self.columns.iter().map(|column| column.origin).collect()
    }
}

/// Outputs of RETURNING and the columns they show.
pub(super) type Returned = (Box<[Output]>, Vec<Column>);
