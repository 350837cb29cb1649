//! The environment of all experiments: sizes, the drives, the loaded databases, and the output of result
//! rows.
//!
//! 1. One round opens a database on its variant's copy, warms it up, measures it and shuts it down. No other
//!    database is open meanwhile.
//! 2. Rounds of the compared variants alternate: A B C A B C. All of them use the same dilation (the factor
//!    on the drives' times). The dilation is doubled until the machine can emulate the drives for all
//!    variants. Later comparisons begin with the last dilation. So comparisons with fewer sessions, which
//!    need a smaller dilation, come first.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::charts::Charts;
use super::claim::{Claim, Comparison};
use super::copies::{Bench, Copied};
use super::device::Device;
use super::measure::{self, Conditions, Measured};
use super::row::{Factors, Judged, Point, Subject};
use super::scale::{ByScale, Scale};
use super::stand::{Loaded, Sizes, Stand, Variant};
use super::table::TextTable;
use super::tell;
use varve_bench::workload::Workload;
use varve_bench::{BenchError, Result};

/// The largest dilation. A point that still doesn't count is shown without a verdict.
const DILATION_MAX: f64 = 8.0;

/// The values of a factor that the user asked for.
struct Only {
    factor: String,
    values: BTreeSet<String>,
    /// Whether any point had the factor.
    is_known: Cell<bool>,
}

/// The environment of measurements.
pub struct Lab<'a> {
    scale: Scale,
    /// The scale before the preferences of an experiment.
    asked: Scale,
    device: Device,
    bench: Bench,
    clients: Vec<usize>,
    kills: Vec<usize>,
    only: Vec<Only>,
    out: &'a mut dyn Write,
    rows: Option<BufWriter<File>>,
    /// A file for tables in Markdown.
    markdown: Option<File>,
    /// The directory for charts, if the user wants them, and the rows of the experiment from which they are
    /// drawn.
    charts: Option<(PathBuf, Vec<serde_json::Value>)>,
    experiment: &'static str,
    figure: &'static str,
    dilation: f64,
    /// The program `varve-lab`, if it is not this process's.
    program: Option<PathBuf>,
}

/// One call of a comparison that counts only if the emulation kept up.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// The factor of all device times.
    pub dilation: f64,
    /// Whether the call must return results.
    pub is_last: bool,
}

impl<'a> Lab<'a> {
    /// Databases are in `directory`, or in a new one. Regions of persistent memory are in `memory`, or in the
    /// machine's memory.
    pub fn new(
        scale: Scale,
        device: Device,
        (directory, memory): (Option<PathBuf>, Option<PathBuf>),
        out: &'a mut dyn Write,
    ) -> Result<Self> {
        let bench = Bench::open(directory, memory)?;
        let (experiment, figure) = ("", "");
        Ok(Self {
            scale,
            asked: scale,
            device,
            bench,
            clients: Vec::new(),
            kills: Vec::new(),
            only: Vec::new(),
            out,
            rows: None,
            markdown: None,
            charts: None,
            experiment,
            figure,
            dilation: 1.0,
            program: None,
        })
    }

    /// Sets the program `varve-lab`, for a caller that is another one.
    pub fn set_program(&mut self, program: &Path) {
        self.program = Some(program.to_owned());
    }

    /// The program that experiments run in processes of their own.
    pub fn program(&self) -> Result<PathBuf> {
        Ok(self.program.clone().map_or_else(std::env::current_exe, Ok)?)
    }

    /// Sets the numbers of sessions instead of those of the experiment. An empty list changes nothing.
    pub fn choose_clients(&mut self, clients: &[usize]) -> Result<()> {
        if clients.contains(&0) {
            return Err(BenchError::Arguments("there must be at least one session".to_owned()));
        }
        clients.clone_into(&mut self.clients);
        Ok(())
    }

    /// Sets the numbers of transactions behind which processes are killed, instead of those of the experiment.
    /// An empty list changes nothing.
    pub fn choose_kills(&mut self, kills: &[usize]) {
        kills.clone_into(&mut self.kills);
        self.kills.sort_unstable();
    }

    /// The numbers that the user asked for, if any.
    pub fn kills(&self) -> Option<&[usize]> {
        (!self.kills.is_empty()).then_some(&self.kills)
    }

    /// Measures only points whose factors have these values, each given as `factor=value`. Points without
    /// such a factor are kept.
    pub fn choose_points(&mut self, wanted: &[String]) -> Result<()> {
        for wanted in wanted {
            let (factor, value) = wanted.split_once('=').ok_or_else(|| {
                BenchError::Arguments(format!(
                    "{wanted}: points are chosen by factor=value, such as theta=0.99"
                ))
            })?;
            match self.only.iter_mut().find(|only| only.factor == factor) {
                Some(only) => drop(only.values.insert(value.to_owned())),
                None => {
                    let (factor, values) = (factor.to_owned(), BTreeSet::from([value.to_owned()]));
                    self.only.push(Only { factor, values, is_known: Cell::new(false) });
                }
            }
        }
        Ok(())
    }

