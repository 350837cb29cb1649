//! Repeats Kang 2016: page protection on flash, and the effect of persistent memory between buffer pool and
//! flash.
//!
//! A page has 4 KiB. The database is 30 times as large as the buffer pool, and the page area in persistent
//! memory is as large as the pool (section 4.1). One load is sysbench's read-write script over ten tables.
//! The other load is TPC-C. Its warehouses have a twentieth of the normal size, and there is at least one for
//! each session.
//!
//! 1. The variant "original" has the doublewrite and the page cleaner of InnoDB 5.6 with default settings. A
//!    well-tuned doublewrite is measured, too, because a part of each gain comes only from the weak default
//!    settings.
//! 2. Mean latency is the number of sessions divided by the throughput, because sessions have no think time.
//!    So this project's goal for the latency and its goal for the throughput are the same goal, for different
//!    configurations.

use varve_pager::{HomeLayout, Pacing, PackedConfig, PagerConfig, ProtectionKind, Replacement};

use super::claim::{Claim, Comparison, Expects, Extremes, Figure, PointPair, extremes};
use super::lab::Lab;
use super::order::{self, RankedFigure};
use super::row::{Factors, Point};
use super::stand::{InNvm, Sizes, Variant};
use super::verdict::Better;
use varve_bench::Result;
use varve_bench::sysbench::Sysbench;
use varve_bench::tpcc::Tpcc;
use varve_bench::workload::Workload;

const PAGE_BYTES: usize = 4096;
const TABLES: u64 = 10;
const MIB: u64 = 1 << 20;

/// The doublewrite area of InnoDB has 2 MiB: slots for batches, and slots for single pages (section 2.1).
const BATCH_SLOTS: u32 = 120;
const SINGLE_SLOTS: u32 = 392;
/// The size of this area with its header, in persistent memory.
const COPIES_BYTES: u64 = 4 * MIB;

/// The names of variants.
const ORIGINAL: &str = "original";
const TUNED: &str = "doublewrite";
const UNPROTECTED: &str = "none";
const SCALED: &str = "original-scaled";
const PACED: &str = "none-paced";
const PACKED: &str = "packed";
const DWB: &str = "nvm-dwb";
const DWB_LOG: &str = "nvm-dwb-log";
const OPT: &str = "nvm-dwb-log-opt";

/// The bars of this project for nvm-dwb-log-opt, compared with original.
const BAR_BEST: f64 = 4.0;
const BAR_WORST: f64 = 2.4;
const BAR_LATENCY: f64 = 3.7;
const BAR_BYTES: f64 = 2.8;
/// By which factor fewer bytes are written with sysbench's script, as the paper counts them (section 4.2.3).
/// The paper has no such value for TPC-C.
const BYTES_SAVED: f64 = 2.78;

/// Returns a variant with LRU-2 replacement, like InnoDB's pool. LRU-2 also chooses dirty pages as victims,
/// so sessions must write single pages when the page writers are too slow. A clock that prefers clean pages
/// would evict the few clean pages and read them again, over and over. This would favour the other variants.
fn variant(name: &str, configure: impl Fn(&mut PagerConfig) + Send + Sync + 'static) -> Variant {
    Variant::named(name, move |config| {
        config.replacement = Replacement::Lru2;
        configure(config);
    })
}

/// Returns the variant with the doublewrite area and the page cleaner of InnoDB 5.6. This page cleaner is too
/// slow for the load.
fn original() -> Variant {
    variant(ORIGINAL, |config| {
        config.protection =
            ProtectionKind::Doublewrite { batch_slots: BATCH_SLOTS, single_slots: SINGLE_SLOTS };
        config.pacing = Some(Pacing::INNODB);
    })
}

/// The size of the pool for which InnoDB's numbers are meant: a thirtieth of 30 GB (section 4.1).
const POOL_THERE: u64 = 1 << 30;

