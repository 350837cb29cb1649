//! Repeats Lindstrom 2017: compressed pages on flash.
//!
//! The loads are LinkBench and TPC-C. A variant with compression also loads its database with compression. So
//! the pages that it reads are stored in the same way as the pages that it writes.
//!
//! 1. In the paper, plain tables have doublewrite and one flush thread, so several settings change at once.
//!    Here each setting is a separate factor.
//! 2. Results show both the bytes written and the blocks that the file system has allocated. If pages have
//!    fixed offsets, compression saves blocks only where it punches holes into the file.
//!
//! The paper's row compression is a feature of InnoDB, so it is not measured here. `bench/compare` runs
//! InnoDB itself.

use varve_pager::{Algorithm, Compression, HomeLayout, PackedConfig, PagerConfig, ProtectionKind};

use super::claim::{Claim, Comparison, Expects, Figure, PointPair};
use super::lab::Lab;
use super::row::{Factors, LoadRow, Point, Subject};
use super::stand::{Sizes, Variant};
use super::table::TextTable;
use super::tell;
use super::verdict::Better;
use crate::linkbench::LinkBench;
use varve_bench::Result;
use varve_bench::tpcc::Tpcc;
use varve_bench::workload::Workload;

/// Bytes of data pages for each node of the graph. This is an estimate. The field `scale` of a result row has
/// the real ratio of database and pool.
const BYTES_OF_A_NODE: u64 = 1_000;
/// The size of the database, as a multiple of the pool. The paper has 100 GB with a pool of 50 (section 5),
/// and in the study of page sizes 200 GB with a pool of 20 (section 5.4).
pub(super) const DATABASE_OF_POOL: u64 = 2;
const DATABASE_OF_POOL_BY_PAGE_SIZE: u64 = 10;
/// The page size of the loads, which is the default of MariaDB.
pub(super) const PAGE_BYTES: usize = 16 << 10;
const POOL_BYTES_MIN: u64 = 4 << 20;

/// The published throughput with lz4, divided by that without compression: in LinkBench (6 % less, section
/// 5.2) and in TPC-C (less than 3 % less, section 5.3).
const LZ4_LINKBENCH: f64 = 0.94;
const LZ4_TPCC: f64 = 0.97;
/// The same ratio in the study of page sizes, for pages of 16 KiB (section 5.4).
const LZ4_BY_16_KIB: f64 = 0.95;
/// The bars of this project for lz4, in place and packed. Both are compared with uncompressed pages in place.
const BAR_IN_PLACE: f64 = 0.95;
const BAR_PACKED: f64 = 1.0;
/// The published share of the bytes that compression saves, as a range (section 5.2).
const SAVED: (f64, f64) = (0.32, 0.48);
/// How many times fewer bytes are written with compression and atomic writes (conclusions: "about 4x").
const WRITTEN_LESS: f64 = 4.0;

pub(super) const NONE: &str = "none";
pub(super) const PACKED: &str = "packed";
const IN_PLACE: &str = "in place";

pub(super) fn linkbench(lab: &Lab<'_>) -> Result<LinkBench> {
    LinkBench::new(lab.scale().nodes)
}

pub(super) fn sizes(lab: &Lab<'_>, page_bytes: usize, database_of_pool: u64) -> Sizes {
    let pool_bytes = (lab.scale().nodes * BYTES_OF_A_NODE / database_of_pool).max(POOL_BYTES_MIN) as usize;
    Sizes::new(page_bytes, pool_bytes.max(64 * page_bytes))
}

/// Returns the sizes for TPC-C. Its tables are 30 times as large as the pool of the scale, so the pool is
/// made larger: the database is [`DATABASE_OF_POOL`] times as large as the pool.
pub(super) fn sizes_of_tpcc(lab: &Lab<'_>) -> Sizes {
    Sizes::new(PAGE_BYTES, lab.scale().pool_bytes * 30 / DATABASE_OF_POOL as usize)
}

