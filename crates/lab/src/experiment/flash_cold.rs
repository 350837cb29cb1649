//! Repeats figures 3.6 to 3.10 and 4.9 of Do 2012: the throughput while the flash cache fills.
//!
//! 1. The cache and the buffer pool are empty at the start. The drives are emulated from the first request
//!    on.
//! 2. Some variants never reach the peak throughput of their baseline. They have no time to the peak, and no
//!    ratio.
//! 3. A run corresponds to ten hours of the thesis. Intervals between checkpoints are shortened by the same
//!    factor.
//!
//! Varve does not have the read-ahead that the thesis uses while the *pool* is empty (section 3.4.3.2).

use std::collections::BTreeMap;

use serde::Serialize;
use varve_pager::{FlashDesign, FlashFill};

use super::claim::Claim;
use super::drives::{FLASH_DRIVE, HOME};
use super::flash::{self, Mix, Settings, TPCC, TPCE};
use super::lab::Lab;
use super::measure::{mib_per_second, moved_bytes};
use super::row::{Emulation, Factors, Subject};
use super::scale::{ByScale, NO_TIME};
use super::stand::Variant;
use super::table::TextTable;
use super::tell;
use super::verdict::{Better, Verdict};
use super::warm::{CacheReads, CacheState};
use super::watched::{self, Onlooker, Sight, Stretch};
use varve_bench::Result;

/// The number of sessions.
const SESSIONS: usize = 64;
/// The length of a run that starts with a cold cache, and the number of its samples.
const FILL_MS: ByScale<u64> = ByScale { quick: 150_000, full: 1_200_000 };
const FILL_LOOKS: u32 = 30;
/// The throughput is at the peak when it has this share of the peak in two intervals in a row.
const PEAK: f64 = 0.9;
/// Sizes of the databases, in units. They correspond to 2,000 warehouses and to 20,000 customers in the
/// thesis.
const TPCC_UNITS: u64 = 200;
const TPCE_UNITS: u64 = 230;
/// The published ratio of the times to the peak: the time with plain reads, divided by the time with widened
/// reads (section 4.4.1.1, dual-write). The text does not state the times themselves.
const SOONER: f64 = 7.0;
/// The numbers of checkpoints in a run. A run stands for ten hours of the thesis, and the thesis makes a
/// checkpoint every 40 minutes or every five hours (sections 3.4.3 and 3.4.3.3).
const SHORT_OF_STRETCH: u64 = 15;
const LONG_OF_STRETCH: u64 = 2;
/// The limit of dirty slots in the experiment on checkpoints, in percent.
const LAMBDA_CHECKPOINT: u8 = 50;
/// MiB per second in the thesis: of the data files' drives at the end, and the highest values of the flash
/// drive (section 3.4.3.2, dual-write on TPC-E).
const HOME_AT_LAST: f64 = 6.5;
const FLASH_READ_MOST: f64 = 46.0;
const FLASH_WRITTEN_MOST: f64 = 9.7;

/// The course of a run in which the cache fills.
#[derive(Debug, Serialize)]
struct FillRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    /// The ends of the intervals between two samples.
    seconds: Vec<f64>,
    /// Transactions per second in each interval.
    tps: Vec<f64>,
    /// The share of the reads that the cache answered, in each interval.
    hit_rate: Vec<f64>,
    /// The share of the cache's slots that were allocated, at the end of each interval.
    filled_percent: Vec<f64>,
    /// The traffic of each drive that had any.
    mib_per_second: BTreeMap<&'static str, Moved>,
    /// Seconds until the throughput had nine tenths of the peak in two intervals. The peak is the mean of the
    /// last quarter.
    seconds_to_peak: Option<f64>,
    /// Seconds until the cache was full.
    seconds_to_full: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_judged: Option<String>,
    emulation: Option<Emulation>,
}

/// MiB a second that a drive read and wrote, in each interval.
#[derive(Debug, Default, Serialize)]
struct Moved {
    read: Vec<f64>,
    written: Vec<f64>,
}

/// The observer of a run. It collects a sample at the end of each interval.
#[derive(Default)]
struct Filling {
    last: Option<FillSample>,
    seconds: Vec<f64>,
    tps: Vec<f64>,
    hit_rate: Vec<f64>,
    filled_percent: Vec<f64>,
    moved: BTreeMap<&'static str, Moved>,
}

