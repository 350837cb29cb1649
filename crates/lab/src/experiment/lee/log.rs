//! The log on a disk and on flash: single updates (table 2) and TPC-B (table 3 and figure 3).
//!
//! 1. A force is a write of the log and its flush. The two drives take the time for a force that Lee measured
//!    (table 3), not the time of their data sheet. So the time of a force is not a result here. The results
//!    show which throughput group commit and the processors reach with it.

use std::time::Duration;

use serde::Serialize;
use varve_bench::Result;
use varve_bench::driver::{self, Plan};
use varve_bench::report::Spread;
use varve_bench::tpcb::Tpcb;
use varve_bench::workload::Workload;
use varve_device::EmulationReport;

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::row::{Emulation, Factors, Subject};
use super::super::scale::{ByScale, Scale};
use super::super::stand::Sizes;
use super::super::table::TextTable;
use super::super::tell;
use super::super::verdict::Better;
use super::stand::{MemoryStand, OpenMemoryStand, SpaceUse, StudiedSpace};
use super::updates::SingleUpdates;
use super::{DISK, DRIVES, FLASH, PAGE_BYTES, PublishedRatio, judge, processors};

/// The numbers of sessions of table 2 and of figure 3.
const TABLE_2_CLIENTS: [usize; 5] = [4, 8, 16, 32, 64];
const FIGURE_3_CLIENTS: [usize; 7] = [1, 5, 10, 20, 30, 40, 50];
const FIGURE_3_QUICK: [usize; 3] = [5, 20, 50];
/// The number of users of table 3.
const TABLE_3_CLIENTS: usize = 20;
/// The number of TPC-B's branches. With `--full` they have 450 MB (section 4.2).
const BRANCHES: ByScale<u64> = ByScale { quick: 5, full: 30 };
const POOL_BYTES: ByScale<usize> = ByScale { quick: 160 << 20, full: 640 << 20 };
const ROWS: u64 = 10_000;
const LOG_SEGMENTS: u64 = 8;
const LOG_SEGMENT_BYTES: u64 = 32 << 20;
const SECTOR_BYTES: f64 = 512.0;

/// The figures that the publication states for a point.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct PublishedPoint {
    /// Transactions a second.
    tps: Option<f64>,
    /// How busy the processors were, in percent.
    cpu_percent: Option<f64>,
    /// Sectors that a force writes.
    force_sectors: Option<f64>,
    /// Milliseconds that a force takes.
    force_ms: Option<f64>,
}

/// The drive, the number of sessions, and the number of processors of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogSetting {
    drive: &'static str,
    clients: usize,
    processors: usize,
}

impl LogSetting {
    fn profile(self) -> &'static str {
        if self.drive == DISK { "lee-log-disk" } else { "lee-log-flash" }
    }

    fn factors(self) -> Factors {
        let mut factors = Factors::new();
        factors.insert("drive", self.drive.into());
        factors.insert("clients", self.clients.into());
        factors.insert("processors", self.processors.into());
        factors
    }
}

/// The results of one round.
struct LogRound {
    tps: f64,
    cpu_percent: f64,
    forces: f64,
    force_sectors: f64,
    force_ms: f64,
    report: Option<EmulationReport>,
}

/// A measured point. `tps` comes from all rounds, and `emulation` is the worst of all rounds. Other figures
/// are those of the last round.
#[derive(Debug, Serialize)]
struct LogRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    scale: String,
    rounds: usize,
    tps: Spread,
    cpu_percent: f64,
    forces_a_transaction: f64,
    force_sectors: f64,
    force_ms: f64,
    published: PublishedPoint,
    emulation: Option<Emulation>,
    #[serde(skip)]
    setting: LogSetting,
}