/// Returns the variant [`original`] with the doublewrite area and the page cleaner scaled to the size of the
/// pool. The cleaner keeps the same part of the pool free as InnoDB's cleaner. If the pool is smaller by a
/// factor, the cleaner wakes more often by this factor. So it writes as many frames a second as InnoDB's
/// cleaner, which is right because the drive is not scaled. The number of slots for single pages stays,
/// because the number of sessions is not scaled either.
fn original_scaled(pool_bytes: u64) -> Variant {
    let of_pool = |there: u64| (there * pool_bytes / POOL_THERE).max(1);
    let (frames, interval_ms) =
        (of_pool(Pacing::INNODB.free_frames as u64), of_pool(Pacing::INNODB.interval_ms));
    let batch_slots = of_pool(BATCH_SLOTS.into()).max(frames) as u32;
    variant(SCALED, move |config| {
        config.protection = ProtectionKind::Doublewrite { batch_slots, single_slots: SINGLE_SLOTS };
        config.pacing = Some(Pacing { interval_ms, free_frames: frames as usize });
    })
}

/// Returns the variant with Varve's defaults: doublewrite, and page writers that work when they are needed.
fn tuned() -> Variant {
    variant(TUNED, |_| {})
}

/// Returns the variant without page protection, in which a crash can destroy pages.
fn unprotected() -> Variant {
    variant(UNPROTECTED, |config| config.protection = ProtectionKind::None)
}

/// Returns the variant [`original`] without page protection. So `doublewrite-cost` compares variants that
/// differ only in one setting.
fn unprotected_paced() -> Variant {
    variant(PACED, |config| {
        config.protection = ProtectionKind::None;
        config.pacing = Some(Pacing::INNODB);
    })
}

/// Returns the variant with the packed layout. It overwrites no page, so it need not write pages twice.
fn packed() -> Variant {
    variant(PACKED, |config| config.layout = HomeLayout::Packed(PackedConfig::DEFAULT)).loaded_as_it_is()
}

/// Sets that doublewrite copies are in persistent memory. Everything else is as in [`original`].
fn nvm_dwb(config: &mut PagerConfig) {
    config.protection =
        ProtectionKind::NvmDoublewrite { batch_slots: BATCH_SLOTS, single_slots: SINGLE_SLOTS };
    config.pacing = Some(Pacing::INNODB);
}

fn dwb() -> Variant {
    variant(DWB, nvm_dwb).in_nvm(InNvm { area_bytes: COPIES_BYTES, log: false })
}

fn dwb_log() -> Variant {
    variant(DWB_LOG, nvm_dwb).in_nvm(InNvm { area_bytes: COPIES_BYTES, log: true })
}

/// Returns the variant in which pages stay in persistent memory until they are written to the data files
/// (chapter 3).
fn opt(area_bytes: u64) -> Variant {
    variant(OPT, |config| config.protection = ProtectionKind::Nvm).in_nvm(InNvm { area_bytes, log: true })
}

/// Returns this variant with an area as large as the pool.
fn opt_of(lab: &Lab<'_>) -> Variant {
    opt(lab.scale().pool_bytes as u64)
}

/// Returns the variants of the experiments on throughput. The fastest is the last.
fn all(lab: &Lab<'_>) -> Vec<Variant> {
    let scaled = original_scaled(lab.scale().pool_bytes as u64);
    vec![original(), scaled, tuned(), packed(), dwb(), dwb_log(), opt_of(lab)]
}

fn sysbench(lab: &Lab<'_>) -> Result<Sysbench> {
    Sysbench::new("oltp_read_write", TABLES, lab.scale().rows)
}

fn sizes(lab: &Lab<'_>) -> Sizes {
    Sizes::new(PAGE_BYTES, lab.scale().pool_bytes)
}

/// Measures all variants with each number of sessions. The points are in the order of the numbers of
/// sessions.
fn measure(
    lab: &mut Lab<'_>,
    workload: &dyn Workload,
    variants: &[Variant],
    clients: &[usize],
) -> Result<Vec<Point>> {
    let stands = lab.stands(workload, sizes(lab), variants)?;
    let device = lab.device();
    let mut points = Vec::new();
    for clients in clients {
        points.extend(lab.compare(&stands, workload, &device, *clients, &Factors::new())?);
    }
    Ok(points)
}

