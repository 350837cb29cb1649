//! Repeats chapter 3 of Do 2012: a page cache on flash, between the buffer pool and eight disks.
//!
//! Sizes have the ratios of section 3.4 of the thesis: the pool has 20 units, the flash cache 140, and the
//! database 100 to 415. A unit has `Scale::flash_unit_bytes`. The data files are on the drive profile
//! `hdd-8`, the cache on `fusion-io-160` (table 3.1), and the log on its own disk, `hdd-7200` (section
//! 3.4.1.1).
//!
//! 1. The baseline has no cache, and a buffer pool of the same size. Its warm-up has as many
//!    transactions as the warm-up of the variants with a cache.
//! 2. Each page has a fixed offset, and nothing protects its write against tearing. SQL Server, which the
//!    thesis measured, writes pages in this way. Doublewrite would slow down the baseline most, because the
//!    baseline writes the most pages to disk. Variants with doublewrite are measured, too, as separate
//!    configurations.
//! 3. The log is so large that no page is written only to free log space. The thesis avoids such writes, too,
//!    because it runs TPC-C without checkpoints (section 3.4.1.2). An experiment may ask for a smaller log.

use std::collections::BTreeSet;

use varve_pager::{
    CheckpointKind, CleanOrder, FlashConfig, FlashDesign, FlashFill, FlashRestart, FlashScans, FlashSettings,
    PagerConfig, ProtectionKind,
};

use super::claim::{Claim, Comparison, Expects, Figure, PointPair};
use super::device::Device;
use super::flash_tell;
use super::lab::Lab;
use super::order::{self, RankedFigure};
use super::row::{Factors, Point};
use super::scale::ByScale;
use super::stand::{InFlash, Sizes, Variant};
use super::verdict::Better;
use crate::tpce_like::TpceLike;
use crate::tpch_like::TpchLike;
use varve_bench::Result;
use varve_bench::tpcc::{self, Tpcc};
use varve_bench::workload::Workload;

/// The size of a page in the thesis.
pub(super) const PAGE_BYTES: usize = 8192;
/// The sizes of the buffer pool and of the flash cache, in units.
const POOL_UNITS: u64 = 20;
pub(super) const CACHE_UNITS: u64 = 140;
/// The log is this many times as large as the flash cache, and has this many segments.
const LOG_OF_CACHE: u64 = 8;
const LOG_SEGMENTS: u64 = 128;
pub(super) const SEGMENT_BYTES_MIN: u64 = 512 << 10;
/// When the log is filled to this share, pages are written to the data files to free log space.
const LOG_FRACTION: f64 = 0.75;

/// The drives of the thesis, as profiles: for the data files, the flash cache, and the log.
const HOME: &str = "hdd-8";
pub(super) const FLASH: &str = "fusion-io-160";
pub(super) const LOG: &str = "hdd-7200";

/// Limits of dirty slots of the cache, in percent, by mix (lambda in table 3.2).
const LAMBDA_C: u8 = 50;
const LAMBDA_E: u8 = 1;

/// Measured bytes of data pages, from which the size of a load is computed: for a row of stock with its share
/// of the item, for a customer with its orders, for a customer of tpce-like, and for an order of tpch-like.
/// These are estimates. The field `scale` of a result row has the real ratio of database and pool.
const BYTES_OF_STOCK: u64 = 385;
const BYTES_OF_CUSTOMER: u64 = 2_170;
const BYTES_OF_TRADER: u64 = 40_000;
const BYTES_OF_ORDER: u64 = 700;

/// Lengths of a round and of the load before it, in milliseconds of the drives.
const ROUND_MS: ByScale<u64> = ByScale { quick: 30_000, full: 120_000 };
const SETTLE_MS: ByScale<u64> = ByScale { quick: 10_000, full: 60_000 };

/// The number of sessions, which is enough to keep eight disks busy, and the number of query streams.
pub(super) const SESSIONS: usize = 64;
const STREAMS: usize = 8;

/// A bound of a point's throughput is computed from what the drives can do. The point must reach this share
/// of it.
const BOUND: f64 = 0.85;

