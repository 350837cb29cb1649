//! Draws the I/O trace of a server: the time and the address of each request, with one panel for each space
//! of each device (as figures 4 to 8 of Lee 2008).
//!
//! The input is the view `varve_io_trace` as CSV with a header.
//!
//! Invariants
//! 1. A line that cannot be read is an error with its number. The picture never leaves out a line silently.
//! 2. If a panel has too many requests, only every n-th one is drawn, and the caption says so.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use varve_bench::{BenchError, Result};
use varve_device::{Purpose, Space, Timed, TraceEntry};

use crate::experiment::chart::{self, Axes, Caption, Panel, Series};
use crate::experiment::trace::{DRAWN_MAX, MIB, end_to_end, thinned};

/// What to draw.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The view varve_io_trace as CSV with a header, or - for standard input
    file: PathBuf,
    /// The picture (SVG)
    #[arg(long)]
    out: PathBuf,
    /// Draw this space only: control, data, log, rollback, temporary, nvm or flash
    #[arg(long)]
    space: Option<String>,
}

impl TraceArgs {
    /// Reads the trace, draws it, and writes the picture.
    pub fn execute(&self) -> Result<()> {
        let text: Box<dyn Read> = match self.file.to_str() {
            Some("-") => Box::new(std::io::stdin()),
            _ => Box::new(std::fs::File::open(&self.file).map_err(|error| at(&self.file, error))?),
        };
        let only = self.space.as_deref().map(|name| by_name("space", name, &Space::ALL, Space::name));
        let only = only.transpose().map_err(BenchError::Arguments)?;
        let requests = read(text)?;
        let svg =
            draw(requests.iter().filter(|request| only.is_none_or(|space| request.entry.space == space)))?;
        Ok(std::fs::write(&self.out, svg).map_err(|error| at(&self.out, error))?)
    }
}

fn at(path: &Path, error: std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A line of the view.
#[derive(Debug, Deserialize)]
struct Line {
    device: String,
    start_us: f64,
    duration_us: f64,
    operation: String,
    space: String,
    purpose: String,
    file: u32,
    offset_bytes: u64,
    length_bytes: u64,
}

/// A request to a device.
struct Request {
    device: String,
    entry: TraceEntry,
}

fn by_name<T: Copy>(
    what: &str,
    name: &str,
    all: &[T],
    of: fn(T) -> &'static str,
) -> std::result::Result<T, String> {
    all.iter().copied().find(|one| of(*one) == name).ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|one| of(*one)).collect();
        format!("there is no {what} {name:?}: choose one of {}", known.join(", "))
    })
}

fn read(text: impl Read) -> Result<Vec<Request>> {
    let mut requests = Vec::new();
    let mut records = csv::Reader::from_reader(text);
    let failed = |why: String| BenchError::Arguments(format!("the trace: {why}"));
    let header = records.headers().map_err(|error| failed(error.to_string()))?.clone();
    for record in records.into_records() {
        let record = record.map_err(|error| failed(error.to_string()))?;
        let number = record.position().map_or(0, csv::Position::line);
        let line: Line =
            record.deserialize(Some(&header)).map_err(|error| failed(format!("line {number}: {error}")))?;
        let request = line.request().map_err(|why| failed(format!("line {number}: {why}")))?;
        requests.push(request);
    }
    Ok(requests)
}

impl Line {
    fn request(self) -> std::result::Result<Request, String> {
        let ns = |what: &str, us: f64| match us.is_finite() && us >= 0.0 {
            true => Ok((us * 1e3) as u64),
            false => Err(format!("{what} is {us}, and no time")),
        };
        self.offset_bytes.checked_add(self.length_bytes).ok_or("no file is that long")?;
        let entry = TraceEntry {
            start_ns: ns("start_us", self.start_us)?,
            took_ns: ns("duration_us", self.duration_us)?,
            space: by_name("space", &self.space, &Space::ALL, Space::name)?,
            file: self.file,
            offset: self.offset_bytes,
            len_bytes: self.length_bytes,
            what: by_name("operation", &self.operation, &Timed::ALL, Timed::name)?,
            why: by_name("purpose", &self.purpose, &Purpose::ALL, Purpose::name)?,
        };
        Ok(Request { device: self.device, entry })
    }
}