/// Returns the pairs of points of two variants, with their number of sessions. A pair exists if both points
/// were measured.
fn pairs<'p>(points: &'p [Point], over: &str, under: &str) -> Vec<(usize, PointPair<'p>)> {
    let of = |point: &Point, name: &str| point.factors.get("variant").is_some_and(|variant| variant == name);
    let clients = |point: &Point| point.factors.get("clients").and_then(|clients| clients.as_u64());
    let overs = points.iter().filter(|point| of(point, over));
    let pair = |point: &'p Point| {
        let under = points.iter().find(|other| of(other, under) && clients(other) == clients(point))?;
        Some((clients(point)? as usize, PointPair { over: point, under }))
    };
    overs.filter_map(pair).collect()
}

/// Returns the published value for this number of sessions.
fn stated(values: &[(usize, f64)], clients: usize) -> Option<f64> {
    values.iter().find(|(at, _)| *at == clients).map(|(_, value)| *value)
}

/// Arguments of [`claim_each`] for a figure of which more is better.
fn higher(figure: Figure, values: &[(usize, f64)]) -> (Figure, &[(usize, f64)], Better) {
    (figure, values, Better::Higher)
}

/// Makes a claim for each number of sessions.
fn claim_each(
    lab: &mut Lab<'_>,
    points: &[Point],
    (over, under): (&str, &str),
    (figure, values, better): (Figure, &[(usize, f64)], Better),
) -> Result<Vec<Claim>> {
    let what = match figure {
        Figure::Throughput => "",
        Figure::Latency => ", mean latency",
        Figure::SlowLatency => ", p99 latency",
        Figure::Bytes => ", drive bytes a transaction",
        Figure::PageBytes => ", page bytes a transaction",
    };
    let says = format!("{over} / {under}{what}");
    let is_ours =
        values.is_empty() && [over, under].iter().any(|name| [TUNED, PACKED, SCALED].contains(name));
    let claim = |(clients, pair)| {
        let expects = match is_ours {
            true => Expects::Nothing,
            false => Expects::Published(stated(values, clients), better),
        };
        lab.claim(Comparison::ratio(&says, figure, pair, expects))
    };
    pairs(points, over, under).into_iter().map(claim).collect()
}

/// Returns claims about the bars that nvm-dwb-log-opt must reach, compared with original.
fn claim_bars(lab: &mut Lab<'_>, points: &[Point]) -> Result<Vec<Claim>> {
    let forth: Vec<_> = pairs(points, OPT, ORIGINAL).into_iter().map(|(_, pair)| pair).collect();
    let back: Vec<_> = forth.iter().map(|pair| pair.swapped()).collect();
    let mut claims = Vec::new();
    for (figure, what, pairs, bars) in [
        (Figure::Throughput, "throughput, opt over original", &forth, (BAR_BEST, BAR_WORST)),
        (Figure::Latency, "mean latency, original over opt", &back, (BAR_LATENCY, BAR_LATENCY)),
    ] {
        let Some(Extremes { best, worst, hidden }) = extremes(figure, pairs) else { continue };
        let says = |which: &str| format!("bar: {what}, at the {which} point");
        claims.push(lab.claim(Comparison::ratio(&says("best"), figure, best, Expects::AtLeast(bars.0)))?);
        let asked = Comparison::ratio(&says("worst"), figure, worst, Expects::AtLeast(bars.1));
        claims.push(lab.claim(asked.beside(hidden))?);
    }
    if let Some(Extremes { worst, hidden, .. }) = extremes(Figure::Bytes, &back) {
        let says = "bar: drive bytes a transaction, original over opt, at the worst point";
        let asked = Comparison::ratio(says, Figure::Bytes, worst, Expects::AtLeast(BAR_BYTES));
        claims.push(lab.claim(asked.beside(hidden))?);
    }
    Ok(claims)
}

