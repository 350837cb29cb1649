//! Measures the cost of a flash cache that survives restarts. Each restart scheme is compared with the scheme
//! `none`, which starts with an empty cache. The figures are the peak throughput, and the share of the slot
//! records in the traffic of the flash drive. A slot record says which page a slot of the cache holds.
//!
//! 1. Two databases are compared as a pair. Both are warmed up once and stay open. Their rounds alternate (A
//!    B A B) and have the same requests. While one database is measured, the other one is idle. So neither
//!    disturbs the other's drives, and both are idle for the same time.
//! 2. The first pair of rounds is not counted. An idle database writes the dirty slots of its flash cache to
//!    the data files. So the measurement of a round begins only when the number of dirty slots has grown to
//!    its limit again. If the number still grows in the measured rounds, there is no verdict.
//! 3. Traffic is counted at the flash drive, in the measured rounds only. Reads and writes of slot records
//!    and of pages are counted separately.

use serde::Serialize;
use varve_device::{EmulationReport, Purpose, Tally};
use varve_pager::{FlashDesign, FlashRestart};

use super::claim::Claim;
use super::device::Device;
use super::flash_kept::{self, DESIGNS, KeptVariant, SCHEMES, SESSIONS, TPCC, UNITS};
use super::flash_restart::{held as held_published, published_throughput};
use super::flash_stop::{Ground, begin_reports, reports};
use super::lab::{Attempt, Lab};
use super::paired::Interval;
use super::row::{CacheStates, Emulation, Factors, Subject};
use super::scale::ByScale;
use super::stand::{OpenStand, Stand};
use super::table::TextTable;
use super::tell;
use super::verdict::Verdict;
use super::warm::{CacheState, Warmth};
use varve_bench::Result;
use varve_bench::driver;
use varve_bench::workload::Workload;

/// Milliseconds of a round and of the load before it, and the number of pairs of rounds.
const ROUND_MS: ByScale<u64> = ByScale { quick: 15_000, full: 40_000 };
const SETTLE_MS: ByScale<u64> = ByScale { quick: 10_000, full: 20_000 };
const PAIRS: ByScale<usize> = ByScale { quick: 5, full: 9 };
/// The bars of lazy verification: the share of the throughput that must remain, and the largest share that
/// its slot records may have in the traffic of the flash drive.
const KEPT_BAR: f64 = 0.98;
const SHARE_BAR: f64 = 0.01;

/// Traffic by purpose: pages of the cache, slot records, and the log.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Traffic {
    page: Tally,
    meta: Tally,
    log: Tally,
}

impl Traffic {
    fn of(opened: &OpenStand) -> Self {
        let mut sums = Self::default();
        for row in opened.drives.iter().flat_map(|drive| drive.account.rows()) {
            let both = row.read + row.written;
            match row.purpose {
                Purpose::FlashPage => sums.page = sums.page + both,
                Purpose::FlashMeta => sums.meta = sums.meta + both,
                Purpose::Log => sums.log = sums.log + row.written,
                _ => {}
            }
        }
        sums
    }

    fn since(self, before: Self) -> Self {
        Self { page: self.page - before.page, meta: self.meta - before.meta, log: self.log - before.log }
    }

    fn plus(self, other: Self) -> Self {
        Self { page: self.page + other.page, meta: self.meta + other.meta, log: self.log + other.log }
    }

    /// Returns the share of the slot records in the traffic of slot records and pages.
    fn share(&self, of: fn(&Tally) -> u64) -> f64 {
        let (meta, page) = (of(&self.meta) as f64, of(&self.page) as f64);
        if meta > 0.0 { meta / (meta + page) } else { 0.0 }
    }
}

/// The comparison of a restart scheme with the scheme `none`.
#[derive(Debug, Serialize)]
struct HardeningRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    /// Transactions per second in each round: of the scheme `none`, and of the compared scheme.
    none_tps: Vec<f64>,
    tps: Vec<f64>,
    /// The throughput with the scheme, divided by that of `none`: the mean over the pairs, and its confidence
    /// interval.
    ratio: Interval,
    /// The share of the slot records in the bytes and in the requests of the flash drive.
    meta_bytes_share: f64,
    meta_requests_share: f64,
    /// Bytes of the log for each transaction: with `none`, and with the scheme.
    log_bytes: [f64; 2],
    /// The states of the cache when rounds began and ended, as means: with `none`, and with the scheme.
    cache: [Option<CacheStates>; 2],
    warmth: [Option<Warmth>; 2],
    emulation: Option<Emulation>,
}

