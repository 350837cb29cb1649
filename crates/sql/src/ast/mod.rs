//! The syntax tree of statements, before names are resolved.
//!
//! Invariants
//! 1. The tree has only variants and fields that PostgreSQL has and that `parse` creates.
//! 2. Equality of trees ignores positions in the text.
//!
//! This module does not know text. `parse` makes the tree, and `bind` resolves its names and types.

mod change;
mod definition;
mod expression;
mod names;
mod operator;
mod place;
mod query;

pub use change::*;
pub use definition::*;
pub use expression::*;
pub use names::*;
pub use operator::*;
pub use place::*;
pub use query::*;

/// AS OF at the end of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum AsOfClause {
    /// AS OF with a string.
    Text(AsOf),
    /// AS OF with another expression.
    Expression {
        /// Whether LSN is written, not TIMESTAMP.
        is_lsn: bool,
        /// The expression.
        expr: Expr,
    },
}

/// AS OF with a string, as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsOf {
    /// Whether LSN is written, not TIMESTAMP.
    pub is_lsn: bool,
    /// The text of the string.
    pub text: String,
}

/// A query or a change of rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// SELECT, VALUES or a set operation
    Query(Query),
    /// INSERT
    Insert(Insert),
    /// UPDATE
    Update(Update),
    /// DELETE
    Delete(Delete),
}