/// Returns claims that compare the variants' throughput with original, and that of opt with the tuned
/// doublewrite. `stated` has the published ratios of opt to original, and `bytes_saved` the published ratio
/// of their bytes.
fn claim_throughput(
    lab: &mut Lab<'_>,
    points: &[Point],
    stated: &[(usize, f64)],
    bytes_saved: Option<f64>,
) -> Result<Vec<Claim>> {
    let mut claims = claim_each(lab, points, (OPT, ORIGINAL), higher(Figure::Throughput, stated))?;
    for pair in [
        (DWB, ORIGINAL),
        (DWB_LOG, ORIGINAL),
        (TUNED, ORIGINAL),
        (PACKED, ORIGINAL),
        (OPT, SCALED),
        (OPT, TUNED),
        (OPT, PACKED),
    ] {
        claims.extend(claim_each(lab, points, pair, higher(Figure::Throughput, &[]))?);
    }
    let by_clients = |(clients, _): &(usize, _)| Some((*clients, bytes_saved?));
    let saved: Vec<(usize, f64)> = pairs(points, ORIGINAL, OPT).iter().filter_map(by_clients).collect();
    let bytes = (Figure::Bytes, &saved[..], Better::Higher);
    claims.extend(claim_each(lab, points, (ORIGINAL, OPT), bytes)?);
    for under in [TUNED, PACKED] {
        claims.extend(claim_each(lab, points, (under, OPT), higher(Figure::Bytes, &[]))?);
    }
    claims.extend(claim_bars(lab, points)?);
    Ok(claims)
}

/// Throughput without doublewrite, divided by throughput with it, by number of sessions (section 2.2).
const COSTS: [(usize, f64); 6] = [(8, 1.14), (16, 1.22), (32, 1.55), (64, 1.61), (128, 2.49), (256, 2.78)];

/// Repeats figure 2.3: what doublewrite costs.
pub fn doublewrite_cost(lab: &mut Lab<'_>) -> Result<()> {
    let workload = sysbench(lab)?;
    let clients = lab.clients(&[8, 32], &COSTS.map(|(clients, _)| clients));
    let variants = [original(), unprotected_paced(), tuned(), unprotected()];
    let points = measure(lab, &workload, &variants, &clients)?;
    let costs = |better| (Figure::Throughput, &COSTS[..], better);
    let mut claims = claim_each(lab, &points, (PACED, ORIGINAL), costs(Better::Neither))?;
    claims.extend(claim_each(lab, &points, (UNPROTECTED, TUNED), costs(Better::Lower))?);
    let pairs = pairs(&points, PACED, ORIGINAL);
    let places = pairs.iter().filter_map(|(clients, pair)| {
        let PointPair { over, under } = pair;
        let (published, ratio) = (stated(&COSTS, *clients)?, Figure::Throughput.ratio(*pair));
        let ends = (over.tps.min / under.tps.max, over.tps.max / under.tps.min);
        let spoilt = Figure::Throughput.not_judged(*pair);
        Some(RankedFigure { name: format!("{clients} sessions"), median: ratio, ends, published, spoilt })
    });
    let of = pairs.first().map(|(_, pair)| pair.over);
    let order = of.and_then(|of| order::judge("order of the cost by sessions", of, places.collect()));
    claims.extend(order.map(|claim| lab.write_claim(claim)).transpose()?);
    lab.tell(&points, &claims)
}

/// Throughput of opt, divided by that of original, by number of sessions (section 4.2.1).
const SYSBENCH: [(usize, f64); 8] =
    [(1, 3.94), (4, 4.15), (8, 4.94), (16, 4.31), (32, 3.19), (64, 2.40), (128, 3.76), (256, 3.97)];
const TPCC: [(usize, f64); 4] = [(8, 3.16), (16, 3.93), (32, 3.32), (64, 2.64)];

/// Repeats figure 4.1: throughput of sysbench's script.
pub fn throughput_sysbench(lab: &mut Lab<'_>) -> Result<()> {
    let workload = sysbench(lab)?;
    let clients = lab.clients(&[4, 16, 64], &[1, 4, 8, 16, 32, 64]);
    let points = measure(lab, &workload, &all(lab), &clients)?;
    let claims = claim_throughput(lab, &points, &SYSBENCH, Some(BYTES_SAVED))?;
    lab.tell(&points, &claims)
}

