//! Repeats figure 17 of Lindstrom 2017: how long it takes to punch a hole of 4 KiB, by file system.
//!
//! 1. The pattern is the paper's: a write of 16 KiB, and a hole of 4 KiB behind it. The paper does not say in
//!    which order pages are written. Here the order is random, as that of a page writer.
//! 2. Varve punches a hole only when the page before it is durable (decision 0251). The paper does not say
//!    whether its pages are durable. So both are measured.
//! 3. The file has all its blocks before the first hole is punched. Otherwise the holes would be there
//!    already. The blocks of a raw device are written before, for the same reason.

use std::io;
use std::time::Instant;

use hdrhistogram::Histogram;
use serde::Serialize;
use varve_device::{AlignedBuf, BlockFile, Directory, Durability, Purpose};

use super::super::claim::Claim;
use super::super::copies::allocated_bytes;
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
use varve_bench::random::Permutation;
use varve_bench::report::{Spread, hash_of};

const PAGE_BYTES: u64 = 16 << 10;
const HOLE_BYTES: u64 = 4 << 10;
/// The bytes from one page to the next one.
const SLOT_BYTES: u64 = PAGE_BYTES + HOLE_BYTES;
/// Latencies are judged only if the file system has got back at least this share of the holes' blocks.
const FREED_MIN: f64 = 0.9;
const NAME: &str = "pages";
const DURABLE: &str = "durable pages";
const ROUNDS: ByScale<usize> = ByScale { quick: 3, full: 3 };
/// The published latency on xfs, divided by that on ext4: NVMFS takes twice as long as ext4, and xfs takes
/// four times as long as NVMFS (section 5.5).
const XFS_OVER_EXT4: f64 = 8.0;

/// Returns the published speed of a kind, in any unit, if the text has one.
fn published_speed(kind: FileSystem) -> Option<f64> {
    match kind {
        FileSystem::Ext4 => Some(XFS_OVER_EXT4),
        FileSystem::Xfs => Some(1.0),
        FileSystem::Here | FileSystem::Raw | FileSystem::Btrfs => None,
    }
}

/// Latencies of holes on one file system. All times are in microseconds.
#[derive(Debug, Clone, Serialize)]
struct HoleRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    configuration: String,
    rounds: usize,
    /// Holes of a round.
    holes: u64,
    /// The median, the mean and the 99th percentile of a round's holes, over all rounds.
    median_us: Spread,
    mean_us: Spread,
    p99_us: Spread,
    /// The mean of the write before a hole, over all rounds.
    write_mean_us: Spread,
    /// The share of the holes' blocks that the file system has got back. It is missing on a raw device.
    #[serde(skip_serializing_if = "Option::is_none")]
    freed_share: Option<f64>,
}

/// The latencies of a round, in nanoseconds.
struct HoleRound {
    punches: Histogram<u64>,
    writes: Histogram<u64>,
    freed_share: Option<f64>,
}

/// Runs the experiment `filesystem-trim`.
pub fn filesystem_trim(lab: &mut Lab<'_>) -> Result<()> {
    lab.prefer_rounds(ROUNDS);
    let place = lab.empty("filesystem-trim")?;
    let pages = lab.scale().punched_pages;
    let kinds = [FileSystem::Raw, FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs];
    let all = make_all(lab, &kinds, &place.place().files, 2 * pages * SLOT_BYTES)?;
    let mut spots: Vec<(&Mounted, bool)> =
        all.iter().flat_map(|mounted| [(mounted, false), (mounted, true)]).collect();
    spots.retain(|(mounted, is_durable)| lab.wants(&factors(mounted, *is_durable)));
    let mut measured: Vec<Vec<HoleRound>> = spots.iter().map(|_| Vec::new()).collect();
    for number in 1..=lab.scale().rounds as u64 {
        for ((mounted, is_durable), rounds) in spots.iter().zip(&mut measured) {
            rounds.push(round(mounted, *is_durable, pages, number)?);
        }
    }
    let mut rows = Vec::new();
    for ((mounted, is_durable), rounds) in spots.iter().zip(&measured) {
        let row = row(lab, factors(mounted, *is_durable), rounds);
        lab.write_row(&row)?;
        rows.push((mounted.kind(), row));
    }
    let claims = claims(lab, &rows)?;
    lab.say(&format!(
        "\n{}{}\nThe paper measures NVMFS, too, which is not available. A raw device is no substitute for it: its holes are those of the \
         image's file system.",
        table(&rows),
        tell::claims(&claims)
    ))
}

fn factors(mounted: &Mounted, is_durable: bool) -> Factors {
    Factors::from([(FILE_SYSTEM, mounted.kind().name().into()), (DURABLE, is_durable.into())])
}