/// The name of the baseline, and short names of designs.
pub(super) const OFF: &str = "off";
const LC: &str = "lazy-cleaning";
const DW: &str = "dual-write";
const CW: &str = "clean-write";
const TAC: &str = "temperature-aware";

/// A load, with the sizes of its database and its settings.
pub(super) struct Mix {
    pub name: &'static str,
    /// The sizes of the database that are measured, in units.
    pub sizes: &'static [u64],
    /// The limit of dirty slots of the cache, in percent.
    pub dirty_percent: u8,
    /// The number of transactions of the warm-up, divided by the number of slots of the cache.
    pub warm_of_frame: f64,
    /// The number of sessions: enough for eight disks, or one for each stream of queries.
    pub sessions: usize,
}

pub(super) const TPCC: Mix = Mix {
    name: "tpcc",
    sizes: &[100, 200, 400],
    dirty_percent: LAMBDA_C,
    warm_of_frame: 1.5,
    sessions: SESSIONS,
};
pub(super) const TPCE: Mix = Mix {
    name: "tpce-like",
    sizes: &[115, 230, 415],
    dirty_percent: LAMBDA_E,
    warm_of_frame: 4.0,
    sessions: SESSIONS,
};

/// Two sizes, which correspond to the scale factors 30 and 100 of the thesis.
pub(super) const TPCH: Mix = Mix {
    name: "tpch-like",
    sizes: &[45, 160],
    dirty_percent: LAMBDA_E,
    warm_of_frame: 0.03,
    sessions: STREAMS,
};
/// A load whose hot set is as large as the cache.
pub(super) const HOT: Mix = Mix {
    name: "hot-and-cold",
    sizes: &[140],
    dirty_percent: LAMBDA_C,
    warm_of_frame: 4.0,
    sessions: SESSIONS,
};

impl Mix {
    /// Returns the workload with a database of this many units.
    pub(super) fn load(&self, lab: &Lab<'_>, units: u64) -> Result<Box<dyn Workload>> {
        let bytes = units * lab.scale().flash_unit_bytes;
        match self.name {
            "tpcc" => Ok(Box::new(Tpcc::new(warehouses(lab.scale().tpcc, bytes)))),
            "tpch-like" => Ok(Box::new(TpchLike::new((bytes / BYTES_OF_ORDER).max(160))?)),
            _ => Ok(Box::new(TpceLike::new((bytes / BYTES_OF_TRADER).max(10))?)),
        }
    }
}

/// Returns the scale of TPC-C with as many warehouses of this kind as fit into this many bytes.
fn warehouses(kind: tpcc::Scale, bytes: u64) -> tpcc::Scale {
    let of_stock = kind.items as u64 * BYTES_OF_STOCK;
    let of_customers = (kind.districts * kind.customers) as u64 * BYTES_OF_CUSTOMER;
    tpcc::Scale { warehouses: (bytes / (of_stock + of_customers)).max(1) as i64, ..kind }
}

/// Returns the thesis' drives for data files, log and flash cache. If nothing is to be emulated, all three
/// are the machine's own drive.
pub(super) fn drives(lab: &Lab<'_>) -> Result<Device> {
    drives_with(lab, HOME)
}

/// Returns the same drives, except that the data files are on the drive `home`.
pub(super) fn drives_with(lab: &Lab<'_>, home: &str) -> Result<Device> {
    if !lab.device().is_emulated() {
        return Ok(Device::REAL.with_apart(Device::REAL, Device::REAL));
    }
    let of = |name| Device::named(name, None);
    Ok(of(home)?.with_apart(of(LOG)?, of(FLASH)?))
}

pub(super) fn cache_bytes(lab: &Lab<'_>) -> u64 {
    CACHE_UNITS * lab.scale().flash_unit_bytes
}

pub(super) fn sizes(lab: &Lab<'_>) -> Sizes {
    let pool_bytes = POOL_UNITS * lab.scale().flash_unit_bytes;
    let segment_bytes = (LOG_OF_CACHE * cache_bytes(lab) / LOG_SEGMENTS).max(SEGMENT_BYTES_MIN);
    Sizes::new(PAGE_BYTES, pool_bytes as usize)
        .with_log(LOG_SEGMENTS, segment_bytes.next_multiple_of(SEGMENT_BYTES_MIN))
}

