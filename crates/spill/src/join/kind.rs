//! Kinds of joins, and which rows each kind returns.
//!
//! Invariants
//! 1. A semi join and an anti join return rows of the left input only, each at most once.

/// An input of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The left input.
    Left,
    /// The right input.
    Right,
}

impl Side {
    /// Returns the other side.
    pub fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

/// Which rows a join returns. Two rows are partners if their keys are equal and they pass the condition of
/// the join, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs of partners.
    Inner,
    /// Pairs of partners, and left rows without a partner.
    Left,
    /// Pairs of partners, and right rows without a partner.
    Right,
    /// Pairs of partners, and rows of both sides without a partner.
    Full,
    /// Left rows with a partner.
    Semi,
    /// Left rows without a partner.
    Anti,
}

impl JoinKind {
    /// All kinds.
    pub const ALL: [JoinKind; 6] =
        [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full, JoinKind::Semi, JoinKind::Anti];

    pub(super) fn returns_pairs(self) -> bool {
        !matches!(self, JoinKind::Semi | JoinKind::Anti)
    }

    pub(super) fn returns_alone(self, side: Side, has_partner: bool) -> bool {
        matches!(
            (self, side, has_partner),
            (JoinKind::Semi, Side::Left, true)
                | (JoinKind::Anti | JoinKind::Left | JoinKind::Full, Side::Left, false)
                | (JoinKind::Right | JoinKind::Full, Side::Right, false)
        )
    }
}