/// The counters at the time of a sample.
struct FillSample {
    seconds: f64,
    transactions: u64,
    asked: CacheReads,
    /// Bytes that each drive has read and written so far.
    bytes: BTreeMap<&'static str, [u64; 2]>,
}

impl FillSample {
    fn of(sight: &Sight<'_>) -> Self {
        let drives = sight.opened.drives.iter();
        Self {
            seconds: sight.seconds,
            transactions: (sight.done)(),
            asked: CacheReads::of(&sight.opened.database),
            bytes: drives.map(|drive| (drive.name, moved_bytes(&drive.account))).collect(),
        }
    }
}

impl Onlooker for Filling {
    fn look(&mut self, sight: &Sight<'_>) -> Result<()> {
        let now = FillSample::of(sight);
        if let Some(before) = &self.last {
            let seconds = (now.seconds - before.seconds).max(1e-3);
            self.seconds.push(now.seconds);
            self.tps.push((now.transactions - before.transactions) as f64 / seconds);
            self.hit_rate.push(now.asked.since(before.asked).hit_rate().unwrap_or(0.0));
            let state = CacheState::of(&sight.opened.database);
            self.filled_percent.push(state.map_or(0.0, |state| state.filled_percent));
            for (drive, bytes) in &now.bytes {
                let earlier = before.bytes.get(drive).copied().unwrap_or_default();
                let [read, written] = mib_per_second(earlier, *bytes, seconds);
                let moved = self.moved.entry(drive).or_default();
                moved.read.push(read);
                moved.written.push(written);
            }
        }
        self.last = Some(now);
        Ok(())
    }
}

impl Moved {
    fn is_any(&self) -> bool {
        self.read.iter().chain(&self.written).any(|mib| *mib > 0.0)
    }
}

impl FillRow {
    fn of(
        Subject { experiment, figure }: Subject,
        factors: Factors,
        emulation: Option<Emulation>,
        filling: Filling,
    ) -> Self {
        let Filling { seconds, tps, hit_rate, filled_percent, mut moved, .. } = filling;
        moved.retain(|_, moved| moved.is_any());
        let row = Self {
            row: "filling",
            experiment,
            figure,
            factors,
            seconds_to_peak: None,
            seconds_to_full: until(&seconds, &filled_percent, 95.0, 1),
            seconds,
            tps,
            hit_rate,
            filled_percent,
            mib_per_second: moved,
            not_judged: Emulation::not_judged(emulation.as_ref()),
            emulation,
        };
        Self { seconds_to_peak: row.seconds_to(row.peak()), ..row }
    }

    /// Returns the peak: transactions a second in the last quarter of the run.
    fn peak(&self) -> f64 {
        mean(last_quarter(&self.tps))
    }

    /// Returns the seconds until the throughput was near this peak.
    fn seconds_to(&self, peak: f64) -> Option<f64> {
        until(&self.seconds, &self.tps, PEAK * peak, 2)
    }

    fn factor(&self, name: &str) -> String {
        self.factors.get(name).map_or_else(String::new, tell::plain)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        flash::has(&self.factors, name, value)
    }

    fn dilation(&self) -> f64 {
        self.emulation.as_ref().map_or(1.0, |emulation| emulation.dilation)
    }

    fn claim(&self, says: String, ours: f64, published: Option<f64>, verdict: Verdict) -> Claim {
        let (experiment, figure, factors) = (self.experiment, self.figure, self.factors.clone());
        let (row, rounds, bar) = ("claim", Some(1), None);
        Claim { row, experiment, figure, factors, says, ours, rounds, published, bar, verdict }
    }
}

/// Returns the end of the first of `intervals` intervals in a row in which all figures are at least this
/// high.
fn until(seconds: &[f64], figures: &[f64], at_least: f64, intervals: usize) -> Option<f64> {
    let at = figures.windows(intervals).position(|some| some.iter().all(|figure| *figure >= at_least))?;
    seconds.get(at).copied()
}

fn last_quarter(figures: &[f64]) -> &[f64] {
    &figures[figures.len() * 3 / 4..]
}

fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len().max(1) as f64
}

/// A load, and the variants that are measured under it.
struct Course<'a> {
    mix: &'a Mix,
    units: u64,
    variants: Vec<Variant>,
}