/// Returns the variant with pages in place that this algorithm compresses.
fn compressed(algorithm: Algorithm) -> Variant {
    let set = move |config: &mut PagerConfig| config.compression = Compression::of(algorithm);
    Variant::new(set).with("compression", algorithm.name()).loaded_as_it_is()
}

/// Returns the variant with packed pages that this algorithm compresses.
fn packed(algorithm: Algorithm) -> Variant {
    let set = move |config: &mut PagerConfig| {
        lay_out_packed(config);
        config.compression = Compression::of(algorithm);
    };
    Variant::new(set).with("compression", algorithm.name()).with("layout", PACKED).loaded_as_it_is()
}

pub(super) fn lay_out_packed(config: &mut PagerConfig) {
    config.layout = HomeLayout::Packed(PackedConfig::DEFAULT);
}

fn is_packed(point: &Point) -> bool {
    point.factors.get("layout").is_some_and(|layout| layout == PACKED)
}

fn name_of(point: &Point) -> &str {
    point.factors.get("compression").and_then(|name| name.as_str()).unwrap_or_default()
}

/// Returns claims that compare each codec with uncompressed pages. All other factors of the two points are
/// the same.
fn claim_codecs(
    lab: &mut Lab<'_>,
    compared: &[Point],
    figure: Figure,
    expects: impl Fn(&str) -> Vec<Expects>,
) -> Result<Vec<Claim>> {
    let Some(plain) = compared.iter().find(|point| name_of(point) == NONE) else { return Ok(Vec::new()) };
    let mut claims = Vec::new();
    let is_another = |point: &&Point| name_of(point) != NONE && !is_packed(point);
    for point in compared.iter().filter(is_another) {
        let name = name_of(point);
        for expects in expects(name) {
            let says = match figure {
                Figure::Bytes => format!("{NONE} / {name}, drive bytes a transaction"),
                _ => format!("{name} / {NONE}"),
            };
            let (over, under) = if figure == Figure::Bytes { (plain, point) } else { (point, plain) };
            let asked = Comparison::ratio(&says, figure, PointPair { over, under }, expects);
            let asked = if figure == Figure::Bytes { asked } else { asked.of_processors() };
            claims.push(lab.claim(asked)?);
        }
    }
    Ok(claims)
}

/// Returns the values with which codecs are compared: lz4 with the paper's value and the bar, other codecs
/// with none.
fn of_lz4(published: f64) -> impl Fn(&str) -> Vec<Expects> {
    move |name| match name {
        "lz4" => {
            vec![Expects::Published(Some(published), Better::Higher), Expects::AtLeast(BAR_IN_PLACE)]
        }
        _ => vec![Expects::Published(None, Better::Higher)],
    }
}

/// Returns claims that compare packed pages with uncompressed pages in place. For lz4 there is a bar.
fn claim_packed(lab: &mut Lab<'_>, compared: &[Point]) -> Result<Vec<Claim>> {
    let Some(plain) = compared.iter().find(|point| name_of(point) == NONE) else { return Ok(Vec::new()) };
    let claim = |point: &Point| {
        let name = name_of(point);
        let expects = match name {
            "lz4" => Expects::AtLeast(BAR_PACKED),
            _ => Expects::Nothing,
        };
        let says = format!("{PACKED} {name} / {NONE} in place");
        let asked =
            Comparison::ratio(&says, Figure::Throughput, PointPair { over: point, under: plain }, expects);
        lab.claim(if name == NONE { asked } else { asked.of_processors() })
    };
    compared.iter().filter(|point| is_packed(point)).map(claim).collect()
}

/// The codecs that are fast enough for a load of transactions.
const FAST: [Algorithm; 5] =
    [Algorithm::None, Algorithm::Lz4, Algorithm::Lzo, Algorithm::Zlib, Algorithm::Zstd];

