//! Computes an aggregate from the values of one group.
//!
//! This module knows nothing about the states of groups.

use varve_engine::Value;
use varve_sql::general::AggKind;

/// What is done with the values of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// An aggregate function.
    Call {
        /// Which.
        kind: AggKind,
        /// DISTINCT
        distinct: bool,
    },
    /// The first one.
    First,
    /// The one whose key, the second argument, is the least; of equal keys the first.
    Least,
}

impl std::hash::Hash for Fold {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
    }
}

impl Fold {
    /// A variance, a regression or the like, which adds up powers of its values.
    pub fn is_of_moments(self) -> bool {
        matches!(self, Fold::Call { kind: AggKind::Moment(_), .. })
    }

    /// Whether all values are kept, with delimiter and sort key.
    pub fn collects(self) -> bool {
        matches!(self, Fold::Call { kind, .. } if kind.collects())
    }
}

/// Bytes of a value beside its own.
pub fn bytes_of(value: &Value) -> usize {
    match value {
        Value::Text(t) => t.len(),
        Value::Bytea(b) => b.len(),
        _ => 0,
    }
}