    /// Whether the user asked for points with these factors.
    pub fn wants(&self, factors: &Factors) -> bool {
        self.only.iter().all(|only| match factors.get(only.factor.as_str()) {
            None => true,
            Some(value) => {
                only.is_known.set(true);
                only.values.contains(&tell::plain(value))
            }
        })
    }

    /// Writes rows to a file.
    pub fn write_rows_to(&mut self, path: &Path) -> Result<()> {
        self.rows = Some(BufWriter::new(File::create(path)?));
        Ok(())
    }

    /// Writes the tables of [`Lab::say_tables`] to a file, too, in Markdown.
    pub fn write_markdown_to(&mut self, path: &Path) -> Result<()> {
        self.markdown = Some(File::create(path)?);
        Ok(())
    }

    /// Draws each experiment's charts in this directory.
    pub fn draw_charts_in(&mut self, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory)?;
        self.charts = Some((directory.to_owned(), Vec::new()));
        Ok(())
    }

    /// Draws the charts of the experiment, if the user wants them.
    pub fn draw(&mut self) -> Result<()> {
        let Some((directory, rows)) = &mut self.charts else { return Ok(()) };
        let (directory, rows) = (directory.clone(), std::mem::take(rows));
        let charts = Charts { experiment: self.experiment, source: self.figure, rows: &rows };
        let names = charts.write(&directory)?;
        self.say(&format!("charts in {}: {}", directory.display(), names.join(", ")))
    }

    /// Begins an experiment: later rows belong to it.
    pub fn begin(&mut self, experiment: &'static str, figure: &'static str) {
        (self.experiment, self.figure, self.dilation) = (experiment, figure, 1.0);
        self.scale = self.asked;
    }

    /// Sets the lengths of rounds and of their warm-up in milliseconds, in quick and in full, unless the user
    /// asked for another length.
    pub fn prefer_lengths(&mut self, round_ms: ByScale<u64>, warm_ms: ByScale<u64>) {
        let is_full = self.scale.is_full();
        let own = if is_full { Scale::FULL } else { Scale::QUICK };
        if self.scale.name == own.name && self.scale.warm_ms == own.warm_ms {
            self.scale.warm_ms = warm_ms.of(is_full);
        }
        if self.scale.name == own.name && self.scale.round_ms == own.round_ms {
            self.scale.round_ms = round_ms.of(is_full);
        }
    }

    /// Sets the number of rounds, in quick and in full, unless the user asked for another number.
    pub fn prefer_rounds(&mut self, rounds: ByScale<usize>) {
        let is_full = self.scale.is_full();
        let own = if is_full { Scale::FULL } else { Scale::QUICK };
        if self.scale.name == own.name && self.scale.rounds == own.rounds {
            self.scale.rounds = rounds.of(is_full);
        }
    }

    /// Runs a comparison that counts only if the emulation kept up. While `run` returns `None`, it is called
    /// again with all device times doubled. Later comparisons of the experiment begin with the same dilation.
    pub fn dilated<T>(&mut self, mut run: impl FnMut(&mut Self, Attempt) -> Result<Option<T>>) -> Result<T> {
        loop {
            let is_last = self.dilation >= DILATION_MAX;
            if let Some(done) = run(self, Attempt { dilation: self.dilation, is_last })? {
                return Ok(done);
            }
            assert!(!is_last, "the last time it gives what it has");
            let (spoilt, next) = (self.dilation, 2.0 * self.dilation);
            self.say(&format!("at dilation {spoilt} the emulation did not keep up: again at {next}"))?;
            self.dilation = next;
        }
    }

    /// Writes everything that is still buffered.
    pub fn end(mut self) -> Result<()> {
        self.rows.as_mut().map_or(Ok(()), Write::flush)?;
        self.out.flush()?;
        match self.only.iter().find(|only| !only.is_known.get()) {
            None => Ok(()),
            Some(Only { factor, .. }) => {
                Err(BenchError::Arguments(format!("no point has a factor {factor}: all were measured")))
            }
        }
    }

    /// The scale.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// The device that the user asked for.
    pub fn device(&self) -> Device {
        self.device.clone()
    }

    /// The numbers of sessions that the user asked for, or those of `full` or `quick`, in increasing order.
    pub fn clients(&self, quick: &[usize], full: &[usize]) -> Vec<usize> {
        let mut clients = match () {
            () if !self.clients.is_empty() => self.clients.clone(),
            () if self.scale.is_full() => full.to_vec(),
            () => quick.to_vec(),
        };
        clients.sort_unstable();
        clients
    }

    /// A line for people.
    pub fn say(&mut self, text: &str) -> Result<()> {
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Tables for people. A document gets them in Markdown, if the user named its file.
    pub fn say_tables(&mut self, tables: &[TextTable]) -> Result<()> {
        for table in tables.iter().filter(|table| !table.is_empty()) {
            self.say(&format!("\n{table}"))?;
            if let Some(markdown) = &mut self.markdown {
                writeln!(markdown, "{}", table.markdown())?;
            }
        }
        Ok(())
    }

    /// A line for programs.
    pub fn write_row(&mut self, row: &impl serde::Serialize) -> Result<()> {
        let text = serde_json::to_string(row).map_err(std::io::Error::other)?;
        if let Some((_, drawn)) = &mut self.charts {
            drawn.push(serde_json::from_str(&text).map_err(std::io::Error::other)?);
        }
        match &mut self.rows {
            Some(rows) => {
                writeln!(rows, "{text}")?;
                Ok(rows.flush()?)
            }
            None => Ok(writeln!(self.out, "{text}")?),
        }
    }

    /// The experiment and the figure that rows belong to.
    pub fn subject(&self) -> Subject {
        Subject { experiment: self.experiment, figure: self.figure }
    }

    /// Copies of loaded databases, one for each variant that the user asked for.
    pub fn stands(&self, workload: &dyn Workload, sizes: Sizes, variants: &[Variant]) -> Result<Vec<Stand>> {
        let wanted: Vec<Variant> =
            variants.iter().filter(|variant| self.wants(&variant.factors)).cloned().collect();
        Stand::of_all(&self.bench, workload, sizes, &wanted)
    }

    /// An empty directory, which is removed when the result is dropped.
    pub fn empty(&self, name: &str) -> Result<Copied> {
        self.bench.empty(name)
    }

    /// A database that no other stand shares, loaded on this device, and the report of its load.
    pub fn fresh(
        &self,
        workload: &dyn Workload,
        sizes: Sizes,
        device: &Device,
        variant: &Variant,
    ) -> Result<(Stand, Loaded)> {
        Stand::fresh(&self.bench, workload, sizes, device, variant)
    }

    /// Measures all stands in turns. Returns a point for each, in their order.
    pub fn compare(
        &mut self,
        stands: &[Stand],
        workload: &dyn Workload,
        device: &Device,
        clients: usize,
        factors: &Factors,
    ) -> Result<Vec<Point>> {
        loop {
            let on = Conditions { workload, device, clients, dilation: self.dilation };
            let is_last = self.dilation >= DILATION_MAX;
            if let Some(measured) = self.rounds(stands, on, is_last)? {
                let all = stands.iter().zip(&measured);
                let point = |(stand, measured): (&Stand, &Vec<Measured>)| {
                    measure::point(self.subject(), stand, measured, on, self.scale, factors)
                };
                let points: Vec<Point> = all.map(point).collect();
                points.iter().try_for_each(|point| self.write_row(&Judged::of(point)))?;
                return Ok(points);
            }
            self.dilation *= 2.0;
        }
    }

    /// All rounds of all stands. Returns `None` if one of them was spoilt and a larger dilation may help. The
    /// last stands are the fastest ones, which are spoilt most easily. So they are measured first.
    fn rounds(
        &self,
        stands: &[Stand],
        on: Conditions<'_>,
        is_last: bool,
    ) -> Result<Option<Vec<Vec<Measured>>>> {
        let mut measured: Vec<Vec<Measured>> = stands.iter().map(|_| Vec::new()).collect();
        for number in 1..=self.scale.rounds as u64 {
            for (stand, measured) in stands.iter().zip(&mut measured).rev() {
                let round = measure::round(stand, on, self.scale, number)?;
                if !round.counts() && !is_last {
                    return Ok(None);
                }
                measured.push(round);
            }
        }
        Ok(Some(measured))
    }

    /// Judges a comparison, and writes its row.
    pub fn claim(&mut self, asked: Comparison<'_>) -> Result<Claim> {
        let claim = asked.judge(self.subject());
        self.write_row(&claim)?;
        Ok(claim)
    }

    /// Writes the row of a claim that is not about points.
    pub fn write_claim(&mut self, claim: Claim) -> Result<Claim> {
        let Subject { experiment, figure } = self.subject();
        let claim = Claim { experiment, figure, ..claim };
        self.write_row(&claim)?;
        Ok(claim)
    }

    /// The tables for people.
    pub fn tell(&mut self, points: &[Point], claims: &[Claim]) -> Result<()> {
        let scales: std::collections::BTreeSet<&str> =
            points.iter().map(|point| point.scale.as_str()).collect();
        scales.iter().try_for_each(|scale| self.say(scale))?;
        let (points_text, times_text) = (tell::points(points), tell::times(points));
        self.say(&format!("\n{points_text}\n{times_text}{}", tell::claims(claims)))
    }
}