/// Returns the most pages that wait in memory to be written to flash. This memory is a sixteenth of the pool,
/// and is not part of the pool.
fn queued(lab: &Lab<'_>) -> usize {
    (sizes(lab).pool_bytes / PAGE_BYTES / 16).max(FlashConfig::PENDING_MAX)
}

/// Returns the number of transactions of the warm-up.
pub(super) fn warm_transactions(lab: &Lab<'_>, mix: &Mix) -> u64 {
    ((cache_bytes(lab) / PAGE_BYTES as u64) as f64 * mix.warm_of_frame) as u64
}

/// Sets the settings that all variants share.
pub(super) fn common(config: &mut PagerConfig) {
    config.protection = ProtectionKind::None;
    config.checkpoint.log_fraction = LOG_FRACTION;
}

/// Returns the baseline: no cache, and the same warm-up.
pub(super) fn baseline(lab: &Lab<'_>, mix: &Mix) -> Variant {
    baseline_so(lab, mix, Settings::of(lab, mix))
}

/// Returns the baseline with the checkpoints of these settings.
pub(super) fn baseline_so(lab: &Lab<'_>, mix: &Mix, settings: Settings) -> Variant {
    let configure = move |config: &mut PagerConfig| settings.configure(config);
    Variant::new(configure).with("design", OFF).warmed_by(warm_transactions(lab, mix))
}

/// The settings of a cache, and those of checkpoints.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub cache_units: u64,
    pub dirty_percent: u8,
    pub queued_max: usize,
    pub restart: FlashRestart,
    pub fill: FlashFill,
    pub scans: FlashScans,
    /// The longest log that redo may have to read, as a share of the log.
    pub log_fraction: f64,
    /// The interval of sharp checkpoints in milliseconds. If it is `None`, checkpoints write no pages.
    pub sharp_ms: Option<u64>,
}

impl Settings {
    /// Returns the settings of the thesis.
    pub(super) fn of(lab: &Lab<'_>, mix: &Mix) -> Self {
        let (dirty_percent, queued_max) = (mix.dirty_percent, queued(lab));
        let (restart, fill, scans) =
            (FlashRestart::None, FlashSettings::DEFAULT.fill, FlashSettings::DEFAULT.scans);
        let (cache_units, log_fraction, sharp_ms) = (CACHE_UNITS, LOG_FRACTION, None);
        Self { cache_units, dirty_percent, queued_max, restart, fill, scans, log_fraction, sharp_ms }
    }

    fn configure(&self, config: &mut PagerConfig) {
        common(config);
        config.checkpoint.log_fraction = self.log_fraction;
        if let Some(interval_ms) = self.sharp_ms {
            (config.checkpoint.kind, config.checkpoint.interval_ms) = (CheckpointKind::Sharp, interval_ms);
        }
    }
}

/// Returns the variant with this design and a cache of the thesis' size.
pub(super) fn cached(lab: &Lab<'_>, mix: &Mix, design: FlashDesign) -> Variant {
    cached_so(lab, mix, design, Settings::of(lab, mix))
}

/// Returns the variant with this design and these settings. Its warm-up has as many transactions as that of a
/// cache of the thesis' size.
pub(super) fn cached_so(lab: &Lab<'_>, mix: &Mix, design: FlashDesign, settings: Settings) -> Variant {
    let Settings { cache_units, dirty_percent, queued_max, restart, fill, scans, .. } = settings;
    let (bytes, clean_order) = (cache_units * lab.scale().flash_unit_bytes, CleanOrder::LastUse);
    let flash = InFlash { bytes, design, queued_max, dirty_percent, clean_order, restart, fill, scans };
    let configure = move |config: &mut PagerConfig| settings.configure(config);
    let variant = Variant::new(configure).with("design", design.name()).in_flash(flash);
    variant.warmed_by(warm_transactions(lab, mix))
}

