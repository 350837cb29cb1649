//! Measures the wear of flash by updates ("How to Write to SSDs", arXiv 2603.09927). Pages at fixed offsets
//! with doublewrite are compared with packed pages, which are never overwritten. Rows and drive are the same
//! for both.
//!
//! 1. The flash drive is a model (decision 0150), and every figure says so. Only bytes are counted and no
//!    times, so a busy machine does not change a result.
//! 2. The drive has the same size for all variants. The *uncompressed* database at fixed offsets would fill
//!    nine tenths of the drive, with its allocated pages, doublewrite area, control file, and the log if the
//!    log is on this drive. Space that compression saves stays free, as on a real drive.
//! 3. A figure is valid on two conditions. The drive was overwritten often enough before the measurement, and
//!    both halves of the measured interval give the same result.

use serde::Serialize;
use varve_device::Profile;
use varve_pager::{Algorithm, Compression, HomeLayout, PackedConfig, PagerConfig, Trim};

use super::lab::Lab;
use super::row::{Factors, Subject};
use super::table::TextTable;
use super::tell;
use super::wear_claim::claims_of;
use super::wear_drive::{Drive, Interval, PAGE_BYTES, pool_bytes};
use crate::updates::{ROW_CHARS, Updates};
use varve_bench::report::hash_of;
use varve_bench::values::Values;
use varve_bench::{BenchError, Result};

/// The share of the drive that the uncompressed database in place fills.
const FILL: f64 = 0.9;
/// The size of a drive that is certainly large enough, as a multiple of the bytes of its rows.
const AMPLE: u64 = 4;
/// If the two halves of an interval differ by more than this part, the drive was not in a steady state.
const UNSTEADY: f64 = 0.1;
/// The profile of the emulated drive, unless the user asks for another one.
const PROFILE: &str = "sata-ssd-2014";

/// A way to write pages: the layout, the codec, and whether trims are made.
struct Way {
    name: &'static str,
    /// If it is set, pages are packed, and their file may be filled to this percentage before it grows.
    packed_percent: Option<u8>,
    algorithm: Algorithm,
    trims: bool,
}

/// Names of the variants with which others are compared.
pub(super) const BASE: &str = "doublewrite";
pub(super) const LZ4: &str = "doublewrite lz4";
pub(super) const LZ4_TRIM: &str = "doublewrite lz4 trim";
/// The default of `packed_percent`.
const DEFAULT_FILL: Option<u8> = Some(PackedConfig::DEFAULT.fill_percent);
const WAYS: [Way; 8] = [
    Way { name: BASE, packed_percent: None, algorithm: Algorithm::None, trims: false },
    Way { name: LZ4, packed_percent: None, algorithm: Algorithm::Lz4, trims: false },
    Way { name: LZ4_TRIM, packed_percent: None, algorithm: Algorithm::Lz4, trims: true },
    Way { name: "packed", packed_percent: DEFAULT_FILL, algorithm: Algorithm::None, trims: true },
    Way { name: "packed lz4", packed_percent: DEFAULT_FILL, algorithm: Algorithm::Lz4, trims: true },
    Way { name: "packed lz4 fill 80", packed_percent: Some(80), algorithm: Algorithm::Lz4, trims: true },
    Way { name: "packed lz4 fill 70", packed_percent: Some(70), algorithm: Algorithm::Lz4, trims: true },
    Way { name: "packed lz4 fill 50", packed_percent: Some(50), algorithm: Algorithm::Lz4, trims: true },
];

impl Way {
    fn configure(&self, extent_bytes: u64, config: &mut PagerConfig) {
        config.compression = Compression::of(self.algorithm);
        config.trim = if self.trims { Trim::On } else { Trim::Off };
        if let Some(fill_percent) = self.packed_percent {
            config.layout =
                HomeLayout::Packed(PackedConfig { extent_bytes, fill_percent, ..PackedConfig::DEFAULT });
        }
    }

    /// Returns whether the way compresses pages. Only then the compressibility of values matters.
    fn compresses(&self) -> bool {
        self.algorithm != Algorithm::None
    }
}

/// Values of rows, and how well pages with such values compress.
#[derive(Clone)]
struct Filling {
    /// The wanted ratio of compressed to uncompressed size. It is `None` if nothing is compressed.
    wanted: Option<f64>,
    values: Values,
}

/// The configuration of a point.
struct Spot<'a> {
    way: &'a Way,
    filling: &'a Filling,
    theta: f64,
    log_is_apart: bool,
}

impl Spot<'_> {
    fn factors(&self) -> Factors {
        let log = if self.log_is_apart { "apart" } else { "here" };
        let mut factors = Factors::from([
            ("variant", self.way.name.into()),
            ("theta", self.theta.into()),
            ("log", log.into()),
        ]);
        factors.extend(self.filling.wanted.map(|wanted| ("values", wanted.into())));
        factors
    }
}

