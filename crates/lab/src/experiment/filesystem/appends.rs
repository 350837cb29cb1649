//! Repeats figure 18 of Lindstrom 2017: how many bytes a file system writes to its device for each byte that
//! is appended to a log.
//!
//! 1. Each append writes 4 KiB, and fdatasync makes it durable, as in the paper.
//! 2. The paper does not say how its file is made. Here a file that grows by each append stands for it. The
//!    segments of Varve's log are filled with zeros once and are then reused, so they never grow. A file with
//!    reserved blocks that were never written is between the two.
//! 3. Written bytes are those that the kernel counts at the loop device. They include what the file system
//!    had in memory at the end.

use std::io;
use std::time::Instant;

use hdrhistogram::Histogram;
use serde::Serialize;
use varve_device::{AlignedBuf, BlockFile, Directory, Durability, Purpose};

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::order::{self, RankedFigure};
use super::super::row::{Factors, Subject};
use super::super::scale::ByScale;
use super::super::table::TextTable;
use super::super::tell;
use super::super::verdict::{Better, Verdict};
use super::filled::fill;
use super::made::FILE_SYSTEM;
use super::{FileSystem, Mounted, make_all};
use varve_bench::Result;
use varve_bench::driver::histogram;
use varve_bench::report::{Spread, hash_of};

const APPEND_BYTES: u64 = 4 << 10;
const NAME: &str = "log";
const FILE: &str = "file";
const ROUNDS: ByScale<usize> = ByScale { quick: 3, full: 3 };
/// The published bytes that reach the device on ext4 and on xfs, divided by those of NVMFS. NVMFS writes
/// about as many as a raw device (section 5.5).
const EXT4_OVER_RAW: f64 = 5.0;
const XFS_OVER_RAW: f64 = 2.0;
/// The bar of this project: the log's segments need no transaction of the file system, so an append must
/// write at most this many times the bytes of a raw device.
const BAR_OVER_RAW: f64 = 1.1;

/// How the file of a log is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogFile {
    /// It grows by each append.
    Growing,
    /// Its blocks are reserved, but were never written.
    Reserved,
    /// Its blocks were written before. Varve's log has such files.
    Recycled,
    /// There is no file: the log is on the device itself.
    None,
}

impl LogFile {
    fn name(self) -> &'static str {
        match self {
            LogFile::Growing => "growing",
            LogFile::Reserved => "reserved",
            LogFile::Recycled => "recycled",
            LogFile::None => "none",
        }
    }

    /// Returns the kinds of files of a file system.
    fn on(kind: FileSystem) -> &'static [LogFile] {
        match kind {
            FileSystem::Raw => &[LogFile::None],
            _ => &[LogFile::Growing, LogFile::Reserved, LogFile::Recycled],
        }
    }
}

/// Appends to a log on one file system.
#[derive(Debug, Clone, Serialize)]
struct AppendRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    configuration: String,
    rounds: usize,
    /// Appends of a round.
    appends: u64,
    /// Bytes written to the device, divided by the bytes appended. It is missing if the file system has no
    /// device of its own, whose writes could be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    amplification: Option<Spread>,
    /// Microseconds of an append and its fdatasync: the mean and the 99th percentile of a round.
    mean_us: Spread,
    p99_us: Spread,
}

/// The results of a round.
struct AppendRound {
    amplification: Option<f64>,
    latency_us: Histogram<u64>,
}

/// One configuration: where the log is, and how its file is made.
#[derive(Clone, Copy)]
struct Spot<'m> {
    mounted: &'m Mounted,
    file: LogFile,
}

impl Spot<'_> {
    fn factors(self) -> Factors {
        let mut factors = Factors::from([(FILE_SYSTEM, self.mounted.kind().name().into())]);
        if self.file != LogFile::None {
            factors.insert(FILE, self.file.name().into());
        }
        factors
    }

    /// Makes a new file, appends to it, and removes it.
    fn round(self, appends: u64) -> Result<AppendRound> {
        let directory = self.mounted.directory()?;
        let file = self.mounted.create(&directory, NAME)?;
        let bytes = appends * APPEND_BYTES;
        match self.file {
            LogFile::Growing => {}
            LogFile::Reserved => file.set_len(bytes).map_err(io::Error::other)?,
            LogFile::Recycled => {
                file.set_len(bytes).map_err(io::Error::other)?;
                fill(&*file, bytes)?;
            }
            LogFile::None => fill(&*file, bytes)?,
        }
        directory.sync().map_err(io::Error::other)?;
        self.mounted.sync()?;
        let (before, mut latency_us) = (self.mounted.written_bytes()?, histogram());
        append_all(&*file, appends, &mut latency_us).map_err(io::Error::other)?;
        self.mounted.sync()?;
        let written = before.zip(self.mounted.written_bytes()?).map(|(before, after)| after - before);
        drop(file);
        if self.file != LogFile::None {
            directory.remove(NAME).map_err(io::Error::other)?;
        }
        Ok(AppendRound { amplification: written.map(|written| written as f64 / bytes as f64), latency_us })
    }
}

