//! The output of a join. This module passes rows to it, and ends the steps of a join.
//!
//! Invariants
//! 1. A step ends when the output is full, when an input waits, or after `STEP_ROWS` rows.

use std::sync::Arc;

use crate::error::{Result, SpillError};
use crate::memory::MemoryBudget;
use crate::row::{Row, RowSource};
use crate::step::pause;

use super::RowPair;
use super::candidates::{CandidatePairs, Candidates, Partners};
use super::kind::{JoinKind, Side};

/// The maximum number of rows that are read in one step.
const STEP_ROWS: u32 = 4096;

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

    /// Returns whether the output accepts no more rows in this step. After a result of true, each loop of the
    /// join may still add one row.
    fn is_full(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Is called when the inputs, or a pair of partitions, were divided into this number of partitions in the
    /// temporary space.
    fn divided(&mut self, _partitions: usize) {}

    /// Returns the condition of the join, if it has one beside the equality of keys. It is the same in all
    /// calls.
    fn condition(&mut self) -> Option<&mut dyn JoinCondition> {
        None
    }

    /// Is called when the join has ended.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A condition of a join beside the equality of keys.
pub trait JoinCondition {
    /// Decides which pairs of rows pass the condition. The join calls it before it returns these rows, and
    /// only while the output is not full.
    fn decide(&mut self, pairs: &CandidatePairs<'_>, partners: &mut Partners) -> Result<()>;
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
    /// The batch of candidates, if the join has a condition. A scan takes it, and returns it at its end.
    candidates: Option<Candidates>,
    /// The number of rows that were read in this step.
    rows: u32,
    output: &'a mut dyn JoinOutput,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(
        kind: JoinKind,
        build: Side,
        memory: &Arc<MemoryBudget>,
        output: &'a mut dyn JoinOutput,
    ) -> Result<Emitter<'a>> {
        let has_condition = output.condition().is_some();
        let candidates = if has_condition { Some(Candidates::new(memory)?) } else { None };
        Ok(Emitter { kind, build, has_condition, candidates, rows: 0, output })
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

    pub(super) fn build(&self) -> Side {
        self.build
    }

    pub(super) fn take_candidates(&mut self) -> Option<Candidates> {
        self.candidates.take()
    }

    pub(super) fn return_candidates(&mut self, candidates: Option<Candidates>) {
        self.candidates = candidates;
    }

    /// Asks the caller which candidates are partners.
    pub(super) fn decide(&mut self, pairs: &CandidatePairs<'_>, partners: &mut Partners) -> Result<()> {
        match self.output.condition() {
            Some(condition) => condition.decide(pairs, partners),
            None => Err(SpillError::Defect("a condition was lost")),
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
