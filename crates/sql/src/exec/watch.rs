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

/// A step of a plan; a plan has each at most once.
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
    /// Gives rows: the table, or the loops as a whole.
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

/// Is told what the executor does.
pub trait Watch: Copy {
    /// What follows is work of this step.
    fn enter(self, _: At) {}
    /// The step begins, once more: what follows is its work.
    fn begin(self, _: At) {}
    /// The step has given rows.
    fn gave(self, _: At, _: u64) {}
    /// A condition of the step has left a row out.
    fn left_out(self, _: At) {}
}

/// Nobody asks.
#[derive(Clone, Copy)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// What one step has done by itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Done {
    /// How often it began.
    pub loops: u64,
    /// Rows that it gave, all loops together.
    pub rows: u64,
    /// Rows that its condition left out.
    pub left_out: u64,
    /// From its beginning to the first row, all loops together.
    pub startup: Duration,
    /// Its own time.
    pub time: Duration,
    /// Pages that it used itself.
    pub pages: PageCounts,
}

/// Notes what each step of one run does.
#[derive(Debug)]
pub struct Meter {
    timing: bool,
    steps: [Cell<Done>; At::COUNT],
    /// Since when a step that has given no row in this loop has been at work.
    begun: [Cell<Option<Instant>>; At::COUNT],
    /// The step that works.
    current: Cell<usize>,
    /// When it began to, and the pages counted by then.
    since: Cell<Option<(Option<Instant>, PageCounts)>>,
}

impl Meter {
    /// A meter; `timing`: with a clock.
    pub fn new(timing: bool) -> Meter {
        Meter {
            timing,
            steps: Default::default(),
            begun: Default::default(),
            current: Cell::new(At::Source.index()),
            since: Cell::default(),
        }
    }

    /// The run is over.
    pub fn stop(&self) {
        self.turn(self.current.get());
        self.since.take();
    }

    /// What a step has done.
    pub fn done(&self, at: At) -> Done {
        self.steps[at.index()].get()
    }

    fn now(&self) -> Option<Instant> {
        self.timing.then(Instant::now)
    }

    /// Time and pages up to now are the present step's, those to come are `next`'s.
    fn turn(&self, next: usize) -> Option<Instant> {
        let (now, pages) = (self.now(), PageMeter::counts());
        // Before the first step nobody works.
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