/// Repeats table 2: throughput of single updates, by number of sessions.
pub fn log_device(lab: &mut Lab<'_>) -> Result<()> {
    let all = processors::count_now();
    let clients = lab.clients(&TABLE_2_CLIENTS, &TABLE_2_CLIENTS);
    let of_clients = |clients| DRIVES.map(|drive| LogSetting { drive, clients, processors: all });
    let settings: Vec<LogSetting> = clients.into_iter().flat_map(of_clients).collect();
    let sizes = Sizes::new(PAGE_BYTES, 64 << 20).with_log(LOG_SEGMENTS, LOG_SEGMENT_BYTES);
    let rows = measure(lab, &SingleUpdates::new(ROWS), sizes, &settings, published_2)?;
    let mut claims = Vec::new();
    for pair in pairs(&rows) {
        claims.push(ratio(lab, "flash / disk", pair, pair.published(), Better::Higher)?);
    }
    tell(lab, &rows, &claims)
}

/// Repeats table 3 and figure 3: throughput of TPC-B, by number of users and of processors.
pub fn tpcb_log(lab: &mut Lab<'_>) -> Result<()> {
    let all = processors::count_now();
    // Without emulation no point is judged. So the number of processors is not changed for all threads.
    let counts: Vec<usize> =
        if all > 1 && lab.device().is_emulated() { vec![all / 2, all] } else { vec![all] };
    let clients = lab.clients(&FIGURE_3_QUICK, &FIGURE_3_CLIENTS);
    let mut settings = Vec::new();
    for processors in counts {
        let of_clients = |clients| DRIVES.map(|drive| LogSetting { drive, clients, processors });
        settings.extend(clients.iter().copied().flat_map(of_clients));
    }
    let is_full = lab.scale().is_full();
    let sizes = Sizes::new(PAGE_BYTES, POOL_BYTES.of(is_full)).with_log(LOG_SEGMENTS, LOG_SEGMENT_BYTES);
    let tpcb = match lab.scale().name == Scale::TINY.name {
        true => Tpcb::small(2, 100),
        false => Tpcb::new(BRANCHES.of(is_full)),
    };
    let rows = measure(lab, &tpcb, sizes, &settings, published_3);
    processors::use_first(all)?;
    let rows = rows?;
    let claims = claims_3(lab, &rows, all)?;
    tell(lab, &rows, &claims)
}

/// Returns the published figures of table 2.
fn published_2(setting: LogSetting) -> PublishedPoint {
    let disk = [(178.0, 2.5), (358.0, 4.5), (711.0, 8.5), (1403.0, 20.0), (2737.0, 38.0)];
    let flash = [(2222.0, 28.0), (4050.0, 47.0), (6274.0, 77.0), (5953.0, 84.0), (5701.0, 84.0)];
    let of_drive = if setting.drive == DISK { disk } else { flash };
    let at = TABLE_2_CLIENTS.iter().position(|clients| *clients == setting.clients);
    let figures = at.and_then(|at| of_drive.get(at));
    let (tps, cpu_percent) = (figures.map(|of| of.0), figures.map(|of| of.1));
    PublishedPoint { tps, cpu_percent, ..PublishedPoint::default() }
}

/// Returns the published figures of table 3, which were measured with two processors. Figure 3 is a plot
/// without numbers.
fn published_3(setting: LogSetting) -> PublishedPoint {
    if (setting.clients, setting.processors) != (TABLE_3_CLIENTS, 2) {
        return PublishedPoint::default();
    }
    let (tps, cpu_percent, force_sectors, force_ms) =
        if setting.drive == DISK { (864.0, 20.0, 32.0, 8.1) } else { (3045.0, 65.0, 30.0, 1.3) };
    PublishedPoint {
        tps: Some(tps),
        cpu_percent: Some(cpu_percent),
        force_sectors: Some(force_sectors),
        force_ms: Some(force_ms),
    }
}