/// Returns the variants of all designs. The baseline is the first.
fn designs(lab: &Lab<'_>, mix: &Mix) -> Vec<Variant> {
    let all = FlashDesign::ALL.into_iter().filter(|design| *design != FlashDesign::Off);
    std::iter::once(baseline(lab, mix)).chain(all.map(|design| cached(lab, mix, design))).collect()
}

pub(super) fn is(point: &Point, factor: &str, value: &str) -> bool {
    has(&point.factors, factor, value)
}

pub(super) fn has(factors: &Factors, factor: &str, value: &str) -> bool {
    factors.get(factor).is_some_and(|found| found == value)
}

/// Sets the lengths of rounds, which are longer than usual because these drives are slow. Prints how the
/// experiment measures.
pub(super) fn begin(lab: &mut Lab<'_>, round_ms: ByScale<u64>, settle_ms: ByScale<u64>) -> Result<()> {
    lab.prefer_lengths(round_ms, settle_ms);
    lab.say(&format!(
        "home {HOME}, flash {FLASH}, log {LOG} (one disk); pool : cache : database as 20 : 140 : size, a unit is {} KiB; protection none. \
         Every point is warmed by the same number of transactions before the drives take their time.",
        lab.scale().flash_unit_bytes >> 10
    ))
}

/// Returns the throughput of a design, divided by the throughput without a cache, as the thesis states it in
/// its text (section 3.4.2, which states that LC has 8 times the throughput without a cache, 4.3 times that
/// of DW, and 5.4 times that of TAC; section 3.4.3; table 3.3).
fn published(mix: &str, units: u64, design: &str) -> Option<f64> {
    match (mix, units, design) {
        ("tpcc", 200, LC) => Some(8.0),
        ("tpcc", 200, DW) => Some(8.0 / 4.3),
        ("tpcc", 200, TAC) => Some(8.0 / 5.4),
        ("tpce-like", 115, LC | DW | TAC) => Some(5.5),
        ("tpce-like", 230, LC | DW | TAC) => Some(7.2),
        ("tpce-like", 230, CW) => Some(7.2 * 0.775),
        ("tpce-like", 415, LC | DW | TAC) => Some(3.0),
        // The throughput of many streams of queries.
        ("tpch-like", 45, DW) => Some(6643.0 / 1229.0),
        ("tpch-like", 45, LC) => Some(5601.0 / 1229.0),
        ("tpch-like", 45, TAC) => Some(5639.0 / 1229.0),
        ("tpch-like", 160, DW) => Some(3691.0 / 953.0),
        ("tpch-like", 160, LC) => Some(3228.0 / 953.0),
        ("tpch-like", 160, TAC) => Some(3235.0 / 953.0),
        _ => None,
    }
}

/// Returns claims about the throughput of each design: compared with no cache, and compared with the bound of
/// the drives.
fn claim_speedups(lab: &mut Lab<'_>, mix: &Mix, units: u64, points: &[Point]) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    let off = points.iter().find(|point| is(point, "design", OFF));
    for point in points {
        let design = point.factors.get("design").and_then(|design| design.as_str()).unwrap_or_default();
        if let Some(off) = off.filter(|_| design != OFF) {
            let says = format!("{design} / {OFF}");
            let is_papers = !point.factors.contains_key("queued");
            let published = published(mix.name, units, design).filter(|_| is_papers);
            let expects = Expects::Published(published, Better::Higher);
            let asked =
                Comparison::ratio(&says, Figure::Throughput, PointPair { over: point, under: off }, expects);
            claims.push(lab.claim(asked.at(&point.factors))?);
        }
        if let Some((limit, bound)) = point.bound() {
            let says = format!("{design}, measured / bound ({limit})");
            let share = point.tps.median / bound;
            // For the baseline this share shows whether the load keeps the drives busy. If the baseline
            // leaves them idle, a ratio to it is not judged. So only designs with a cache have a bar here.
            let expects = if design == OFF { Expects::Nothing } else { Expects::AtLeast(BOUND) };
            claims.push(lab.claim(Comparison::figure(&says, share, point, expects))?);
        }
    }
    let papers = || points.iter().filter(|point| !point.factors.contains_key("queued"));
    let places = papers().filter_map(|point| {
        let design = point.factors.get("design")?.as_str()?;
        Some(RankedFigure::throughput(design, point, point, published(mix.name, units, design)?))
    });
    let order = off.and_then(|off| order::judge("order of throughput", off, places.collect()));
    claims.extend(order.map(|claim| lab.write_claim(claim)).transpose()?);
    Ok(claims)
}

