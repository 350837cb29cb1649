//! Chooses the charts for an experiment. The choice depends on the fields of the experiment's result rows,
//! not on the experiment's name.
//!
//! 1. A chart names its experiment, its publication, the emulated drives, and how many measured points are
//!    valid.
//! 2. Everything that a chart shows comes from a result row. A marker shows a published value only if the
//!    publication states the number. Numbers are not read off a printed plot.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::chart::{self, Axes, Bar, Caption, Series};
use super::device::THERE;
use super::tell;
use varve_bench::Result;

/// The most lines of a chart. With more lines a reader could not distinguish them.
const SERIES_MAX: usize = 16;
/// If a row has no field `factors`, its text fields are its factors, except for these.
const NO_FACTORS: [&str; 7] = ["row", "experiment", "figure", "device", "configuration", "scale", "flash"];

/// A figure that a chart shows, from the rows of one kind.
struct Figure {
    row: &'static str,
    field: &'static str,
    /// The part of the chart's file name that names the figure.
    name: &'static str,
    axis: &'static str,
}

const fn figure(row: &'static str, field: &'static str, name: &'static str, axis: &'static str) -> Figure {
    Figure { row, field, name, axis }
}

/// The figures that are shown as bars.
const FIGURES: &[Figure] = &[
    figure("point", "/tps/median", "throughput", "transactions a second, median of the rounds"),
    figure(
        "filling",
        "/seconds_to_peak",
        "seconds-to-peak",
        "seconds of the drives until throughput is at its peak",
    ),
    figure("log", "/tps/median", "throughput", "transactions a second, median of the rounds"),
    figure("rollback-write", "/write_ms", "write-ms", "milliseconds of the drive for a write"),
    figure("rollback-read", "/seconds", "scan-seconds", "seconds of the scan"),
    figure("sort-pattern", "/merge_io_s", "merge-seconds", "seconds of the drive for merges"),
    figure("hash-pattern", "/second_io_s", "second-phase", "seconds of the drive for the second phase"),
    figure(
        "smart-scan",
        "/seconds/median",
        "scan-seconds",
        "seconds of the query, drives and device modelled",
    ),
    figure("smart-scan", "/modelled_joules", "energy", "joules, modelled"),
    figure("smart-scan", "/host_bytes", "host-bytes", "bytes between host and drive or device"),
    figure("load", "/seconds", "seconds", "seconds of the load"),
    figure("load", "/allocated_bytes", "bytes", "bytes of the files' blocks"),
    figure("wear", "/host_bytes", "host-bytes", "bytes written to the drive a transaction"),
    figure("wear", "/flash_bytes", "flash-bytes", "bytes written to flash a transaction, modelled"),
    figure("hole", "/median_us/median", "punch-latency", "microseconds of a hole, median"),
    figure("append", "/amplification/median", "write-amplification", "bytes written for each byte appended"),
    figure("append", "/mean_us/median", "append-latency", "microseconds of an append, mean"),
    figure("drop", "/pages_free_seconds", "pages-free", "seconds until the pages are free"),
    figure("drop", "/blocks_free_seconds", "blocks-free", "seconds until the blocks are free"),
    figure("restart", "/peak_to_peak_seconds", "peak-to-peak", "seconds of the drives from peak to peak"),
    figure("restart", "/sustained_tps", "peak", "transactions a second at the peak"),
    figure(
        "scan",
        "/hit_rate_before",
        "hits-before",
        "part of the pages that the cache had, before the scan",
    ),
    figure(
        "scan",
        "/hit_rate_during",
        "hits-during",
        "part of the pages that the cache had, during the scan",
    ),
    figure("scan", "/hit_rate_after", "hits-after", "part of the pages that the cache had, after the scan"),
];

/// The figures that are shown as lines over a numeric factor: the named one, or the one with the most values.
const BY_NUMBER: &[(Figure, Option<&str>)] = &[
    (figure("point", "/tps/median", "throughput", "transactions a second"), None),
    (figure("join", "/io_s/median", "io-seconds", "seconds of I/O"), None),
    (figure("join", "/total_s/median", "total-seconds", "seconds of I/O and processor"), None),
    (figure("sort", "/io_s/median", "io-seconds", "seconds of I/O"), Some("cluster KiB")),
    (figure("sort", "/io_s/median", "io-seconds", "seconds of I/O"), Some("buffer MiB")),
    (figure("smart-scan", "/seconds/median", "scan-seconds", "seconds of the query"), Some("percent")),
];

