//! Runs one round (open a database, warm it up, measure, shut down), and summarizes several rounds.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use hdrhistogram::Histogram;
use varve_device::{Accounting, Emulated, EmulationReport};
use varve_engine::Database;
use varve_pager::{Times, Timing};

use super::device::Device;
use super::drives::flush_us;
use super::row::{CacheStates, DriveFigures, Emulation, Factors, KindLatency, Point, Subject};
use super::scale::Scale;
use super::stand::{OpenStand, Stand, levels};
use super::warm::{self, CacheState, Warmth};
use varve_bench::Result;
use varve_bench::driver::{self, Plan, Round, RoundObserver, histogram};
use varve_bench::embedded::Embedded;
use varve_bench::report::{Configuration, Spread};
use varve_bench::workload::Workload;

/// The counters of levels that are written into rows, by their names. All of them count work. None is a
/// state.
const LEVEL_COUNTERS: &[&str] = &[
    "nvm.puts",
    "nvm.inline_puts",
    "nvm.reclaimed",
    "nvm.read_hits",
    "nvm.home_pages",
    "nvm.slot_waits",
    "nvm.inline_slot_waits",
    "nvm.put_flushes",
    "nvm.inline_flushes",
    "flash.read_hits",
    "flash.read_hits_dirty",
    "flash.read_misses",
    "flash.trimmed_reads",
    "flash.admitted_clean",
    "flash.admitted_dirty",
    "flash.refused_sequential",
    "flash.refused_colder",
    "flash.refused_throttled",
    "flash.refused_busy",
    "flash.invalidated",
    "flash.written_pages",
    "flash.cleaned_pages",
    "flash.clean_batches",
    "home.pages_written",
    "home.pages_compressed",
    "home.pages_decompressed",
    "home.plain_bytes",
    "home.stored_bytes",
    "home.moved_bytes",
];

/// The number of samples in a round.
const LOOKS: u32 = 10;

/// The conditions under which a stand is measured.
#[derive(Clone, Copy)]
pub struct Conditions<'a> {
    /// The workload.
    pub workload: &'a dyn Workload,
    /// The drives.
    pub device: &'a Device,
    /// The number of sessions.
    pub clients: usize,
    /// The factor on all times of the drives.
    pub dilation: f64,
}

/// The results of one round.
pub struct Measured {
    round: Round,
    counts: Counts,
    configuration: String,
    /// The report of each emulated drive.
    reports: Vec<(&'static str, EmulationReport)>,
    /// Bytes written to the drives for each transaction, in each tenth of the round.
    over_time: Vec<f64>,
    warmth: Option<Warmth>,
    cache: Option<CacheStates>,
}

impl Measured {
    /// Returns whether the emulation was fast enough. On real drives a round always counts.
    pub fn counts(&self) -> bool {
        let rounds = std::slice::from_ref(&self.reports);
        Emulation::of_drives(rounds, 0.0).is_none_or(|emulation| emulation.counts)
    }
}

/// The counters of a database at a moment, or their growth in an interval.
#[derive(Default)]
struct Counts {
    written_bytes: BTreeMap<&'static str, u64>,
    /// Bytes read and written, by drive.
    moved_bytes: BTreeMap<&'static str, [u64; 2]>,
    nvm_bytes: BTreeMap<&'static str, u64>,
    spent_ns: BTreeMap<&'static str, u64>,
    levels: BTreeMap<&'static str, u64>,
    pages_read: u64,
    inline: u64,
    ahead: u64,
    database_bytes: u64,
}

impl Counts {
    fn of(opened: &OpenStand, page_bytes: usize) -> Self {
        let OpenStand { database, drives, times, nvm } = opened;
        let pager = database.stats().pager;
        Self {
            written_bytes: written_bytes(drives.iter().map(|drive| &*drive.account)),
            moved_bytes: drives.iter().map(|drive| (drive.name, moved_bytes(&drive.account))).collect(),
            nvm_bytes: written_bytes(nvm.as_deref().into_iter()),
            spent_ns: spent_ns(times),
            levels: level_counters(database),
            pages_read: pager.misses + pager.prefetched,
            inline: pager.inline_writes,
            ahead: pager.evict_writes + pager.checkpoint_writes,
            database_bytes: pager.data_pages * page_bytes as u64,
        }
    }