/// Measures the variants that `designs` returns, under each mix and size, and judges them.
fn compare_designs(
    lab: &mut Lab<'_>,
    device: &Device,
    mixes: &[(&Mix, &[u64])],
    designs: fn(&Lab<'_>, &Mix) -> Vec<Variant>,
) -> Result<()> {
    let (mut points, mut claims) = (Vec::new(), Vec::new());
    for (mix, units) in mixes.iter().flat_map(|(mix, sizes)| sizes.iter().map(move |units| (*mix, *units))) {
        let factors = Factors::from([("workload", mix.name.into()), ("size", units.into())]);
        if !lab.wants(&factors) {
            continue;
        }
        let workload = mix.load(lab, units)?;
        let stands = lab.stands(&*workload, sizes(lab), &designs(lab, mix))?;
        for clients in lab.clients(&[mix.sessions], &[mix.sessions]) {
            let compared = lab.compare(&stands, &*workload, device, clients, &factors)?;
            claims.extend(claim_speedups(lab, mix, units, &compared)?);
            points.extend(compared);
        }
    }
    flash_tell::all(lab, &points, &claims)
}

/// Repeats figure 3.1 and table 3.3: all designs compared with no cache, by mix and size of the database.
pub fn speedup(lab: &mut Lab<'_>) -> Result<()> {
    begin(lab, ROUND_MS, SETTLE_MS)?;
    let device = drives(lab)?;
    let mixes = [&TPCC, &TPCE, &TPCH].map(|mix| (mix, mix.sizes));
    compare_designs(lab, &device, &mixes, designs)
}

/// Measures the three most important designs with the cache on the machine's own disk.
pub fn real(lab: &mut Lab<'_>) -> Result<()> {
    begin(lab, ROUND_MS, SETTLE_MS)?;
    lab.say(
        "The cache lies on the file system of --directory, with its own times; home and log are emulated.",
    )?;
    let device = match lab.device().is_emulated() {
        true => Device::named(HOME, None)?.with_apart(Device::named(LOG, None)?, Device::REAL),
        false => drives(lab)?,
    };
    let of = |lab: &Lab<'_>, mix: &Mix| {
        let designs = [FlashDesign::CleanWrite, FlashDesign::DualWrite, FlashDesign::LazyCleaning];
        let cached = designs.map(|design| cached(lab, mix, design));
        std::iter::once(baseline(lab, mix)).chain(cached).collect()
    };
    compare_designs(lab, &device, &[(&TPCC, &[200]), (&TPCE, &[230])], of)
}

/// The limits of dirty slots, in percent. For the smaller ones, `GAINS` has the published gain of the largest
/// limit over them (section 3.4.2).
const LAMBDAS: [u8; 3] = [10, 50, 90];
const GAINS: [(u8, f64); 2] = [(10, 3.5), (50, 1.3)];
/// The size of the database in figure 3.7, in units.
const LAMBDA_UNITS: u64 = 400;

/// Lengths of log that redo may have to read: their names, and their shares of the log. With the first one
/// hardly any page is written to the data files to free log space, as in the thesis. The second one is as
/// long as a pool. They are not intervals between checkpoints: `flash-checkpoint` varies those.
fn redo_lengths(lab: &Lab<'_>) -> [(&'static str, f64); 2] {
    let Sizes { pool_bytes, log_bytes, .. } = sizes(lab);
    [(LONG_REDO, LOG_FRACTION), ("1 pool", pool_bytes as f64 / log_bytes as f64)]
}

/// The name of the first length: [`LOG_FRACTION`] of a log of [`LOG_OF_CACHE`] caches.
const LONG_REDO: &str = "6 caches";

