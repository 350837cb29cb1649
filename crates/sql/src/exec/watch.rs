//! Measures a running plan for EXPLAIN ANALYZE: rows, loops, time and pages of each step.
//!
//! The executor's code has a type parameter, a [`Watch`]. With [`Unwatched`] the compiler removes all
//! measurements. With a [`Meter`] each step of the plan records what it does.
//!
//! Invariants
//! 1. A plan without EXPLAIN ANALYZE does no work for measurements.
//! 2. At each moment one step is active, and time and pages are counted for this step only. The total of a
//!    step is computed later, as the sum of the step and of all steps below it.
//!
//! This module does not know what the steps are called (`crate::explain`).

use std::cell::Cell;
use std::time::{Duration, Instant};

use varve_engine::{PageCounts, PageMeter};

use crate::loops::TABLES_MAX;

/// A step of a plan. A plan has each step at most once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// LIMIT
    Limit,
    /// Locks rows.
    Lock,
    /// DISTINCT
    Unique,
    /// Sorts.
    Sort,
    /// Groups.
    Group,
    /// The source of rows: the table, or the loops as a whole.
    Source,
    /// Writes rows.
    Change,
    /// One table of nested loops.
    Loop(usize),
}

impl At {
    const COUNT: usize = 7 + TABLES_MAX;

    fn index(self) -> usize {
        match self {
            At::Limit => 0,
            At::Lock => 1,
            At::Unique => 2,
            At::Sort => 3,
            At::Group => 4,
            At::Source => 5,
            At::Change => 6,
            At::Loop(n) => 7 + n.min(TABLES_MAX - 1),
        }
    }
}

/// Receives the events of the executor.
pub trait Watch: Copy {
    /// From now on the executor works for this step.
    fn enter(self, _: At) {}
    /// The step begins (perhaps again). From now on the executor works for it.
    fn begin(self, _: At) {}
    /// The step has returned this number of rows.
    fn gave(self, _: At, _: u64) {}
    /// A condition of the step has rejected a row.
    fn left_out(self, _: At) {}
}

/// Records nothing.
#[derive(Clone, Copy)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// The measurements of one step, without the steps below it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Done {
    /// The number of times that the step began.
    pub loops: u64,
    /// The rows that the step has returned, in all loops together.
    pub rows: u64,
    /// The rows that its condition has rejected.
    pub left_out: u64,
    /// The time from the beginning of a loop to its first row, summed over all loops.
    pub startup: Duration,
    /// The time of the step itself.
    pub time: Duration,
    /// The pages that the step itself has used.
    pub pages: PageCounts,
}

/// Records what each step of one run does.
#[derive(Debug)]
pub struct Meter {
    timing: bool,
    steps: [Cell<Done>; At::COUNT],
    /// For each step that has returned no row yet in its current loop, the time when this loop began.
    begun: [Cell<Option<Instant>>; At::COUNT],
    /// The active step.
    current: Cell<usize>,
    /// The time when the active step became active, and the page counts at this time.
    since: Cell<Option<(Option<Instant>, PageCounts)>>,
}

impl Meter {
    /// Returns a meter. `timing` says whether it measures time.
    pub fn new(timing: bool) -> Meter {
        Meter {
            timing,
            steps: Default::default(),
            begun: Default::default(),
            current: Cell::new(At::Source.index()),
            since: Cell::default(),
        }
    }

    /// Ends the measurement.
    pub fn stop(&self) {
        self.turn(self.current.get());
        self.since.take();
    }

    /// Returns the measurements of a step.
    pub fn done(&self, at: At) -> Done {
        self.steps[at.index()].get()
    }

    fn now(&self) -> Option<Instant> {
        self.timing.then(Instant::now)
    }

    /// Counts the time and pages up to now for the active step, and makes `next` the active step.
    fn turn(&self, next: usize) -> Option<Instant> {
        let (now, pages) = (self.now(), PageMeter::counts());
        // Before the first step there is nothing to count.
        if let Some((since, before)) = self.since.replace(Some((now, pages))) {
            let took = now.zip(since).map(|(now, since)| now - since).unwrap_or_default();
            self.note(self.current.get(), |done| {
                done.time += took;
                done.pages += pages - before;
            });
        }
        self.current.set(next);
        now
    }

    fn note(&self, step: usize, change: impl FnOnce(&mut Done)) {
        let mut done = self.steps[step].get();
        change(&mut done);
        self.steps[step].set(done);
    }
}

impl Watch for &Meter {
    fn enter(self, at: At) {
        self.turn(at.index());
    }

    fn begin(self, at: At) {
        let now = self.turn(at.index());
        self.begun[at.index()].set(now);
        self.note(at.index(), |done| done.loops += 1);
    }

    fn gave(self, at: At, rows: u64) {
        let begun = if rows > 0 { self.begun[at.index()].take() } else { None };
        self.note(at.index(), |done| {
            done.rows += rows;
            done.startup += begun.map(|begun| begun.elapsed()).unwrap_or_default();
        });
    }

    fn left_out(self, at: At) {
        self.note(at.index(), |done| done.left_out += 1);
    }
}
