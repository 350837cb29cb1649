//! Measures how a table scan changes the hit rate of a flash cache.
//!
//! 1. During a scan, the hit rate of the frequently read tables is computed from the reads for which a
//!    session waited. Pages that are read ahead for the scan are not counted. If a page of the scan was not
//!    read ahead, it counts as a miss, but such pages are few.
//! 2. Only reads of B+tree leaves are counted. Reads of undo pages would distort the result: purge waits
//!    until the scan's snapshot ends, then reads the undo pages of all changes since, and finds few of them
//!    in the cache.

use std::collections::BTreeMap;

use serde::Serialize;
use varve_pager::{FlashDesign, FlashScans, FlashSettings};

use super::claim::Claim;
use super::flash;
use super::hot_and_cold::HotAndCold;
use super::lab::Lab;
use super::row::{Emulation, Factors, Subject};
use super::scale::ByScale;
use super::table::TextTable;
use super::tell;
use super::verdict::Verdict;
use super::warm::{CacheState, Warmth};
use super::watched::{self, Onlooker, SampledRun, Sight, Stretch};
use varve_bench::Result;

/// The number of sessions that read the hot set.
const HOT_SESSIONS: usize = 16;
/// Milliseconds before and after the scan, together, and milliseconds of load before them.
const SCAN_MS: ByScale<u64> = ByScale { quick: 10_000, full: 60_000 };
const SETTLE_MS: ByScale<u64> = ByScale { quick: 3_000, full: 20_000 };
/// The bar: the hit rate may fall by at most this much.
const BAR: f64 = 0.03;

/// Hit rates of a hot set before, during and after the scan of another table.
#[derive(Debug, Serialize)]
struct ScanRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    /// The hit rate of the hot set before, during and after the scan.
    hit_rate_before: f64,
    hit_rate_during: f64,
    hit_rate_after: f64,
    /// The hit rate of all reads for which sessions waited: before, during and after the scan.
    hit_rate_of_all: [f64; 3],
    /// Requests a second to the hot set: before, during and after the scan.
    tps: [f64; 3],
    scan_seconds: f64,
    scanned_rows: u64,
    /// Pages that the cache refused because a scan had read them.
    refused_sequential: u64,
    /// The growth of the cache's counters before, during and after the scan. They count, for example, clean
    /// and dirty pages that the cache admitted, and hits by kind of page.
    counted: [Counted; 3],
    /// The share of the cache's slots that were allocated when the scan began, in percent.
    filled_percent: f64,
    warmth: Option<Warmth>,
    emulation: Option<Emulation>,
}

/// By how much each counter of the cache has grown. Counters that have not grown are left out.
type Counted = BTreeMap<String, u64>;

/// The counters at a moment.
#[derive(Debug, Clone, Default)]
struct ScanSample {
    seconds: f64,
    transactions: u64,
    hits: u64,
    waited_for: u64,
    /// The counters of the cache.
    counters: Counted,
}

impl ScanSample {
    fn of(sight: &Sight<'_>) -> Self {
        let stats = sight.opened.database.stats().pager;
        let levels = super::stand::levels(&sight.opened.database);
        let of_cache = |(name, count): (String, u64)| Some((name.strip_prefix("flash.")?.to_owned(), count));
        let counters: Counted = levels.into_iter().filter_map(of_cache).collect();
        Self {
            seconds: sight.seconds,
            transactions: (sight.done)(),
            hits: counters.get("read_hits").copied().unwrap_or(0),
            waited_for: stats.misses,
            counters,
        }
    }

    fn hit_rate(&self, before: &ScanSample) -> f64 {
        let counted = self.counted(before);
        let hits = counted.get("read_hits_leaf").copied().unwrap_or(0);
        let is_other = |name: &str| name.starts_with("read_misses_") && name != "read_misses_leaf";
        let others: u64 = counted.iter().filter(|(name, _)| is_other(name)).map(|(_, count)| count).sum();
        let missed = (self.waited_for - before.waited_for).saturating_sub(self.hits - before.hits + others);
        hits as f64 / (hits + missed).max(1) as f64
    }

    fn hit_rate_of_all(&self, before: &ScanSample) -> f64 {
        (self.hits - before.hits) as f64 / (self.waited_for - before.waited_for).max(1) as f64
    }

