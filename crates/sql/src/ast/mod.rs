//! The syntax tree: what a statement says, before its names mean anything.
//!
//! Invariants
//! 1. There is a variant or a field only for what PostgreSQL has and `parse` makes.
//! 2. Equal trees say the same, wherever they stand in a text: equality does not look at places.
//!
//! Does not know: text. `parse` makes the tree, `bind` gives it a meaning.

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
