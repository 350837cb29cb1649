//! Kinds of joins, and which rows each kind returns.
//!
//! Invariants
//! 1. A semi join and an anti join return rows of the left input only, each at most once.

use crate::error::Result;
use crate::row::Row;

use super::RowPair;

/// An input of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The left input.
    Left,
    /// The right input.
    Right,
}

impl Side {
    /// The other side.
    pub fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

/// Which rows a join returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs of rows with equal keys.
    Inner,
    /// Pairs, and left rows without a partner.
    Left,
    /// Pairs, and right rows without a partner.
    Right,
    /// Pairs, and rows of both sides without a partner.
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

    fn returns_pairs(self) -> bool {
        !matches!(self, JoinKind::Semi | JoinKind::Anti)
    }

    fn returns_alone(self, side: Side, has_partner: bool) -> bool {
        matches!(
            (self, side, has_partner),
            (JoinKind::Semi, Side::Left, true)
                | (JoinKind::Anti | JoinKind::Left | JoinKind::Full, Side::Left, false)
                | (JoinKind::Right | JoinKind::Full, Side::Right, false)
        )
    }
}

/// A row of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined<'a> {
    /// The left row.
    pub left: Option<Row<'a>>,
    /// The right row.
    pub right: Option<Row<'a>>,
}

/// Takes the result of a join.
pub trait JoinOutput {
    /// Takes a row. An error ends the join.
    fn joined(&mut self, row: Joined<'_>) -> Result<()>;

    /// The first phase has ended: both inputs were read and divided or sorted.
    fn second_phase(&mut self) {}
}

impl<F: FnMut(Joined<'_>) -> Result<()>> JoinOutput for F {
    fn joined(&mut self, row: Joined<'_>) -> Result<()> {
        self(row)
    }
}

/// Hands rows to the output, as the kind of join asks.
pub(super) struct Emitter<'a> {
    kind: JoinKind,
    build: Side,
    output: &'a mut dyn JoinOutput,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(kind: JoinKind, build: Side, output: &'a mut dyn JoinOutput) -> Emitter<'a> {
        Emitter { kind, build, output }
    }

    pub(super) fn second_phase(&mut self) {
        self.output.second_phase();
    }

    /// Lets the inputs change their parts: what was the probe input builds.
    pub(super) fn swap(&mut self) {
        self.build = self.build.other();
    }

    pub(super) fn returns_pairs(&self) -> bool {
        self.kind.returns_pairs()
    }

    /// Whether rows of the build input are returned alone if they have a partner, or if they have none.
    pub(super) fn wants_build(&self, has_partner: bool) -> bool {
        self.kind.returns_alone(self.build, has_partner)
    }

    pub(super) fn wants_probe(&self, has_partner: bool) -> bool {
        self.kind.returns_alone(self.build.other(), has_partner)
    }

    /// Whether it matters which rows of the build input have matched.
    pub(super) fn marks_build(&self) -> bool {
        self.wants_build(true) || self.wants_build(false)
    }

    pub(super) fn marks_probe(&self) -> bool {
        self.wants_probe(true) || self.wants_probe(false)
    }

    /// Returns a pair, if the kind has pairs.
    #[inline]
    pub(super) fn pair(&mut self, pair: RowPair<'_>) -> Result<()> {
        if !self.returns_pairs() {
            return Ok(());
        }
        let (build, probe) = (Some(pair.build), Some(pair.probe));
        self.output.joined(match self.build {
            Side::Left => Joined { left: build, right: probe },
            Side::Right => Joined { left: probe, right: build },
        })
    }

    fn alone(&mut self, side: Side, row: Row<'_>) -> Result<()> {
        self.output.joined(match side {
            Side::Left => Joined { left: Some(row), right: None },
            Side::Right => Joined { left: None, right: Some(row) },
        })
    }

    /// Returns a build row alone, if the kind asks for it.
    #[inline]
    pub(super) fn build_row(&mut self, row: Row<'_>, has_partner: bool) -> Result<()> {
        if self.wants_build(has_partner) { self.alone(self.build, row) } else { Ok(()) }
    }

    /// Returns a probe row alone, if the kind asks for it.
    #[inline]
    pub(super) fn probe_row(&mut self, row: Row<'_>, has_partner: bool) -> Result<()> {
        if self.wants_probe(has_partner) { self.alone(self.build.other(), row) } else { Ok(()) }
    }
}