/// The results of a point. Bytes are averages for a transaction, unless the name says otherwise.
#[derive(Debug, Clone, Serialize)]
pub(super) struct WearRow {
    pub(super) row: &'static str,
    pub(super) experiment: &'static str,
    pub(super) figure: &'static str,
    pub(super) factors: Factors,
    pub(super) configuration: String,
    /// A note that the figures of flash are modelled, not measured.
    pub(super) flash: &'static str,
    pub(super) capacity_bytes: u64,
    /// Bytes that the host wrote before the interval, as a multiple of the drive's size.
    pub(super) overwritten_before: f64,
    /// The share of the drive that had valid data at the end.
    pub(super) valid_share: f64,
    pub(super) transactions: u64,
    /// Bytes of compressible pages as they were stored, divided by their uncompressed bytes.
    pub(super) stored_share: Option<f64>,
    pub(super) pages_written: f64,
    pub(super) host_bytes: f64,
    pub(super) flash_bytes: f64,
    pub(super) log_apart_bytes: f64,
    pub(super) host_bytes_of_a_page: f64,
    pub(super) flash_bytes_of_a_page: f64,
    /// Bytes written to flash, divided by bytes that the host wrote.
    pub(super) translation_amplification: f64,
    /// Bytes written of new and of moved pages, divided by the bytes of new pages.
    pub(super) packed_amplification: Option<f64>,
    pub(super) trimmed_bytes: f64,
    pub(super) by_purpose: Vec<(&'static str, f64)>,
    /// The relative difference between the two halves of the interval.
    pub(super) halves_differ: f64,
}

impl WearRow {
    /// Returns the reason why the point doesn't count, if there is one.
    pub(super) fn not_judged(&self) -> Option<String> {
        (self.halves_differ > UNSTEADY).then(|| {
            format!("halves of the interval differ by {:.0} %: no steady state", 100.0 * self.halves_differ)
        })
    }