    fn tps(&self, before: &ScanSample) -> f64 {
        (self.transactions - before.transactions) as f64 / (self.seconds - before.seconds).max(1e-3)
    }

    fn counted(&self, before: &ScanSample) -> Counted {
        let grown = |(name, count): (&String, &u64)| {
            let by = count.saturating_sub(before.counters.get(name).copied().unwrap_or(0));
            (by > 0).then(|| (name.clone(), by))
        };
        self.counters.iter().filter_map(grown).collect()
    }
}

/// The observer of the run. It takes the samples, and scans the table.
#[derive(Default)]
struct Scanning {
    /// Samples at the beginning, before the scan, after it, and at the end.
    moments: Vec<ScanSample>,
    scanned_rows: u64,
    scan_seconds: f64,
    filled_percent: f64,
}

impl Onlooker for Scanning {
    fn look(&mut self, sight: &Sight<'_>) -> Result<()> {
        self.moments.push(ScanSample::of(sight));
        if self.moments.len() != 2 {
            return Ok(());
        }
        let state = CacheState::of(&sight.opened.database);
        self.filled_percent = state.map_or(0.0, |state| state.filled_percent);
        let began = std::time::Instant::now();
        let mut connection = sight.target.connect(&[HotAndCold::SCAN.to_owned()])?;
        self.scanned_rows = connection.run(0, &[])?;
        self.scan_seconds = began.elapsed().as_secs_f64() / sight.dilation;
        let seconds = sight.seconds + self.scan_seconds;
        self.moments.push(ScanSample::of(&Sight { seconds, ..*sight }));
        Ok(())
    }
}

/// Repeats section 3.2.2: how a scan changes the hit rate of a hot set. The hot set is as large as the cache,
/// and the scanned table is three times as large.
pub fn scan(lab: &mut Lab<'_>) -> Result<()> {
    flash::begin(lab, SCAN_MS, SETTLE_MS)?;
    let cache_bytes = flash::cache_bytes(lab);
    let (workload, device) = (HotAndCold::new(cache_bytes, 3 * cache_bytes), flash::drives(lab)?);
    let designs = FlashDesign::ALL.into_iter().filter(|design| *design != FlashDesign::Off);
    let so = |design, scans: FlashScans, dirty_percent: u8| {
        let settings = flash::Settings { scans, dirty_percent, ..flash::Settings::of(lab, &flash::HOT) };
        let variant = flash::cached_so(lab, &flash::HOT, design, settings);
        variant.with("scans", scans.name()).with("lambda", dirty_percent)
    };
    let (scans, lambda) = (FlashSettings::DEFAULT.scans, flash::HOT.dirty_percent);
    let mut variants: Vec<_> = designs.map(|design| so(design, scans, lambda)).collect();
    // This variant has the other method to recognize scans. One of the designs that must recognize them is
    // enough.
    variants.push(so(FlashDesign::CleanWrite, FlashScans::Proximity, lambda));
    // This variant has the limit of the thesis' other mixes, in which few pages change. With the higher
    // limit, the pages that the scan's snapshot holds back stay on flash.
    variants.push(so(FlashDesign::LazyCleaning, scans, flash::TPCE.dirty_percent));
    let (mut rows, mut claims) = (Vec::new(), Vec::new());
    for clients in lab.clients(&[HOT_SESSIONS], &[HOT_SESSIONS]) {
        for stand in lab.stands(&workload, flash::sizes(lab), &variants)? {
            let lengths_ms = (lab.scale().warm_ms, lab.scale().round_ms);
            let stretch = Stretch {
                workload: &workload,
                device: &device,
                clients,
                lengths_ms,
                looks: 2,
                dilation: 1.0,
            };
            let (watched, scanning): (_, Scanning) = watched::run(&stand, stretch)?;
            let mut factors = stand.variant.factors.clone();
            factors.insert("clients", clients.into());
            let row = scan_row(lab, factors, watched, &scanning);
            lab.write_row(&row)?;
            claims.extend(claim_scan(lab, &row)?);
            rows.push(row);
        }
    }
    tell_scans(lab, &rows, &claims)
}