/// Repeats figure 4.2: throughput of TPC-C.
pub fn throughput_tpcc(lab: &mut Lab<'_>) -> Result<()> {
    let workload = Tpcc::new(lab.scale().tpcc);
    let clients = lab.clients(&[8, 64], &[8, 16, 32, 64]);
    let points = measure(lab, &workload, &all(lab), &clients)?;
    let claims = claim_throughput(lab, &points, &TPCC, None)?;
    lab.tell(&points, &claims)
}

/// Mean latency of original, divided by that of opt, by number of sessions (section 4.2.2).
const LATENCIES: [(usize, f64); 7] =
    [(8, 4.98), (16, 4.30), (24, 3.67), (32, 3.97), (64, 5.54), (128, 3.77), (256, 3.76)];

/// Parts of the running time in tables 2.1 and 4.4: the variant, the part, our names of this part, and the
/// published share.
const SHARES: [(&str, &str, &[&str], f64); 6] = [
    (ORIGINAL, "waiting for the log", &["log_wait"], 0.087),
    (OPT, "waiting for the log", &["log_wait"], 0.000_18),
    (ORIGINAL, "getting pages", &["page_read"], 0.395),
    (OPT, "getting pages", &["page_read"], 0.394),
    (ORIGINAL, "writing pages", &["single_copy", "single_place", "batch_copy", "batch_place"], 0.129_4),
    (OPT, "writing pages home", &["batch_place"], 0.006_5),
];

/// Repeats figure 4.3 and tables 2.1 and 4.4: latencies, and with the most sessions the shares of the time
/// for the log and for page writes.
pub fn latency(lab: &mut Lab<'_>) -> Result<()> {
    let workload = sysbench(lab)?;
    let clients = lab.clients(&[8, 64], &[8, 16, 24, 32, 64]);
    let points = measure(lab, &workload, &[original(), tuned(), opt_of(lab)], &clients)?;
    let mut claims = claim_each(lab, &points, (ORIGINAL, OPT), higher(Figure::Latency, &LATENCIES))?;
    claims.extend(claim_each(lab, &points, (ORIGINAL, OPT), higher(Figure::SlowLatency, &[]))?);
    claims.extend(claim_each(lab, &points, (TUNED, OPT), higher(Figure::Latency, &[]))?);
    claims.extend(claim_bars(lab, &points)?);
    if let Some((_, PointPair { over: original, under: opt })) = pairs(&points, ORIGINAL, OPT).last() {
        for (variant, what, parts, theirs) in SHARES {
            let (point, better) =
                if variant == ORIGINAL { (*original, Better::Neither) } else { (*opt, Better::Lower) };
            let ours = parts.iter().map(|part| point.share(part)).sum();
            let says = format!("part of the time, {what}, {variant}");
            let expects = Expects::Published(Some(theirs), better);
            claims.push(lab.claim(Comparison::figure(&says, ours, point, expects))?);
        }
    }
    lab.tell(&points, &claims)
}

/// Bytes of pages with an area of 2 MiB, divided by the bytes with a larger area. The larger area is given as
/// a part of the pool (section 4.2.4).
const AREAS: [(f64, f64); 2] = [(0.5, 1.097), (1.0, 1.564)];

/// Sizes of the area, from 2 MiB to an eighth of the database. Each is twice the one before.
fn areas(lab: &Lab<'_>) -> Vec<u64> {
    let most = lab.scale().pool_bytes as u64 * 30 / 8;
    let mut areas: Vec<u64> =
        (1..).map(|power| MIB << power).take_while(|area| area * 5 / 4 < most).collect();
    areas.push(most / MIB * MIB);
    areas
}