/// Repeats figure 3.7: TPC-C under lazy cleaning, by the limit of dirty slots. Redo may have to read much log
/// or little.
pub fn dirty_limit(lab: &mut Lab<'_>) -> Result<()> {
    begin(lab, ROUND_MS, SETTLE_MS)?;
    let factors = Factors::from([("workload", TPCC.name.into()), ("size", LAMBDA_UNITS.into())]);
    let (workload, device) = (TPCC.load(lab, LAMBDA_UNITS)?, drives(lab)?);
    let mut variants = Vec::new();
    for (name, log_fraction) in redo_lengths(lab) {
        let of = |lambda: u8| {
            let settings = Settings { dirty_percent: lambda, log_fraction, ..Settings::of(lab, &TPCC) };
            let variant = cached_so(lab, &TPCC, FlashDesign::LazyCleaning, settings);
            variant.with("lambda", lambda).with("redo", name)
        };
        variants.extend(LAMBDAS.map(of));
    }
    let stands = lab.stands(&*workload, sizes(lab), &variants)?;
    let (mut points, mut claims) = (Vec::new(), Vec::new());
    for clients in lab.clients(&[SESSIONS], &[SESSIONS]) {
        let compared = lab.compare(&stands, &*workload, &device, clients, &factors)?;
        claims.extend(claim_limits(lab, &compared)?);
        points.extend(compared);
    }
    flash_tell::all(lab, &points, &claims)
}

/// Returns claims that compare the largest limit with the others, for each length of log.
fn claim_limits(lab: &mut Lab<'_>, points: &[Point]) -> Result<Vec<Claim>> {
    let find = |lambda: u8, redo: &str| {
        let is_it = |point: &&Point| {
            point.factors.get("lambda").is_some_and(|found| *found == lambda) && is(point, "redo", redo)
        };
        points.iter().find(is_it)
    };
    let mut claims = Vec::new();
    for (redo, _) in redo_lengths(lab) {
        for (lambda, published) in GAINS {
            let (Some(most), Some(other)) = (find(LAMBDAS[2], redo), find(lambda, redo)) else {
                continue;
            };
            let published = Some(published).filter(|_| redo == LONG_REDO);
            let expects = Expects::Published(published, Better::Neither);
            let says = format!("lambda {} % / {lambda} %", LAMBDAS[2]);
            claims.push(lab.claim(Comparison::ratio(
                &says,
                Figure::Throughput,
                PointPair { over: most, under: other },
                expects,
            ))?);
        }
        if redo == LONG_REDO {
            let places = LAMBDAS.into_iter().filter_map(|lambda| {
                let point = find(lambda, redo)?;
                Some(RankedFigure::throughput(&format!("{lambda} %"), point, point, lambda.into()))
            });
            let order = points.first().and_then(|of| order::judge("order of limits", of, places.collect()));
            claims.extend(order.map(|claim| lab.write_claim(claim)).transpose()?);
        }
    }
    Ok(claims)
}

/// Returns the numbers of pages that may wait in memory before the cache refuses further pages. The first is
/// the number of pages that the thesis has under way at a time (mu in table 3.2). The second is the number in
/// the other experiments, and the third is larger.
fn queues(lab: &Lab<'_>) -> BTreeSet<usize> {
    [FlashConfig::PENDING_MAX, queued(lab), 8 * queued(lab)].into()
}

/// Repeats section 3.3.3: how many pages the throttle refuses, and how much throughput this costs. Both are
/// measured with TPC-C, by the number of pages that may wait for flash.
pub fn throttle(lab: &mut Lab<'_>) -> Result<()> {
    begin(lab, ROUND_MS, SETTLE_MS)?;
    let device = drives(lab)?;
    let of = |lab: &Lab<'_>, mix: &Mix| {
        let mut variants = vec![baseline(lab, mix).with("queued", 0)];
        for design in [FlashDesign::DualWrite, FlashDesign::LazyCleaning] {
            let of = |queued_max| {
                let settings = Settings { queued_max, ..Settings::of(lab, mix) };
                cached_so(lab, mix, design, settings).with("queued", queued_max)
            };
            variants.extend(queues(lab).into_iter().map(of));
        }
        variants
    };
    compare_designs(lab, &device, &[(&TPCC, &[200])], of)
}
