//! An EXPLAIN plan as a document of keys and values, in PostgreSQL's JSON, XML or YAML.
//!
//! Invariants
//! 1. Keys, their order and their units are those of PostgreSQL 15. Varve's own keys come after them.
//! 2. If a step ran several times, its rows and times are averages of one run.
//!
//! This module does not know plans or the text format (`show`).

use varve_engine::{LeafCounts, PageCounts};

use super::cost::Estimate;
use super::show::{BLOCK_BYTES, each, millis};
use super::{Actual, Explained, Step};
use crate::utility::explain::Options;

/// Keys with their values.
type Fields = Vec<(String, Field)>;

enum Field {
    /// A string.
    Text(String),
    /// A number or a truth value.
    Plain(String),
    Texts(Vec<String>),
    Group(Fields),
    /// Groups of the same kind, and the XML element for one of them.
    Groups(&'static str, Vec<Fields>),
}

/// Returns the document as JSON.
pub fn json(explained: &Explained<'_>) -> String {
    let mut out = "[\n  {".to_owned();
    write_json(&document(explained), 2, &mut out);
    out + "\n  }\n]"
}

/// Returns the document as XML.
pub fn xml(explained: &Explained<'_>) -> String {
    let mut out = "<explain xmlns=\"http://www.postgresql.org/2009/explain\">\n  <Query>\n".to_owned();
    write_xml(&document(explained), 2, &mut out);
    out + "  </Query>\n</explain>"
}

/// Returns the document as YAML.
pub fn yaml(explained: &Explained<'_>) -> String {
    let mut out = "- ".to_owned();
    write_yaml(&document(explained), 1, &mut out);
    out
}

fn write_json(fields: &Fields, depth: usize, out: &mut String) {
    let line = |depth: usize| format!("\n{}", "  ".repeat(depth));
    for (n, (key, field)) in fields.iter().enumerate() {
        out.push_str(if n > 0 { "," } else { "" });
        out.push_str(&format!("{}{}: ", line(depth), quoted(key)));
        match field {
            Field::Text(text) => out.push_str(&quoted(text)),
            Field::Plain(value) => out.push_str(value),
            Field::Texts(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                out.push_str(&format!("[{}]", texts.join(", ")));
            }
            Field::Group(inner) => {
                out.push('{');
                write_json(inner, depth + 1, out);
                out.push_str(&format!("{}}}", line(depth)));
            }
            Field::Groups(_, groups) => {
                out.push('[');
                for (n, inner) in groups.iter().enumerate() {
                    out.push_str(if n > 0 { "," } else { "" });
                    out.push_str(&format!("{}{{", line(depth + 1)));
                    write_json(inner, depth + 2, out);
                    out.push_str(&format!("{}}}", line(depth + 1)));
                }
                out.push_str(&format!("{}]", line(depth)));
            }
        }
    }
}

fn write_xml(fields: &Fields, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    for (key, field) in fields {
        let is_kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let tag: String = key.chars().map(|c| if is_kept(c) { c } else { '-' }).collect();
        if let Field::Text(value) | Field::Plain(value) = field {
            out.push_str(&format!("{indent}<{tag}>{}</{tag}>\n", escaped(value)));
            continue;
        }
        out.push_str(&format!("{indent}<{tag}>\n"));
        match field {
            Field::Text(_) | Field::Plain(_) => {}
            Field::Texts(texts) => {
                let items = texts.iter().map(|text| format!("{indent}  <Item>{}</Item>\n", escaped(text)));
                out.extend(items);
            }
            Field::Group(inner) => write_xml(inner, depth + 1, out),
            Field::Groups(one, groups) => {
                for inner in groups {
                    out.push_str(&format!("{indent}  <{one}>\n"));
                    write_xml(inner, depth + 2, out);
                    out.push_str(&format!("{indent}  </{one}>\n"));
                }
            }
        }
        out.push_str(&format!("{indent}</{tag}>\n"));
    }
}

/// Writes fields as YAML. The first key is written in the current line.
fn write_yaml(fields: &Fields, depth: usize, out: &mut String) {
    let item = |depth: usize| format!("\n{}- ", "  ".repeat(depth));
    for (n, (key, field)) in fields.iter().enumerate() {
        if n > 0 {
            out.push_str(&format!("\n{}", "  ".repeat(depth)));
        }
        out.push_str(&format!("{key}: "));
        match field {
            Field::Text(text) => out.push_str(&quoted(text)),
            Field::Plain(value) => out.push_str(value),
            Field::Texts(texts) => {
                out.extend(texts.iter().map(|text| format!("{}{}", item(depth + 1), quoted(text))));
            }
            Field::Group(inner) if inner.is_empty() => {}
            Field::Group(inner) => {
                out.push_str(&format!("\n{}", "  ".repeat(depth + 1)));
                write_yaml(inner, depth + 1, out);
            }
            Field::Groups(_, groups) => {
                for inner in groups {
                    out.push_str(&item(depth + 1));
                    write_yaml(inner, depth + 2, out);
                }
            }
        }
    }
}

/// Returns a text as a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns a text with the escapes of XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\r', "&#x0d;")
}

fn text(key: &str, value: &str) -> (String, Field) {
    (key.to_owned(), Field::Text(value.to_owned()))
}

fn plain(key: &str, value: impl ToString) -> (String, Field) {
    (key.to_owned(), Field::Plain(value.to_string()))
}

