//! Kinds of joins, and which rows each kind returns. This module also ends the steps of a join.
//!
//! Invariants
//! 1. A semi join and an anti join return rows of the left input only, each at most once.
//! 2. A step ends when the output is full, when an input waits, or after `STEP_ROWS` rows.

use crate::error::Result;
use crate::row::{Row, RowSource};
use crate::step::pause;

use super::RowPair;

/// The maximum number of rows that are read in one step.
const STEP_ROWS: u32 = 4096;

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

/// Receives the result of a join.
pub trait JoinOutput: Send {
    /// Receives a row. An error ends the join.
    fn joined(&mut self, row: Joined<'_>) -> Result<()>;

    /// Is called when the first phase has ended: both inputs were read, and were divided or sorted.
    fn second_phase(&mut self) {}

    /// Returns whether the output accepts no more rows in this step. After this, each loop of the join may
    /// still add one row.
    fn is_full(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Says that the inputs, or a pair of partitions, were divided into so many partitions of the temporary
    /// space.
    fn divided(&mut self, _partitions: usize) {}

    /// Returns whether the join has a condition. If it has one, two rows with equal keys are partners only if
    /// [`JoinOutput::passes`] returns true.
    fn has_condition(&self) -> bool {
        false
    }

    /// Returns whether two rows with equal keys pass the condition.
    fn passes(&mut self, _left: Row<'_>, _right: Row<'_>) -> Result<bool> {
        Ok(true)
    }

    /// Is called when the join has ended.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

impl<F: FnMut(Joined<'_>) -> Result<()> + Send> JoinOutput for F {
    fn joined(&mut self, row: Joined<'_>) -> Result<()> {
        self(row)
    }
}

/// Passes those rows to the output that the kind of join returns.
pub(super) struct Emitter<'a> {
    kind: JoinKind,
    build: Side,
    has_condition: bool,
    /// The number of rows that were read in this step.
    rows: u32,
    output: &'a mut dyn JoinOutput,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(kind: JoinKind, build: Side, output: &'a mut dyn JoinOutput) -> Emitter<'a> {
        let has_condition = output.has_condition();
        Emitter { kind, build, has_condition, rows: 0, output }
    }

    /// Counts a row of the step. Ends the step if it has read `STEP_ROWS` rows.
    #[inline]
    pub(super) async fn count_row(&mut self) {
        self.rows += 1;
        if self.rows >= STEP_ROWS {
            self.rows = 0;
            pause().await;
        }
    }

    /// Moves to the next row of an input. Returns false after the last row.
    #[inline]
    pub(super) async fn advance(&mut self, source: &mut dyn RowSource) -> Result<bool> {
        self.count_row().await;
        loop {
            if source.advance()? {
                return Ok(true);
            }
            if !source.waits() {
                return Ok(false);
            }
            self.rows = 0;
            pause().await;
        }
    }

    /// Ends the step if the output is full.
    #[inline]
    pub(super) async fn make_room(&mut self) -> Result<()> {
        while self.output.is_full()? {
            self.rows = 0;
            pause().await;
        }
        Ok(())
    }

    pub(super) fn divided(&mut self, partitions: usize) {
        self.output.divided(partitions);
    }

    pub(super) fn has_condition(&self) -> bool {
        self.has_condition
    }

    /// Returns whether two rows with equal keys are partners.
    #[inline]
    pub(super) fn are_partners(&mut self, pair: RowPair<'_>) -> Result<bool> {
        match (self.has_condition, self.build) {
            (false, _) => Ok(true),
            (true, Side::Left) => self.output.passes(pair.build, pair.probe),
            (true, Side::Right) => self.output.passes(pair.probe, pair.build),
        }
    }

    pub(super) fn end(&mut self) -> Result<()> {
        self.output.end()
    }

    pub(super) fn second_phase(&mut self) {
        self.output.second_phase();
    }

    /// Exchanges the roles of the inputs: the probe input becomes the build input.
    pub(super) fn swap(&mut self) {
        self.build = self.build.other();
    }

    pub(super) fn returns_pairs(&self) -> bool {
        self.kind.returns_pairs()
    }

    /// Returns whether the join returns build rows alone. `has_partner` says whether rows with a partner or
    /// rows without a partner are meant.
    pub(super) fn wants_build(&self, has_partner: bool) -> bool {
        self.kind.returns_alone(self.build, has_partner)
    }

    pub(super) fn wants_probe(&self, has_partner: bool) -> bool {
        self.kind.returns_alone(self.build.other(), has_partner)
    }

    /// Returns whether the join must know which rows of the build input have matched.
    pub(super) fn marks_build(&self) -> bool {
        self.wants_build(true) || self.wants_build(false)
    }

    pub(super) fn marks_probe(&self) -> bool {
        self.wants_probe(true) || self.wants_probe(false)
    }

    /// Returns a pair, if the kind of join returns pairs.
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

    /// Returns a build row alone, if the kind of join returns such rows.
    #[inline]
    pub(super) fn build_row(&mut self, row: Row<'_>, has_partner: bool) -> Result<()> {
        if self.wants_build(has_partner) { self.alone(self.build, row) } else { Ok(()) }
    }

    /// Returns a probe row alone, if the kind of join returns such rows.
    #[inline]
    pub(super) fn probe_row(&mut self, row: Row<'_>, has_partner: bool) -> Result<()> {
        if self.wants_probe(has_partner) { self.alone(self.build.other(), row) } else { Ok(()) }
    }
}