/// Repeats figures 7 and 10: throughput of LinkBench and TPC-C, by codec and layout.
pub fn throughput(lab: &mut Lab<'_>) -> Result<()> {
    let codecs: &[Algorithm] = if lab.scale().is_full() { &FAST } else { &FAST[..4] };
    let in_place = codecs.iter().map(|codec| compressed(*codec).with("layout", IN_PLACE));
    let variants: Vec<Variant> = in_place.chain([Algorithm::None, Algorithm::Lz4].map(packed)).collect();
    let (graph, tpcc) = (linkbench(lab)?, Tpcc::new(lab.scale().tpcc));
    let mixes: [(&str, &dyn Workload, Sizes, f64); 2] = [
        ("linkbench", &graph, sizes(lab, PAGE_BYTES, DATABASE_OF_POOL), LZ4_LINKBENCH),
        ("tpcc", &tpcc, sizes_of_tpcc(lab), LZ4_TPCC),
    ];
    let (mut points, mut claims) = (Vec::new(), Vec::new());
    for (mix, workload, sizes, published) in mixes {
        let (factors, device) = (Factors::from([("mix", mix.into())]), lab.device());
        if !lab.wants(&factors) {
            continue;
        }
        let stands = lab.stands(workload, sizes, &variants)?;
        for clients in lab.clients(&[32], &[32, 64]) {
            let compared = lab.compare(&stands, workload, &device, clients, &factors)?;
            claims.extend(claim_codecs(lab, &compared, Figure::Throughput, of_lz4(published))?);
            claims.extend(claim_packed(lab, &compared)?);
            points.extend(compared);
        }
    }
    lab.tell(&points, &claims)
}

/// Repeats figure 12: throughput of TPC-C, by number of sessions.
pub fn threads(lab: &mut Lab<'_>) -> Result<()> {
    let workload = Tpcc::new(lab.scale().tpcc);
    let variants = [Algorithm::None, Algorithm::Lz4, Algorithm::Lzo].map(compressed);
    let stands = lab.stands(&workload, sizes_of_tpcc(lab), &variants)?;
    let (device, mut points, mut claims) = (lab.device(), Vec::new(), Vec::new());
    for clients in lab.clients(&[4, 64], &[4, 8, 16, 32, 64, 128, 256, 512]) {
        let compared = lab.compare(&stands, &workload, &device, clients, &Factors::new())?;
        let expects = |_: &str| vec![Expects::Published(None, Better::Higher)];
        claims.extend(claim_codecs(lab, &compared, Figure::Throughput, expects)?);
        points.extend(compared);
    }
    lab.tell(&points, &claims)
}

/// Measures LinkBench with lz4 and without compression.
fn plain_and_lz4(lab: &mut Lab<'_>) -> Result<Vec<Point>> {
    let workload = linkbench(lab)?;
    let variants = [Algorithm::None, Algorithm::Lz4].map(compressed);
    let stands = lab.stands(&workload, sizes(lab, PAGE_BYTES, DATABASE_OF_POOL), &variants)?;
    let (device, mut points) = (lab.device(), Vec::new());
    for clients in lab.clients(&[64], &[64]) {
        points.extend(lab.compare(&stands, &workload, &device, clients, &Factors::new())?);
    }
    Ok(points)
}

/// Repeats figure 8: latencies of LinkBench's requests.
pub fn latency(lab: &mut Lab<'_>) -> Result<()> {
    let points = plain_and_lz4(lab)?;
    let expects = |_: &str| vec![Expects::Published(None, Better::Lower)];
    let mut claims = claim_codecs(lab, &points, Figure::Latency, expects)?;
    claims.extend(claim_codecs(lab, &points, Figure::SlowLatency, expects)?);
    lab.tell(&points, &claims)?;
    lab.say(&format!("\n{}", tell::kinds(&points)))
}

