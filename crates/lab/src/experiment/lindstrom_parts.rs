//! Repeats figure 4 of Lindstrom 2017: how much each part of page compression on flash contributes. The
//! factors are page protection, codec, trim (holes in the file) and the number of flush workers.
//!
//! 1. An atomic write has a power of two as its length, so compressed pages have such lengths with this
//!    protection. Without compression there is no trim, because an uncompressed page has no unused blocks.
//! 2. The paper has no persistent memory. Here the variants with persistent memory keep pages and log in it,
//!    as the best variant of Kang 2016 does. The page area is as large as the buffer pool.

use varve_pager::{Algorithm, Compression, PagerConfig, ProtectionKind, Trim};

use super::claim::{Claim, Comparison, Expects, Figure, PointPair};
use super::lab::Lab;
use super::lindstrom::{
    DATABASE_OF_POOL, NONE, PACKED, PAGE_BYTES, lay_out_packed, linkbench, sizes, sizes_of_tpcc,
};
use super::row::{Factors, Point};
use super::stand::{InNvm, Sizes, Variant};
use super::tell;
use super::verdict::Better;
use varve_bench::Result;
use varve_bench::tpcc::Tpcc;
use varve_bench::workload::Workload;

/// The published throughput with atomic writes, divided by that with doublewrite: LinkBench without
/// compression (section 5.1).
const ATOMIC: f64 = 1.13;
/// The published throughput of LinkBench with trims, divided by that without (section 5.1).
const TRIM: f64 = 1.07;
/// The times of a trim on the drive that are compared, in microseconds. (On real file systems these times
/// differ by a factor of 8, section 5.5.)
const TRIMS_US: [f64; 3] = [0.0, 100.0, 1000.0];

/// The numbers of flush workers, which are the threads that write pages.
const WORKERS: [usize; 3] = [1, 2, 4];

const LINKBENCH: &str = "linkbench";
const TPCC: &str = "tpcc";

/// The protection of pages in place. `None` means packed pages, which need no protection.
type Protects = Option<ProtectionKind>;

const DOUBLEWRITE: Protects = Some(ProtectionKind::DOUBLEWRITE);
const ATOMIC_WRITE: Protects = Some(ProtectionKind::AtomicWrite);
const FULL_PAGE_LOG: Protects = Some(ProtectionKind::FullPageLog);
const NVM: Protects = Some(ProtectionKind::Nvm);
const UNPROTECTED: Protects = Some(ProtectionKind::None);
const OUT_OF_PLACE: Protects = None;
/// The protections that the paper has.
const THEIRS: [Protects; 3] = [UNPROTECTED, DOUBLEWRITE, ATOMIC_WRITE];

fn name_of(protects: Protects) -> &'static str {
    protects.map_or(PACKED, ProtectionKind::name)
}

/// The measured combinations of protection, codec and trim. Each is measured with each number of flush
/// workers.
const PARTS: [(Protects, Algorithm, Trim); 19] = [
    (UNPROTECTED, Algorithm::None, Trim::Off),
    (DOUBLEWRITE, Algorithm::None, Trim::Off),
    (ATOMIC_WRITE, Algorithm::None, Trim::Off),
    (FULL_PAGE_LOG, Algorithm::None, Trim::Off),
    (NVM, Algorithm::None, Trim::Off),
    (UNPROTECTED, Algorithm::Lz4, Trim::Off),
    (UNPROTECTED, Algorithm::Lz4, Trim::On),
    (DOUBLEWRITE, Algorithm::Lz4, Trim::Off),
    (DOUBLEWRITE, Algorithm::Lz4, Trim::On),
    (ATOMIC_WRITE, Algorithm::Lz4, Trim::Off),
    (ATOMIC_WRITE, Algorithm::Lz4, Trim::On),
    (FULL_PAGE_LOG, Algorithm::Lz4, Trim::Off),
    (FULL_PAGE_LOG, Algorithm::Lz4, Trim::On),
    (NVM, Algorithm::Lz4, Trim::Off),
    (NVM, Algorithm::Lz4, Trim::On),
    (OUT_OF_PLACE, Algorithm::None, Trim::Off),
    (OUT_OF_PLACE, Algorithm::None, Trim::On),
    (OUT_OF_PLACE, Algorithm::Lz4, Trim::Off),
    (OUT_OF_PLACE, Algorithm::Lz4, Trim::On),
];

