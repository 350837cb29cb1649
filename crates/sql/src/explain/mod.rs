//! EXPLAIN shows the steps of a plan as a tree. This crate's executor runs the plan of a short statement, and
//! DataFusion runs that of a general query.
//!
//! This module does not know how steps are measured (`exec::watch`, or the runner of general queries).

pub mod cost;
pub mod document;
pub mod expression;
pub mod short;
pub mod show;

use std::time::Duration;

use varve_engine::{LeafCounts, PageCounts};

use self::cost::Estimate;
use crate::utility::explain::Options;

/// One step of a plan.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// The name of the step, which is PostgreSQL's name if there is one: `Seq Scan`, `Hash Left Join`.
    pub name: String,
    /// Further fields of the JSON, XML and YAML formats. `Node Type` is the first one if it differs from the
    /// name in the text format.
    pub facts: Vec<(&'static str, String)>,
    /// The index that is read.
    pub index: Option<String>,
    /// The table or function that is read, or the table that is changed.
    pub relation: Option<String>,
    /// The line above the step, such as `SubPlan 1` or `CTE w`.
    pub label: Option<String>,
    /// The conditions and keys of the step, such as `Filter` and `Sort Key`.
    pub notes: Vec<(&'static str, String)>,
    /// Further notes that only VERBOSE shows.
    pub verbose: Vec<(&'static str, String)>,
    /// The columns that the step returns, as `table.column`. Only VERBOSE shows them.
    pub outputs: Vec<String>,
    /// The expected cost and rows of the step, if they were estimated.
    pub estimate: Option<Estimate>,
    /// The measurements, if the step has run.
    pub actual: Option<Actual>,
    /// The steps from which this step gets its rows.
    pub inner: Vec<Step>,
}

/// The measurements of a step, in all its loops together. Times and pages include those of the steps below
/// it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Actual {
    /// The number of times that the step ran.
    pub loops: u64,
    /// The rows that the step has returned.
    pub rows: u64,
    /// The rows that its condition has rejected.
    pub left_out: u64,
    /// The rows that a runtime filter has rejected, because they have no partner in a join.
    pub unpaired: u64,
    /// The time to the first row.
    pub startup: Duration,
    /// The time to the end.
    pub time: Duration,
    /// The pages that were used.
    pub pages: PageCounts,
    /// The bytes that were written to temporary files.
    pub spilled_bytes: u64,
    /// How a scan of a table by columns has read the leaves. The whole rows include those that the filter
    /// needed.
    pub leaves: LeafCounts,
}

impl Step {
    /// Returns a step of this name.
    pub fn new(name: impl Into<String>) -> Step {
        Step { name: name.into(), ..Step::default() }
    }

    /// Puts the step above these steps, and returns it.
    pub fn over(self, inner: impl IntoIterator<Item = Step>) -> Step {
        Step { inner: inner.into_iter().collect(), ..self }
    }

    /// Adds a note to the step, and returns it.
    pub fn note(mut self, key: &'static str, text: impl Into<String>) -> Step {
        self.notes.push((key, text.into()));
        self
    }

    /// Sets the table of the step, and returns it.
    pub fn on(self, relation: &str) -> Step {
        Step { relation: Some(relation.to_owned()), ..self }
    }

    /// Adds a field for JSON, XML and YAML to the step, and returns it.
    pub fn fact(mut self, key: &'static str, value: &str) -> Step {
        self.facts.push((key, value.to_owned()));
        self
    }

    /// Takes over the estimates of the same plan.
    pub fn take_estimates(&mut self, estimated: &Step) {
        self.estimate = estimated.estimate;
        for (step, estimated) in self.inner.iter_mut().zip(&estimated.inner) {
            step.take_estimates(estimated);
        }
    }
}

/// Everything that EXPLAIN shows.
pub struct Explained<'e> {
    /// The options of EXPLAIN.
    pub options: &'e Options,
    /// The plan.
    pub plan: &'e Step,
    /// Settings of the planner that the session has changed: their names and values.
    pub settings: Vec<(&'static str, String)>,
    /// The time of planning.
    pub planning: Duration,
    /// The pages that planning has used.
    pub planning_pages: PageCounts,
    /// The time of execution, or `None` if the plan did not run.
    pub execution: Option<Duration>,
}