/// Writes the pages of a new file, and punches a hole behind each.
fn round(mounted: &Mounted, is_durable: bool, pages: u64, number: u64) -> Result<HoleRound> {
    let directory = mounted.directory()?;
    let file = mounted.create(&directory, NAME)?;
    let is_raw = mounted.kind() == FileSystem::Raw;
    if is_raw {
        fill(&*file, pages * SLOT_BYTES)?;
    } else {
        file.set_len(pages * SLOT_BYTES).map_err(io::Error::other)?;
    }
    file.flush().map_err(io::Error::other)?;
    let allocated =
        || if is_raw { Ok(None) } else { allocated_bytes(mounted.path(), |name| name == NAME).map(Some) };
    let before = allocated()?;
    let durability = if is_durable { Durability::Now } else { Durability::Later };
    let mut round = HoleRound { punches: histogram(), writes: histogram(), freed_share: None };
    let slots = Permutation::of(pages, number);
    let in_order = (0..pages).map(|rank| slots.place(rank) * SLOT_BYTES);
    punch_all(&*file, durability, in_order, &mut round).map_err(io::Error::other)?;
    file.flush().map_err(io::Error::other)?;
    let freed = before.zip(allocated()?).map(|(before, after)| before.saturating_sub(after) as f64);
    round.freed_share = freed.map(|freed| freed / (pages * HOLE_BYTES) as f64);
    drop(file);
    if !is_raw {
        directory.remove(NAME).map_err(io::Error::other)?;
    }
    Ok(round)
}

/// Writes a page at each of these offsets, and punches a hole behind it.
fn punch_all(
    file: &dyn BlockFile,
    durability: Durability,
    offsets: impl Iterator<Item = u64>,
    round: &mut HoleRound,
) -> varve_device::Result<()> {
    let mut page = AlignedBuf::new(PAGE_BYTES as usize);
    page.fill(1);
    let ns = |began: Instant| began.elapsed().as_nanos() as u64;
    for at in offsets {
        let began = Instant::now();
        file.write_at(at, &page, Purpose::DataPage, durability)?;
        round.writes.saturating_record(ns(began));
        let began = Instant::now();
        file.punch(at + PAGE_BYTES, HOLE_BYTES)?;
        round.punches.saturating_record(ns(began));
    }
    Ok(())
}

fn row(lab: &Lab<'_>, factors: Factors, rounds: &[HoleRound]) -> HoleRow {
    let Subject { experiment, figure } = lab.subject();
    let spread_us = |of: &dyn Fn(&HoleRound) -> f64| {
        Spread::of(&rounds.iter().map(|round| of(round) / 1000.0).collect::<Vec<_>>())
    };
    let holes = lab.scale().punched_pages;
    let shared = format!("{} {PAGE_BYTES} {HOLE_BYTES} {holes}", serde_json::json!(factors));
    HoleRow {
        row: "hole",
        experiment,
        figure,
        factors,
        configuration: hash_of(&shared),
        rounds: rounds.len(),
        holes,
        median_us: spread_us(&|round| round.punches.value_at_quantile(0.5) as f64),
        mean_us: spread_us(&|round| round.punches.mean()),
        p99_us: spread_us(&|round| round.punches.value_at_quantile(0.99) as f64),
        write_mean_us: spread_us(&|round| round.writes.mean()),
        freed_share: rounds.iter().filter_map(|round| round.freed_share).reduce(f64::min),
    }
}

/// Returns claims that compare each file system with ext4, and a claim about the published order.
fn claims(lab: &mut Lab<'_>, rows: &[(FileSystem, HoleRow)]) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    for is_durable in [false, true] {
        let of: Vec<_> =
            rows.iter().filter(|(_, row)| row.factors.get(DURABLE) == Some(&is_durable.into())).collect();
        if let Some((_, ext4)) = of.iter().find(|(kind, _)| *kind == FileSystem::Ext4) {
            for (kind, row) in of.iter().filter(|(kind, _)| *kind != FileSystem::Ext4) {
                claims.push(claim(*kind, row, ext4, Average::Median));
                claims.push(claim(*kind, row, ext4, Average::Mean));
            }
        }
        let speeds = of.iter().filter_map(|(kind, row)| speed(*kind, row));
        let factors = Factors::from([(DURABLE, is_durable.into())]);
        claims.extend(order::judge_figures(
            "speed of a punch",
            &factors,
            lab.scale().rounds,
            speeds.collect(),
        ));
    }
    claims.into_iter().map(|claim| lab.write_claim(claim)).collect()
}

#[derive(Clone, Copy)]
enum Average {
    Median,
    Mean,
}

impl Average {
    fn of(self, row: &HoleRow) -> f64 {
        match self {
            Average::Median => row.median_us.median,
            Average::Mean => row.mean_us.median,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Average::Median => "median",
            Average::Mean => "mean",
        }
    }
}