/// Draws requests, with one panel for each device and space.
fn draw<'a>(requests: impl Iterator<Item = &'a Request>) -> Result<String> {
    let mut panels: BTreeMap<(usize, &str), Vec<TraceEntry>> = BTreeMap::new();
    // A flush has no address.
    for Request { device, entry } in requests.filter(|request| request.entry.what != Timed::Flush) {
        panels.entry((entry.space as usize, device.as_str())).or_default().push(*entry);
    }
    if panels.is_empty() {
        return Err(BenchError::Arguments("the trace has no reads and no writes to draw".into()));
    }
    let count: usize = panels.values().map(Vec::len).sum();
    let (mut drawn, mut thinned) = (Vec::new(), false);
    for ((space, device), entries) in &mut panels {
        end_to_end(entries);
        thinned |= entries.len() > DRAWN_MAX;
        let title = format!("{} on {device}: {} requests", Space::ALL[*space].name(), entries.len());
        drawn.push(Panel { title, series: series(entries) });
    }
    let mut lines = vec![format!(
        "{count} reads and writes. The files of a space lie one after the other, in the order of their first request."
    )];
    if thinned {
        lines.push(format!("Of a panel with more than {DRAWN_MAX} requests, every n-th request is drawn."));
    }
    let caption = Caption { title: "Requests to the devices, by time and address".into(), lines };
    let axes = Axes { x: "seconds since the trace began", y: "MiB", ticks: &[], x_end_min: 0.0 };
    chart::panels(&caption, axes, &drawn)
}

/// Returns one series for each purpose and direction.
fn series(entries: &[TraceEntry]) -> Vec<Series> {
    let mut series: BTreeMap<(usize, bool), Series> = BTreeMap::new();
    for entry in thinned(entries.iter(), entries.len()) {
        let is_read = entry.what == Timed::Read;
        let name = || format!("{}, {}", entry.why.name(), if is_read { "read" } else { "write" });
        let one = series.entry((entry.why as usize, is_read));
        let one = one.or_insert_with(|| Series { name: name(), points: Vec::new() });
        one.points.push((entry.start_ns as f64 / 1e9, entry.offset as f64 / MIB));
    }
    series.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "device,start_us,duration_us,operation,space,purpose,file,offset_bytes,length_bytes\n";

    fn error_of(text: &str) -> String {
        read(text.as_bytes()).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_picture_has_a_panel_for_each_space_and_a_series_for_each_purpose() {
        let lines = "\
            \"/mnt/a, b\",1.5,10,durable write,log,log,3,4096,512\n\
            \"/mnt/a, b\",20,10,read,data,data page,1,8192,8192\n\
            \"/mnt/a, b\",30,10,write,data,data page,1,8192,8192\n\
            \"/mnt/a, b\",40,9000,flush,data,data page,1,0,0\n";
        let requests = read(format!("{HEADER}{lines}").as_bytes()).unwrap();
        let svg = draw(requests.iter()).unwrap();
        for text in
            ["log on /mnt/a, b: 1 requests", "data on /mnt/a, b: 2 requests", "data page, read", "3 reads"]
        {
            assert!(svg.contains(text), "{text}\n{svg}");
        }
        assert!(!svg.contains("flush"), "a flush has no address");
    }

    #[test]
    fn an_unusable_line_is_named() {
        let bad = "d,1,1,read,nowhere,data page,1,0,8192\n";
        let message = error_of(&format!("{HEADER}{bad}"));
        assert!(message.contains("line 2") && message.contains("there is no space \"nowhere\""), "{message}");
        assert!(error_of("device,start_us\nd,1\n").contains("line 2"));
        assert!(error_of(&format!("{HEADER}d,1,1,read,data,data page,1,-1,8192\n")).contains("line 2"));
        for times in ["-1,1", "NaN,1", "1,inf"] {
            let message = error_of(&format!("{HEADER}d,{times},read,data,data page,1,0,8192\n"));
            assert!(message.contains("line 2") && message.contains("no time"), "{times}: {message}");
        }
        let beyond = format!("{HEADER}d,1,1,read,data,data page,1,{},8192\n", u64::MAX);
        assert!(error_of(&beyond).contains("line 2: no file is that long"), "{}", error_of(&beyond));
        assert!(draw(std::iter::empty()).is_err());
    }

    /// If there are too many requests, a panel shows a part of them, and the caption says so.
    #[test]
    fn too_many_requests_are_thinned() {
        let entry = |n: usize| TraceEntry {
            start_ns: n as u64,
            took_ns: 1,
            space: Space::Log,
            file: 1,
            offset: 0,
            len_bytes: 512,
            what: Timed::Write,
            why: Purpose::Log,
        };
        let request = |n| Request { device: "d".into(), entry: entry(n) };
        let requests: Vec<Request> = (0..=2 * DRAWN_MAX).map(request).collect();
        let svg = draw(requests.iter()).unwrap();
        assert!(svg.contains("every n-th request is drawn"));
        assert!(svg.matches("<circle").count() <= DRAWN_MAX, "{}", svg.matches("<circle").count());
        assert!(!draw(requests[..DRAWN_MAX].iter()).unwrap().contains("every n-th request is drawn"));
    }
}
