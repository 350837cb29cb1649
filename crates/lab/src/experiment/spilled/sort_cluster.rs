//! The experiment `sort-cluster`: the sort by the size of a cluster, and by the size of the buffer (Lee 2008,
//! figure 7). A cluster is the bytes of a request that reads a run.

use std::ops::RangeInclusive;

use serde::Serialize;
use varve_bench::Result;
use varve_bench::report::Spread;

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::order::judge_figures;
use super::super::row::{Factors, Subject};
use super::super::table::TextTable;
use super::super::tell;
use super::super::verdict::Better;
use super::bed::{DriveKind, LEE_DRIVES, SpillBed};
use super::judge::{ClaimPlace, ranked, speed};
use super::sort::{SortSetup, SortTimes};

/// The clusters of figure 7a in KiB, with a buffer of 2 MB.
const CLUSTERS_KIB: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];
const BUFFER_MIB: usize = 2;
/// The buffers of figure 7b in MB.
const BUFFERS_MIB: [usize; 8] = [1, 3, 5, 7, 9, 11, 13, 15];
/// The clusters of figure 7b, in KiB. They were the best ones of figure 7a.
pub const BEST_KIB: [usize; 2] = [64, 2];
/// Clusters that the text calls optimal, in KiB: on disk, on flash.
const OPTIMAL_KIB: [RangeInclusive<usize>; 2] = [64..=128, 2..=4];
/// The published ratio: "at least a factor of two" (section 6.1).
const FLASH_GAIN: f64 = 2.0;
/// Where the effect of the buffer is saturated, a larger buffer may take this many times as long.
const SATURATED: f64 = 1.05;
/// A modelled time is multiplied by this, and the thread sleeps so long. Times are summed up, so no sleep has
/// to be exact.
const DILATION: f64 = 0.005;

/// The results of one sort.
#[derive(Debug, Serialize)]
struct SortRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    device: String,
    scale: String,
    rounds: usize,
    runs: usize,
    runs_io_s: f64,
    merge_io_s: f64,
    io_s: Spread,
    processor_s: f64,
    total_s: Spread,
    #[serde(skip)]
    place: SortPlace,
}

/// The configuration of a measured sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SortPlace {
    drive: DriveKind,
    cluster_kib: usize,
    buffer_mib: usize,
}

impl SortPlace {
    fn factors(self) -> Factors {
        Factors::from([
            ("buffer MiB", self.buffer_mib.into()),
            ("cluster KiB", self.cluster_kib.into()),
            ("drive", self.drive.name().into()),
        ])
    }
}

/// Returns the configurations of both halves of the figure.
fn places() -> Vec<SortPlace> {
    let mut places = Vec::new();
    for (drive, best_kib) in DriveKind::BOTH.into_iter().zip(BEST_KIB) {
        let of_cluster = |cluster_kib| SortPlace { drive, cluster_kib, buffer_mib: BUFFER_MIB };
        let of_buffer = |buffer_mib| SortPlace { drive, cluster_kib: best_kib, buffer_mib };
        places.extend(CLUSTERS_KIB.map(of_cluster));
        places.extend(BUFFERS_MIB.map(of_buffer));
    }
    places
}

/// Runs the experiment `sort-cluster`.
pub fn sort_cluster(lab: &mut Lab<'_>) -> Result<()> {
    let mut rows = Vec::new();
    let wanted: Vec<SortPlace> = places().into_iter().filter(|place| lab.wants(&place.factors())).collect();
    for place in wanted {
        let row = measure(lab, place)?;
        lab.write_row(&row)?;
        rows.push(row);
    }
    let mut claims = Vec::new();
    for (number, drive) in DriveKind::BOTH.into_iter().enumerate() {
        claims.extend(best_cluster(&rows, drive, &OPTIMAL_KIB[number]));
        claims.extend(cluster_order(&rows, drive));
        claims.extend(larger_buffers(&rows, drive));
    }
    claims.extend(beyond_the_best(&rows));
    claims.extend(flash_gain(&rows));
    let claims: Vec<Claim> = claims.into_iter().map(|claim| lab.write_claim(claim)).collect::<Result<_>>()?;
    lab.say_tables(&[table(&rows), tell::claims_table(&claims)])
}

fn measure(lab: &Lab<'_>, place: SortPlace) -> Result<SortRow> {
    let profile = LEE_DRIVES.profile(place.drive)?;
    let setup = SortSetup::published(lab.scale(), place.buffer_mib, place.cluster_kib);
    let times: Vec<SortTimes> = (1..=lab.scale().rounds as u64)
        .map(|seed| setup.of_round(seed).run(&SpillBed::new(profile.clone(), DILATION)?))
        .collect::<Result<_>>()?;
    let spread = |figure: fn(&SortTimes) -> f64| Spread::of(&times.iter().map(figure).collect::<Vec<f64>>());
    let Subject { experiment, figure } = lab.subject();
    Ok(SortRow {
        row: "sort",
        experiment,
        figure,
        factors: place.factors(),
        device: profile.name.clone(),
        scale: setup.scale(lab.scale()),
        rounds: times.len(),
        runs: times.iter().map(|times| times.runs).max().unwrap_or(0),
        runs_io_s: spread(|times| times.runs_io).median,
        merge_io_s: spread(|times| times.merge_io).median,
        io_s: spread(SortTimes::io),
        processor_s: spread(|times| times.processor).median,
        total_s: spread(SortTimes::total),
        place,
    })
}