/// The figures that are shown over time. Their rows have a field `seconds`.
const COURSES: &[Figure] = &[
    figure("filling", "/tps", "throughput-over-time", "transactions a second"),
    figure("filling", "/hit_rate", "hits-over-time", "part of the pages that the cache had"),
    figure("filling", "/filled_percent", "filled-over-time", "percent of the frames in use"),
];

/// The field of a row with a trace of requests: the seconds and the MiB of each request, by `read` and
/// `write`.
const TRACE: &str = "/trace";

/// The field of a row with the traffic of each drive.
const TRAFFIC: &str = "/mib_per_second";

/// An experiment and its rows, from which its charts are drawn.
pub struct Charts<'a> {
    /// The name of the experiment.
    pub experiment: &'a str,
    /// The publication that the experiment repeats.
    pub source: &'a str,
    /// The rows that the experiment wrote.
    pub rows: &'a [Value],
}

impl Charts<'_> {
    /// Writes all charts into this directory. Returns the names of the files.
    pub fn write(&self, directory: &Path) -> Result<Vec<String>> {
        std::fs::create_dir_all(directory)?;
        let mut charts = Vec::new();
        for figure in FIGURES {
            charts.extend(self.figure_bars(figure)?);
        }
        for (figure, factor) in BY_NUMBER {
            charts.extend(self.by_number(figure, *factor)?);
        }
        for figure in COURSES {
            charts.extend(self.course(figure)?);
        }
        charts.extend(self.traffic()?);
        charts.extend(self.traces()?);
        charts.extend(self.claims()?);
        let mut names = Vec::new();
        for (name, svg) in charts {
            let name = format!("{}-{name}.svg", self.experiment);
            std::fs::write(directory.join(&name), svg)?;
            names.push(name);
        }
        Ok(names)
    }

    fn of_kind(&self, kind: &str) -> Vec<&Value> {
        self.rows.iter().filter(|row| row["row"] == kind).collect()
    }

    fn caption(&self, what: &str, rows: &[&Value], more: &[String]) -> Caption {
        let title = format!("{}: {} ({})", self.experiment, what.replace('-', " "), self.source);
        let mut lines = circumstances(rows);
        lines.extend(shared(rows));
        lines.extend_from_slice(more);
        Caption { title, lines }
    }

    fn figure_bars(&self, figure: &Figure) -> Result<Option<(String, String)>> {
        let rows = self.of_kind(figure.row);
        let has_it: Vec<&Value> =
            rows.into_iter().filter(|row| row.pointer(figure.field).is_some_and(Value::is_number)).collect();
        if has_it.is_empty() {
            return Ok(None);
        }
        let labels = Labels::of(&has_it);
        let bar = |row: &&Value| {
            let value = row.pointer(figure.field).and_then(Value::as_f64).unwrap_or(f64::NAN);
            let is_sound = is_sound(row);
            let note = if is_sound {
                chart::figure(value)
            } else {
                format!("{} (doesn't count)", chart::figure(value))
            };
            Bar { label: labels.text(row), value, note, is_sound, published: None, demanded: None }
        };
        let bars: Vec<Bar> = has_it.iter().map(bar).collect();
        let caption = self.caption(figure.name, &has_it, &[]);
        Ok(Some((figure.name.to_owned(), chart::bars(&caption, figure.axis, &bars)?)))
    }

    /// Returns a chart of a figure by a numeric factor: the named one, or the one with the most values. Each
    /// combination of the other factors is a line.
    fn by_number(&self, figure: &Figure, by: Option<&str>) -> Result<Option<(String, String)>> {
        let rows = self.of_kind(figure.row);
        let Some((factor, values)) = numbers(&rows, by) else { return Ok(None) };
        let labels = Labels::without(&rows, &factor);
        let mut series: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for row in &rows {
            let value = row["factors"][&factor].as_f64().unwrap_or(f64::NAN);
            let at = values.iter().position(|known| *known == value);
            if let (Some(at), Some(shown)) = (at, row.pointer(figure.field).and_then(Value::as_f64)) {
                series.entry(labels.text(row)).or_default().push((at as f64, shown));
            }
        }
        series.retain(|_, points| points.len() > 1);
        if series.is_empty() || series.len() > SERIES_MAX {
            return Ok(None);
        }
        let sorted = |mut points: Vec<(f64, f64)>| {
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            points
        };
        let series: Vec<Series> =
            series.into_iter().map(|(name, points)| Series { name, points: sorted(points) }).collect();
        let ticks: Vec<String> = values.iter().map(f64::to_string).collect();
        let axes = Axes { x: &factor, y: figure.axis, ticks: &ticks, x_end_min: 0.0 };
        let by = format!("{} by {factor}", figure.name);
        let caption = self.caption(&by, &rows, &[doubtful(&rows)]);
        Ok(Some((
            format!("{}-by-{}", figure.name, file_name(&factor)),
            chart::lines(&caption, axes, &series)?,
        )))
    }

    /// Returns a chart of a figure over time, with a line for each row.
    fn course(&self, figure: &Figure) -> Result<Option<(String, String)>> {
        let rows: Vec<&Value> = self
            .of_kind(figure.row)
            .into_iter()
            .filter(|row| !over_time(row, figure.field).is_empty())
            .collect();
        if rows.is_empty() {
            return Ok(None);
        }
        let labels = Labels::of(&rows);
        let series = |row: &&Value| Series { name: labels.text(row), points: over_time(row, figure.field) };
        let series: Vec<Series> = rows.iter().map(series).collect();
        let caption = self.caption(figure.name, &rows, &[doubtful(&rows)]);
        let svg =
            chart::lines(&caption, Axes { x: SECONDS, y: figure.axis, ticks: &[], x_end_min: 0.0 }, &series)?;
        Ok(Some((figure.name.to_owned(), svg)))
    }

    /// Returns charts of the bytes that each drive read and wrote over time. Each row has a chart.
    fn traffic(&self) -> Result<Vec<(String, String)>> {
        let has_it = |row: &&Value| row.pointer(TRAFFIC).is_some_and(Value::is_object);
        let rows: Vec<&Value> = self.rows.iter().filter(has_it).collect();
        let labels = Labels::of(&rows);
        let mut charts = Vec::new();
        for row in &rows {
            let series = traffic_of(row);
            let label = labels.text(row);
            let caption = self.caption("traffic by drive", &[row], &[doubtful(&[row])]);
            let axes = Axes { x: SECONDS, y: "MiB a second", ticks: &[], x_end_min: 0.0 };
            let name = format!("traffic-{}", file_name(&label));
            charts.push((name.trim_end_matches('-').to_owned(), chart::lines(&caption, axes, &series)?));
        }
        Ok(charts)
    }

    /// Returns charts of the addresses of requests over time. Each row has a chart.
    fn traces(&self) -> Result<Vec<(String, String)>> {
        let rows: Vec<&Value> =
            self.rows.iter().filter(|row| row.pointer(TRACE).is_some_and(Value::is_object)).collect();
        let labels = Labels::of(&rows);
        let mut charts = Vec::new();
        for row in &rows {
            let series: Vec<Series> = ["read", "write"].into_iter().map(|way| trace_of(row, way)).collect();
            let label = labels.text(row);
            let caption = self.caption("requests in time and address", &[row], &[doubtful(&[row])]);
            let axes = Axes { x: "seconds", y: "MiB, address in the space", ticks: &[], x_end_min: 0.0 };
            let name = format!("trace-{}", file_name(&label));
            charts.push((name.trim_end_matches('-').to_owned(), chart::dots(&caption, axes, &series)?));
        }
        Ok(charts)
    }

    /// Returns a chart of our ratios as bars, with the published values and the bars of this project.
    fn claims(&self) -> Result<Option<(String, String)>> {
        let rows: Vec<&Value> =
            self.of_kind("claim").into_iter().filter(|row| row["ours"].is_number()).collect();
        if rows.is_empty() {
            return Ok(None);
        }
        let labels = Labels::of(&rows);
        let bar = |row: &&Value| {
            let says = row["says"].as_str().unwrap_or_default();
            let place = labels.text(row);
            let unsaid: Vec<&str> = place.split(", ").filter(|part| !says.contains(part)).collect();
            let label = format!("{says} {}", bracketed(&unsaid.join(", ")));
            let value = row["ours"].as_f64().unwrap_or(f64::NAN);
            let is_sound = row["verdict"] != "not_judged";
            let (published, demanded) = (row["published"].as_f64(), row["bar"].as_f64());
            Bar { label, value, note: verdict_note(row), is_sound, published, demanded }
        };
        let bars: Vec<Bar> = rows.iter().map(bar).collect();
        let measured: Vec<&Value> = self.rows.iter().filter(|row| row["row"] != "claim").collect();
        let mut caption = self.caption("claims", &measured, &[]);
        caption.lines.truncate(circumstances(&measured).len());
        caption.lines.extend(shared(&rows));
        caption.lines.push(
            "Diamond: published, in text or table. Upright line: demanded by this project. Pale: not judged."
                .to_owned(),
        );
        Ok(Some(("claims".to_owned(), chart::bars(&caption, "ours", &bars)?)))
    }
}