/// Repeats figure 4: throughput of LinkBench for each combination. The throughput of TPC-C is measured, too.
pub fn parts(lab: &mut Lab<'_>) -> Result<()> {
    let (graph, tpcc) = (linkbench(lab)?, Tpcc::new(lab.scale().tpcc));
    let mixes: [(&str, &dyn Workload, Sizes); 2] =
        [(LINKBENCH, &graph, sizes(lab, PAGE_BYTES, DATABASE_OF_POOL)), (TPCC, &tpcc, sizes_of_tpcc(lab))];
    // Without emulation, variants with atomic writes are left out, because the drive may not write pages
    // atomically.
    let is_emulated = lab.device().is_emulated();
    let (device, mut points, mut claims) = (lab.device(), Vec::new(), Vec::new());
    for (mix, workload, sizes) in mixes {
        let factors = Factors::from([("mix", mix.into())]);
        if !lab.wants(&factors) {
            continue;
        }
        let all = WORKERS.into_iter().flat_map(|workers| parts_with(workers, sizes));
        let variants: Vec<Variant> =
            all.filter(|variant| is_emulated || !variant.has_atomic_writes()).collect();
        let stands = lab.stands(workload, sizes, &variants)?;
        for clients in lab.clients(&[64], &[64]) {
            let compared = lab.compare(&stands, workload, &device, clients, &factors)?;
            claims.extend(claim_parts(lab, &compared)?);
            points.extend(compared);
        }
    }
    lab.tell(&points, &claims)
}

fn parts_with(workers: usize, sizes: Sizes) -> impl Iterator<Item = Variant> {
    PARTS.into_iter().map(move |part| part_with(part, workers, sizes))
}

fn part_with(
    (protects, algorithm, trim): (Protects, Algorithm, Trim),
    workers: usize,
    sizes: Sizes,
) -> Variant {
    let is_packed = protects == OUT_OF_PLACE;
    let kind = protects.unwrap_or(ProtectionKind::DOUBLEWRITE);
    let set = move |config: &mut PagerConfig| {
        config.protection = kind;
        config.compression = Compression::of(algorithm);
        config.trim = trim;
        config.page_writers = workers;
        if is_packed {
            lay_out_packed(config);
        }
    };
    let variant = Variant::new(set).with("compression", algorithm.name()).with("trim", trim.name());
    // A variant without trims gets a database that was loaded without trims. In such files no blocks were
    // given back, so its writes need not allocate blocks.
    let variant = match (is_packed, algorithm, trim) {
        (false, Algorithm::None, _) => variant,
        (false, _, Trim::Off) => variant.shared_load("lz4-untrimmed", |config| untrimmed(config, lz4)),
        (false, ..) => variant.shared_load("lz4", lz4),
        (true, Algorithm::None, Trim::Off) => {
            variant.shared_load("packed-untrimmed", |config| untrimmed(config, lay_out_packed))
        }
        (true, Algorithm::None, _) => variant.shared_load("packed", lay_out_packed),
        (true, _, Trim::Off) => {
            variant.shared_load("packed-lz4-untrimmed", |config| untrimmed(config, packed_lz4))
        }
        (true, ..) => variant.shared_load("packed-lz4", packed_lz4),
    };
    let variant = variant.with("protection", name_of(protects)).with("workers", workers);
    match kind {
        ProtectionKind::AtomicWrite => variant.with_atomic_writes(),
        ProtectionKind::Nvm => variant.in_nvm(InNvm { area_bytes: sizes.pool_bytes as u64, log: true }),
        _ => variant,
    }
}

fn untrimmed(config: &mut PagerConfig, configure: fn(&mut PagerConfig)) {
    configure(config);
    config.trim = Trim::Off;
}

fn lz4(config: &mut PagerConfig) {
    config.compression = Compression::of(Algorithm::Lz4);
}

fn packed_lz4(config: &mut PagerConfig) {
    lz4(config);
    lay_out_packed(config);
}