/// Returns the sorts of figure 7a on a drive, if all were measured.
fn by_cluster(rows: &[SortRow], drive: DriveKind) -> Option<Vec<&SortRow>> {
    let find = |cluster_kib| {
        let place = SortPlace { drive, cluster_kib, buffer_mib: BUFFER_MIB };
        rows.iter().find(|row| row.place == place)
    };
    CLUSTERS_KIB.into_iter().map(find).collect()
}

/// Returns the sorts of figure 7b on a drive, if all were measured.
fn by_buffer(rows: &[SortRow], drive: DriveKind) -> Option<Vec<&SortRow>> {
    let cluster_kib = BEST_KIB[usize::from(drive == DriveKind::Flash)];
    let find = |buffer_mib| {
        let place = SortPlace { drive, cluster_kib, buffer_mib };
        rows.iter().find(|row| row.place == place)
    };
    BUFFERS_MIB.into_iter().map(find).collect()
}

fn at(row: &SortRow, compared: &[&str]) -> ClaimPlace {
    ClaimPlace::of(&row.factors, compared, row.rounds)
}

/// Returns the claim that the best cluster is in the range that the text calls optimal.
fn best_cluster(rows: &[SortRow], drive: DriveKind, optimal: &RangeInclusive<usize>) -> Option<Claim> {
    let all = by_cluster(rows, drive)?;
    let best = all.iter().min_by(|one, other| one.io_s.median.total_cmp(&other.io_s.median))?;
    let ours = best.place.cluster_kib;
    let (least, most) = (optimal.start(), optimal.end());
    let contradicts = (!optimal.contains(&ours)).then(|| format!("published {least} to {most} KiB"));
    let says = format!("best cluster in KiB (published: {least} to {most})");
    Some(at(best, &["cluster KiB"]).in_words(says, ours as f64, contradicts))
}

/// Returns the claim about the order of the clusters. The disk becomes faster up to 64 KiB, and flash becomes
/// slower from 2 KiB on.
fn cluster_order(rows: &[SortRow], drive: DriveKind) -> Option<Claim> {
    let all = by_cluster(rows, drive)?;
    let is_stated = |row: &&&SortRow| drive == DriveKind::Flash || row.place.cluster_kib <= BEST_KIB[0];
    let figures = all.iter().filter(is_stated).map(|row| {
        let kib = row.place.cluster_kib as f64;
        let published = if drive == DriveKind::Disk { kib } else { 1.0 / kib };
        ranked(format!("{kib} KiB"), speed(row.io_s), row.rounds, published)
    });
    let at = at(all.first()?, &["cluster KiB"]);
    judge_figures("speed of I/O", &at.factors, at.rounds, figures.collect())
}

/// Returns the claim that on the disk 128 KiB is "a little worse" than 64 KiB.
fn beyond_the_best(rows: &[SortRow]) -> Option<Claim> {
    let all = by_cluster(rows, DriveKind::Disk)?;
    let of = |kib: usize| all.iter().find(|row| row.place.cluster_kib == kib);
    let (best, beyond) = (of(64)?, of(128)?);
    let figures = vec![
        ranked("64 KiB", speed(best.io_s), best.rounds, 2.0),
        ranked("128 KiB", speed(beyond.io_s), beyond.rounds, 1.0),
    ];
    let at = at(best, &["cluster KiB"]);
    judge_figures("speed of I/O", &at.factors, at.rounds, figures)
}

/// Returns the claim of figure 7b that the time falls as the buffer grows, until the effect is saturated.
fn larger_buffers(rows: &[SortRow], drive: DriveKind) -> Option<Claim> {
    let all = by_buffer(rows, drive)?;
    let growth = |pair: &[&SortRow]| pair[1].io_s.median / pair[0].io_s.median;
    let worst = all.windows(2).map(growth).fold(0.0, f64::max);
    let says = "I/O time, larger / next smaller buffer, the largest of these (published: it falls)";
    let contradicts = (worst > SATURATED).then(|| "a larger buffer is slower".to_owned());
    Some(at(all.first()?, &["buffer MiB"]).in_words(says, worst, contradicts))
}

/// Returns the claim of figure 7b that flash is faster by at least a factor of two with all these buffers.
/// The buffers are below 20 % of the input.
fn flash_gain(rows: &[SortRow]) -> Option<Claim> {
    let [disk, flash] = DriveKind::BOTH.map(|drive| by_buffer(rows, drive));
    let (disk, flash) = (disk?, flash?);
    let gains = disk.iter().zip(&flash).map(|(disk, flash)| disk.io_s.median / flash.io_s.median);
    let least = gains.fold(f64::INFINITY, f64::min);
    let says = "I/O time, disk / flash, the least of all buffers (published: at least)";
    let at = at(disk.first()?, &["buffer MiB", "cluster KiB", "drive"]);
    Some(at.published(says, least, FLASH_GAIN, Better::Higher))
}

fn table(rows: &[SortRow]) -> TextTable {
    let mut table = TextTable::headed(&[
        "drive",
        "cluster KiB",
        "buffer MiB",
        "runs",
        "I/O of runs s",
        "I/O of merges s",
        "processor s",
        "total s",
    ]);
    for row in rows {
        let SortPlace { drive, cluster_kib, buffer_mib } = row.place;
        let seconds = |figure: f64| format!("{figure:.1}");
        table.push(vec![
            drive.name().to_owned(),
            cluster_kib.to_string(),
            buffer_mib.to_string(),
            row.runs.to_string(),
            seconds(row.runs_io_s),
            seconds(row.merge_io_s),
            seconds(row.processor_s),
            seconds(row.total_s.median),
        ]);
    }
    table
}
