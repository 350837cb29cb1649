//! varve-engine: rows, keys, B+trees, versions, locks, the catalog and the embedded `Database`.
//!
//! Invariants
//! 1. Every change of a page goes through a mini-transaction of the pager.
//! 2. Keys are byte strings; what they mean is decided above the tree.
//!
//! Does not know: SQL text, sockets.

pub mod key;
pub mod node;
pub mod numeric;
pub mod overflow;
pub mod row;
pub mod tree;
pub mod types;

pub use numeric::{Numeric, NumericError, NumericRef};
pub use row::{RowError, RowImage, RowRef, RowSchema};
pub use types::{ColumnType, Datum, Value};
