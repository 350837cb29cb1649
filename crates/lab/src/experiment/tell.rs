//! Prints tables of measured points, of times and of claims.

use serde_json::Value;
use varve_pager::Timing;

use super::claim::Claim;
use super::row::{Emulation, Factors, Point};
use super::table::TextTable;
use super::verdict::Verdict;

/// The purposes of written bytes that have a column of their own, with the head of the column.
const PURPOSES: [(&str, &str); 4] =
    [("doublewrite", "doublewrite"), ("log", "log"), ("data page", "data"), ("undo page", "undo")];

/// Returns the table of points. Bytes are averages for a transaction.
pub fn points(points: &[Point]) -> TextTable {
    let Some(first) = points.first() else { return TextTable::headed(&["no points"]) };
    let mut head: Vec<&str> = first.factors.keys().copied().collect();
    head.extend(["tps", "mean ms", "p99 ms", "drive KiB"]);
    head.extend(PURPOSES.map(|(_, head)| head));
    head.extend(["NVM KiB", "home/put", "stored", "drive reads", "NVM reads", "inline", "ahead"]);
    head.extend(["counts", "dilation", "error %", "busy %", "cpu %"]);
    let mut table = TextTable::headed(&head);
    for point in points {
        let mut line: Vec<String> = first.factors.keys().map(|name| cell(&point.factors, name)).collect();
        line.push(point.tps.to_string());
        let kib = |purpose| point.written_bytes.get(purpose).copied().unwrap_or(0.0) / 1024.0;
        let mut figures = vec![
            point.latency_mean_us / 1000.0,
            point.latency_p99_us / 1000.0,
            point.written_bytes_all() / 1024.0,
        ];
        figures.extend(PURPOSES.map(|(purpose, _)| kib(purpose)));
        figures.push(point.nvm_bytes.values().sum::<f64>() / 1024.0);
        line.extend(figures.iter().map(|figure| format!("{figure:.2}")));
        line.push(part(point.level("nvm.home_pages"), point.level("nvm.puts")));
        line.push(part(point.level("home.stored_bytes"), point.level("home.plain_bytes")));
        let from_nvm = point.level("nvm.read_hits");
        let read = [point.pages_read - from_nvm, from_nvm];
        let written = [point.pages_written_inline, point.pages_written_ahead];
        line.extend([read, written].as_flattened().iter().map(|pages| format!("{pages:.2}")));
        line.extend(emulation_cells(point.emulation.as_ref()));
        table.push(line);
    }
    table
}

/// Returns the table of times by purpose, in percent of the sum of all latencies.
pub fn times(points: &[Point]) -> TextTable {
    let Some(first) = points.first() else { return TextTable::headed(&["no points"]) };
    let mut head: Vec<&str> = first.factors.keys().copied().collect();
    head.extend(Timing::ALL.map(Timing::name));
    let mut table = TextTable::headed(&head);
    for point in points {
        let mut line: Vec<String> = first.factors.keys().map(|name| cell(&point.factors, name)).collect();
        line.extend(Timing::ALL.map(|what| format!("{:.3} %", 100.0 * point.share(what.name()))));
        table.push(line);
    }
    table
}

/// Returns the table of latencies: mean and 99th percentile of each kind of transaction, in milliseconds.
pub fn kinds(points: &[Point]) -> TextTable {
    let Some(first) = points.first() else { return TextTable::headed(&["no points"]) };
    let mut head: Vec<&str> = first.factors.keys().copied().collect();
    head.extend(["kind", "mean ms", "p99 ms"]);
    let mut table = TextTable::headed(&head);
    for point in points {
        for (kind, latency) in &point.kinds {
            let mut line: Vec<String> = first.factors.keys().map(|name| cell(&point.factors, name)).collect();
            line.push((*kind).to_owned());
            line.extend([latency.mean_us, latency.p99_us].map(|us| format!("{:.3}", us / 1000.0)));
            table.push(line);
        }
    }
    table
}

/// Returns the table of KiB written for each transaction, in each tenth of a round.
pub fn over_time(points: &[Point]) -> TextTable {
    let Some(first) = points.first() else { return TextTable::headed(&["no points"]) };
    let tenths: Vec<String> = (1..=first.written_over_time.len()).map(|tenth| tenth.to_string()).collect();
    let mut head: Vec<&str> = first.factors.keys().copied().collect();
    head.extend(tenths.iter().map(String::as_str));
    let mut table = TextTable::headed(&head);
    for point in points {
        let mut line: Vec<String> = first.factors.keys().map(|name| cell(&point.factors, name)).collect();
        line.extend(point.written_over_time.iter().map(|bytes| format!("{:.2}", bytes / 1024.0)));
        table.push(line);
    }
    table
}

/// Returns the table of claims as text. It is empty if there are no claims.
pub fn claims(claims: &[Claim]) -> String {
    if claims.is_empty() { String::new() } else { format!("\n{}", claims_table(claims)) }
}

/// Returns the table of claims.
pub fn claims_table(claims: &[Claim]) -> TextTable {
    let mut table = TextTable::headed(&["claim", "where", "ours", "of", "published", "bar", "verdict"]);
    for claim in claims {
        let figure = |value: Option<f64>, missing: &str| value.map_or_else(|| missing.to_owned(), short);
        let is_ours = claim.bar.is_some() || claim.verdict == Verdict::NoBar;
        let published = if is_ours { "" } else { "not in text" };
        table.push(vec![
            claim.says.clone(),
            place(&claim.factors),
            short(claim.ours),
            claim.rounds.map_or_else(String::new, rounds),
            figure(claim.published, published),
            figure(claim.bar, ""),
            claim.verdict.to_string(),
        ]);
    }
    table
}

/// Returns the number of rounds from which a ratio was computed. A single round does not show how much the
/// ratio varies.
fn rounds(rounds: usize) -> String {
    if rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") }
}

/// Returns a figure as text: with two digits after the point, or with five if the figure is small.
pub fn short(value: f64) -> String {
    if value.abs() >= 0.1 || value == 0.0 { format!("{value:.2}") } else { format!("{value:.5}") }
}

/// Returns the factors as one line of text.
pub fn place(factors: &Factors) -> String {
    let named: Vec<String> = factors.iter().map(|(name, value)| format!("{name} {}", plain(value))).collect();
    named.join(", ")
}

fn cell(factors: &Factors, name: &str) -> String {
    factors.get(name).map_or_else(String::new, plain)
}

/// Returns a JSON value as text, without quotes.
pub fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns a part of a whole, as text. It is empty if the whole is 0.
fn part(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.2}", part / whole) } else { String::new() }
}

/// Returns the text of a cell which says whether a row counts.
pub fn counts(emulation: Option<&Emulation>) -> String {
    match emulation {
        None => "real".to_owned(),
        Some(emulation) if emulation.counts => format!("yes, dilation {}", emulation.dilation),
        Some(emulation) => emulation.spoilt(),
    }
}

fn emulation_cells(emulation: Option<&Emulation>) -> [String; 5] {
    emulation.map_or_else(Default::default, |emulation| {
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        let counts = if emulation.counts { "yes" } else { "doesn't count" };
        [
            counts.to_owned(),
            emulation.dilation.to_string(),
            percent(emulation.model_error_share),
            percent(emulation.busy_share),
            percent(emulation.cpu_share),
        ]
    })
}
