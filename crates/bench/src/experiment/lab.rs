//! Where points are measured: the scale, the device, the loaded databases, and where rows go.
//!
//! 1. A round has a database to itself: opened on its variant's copy, warmed up, measured, shut down.
//! 2. Rounds of variants alternate: A B C A B C. All variants of a comparison have the same dilation, doubled until all of them count.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use varve_device::{Directory, Emulated, EmulationReport, FileDirectory, FileOptions, Profile};
use varve_engine::Database;
use varve_pager::{PagerConfig, Times, Timing};

use super::copies::{Bench, Copied};
use super::row::{Claim, Emulation, Factors, Point};
use super::table::Table;
use super::verdict::{Better, Verdict};
use crate::driver::{self, Plan, Round, histogram};
use crate::embedded::{Embedded, open_with};
use crate::report::{Configuration, Spread, hash_of};
use crate::target::Target;
use crate::workload::Workload;
use crate::{BenchError, Result};

/// How large and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Its name.
    pub name: &'static str,
    /// Bytes of the buffer pool.
    pub pool_bytes: usize,
    /// Rows of each of sysbench's ten tables.
    pub rows: u64,
    /// Nodes of LinkBench's graph.
    pub nodes: u64,
    /// Seconds of a round.
    pub seconds: u64,
    /// Seconds before it.
    pub warm_seconds: u64,
    /// Rounds.
    pub rounds: usize,
}

impl Scale {
    /// About a minute.
    pub const QUICK: Scale = Scale {
        name: "quick",
        pool_bytes: 8 << 20,
        rows: 100_000,
        nodes: 100_000,
        seconds: 3,
        warm_seconds: 1,
        rounds: 1,
    };
    /// About ten minutes.
    pub const FULL: Scale = Scale {
        name: "full",
        pool_bytes: 64 << 20,
        rows: 800_000,
        nodes: 800_000,
        seconds: 10,
        warm_seconds: 3,
        rounds: 3,
    };
    /// For tests: its figures mean nothing.
    pub const TINY: Scale = Scale {
        name: "tiny",
        pool_bytes: 4 << 20,
        rows: 100,
        nodes: 200,
        seconds: 1,
        warm_seconds: 0,
        rounds: 2,
    };
}

/// Log of a database, for each byte of its pool.
const LOG_BYTES_OF_POOL: u64 = 4;
/// Segments of the log.
const LOG_SEGMENTS: u64 = 8;
/// Pool while a database is loaded.
const LOADING_POOL_BYTES: usize = 256 << 20;
/// Dilation beyond which a point is given up.
const DILATION_MAX: f64 = 16.0;

/// The device of data, undo and log.
#[derive(Debug, Clone)]
pub struct Device(Option<Profile>);

impl Device {
    /// A shipped profile, with another flush time if one is given; `none` for the device that is there.
    pub fn named(profile: &str, flush_us: Option<f64>) -> Result<Self> {
        if profile == "none" {
            return Ok(Self(None));
        }
        let found = Profile::shipped(profile).map_err(|error| BenchError::Arguments(error.to_string()))?;
        Ok(Self(Some(found)).with_flush_us(flush_us))
    }

    /// The same with another flush time.
    pub fn with_flush_us(mut self, flush_us: Option<f64>) -> Self {
        if let (Some(profile), Some(flush_us)) = (&mut self.0, flush_us) {
            profile.flush_us = flush_us;
        }
        self
    }

    fn flush_us(&self) -> f64 {
        self.0.as_ref().map_or(0.0, |profile| profile.flush_us)
    }

    fn describe(&self, dilation: f64) -> String {
        match &self.0 {
            None => "the device that is there".to_owned(),
            Some(profile) => {
                format!("{} with flushes of {} us, dilation {dilation}", profile.name, profile.flush_us)
            }
        }
    }
}

/// A configuration to compare.
#[derive(Clone, Copy)]
pub struct Variant {
    /// Its name in rows.
    pub name: &'static str,
    /// What it changes.
    pub configure: fn(&mut PagerConfig),
}

/// A loaded database.
pub struct Base {
    path: PathBuf,
    page_bytes: usize,
    pool_bytes: usize,
}

/// A variant with its copy of a loaded database.
pub struct Stand {
    variant: Variant,
    copy: Copied,
    page_bytes: usize,
    pool_bytes: usize,
}