    fn since(mut self, before: &Counts) -> Self {
        subtract(&mut self.written_bytes, &before.written_bytes);
        for (name, [read, written]) in &mut self.moved_bytes {
            let [read_before, written_before] = before.moved_bytes.get(name).copied().unwrap_or_default();
            (*read, *written) = (*read - read_before, *written - written_before);
        }
        subtract(&mut self.nvm_bytes, &before.nvm_bytes);
        subtract(&mut self.spent_ns, &before.spent_ns);
        subtract(&mut self.levels, &before.levels);
        self.pages_read -= before.pages_read;
        self.inline -= before.inline;
        self.ahead -= before.ahead;
        self
    }
}

/// Returns the bytes that were written to all drives so far, for all purposes.
fn bytes_of(opened: &OpenStand) -> u64 {
    opened.drives.iter().map(|drive| moved_bytes(&drive.account)[1]).sum()
}

/// Returns the MiB a second that were read and written between two results of [`moved_bytes`].
pub(super) fn mib_per_second(from: [u64; 2], to: [u64; 2], seconds: f64) -> [f64; 2] {
    std::array::from_fn(|way| (to[way] - from[way]) as f64 / f64::from(1 << 20) / seconds.max(1e-3))
}

/// Returns the bytes that were read so far, and bytes that were written.
pub(super) fn moved_bytes(account: &Accounting) -> [u64; 2] {
    let rows = account.rows();
    [rows.iter().map(|row| row.read.bytes).sum(), rows.iter().map(|row| row.written.bytes).sum()]
}

/// Returns the bytes that were written so far, by purpose.
fn written_bytes<'a>(accounts: impl Iterator<Item = &'a Accounting>) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    for row in accounts.flat_map(Accounting::rows).filter(|row| row.written.bytes > 0) {
        *sums.entry(row.purpose.name()).or_default() += row.written.bytes;
    }
    sums
}

fn spent_ns(times: &Times) -> BTreeMap<&'static str, u64> {
    Timing::ALL.iter().map(|what| (what.name(), times.spent(*what).ns)).collect()
}

fn level_counters(database: &Database) -> BTreeMap<&'static str, u64> {
    let all = levels(database);
    LEVEL_COUNTERS.iter().filter_map(|name| Some((*name, *all.get(*name)?))).collect()
}

fn subtract(from: &mut BTreeMap<&'static str, u64>, before: &BTreeMap<&'static str, u64>) {
    for (name, figure) in from {
        *figure -= before.get(name).copied().unwrap_or(0);
    }
}

