//! EXPLAIN: one line for each step of a plan.
//!
//! Invariants
//! 1. The line of a scan names the access path and the index.
//!
//! Does not know: costs; Varve's planner has none.

use varve_engine::{ScanIndex, TableDef};

use crate::plan::{Access, Insert, InsertSource, Plan, Select, Source, Step, TableAccess};

/// The lines, outermost step first.
pub fn lines(plan: &Plan) -> Vec<String> {
    let mut out = Vec::new();
    match plan {
        Plan::Select(s) => select(s, 0, &mut out),
        Plan::Insert(i) => insert(i, &mut out),
        Plan::Update(u) => {
            line(0, format!("Update on {}", u.target.table.name), &mut out);
            scan(&u.target, u.filter.is_some(), 1, &mut out);
        }
        Plan::Delete(d) => {
            line(0, format!("Delete on {}", d.target.table.name), &mut out);
            scan(&d.target, d.filter.is_some(), 1, &mut out);
        }
    }
    out
}

fn line(depth: usize, text: String, out: &mut Vec<String>) {
    let arrow = if depth == 0 { String::new() } else { format!("{}->  ", "  ".repeat(depth * 3 - 2)) };
    out.push(format!("{arrow}{text}"));
}

fn note(depth: usize, text: &str, out: &mut Vec<String>) {
    out.push(format!("{}{text}", " ".repeat(depth * 6 + 2)));
}

fn insert(i: &Insert, out: &mut Vec<String>) {
    line(0, format!("Insert on {}", i.table.name), out);
    match &i.source {
        InsertSource::Values(rows) if rows.len() == 1 => line(1, "Result".into(), out),
        InsertSource::Values(_) => line(1, "Values Scan".into(), out),
        InsertSource::Query(q, _) | InsertSource::Queried(q, _) => select(q, 1, out),
    }
}

fn select(s: &Select, mut depth: usize, out: &mut Vec<String>) {
    let mut step = |text: &str| {
        line(depth, text.into(), out);
        depth += 1;
    };
    if s.limit.is_some() || s.offset.is_some() {
        step("Limit");
    }
    if s.lock.is_some() {
        step("LockRows");
    }
    if s.distinct {
        step("Unique");
    }
    if !s.order.is_empty() || s.distinct {
        step("Sort");
    }
    match &s.aggregate {
        Some(a) if a.single => step("Aggregate"),
        Some(_) => step("HashAggregate"),
        None => {}
    }
    let filtered = s.filter.is_some();
    match &s.source {
        Source::Table(t) => scan(t, filtered, depth, out),
        Source::Nothing => line(depth, "Result".into(), out),
        Source::Values(..) => line(depth, "Values Scan".into(), out),
        Source::System(table) => line(depth, format!("Seq Scan on {}", table.name), out),
        Source::Loops(steps) => loops(steps, depth, out),
        Source::Join(_)
        | Source::Query(_)
        | Source::Expand(_)
        | Source::Set(_)
        | Source::Target(_)
        | Source::Shared(_)
        | Source::Work(..) => line(depth, "General".into(), out),
        Source::Unnest(..) => line(depth, "Function Scan on unnest".into(), out),
        Source::Series(..) => line(depth, "Function Scan on generate_series".into(), out),
    }
}

/// Each loop has the steps before the last one inside.
fn loops(steps: &[Step], depth: usize, out: &mut Vec<String>) {
    let Some((last, before)) = steps.split_last() else { return };
    let mut inner = depth;
    if !before.is_empty() {
        line(depth, "Nested Loop".into(), out);
        loops(before, depth + 1, out);
        inner += 1;
    }
    scan(&last.target, last.filter.is_some(), inner, out);
}

fn scan(t: &TableAccess, filtered: bool, depth: usize, out: &mut Vec<String>) {
    let table = &t.table.name;
    let back = if t.reverse { " Backward" } else { "" };
    match &t.access {
        Access::Full => line(depth, format!("Seq Scan{back} on {table}"), out),
        Access::Point(_) => {
            line(depth, format!("Index Scan using {} on {table}", primary(&t.table)), out);
            note(depth, &format!("Index Cond: one key of {}", columns(&t.table, t.table.key_columns())), out);
        }
        Access::Ranges { index, columns: key, ranges } => {
            line(depth, format!("Index Scan{back} using {} on {table}", index_name(&t.table, *index)), out);
            let count = match &**ranges {
                ranges if ranges.iter().any(|r| r.each.is_some()) => "a range for each element".to_owned(),
                [_] => "1 range".to_owned(),
                ranges => format!("{} ranges", ranges.len()),
            };
            note(depth, &format!("Index Cond: {count} of {}", columns(&t.table, key)), out);
        }
    }
    if filtered {
        note(depth, "Filter: yes", out);
    }
}

fn primary(table: &TableDef) -> &str {
    table.primary_key.as_ref().map_or("row order", |k| k.name.as_str())
}

fn index_name(table: &TableDef, index: ScanIndex) -> &str {
    match index {
        ScanIndex::Primary => primary(table),
        ScanIndex::Secondary(id) => table.index(id).map_or("?", |i| i.name.as_str()),
    }
}

fn columns(table: &TableDef, ordinals: &[usize]) -> String {
    let names: Vec<&str> = ordinals.iter().map(|c| table.columns[*c].name.as_str()).collect();
    format!("({})", names.join(", "))
}