/// What one round measured.
struct Measured {
    round: Round,
    counts: Counts,
    configuration: String,
    emulation: Option<EmulationReport>,
}

/// Counters of a database.
#[derive(Default)]
struct Counts {
    written_bytes: BTreeMap<&'static str, u64>,
    pages_read: u64,
    inline: u64,
    ahead: u64,
    database_bytes: u64,
    spent_ns: BTreeMap<&'static str, u64>,
}

impl Counts {
    fn of(database: &Database, times: &Times, page_bytes: usize) -> Self {
        let mut written_bytes = BTreeMap::new();
        for row in database.io().iter().filter(|row| row.space != "temporary") {
            *written_bytes.entry(row.purpose).or_default() += row.written_bytes;
        }
        let pager = database.stats().pager;
        Self {
            written_bytes,
            pages_read: pager.misses + pager.prefetched,
            inline: pager.inline_writes,
            ahead: pager.evict_writes + pager.checkpoint_writes,
            database_bytes: pager.data_pages * page_bytes as u64,
            spent_ns: Timing::ALL.iter().map(|what| (what.name(), times.spent(*what).ns)).collect(),
        }
    }

    fn since(mut self, before: &Counts) -> Self {
        subtract(&mut self.written_bytes, &before.written_bytes);
        subtract(&mut self.spent_ns, &before.spent_ns);
        self.pages_read -= before.pages_read;
        self.inline -= before.inline;
        self.ahead -= before.ahead;
        self
    }
}

fn subtract(from: &mut BTreeMap<&'static str, u64>, before: &BTreeMap<&'static str, u64>) {
    for (name, figure) in from {
        *figure -= before.get(name).copied().unwrap_or(0);
    }
}

/// The place.
pub struct Lab<'a> {
    scale: Scale,
    device: Device,
    bench: Bench,
    clients: Vec<usize>,
    out: &'a mut dyn Write,
    rows: Option<BufWriter<File>>,
    experiment: &'static str,
    figure: &'static str,
}

impl<'a> Lab<'a> {
    /// With databases in `directory`, or in one of its own.
    pub fn new(
        scale: Scale,
        device: Device,
        directory: Option<PathBuf>,
        out: &'a mut dyn Write,
    ) -> Result<Self> {
        let bench = Bench::open(directory)?;
        Ok(Self { scale, device, bench, clients: Vec::new(), out, rows: None, experiment: "", figure: "" })
    }

    /// Sessions to measure with, instead of the experiment's own; none to leave it at those.
    pub fn choose_clients(&mut self, clients: &[usize]) -> Result<()> {
        if clients.contains(&0) {
            return Err(BenchError::Arguments("there must be at least one session".to_owned()));
        }
        clients.clone_into(&mut self.clients);
        Ok(())
    }

    /// Writes rows to a file.
    pub fn write_rows_to(&mut self, path: &Path) -> Result<()> {
        self.rows = Some(BufWriter::new(File::create(path)?));
        Ok(())
    }

    /// Rows belong to this experiment from here.
    pub fn begin(&mut self, experiment: &'static str, figure: &'static str) {
        (self.experiment, self.figure) = (experiment, figure);
    }

    /// Everything is written.
    pub fn end(mut self) -> Result<()> {
        self.rows.as_mut().map_or(Ok(()), Write::flush)?;
        Ok(self.out.flush()?)
    }

    /// The scale.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Changes the flush time of the emulated device from here; `None` for the device's own.
    pub fn device_with_flush_us(&self, flush_us: f64) -> Device {
        self.device.clone().with_flush_us(Some(flush_us))
    }

    /// The device that was asked for.
    pub fn device(&self) -> Device {
        self.device.clone()
    }

    /// The sessions that were asked for; else all of `full`, or those of `quick`.
    pub fn clients(&self, quick: &[usize], full: &[usize]) -> Vec<usize> {
        match () {
            () if !self.clients.is_empty() => self.clients.clone(),
            () if self.scale.name == Scale::FULL.name => full.to_vec(),
            () => quick.to_vec(),
        }
    }

    /// A line for people.
    pub fn say(&mut self, text: &str) -> Result<()> {
        Ok(writeln!(self.out, "{text}")?)
    }