/// Returns claims about the ratio of table 3, and about figure 3: more processors do not help the disk.
fn claims_3(lab: &mut Lab<'_>, rows: &[LogRow], all: usize) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    for pair in pairs(rows) {
        claims.push(ratio(lab, "flash / disk", pair, pair.published(), Better::Higher)?);
    }
    for more in rows.iter().filter(|row| row.setting.processors == all && all > 1) {
        let fewer = LogSetting { processors: all / 2, ..more.setting };
        let Some(under) = rows.iter().find(|row| row.setting == fewer) else { continue };
        let pair = RowPair { over: more, under };
        let is_disk = more.setting.drive == DISK && more.setting.clients <= TABLE_3_CLIENTS;
        // The text states the ratio for the disk before it is saturated. For flash the text compares other
        // processors.
        let published = is_disk.then_some(1.0);
        claims.push(ratio(lab, "all processors / half", pair, published, Better::Neither)?);
    }
    Ok(claims)
}

/// Two rows whose throughput is compared.
#[derive(Clone, Copy)]
struct RowPair<'r> {
    over: &'r LogRow,
    under: &'r LogRow,
}

impl RowPair<'_> {
    /// Returns the published ratio of the two throughputs.
    fn published(self) -> Option<f64> {
        Some(self.over.published.tps? / self.under.published.tps?)
    }
}

/// Pairs of rows, flash and disk, whose other factors are the same.
fn pairs(rows: &[LogRow]) -> Vec<RowPair<'_>> {
    let disks = rows.iter().filter(|row| row.setting.drive == DISK);
    let pair = |under: &'_ LogRow| {
        let wanted = LogSetting { drive: FLASH, ..under.setting };
        rows.iter().position(|row| row.setting == wanted)
    };
    disks.filter_map(|under| Some(RowPair { over: rows.get(pair(under)?)?, under })).collect()
}

fn ratio(
    lab: &mut Lab<'_>,
    says: &str,
    RowPair { over, under }: RowPair<'_>,
    published: Option<f64>,
    better: Better,
) -> Result<Claim> {
    let mut factors = over.factors.clone();
    factors.retain(|name, value| under.factors.get(name) == Some(&*value));
    let ours = over.tps.median / under.tps.median;
    let rounds = over.rounds.min(under.rounds);
    let asked = PublishedRatio { says, factors: &factors, ours, published, better, rounds };
    judge(lab, asked, [over.emulation.as_ref(), under.emulation.as_ref()])
}

/// Loads the workload once, and measures all settings in turns.
fn measure(
    lab: &mut Lab<'_>,
    workload: &dyn Workload,
    sizes: Sizes,
    settings: &[LogSetting],
    published: fn(LogSetting) -> PublishedPoint,
) -> Result<Vec<LogRow>> {
    let wanted: Vec<LogSetting> =
        settings.iter().filter(|setting| lab.wants(&setting.factors())).copied().collect();
    let stand = MemoryStand::empty(lab, "log", StudiedSpace::Log, sizes)?;
    stand.load(workload)?;
    let mut rounds: Vec<Vec<LogRound>> = wanted.iter().map(|_| Vec::new()).collect();
    for number in 1..=lab.scale().rounds as u64 {
        for (setting, rounds) in wanted.iter().zip(&mut rounds) {
            if processors::use_first(setting.processors)? {
                rounds.push(round(lab, &stand, workload, *setting, number)?);
            }
        }
    }
    let scale = format!("{}, {} in memory", lab.scale().name, workload.name());
    let mut rows = Vec::new();
    for (setting, rounds) in wanted.into_iter().zip(rounds) {
        let Some(row) = row_of(lab.subject(), setting, rounds, &scale, published(setting)) else {
            lab.say(&format!("{} processors were not to be had: taskset is missing", setting.processors))?;
            continue;
        };
        lab.write_row(&row)?;
        rows.push(row);
    }
    Ok(rows)
}