impl Course<'_> {
    /// Runs all variants with one dilation. The last variants run first, because they are spoilt most easily.
    fn watch(&self, lab: &mut Lab<'_>) -> Result<Vec<FillRow>> {
        let shared = Factors::from([("workload", self.mix.name.into()), ("size", self.units.into())]);
        if !lab.wants(&shared) {
            return Ok(Vec::new());
        }
        let (workload, device) = (self.mix.load(lab, self.units)?, flash::drives(lab)?);
        let stands = lab.stands(&*workload, flash::sizes(lab), &self.variants)?;
        let mut rows = Vec::new();
        for clients in lab.clients(&[SESSIONS], &[SESSIONS]) {
            let lengths_ms = (0, lab.scale().round_ms);
            let (workload, device, looks) = (&*workload, &device, FILL_LOOKS);
            let stretch = Stretch { workload, device, clients, lengths_ms, looks, dilation: 1.0 };
            for (stand, (watched, filling)) in stands.iter().zip(watched::all::<Filling>(&stands, stretch)?) {
                let mut factors = shared.clone();
                factors.extend(stand.variant.factors.clone());
                factors.insert("clients", clients.into());
                let row = FillRow::of(lab.subject(), factors, watched.emulation, filling);
                lab.write_row(&row)?;
                rows.push(row);
            }
        }
        Ok(rows)
    }
}

/// Returns the variant that starts with a cold cache of this design and these settings, or without a cache.
fn cold(lab: &Lab<'_>, mix: &Mix, design: FlashDesign, settings: Settings) -> Variant {
    match design {
        FlashDesign::Off => flash::baseline_so(lab, mix, settings).cold(),
        design => flash::cached_so(lab, mix, design, settings).cold(),
    }
}

/// Repeats figures 3.6 and 4.9: how long a cold cache takes to fill. Reads are widened in one half of the
/// variants.
pub fn ramp_up(lab: &mut Lab<'_>) -> Result<()> {
    flash::begin(lab, FILL_MS, NO_TIME)?;
    let settings = Settings::of(lab, &TPCC);
    let mut variants = vec![cold(lab, &TPCC, FlashDesign::Off, settings)];
    for design in [FlashDesign::CleanWrite, FlashDesign::DualWrite, FlashDesign::LazyCleaning] {
        let of = |fill: FlashFill| {
            let settings = Settings { fill, ..settings };
            cold(lab, &TPCC, design, settings).with("fill", fill.name())
        };
        variants.extend(FlashFill::ALL.map(of));
    }
    let rows = Course { mix: &TPCC, units: TPCC_UNITS, variants }.watch(lab)?;
    let claims = claim_fills(lab, &rows)?;
    tell_courses(lab, &rows, &["design", "fill"], &claims)
}

/// Returns claims about the time to the peak with plain filling, divided by the time with aggressive filling.
/// Both times are measured to the higher one of the two peaks.
fn claim_fills(lab: &mut Lab<'_>, rows: &[FillRow]) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    for plain in rows.iter().filter(|row| row.is("fill", FlashFill::Plain.name())) {
        let is_other = |row: &&FillRow| {
            row.is("fill", FlashFill::Aggressive.name())
                && ["design", "clients"].iter().all(|name| row.factors.get(name) == plain.factors.get(name))
        };
        if let Some(aggressive) = rows.iter().find(is_other) {
            claims.extend(claim_fill(plain, aggressive));
        }
    }
    claims.iter().try_for_each(|claim| lab.write_row(claim))?;
    Ok(claims)
}

/// Returns the claim about a pair of runs. Returns `None` if even the run with widened reads did not reach
/// the peak.
fn claim_fill(plain: &FillRow, aggressive: &FillRow) -> Option<Claim> {
    let peak = plain.peak().max(aggressive.peak());
    let soon = aggressive.seconds_to(peak)?;
    let late = plain.seconds_to(peak);
    let at_least = plain.seconds.last().copied().unwrap_or(0.0);
    let ours = late.unwrap_or(at_least) / soon;
    let published = plain.is("design", FlashDesign::DualWrite.name()).then_some(SOONER);
    let never = || late.is_none().then(|| format!("at least that: no peak within {at_least:.0} s"));
    let dilations = [plain.dilation(), aggressive.dilation()];
    let spoilt = [&plain.not_judged, &aggressive.not_judged].into_iter().flatten().next().cloned();
    let differ = || (dilations[0] != dilations[1]).then(|| format!("dilations differ: {dilations:?}"));
    let verdict = match (spoilt.or_else(differ).or_else(never), published) {
        (_, None) => Verdict::NotInText,
        (Some(reason), _) => Verdict::NotJudged(reason),
        (None, Some(published)) => Verdict::of(ours, published, Better::Higher),
    };
    let says = format!("{}: seconds to the peak, plain / aggressive", plain.factor("design"));
    let mut claim = plain.claim(says, ours, published, verdict);
    claim.factors.remove("fill");
    Some(claim)
}