/// One of the two databases of a pair.
struct Side<'a> {
    on: Ground<'a>,
    opened: OpenStand,
    warmth: Option<Warmth>,
    tps: Vec<f64>,
    transactions: u64,
    traffic: Traffic,
    states: Vec<CacheStates>,
    reports: Vec<Vec<(&'static str, EmulationReport)>>,
}

impl HardeningRow {
    /// Returns the reason why the pair is not judged, if there is one.
    fn not_judged(&self) -> Option<String> {
        let unsteady = || self.cache.iter().flatten().find_map(CacheStates::unsteady);
        Emulation::not_judged(self.emulation.as_ref()).or_else(unsteady)
    }
}

impl<'a> Side<'a> {
    fn warmed(on: Ground<'a>) -> Result<Self> {
        let (opened, warmth) = on.warmed()?;
        let (tps, states, reports) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { on, opened, warmth, tps, transactions: 0, traffic: Traffic::default(), states, reports })
    }

    /// Runs a round. Returns whether the round counts.
    fn round(&mut self, lengths: RoundLengths, number: u64) -> Result<bool> {
        self.on.rate(&self.opened, lengths.settle_ms, 2 * number)?;
        begin_reports(&self.opened);
        let (before, begin) = (Traffic::of(&self.opened), CacheState::of(&self.opened.database));
        let (target, length) = (self.on.target(&self.opened), self.on.dilated(lengths.measured_ms));
        let round = driver::round(&target, self.on.workload, self.on.plan(), length, 2 * number + 1)?;
        self.traffic = self.traffic.plus(Traffic::of(&self.opened).since(before));
        let states = begin.zip(CacheState::of(&self.opened.database));
        self.states.extend(states.map(|(begin, end)| CacheStates { begin, end }));
        self.transactions += round.transactions;
        self.tps.push(round.tps() * self.on.dilation);
        self.reports.push(reports(&self.opened));
        let last = &self.reports[self.reports.len() - 1..];
        Ok(Emulation::of_drives(last, 0.0).is_none_or(|emulation| emulation.counts))
    }

    /// Discards everything that was measured so far.
    fn forget(&mut self) {
        self.tps.clear();
        self.reports.clear();
        self.states.clear();
        (self.transactions, self.traffic) = (0, Traffic::default());
    }

    fn end(&self) -> Result<()> {
        self.opened.take_times(false);
        Ok(self.opened.database.shutdown()?)
    }

    fn log_bytes(&self) -> f64 {
        self.traffic.log.bytes as f64 / self.transactions.max(1) as f64
    }

    /// Returns the means of the cache's states over all rounds.
    fn cache(&self) -> Option<CacheStates> {
        let mean = |of: &dyn Fn(&CacheStates) -> f64| {
            self.states.iter().map(of).sum::<f64>() / self.states.len() as f64
        };
        let state = |of: fn(&CacheStates) -> CacheState| CacheState {
            filled_percent: mean(&|states| of(states).filled_percent),
            dirty_percent: mean(&|states| of(states).dirty_percent),
            invalid_percent: mean(&|states| of(states).invalid_percent),
        };
        let states = CacheStates { begin: state(|states| states.begin), end: state(|states| states.end) };
        (!self.states.is_empty()).then_some(states)
    }
}

/// How long a round runs, in milliseconds of the drives.
#[derive(Clone, Copy)]
struct RoundLengths {
    /// The part before the measurement.
    settle_ms: u64,
    /// The measured part.
    measured_ms: u64,
}

/// The conditions that all pairs of a measurement have in common.
#[derive(Clone, Copy)]
struct PairConditions<'a> {
    workload: &'a dyn Workload,
    device: &'a Device,
    clients: usize,
    lengths: RoundLengths,
    pairs: usize,
}

