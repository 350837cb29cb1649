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

/// The largest dilation. If a point doesn't count even at this dilation, it is shown without a verdict.
const DILATION_MAX: f64 = 8.0;

/// A factor, and the values of it for which the user wants points.
struct Only {
    factor: String,
    values: BTreeSet<String>,
    /// Whether any point of the experiments had this factor.
    is_known: Cell<bool>,
}

/// The environment of all measurements.
pub struct Lab<'a> {
    scale: Scale,
    /// The scale that the user asked for, without the preferences of an experiment.
    asked: Scale,
    device: Device,
    bench: Bench,
    clients: Vec<usize>,
    kills: Vec<usize>,
    only: Vec<Only>,
    out: &'a mut dyn Write,
    rows: Option<BufWriter<File>>,
    /// The file for tables in Markdown, if the user named one.
    markdown: Option<File>,
    /// The directory for charts, if the user wants them, and the rows of the experiment from which they are
    /// drawn.
    charts: Option<(PathBuf, Vec<serde_json::Value>)>,
    experiment: &'static str,
    figure: &'static str,
    dilation: f64,
    /// The path of the program `varve-lab`, if this process is another program.
    program: Option<PathBuf>,
}

/// One attempt to measure a comparison. It counts only if the emulation was fast enough.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// The factor on all times of the drives.
    pub dilation: f64,
    /// Whether the attempt must return results, because no larger dilation is permitted.
    pub is_last: bool,
}

impl<'a> Lab<'a> {
    /// Makes the environment. Databases are in `directory`, or in a new directory. Regions of persistent
    /// memory are in `memory`, or in the machine's memory.
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

    /// Sets the path of `varve-lab`. A caller that is another program (such as a test) must do this.
    pub fn set_program(&mut self, program: &Path) {
        self.program = Some(program.to_owned());
    }

    /// Returns the path of `varve-lab`, which experiments start as processes of their own.
    pub fn program(&self) -> Result<PathBuf> {
        Ok(self.program.clone().map_or_else(std::env::current_exe, Ok)?)
    }

    /// Sets numbers of sessions that replace those of the experiment. An empty list changes nothing.
    pub fn choose_clients(&mut self, clients: &[usize]) -> Result<()> {
        if clients.contains(&0) {
            return Err(BenchError::Arguments("there must be at least one session".to_owned()));
        }
        clients.clone_into(&mut self.clients);
        Ok(())
    }

    /// Sets the numbers of transactions after which processes are killed. They replace those of the
    /// experiment. An empty list changes nothing.
    pub fn choose_kills(&mut self, kills: &[usize]) {
        kills.clone_into(&mut self.kills);
        self.kills.sort_unstable();
    }

    /// Returns the numbers of transactions after which processes are killed, if the user named some.
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

    /// Returns whether the user asked for points with these factors.
    pub fn wants(&self, factors: &Factors) -> bool {
        self.only.iter().all(|only| match factors.get(only.factor.as_str()) {
            None => true,
            Some(value) => {
                only.is_known.set(true);
                only.values.contains(&tell::plain(value))
            }
        })
    }

    /// Writes rows to this file instead of the output for people.
    pub fn write_rows_to(&mut self, path: &Path) -> Result<()> {
        self.rows = Some(BufWriter::new(File::create(path)?));
        Ok(())
    }

    /// Writes the tables of [`Lab::say_tables`] to this file, too, in Markdown.
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

    /// Begins an experiment. Rows that are written later belong to it.
    pub fn begin(&mut self, experiment: &'static str, figure: &'static str) {
        (self.experiment, self.figure, self.dilation) = (experiment, figure, 1.0);
        self.scale = self.asked;
    }

    /// Sets the lengths of rounds and of the load before them, in milliseconds, for both scales. A length
    /// that the user asked for stays.
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