/// Prints the table of throughput over time.
fn tell_courses(
    lab: &mut Lab<'_>,
    rows: &[FillRow],
    factors: &[&'static str],
    claims: &[Claim],
) -> Result<()> {
    let head = ["to peak s", "to full s", "peak tps", "counts", "tps over time"];
    let mut table = TextTable::headed(&[factors, &head].concat());
    let seconds = |seconds: Option<f64>| seconds.map_or_else(|| "no".to_owned(), |s| format!("{s:.1}"));
    for row in rows {
        let mut line: Vec<String> = factors.iter().map(|name| row.factor(name)).collect();
        let each: Vec<String> = row.tps.iter().step_by(3).map(|tps| format!("{tps:.0}")).collect();
        line.extend([seconds(row.seconds_to_peak), seconds(row.seconds_to_full)]);
        line.extend([format!("{:.1}", row.peak()), tell::counts(row.emulation.as_ref()), each.join(" ")]);
        table.push(line);
    }
    let claims = tell::claims(claims);
    lab.say(&format!(
        "
From a cold cache and a cold pool; every third interval:
{table}{claims}"
    ))
}

/// Returns the interval at which a run has this many sharp checkpoints.
fn sharp(lab: &Lab<'_>, in_stretch: u64) -> Option<u64> {
    Some((lab.scale().round_ms / in_stretch).max(1))
}

/// Repeats figure 3.9: how much each drive reads and writes. Further designs and TPC-C are measured, too. As
/// in chapter 3, no read is widened, TPC-C has no checkpoints, and the brokerage mix has sharp ones.
pub fn traffic(lab: &mut Lab<'_>) -> Result<()> {
    flash::begin(lab, FILL_MS, NO_TIME)?;
    let fill = FlashFill::Plain;
    let designs = [
        FlashDesign::Off,
        FlashDesign::CleanWrite,
        FlashDesign::DualWrite,
        FlashDesign::LazyCleaning,
        FlashDesign::TemperatureAware,
    ];
    let mut rows = Vec::new();
    for (mix, units, sharp_ms) in
        [(&TPCC, TPCC_UNITS, None), (&TPCE, TPCE_UNITS, sharp(lab, SHORT_OF_STRETCH))]
    {
        let settings = Settings { fill, sharp_ms, ..Settings::of(lab, mix) };
        let variants = designs.map(|design| cold(lab, mix, design, settings)).to_vec();
        rows.extend(Course { mix, units, variants }.watch(lab)?);
    }
    let claims = claim_traffic(lab, &rows)?;
    let table = traffic_table(&rows);
    lab.say(&format!(
        "
From a cold cache and a cold pool, no reads widened; MiB a second:
{table}"
    ))?;
    tell_courses(lab, &rows, &["workload", "design"], &claims)
}

/// Returns claims about the values that the text states for one design on one load.
fn claim_traffic(lab: &mut Lab<'_>, rows: &[FillRow]) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    let is_papers =
        |row: &&FillRow| row.is("workload", TPCE.name) && row.is("design", FlashDesign::DualWrite.name());
    for row in rows.iter().filter(is_papers) {
        let (Some(home), Some(flash)) = (row.mib_per_second.get(HOME), row.mib_per_second.get(FLASH_DRIVE))
        else {
            continue;
        };
        let at_last = mean(last_quarter(&home.read)) + mean(last_quarter(&home.written));
        for (says, ours, published) in [
            ("home, read and written at last", at_last, HOME_AT_LAST),
            ("flash, read at most", most(&flash.read), FLASH_READ_MOST),
            ("flash, written at most", most(&flash.written), FLASH_WRITTEN_MOST),
        ] {
            let verdict = match &row.not_judged {
                Some(reason) => Verdict::NotJudged(reason.clone()),
                None => Verdict::of(ours, published, Better::Neither),
            };
            claims.push(row.claim(format!("MiB a second: {says}"), ours, Some(published), verdict));
        }
    }
    claims.iter().try_for_each(|claim| lab.write_row(claim))?;
    Ok(claims)
}

fn most(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(0.0, f64::max)
}

/// Returns the table of traffic, with a line for each drive of each row.
fn traffic_table(rows: &[FillRow]) -> TextTable {
    let each = ["read: first tenth", "half-way", "last quarter", "most"];
    let ways = ["written: first tenth", "half-way", "last quarter", "most", "counts"];
    let mut table = TextTable::headed(&[&["workload", "design", "drive"], &each[..], &ways].concat());
    for row in rows {
        for (drive, moved) in &row.mib_per_second {
            let mut line = vec![row.factor("workload"), row.factor("design"), (*drive).to_owned()];
            for figures in [&moved.read, &moved.written] {
                let (tenth, half) = (figures.len().div_ceil(10), figures.len() / 2);
                let middle = &figures[half..(half + tenth).min(figures.len())];
                let means = [&figures[..tenth], middle, last_quarter(figures)].map(mean);
                line.extend(means.iter().chain([&most(figures)]).map(|mib| format!("{mib:.2}")));
            }
            line.push(tell::counts(row.emulation.as_ref()));
            table.push(line);
        }
    }
    table
}

/// Repeats figure 3.10: the brokerage mix with sharp checkpoints in short and in long intervals.
pub fn checkpoint(lab: &mut Lab<'_>) -> Result<()> {
    flash::begin(lab, FILL_MS, NO_TIME)?;
    let intervals = [("short", sharp(lab, SHORT_OF_STRETCH)), ("long", sharp(lab, LONG_OF_STRETCH))];
    for (name, sharp_ms) in intervals {
        let seconds = sharp_ms.unwrap_or(0) as f64 / 1000.0;
        lab.say(&format!("checkpoint {name}: sharp ones every {seconds:.1} s of the drives"))?;
    }
    let mut variants = Vec::new();
    for design in [FlashDesign::DualWrite, FlashDesign::LazyCleaning] {
        for (name, sharp_ms) in intervals {
            let (fill, dirty_percent) = (FlashFill::Plain, LAMBDA_CHECKPOINT);
            let settings = Settings { fill, dirty_percent, sharp_ms, ..Settings::of(lab, &TPCE) };
            variants.push(cold(lab, &TPCE, design, settings).with("checkpoint", name));
        }
    }
    let rows = Course { mix: &TPCE, units: TPCE_UNITS, variants }.watch(lab)?;
    tell_courses(lab, &rows, &["design", "checkpoint"], &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fill: &str, tps: &[f64]) -> FillRow {
        let factors = Factors::from([("design", "dual-write".into()), ("fill", fill.into())]);
        let seconds = (1..=tps.len()).map(|at| at as f64).collect();
        let filling = Filling { seconds, tps: tps.to_vec(), ..Filling::default() };
        FillRow {
            not_judged: None,
            ..FillRow::of(Subject { experiment: "e", figure: "f" }, factors, None, filling)
        }
    }

    /// A single good interval is no peak. Both runs are compared with the higher one of their peaks.
    #[test]
    fn a_peak_lasts_and_is_the_same_for_both() {
        let aggressive = row("aggressive", &[9.5, 1.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0]);
        assert_eq!(aggressive.seconds_to_peak, Some(3.0));
        let plain = row("plain", &[1.0, 2.0, 3.0, 4.0, 5.0, 9.0, 9.5, 9.5]);
        let claim = claim_fill(&plain, &aggressive).expect("both have a peak");
        assert_eq!((claim.ours, claim.published), (2.0, Some(7.0)));
        assert!(matches!(claim.verdict, Verdict::Not(_)), "{}", claim.verdict);
        assert!(!claim.factors.contains_key("fill"));
    }

    /// If a run did not reach the peak, the ratio is only a bound, and there is no verdict.
    #[test]
    fn what_never_gets_there_is_told() {
        let aggressive = row("aggressive", &[10.0; 8]);
        let plain = row("plain", &[1.0; 8]);
        let claim = claim_fill(&plain, &aggressive).expect("a bound");
        assert_eq!(claim.ours, 8.0);
        assert!(
            matches!(&claim.verdict, Verdict::NotJudged(why) if why.contains("at least")),
            "{}",
            claim.verdict
        );
        assert!(claim_fill(&aggressive, &plain).is_none());
    }
}