    pub(super) fn is(&self, variant: &str) -> bool {
        self.factors.get("variant").is_some_and(|is| is == variant)
    }
}

/// Runs the experiment `packed-wear`.
pub fn packed_wear(lab: &mut Lab<'_>) -> Result<()> {
    let asked = lab.device().profile().map(Ok);
    let profile = asked
        .unwrap_or_else(|| Profile::shipped(PROFILE))
        .map_err(|error| BenchError::Arguments(error.to_string()))?;
    let fillings = fillings(lab, &profile)?;
    let clients = lab.clients(&[4], &[4]).first().copied().unwrap_or(1);
    let (mut measured, mut claims) = (Vec::new(), Vec::new());
    let logs: &[bool] = if lab.scale().is_full() { &[true, false] } else { &[true] };
    for log_is_apart in logs.iter().copied() {
        let (capacity_bytes, rows) = size(lab, &profile, log_is_apart)?;
        for theta in [0.8, 0.99] {
            let mut here = Vec::new();
            for (way, filling) in combinations(&fillings) {
                let spot = Spot { way, filling, theta, log_is_apart };
                if lab.wants(&spot.factors()) {
                    here.extend(point(lab, &profile, &spot, (rows, capacity_bytes, clients))?);
                }
            }
            let found = claims_of(lab.subject(), &here);
            found.iter().try_for_each(|claim| lab.write_row(claim))?;
            claims.extend(found);
            measured.extend(here);
        }
    }
    lab.say(&format!(
        "\nFlash bytes are modelled (decision 0150).\n{}{}",
        table(&measured),
        tell::claims(&claims)
    ))
}

/// Returns all combinations of a way and values. A way without compression has only one kind of values,
/// because it makes no difference there.
fn combinations(fillings: &[Filling]) -> impl Iterator<Item = (&'static Way, &Filling)> {
    let fits = |way: &Way, filling: &Filling| way.compresses() == filling.wanted.is_some();
    WAYS.iter().flat_map(move |way| {
        fillings.iter().filter(move |filling| fits(way, filling)).map(move |filling| (way, filling))
    })
}

/// Bytes of a data file that stay free for allocations: eight extents of 64 pages, and as many again.
const KEPT_BYTES: u64 = 2 * 8 * 64 * PAGE_BYTES as u64;
/// The space that a device must have beyond its files, as a part of the files.
const AIR: f64 = 0.02;

/// Returns the size of the drive, and the number of rows. Stored uncompressed and in place, the rows fill
/// nine tenths of the drive. A file grows in large steps, so after a first load the data file has unused
/// pages. Their number shows how many more rows a second load can have in a file of the same size.
fn size(lab: &mut Lab<'_>, profile: &Profile, log_is_apart: bool) -> Result<(u64, u64)> {
    let wanted = (lab.scale().wear_bytes / ROW_CHARS as u64).max(1);
    let load = |rows: u64| {
        let rows_bytes = rows * ROW_CHARS as u64;
        let drive = Drive::new(profile, rows_bytes * AMPLE + (64 << 20), log_is_apart)?;
        drive.load(&Updates::new(rows, 0.5, Values::Letters), pool_bytes(rows_bytes), &|_| {})
    };
    let first = load(wanted)?;
    let used = first.files_bytes.saturating_sub(first.unused_bytes).max(1);
    let more = first.unused_bytes.saturating_sub(KEPT_BYTES);
    let rows = wanted + (wanted as f64 * more as f64 / used as f64) as u64;
    let loaded = load(rows)?;
    let least = loaded.files_bytes as f64 * (1.0 + AIR);
    let bytes = (loaded.live_bytes as f64 / FILL).max(least) as u64;
    lab.say(&format!(
        "drive of {:.1} MiB: {rows} rows, plain and in place, take {:.1} MiB of it ({:.1} %), their files {:.1} MiB; log {}",
        mib(bytes),
        mib(loaded.live_bytes),
        100.0 * loaded.live_bytes as f64 / bytes as f64,
        mib(loaded.files_bytes),
        if log_is_apart { "apart" } else { "here" }
    ))?;
    Ok((bytes, rows))
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Finds values with which lz4 compresses pages to the wanted shares of their size, by loading some rows.
fn fillings(lab: &mut Lab<'_>, profile: &Profile) -> Result<Vec<Filling>> {
    let wanted: &[f64] = if lab.scale().is_full() { &[0.4, 0.5, 0.75, 1.0] } else { &[0.5, 0.75, 1.0] };
    let mut fillings = vec![Filling { wanted: None, values: Values::Letters }];
    for wanted in wanted.iter().copied() {
        let is_asked_for = lab.wants(&Factors::from([("values", wanted.into())]));
        if !is_asked_for {
            continue;
        }
        let (values, share) = if wanted < 1.0 {
            repeating(profile, wanted)?
        } else {
            (Values::Letters, stored_share(profile, &Values::Letters)?)
        };
        lab.say(&format!(
            "values {wanted}: {}: pages stored by lz4 in {share:.3} of their bytes",
            values.describe()
        ))?;
        fillings.push(Filling { wanted: Some(wanted), values });
    }
    Ok(fillings)
}

/// The number of rows that are loaded to find out how well pages compress.
const SAMPLE_ROWS: u64 = 4_000;
/// The accepted difference from the wanted share.
const NEAR: f64 = 0.01;

fn repeating(profile: &Profile, wanted: f64) -> Result<(Values, f64)> {
    let (mut low, mut high) = (0.0, 1.0);
    loop {
        let uniqueness = (low + high) / 2.0;
        let values = Values::named("motif", uniqueness)?;
        let share = stored_share(profile, &values)?;
        if (share - wanted).abs() <= NEAR || high - low < NEAR / 4.0 {
            return Ok((values, share));
        }
        if share > wanted { high = uniqueness } else { low = uniqueness }
    }
}

fn stored_share(profile: &Profile, values: &Values) -> Result<f64> {
    let drive = Drive::new(profile, SAMPLE_ROWS * ROW_CHARS as u64 * AMPLE + (64 << 20), true)?;
    let lz4 = |config: &mut PagerConfig| config.compression = Compression::of(Algorithm::Lz4);
    let mix = Updates::new(SAMPLE_ROWS, 0.5, values.clone());
    Ok(drive.load(&mix, pool_bytes(0), &lz4)?.stored_share)
}

/// Measures a point. Returns `None` if its database does not fit on the drive.
fn point(
    lab: &mut Lab<'_>,
    profile: &Profile,
    spot: &Spot<'_>,
    (rows, capacity_bytes, clients): (u64, u64, usize),
) -> Result<Option<WearRow>> {
    let drive = Drive::new(profile, capacity_bytes, spot.log_is_apart)?;
    let mix = Updates::new(rows, spot.theta, spot.filling.values.clone());
    let pool_bytes = pool_bytes(rows * ROW_CHARS as u64);
    let extent_bytes = drive.extent_bytes();
    let configure = |config: &mut PagerConfig| spot.way.configure(extent_bytes, config);
    let (before, counted) = lab.scale().wear_percent;
    let of_drive = |percent: u64| capacity_bytes * percent / 100;
    let measure = || {
        drive.load(&mix, pool_bytes, &configure)?;
        let mut worn = drive.open(pool_bytes, &configure)?;
        let warmed = worn.run(&mix, clients, of_drive(before))?;
        let halves = [
            worn.run(&mix, clients, of_drive(counted / 2))?,
            worn.run(&mix, clients, of_drive(counted / 2))?,
        ];
        worn.end()?;
        Ok((warmed, halves))
    };
    let (warmed, halves) = match measure() {
        Err(BenchError::Statement { sqlstate, message }) if sqlstate == NO_ROOM => {
            lab.say(&format!("{} does not fit: {message}", tell::place(&spot.factors())))?;
            return Ok(None);
        }
        measured => measured?,
    };
    let shared = format!(
        "{rows} rows, pool {pool_bytes}, drive {capacity_bytes}, extents {extent_bytes}, {clients} sessions"
    );
    let row = row(lab.subject(), spot, &warmed, &halves, &shared);
    lab.write_row(&row)?;
    Ok(Some(row))
}

/// The SQLSTATE of an error because the device is full.
const NO_ROOM: &str = "53100";

fn row(
    Subject { experiment, figure }: Subject,
    spot: &Spot<'_>,
    warmed: &Interval,
    halves: &[Interval; 2],
    shared: &str,
) -> WearRow {
    let sum = |of: &dyn Fn(&Interval) -> f64| halves.iter().map(of).sum::<f64>();
    let level = |name: &str| sum(&|half| half.level(name));
    let transactions = sum(&|half| half.transactions as f64).max(1.0);
    let pages = level("home.pages_written").max(1.0);
    let (host, flash) =
        (sum(&|half| half.flash.host_bytes as f64), sum(&|half| half.flash.flash_bytes as f64));
    let part = |of: f64, whole: f64| (whole > 0.0).then(|| of / whole);
    let [first, second] = halves.each_ref().map(Interval::flash_of_a_page);
    let last = &halves[1].flash;
    let factors = spot.factors();
    let configuration = hash_of(&format!("{} {shared}", serde_json::json!(factors)));
    let mut purposes: Vec<(&'static str, f64)> = Vec::new();
    for name in halves[1].by_purpose.keys() {
        purposes
            .push((name, sum(&|half| half.by_purpose.get(name).copied().unwrap_or(0) as f64) / transactions));
    }
    WearRow {
        row: "wear",
        experiment,
        figure,
        factors,
        configuration,
        flash: "modelled",
        capacity_bytes: last.capacity_bytes,
        overwritten_before: warmed.flash.host_bytes as f64 / last.capacity_bytes as f64,
        valid_share: last.valid_bytes as f64 / last.capacity_bytes as f64,
        transactions: transactions as u64,
        stored_share: part(level("home.stored_bytes"), level("home.plain_bytes")),
        pages_written: pages / transactions,
        host_bytes: host / transactions,
        flash_bytes: flash / transactions,
        log_apart_bytes: sum(&|half| half.log_apart_bytes as f64) / transactions,
        host_bytes_of_a_page: host / pages,
        flash_bytes_of_a_page: flash / pages,
        translation_amplification: flash / host.max(1.0),
        packed_amplification: part(
            level("home.written_bytes") + level("home.moved_bytes"),
            level("home.written_bytes"),
        ),
        trimmed_bytes: sum(&|half| half.flash.trimmed_bytes as f64) / transactions,
        by_purpose: purposes,
        halves_differ: (first - second).abs() / first.max(second).max(1.0),
    }
}

fn table(rows: &[WearRow]) -> TextTable {
    let mut table = TextTable::headed(&[
        "log",
        "theta",
        "values",
        "variant",
        "stored",
        "pages",
        "host KiB",
        "flash KiB",
        "log KiB",
        "host/page",
        "flash/page",
        "flash/host",
        "packed moves",
        "trim KiB",
        "valid %",
        "halves %",
        "counts",
    ]);
    let kib = |bytes: f64| format!("{:.2}", bytes / 1024.0);
    let maybe = |figure: Option<f64>| figure.map_or_else(String::new, |figure| format!("{figure:.2}"));
    for row in rows {
        let mut line: Vec<String> = ["log", "theta", "values", "variant"]
            .map(|name| row.factors.get(name).map(tell::plain).unwrap_or_default())
            .to_vec();
        line.extend([maybe(row.stored_share), format!("{:.2}", row.pages_written)]);
        line.extend([row.host_bytes, row.flash_bytes, row.log_apart_bytes].map(kib));
        line.extend([row.host_bytes_of_a_page, row.flash_bytes_of_a_page].map(kib));
        line.extend([format!("{:.2}", row.translation_amplification), maybe(row.packed_amplification)]);
        line.push(kib(row.trimmed_bytes));
        line.extend([row.valid_share, row.halves_differ].map(|share| format!("{:.1}", 100.0 * share)));
        line.push(row.not_judged().map_or("yes", |_| "doesn't count").to_owned());
        table.push(line);
    }
    table
}