    /// A line for programs.
    fn write_row(&mut self, row: &impl serde::Serialize) -> Result<()> {
        let text = serde_json::to_string(row).map_err(std::io::Error::other)?;
        match &mut self.rows {
            Some(rows) => writeln!(rows, "{text}")?,
            None => writeln!(self.out, "{text}")?,
        }
        Ok(())
    }

    /// A database of pages of this size, loaded under doublewrite without emulation and shut down, for a pool of so many bytes.
    pub fn base(&self, workload: &dyn Workload, page_bytes: usize, pool_bytes: usize) -> Result<Base> {
        let log_bytes = log_bytes(pool_bytes);
        let settings = format!("{} {} {page_bytes} {log_bytes}", workload.name(), workload.settings());
        let name = format!("{}-{}", workload.name(), hash_of(&settings));
        let path = self.bench.base(&name, |path| {
            let config = config(path, None, page_bytes, (LOADING_POOL_BYTES.max(pool_bytes), log_bytes))?;
            let database = open_with(config)?;
            workload.load(Embedded::new(Arc::clone(&database), "").connect(&[])?.as_mut())?;
            Ok(database.shutdown()?)
        })?;
        Ok(Base { path, page_bytes, pool_bytes })
    }

    /// A variant with a copy of its own.
    pub fn stand(&self, base: &Base, variant: Variant) -> Result<Stand> {
        let (page_bytes, pool_bytes) = (base.page_bytes, base.pool_bytes);
        Ok(Stand { variant, copy: self.bench.copy(&base.path, variant.name)?, page_bytes, pool_bytes })
    }

    /// Measures all of them in turns; a point for each, in their order.
    pub fn compare(
        &mut self,
        stands: &[Stand],
        workload: &dyn Workload,
        device: &Device,
        (clients, factors): (usize, &Factors),
    ) -> Result<Vec<Point>> {
        let mut dilation = 1.0;
        loop {
            let points = self.rounds(stands, workload, device, (clients, dilation), factors)?;
            let counts = |point: &Point| point.emulation.as_ref().is_none_or(|emulation| emulation.counts);
            if points.iter().all(counts) || dilation >= DILATION_MAX {
                points.iter().try_for_each(|point| self.write_row(point))?;
                return Ok(points);
            }
            dilation *= 2.0;
        }
    }

    fn rounds(
        &self,
        stands: &[Stand],
        workload: &dyn Workload,
        device: &Device,
        (clients, dilation): (usize, f64),
        factors: &Factors,
    ) -> Result<Vec<Point>> {
        let mut measured: Vec<Vec<Measured>> = stands.iter().map(|_| Vec::new()).collect();
        for round in 1..=self.scale.rounds as u64 {
            for (stand, measured) in stands.iter().zip(&mut measured) {
                measured.push(self.round(stand, workload, device, (clients, dilation, round))?);
            }
        }
        let points = stands.iter().zip(&measured);
        Ok(points.map(|(stand, measured)| self.point(stand, measured, (device, dilation), factors)).collect())
    }

    fn round(
        &self,
        stand: &Stand,
        workload: &dyn Workload,
        device: &Device,
        (clients, dilation, round): (usize, f64, u64),
    ) -> Result<Measured> {
        let emulated = device.0.as_ref().map(|profile| (profile, dilation));
        let (mut config, emulated) = stand.config(emulated)?;
        config.times = Arc::new(Times::on());
        let times = Arc::clone(&config.times);
        let database = open_with(config)?;
        let settings = format!("{}, {}", stand.describe(), device.describe(dilation));
        let target = Embedded::new(Arc::clone(&database), &settings);
        let Scale { seconds, warm_seconds, rounds, .. } = self.scale;
        let plan = Plan { threads: clients, rounds, seconds, warm_seconds };
        if warm_seconds > 0 {
            driver::round(&target, workload, plan, Duration::from_secs(warm_seconds), 2 * round)?;
        }
        let before = Counts::of(&database, &times, stand.page_bytes);
        emulated.as_ref().inspect(|device| device.begin_report());
        let measured = driver::round(&target, workload, plan, Duration::from_secs(seconds), 2 * round + 1)?;
        let emulation = emulated.map(|device| device.report());
        let counts = Counts::of(&database, &times, stand.page_bytes).since(&before);
        let configuration = Configuration::of(&target, workload, plan).hash();
        drop(target);
        database.shutdown()?;
        Ok(Measured { round: measured, counts, configuration, emulation })
    }

