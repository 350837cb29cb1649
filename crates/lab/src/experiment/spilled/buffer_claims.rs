//! Compares our figures with the statements of Do 2012 about the joins of figure 2.1.

use varve_spill::JoinMethod;

use super::super::claim::Claim;
use super::super::order::judge_figures;
use super::super::verdict::Better;
use super::bed::DriveKind;
use super::join::name;
use super::join_buffer::{MEGABYTES, place};
use super::join_rows::{JoinRow, JoinRows};
use super::judge::ranked;
use varve_bench::report::Spread;

/// Published speed-ups of a join by flash, with one size of the buffer.
struct PublishedSpeedUps {
    megabytes: u64,
    /// Table 2.3: total time and I/O time of each join, in the order of [`JoinMethod::ALL`].
    total_and_io: [[f64; 2]; 4],
    /// Table 2.4: I/O time of the first and the second phase of each join but block nested loops.
    phases: [[f64; 2]; 3],
}

const fn published(megabytes: u64, total_and_io: [[f64; 2]; 4], phases: [[f64; 2]; 3]) -> PublishedSpeedUps {
    PublishedSpeedUps { megabytes, total_and_io, phases }
}

const PUBLISHED: [PublishedSpeedUps; 6] = [
    published(
        100,
        [[1.64, 2.86], [1.41, 1.81], [1.34, 1.54], [1.45, 1.77]],
        [[1.52, 3.00], [1.34, 2.27], [1.57, 2.61]],
    ),
    published(
        200,
        [[1.59, 2.62], [1.45, 2.05], [1.29, 1.59], [1.55, 1.90]],
        [[1.83, 2.81], [1.43, 2.19], [1.66, 3.09]],
    ),
    published(
        300,
        [[1.72, 3.04], [1.44, 2.06], [1.41, 1.62], [1.35, 1.51]],
        [[1.86, 2.79], [1.47, 2.12], [1.34, 2.32]],
    ),
    published(
        400,
        [[1.73, 2.87], [1.45, 2.08], [1.33, 1.62], [1.51, 1.89]],
        [[1.90, 2.63], [1.47, 2.13], [1.70, 2.91]],
    ),
    published(
        500,
        [[1.67, 2.79], [1.43, 2.04], [1.39, 1.77], [1.50, 1.78]],
        [[1.81, 2.86], [1.59, 2.44], [1.63, 2.83]],
    ),
    published(
        600,
        [[1.65, 2.61], [1.48, 2.20], [1.30, 1.55], [1.65, 2.09]],
        [[2.00, 2.89], [1.31, 2.68], [1.98, 2.84]],
    ),
];

/// The published ratio of Grace to hybrid hash with a buffer of 600 MB (section 2.4.3). The drive is not
/// stated.
const GRACE_OVER_HYBRID: f64 = 2.81;
/// The reason why ratios of total times are only shown and not judged.
const PROCESSORS: &str = "processors of today are a smaller part of the total time";

/// The name of total times with a processor like the publication's.
const SOURCE_TOTAL: &str = "total time with a processor like the source's";
/// Seconds of the processor, without those of the kernel, for block nested loops with pages of 8 KB (table
/// 2.5).
const SOURCE_LOOPS_S: f64 = 190.5;
/// The buffer of this join.
const SOURCE_LOOPS_MEGABYTES: u64 = 500;

/// A processor that is slower than this machine's by one factor, so that block nested loops takes as long as
/// in table 2.5. All other times are predictions.
#[derive(Debug, Clone, Copy)]
pub struct SourceProcessor {
    factor: f64,
}

impl SourceProcessor {
    /// Computes the factor from the join in table 2.5, if this join was measured.
    pub fn of(rows: &JoinRows, scale: u64) -> Option<Self> {
        let at = place(DriveKind::Disk, SOURCE_LOOPS_MEGABYTES);
        let ours_s = rows.least_processor_s(rows.at(at, JoinMethod::NestedLoops)?);
        Some(Self { factor: SOURCE_LOOPS_S / (ours_s * scale as f64) })
    }

    /// Returns the factor.
    pub fn factor(self) -> f64 {
        self.factor
    }

    /// Returns the seconds of I/O and of this processor.
    pub fn total_s(self, rows: &JoinRows, row: &JoinRow) -> f64 {
        row.io_s.median + self.factor * rows.least_processor_s(row)
    }
}