/// Measures one round of a stand. `number` determines the requests of the sessions.
pub fn round(stand: &Stand, on: Conditions<'_>, scale: Scale, number: u64) -> Result<Measured> {
    let opened = stand.open(on.device, on.dilation)?;
    let settings = format!("{}, {}", stand.describe(), on.device.describe(on.dilation));
    let target = Embedded::new(opened.database.clone(), &settings);
    let whole_seconds = |ms: u64| ms.div_ceil(1000);
    let plan = Plan {
        threads: on.clients,
        rounds: scale.rounds,
        seconds: whole_seconds(scale.round_ms),
        warm_seconds: whole_seconds(scale.warm_ms),
    };
    let dilated = |ms: u64| Duration::from_millis(ms).mul_f64(on.dilation);
    let warm = |transactions| warm::up(&opened, &target, on.workload, plan, transactions, number);
    let warmth = stand.variant.warm_transactions().map(warm).transpose()?;
    opened.take_times(true);
    if scale.warm_ms > 0 {
        driver::round(&target, on.workload, plan, dilated(scale.warm_ms), 2 * number)?;
    }
    let before = Counts::of(&opened, stand.sizes.page_bytes);
    let begin = CacheState::of(&opened.database);
    emulated(&opened).for_each(|(_, device)| device.begin_report());
    let (mut over_time, mut last) = (Vec::new(), (0, bytes_of(&opened)));
    let mut look = |done: &dyn Fn() -> u64| {
        let done = done();
        let bytes = bytes_of(&opened);
        over_time.push((bytes - last.1) as f64 / (done - last.0).max(1) as f64);
        last = (done, bytes);
        ControlFlow::Continue(())
    };
    let watch = RoundObserver { looks: LOOKS, look: &mut look };
    let (length, seed) = (dilated(scale.round_ms), 2 * number + 1);
    let round = driver::round_watched(&target, on.workload, plan, length, seed, Some(watch))?;
    let reports = emulated(&opened).map(|(name, device)| (name, device.report())).collect();
    let end = CacheState::of(&opened.database);
    let cache = begin.zip(end).map(|(begin, end)| CacheStates { begin, end });
    let counts = Counts::of(&opened, stand.sizes.page_bytes).since(&before);
    let configuration = Configuration::of(&target, on.workload, plan).hash();
    drop(target);
    // The shutdown is not measured. If the warm-up had no delays of drives, the shutdown has none either.
    opened.take_times(stand.variant.warm_transactions().is_none());
    opened.database.shutdown()?;
    Ok(Measured { round, counts, configuration, reports, over_time, warmth, cache })
}

/// Returns the emulated drives, with their names.
fn emulated(opened: &OpenStand) -> impl Iterator<Item = (&'static str, &Emulated)> {
    opened.drives.iter().filter_map(|drive| Some((drive.name, &**drive.emulated.as_ref()?)))
}

/// Returns the work of each drive for a transaction. It is empty if there is only one drive.
fn drives(
    rounds: &[Measured],
    transactions: f64,
    page_bytes: f64,
    device: &Device,
) -> BTreeMap<&'static str, DriveFigures> {
    let Some(last) = rounds.last().filter(|last| last.counts.moved_bytes.len() > 1) else {
        return BTreeMap::new();
    };
    let figures = |name: &'static str| {
        let moved = rounds.iter().filter_map(|one| one.counts.moved_bytes.get(name));
        let [read, written] = moved.fold([0, 0], |sum, bytes| [sum[0] + bytes[0], sum[1] + bytes[1]]);
        let of_round = |one: &Measured| one.reports.iter().find(|(of, _)| *of == name).cloned();
        let reports: Vec<EmulationReport> =
            rounds.iter().filter_map(of_round).map(|(_, report)| report).collect();
        let operations: u64 = reports.iter().map(|report| report.operations).sum();
        DriveFigures {
            pages_read: read as f64 / page_bytes / transactions,
            pages_written: written as f64 / page_bytes / transactions,
            operations: operations as f64 / transactions,
            emulation: Emulation::worst(&reports, flush_us(device, name)),
        }
    };
    last.counts.moved_bytes.keys().map(|name| (*name, figures(name))).collect()
}