fn scan_row(lab: &Lab<'_>, factors: Factors, watched: SampledRun, scanning: &Scanning) -> ScanRow {
    let Subject { experiment, figure } = lab.subject();
    let rate = |at: usize, of: fn(&ScanSample, &ScanSample) -> f64| match scanning.moments.get(at..at + 2) {
        Some([before, after]) => of(after, before),
        _ => f64::NAN,
    };
    let counted = [0, 1, 2].map(|at| match scanning.moments.get(at..at + 2) {
        Some([before, after]) => after.counted(before),
        _ => Counted::new(),
    });
    ScanRow {
        row: "scan",
        experiment,
        figure,
        factors,
        hit_rate_before: rate(0, ScanSample::hit_rate),
        hit_rate_during: rate(1, ScanSample::hit_rate),
        hit_rate_after: rate(2, ScanSample::hit_rate),
        hit_rate_of_all: [0, 1, 2].map(|at| rate(at, ScanSample::hit_rate_of_all)),
        tps: [0, 1, 2].map(|at| rate(at, ScanSample::tps)),
        scan_seconds: scanning.scan_seconds,
        scanned_rows: scanning.scanned_rows,
        refused_sequential: counted[1].get("refused_sequential").copied().unwrap_or(0),
        counted,
        filled_percent: scanning.filled_percent,
        warmth: watched.warmth,
        emulation: watched.emulation,
    }
}

/// Returns claims about the fall of the hit rate. They have a bar if the thesis has the design, and if the
/// variant recognizes scans by the method that the thesis chose.
fn claim_scan(lab: &mut Lab<'_>, row: &ScanRow) -> Result<Vec<Claim>> {
    let design = row.factors.get("design").map_or_else(String::new, tell::plain);
    let is_told_best = flash::has(&row.factors, "scans", FlashSettings::DEFAULT.scans.name());
    let has_bar = is_told_best && ["clean-write", "dual-write", "lazy-cleaning"].contains(&design.as_str());
    let mut claims = Vec::new();
    for (when, rate) in [("during", row.hit_rate_during), ("after", row.hit_rate_after)] {
        let ours = row.hit_rate_before - rate;
        let spoilt = match &row.emulation {
            Some(emulation) if !emulation.counts => Some(emulation.spoilt()),
            _ => None,
        };
        let verdict = match spoilt {
            _ if !has_bar => Verdict::NoBar,
            Some(reason) => Verdict::NotJudged(reason),
            None => Verdict::at_most(BAR, ours),
        };
        let Subject { experiment, figure } = lab.subject();
        let claim = Claim {
            row: "claim",
            experiment,
            figure,
            factors: row.factors.clone(),
            says: format!("{design}: hit rate of the hot set before less {when} a scan"),
            ours,
            rounds: Some(1),
            published: None,
            bar: has_bar.then_some(BAR),
            verdict,
        };
        lab.write_row(&claim)?;
        claims.push(claim);
    }
    Ok(claims)
}

fn tell_scans(lab: &mut Lab<'_>, rows: &[ScanRow], claims: &[Claim]) -> Result<()> {
    let head = [
        "design",
        "scans told by",
        "lambda",
        "hits before",
        "during",
        "after",
        "tps before",
        "during",
        "after",
        "scan s",
        "rows",
        "refused",
        "came, clean",
        "dirty",
        "filled %",
        "counts",
    ];
    let mut table = TextTable::headed(&head);
    for row in rows {
        let factor = |name: &str| row.factors.get(name).map_or_else(String::new, tell::plain);
        let mut line = vec![factor("design"), factor("scans"), factor("lambda")];
        let rates = [row.hit_rate_before, row.hit_rate_during, row.hit_rate_after];
        line.extend(rates.map(|rate| format!("{:.2} %", 100.0 * rate)));
        line.extend(row.tps.map(|tps| format!("{tps:.0}")));
        line.extend([format!("{:.1}", row.scan_seconds), row.scanned_rows.to_string()]);
        line.extend([row.refused_sequential.to_string()]);
        let came = ["admitted_clean", "admitted_dirty"];
        line.extend(came.map(|name| row.counted[1].get(name).copied().unwrap_or(0).to_string()));
        line.extend([format!("{:.1}", row.filled_percent)]);
        line.push(tell::counts(row.emulation.as_ref()));
        table.push(line);
    }
    lab.say(&format!("\n{table}{}", tell::claims(claims)))
}