/// Returns all claims about measured joins.
pub fn claims(rows: &JoinRows, source: Option<SourceProcessor>) -> Vec<Claim> {
    let mut claims = Vec::new();
    for published in &PUBLISHED {
        claims.extend(speed_ups(rows, source, published));
        claims.extend(speed_up_order(rows, published));
    }
    for megabytes in MEGABYTES {
        for drive in DriveKind::BOTH {
            claims.extend(hybrid_is_best(rows, drive, megabytes));
            claims.extend(source.and_then(|source| published_best(rows, source, drive, megabytes)));
            claims.extend(sort_merge_and_grace(rows, drive, megabytes));
        }
    }
    claims.extend(source.and_then(|source| grace_over_hybrid(rows, source)));
    claims.extend(source.and_then(|source| loops_on_flash(rows, source)));
    claims
}

/// Makes the claims of tables 2.3 and 2.4.
fn speed_ups(rows: &JoinRows, source: Option<SourceProcessor>, published: &PublishedSpeedUps) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (number, method) in JoinMethod::ALL.into_iter().enumerate() {
        let [disk, flash] = DriveKind::BOTH.map(|drive| rows.at(place(drive, published.megabytes), method));
        let (Some(disk), Some(flash)) = (disk, flash) else { continue };
        let at = disk.claim_place(&["drive"]);
        let [total, io] = published.total_and_io[number];
        let ours = disk.io_s.median / flash.io_s.median;
        claims.push(at.published("I/O time, disk / flash", ours, io, Better::Higher));
        let ours = disk.total_s.median / flash.total_s.median;
        claims.push(at.shown("total time, disk / flash", ours, total, PROCESSORS));
        claims.extend(source.map(|source| {
            let ours = source.total_s(rows, disk) / source.total_s(rows, flash);
            at.published(format!("{SOURCE_TOTAL}, disk / flash"), ours, total, Better::Higher)
        }));
        let Some(phases) = number.checked_sub(1).and_then(|number| published.phases.get(number)) else {
            continue;
        };
        let ours = [disk.first_io_s / flash.first_io_s, disk.second_io_s / flash.second_io_s];
        for (phase, (ours, published)) in ["first", "second"].into_iter().zip(ours.iter().zip(phases)) {
            let says = format!("I/O time of the {phase} phase, disk / flash");
            claims.push(at.published(says, *ours, *published, Better::Higher));
        }
    }
    claims
}

/// Returns the claim about the order of the joins by the speed-up of their I/O.
fn speed_up_order(rows: &JoinRows, published: &PublishedSpeedUps) -> Option<Claim> {
    let [disk, flash] = DriveKind::BOTH.map(|drive| rows.all_at(place(drive, published.megabytes)));
    let (disk, flash) = (disk?, flash?);
    let (rounds, mut figures) = (disk[0].rounds, Vec::new());
    for (number, method) in JoinMethod::ALL.into_iter().enumerate() {
        let (disk, flash) = (disk[number].io_s, flash[number].io_s);
        let speed_up = Spread {
            median: disk.median / flash.median,
            min: disk.min / flash.max,
            max: disk.max / flash.min,
        };
        figures.push(ranked(name(method), speed_up, rounds, published.total_and_io[number][1]));
    }
    let at = disk[0].claim_place(&["drive", "join"]);
    judge_figures("speed-up of I/O by flash", &at.factors, at.rounds, figures)
}

/// Returns the claim about this project's bar: with today's processor, hybrid hash is at least as fast as
/// every other join.
fn hybrid_is_best(rows: &JoinRows, drive: DriveKind, megabytes: u64) -> Option<Claim> {
    let [loops, sort, grace, hybrid] = rows.all_at(place(drive, megabytes))?;
    let others = [loops, sort, grace].map(|row| row.total_s.median);
    let best = others.into_iter().fold(f64::INFINITY, f64::min);
    let says = "total time: best of the other joins / hybrid hash";
    Some(hybrid.claim_place(&["join"]).at_least(says, best / hybrid.total_s.median, 1.0))
}