/// Returns claims that compare each variant with the paper's baseline: uncompressed tables with doublewrite
/// and one worker.
fn claim_parts(lab: &mut Lab<'_>, compared: &[Point]) -> Result<Vec<Claim>> {
    let of = |point: &Point, name: &str| point.factors.get(name).map(tell::plain).unwrap_or_default();
    let key = |point: &Point| ["protection", "compression", "trim", "workers"].map(|name| of(point, name));
    let base = compared
        .iter()
        .find(|point| key(point) == [name_of(DOUBLEWRITE), NONE, "off", "1"].map(str::to_owned));
    let Some(base) = base else { return Ok(Vec::new()) };
    let mut claims = Vec::new();
    for point in compared.iter().filter(|point| !std::ptr::eq(*point, base)) {
        let [protection, compression, trim, workers] = key(point);
        let is_theirs = of(point, "mix") == LINKBENCH
            && protection == name_of(ATOMIC_WRITE)
            && compression == NONE
            && workers == "1";
        let expects = match is_of_theirs(&protection) {
            false => Expects::Nothing,
            true => Expects::Published(is_theirs.then_some(ATOMIC), Better::Higher),
        };
        let says =
            format!("{protection}, {compression}, trim {trim}, {workers} / doublewrite, {NONE}, off, 1");
        claims.push(lab.claim(Comparison::ratio(
            &says,
            Figure::Throughput,
            PointPair { over: point, under: base },
            expects,
        ))?);
    }
    claims.extend(claim_trim(lab, compared)?);
    Ok(claims)
}

fn is_of_theirs(protection: &str) -> bool {
    THEIRS.map(name_of).contains(&protection)
}

/// Returns claims that compare each variant with trims with the same variant without. The paper has a value
/// for compressed pages in place with doublewrite.
fn claim_trim(lab: &mut Lab<'_>, compared: &[Point]) -> Result<Vec<Claim>> {
    let trims = |point: &Point, so: &str| point.factors.get("trim").is_some_and(|trim| trim == so);
    let rest = |point: &Point| {
        let mut factors = point.factors.clone();
        factors.remove("trim");
        factors
    };
    let mut claims = Vec::new();
    for on in compared.iter().filter(|point| trims(point, "on")) {
        let Some(off) = compared.iter().find(|point| trims(point, "off") && rest(point) == rest(on)) else {
            continue;
        };
        let of = |name: &str| on.factors.get(name).map(tell::plain).unwrap_or_default();
        let is_theirs = of("protection") == name_of(DOUBLEWRITE) && of("mix") != TPCC;
        let expects = match is_of_theirs(&of("protection")) {
            false => Expects::Nothing,
            true => Expects::Published(is_theirs.then_some(TRIM), Better::Higher),
        };
        claims.push(lab.claim(Comparison::ratio(
            "trim on / off",
            Figure::Throughput,
            PointPair { over: on, under: off },
            expects,
        ))?);
    }
    Ok(claims)
}

/// Measures how much the gain of trims depends on the time of a trim on the emulated drive. The paper has no
/// such figure.
pub fn trim_sweep(lab: &mut Lab<'_>) -> Result<()> {
    let workload = linkbench(lab)?;
    let parts = [(DOUBLEWRITE, Algorithm::Lz4), (OUT_OF_PLACE, Algorithm::Lz4)];
    let with_trims = |(protects, algorithm)| [Trim::Off, Trim::On].map(|trim| (protects, algorithm, trim));
    let sizes = sizes(lab, PAGE_BYTES, DATABASE_OF_POOL);
    let variants: Vec<Variant> =
        parts.into_iter().flat_map(with_trims).map(|part| part_with(part, 1, sizes)).collect();
    let stands = lab.stands(&workload, sizes, &variants)?;
    let (mut points, mut claims) = (Vec::new(), Vec::new());
    for clients in lab.clients(&[16], &[16]) {
        for trim_us in TRIMS_US {
            let factors = Factors::from([("trim us", trim_us.into())]);
            if !lab.wants(&factors) {
                continue;
            }
            let device = lab.device().with_trim_us(trim_us);
            let compared = lab.compare(&stands, &workload, &device, clients, &factors)?;
            claims.extend(claim_trim(lab, &compared)?);
            points.extend(compared);
        }
    }
    lab.tell(&points, &claims)
}
