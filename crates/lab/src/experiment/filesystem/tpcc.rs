//! Repeats figure 19 of Lindstrom 2017: throughput of TPC-C with compressed pages, by file system.
//!
//! 1. The paper's variant has pages in place, lz4 and trims. The same without trims shows what the holes cost
//!    on a file system. Packed pages need no hole behind each page.
//! 2. All file systems get copies of the same loaded databases. Rounds of all variants on all file systems
//!    alternate.
//! 3. Varve keeps its data in files, so it can't run on a device without a file system.

use varve_pager::{Algorithm, Compression, PagerConfig, Trim};

use super::super::claim::Claim;
use super::super::copies::Bench;
use super::super::device::Device;
use super::super::lab::Lab;
use super::super::lindstrom::{lay_out_packed, sizes_of_tpcc};
use super::super::order;
use super::super::row::{Factors, Point};
use super::super::scale::ByScale;
use super::super::stand::{SEGMENT_UNIT_BYTES, Sizes, Variant};
use super::super::verdict::Verdict;
use super::made::FILE_SYSTEM;
use super::{FileSystem, Mounted, make_all};
use varve_bench::Result;
use varve_bench::report::Spread;
use varve_bench::tpcc::Tpcc;

const ROUNDS: ByScale<usize> = ByScale { quick: 3, full: 3 };
const ROUND_MS: ByScale<u64> = ByScale { quick: 1_500, full: 10_000 };
const WARM_MS: ByScale<u64> = ByScale { quick: 500, full: 5_000 };
const SESSIONS: usize = 16;
/// The log has this many segments, and as many bytes as the pool. With a larger log, a short round would have
/// no checkpoint that writes pages.
const LOG_SEGMENTS: u64 = 8;
/// A file system has space for this many times the pages of each of its databases.
const SPACE_OF_PAGES: u64 = 4;
/// The bar of this project for packed pages, which need no hole behind each page: at least the throughput of
/// pages in place with trims.
const BAR_PACKED: f64 = 1.0;

/// The name of the factor with the way in which pages are stored.
const STORED: &str = "pages";
/// How pages are stored, in the order in which they are measured. The first one is the paper's.
const IN_PLACE_TRIMMED: &str = "in place with trims";
const IN_PLACE: &str = "in place without trims";
const PACKED: &str = "packed";
const PLAIN: &str = "in place uncompressed";

/// Runs the experiment `filesystem-tpcc`.
pub fn filesystem_tpcc(lab: &mut Lab<'_>) -> Result<()> {
    lab.prefer_rounds(ROUNDS);
    lab.prefer_lengths(ROUND_MS, WARM_MS);
    let workload = Tpcc::new(lab.scale().tpcc);
    let place = lab.empty("filesystem-tpcc")?;
    let (sizes, variants) = (sizes(lab), variants(lab.scale().is_full()));
    let each = SPACE_OF_PAGES * 2 * sizes.pool_bytes as u64 + sizes.log_bytes;
    let kinds = [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs];
    let all = make_all(lab, &kinds, &place.place().files, variants.len() as u64 * each)?;
    let (mut points, mut claims) = (Vec::new(), Vec::new());
    {
        let benches: Result<Vec<Bench>> =
            all.iter().map(|mounted| Bench::open(Some(mounted.path().to_owned()), None)).collect();
        let (benches, mut stands) = (benches?, Vec::new());
        for (mounted, bench) in all.iter().zip(&benches) {
            stands.extend(lab.stands_on(bench, &workload, sizes, &on(mounted, &variants))?);
        }
        for clients in lab.clients(&[SESSIONS], &[SESSIONS]) {
            let compared = lab.compare(&stands, &workload, &Device::REAL, clients, &Factors::new())?;
            for claim in claims_of(&compared) {
                claims.push(lab.write_claim(claim)?);
            }
            lab.say(&order_text(&compared))?;
            points.extend(compared);
        }
    }
    lab.tell(&points, &claims)
}

fn sizes(lab: &Lab<'_>) -> Sizes {
    let sizes = sizes_of_tpcc(lab);
    let segment_bytes = sizes.pool_bytes as u64 / LOG_SEGMENTS;
    sizes.with_log(LOG_SEGMENTS, segment_bytes.next_multiple_of(SEGMENT_UNIT_BYTES))
}

/// Returns the variants that are measured on each file system.
fn variants(is_full: bool) -> Vec<Variant> {
    let variant = |name: &'static str, configure: fn(&mut PagerConfig)| {
        Variant::new(configure).with(STORED, name).shared_load(name, configure)
    };
    let mut all = vec![
        variant(IN_PLACE_TRIMMED, |config| compress(config, Trim::On)),
        variant(IN_PLACE, |config| compress(config, Trim::Off)),
        variant(PACKED, |config| {
            lay_out_packed(config);
            compress(config, Trim::On);
        }),
    ];
    if is_full {
        all.push(variant(PLAIN, |config| config.trim = Trim::Off));
    }
    all
}