    fn point(
        &self,
        stand: &Stand,
        rounds: &[Measured],
        (device, dilation): (&Device, f64),
        factors: &Factors,
    ) -> Point {
        let rates: Vec<f64> = rounds.iter().map(|one| one.round.tps() * dilation).collect();
        let transactions = rounds.iter().map(|one| one.round.transactions).sum::<u64>().max(1) as f64;
        let each = |of: fn(&Counts) -> u64| {
            rounds.iter().map(|one| of(&one.counts)).sum::<u64>() as f64 / transactions
        };
        let mut latency_us: Histogram<u64> = histogram();
        rounds.iter().for_each(|one| latency_us += &one.round.latency_us);
        let mut written_bytes = BTreeMap::new();
        for (purpose, bytes) in rounds.iter().flat_map(|one| &one.counts.written_bytes) {
            *written_bytes.entry(*purpose).or_default() += *bytes as f64 / transactions;
        }
        let latencies_ns = (latency_us.mean() * latency_us.len() as f64 * 1000.0).max(1.0);
        let mut time_share = BTreeMap::new();
        for (what, ns) in rounds.iter().flat_map(|one| &one.counts.spent_ns) {
            *time_share.entry(*what).or_default() += *ns as f64 / latencies_ns;
        }
        let reports: Vec<EmulationReport> = rounds.iter().filter_map(|one| one.emulation.clone()).collect();
        let database_bytes = rounds.last().map_or(0, |one| one.counts.database_bytes);
        let mut factors = factors.clone();
        factors.insert("variant", stand.variant.name.into());
        Point {
            row: "point",
            experiment: self.experiment,
            figure: self.figure,
            factors,
            configuration: rounds.last().map_or_else(String::new, |one| one.configuration.clone()),
            scale: stand.scale(self.scale.name, database_bytes),
            rounds: rounds.len(),
            tps: Spread::of(&rates),
            latency_mean_us: latency_us.mean() / dilation,
            latency_p99_us: latency_us.value_at_quantile(0.99) as f64 / dilation,
            written_bytes,
            pages_read: each(|counts| counts.pages_read),
            pages_written_inline: each(|counts| counts.inline),
            pages_written_ahead: each(|counts| counts.ahead),
            time_share,
            database_bytes,
            emulation: Emulation::worst(&reports, device.flush_us()),
        }
    }

    /// Judges the throughput of one point over another's.
    pub fn claim(
        &mut self,
        says: &str,
        (over, under): (&Point, &Point),
        published: Option<f64>,
        better: Better,
    ) -> Result<Claim> {
        let ours = over.tps.median / under.tps.median;
        let verdict = match (over.not_judged().or_else(|| under.not_judged()), published) {
            (_, None) => Verdict::NotInText,
            (Some(reason), Some(_)) => Verdict::NotJudged(reason),
            (None, Some(published)) => Verdict::of(ours, published, better),
        };
        let claim = Claim {
            row: "claim",
            experiment: self.experiment,
            figure: self.figure,
            factors: under.factors.clone(),
            says: says.to_owned(),
            ours,
            published,
            verdict,
        };
        self.write_row(&claim)?;
        Ok(claim)
    }

    /// The tables for people.
    pub fn tell(&mut self, points: &[Point], claims: &[Claim]) -> Result<()> {
        let (points_text, times_text) = (table_of_points(points), table_of_times(points));
        let text = format!("\n{points_text}\n{times_text}{}", table_of_claims(claims));
        if let Some(point) = points.first() {
            self.say(&point.scale)?;
        }
        self.say(&text)
    }
}

impl Stand {
    fn config(&self, emulated: Option<(&Profile, f64)>) -> Result<(PagerConfig, Option<Arc<Emulated>>)> {
        let path = self.copy.path();
        let files = FileDirectory::open(path, FileOptions::default()).map_err(std::io::Error::other)?;
        let emulated = emulated.map(|(profile, dilation)| Emulated::wrap(files, profile.clone(), dilation));
        let device = emulated.clone().map(|device| device as Arc<dyn Directory>);
        let mut config =
            config(path, device, self.page_bytes, (self.pool_bytes, log_bytes(self.pool_bytes)))?;
        (self.variant.configure)(&mut config);
        Ok((config, emulated))
    }

