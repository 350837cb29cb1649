//! Formats an EXPLAIN plan as PostgreSQL's text or JSON.
//!
//! Invariants
//! 1. Keys, their order and their units are those of PostgreSQL 15. Varve's own keys come after them.
//! 2. If a step ran several times, its rows and times are averages of one run.
//!
//! This module knows nothing about plans.

use std::fmt::Write;
use std::time::Duration;

use varve_engine::PageCounts;

use super::{Actual, Explained, Step};

/// Bytes of PostgreSQL's block, in which it counts temporary files.
const BLOCK_BYTES: u64 = 8192;

/// The lines of the text format.
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

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A part for each run.
fn each(total: f64, loops: u64) -> f64 {
    total / loops.max(1) as f64
}

struct Text<'e> {
    explained: &'e Explained<'e>,
    lines: Vec<String>,
}

impl Text<'_> {
    /// `indent` is where the step's own notes begin, less two.
    fn step(&mut self, step: &Step, indent: usize) {
        let mut line = " ".repeat(indent.saturating_sub(4));
        if indent > 0 {
            line.push_str("->  ");
        }
        line.push_str(&step.name);
        step.index.iter().for_each(|index| line.push_str(&format!(" using {index}")));
        step.relation.iter().for_each(|relation| line.push_str(&format!(" on {relation}")));
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

    /// What is known only when the step has run.
    fn after(&mut self, step: &Step, actual: &Actual, indent: usize) {
        if actual.left_out > 0 {
            let removed = format!("{:.0}", each(actual.left_out as f64, actual.loops));
            self.note(indent, "Rows Removed by Filter", &removed);
        }
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

/// The JSON format, as one text.
pub fn json(explained: &Explained<'_>) -> String {
    let mut out = Json { explained, text: "[\n  {".to_owned(), depth: 2, is_first: true };
    out.open("Plan", '{');
    out.step(explained.plan, None);
    out.close('}');
    if explained.options.settings {
        out.open("Settings", '{');
        explained.settings.iter().for_each(|(name, value)| out.string(name, value));
        out.close('}');
    }
    if explained.options.buffers {
        out.open("Planning", '{');
        out.pages(&explained.planning_pages, 0);
        out.close('}');
    }
    if explained.options.shows_summary() {
        out.number("Planning Time", &format!("{:.3}", millis(explained.planning)));
    }
    if explained.options.analyze {
        out.open("Triggers", '[');
        out.close(']');
    }
    if let Some(time) = explained.execution.filter(|_| explained.options.shows_summary()) {
        out.number("Execution Time", &format!("{:.3}", millis(time)));
    }
    out.close('}');
    out.text.push_str("\n]");
    out.text
}

struct Json<'e> {
    explained: &'e Explained<'e>,
    text: String,
    depth: usize,
    /// Nothing stands in the present object or list.
    is_first: bool,
}

impl Json<'_> {
    fn line(&mut self) {
        if !std::mem::replace(&mut self.is_first, false) {
            self.text.push(',');
        }
        self.text.push('\n');
        self.text.push_str(&"  ".repeat(self.depth));
    }

    fn key(&mut self, key: &str) {
        self.line();
        _ = write!(self.text, "{}: ", quoted(key));
    }

    fn open(&mut self, key: &str, bracket: char) {
        self.key(key);
        self.enter(bracket);
    }

    fn enter(&mut self, bracket: char) {
        self.text.push(bracket);
        self.depth += 1;
        self.is_first = true;
    }

    fn close(&mut self, bracket: char) {
        self.depth -= 1;
        self.text.push('\n');
        self.text.push_str(&"  ".repeat(self.depth));
        self.text.push(bracket);
        self.is_first = false;
    }

    fn string(&mut self, key: &str, value: &str) {
        self.key(key);
        self.text.push_str(&quoted(value));
    }

    fn number(&mut self, key: &str, value: &str) {
        self.key(key);
        self.text.push_str(value);
    }

    fn step(&mut self, step: &Step, relationship: Option<&str>) {
        if !step.facts.iter().any(|(key, _)| *key == "Node Type") {
            self.string("Node Type", &step.name);
        }
        step.facts.iter().for_each(|(key, value)| self.string(key, value));
        relationship.iter().for_each(|what| self.string("Parent Relationship", what));
        step.label.iter().for_each(|label| self.string("Subplan Name", label));
        self.number("Parallel Aware", "false");
        self.number("Async Capable", "false");
        step.index.iter().for_each(|index| self.string("Index Name", index));
        step.relation.iter().for_each(|relation| self.string("Relation Name", relation));
        if let Some(actual) = &step.actual {
            self.actual(actual);
        }
        let verbose = self.explained.options.verbose.then_some(&step.verbose);
        if verbose.is_some() && !step.outputs.is_empty() {
            let listed: Vec<String> = step.outputs.iter().map(|output| quoted(output)).collect();
            self.number("Output", &format!("[{}]", listed.join(", ")));
        }
        for (key, value) in verbose.into_iter().flatten().chain(&step.notes) {
            self.string(key, value);
        }
        if let Some(actual) = &step.actual {
            self.after(step, actual);
        }
        if step.inner.is_empty() {
            return;
        }
        self.open("Plans", '[');
        for (n, inner) in step.inner.iter().enumerate() {
            self.line();
            self.enter('{');
            let plain = if n == 0 { "Outer" } else { "Inner" };
            let labelled =
                inner.label.as_ref().map(|l| if l.starts_with("CTE") { "InitPlan" } else { "SubPlan" });
            self.step(inner, Some(labelled.unwrap_or(plain)));
            self.close('}');
        }
        self.close(']');
    }

    fn actual(&mut self, actual: &Actual) {
        if self.explained.options.shows_timing() {
            for (key, time) in [("Actual Startup Time", actual.startup), ("Actual Total Time", actual.time)] {
                self.number(key, &format!("{:.3}", each(millis(time), actual.loops)));
            }
        }
        self.number("Actual Rows", &format!("{:.0}", each(actual.rows as f64, actual.loops)));
        self.number("Actual Loops", &actual.loops.to_string());
    }

    fn after(&mut self, step: &Step, actual: &Actual) {
        if step.notes.iter().any(|(key, _)| *key == "Filter") {
            let removed = format!("{:.0}", each(actual.left_out as f64, actual.loops));
            self.number("Rows Removed by Filter", &removed);
        }
        if actual.spilled_bytes > 0 {
            let disk = actual.spilled_bytes.div_ceil(1024).to_string();
            match step.name.as_str() {
                "Sort" => {
                    self.string("Sort Method", "external merge");
                    self.number("Sort Space Used", &disk);
                    self.string("Sort Space Type", "Disk");
                }
                _ => self.number("Disk Usage", &disk),
            }
        }
        if self.explained.options.buffers {
            self.pages(&actual.pages, actual.spilled_bytes);
        }
    }

    fn pages(&mut self, pages: &PageCounts, spilled_bytes: u64) {
        self.number("Shared Hit Blocks", &pages.hits.to_string());
        self.number("Shared Read Blocks", &pages.read_count().to_string());
        self.number("Temp Written Blocks", &spilled_bytes.div_ceil(BLOCK_BYTES).to_string());
        self.open("Pages by Level", '{');
        pages.by_level().for_each(|(name, count)| self.number(name, &count.to_string()));
        self.close('}');
        if pages.decompressed > 0 {
            self.number("Decompressed Pages", &pages.decompressed.to_string());
            self.number("Stored Bytes", &pages.stored_bytes.to_string());
        }
    }
}

/// A string of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