/// Returns the reads or the writes of a row's trace, as a series.
fn trace_of(row: &Value, way: &str) -> Series {
    let entries = row.pointer(TRACE).and_then(|trace| trace[way].as_array());
    let point = |entry: &Value| Some((entry[0].as_f64()?, entry[1].as_f64()?));
    Series { name: way.to_owned(), points: entries.into_iter().flatten().filter_map(point).collect() }
}

const SECONDS: &str = "seconds of the drives";

/// Returns the lines of a caption: the emulated drives, their dilation, how many of these rows count, and the
/// scale.
fn circumstances(rows: &[&Value]) -> Vec<String> {
    let emulations: Vec<&Value> =
        rows.iter().map(|row| &row["emulation"]).filter(|emulation| emulation.is_object()).collect();
    let set = |field: &str| {
        let values: BTreeSet<String> =
            emulations.iter().map(|emulation| tell::plain(&emulation[field])).collect();
        values.into_iter().collect::<Vec<_>>()
    };
    let devices: BTreeSet<&str> = rows.iter().filter_map(|row| row["device"].as_str()).collect();
    let mut lines = Vec::new();
    if rows.iter().any(|row| row["flash"] == "modelled") {
        lines.push(
            "Emulated drive in memory; bytes of flash are modelled. No evidence about real devices."
                .to_owned(),
        );
    } else if !emulations.is_empty() {
        lines.push(format!(
            "Emulated drives: {}; dilation {}. Evidence about policies and algorithms, not about real devices.",
            set("profile").join("; "),
            set("dilation").iter().map(|text| text.trim_end_matches(".0")).collect::<Vec<_>>().join(", ")
        ));
        let counting = rows.iter().filter(|row| row["emulation"].is_object() && is_sound(row)).count();
        lines.push(format!("{counting} of {} points count.", emulations.len()));
    } else if devices.iter().any(|device| *device != THERE) {
        let devices: Vec<&str> = devices.into_iter().collect();
        lines.push(format!("Emulated drive: {}. No evidence about real devices.", devices.join("; ")));
    } else {
        lines.push(
            "The machine's own drive, not emulated; nothing is judged that wants an emulated one.".to_owned(),
        );
    }
    let scales: BTreeSet<&str> = rows.iter().filter_map(|row| row["scale"].as_str()).collect();
    let more = if scales.len() > 1 { " (and others)" } else { "" };
    lines.extend(scales.first().map(|scale| format!("Scale {scale}{more}.")));
    lines
}