/// Repeats figure 4.4: bytes written by size of the area. It also compares these bytes with the bytes of
/// original, which shows how large an area must be to reach the bar.
pub fn area_size(lab: &mut Lab<'_>) -> Result<()> {
    let workload = sysbench(lab)?;
    let of_area = |area| opt(area).with("area MiB", area / MIB);
    let variants: Vec<Variant> =
        std::iter::once(original()).chain(areas(lab).into_iter().map(of_area)).collect();
    let stands = lab.stands(&workload, sizes(lab), &variants)?;
    let (device, mut points, mut claims) = (lab.device(), Vec::new(), Vec::new());
    for clients in lab.clients(&[64], &[64]) {
        let compared = lab.compare(&stands, &workload, &device, clients, &Factors::new())?;
        // The user may have asked for only some of these points.
        let area = |point: &Point| point.factors.get("area MiB").and_then(|mib| mib.as_u64());
        let original = compared.iter().find(|point| area(point).is_none());
        let least = compared.iter().find(|point| area(point) == Some(AREA_MIB_MIN));
        for point in compared.iter().filter(|point| area(point) > Some(AREA_MIB_MIN)) {
            claims.extend(least.map(|least| claim_area(lab, least, point)).transpose()?);
        }
        for point in compared.iter().filter(|point| area(point).is_some()) {
            claims.extend(original.map(|original| claim_bytes(lab, original, point)).transpose()?);
        }
        points.extend(compared);
    }
    lab.tell(&points, &claims)
}

/// The smallest area that is measured.
const AREA_MIB_MIN: u64 = 2;

/// Returns the area of a point, as a part of the pool.
fn area_of_pool(lab: &Lab<'_>, point: &Point) -> f64 {
    let area = point.factors.get("area MiB").and_then(|mib| mib.as_u64()).unwrap_or_default() * MIB;
    area as f64 / lab.scale().pool_bytes as f64
}

fn claim_area(lab: &mut Lab<'_>, least: &Point, larger: &Point) -> Result<Claim> {
    let of_pool = area_of_pool(lab, larger);
    let published = AREAS.iter().find(|(part, _)| *part == of_pool).map(|(_, saved)| *saved);
    let says = format!("page bytes a transaction, area of 2 MiB over one of {of_pool:.2} pools");
    let expects = Expects::Published(published, Better::Higher);
    lab.claim(Comparison::ratio(&says, Figure::PageBytes, PointPair { over: least, under: larger }, expects))
}

fn claim_bytes(lab: &mut Lab<'_>, original: &Point, opt: &Point) -> Result<Claim> {
    let of_pool = area_of_pool(lab, opt);
    let says = format!("bar: drive bytes a transaction, original over an area of {of_pool:.2} pools");
    lab.claim(Comparison::ratio(
        &says,
        Figure::Bytes,
        PointPair { over: original, under: opt },
        Expects::AtLeast(BAR_BYTES),
    ))
}

/// Flush times below and above the profile's, from a drive with power-loss protection to a slow one.
const FLUSHES_US: [f64; 5] = [0.0, 400.0, 800.0, 1643.0, 3500.0];

/// Measures how much the result depends on the flush time of the emulated drive. The paper has no such
/// figure.
pub fn flush_sweep(lab: &mut Lab<'_>) -> Result<()> {
    let workload = sysbench(lab)?;
    let stands = lab.stands(&workload, sizes(lab), &[original(), tuned(), opt_of(lab)])?;
    let (mut points, mut claims) = (Vec::new(), Vec::new());
    for clients in lab.clients(&[16], &[16]) {
        for flush_us in FLUSHES_US {
            let factors = Factors::from([("flush us", flush_us.into())]);
            if !lab.wants(&factors) {
                continue;
            }
            let device = lab.device().with_flush_us(Some(flush_us));
            let compared = lab.compare(&stands, &workload, &device, clients, &factors)?;
            let higher = higher(Figure::Throughput, &[]);
            claims.extend(claim_each(lab, &compared, (OPT, ORIGINAL), higher)?);
            claims.extend(claim_each(lab, &compared, (OPT, TUNED), higher)?);
            points.extend(compared);
        }
    }
    lab.tell(&points, &claims)
}