    /// Sets the number of rounds for both scales. A number that the user asked for stays.
    pub fn prefer_rounds(&mut self, rounds: ByScale<usize>) {
        let is_full = self.scale.is_full();
        let own = if is_full { Scale::FULL } else { Scale::QUICK };
        if self.scale.name == own.name && self.scale.rounds == own.rounds {
            self.scale.rounds = rounds.of(is_full);
        }
    }

    /// Measures a comparison that counts only if the emulation was fast enough. While `run` returns `None`,
    /// it is called again with the dilation doubled. Later comparisons of the experiment begin with the last
    /// dilation.
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

    /// Returns the sizes and durations of the experiment.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Returns the device that the user asked for.
    pub fn device(&self) -> Device {
        self.device.clone()
    }

    /// Returns the numbers of sessions in increasing order: those of the user, or those of the experiment for
    /// the scale.
    pub fn clients(&self, quick: &[usize], full: &[usize]) -> Vec<usize> {
        let mut clients = match () {
            () if !self.clients.is_empty() => self.clients.clone(),
            () if self.scale.is_full() => full.to_vec(),
            () => quick.to_vec(),
        };
        clients.sort_unstable();
        clients
    }

    /// Prints a line for people.
    pub fn say(&mut self, text: &str) -> Result<()> {
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Prints tables for people. They are also written in Markdown to the file that the user named.
    pub fn say_tables(&mut self, tables: &[TextTable]) -> Result<()> {
        for table in tables.iter().filter(|table| !table.is_empty()) {
            self.say(&format!("\n{table}"))?;
            if let Some(markdown) = &mut self.markdown {
                writeln!(markdown, "{}", table.markdown())?;
            }
        }
        Ok(())
    }

    /// Writes a row for programs: a line of JSON.
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

    /// Returns the experiment and its figure, to which rows belong.
    pub fn subject(&self) -> Subject {
        Subject { experiment: self.experiment, figure: self.figure }
    }

    /// Copies loaded databases, one for each variant that the user asked for.
    pub fn stands(&self, workload: &dyn Workload, sizes: Sizes, variants: &[Variant]) -> Result<Vec<Stand>> {
        self.stands_on(&self.bench, workload, sizes, variants)
    }

    /// Does the same as [`Lab::stands`], but makes the copies on `copies`, which may be on another file
    /// system.
    pub fn stands_on(
        &self,
        copies: &Bench,
        workload: &dyn Workload,
        sizes: Sizes,
        variants: &[Variant],
    ) -> Result<Vec<Stand>> {
        let wanted: Vec<Variant> =
            variants.iter().filter(|variant| self.wants(&variant.factors)).cloned().collect();
        Stand::of_all(&self.bench, copies, workload, sizes, &wanted)
    }

    /// Makes an empty directory. It is removed when the result is dropped.
    pub fn empty(&self, name: &str) -> Result<Copied> {
        self.bench.empty(name)
    }

    /// Loads a database on this device, for one stand alone. Returns also the report of the load.
    pub fn fresh(
        &self,
        workload: &dyn Workload,
        sizes: Sizes,
        device: &Device,
        variant: &Variant,
    ) -> Result<(Stand, Loaded)> {
        Stand::fresh(&self.bench, workload, sizes, device, variant)
    }

    /// Measures all stands in turns. Returns a point for each stand, in the order of the stands.
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

    /// Runs all rounds of all stands. Returns `None` if one round was spoilt and a larger dilation may help.
    /// The last stands are the fastest ones, which are spoilt most easily. So they are measured first.
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

    /// Prints the tables of points, times and claims.
    pub fn tell(&mut self, points: &[Point], claims: &[Claim]) -> Result<()> {
        let scales: std::collections::BTreeSet<&str> =
            points.iter().map(|point| point.scale.as_str()).collect();
        scales.iter().try_for_each(|scale| self.say(scale))?;
        let (points_text, times_text) = (tell::points(points), tell::times(points));
        self.say(&format!("\n{points_text}\n{times_text}{}", tell::claims(claims)))
    }
}