/// Repeats figure 9: bytes written for each of LinkBench's requests. The paper compares compressed pages
/// under atomic writes with uncompressed pages under doublewrite. Compressed pages under doublewrite are
/// measured, too.
pub fn write_amount(lab: &mut Lab<'_>) -> Result<()> {
    let workload = linkbench(lab)?;
    let (doublewrite, atomic) = (ProtectionKind::DOUBLEWRITE, ProtectionKind::AtomicWrite);
    let mut variants = [Algorithm::None, Algorithm::Lz4].map(|codec| under(doublewrite, codec)).to_vec();
    // Without emulation, the drive may not write pages atomically.
    if lab.device().is_emulated() {
        variants.push(under(atomic, Algorithm::Lz4).with_atomic_writes());
    }
    let stands = lab.stands(&workload, sizes(lab, PAGE_BYTES, DATABASE_OF_POOL), &variants)?;
    let (device, mut points, mut claims) = (lab.device(), Vec::new(), Vec::new());
    for clients in lab.clients(&[64], &[64]) {
        let compared = lab.compare(&stands, &workload, &device, clients, &Factors::new())?;
        claims.extend(claim_bytes(lab, &compared)?);
        points.extend(compared);
    }
    lab.tell(&points, &claims)?;
    lab.say(&format!(
        "\nKiB written for each transaction, by tenths of a round:\n{}",
        tell::over_time(&points)
    ))
}

/// Returns the variant with pages in place under this protection, compressed by this algorithm.
fn under(protection: ProtectionKind, algorithm: Algorithm) -> Variant {
    let set = move |config: &mut PagerConfig| {
        config.protection = protection;
        config.compression = Compression::of(algorithm);
    };
    let variant = Variant::new(set).with("compression", algorithm.name());
    let variant = variant.with("protection", protection.name());
    variant.shared_load(
        algorithm.name(),
        match algorithm {
            Algorithm::None => |_| {},
            _ => |config| config.compression = Compression::of(Algorithm::Lz4),
        },
    )
}

/// Returns claims that compare the bytes of compressed pages with those of uncompressed pages under
/// doublewrite.
fn claim_bytes(lab: &mut Lab<'_>, compared: &[Point]) -> Result<Vec<Claim>> {
    let Some(plain) = compared.iter().find(|point| name_of(point) == NONE) else { return Ok(Vec::new()) };
    let claim = |point: &Point| {
        let protection = point.factors.get("protection").map(tell::plain).unwrap_or_default();
        let is_theirs = protection == ProtectionKind::AtomicWrite.name();
        let says =
            format!("{NONE}, doublewrite / {}, {protection}, drive bytes a transaction", name_of(point));
        let expects = Expects::Published(is_theirs.then_some(WRITTEN_LESS), Better::Higher);
        let points = PointPair { over: plain, under: point };
        lab.claim(Comparison::ratio(&says, Figure::Bytes, points, expects))
    };
    compared.iter().filter(|point| name_of(point) != NONE).map(claim).collect()
}

/// Repeats figures 13 to 15: throughput of LinkBench, by page size.
pub fn page_size(lab: &mut Lab<'_>) -> Result<()> {
    let workload = linkbench(lab)?;
    let codecs: &[Algorithm] = if lab.scale().is_full() {
        &[Algorithm::None, Algorithm::Lz4, Algorithm::Lzo, Algorithm::Zlib]
    } else {
        &[Algorithm::None, Algorithm::Lz4]
    };
    let variants: Vec<Variant> = codecs.iter().map(|codec| compressed(*codec)).collect();
    let (device, mut points, mut claims) = (lab.device(), Vec::new(), Vec::new());
    for clients in lab.clients(&[16], &[16]) {
        for page_kib in [4usize, 8, 16, 32, 64] {
            let factors = Factors::from([("page KiB", page_kib.into())]);
            if !lab.wants(&factors) {
                continue;
            }
            let sizes = sizes(lab, page_kib << 10, DATABASE_OF_POOL_BY_PAGE_SIZE);
            let stands = lab.stands(&workload, sizes, &variants)?;
            let compared = lab.compare(&stands, &workload, &device, clients, &factors)?;
            let expects = move |name: &str| vec![by_page_size(name, page_kib)];
            claims.extend(claim_codecs(lab, &compared, Figure::Throughput, expects)?);
            points.extend(compared);
        }
    }
    lab.tell(&points, &claims)
}