/// Returns the claim of section 2.4.3 that hybrid hash "outperformed all other algorithms".
fn published_best(
    rows: &JoinRows,
    source: SourceProcessor,
    drive: DriveKind,
    megabytes: u64,
) -> Option<Claim> {
    let [loops, sort, grace, hybrid] = rows.all_at(place(drive, megabytes))?;
    let others = [loops, sort, grace].map(|row| source.total_s(rows, row));
    let ours = others.into_iter().fold(f64::INFINITY, f64::min) / source.total_s(rows, hybrid);
    let says = format!("{SOURCE_TOTAL}: best of the other joins / hybrid hash (published: above 1)");
    let contradicts = (ours < 1.0).then(|| "another join is faster".to_owned());
    Some(hybrid.claim_place(&["join"]).in_words(says, ours, contradicts))
}

/// Returns the claim of section 2.4.3 about "similar I/O costs" on the disk, and lower costs of sort-merge on
/// flash.
fn sort_merge_and_grace(rows: &JoinRows, drive: DriveKind, megabytes: u64) -> Option<Claim> {
    let [_, sort, grace, _] = rows.all_at(place(drive, megabytes))?;
    let at = sort.claim_place(&["join"]);
    match drive {
        DriveKind::Disk => {
            let ours = grace.io_s.median / sort.io_s.median;
            Some(at.similar("I/O time, Grace hash / sort-merge", ours))
        }
        DriveKind::Flash => {
            let figures = vec![sort.io_rank(2.0), grace.io_rank(1.0)];
            judge_figures("speed of I/O", &at.factors, at.rounds, figures)
        }
    }
}

/// Returns the claim about the larger ratio of the two drives. The publication does not name a drive.
fn grace_over_hybrid(rows: &JoinRows, source: SourceProcessor) -> Option<Claim> {
    let ratio = |drive| {
        let [_, _, grace, hybrid] = rows.all_at(place(drive, 600))?;
        Some((source.total_s(rows, grace) / source.total_s(rows, hybrid), hybrid))
    };
    let both = DriveKind::BOTH.into_iter().filter_map(ratio);
    let (ours, row) = both.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    let says = format!("{SOURCE_TOTAL}, Grace hash / hybrid hash (the larger of both drives)");
    Some(row.claim_place(&["join"]).published(says, ours, GRACE_OVER_HYBRID, Better::Higher))
}

/// Returns the claim of section 2.4.3 that with large buffers block nested loops is faster on flash than
/// sort-merge and Grace.
fn loops_on_flash(rows: &JoinRows, source: SourceProcessor) -> Option<Claim> {
    let [loops, sort, grace, _] = rows.all_at(place(DriveKind::Flash, 600))?;
    let ours = [sort, grace].map(|row| source.total_s(rows, row)).into_iter().fold(f64::INFINITY, f64::min)
        / source.total_s(rows, loops);
    let says = format!(
        "{SOURCE_TOTAL}: the faster of sort-merge and Grace hash / block nested loops (published: above 1)"
    );
    let contradicts = (ours < 1.0).then(|| "block nested loops is slower".to_owned());
    Some(loops.claim_place(&["join"]).in_words(says, ours, contradicts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The claims about the ranges that the text states (section 2.4.3).
    #[test]
    fn the_tables_have_the_ranges_of_the_text() {
        let range = |figures: Vec<f64>| {
            let (least, most) = (f64::INFINITY, 0.0);
            figures.into_iter().fold((least, most), |(least, most), one| (least.min(one), one.max(most)))
        };
        let of = |join: usize, which: usize| {
            range(PUBLISHED.iter().map(|row| row.total_and_io[join][which]).collect())
        };
        assert_eq!([of(0, 0), of(0, 1)], [(1.59, 1.73), (2.61, 3.04)]);
        assert_eq!([of(1, 0), of(1, 1)], [(1.41, 1.48), (1.81, 2.20)]);
        assert_eq!([of(2, 0), of(2, 1)], [(1.29, 1.41), (1.54, 1.77)]);
        assert_eq!([of(3, 0), of(3, 1)], [(1.35, 1.65), (1.51, 2.09)]);
        let phase =
            |join: usize, which: usize| range(PUBLISHED.iter().map(|row| row.phases[join][which]).collect());
        assert_eq!([phase(0, 0), phase(0, 1)], [(1.52, 2.00), (2.63, 3.00)]);
        assert_eq!([phase(1, 0), phase(1, 1)], [(1.31, 1.59), (2.12, 2.68)]);
        assert_eq!([phase(2, 0), phase(2, 1)], [(1.34, 1.98), (2.32, 3.09)]);
        assert_eq!(PUBLISHED.each_ref().map(|row| row.megabytes), MEGABYTES);
    }
}
