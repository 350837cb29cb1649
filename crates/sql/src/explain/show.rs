//! Formats an EXPLAIN plan as PostgreSQL's text.
//!
//! Invariants
//! 1. Keys, their order and their units are those of PostgreSQL 15. Varve's own keys come after them.
//! 2. If a step ran several times, its rows and times are averages of one run.
//!
//! This module does not know plans.

use std::fmt::Write;
use std::time::Duration;

use varve_engine::{LeafCounts, PageCounts};

use super::cost::Estimate;
use super::{Actual, Explained, Step};

/// The size of PostgreSQL's blocks, in bytes. Temporary files are counted in these blocks.
pub(super) const BLOCK_BYTES: u64 = 8192;

/// Returns the lines of the text format.
pub fn text(explained: &Explained<'_>) -> Vec<String> {
    let mut out = Text { explained, lines: Vec::new() };
    out.step(explained.plan, 0);
    if !explained.settings.is_empty() {
        let settings = explained.settings.iter().map(|(name, value)| format!("{name} = '{value}'"));
        out.note(0, "Settings", &settings.collect::<Vec<_>>().join(", "));
    }
    if explained.options.buffers && explained.planning_pages != PageCounts::default() {
        out.lines.push("Planning:".into());
        out.pages(&explained.planning_pages, 0, 2);
    }
    if explained.options.shows_summary() {
        out.lines.push(format!("Planning Time: {:.3} ms", millis(explained.planning)));
        let execution = explained.execution.map(|time| format!("Execution Time: {:.3} ms", millis(time)));
        out.lines.extend(execution);
    }
    out.lines
}

pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns the average of one run.
pub(super) fn each(total: f64, loops: u64) -> f64 {
    total / loops.max(1) as f64
}

struct Text<'e> {
    explained: &'e Explained<'e>,
    lines: Vec<String>,
}

impl Text<'_> {
    /// Adds the lines of a step. Its notes begin at column `indent` + 2.
    fn step(&mut self, step: &Step, indent: usize) {
        let mut line = " ".repeat(indent.saturating_sub(4));
        if indent > 0 {
            line.push_str("->  ");
        }
        line.push_str(&step.name);
        step.index.iter().for_each(|index| line.push_str(&format!(" using {index}")));
        step.relation.iter().for_each(|relation| line.push_str(&format!(" on {relation}")));
        if let Some(estimate) = step.estimate.filter(|_| self.explained.options.shows_costs()) {
            let Estimate { startup, total, rows, width } = estimate;
            _ = write!(line, "  (cost={startup:.2}..{total:.2} rows={:.0} width={width})", rows.round());
        }
        step.actual.iter().for_each(|actual| self.actual(actual, &mut line));
        self.lines.push(line);
        let verbose = self.explained.options.verbose.then_some(&step.verbose);
        if verbose.is_some() && !step.outputs.is_empty() {
            self.note(indent + 2, "Output", &step.outputs.join(", "));
        }
        for (key, value) in verbose.into_iter().flatten().chain(&step.notes) {
            self.note(indent + 2, key, value);
        }
        if let Some(actual) = &step.actual {
            self.after(step, actual, indent + 2);
        }
        for inner in &step.inner {
            let mut at = indent + 6;
            if let Some(label) = &inner.label {
                self.lines.push(format!("{}{label}", " ".repeat(indent + 2)));
                at += 2;
            }
            self.step(inner, at);
        }
    }

    fn actual(&self, actual: &Actual, line: &mut String) {
        if actual.loops == 0 {
            line.push_str(" (never executed)");
            return;
        }
        line.push_str(" (actual ");
        if self.explained.options.shows_timing() {
            let [startup, total] = [actual.startup, actual.time].map(|time| each(millis(time), actual.loops));
            _ = write!(line, "time={startup:.3}..{total:.3} ");
        }
        _ = write!(line, "rows={:.0} loops={})", each(actual.rows as f64, actual.loops), actual.loops);
    }

    fn note(&mut self, indent: usize, key: &str, value: &str) {
        self.lines.push(format!("{}{key}: {value}", " ".repeat(indent)));
    }

    /// Adds the lines that are known only after the step has run.
    fn after(&mut self, step: &Step, actual: &Actual, indent: usize) {
        if actual.left_out > 0 {
            let removed = format!("{:.0}", each(actual.left_out as f64, actual.loops));
            self.note(indent, "Rows Removed by Filter", &removed);
        }
        if actual.unpaired > 0 {
            let removed = format!("{:.0}", each(actual.unpaired as f64, actual.loops));
            self.note(indent, "Rows Removed by Runtime Filter", &removed);
        }
        self.leaves(&actual.leaves, indent);
        if actual.spilled_bytes > 0 {
            let disk = format!("{}kB", actual.spilled_bytes.div_ceil(1024));
            match step.name.as_str() {
                "Sort" => self.note(indent, "Sort Method", &format!("external merge  Disk: {disk}")),
                _ => self.note(indent, "Disk Usage", &disk),
            }
        }
        if self.explained.options.buffers {
            self.pages(&actual.pages, actual.spilled_bytes, indent);
        }
    }

    fn leaves(&mut self, leaves: &LeafCounts, indent: usize) {
        if *leaves == LeafCounts::default() {
            return;
        }
        let LeafCounts { by_columns, mixed, by_rows, skipped, whole_rows } = leaves;
        let read = format!("by columns={by_columns} mixed={mixed} by rows={by_rows} skipped={skipped}");
        self.note(indent, "Leaves", &read);
        self.note(indent, "Whole Rows Read", &whole_rows.to_string());
    }

    fn pages(&mut self, pages: &PageCounts, spilled_bytes: u64, indent: usize) {
        let shared = [("hit", pages.hits), ("read", pages.read_count())];
        let temporary = [("written", spilled_bytes.div_ceil(BLOCK_BYTES))];
        let mut kinds = Vec::new();
        for (kind, counts) in [("shared", &shared[..]), ("temp", &temporary[..])] {
            let counts = counts.iter().filter(|(_, count)| *count > 0);
            let counts: Vec<String> = counts.map(|(what, count)| format!(" {what}={count}")).collect();
            if !counts.is_empty() {
                kinds.push(format!("{kind}{}", counts.concat()));
            }
        }
        if !kinds.is_empty() {
            self.note(indent, "Buffers", &kinds.join(", "));
        }
        if pages.read_count() > 0 {
            let levels: Vec<String> = pages.by_level().map(|(name, n)| format!("{name}={n}")).collect();
            self.note(indent, "Pages by Level", &levels.join(" "));
        }
        if pages.decompressed > 0 {
            let (count, of, stored) =
                (pages.decompressed, pages.home_count(), pages.stored_bytes.div_ceil(1024));
            self.note(indent, "Decompressed", &format!("{count} of {of} pages, {stored}kB stored"));
        }
    }
}
