//! The syntax tree: what a statement says, before its names mean anything.
//!
//! Definitions have types of their own. Those of queries, of changes of rows and of expressions are still `sqlparser`'s.
//!
//! Does not know: text. `parse` makes the tree, `bind` gives it a meaning.

mod definition;

pub use definition::*;
pub use sqlparser::ast::{DataType, Expr, Ident, ObjectName, Query};