/// Summarizes at least one round of a stand as a point of this experiment and figure.
pub fn point(
    Subject { experiment, figure }: Subject,
    stand: &Stand,
    rounds: &[Measured],
    on: Conditions<'_>,
    scale: Scale,
    shared: &Factors,
) -> Point {
    let transactions = rounds.iter().map(|one| one.round.transactions).sum::<u64>().max(1) as f64;
    let each =
        |of: fn(&Counts) -> u64| rounds.iter().map(|one| of(&one.counts)).sum::<u64>() as f64 / transactions;
    let each_of = |of: fn(&Counts) -> &BTreeMap<&'static str, u64>| {
        let figures = rounds.iter().flat_map(|one| of(&one.counts));
        sums(figures.map(|(name, figure)| (*name, *figure as f64 / transactions)))
    };
    let rates: Vec<f64> = rounds.iter().map(|one| one.round.tps() * on.dilation).collect();
    let mut latency_us = histogram();
    rounds.iter().for_each(|one| latency_us += &one.round.latency_us);
    let latencies_ns = (latency_us.mean() * latency_us.len() as f64 * 1000.0).max(1.0);
    let spent = rounds.iter().flat_map(|one| &one.counts.spent_ns);
    let reports: Vec<_> = rounds.iter().map(|one| one.reports.clone()).collect();
    let database_bytes = rounds.last().map_or(0, |one| one.counts.database_bytes);
    let latency = KindLatency::of(&latency_us, on.dilation);
    let mut factors = shared.clone();
    factors.extend(stand.variant.factors.clone());
    factors.insert("clients", on.clients.into());
    Point {
        row: "point",
        experiment,
        figure,
        factors,
        configuration: rounds.last().map_or_else(String::new, |one| one.configuration.clone()),
        scale: scale_text(stand, scale.name, database_bytes),
        rounds: rounds.len(),
        tps: Spread::of(&rates),
        latency_mean_us: latency.mean_us,
        latency_p99_us: latency.p99_us,
        kinds: kinds(rounds, on.dilation),
        written_bytes: each_of(|counts| &counts.written_bytes),
        written_over_time: over_time(rounds),
        nvm_bytes: each_of(|counts| &counts.nvm_bytes),
        levels: each_of(|counts| &counts.levels),
        pages_read: each(|counts| counts.pages_read),
        pages_written_inline: each(|counts| counts.inline),
        pages_written_ahead: each(|counts| counts.ahead),
        time_share: sums(spent.map(|(what, ns)| (*what, *ns as f64 / latencies_ns))),
        database_bytes,
        emulation: Emulation::of_drives(&reports, on.device.flush_us()),
        drives: drives(rounds, transactions, stand.sizes.page_bytes as f64, on.device),
        warmth: rounds.last().and_then(|one| one.warmth.clone()),
        cache: rounds.last().and_then(|one| one.cache),
    }
}

/// Returns the bytes written for each transaction in each tenth of a round, as means over the rounds.
fn over_time(rounds: &[Measured]) -> Vec<f64> {
    let tenths = rounds.iter().map(|one| one.over_time.len()).min().unwrap_or(0);
    let mean = |at: usize| rounds.iter().map(|one| one.over_time[at]).sum::<f64>() / rounds.len() as f64;
    (0..tenths).map(mean).collect()
}

fn sums(figures: impl Iterator<Item = (&'static str, f64)>) -> BTreeMap<&'static str, f64> {
    let mut sums = BTreeMap::new();
    figures.for_each(|(name, figure)| *sums.entry(name).or_default() += figure);
    sums
}

/// Latencies of each kind of transaction over all rounds.
fn kinds(rounds: &[Measured], dilation: f64) -> BTreeMap<&'static str, KindLatency> {
    let mut all: BTreeMap<&'static str, Histogram<u64>> = BTreeMap::new();
    for (kind, latency_us) in rounds.iter().flat_map(|one| &one.round.kinds) {
        *all.entry(kind.name).or_insert_with(histogram) += latency_us;
    }
    all.iter().map(|(name, latency_us)| (*name, KindLatency::of(latency_us, dilation))).collect()
}

fn scale_text(stand: &Stand, name: &str, database_bytes: u64) -> String {
    let ratio = database_bytes as f64 / stand.sizes.pool_bytes as f64;
    let log = stand.sizes.log_bytes as f64 / stand.sizes.pool_bytes as f64;
    format!(
        "{name}: {} MiB of data pages, {ratio:.1} times the pool, log {log:.0} times the pool; device times as they are",
        database_bytes >> 20
    )
}
