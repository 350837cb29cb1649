//! Measures joins over several factors, and keeps a row for each.

use serde::Serialize;
use varve_bench::Result;
use varve_bench::report::Spread;
use varve_spill::{BlockIo, JoinMethod};

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::order::RankedFigure;
use super::super::row::{Factors, Subject};
use super::super::scale::{ByScale, Scale};
use super::super::table::TextTable;
use super::bed::DriveKind;
use super::join::{JoinBed, JoinInputs, JoinTimes, name};
use super::judge::{ClaimPlace, ranked, speed};

/// The cost model's join may take this many times as long as the best one.
const CHOICE_BAR: f64 = 1.1;
/// In tests, inputs and buffers are divided by this, too.
const TINY_SCALE: u64 = 512;

/// A configuration under which all joins are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinPlace {
    /// The drive.
    pub drive: DriveKind,
    /// The buffer, before it is divided by the scale.
    pub megabytes: u64,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// The number of pages of a request.
    pub io: BlockIo,
}

impl JoinPlace {
    /// Returns the factors of the configuration.
    pub fn factors(&self) -> Factors {
        let io = if self.io == BlockIo::Blocked { "blocked" } else { "page-sized" };
        Factors::from([
            ("drive", self.drive.name().into()),
            ("megabytes", self.megabytes.into()),
            ("page KiB", (self.page_bytes >> 10).into()),
            ("requests", io.into()),
        ])
    }
}

/// The results of one join under one configuration.
#[derive(Debug, Clone, Serialize)]
pub struct JoinRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    /// The factors: join, drive, buffer, page, kind of requests.
    pub factors: Factors,
    device: String,
    scale: String,
    /// The number of rounds.
    pub rounds: usize,
    /// Seconds of I/O.
    pub io_s: Spread,
    /// The median of the seconds of I/O in the first phase.
    pub first_io_s: f64,
    /// The median of the seconds of I/O in the second phase.
    pub second_io_s: f64,
    /// The median of the seconds of merges of super-blocks in both phases.
    pub merges_s: f64,
    /// The median of the seconds of the processor.
    pub processor_s: f64,
    /// Seconds of I/O and of the processor together.
    pub total_s: Spread,
    /// Whether the cost model chooses this join under this configuration, in each round.
    pub is_chosen: bool,
    /// The least seconds of the processor of all rounds.
    processor_least_s: f64,
    #[serde(skip)]
    place: JoinPlace,
    #[serde(skip)]
    method: JoinMethod,
}

/// All measured joins.
pub struct JoinRows {
    rows: Vec<JoinRow>,
}

/// The measurements of one join under one configuration.
struct Measured {
    place: JoinPlace,
    method: JoinMethod,
    times: Vec<JoinTimes>,
    is_chosen: bool,
}

/// Returns the number by which inputs and buffers are divided.
pub fn scale_of(lab: &Lab<'_>, by_scale: ByScale<u64>) -> u64 {
    let scale = lab.scale();
    if scale.name == Scale::TINY.name { TINY_SCALE } else { by_scale.of(scale.is_full()) }
}

fn factors_of(place: JoinPlace, method: JoinMethod) -> Factors {
    let mut factors = place.factors();
    factors.insert("join", name(method).into());
    factors
}

impl JoinRows {
    /// Measures all joins that the user wants under these configurations, divided by a scale. Configurations
    /// with the same inputs must follow each other.
    pub fn measure(lab: &mut Lab<'_>, places: &[JoinPlace], scale: u64) -> Result<Self> {
        let each = |place: &JoinPlace| JoinMethod::ALL.map(|method| (*place, method));
        let wanted =
            places.iter().flat_map(each).filter(|(place, method)| lab.wants(&factors_of(*place, *method)));
        let measured = |(place, method)| Measured { place, method, times: Vec::new(), is_chosen: true };
        let mut all: Vec<Measured> = wanted.map(measured).collect();
        for round in 1..=lab.scale().rounds as u64 {
            let mut loaded: Option<(JoinInputs, JoinBed)> = None;
            for one in &mut all {
                let JoinPlace { drive, page_bytes, io, megabytes } = one.place;
                let inputs = JoinInputs { drive, page_bytes, io, scale, seed: round };
                let mut bed = match loaded.take() {
                    Some((of, bed)) if of == inputs => bed,
                    _ => JoinBed::load(inputs)?,
                };
                one.times.push(bed.run(one.method, megabytes)?);
                one.is_chosen &= bed.chosen(megabytes) == one.method;
                loaded = Some((inputs, bed));
            }
        }
        let rows: Vec<JoinRow> = all.iter().map(|one| row_of(lab, one, scale)).collect::<Result<_>>()?;
        rows.iter().try_for_each(|row| lab.write_row(row))?;
        Ok(Self { rows })
    }