/// Measures pairs of rounds. Returns `None` if a round was spoilt and a larger dilation may help.
fn pairs(
    stands: &[Stand; 2],
    asked: PairConditions<'_>,
    Attempt { dilation, is_last }: Attempt,
) -> Result<Option<HardeningRow>> {
    let PairConditions { workload, device, clients, lengths, pairs } = asked;
    let on = |stand| Ground { stand, device, workload, clients, dilation };
    let [none, with] = stands;
    let mut sides = [Side::warmed(on(none))?, Side::warmed(on(with))?];
    for number in 0..=pairs as u64 {
        for side in &mut sides {
            if !side.round(lengths, number)? && !is_last {
                return Ok(None);
            }
        }
        if number == 0 {
            sides.iter_mut().for_each(Side::forget);
        }
    }
    sides.iter().try_for_each(Side::end)?;
    Ok(Some(row(sides, device)))
}

fn row([none, with]: [Side<'_>; 2], device: &Device) -> HardeningRow {
    let ratios: Vec<f64> = with.tps.iter().zip(&none.tps).map(|(with, none)| with / none).collect();
    let reports: Vec<_> = none.reports.iter().chain(&with.reports).cloned().collect();
    let log_bytes = [none.log_bytes(), with.log_bytes()];
    HardeningRow {
        row: "hardening",
        experiment: "",
        figure: "",
        factors: with.on.stand.variant.factors.clone(),
        ratio: Interval::of(&ratios),
        meta_bytes_share: with.traffic.share(|tally| tally.bytes),
        meta_requests_share: with.traffic.share(|tally| tally.operations),
        log_bytes,
        cache: [none.cache(), with.cache()],
        none_tps: none.tps,
        tps: with.tps,
        warmth: [none.warmth, with.warmth],
        emulation: Emulation::of_drives(&reports, device.flush_us()),
    }
}

/// Repeats section 4.4: how much throughput each restart scheme costs at the peak.
pub fn hardening(lab: &mut Lab<'_>) -> Result<()> {
    flash_kept::begin(lab, ROUND_MS, SETTLE_MS)?;
    lab.prefer_rounds(PAIRS);
    let (workload, device) = (TPCC.load(lab, UNITS)?, flash_kept::drives(lab)?);
    let (mut rows, mut claims) = (Vec::new(), Vec::new());
    let schemes = SCHEMES.into_iter().filter(|scheme| *scheme != FlashRestart::None);
    let all = schemes.flat_map(|scheme| DESIGNS.map(|design| (design, scheme)));
    for (design, scheme) in all {
        for clients in lab.clients(&[SESSIONS], &[SESSIONS]) {
            let scale = lab.scale();
            let lengths = RoundLengths { settle_ms: scale.warm_ms, measured_ms: scale.round_ms };
            let pairs = scale.rounds;
            let asked = PairConditions { workload: &*workload, device: &device, clients, lengths, pairs };
            let Some(row) = lab.dilated(|lab, attempt| measure(lab, asked, design, scheme, attempt))? else {
                continue;
            };
            lab.write_row(&row)?;
            claims.extend(claim_costs(lab, design, scheme, &row)?);
            rows.push(row);
        }
    }
    tell_rows(lab, &rows, &claims)
}

/// Compares a scheme with `none`, each on a copy of its own. The inner result is `None` if the user has not
/// asked for both. The outer one is `None` if a round was spoilt and a larger dilation may help.
fn measure(
    lab: &Lab<'_>,
    asked: PairConditions<'_>,
    design: FlashDesign,
    scheme: FlashRestart,
    attempt: Attempt,
) -> Result<Option<Option<HardeningRow>>> {
    let variants =
        [FlashRestart::None, scheme].map(|scheme| KeptVariant::of(&TPCC, design, scheme).variant(lab));
    if !variants.iter().all(|variant| lab.wants(&variant.factors)) {
        return Ok(Some(None));
    }
    let stands = lab.stands(asked.workload, flash_kept::sizes(lab), &variants)?;
    let Ok(stands) = <[Stand; 2]>::try_from(stands) else { return Ok(Some(None)) };
    let Some(row) = pairs(&stands, asked, attempt)? else { return Ok(None) };
    let Subject { experiment, figure } = lab.subject();
    let mut factors = row.factors.clone();
    factors.insert("clients", asked.clients.into());
    Ok(Some(Some(HardeningRow { experiment, figure, factors, ..row })))
}

/// Returns a range that the thesis states for TPC-C, as text for people.
fn published_range(scheme: FlashRestart) -> &'static str {
    match scheme {
        FlashRestart::LogBased => " (thesis: 0.93 to 0.95)",
        FlashRestart::LazyVerification => " (thesis: within 5 %)",
        _ => "",
    }
}