/// Returns the expected throughput for a page size: the paper has lz4 5 % below uncompressed pages at 16 KiB,
/// and above them at larger sizes.
fn by_page_size(codec: &str, page_kib: usize) -> Expects {
    match (codec, page_kib) {
        ("lz4", 16) => Expects::Published(Some(LZ4_BY_16_KIB), Better::Higher),
        ("lz4", 32..) => Expects::AtLeast(1.0),
        _ => Expects::Published(None, Better::Higher),
    }
}

/// Repeats figure 5: seconds of a load of LinkBench's graph, by codec.
pub fn load(lab: &mut Lab<'_>) -> Result<()> {
    let rows = loads(lab)?;
    let Some(plain) = rows.first().map(|row| row.seconds) else { return Ok(()) };
    let mut table = TextTable::headed(&["layout", "compression", "seconds", "of plain"]);
    for row in &rows {
        let figures = [row.seconds, row.seconds / plain].map(|figure| format!("{figure:.2}"));
        table.push([vec![row.layout.to_owned(), row.compression.clone()], figures.to_vec()].concat());
    }
    lab.say(&format!("\n{table}"))
}

/// Repeats figure 6: allocated bytes of LinkBench's graph, by codec.
pub fn space(lab: &mut Lab<'_>) -> Result<()> {
    let rows = loads(lab)?;
    let mut table =
        TextTable::headed(&["layout", "compression", "pages MiB", "stored MiB", "saved %", "allocated MiB"]);
    let mib = |bytes: f64| format!("{:.1}", bytes / f64::from(1 << 20));
    for row in &rows {
        let stored = row.pages_bytes as f64 * row.stored_share;
        let saved = format!("{:.1}", 100.0 * (1.0 - row.stored_share));
        let bytes = [row.pages_bytes as f64, stored, row.allocated_bytes as f64].map(mib);
        let [pages, stored, allocated] = bytes;
        table.push(vec![row.layout.to_owned(), row.compression.clone(), pages, stored, saved, allocated]);
    }
    lab.say(&format!(
        "\n{table}\nPublished: {:.0} to {:.0} % saved. \"stored\" is what pages take as they are written, in sectors; \"allocated\" is \
         what the file system has given to the files after the load, room to grow among it.",
        100.0 * SAVED.0,
        100.0 * SAVED.1
    ))
}

/// Returns the combinations of layout and codec with which the graph is loaded.
fn loaded_so() -> Vec<(&'static str, Algorithm)> {
    let packed = [Algorithm::None, Algorithm::Lz4, Algorithm::Zstd].map(|codec| (PACKED, codec));
    Algorithm::ALL.map(|codec| (IN_PLACE, codec)).into_iter().chain(packed).collect()
}

/// Loads the graph on the device, once for each layout and codec.
fn loads(lab: &mut Lab<'_>) -> Result<Vec<LoadRow>> {
    let workload = linkbench(lab)?;
    let (sizes, device) = (sizes(lab, PAGE_BYTES, DATABASE_OF_POOL), lab.device());
    let mut rows = Vec::new();
    for (layout, algorithm) in loaded_so() {
        let variant =
            if layout == PACKED { packed(algorithm) } else { compressed(algorithm).with("layout", layout) };
        if !lab.wants(&variant.factors) {
            continue;
        }
        let (stand, loaded) = lab.fresh(&workload, sizes, &device, &variant)?;
        let Subject { experiment, figure } = lab.subject();
        let row = LoadRow {
            row: "load",
            experiment,
            figure,
            layout,
            compression: algorithm.name().to_owned(),
            seconds: loaded.took.as_secs_f64(),
            pages_bytes: loaded.pages_bytes,
            stored_share: loaded.stored_share(),
            allocated_bytes: stand.allocated_bytes()?,
            device: device.describe(1.0),
        };
        lab.write_row(&row)?;
        rows.push(row);
    }
    Ok(rows)
}
