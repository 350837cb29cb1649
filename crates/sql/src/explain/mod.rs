//! EXPLAIN shows the steps of a plan as a tree. The plan is run by this crate's executor, or, if it is a
//! general query, by DataFusion.
//!
//! This module does not know how steps are measured (`exec::watch`, or the runner of general queries).

pub mod document;
pub mod expression;
pub mod short;
pub mod show;

use std::time::Duration;

use varve_engine::PageCounts;

use crate::utility::explain::Options;

/// One step of a plan.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// What it does, in PostgreSQL's words where there are some: `Seq Scan`, `Hash Left Join`.
    pub name: String,
    /// What JSON says beside the text's name: `Node Type` first, if it is another one.
    pub facts: Vec<(&'static str, String)>,
    /// The index that is read.
    pub index: Option<String>,
    /// The table or function that is read, or the table that is changed.
    pub relation: Option<String>,
    /// What stands above it: `SubPlan 1`, `CTE w`.
    pub label: Option<String>,
    /// Its conditions and keys: `Filter`, `Sort Key`.
    pub notes: Vec<(&'static str, String)>,
    /// The same, for VERBOSE only.
    pub verbose: Vec<(&'static str, String)>,
    /// The columns that it gives, as `table.column`; for VERBOSE only.
    pub outputs: Vec<String>,
    /// What it has done.
    pub actual: Option<Actual>,
    /// The steps that it takes its rows from.
    pub inner: Vec<Step>,
}

/// What a step has done in all its loops together. Times and pages include those of the steps below it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Actual {
    /// How often it ran; 0: never.
    pub loops: u64,
    /// Rows that it gave.
    pub rows: u64,
    /// Rows that its condition left out.
    pub left_out: u64,
    /// Time to the first row.
    pub startup: Duration,
    /// Time to the end.
    pub time: Duration,
    /// Pages that were used.
    pub pages: PageCounts,
    /// Bytes that went to temporary files.
    pub spilled_bytes: u64,
}

impl Step {
    /// A step of this name.
    pub fn new(name: impl Into<String>) -> Step {
        Step { name: name.into(), ..Step::default() }
    }

    /// The same over these steps.
    pub fn over(self, inner: impl IntoIterator<Item = Step>) -> Step {
        Step { inner: inner.into_iter().collect(), ..self }
    }

    /// The same with a note.
    pub fn note(mut self, key: &'static str, text: impl Into<String>) -> Step {
        self.notes.push((key, text.into()));
        self
    }

    /// The same on a table.
    pub fn on(self, relation: &str) -> Step {
        Step { relation: Some(relation.to_owned()), ..self }
    }

    /// The same with what JSON calls it.
    pub fn fact(mut self, key: &'static str, value: &str) -> Step {
        self.facts.push((key, value.to_owned()));
        self
    }
}

/// Everything that EXPLAIN shows.
pub struct Explained<'e> {
    /// What was asked for.
    pub options: &'e Options,
    /// The plan.
    pub plan: &'e Step,
    /// Settings of the planner that the session has changed: their names and values.
    pub settings: Vec<(&'static str, String)>,
    /// How long it took to make it.
    pub planning: Duration,
    /// Pages that were used for that.
    pub planning_pages: PageCounts,
    /// How long it took to run it; `None`: it did not run.
    pub execution: Option<Duration>,
}
