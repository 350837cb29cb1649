//! Computes an aggregate from the values of one group.
//!
//! This module does not know the states of groups.

use varve_engine::Value;
use varve_sql::general::AggKind;

/// The way in which the values of a group are combined into one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// An aggregate function.
    Call {
        /// The function.
        kind: AggKind,
        /// DISTINCT
        distinct: bool,
    },
    /// The first value.
    First,
    /// The value with the least key. The key is the second argument. Of equal keys, the first one counts.
    Least,
}

impl std::hash::Hash for Fold {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
    }
}

impl Fold {
    /// Returns whether it is a variance, a regression or a similar function, which sums up powers of its
    /// values.
    pub fn is_of_moments(self) -> bool {
        matches!(self, Fold::Call { kind: AggKind::Moment(_), .. })
    }

    /// Returns whether the aggregate has DISTINCT, and equal values would change its result.
    pub fn needs_distinct(self) -> bool {
        let Fold::Call { kind, distinct: true } = self else { return false };
        !matches!(
            kind,
            AggKind::Min
                | AggKind::Max
                | AggKind::BoolAnd
                | AggKind::BoolOr
                | AggKind::BitAnd
                | AggKind::BitOr
        ) && !kind.is_of_pairs()
    }

    /// Returns whether the state of a group has all values of the group.
    pub fn keeps_values(self) -> bool {
        self.collects() || self.needs_distinct()
    }

    /// Returns whether it is count(DISTINCT), which needs only the keys of its values.
    pub fn counts_distinct(self) -> bool {
        self == Fold::Call { kind: AggKind::Count, distinct: true }
    }

    /// Returns whether all values are kept, each with a sort key and a second value such as a delimiter.
    pub fn collects(self) -> bool {
        matches!(self, Fold::Call { kind, .. } if kind.collects())
    }
}

/// Returns the bytes of a value that are stored outside the `Value` itself.
pub fn bytes_of(value: &Value) -> usize {
    match value {
        Value::Text(t) => t.len(),
        Value::Bytea(b) => b.len(),
        _ => 0,
    }
}
