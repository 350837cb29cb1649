//! Which casts exist, where each is allowed, and the common type of two types.
//!
//! This module does not know how a cast is computed (`eval::cast`).

use super::{Reg, Ty};

/// The places where a cast may be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CastLevel {
    /// The cast may be in any expression.
    Implicit,
    /// The cast may be applied when a value is stored into a column.
    Assignment,
    /// The cast is applied only where the statement writes it.
    Explicit,
}

/// Returns the level of the cast from one type to another, or `None` if there is no such cast.
pub fn cast_level(from: Ty, to: Ty) -> Option<CastLevel> {
    use CastLevel::{Assignment, Explicit, Implicit};
    if from == to || from == Ty::Unknown {
        return Some(Implicit);
    }
    if let (Some(a), Some(b)) = (from.number_rank(), to.number_rank()) {
        return Some(if a < b { Implicit } else { Assignment });
    }
    Some(match (from, to) {
        (a, b) if a.is_text() && b.is_text() => text_cast_level(b),
        (a, b) if b.is_oid() && (a.is_integer() || a.is_oid()) => Implicit,
        (a, Ty::Int4 | Ty::Int8) if a.is_oid() => Assignment,
        (Ty::Text | Ty::Varchar, Ty::Reg(Reg::Class)) => Implicit,
        (Ty::Int2Vector, Ty::Array(Ty::Int2)) | (Ty::OidVector, Ty::Array(Ty::Oid)) => Implicit,
        (Ty::Array(a), Ty::Array(b)) => return cast_level(*a, *b),
        (Ty::Time, Ty::Interval) => Implicit,
        (Ty::Interval, Ty::Time) | (Ty::Timestamp | Ty::TimestampTz, Ty::Time) => Assignment,
        (Ty::Date, Ty::Timestamp | Ty::TimestampTz) | (Ty::Timestamp, Ty::TimestampTz) => Implicit,
        (Ty::Timestamp | Ty::TimestampTz, Ty::Date) | (Ty::TimestampTz, Ty::Timestamp) => Assignment,
        (Ty::Int4, Ty::Bool) | (Ty::Bool, Ty::Int4) => Explicit,
        (Ty::Void, _) | (_, Ty::Void | Ty::Unknown) => return None,
        (_, b) if b.is_text() => Assignment,
        (a, _) if a.is_text() => Explicit,
        _ => return None,
    })
}

fn text_cast_level(to: Ty) -> CastLevel {
    match to {
        Ty::Text | Ty::Varchar | Ty::Char | Ty::Name => CastLevel::Implicit,
        Ty::Char1 => CastLevel::Assignment,
        _ => CastLevel::Explicit,
    }
}

/// Returns the common type of two types for CASE, COALESCE, VALUES and similar constructs. It is the first
/// type, unless only the first one can be cast to the second one implicitly (PostgreSQL manual, 10.5).
pub fn common(a: Ty, b: Ty) -> Option<Ty> {
    match (a, b) {
        (Ty::Unknown, t) | (t, Ty::Unknown) => Some(t),
        (a, b) if a == b => Some(a),
        (a, b) if !a.same_category(b) && !matches!((a, b), (Ty::Array(_), Ty::Array(_))) => None,
        (a, b) => {
            let implicit = |from, to| cast_level(from, to) == Some(CastLevel::Implicit);
            match (implicit(a, b), implicit(b, a)) {
                (true, false) if a != b.preferred() => Some(b),
                (_, back) => back.then_some(a),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_types_climb_the_tower() {
        assert_eq!(common(Ty::Int2, Ty::Int8), Some(Ty::Int8));
        assert_eq!(common(Ty::Float8, Ty::Numeric), Some(Ty::Float8));
        assert_eq!(common(Ty::Date, Ty::TimestampTz), Some(Ty::TimestampTz));
        assert_eq!(common(Ty::Varchar, Ty::Text), Some(Ty::Varchar));
        assert_eq!(common(Ty::Varchar, Ty::Char), Some(Ty::Varchar));
        assert_eq!(common(Ty::Char, Ty::Varchar), Some(Ty::Char));
        assert_eq!(common(Ty::Bool, Ty::Int4), None);
        assert_eq!(common(Ty::Array(&Ty::Int4), Ty::Array(&Ty::Int8)), Some(Ty::Array(&Ty::Int8)));
        assert_eq!(common(Ty::Array(&Ty::Int4), Ty::Array(&Ty::Text)), None);
        assert_eq!(common(Ty::Oid, Ty::Int4), Some(Ty::Oid));
        assert_eq!(common(Ty::Numeric, Ty::Float4), Some(Ty::Float4));
    }
}