/// Returns whether a row counts. If the machine's own drive was measured, the row counts, because no
/// emulation can have spoilt it.
fn is_sound(row: &Value) -> bool {
    let is_spoilt = row["emulation"].is_object() && row["not_judged"].is_string();
    !is_spoilt && row["emulation"]["counts"] != false
}

/// Returns a sentence that names the rows that do not count. It is empty if all rows count.
fn doubtful(rows: &[&Value]) -> String {
    let labels = Labels::of(rows);
    let names: Vec<String> = rows.iter().filter(|row| !is_sound(row)).map(|row| labels.text(row)).collect();
    match (names.is_empty(), rows.len()) {
        (true, _) => String::new(),
        (false, 1) => "It doesn't count.".to_owned(),
        (false, _) => format!("These don't count: {}.", names.join("; ")),
    }
}

/// Returns a sentence with the factors that all rows have in common.
fn shared(rows: &[&Value]) -> Option<String> {
    let all: Vec<_> = rows.iter().map(|row| factors(row)).collect();
    let first = all.first()?;
    let is_shared = |(name, value): &(&String, &String)| all.iter().all(|one| one.get(*name) == Some(*value));
    let common: Vec<String> =
        first.iter().filter(is_shared).map(|(name, value)| format!("{name} {value}")).collect();
    (!common.is_empty()).then(|| format!("Where: {}.", common.join(", ")))
}