/// Returns claims about the throughput that remains, and about the slot records' share of the traffic. Only
/// lazy verification has bars.
fn claim_costs(
    lab: &mut Lab<'_>,
    design: FlashDesign,
    scheme: FlashRestart,
    row: &HardeningRow,
) -> Result<Vec<Claim>> {
    let (spoilt, has_bar) = (row.not_judged(), scheme == FlashRestart::LazyVerification);
    let held = |claim: Claim, bar: f64, verdict: Verdict| {
        let verdict = spoilt.clone().map_or(verdict, Verdict::NotJudged);
        if has_bar { claim.judged(bar, verdict) } else { claim }
    };
    let found = |says: String, ours: f64| Claim::found(&row.factors, says, ours).of_rounds(row.ratio.pairs);
    let (name, range) = (scheme.name(), published_range(scheme));
    let says = format!("sustained throughput, {name} / none, 95 %: {}{range}", row.ratio);
    let kept = found(says, row.ratio.mean);
    let mut claims = vec![match has_bar {
        true => held(kept, KEPT_BAR, row.ratio.at_least(KEPT_BAR)),
        false => held_published(kept, published_throughput(design, scheme), spoilt.clone()),
    }];
    for (what, share) in [("bytes", row.meta_bytes_share), ("requests", row.meta_requests_share)] {
        let claim = found(format!("{name}: metadata's part of the {what} of flash"), share);
        claims.push(held(claim, SHARE_BAR, Verdict::at_most(SHARE_BAR, share)));
    }
    let [without, with] = row.log_bytes;
    claims.push(found(format!("log bytes a transaction, {name} / none"), with / without));
    claims.into_iter().map(|claim| lab.write_claim(claim)).collect()
}

fn tell_rows(lab: &mut Lab<'_>, rows: &[HardeningRow], claims: &[Claim]) -> Result<()> {
    let head = [
        "scheme",
        "design",
        "none tps",
        "tps",
        "ratio",
        "95 %",
        "pairs",
        "meta bytes %",
        "meta requests %",
        "log KiB/tx none",
        "with",
        "dirty % none",
        "with",
        "counts",
    ];
    let mut table = TextTable::headed(&head);
    for row in rows {
        let factor = |name: &str| row.factors.get(name).map_or_else(String::new, tell::plain);
        let mut line = ["scheme", "design"].map(factor).to_vec();
        let mean = |tps: &[f64]| format!("{:.1}", tps.iter().sum::<f64>() / tps.len().max(1) as f64);
        line.extend([mean(&row.none_tps), mean(&row.tps), format!("{:.3}", row.ratio.mean)]);
        line.extend([row.ratio.to_string(), row.ratio.pairs.to_string()]);
        line.extend(
            [row.meta_bytes_share, row.meta_requests_share].map(|share| format!("{:.3}", 100.0 * share)),
        );
        line.extend(row.log_bytes.map(|bytes| format!("{:.2}", bytes / 1024.0)));
        line.extend(row.cache.map(|cache| {
            let dirty = |cache: CacheStates| [cache.begin.dirty_percent, cache.end.dirty_percent];
            let told = |[begin, end]: [f64; 2]| format!("{begin:.1} to {end:.1}");
            cache.map(dirty).map_or_else(String::new, told)
        }));
        line.push(tell::counts(row.emulation.as_ref()));
        table.push(line);
    }
    lab.say(&format!("\n{table}{}", tell::claims(claims)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_are_a_part_of_both() {
        let tally = |operations, bytes| Tally { operations, bytes };
        let (page, meta, log) = (tally(30, 9_900), tally(10, 100), Tally::default());
        let traffic = Traffic { page, meta, log };
        assert_eq!(
            (traffic.share(|tally| tally.bytes), traffic.share(|tally| tally.operations)),
            (0.01, 0.25)
        );
        assert_eq!(Traffic::default().share(|tally| tally.bytes), 0.0);
        assert_eq!(traffic.plus(traffic).since(traffic), traffic);
    }
}