/// Runs one round: opens the database, warms it up, measures, and shuts it down.
fn round(
    lab: &Lab<'_>,
    stand: &MemoryStand,
    workload: &dyn Workload,
    setting: LogSetting,
    number: u64,
) -> Result<LogRound> {
    let opened = stand.open(setting.profile())?;
    let target = opened.target(setting.profile());
    let scale = lab.scale();
    let plan = Plan {
        threads: setting.clients,
        rounds: scale.rounds,
        seconds: scale.round_ms.div_ceil(1000),
        warm_seconds: scale.warm_ms.div_ceil(1000),
    };
    let run = |ms: u64, seed: u64| driver::round(&target, workload, plan, Duration::from_millis(ms), seed);
    if scale.warm_ms > 0 {
        run(scale.warm_ms, 2 * number)?;
    }
    let begin = opened.begin();
    let done = run(scale.round_ms, 2 * number + 1)?;
    let measured = figures(&opened, opened.since(&begin), done.tps(), done.transactions);
    drop(target);
    opened.close()?;
    Ok(measured)
}

fn figures(opened: &OpenMemoryStand, used: SpaceUse, tps: f64, transactions: u64) -> LogRound {
    let report = opened.report();
    let forces = used.written.operations.max(1) as f64;
    // The drive executes one force after another, so its busy time is the time of the forces.
    let busy_ms = report.as_ref().map_or(0.0, |report| 1e3 * report.busy_share * used.seconds);
    LogRound {
        tps,
        cpu_percent: report.as_ref().map_or(0.0, |report| 100.0 * report.cpu_share),
        forces: forces / transactions.max(1) as f64,
        force_sectors: used.written.bytes as f64 / SECTOR_BYTES / forces,
        force_ms: busy_ms / forces,
        report,
    }
}

fn row_of(
    Subject { experiment, figure }: Subject,
    setting: LogSetting,
    rounds: Vec<LogRound>,
    scale: &str,
    published: PublishedPoint,
) -> Option<LogRow> {
    let rates: Vec<f64> = rounds.iter().map(|round| round.tps).collect();
    let reports: Vec<EmulationReport> = rounds.iter().filter_map(|round| round.report.clone()).collect();
    let count = rounds.len();
    let last = rounds.into_iter().next_back()?;
    Some(LogRow {
        row: "log",
        experiment,
        figure,
        factors: setting.factors(),
        scale: scale.to_owned(),
        rounds: count,
        tps: Spread::of(&rates),
        cpu_percent: last.cpu_percent,
        forces_a_transaction: last.forces,
        force_sectors: last.force_sectors,
        force_ms: last.force_ms,
        published,
        emulation: Emulation::worst(&reports, 0.0),
        setting,
    })
}

fn tell(lab: &mut Lab<'_>, rows: &[LogRow], claims: &[Claim]) -> Result<()> {
    let mut table = TextTable::headed(&[
        "processors",
        "clients",
        "drive",
        "tps",
        "Lee",
        "cpu %",
        "Lee",
        "forces/tx",
        "sectors",
        "Lee",
        "force ms",
        "Lee",
        "drive busy %",
        "model error %",
    ]);
    let or_none = |figure: Option<f64>| figure.map_or_else(String::new, |figure| format!("{figure}"));
    for row in rows {
        let LogSetting { drive, clients, processors } = row.setting;
        let emulation = |of: fn(&Emulation) -> f64| {
            row.emulation.as_ref().map_or_else(String::new, |one| format!("{:.1}", 100.0 * of(one)))
        };
        table.push(vec![
            processors.to_string(),
            clients.to_string(),
            drive.to_owned(),
            row.tps.to_string(),
            or_none(row.published.tps),
            format!("{:.1}", row.cpu_percent),
            or_none(row.published.cpu_percent),
            format!("{:.3}", row.forces_a_transaction),
            format!("{:.1}", row.force_sectors),
            or_none(row.published.force_sectors),
            format!("{:.2}", row.force_ms),
            or_none(row.published.force_ms),
            emulation(|one| one.busy_share),
            emulation(|one| one.model_error_share),
        ]);
    }
    lab.say("The drives are emulated: lee-log-disk and lee-log-flash, with the measured forces of table 3.")?;
    lab.say(&format!("\n{table}\n{}", tell::claims(claims)))
}