/// Returns the factors that distinguish a row from others, with their values as text.
fn factors(row: &Value) -> BTreeMap<String, String> {
    let of = |object: &serde_json::Map<String, Value>| {
        object.iter().map(|(name, value)| (name.clone(), tell::plain(value))).collect()
    };
    match (row["factors"].as_object(), row.as_object()) {
        (Some(factors), _) => of(factors),
        (None, Some(fields)) => {
            let is_factor =
                |(name, value): &(&String, &Value)| value.is_string() && !NO_FACTORS.contains(&name.as_str());
            fields.iter().filter(is_factor).map(|(name, value)| (name.clone(), tell::plain(value))).collect()
        }
        (None, None) => BTreeMap::new(),
    }
}

/// Names of rows. A name consists of the factors in which the rows differ.
struct Labels {
    names: Vec<String>,
}

impl Labels {
    fn of(rows: &[&Value]) -> Self {
        Self::without(rows, "")
    }

    fn without(rows: &[&Value], left_out: &str) -> Self {
        let all: Vec<_> = rows.iter().map(|row| factors(row)).collect();
        let names: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
        let differs = |name: &&&String| {
            let values: BTreeSet<_> = all.iter().map(|one| one.get(**name)).collect();
            values.len() > 1 && **name != left_out
        };
        Self { names: names.iter().filter(differs).map(|name| (*name).clone()).collect() }
    }