/// Runs the experiment `filesystem-log`.
pub fn filesystem_log(lab: &mut Lab<'_>) -> Result<()> {
    lab.prefer_rounds(ROUNDS);
    let place = lab.empty("filesystem-log")?;
    let appends = lab.scale().log_appends;
    let kinds = [FileSystem::Raw, FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs];
    let all = make_all(lab, &kinds, &place.place().files, 4 * appends * APPEND_BYTES)?;
    let mut spots = Vec::new();
    for mounted in &all {
        spots.extend(LogFile::on(mounted.kind()).iter().map(|file| Spot { mounted, file: *file }));
    }
    spots.retain(|spot| lab.wants(&spot.factors()));
    let mut measured: Vec<Vec<AppendRound>> = spots.iter().map(|_| Vec::new()).collect();
    for _ in 0..lab.scale().rounds {
        for (spot, rounds) in spots.iter().zip(&mut measured) {
            rounds.push(spot.round(appends)?);
        }
    }
    let mut rows = Vec::new();
    for (spot, rounds) in spots.iter().zip(&measured) {
        let row = row(lab, spot.factors(), rounds);
        lab.write_row(&row)?;
        rows.push(MeasuredAppends { kind: spot.mounted.kind(), file: spot.file, row });
    }
    let claims: Result<Vec<Claim>> = claims(&rows).into_iter().map(|claim| lab.write_claim(claim)).collect();
    lab.say(&format!("\n{}{}", table(&rows), tell::claims(&claims?)))
}

fn append_all(
    file: &dyn BlockFile,
    appends: u64,
    latency_us: &mut Histogram<u64>,
) -> varve_device::Result<()> {
    let mut block = AlignedBuf::new(APPEND_BYTES as usize);
    for number in 0..appends {
        block.fill(number as u8);
        let began = Instant::now();
        file.write_at(number * APPEND_BYTES, &block, Purpose::Log, Durability::Later)?;
        file.flush()?;
        latency_us.saturating_record(began.elapsed().as_micros() as u64);
    }
    Ok(())
}

fn row(lab: &Lab<'_>, factors: Factors, rounds: &[AppendRound]) -> AppendRow {
    let Subject { experiment, figure } = lab.subject();
    let spread = |of: &dyn Fn(&AppendRound) -> f64| Spread::of(&rounds.iter().map(of).collect::<Vec<_>>());
    let counted: Option<Vec<f64>> = rounds.iter().map(|round| round.amplification).collect();
    let appends = lab.scale().log_appends;
    let shared = format!("{} {APPEND_BYTES} {appends}", serde_json::json!(factors));
    AppendRow {
        row: "append",
        experiment,
        figure,
        factors,
        configuration: hash_of(&shared),
        rounds: rounds.len(),
        appends,
        amplification: counted.map(|counted| Spread::of(&counted)),
        mean_us: spread(&|round| round.latency_us.mean()),
        p99_us: spread(&|round| round.latency_us.value_at_quantile(0.99) as f64),
    }
}

/// A row, and the configuration to which it belongs.
struct MeasuredAppends {
    kind: FileSystem,
    file: LogFile,
    row: AppendRow,
}

impl MeasuredAppends {
    /// Returns the amplification, divided by that of a raw device.
    fn over(&self, raw: f64) -> Option<Spread> {
        let Spread { median, min, max } = self.row.amplification?;
        Some(Spread { median: median / raw, min: min / raw, max: max / raw })
    }

    /// Returns the published amplification. Files that do not grow have none, because the paper does not have
    /// them.
    fn published(&self) -> Option<f64> {
        match (self.kind, self.file) {
            (FileSystem::Ext4, LogFile::Growing) => Some(EXT4_OVER_RAW),
            (FileSystem::Xfs, LogFile::Growing) => Some(XFS_OVER_RAW),
            (FileSystem::Raw, LogFile::None) => Some(1.0),
            _ => None,
        }
    }