fn document(explained: &Explained<'_>) -> Fields {
    let Explained { options, plan, settings, planning, planning_pages, execution } = explained;
    let mut fields = vec![("Plan".to_owned(), Field::Group(step(plan, None, options)))];
    if options.settings {
        let settings = settings.iter().map(|(name, value)| text(name, value)).collect();
        fields.push(("Settings".to_owned(), Field::Group(settings)));
    }
    if options.buffers {
        fields.push(("Planning".to_owned(), Field::Group(pages(planning_pages, 0))));
    }
    if options.shows_summary() {
        fields.push(plain("Planning Time", format!("{:.3}", millis(*planning))));
    }
    if options.analyze {
        fields.push(("Triggers".to_owned(), Field::Groups("Trigger", Vec::new())));
    }
    if let Some(time) = execution.filter(|_| options.shows_summary()) {
        fields.push(plain("Execution Time", format!("{:.3}", millis(time))));
    }
    fields
}

fn step(step: &Step, relationship: Option<&str>, options: &Options) -> Fields {
    let mut fields = Vec::new();
    if !step.facts.iter().any(|(key, _)| *key == "Node Type") {
        fields.push(text("Node Type", &step.name));
    }
    fields.extend(step.facts.iter().map(|(key, value)| text(key, value)));
    fields.extend(relationship.map(|what| text("Parent Relationship", what)));
    fields.extend(step.label.iter().map(|label| text("Subplan Name", label)));
    fields.extend([plain("Parallel Aware", false), plain("Async Capable", false)]);
    fields.extend(step.index.iter().map(|index| text("Index Name", index)));
    fields.extend(step.relation.iter().map(|relation| text("Relation Name", relation)));
    fields.extend(step.estimate.iter().filter(|_| options.shows_costs()).flat_map(estimated));
    fields.extend(step.actual.iter().flat_map(|figures| actual(figures, options)));
    let verbose = options.verbose.then_some(&step.verbose);
    if verbose.is_some() && !step.outputs.is_empty() {
        fields.push(("Output".to_owned(), Field::Texts(step.outputs.clone())));
    }
    fields.extend(verbose.into_iter().flatten().chain(&step.notes).map(|(key, value)| text(key, value)));
    fields.extend(step.actual.iter().flat_map(|actual| after(step, actual, options)));
    if !step.inner.is_empty() {
        fields.push(("Plans".to_owned(), Field::Groups("Plan", inner(step, options))));
    }
    fields
}

fn inner(whole: &Step, options: &Options) -> Vec<Fields> {
    let below = whole.inner.iter().enumerate().map(|(n, inner)| {
        let place = if n == 0 { "Outer" } else { "Inner" };
        let labelled =
            inner.label.as_ref().map(|l| if l.starts_with("CTE") { "InitPlan" } else { "SubPlan" });
        step(inner, Some(labelled.unwrap_or(place)), options)
    });
    below.collect()
}

fn estimated(estimate: &Estimate) -> Fields {
    vec![
        plain("Startup Cost", format!("{:.2}", estimate.startup)),
        plain("Total Cost", format!("{:.2}", estimate.total)),
        plain("Plan Rows", format!("{:.0}", estimate.rows.round())),
        plain("Plan Width", estimate.width),
    ]
}

fn actual(actual: &Actual, options: &Options) -> Fields {
    let mut fields = Vec::new();
    if options.shows_timing() {
        let times = [("Actual Startup Time", actual.startup), ("Actual Total Time", actual.time)];
        let shown = |time| format!("{:.3}", each(millis(time), actual.loops));
        fields.extend(times.map(|(key, time)| plain(key, shown(time))));
    }
    fields.push(plain("Actual Rows", format!("{:.0}", each(actual.rows as f64, actual.loops))));
    fields.push(plain("Actual Loops", actual.loops));
    fields
}

/// Returns the fields that are known only after the step has run.
fn after(step: &Step, actual: &Actual, options: &Options) -> Fields {
    let mut fields = Vec::new();
    if step.notes.iter().any(|(key, _)| *key == "Filter") {
        let removed = format!("{:.0}", each(actual.left_out as f64, actual.loops));
        fields.push(plain("Rows Removed by Filter", removed));
    }
    if actual.unpaired > 0 {
        let removed = format!("{:.0}", each(actual.unpaired as f64, actual.loops));
        fields.push(plain("Rows Removed by Runtime Filter", removed));
    }
    if actual.leaves != LeafCounts::default() {
        let LeafCounts { by_columns, mixed, by_rows, skipped, whole_rows } = actual.leaves;
        fields.push(plain("Leaves by Columns", by_columns));
        fields.push(plain("Leaves Mixed", mixed));
        fields.push(plain("Leaves by Rows", by_rows));
        fields.push(plain("Leaves Skipped", skipped));
        fields.push(plain("Whole Rows Read", whole_rows));
    }
    if actual.spilled_bytes > 0 {
        let disk = actual.spilled_bytes.div_ceil(1024);
        match step.name.as_str() {
            "Sort" => fields.extend([
                text("Sort Method", "external merge"),
                plain("Sort Space Used", disk),
                text("Sort Space Type", "Disk"),
            ]),
            _ => fields.push(plain("Disk Usage", disk)),
        }
    }
    if options.buffers {
        fields.extend(pages(&actual.pages, actual.spilled_bytes));
    }
    fields
}

fn pages(pages: &PageCounts, spilled_bytes: u64) -> Fields {
    let levels = pages.by_level().map(|(name, count)| plain(name, count)).collect();
    let mut fields = vec![
        plain("Shared Hit Blocks", pages.hits),
        plain("Shared Read Blocks", pages.read_count()),
        plain("Temp Written Blocks", spilled_bytes.div_ceil(BLOCK_BYTES)),
        ("Pages by Level".to_owned(), Field::Group(levels)),
    ];
    if pages.decompressed > 0 {
        fields.push(plain("Decompressed Pages", pages.decompressed));
        fields.push(plain("Stored Bytes", pages.stored_bytes));
    }
    fields
}