    fn text(&self, row: &Value) -> String {
        let factors = factors(row);
        let of = |name: &String| {
            let value = factors.get(name)?;
            let tells_nothing = value.starts_with(|c: char| c.is_ascii_digit())
                || ["true", "false", "on", "off", "short", "long"].contains(&value.as_str());
            Some(if tells_nothing { format!("{name} {value}") } else { value.clone() })
        };
        self.names.iter().filter_map(of).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the numeric factor with the most values, and these values in increasing order.
fn numbers(rows: &[&Value], by: Option<&str>) -> Option<(String, Vec<f64>)> {
    let names: BTreeSet<String> = rows.iter().flat_map(|row| factors(row).into_keys()).collect();
    let values = |name: String| {
        let of = |row: &&Value| row["factors"][&name].as_f64();
        let mut values: Vec<f64> = rows.iter().map(of).collect::<Option<_>>()?;
        values.sort_by(f64::total_cmp);
        values.dedup();
        Some((name, values))
    };
    let is_asked = |name: &String| by.is_none_or(|by| by == name);
    let all = names.into_iter().filter(is_asked).filter_map(values).filter(|(_, values)| values.len() > 1);
    // If several factors have equally many values, the first one is chosen.
    all.rev().max_by_key(|(_, values)| values.len())
}

fn over_time(row: &Value, field: &str) -> Vec<(f64, f64)> {
    let all =
        |field: &Value| field.as_array().into_iter().flatten().filter_map(Value::as_f64).collect::<Vec<_>>();
    let seconds = all(&row["seconds"]);
    seconds.into_iter().zip(row.pointer(field).map(all).unwrap_or_default()).collect()
}

fn traffic_of(row: &Value) -> Vec<Series> {
    let drives = row.pointer(TRAFFIC).and_then(Value::as_object).into_iter().flatten();
    let of = |(drive, _): (&String, &Value)| {
        ["read", "written"].map(|way| Series {
            name: format!("{drive} {way}"),
            points: over_time(row, &format!("{TRAFFIC}/{drive}/{way}")),
        })
    };
    let is_any = |series: &Series| series.points.iter().any(|(_, mib)| *mib > 0.0);
    drives.flat_map(of).filter(is_any).collect()
}

fn bracketed(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("({text})") }
}

/// Returns the text at the bar of a claim: our figure, the published value or the bar, and the verdict.
fn verdict_note(row: &Value) -> String {
    let figure = |name: &str| row[name].as_f64().map(chart::figure);
    let mut note = figure("ours").unwrap_or_default();
    note.extend(figure("published").map(|figure| format!("; published {figure}")));
    note.extend(figure("bar").map(|figure| format!("; bar {figure}")));
    let verdict = row["verdict"].as_str().unwrap_or_default().replace('_', " ");
    format!("{note}: {verdict}")
}

fn file_name(text: &str) -> String {
    let plain = text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.', "-");
    plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn point(lambda: u64, redo: &str, tps: f64) -> Value {
        json!({
            "row": "point", "factors": {"lambda": lambda, "redo": redo, "clients": 64}, "tps": {"median": tps},
            "emulation": {"profile": "home hdd-8", "dilation": 2.0, "counts": lambda != 90}, "scale": "tiny: small",
        })
    }

    fn written(rows: &[Value]) -> BTreeMap<String, String> {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let charts = Charts { experiment: "flash-x", source: "Do 2012", rows };
        let names = charts.write(folder.path()).expect("charts");
        let text = |name: &String| std::fs::read_to_string(folder.path().join(name)).expect("an SVG");
        names.iter().map(|name| (name.clone(), text(name))).collect()
    }

    /// Points become bars. If they have a numeric factor, they also become lines. A chart names its
    /// circumstances.
    #[test]
    fn points_become_bars_and_lines() {
        let rows = [
            point(10, "all", 5.0),
            point(90, "all", 9.0),
            point(10, "a pool", 4.0),
            point(90, "a pool", 6.0),
        ];
        let charts = written(&rows);
        let names: Vec<&str> = charts.keys().map(String::as_str).collect();
        assert_eq!(names, ["flash-x-throughput-by-lambda.svg", "flash-x-throughput.svg"]);
        for svg in charts.values() {
            assert!(svg.contains("flash-x") && svg.contains("Do 2012") && svg.contains("hdd-8"), "{svg}");
            assert!(svg.contains("dilation 2") && svg.contains("2 of 4 points count"), "{svg}");
            assert!(svg.contains("a pool") && svg.contains("clients 64"), "{svg}");
        }
    }

    /// A join is a line over the size of the buffer, and a sort over that of its clusters.
    #[test]
    fn joins_and_sorts_become_lines() {
        let join = |megabytes: u64, name: &str, seconds: f64| {
            json!({
                "row": "join", "factors": {"megabytes": megabytes, "join": name}, "device": "hdd-5400",
                "io_s": {"median": seconds}, "total_s": {"median": seconds + 1.0},
            })
        };
        let rows = [join(100, "sort-merge", 3.0), join(200, "sort-merge", 2.0), join(100, "Grace hash", 3.0)];
        let charts = written(&rows);
        let names: Vec<&str> = charts.keys().map(String::as_str).collect();
        assert_eq!(names, ["flash-x-io-seconds-by-megabytes.svg", "flash-x-total-seconds-by-megabytes.svg"]);
        for svg in charts.values() {
            assert!(svg.contains("Emulated drive: hdd-5400") && svg.contains("sort-merge"), "{svg}");
            assert!(!svg.contains("Grace hash"), "one point is no line: {svg}");
        }
    }

    #[test]
    fn claims_have_what_is_published_and_demanded() {
        let claim = |published: Option<f64>, bar: Option<f64>, verdict: &str| json!({"row": "claim", "says": "a / b", "ours": 3.0, "published": published, "bar": bar, "verdict": verdict});
        let charts = written(&[claim(Some(8.0), None, "not"), claim(None, Some(2.0), "met")]);
        let svg = charts.get("flash-x-claims.svg").expect("claims");
        assert_eq!(svg.matches("<polygon").count(), 1, "{svg}");
        assert!(svg.contains("published 8.00: not") && svg.contains("bar 2.00: met"), "{svg}");
        assert!(svg.contains("not emulated"), "{svg}");
    }

    /// Rows of loads have a description of their drive instead of a report of its emulation.
    #[test]
    fn what_is_emulated_is_said_to_be() {
        let load =
            |device: &str| json!({"row": "load", "compression": "lz4", "seconds": 2.0, "device": device});
        for (device, says) in [
            ("sata-ssd-2014 with flushes of 9 us, dilation 1", "Emulated drive: sata"),
            (THERE, "not emulated"),
        ] {
            let charts = written(&[load(device)]);
            let svg = charts.get("flash-x-seconds.svg").expect("a chart");
            assert!(svg.contains(says), "{svg}");
        }
    }

    #[test]
    fn courses_have_a_line_for_each_row_and_drive() {
        let row = |design: &str| {
            json!({
                "row": "filling", "factors": {"design": design}, "seconds": [1.0, 2.0], "tps": [3.0, 4.0],
                "mib_per_second": {"home": {"read": [1.0, 2.0], "written": [0.0, 1.0]}},
            })
        };
        let charts = written(&[row("off"), row("dual-write")]);
        let tps = charts.get("flash-x-throughput-over-time.svg").expect("a course");
        assert!(tps.contains("dual-write") && tps.contains("off"), "{tps}");
        let traffic = charts.get("flash-x-traffic-dual-write.svg").expect("traffic");
        assert!(traffic.contains("home read") && traffic.contains("home written"), "{traffic}");
    }
}