    fn claim(&self, raw: f64) -> Option<Claim> {
        let ours = self.over(raw)?.median;
        let says =
            format!("bytes written for an append, {} file on {} / raw", self.file.name(), self.kind.name());
        let factors = Factors::from([(FILE, self.file.name().into())]);
        let claim = Claim::found(&factors, says, ours).of_rounds(self.row.rounds);
        Some(match (self.file, self.published()) {
            (LogFile::Recycled, _) => claim.judged(BAR_OVER_RAW, Verdict::at_most(BAR_OVER_RAW, ours)),
            (_, Some(published)) => {
                let verdict = Verdict::of(ours, published, Better::Lower);
                Claim { verdict, ..claim.beside(Some(published)) }
            }
            (_, None) => Claim { verdict: Verdict::NotInText, ..claim },
        })
    }
}

/// Returns a claim for each file system and file, and one about the published order.
fn claims(rows: &[MeasuredAppends]) -> Vec<Claim> {
    let raw = rows.iter().find(|one| one.kind == FileSystem::Raw).and_then(|raw| raw.row.amplification);
    let Some(Spread { median: raw, .. }) = raw else { return Vec::new() };
    let is_compared = |one: &&MeasuredAppends| one.kind != FileSystem::Raw;
    let mut claims: Vec<Claim> = rows.iter().filter(is_compared).filter_map(|one| one.claim(raw)).collect();
    // Fewer bytes are better, so figures are appended bytes for each byte that is written.
    let placed = rows.iter().filter_map(|one| {
        let (Spread { median, min, max }, published) = (one.over(raw)?, one.published()?);
        let turned = Spread { median: 1.0 / median, min: 1.0 / max, max: 1.0 / min };
        Some(RankedFigure::of_spread(one.kind.name(), turned, one.row.rounds, 1.0 / published))
    });
    let rounds = rows.iter().map(|one| one.row.rounds).min().unwrap_or(1);
    let factors = Factors::from([(FILE, LogFile::Growing.name().into())]);
    claims.extend(order::judge_figures("fewest bytes first", &factors, rounds, placed.collect()));
    claims
}

fn table(rows: &[MeasuredAppends]) -> TextTable {
    let mut table = TextTable::headed(&["file system", FILE, "written / appended", "mean us", "p99 us"]);
    for MeasuredAppends { kind, file, row } in rows {
        let amplification =
            row.amplification.map_or_else(|| "not counted".to_owned(), |spread| spread.to_string());
        let mut line = vec![kind.name().to_owned(), file.name().to_owned(), amplification];
        line.extend([row.mean_us, row.p99_us].map(|spread| spread.to_string()));
        table.push(line);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(kind: FileSystem, file: LogFile, amplification: f64) -> MeasuredAppends {
        let spread = Spread { median: amplification, min: amplification, max: amplification };
        let row = AppendRow {
            row: "append",
            experiment: "e",
            figure: "f",
            factors: Factors::new(),
            configuration: String::new(),
            rounds: 3,
            appends: 1,
            amplification: Some(spread),
            mean_us: spread,
            p99_us: spread,
        };
        MeasuredAppends { kind, file, row }
    }

    fn verdicts(ext4: f64, xfs: f64, recycled: f64) -> Vec<Verdict> {
        let rows = [
            measured(FileSystem::Raw, LogFile::None, 1.0),
            measured(FileSystem::Ext4, LogFile::Growing, ext4),
            measured(FileSystem::Xfs, LogFile::Growing, xfs),
            measured(FileSystem::Btrfs, LogFile::Growing, 20.0),
            measured(FileSystem::Xfs, LogFile::Recycled, recycled),
        ];
        claims(&rows).into_iter().map(|claim| claim.verdict).collect()
    }

    #[test]
    fn the_paper_has_growing_files_and_this_project_recycled_ones() {
        let as_published = [Verdict::Reproduced, Verdict::Reproduced, Verdict::NotInText, Verdict::Met];
        assert_eq!(verdicts(5.0, 2.0, 1.0), [&as_published[..], &[Verdict::Reproduced]].concat());
        let others = verdicts(7.0, 1.4, 2.0);
        assert!(matches!(&others[0], Verdict::Not(_)), "{others:?}");
        assert_eq!(others[1], Verdict::Beaten);
        assert!(matches!(&others[3], Verdict::Missed(_)), "{others:?}");
    }

    #[test]
    fn the_order_is_raw_xfs_ext4() {
        assert!(
            matches!(verdicts(2.0, 5.0, 1.0).last(), Some(Verdict::Not(why)) if why.contains("ext4 is above xfs"))
        );
        assert!(
            claims(&[measured(FileSystem::Ext4, LogFile::Growing, 5.0)]).is_empty(),
            "nothing to compare with"
        );
    }
}