    /// Returns the row of a join under a configuration, if it was measured.
    pub fn at(&self, place: JoinPlace, method: JoinMethod) -> Option<&JoinRow> {
        self.rows.iter().find(|row| row.place == place && row.method == method)
    }

    /// Returns the rows of all joins under a configuration, if all joins were measured.
    pub fn all_at(&self, place: JoinPlace) -> Option<[&JoinRow; 4]> {
        let [loops, sort, grace, hybrid] = JoinMethod::ALL.map(|method| self.at(place, method));
        Some([loops?, sort?, grace?, hybrid?])
    }

    /// Returns the least seconds of the processor for this join on both drives. Its work does not depend on
    /// the drive.
    pub fn least_processor_s(&self, of: &JoinRow) -> f64 {
        let is_same = |row: &&JoinRow| {
            row.method == of.method && row.place == JoinPlace { drive: row.place.drive, ..of.place }
        };
        self.rows.iter().filter(is_same).map(|row| row.processor_least_s).fold(f64::INFINITY, f64::min)
    }

    /// Judges the claim that the cost model chooses a join near the best one, under each of these
    /// configurations.
    pub fn choices(&self, places: &[JoinPlace]) -> Vec<Claim> {
        places.iter().filter_map(|place| self.choice(*place)).collect()
    }

    fn choice(&self, place: JoinPlace) -> Option<Claim> {
        let all = self.all_at(place)?;
        let chosen = all.iter().find(|row| row.is_chosen)?;
        let best = all.iter().map(|row| row.total_s.median).fold(f64::INFINITY, f64::min);
        let says = format!("total time: chosen join ({}) / best join", name(chosen.method));
        let at = ClaimPlace { factors: place.factors(), rounds: chosen.rounds };
        Some(at.at_most(says, chosen.total_s.median / best, CHOICE_BAR))
    }

    /// Returns a table of all rows.
    pub fn table(&self) -> TextTable {
        let mut table = TextTable::headed(&[
            "join",
            "drive",
            "MB",
            "page KiB",
            "requests",
            "I/O s",
            "first phase s",
            "second phase s",
            "merges s",
            "processor s",
            "total s",
            "processor %",
            "chosen",
        ]);
        for row in &self.rows {
            let JoinPlace { drive, megabytes, page_bytes, io } = row.place;
            let seconds = |figure: f64| format!("{figure:.2}");
            table.push(vec![
                name(row.method).to_owned(),
                drive.name().to_owned(),
                megabytes.to_string(),
                (page_bytes >> 10).to_string(),
                if io == BlockIo::Blocked { "blocked" } else { "page-sized" }.to_owned(),
                seconds(row.io_s.median),
                seconds(row.first_io_s),
                seconds(row.second_io_s),
                seconds(row.merges_s),
                seconds(row.processor_s),
                seconds(row.total_s.median),
                format!("{:.0}", 100.0 * row.processor_s / row.total_s.median),
                if row.is_chosen { "chosen" } else { "" }.to_owned(),
            ]);
        }
        table
    }
}

impl JoinRow {
    /// Returns the factors of a claim, without the factors whose values the claim compares.
    pub fn claim_place(&self, compared: &[&str]) -> ClaimPlace {
        ClaimPlace::of(&self.factors, compared, self.rounds)
    }

    /// Returns the speed of the I/O, as a figure that is ranked among others.
    pub fn io_rank(&self, published: f64) -> RankedFigure {
        ranked(name(self.method), speed(self.io_s), self.rounds, published)
    }
}

fn row_of(lab: &Lab<'_>, of: &Measured, scale: u64) -> Result<JoinRow> {
    let JoinPlace { drive, page_bytes, io, .. } = of.place;
    let inputs = JoinInputs { drive, page_bytes, io, scale, seed: 0 };
    let spread =
        |figure: fn(&JoinTimes) -> f64| Spread::of(&of.times.iter().map(figure).collect::<Vec<f64>>());
    let Subject { experiment, figure } = lab.subject();
    Ok(JoinRow {
        row: "join",
        experiment,
        figure,
        factors: factors_of(of.place, of.method),
        device: inputs.device()?,
        scale: format!("{}, inputs and buffers / {}", lab.scale().name, inputs.scale),
        rounds: of.times.len(),
        io_s: spread(JoinTimes::io),
        first_io_s: spread(|times| times.first_io).median,
        second_io_s: spread(|times| times.second_io).median,
        merges_s: spread(|times| times.merges).median,
        processor_s: spread(|times| times.processor).median,
        processor_least_s: spread(|times| times.processor).min,
        total_s: spread(JoinTimes::total),
        is_chosen: of.is_chosen,
        place: of.place,
        method: of.method,
    })
}