fn claim(kind: FileSystem, row: &HoleRow, ext4: &HoleRow, average: Average) -> Claim {
    let ours = average.of(row) / average.of(ext4);
    let says = format!("{} latency of a punch, {} / ext4", average.name(), kind.name());
    let published = published_speed(kind).map(|speed| XFS_OVER_EXT4 / speed);
    let verdict = match (published, spoilt(row).or_else(|| spoilt(ext4))) {
        (None, _) => Verdict::NotInText,
        (Some(_), Some(reason)) => Verdict::NotJudged(reason),
        (Some(published), None) => Verdict::of(ours, published, Better::Neither),
    };
    let factors = row.factors.iter().filter(|(name, _)| **name == DURABLE);
    let factors = factors.map(|(name, value)| (*name, value.clone())).collect();
    Claim { verdict, ..Claim::found(&factors, says, ours).of_rounds(row.rounds).beside(published) }
}

/// Returns the reason why latencies are not judged, if there is one.
fn spoilt(row: &HoleRow) -> Option<String> {
    let share = row.freed_share.filter(|share| *share < FREED_MIN)?;
    Some(format!("the holes freed {:.0} % of their blocks", 100.0 * share))
}

/// Returns the speed of a file system that the paper has, from the medians of its rounds.
fn speed(kind: FileSystem, row: &HoleRow) -> Option<RankedFigure> {
    let published = published_speed(kind)?;
    let Spread { median, min, max } = row.median_us;
    let per_second = Spread { median: 1e6 / median, min: 1e6 / max, max: 1e6 / min };
    let figure = RankedFigure::of_spread(kind.name(), per_second, row.rounds, published);
    Some(RankedFigure { spoilt: spoilt(row), ..figure })
}

fn table(rows: &[(FileSystem, HoleRow)]) -> TextTable {
    let mut table = TextTable::headed(&[
        "file system",
        DURABLE,
        "median us",
        "mean us",
        "p99 us",
        "write, mean us",
        "blocks freed %",
    ]);
    for (kind, row) in rows {
        let mut line =
            vec![kind.name().to_owned(), row.factors.get(DURABLE).map(tell::plain).unwrap_or_default()];
        line.extend(
            [row.median_us, row.mean_us, row.p99_us, row.write_mean_us].map(|spread| spread.to_string()),
        );
        line.push(row.freed_share.map_or_else(String::new, |share| format!("{:.0}", 100.0 * share)));
        table.push(line);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: FileSystem, us: f64, freed_share: f64) -> (FileSystem, HoleRow) {
        let spread = Spread { median: us, min: 0.9 * us, max: 1.1 * us };
        let row = HoleRow {
            row: "hole",
            experiment: "e",
            figure: "f",
            factors: Factors::from([(FILE_SYSTEM, kind.name().into()), (DURABLE, true.into())]),
            configuration: String::new(),
            rounds: 3,
            holes: 1,
            median_us: spread,
            mean_us: spread,
            p99_us: spread,
            write_mean_us: spread,
            freed_share: Some(freed_share),
        };
        (kind, row)
    }

    fn verdict(kind: FileSystem, us: f64, freed_share: f64) -> Verdict {
        let (_, ext4) = row(FileSystem::Ext4, 10.0, 1.0);
        claim(kind, &row(kind, us, freed_share).1, &ext4, Average::Median).verdict
    }

    /// The text has xfs at eight times the latency of ext4. A better and a worse ratio are both another one.
    #[test]
    fn xfs_is_compared_with_the_published_ratio() {
        assert_eq!(verdict(FileSystem::Xfs, 80.0, 1.0), Verdict::Reproduced);
        assert!(matches!(verdict(FileSystem::Xfs, 15.0, 1.0), Verdict::Not(_)));
        assert!(matches!(verdict(FileSystem::Xfs, 200.0, 1.0), Verdict::Not(_)));
        assert_eq!(verdict(FileSystem::Btrfs, 80.0, 1.0), Verdict::NotInText);
    }

    #[test]
    fn holes_that_free_nothing_are_not_judged() {
        assert!(
            matches!(verdict(FileSystem::Xfs, 80.0, 0.1), Verdict::NotJudged(why) if why.contains("10 %"))
        );
    }

    #[test]
    fn the_published_order_is_ext4_before_xfs() {
        let order = |ext4: f64, xfs: f64| {
            let rows = [
                row(FileSystem::Ext4, ext4, 1.0),
                row(FileSystem::Xfs, xfs, 1.0),
                row(FileSystem::Btrfs, 1.0, 1.0),
            ];
            let speeds = rows.iter().filter_map(|(kind, row)| speed(*kind, row)).collect();
            order::judge_figures("speed", &Factors::new(), 3, speeds).expect("two figures").verdict
        };
        assert_eq!(order(10.0, 20.0), Verdict::Reproduced);
        assert!(matches!(order(20.0, 10.0), Verdict::Not(_)));
        assert!(matches!(order(10.0, 11.0), Verdict::NotJudged(_)), "within the noise");
    }
}