    fn describe(&self) -> String {
        let (page_bytes, pool_bytes) = (self.page_bytes, self.pool_bytes);
        format!(
            "{}, pages of {page_bytes} bytes, pool {pool_bytes}, log {}",
            self.variant.name,
            log_bytes(pool_bytes)
        )
    }

    fn scale(&self, name: &str, database_bytes: u64) -> String {
        let ratio = database_bytes as f64 / self.pool_bytes as f64;
        format!(
            "{name}: {} MiB of data pages, {ratio:.1} times the pool, log {LOG_BYTES_OF_POOL} times the pool; device times as they are",
            database_bytes >> 20
        )
    }
}

fn log_bytes(pool_bytes: usize) -> u64 {
    pool_bytes as u64 * LOG_BYTES_OF_POOL
}

/// Data, undo, log and control file on `device`, or on the directory itself; temporary files beside it.
fn config(
    path: &Path,
    device: Option<Arc<dyn Directory>>,
    page_bytes: usize,
    (pool_bytes, log_bytes): (usize, u64),
) -> Result<PagerConfig> {
    let open = |path: &Path| {
        FileDirectory::open_or_create(path, FileOptions::default()).map_err(std::io::Error::other)
    };
    let mut config = PagerConfig::new(match device {
        Some(device) => device,
        None => open(path)?,
    });
    config.temporary = open(&path.join("temporary"))?;
    config.page_size = page_bytes;
    config.pool_bytes = pool_bytes;
    config.log_capacity_bytes = log_bytes;
    config.log_segment_bytes = log_bytes / LOG_SEGMENTS;
    Ok(config)
}

fn table_of_points(points: &[Point]) -> Table {
    let Some(first) = points.first() else { return Table::headed(&["no points"]) };
    let mut head: Vec<&str> = first.factors.keys().copied().collect();
    head.extend(["tps", "mean ms", "p99 ms", "written KiB/tx", "doublewrite", "log", "read pages/tx"]);
    head.extend(["inline", "ahead", "dilation", "error %", "busy %", "cpu %"]);
    let mut table = Table::headed(&head);
    for point in points {
        let plain =
            |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut line: Vec<String> = point.factors.values().map(plain).collect();
        let kib = |purpose| point.written_bytes.get(purpose).copied().unwrap_or(0.0) / 1024.0;
        line.push(point.tps.to_string());
        let figures = [
            point.latency_mean_us / 1000.0,
            point.latency_p99_us / 1000.0,
            point.written_bytes_all() / 1024.0,
            kib("doublewrite"),
            kib("log"),
            point.pages_read,
            point.pages_written_inline,
            point.pages_written_ahead,
        ];
        line.extend(figures.map(|figure| format!("{figure:.2}")));
        line.extend(emulation_cells(point.emulation.as_ref()));
        table.push(line);
    }
    table
}

/// Where time went, in percent of the sum of latencies.
fn table_of_times(points: &[Point]) -> Table {
    let Some(first) = points.first() else { return Table::headed(&["no points"]) };
    let mut head: Vec<&str> = first.factors.keys().copied().collect();
    head.extend(Timing::ALL.map(Timing::name));
    let mut table = Table::headed(&head);
    for point in points {
        let mut line: Vec<String> = point.factors.values().map(plain).collect();
        let percent = |what: Timing| 100.0 * point.time_share.get(what.name()).copied().unwrap_or(0.0);
        line.extend(Timing::ALL.map(|what| format!("{:.2} %", percent(what))));
        table.push(line);
    }
    table
}

fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn emulation_cells(emulation: Option<&Emulation>) -> [String; 4] {
    emulation.map_or_else(Default::default, |emulation| {
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        [
            emulation.dilation.to_string(),
            percent(emulation.model_error_share),
            percent(emulation.busy_share),
            percent(emulation.cpu_share),
        ]
    })
}

fn table_of_claims(claims: &[Claim]) -> String {
    if claims.is_empty() {
        return String::new();
    }
    let mut table = Table::headed(&["claim", "clients", "ours", "published", "verdict"]);
    for claim in claims {
        table.push(vec![
            claim.says.clone(),
            claim.factors.get("clients").map_or_else(String::new, ToString::to_string),
            format!("{:.2}", claim.ours),
            claim.published.map_or_else(|| "not in text".to_owned(), |value| format!("{value:.2}")),
            claim.verdict.to_string(),
        ]);
    }
    format!("\n{table}")
}