fn compress(config: &mut PagerConfig, trim: Trim) {
    config.compression = Compression::of(Algorithm::Lz4);
    config.trim = trim;
}

/// Returns these variants with the file system as a further factor.
fn on(mounted: &Mounted, variants: &[Variant]) -> Vec<Variant> {
    variants.iter().map(|variant| variant.clone().with(FILE_SYSTEM, mounted.kind().name())).collect()
}

fn factor<'p>(point: &'p Point, name: &str) -> &'p str {
    point.factors.get(name).and_then(|value| value.as_str()).unwrap_or_default()
}

fn find<'p>(points: &'p [Point], file_system: &str, stored: &str) -> Option<&'p Point> {
    points.iter().find(|point| factor(point, FILE_SYSTEM) == file_system && factor(point, STORED) == stored)
}

/// Returns the claims: each file system against ext4, which the paper has in a plot only, and on each file
/// system the variants against the paper's.
fn claims_of(points: &[Point]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for theirs in points.iter().filter(|point| factor(point, STORED) == IN_PLACE_TRIMMED) {
        let name = factor(theirs, FILE_SYSTEM);
        if let Some(ext4) = find(points, FileSystem::Ext4.name(), IN_PLACE_TRIMMED).filter(|_| name != "ext4")
        {
            let claim = compared(&format!("{name} / ext4, {IN_PLACE_TRIMMED}"), theirs, ext4);
            claims.push(Claim { verdict: Verdict::NotInText, ..claim });
        }
        if let Some(untrimmed) = find(points, name, IN_PLACE) {
            claims.push(compared(&format!("trims / no trims, in place, {name}"), theirs, untrimmed));
        }
        if let Some(plain) = find(points, name, PLAIN) {
            claims.push(compared(&format!("{IN_PLACE_TRIMMED} / uncompressed, {name}"), theirs, plain));
        }
        if let Some(packed) = find(points, name, PACKED) {
            let claim = compared(&format!("packed / {IN_PLACE_TRIMMED}, {name}"), packed, theirs);
            claims.push(claim.judged(BAR_PACKED, at_least(BAR_PACKED, packed, theirs)));
        }
    }
    claims
}

/// Returns a claim without a verdict: the throughput of a point, divided by that of another point.
fn compared(says: &str, over: &Point, under: &Point) -> Claim {
    let factors = Factors::from([("clients", under.factors.get("clients").cloned().unwrap_or_default())]);
    let ours = over.tps.median / under.tps.median;
    Claim::found(&factors, says.to_owned(), ours).of_rounds(over.rounds.min(under.rounds))
}

/// Compares the ratio of two throughputs with a bar. If the ranges of their rounds allow both verdicts,
/// the ratio is within the noise, and is not judged.
fn at_least(bar: f64, over: &Point, under: &Point) -> Verdict {
    let ends = |point: &Point| order::ends(point.tps, point.rounds);
    let ((over_min, over_max), (under_min, under_max)) = (ends(over), ends(under));
    let (least, most) = (over_min / under_max, over_max / under_min);
    match () {
        () if least >= bar => Verdict::Met,
        () if most < bar => Verdict::at_least(bar, over.tps.median / under.tps.median),
        () => Verdict::NotJudged(format!("within the noise: {least:.2} to {most:.2}")),
    }
}

/// Returns a text with the order of the file systems, for the paper's variant. Neighbours whose rounds
/// overlap are tied.
fn order_text(points: &[Point]) -> String {
    let mut theirs: Vec<&Point> =
        points.iter().filter(|point| factor(point, STORED) == IN_PLACE_TRIMMED).collect();
    theirs.sort_by(|one, other| other.tps.median.total_cmp(&one.tps.median));
    let mut text = String::new();
    for (at, point) in theirs.iter().enumerate() {
        let is_tied = |before: &&Point| {
            order::ends(before.tps, before.rounds).0 <= order::ends(point.tps, point.rounds).1
        };
        text.push_str(match at.checked_sub(1).and_then(|before| theirs.get(before)) {
            None => "",
            Some(before) if is_tied(before) => " = ",
            Some(_) => " > ",
        });
        text.push_str(factor(point, FILE_SYSTEM));
    }
    let noise = theirs.iter().map(|point| relative_range(point.tps)).fold(0.0, f64::max);
    format!(
        "\nOrder of throughput, {IN_PLACE_TRIMMED}: {text} (\"=\": the ranges of the rounds overlap; the widest range is {:.0} % of \
         its median). The paper's text only says that NVMFS is above ext4 and xfs, and NVMFS is not available.",
        100.0 * noise
    )
}

/// Returns the range of the rounds, as a part of their median.
fn relative_range(spread: Spread) -> f64 {
    (spread.max - spread.min) / spread.median.max(f64::MIN_POSITIVE)
}
