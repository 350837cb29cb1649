//! The experiments `join-page-size` and `join-page-io`: the four joins by the size of a page, with blocked
//! and with page-sized requests (Do 2012, figures 2.2 and 2.3, section 2.4.5).

use varve_bench::Result;
use varve_spill::{BlockIo, JoinMethod};

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::scale::ByScale;
use super::super::tell;
use super::super::verdict::Better;
use super::bed::DriveKind;
use super::join::name;
use super::join_rows::{JoinPlace, JoinRow, JoinRows, scale_of};

/// The buffer in megabytes, and sizes of a page in KiB.
const MEGABYTES: u64 = 500;
const PAGES_KIB: [usize; 5] = [2, 4, 8, 16, 32];
/// The numbers by which inputs and buffers are divided. There are many page-sized requests, so `join-page-io`
/// has less data.
const SIZE_SCALE: ByScale<u64> = ByScale { quick: 64, full: 16 };
const IO_SCALE: ByScale<u64> = ByScale { quick: 256, full: 64 };
/// The published ratio: blocked I/O is "often" twice as fast on flash (section 2.4.5).
const BLOCKED_GAIN: f64 = 2.0;

fn place(drive: DriveKind, kib: usize, io: BlockIo) -> JoinPlace {
    JoinPlace { drive, megabytes: MEGABYTES, page_bytes: kib << 10, io }
}

fn places(ways: &[BlockIo]) -> Vec<JoinPlace> {
    let on = |drive: DriveKind, io: BlockIo| PAGES_KIB.map(|kib| place(drive, kib, io));
    ways.iter().flat_map(|io| DriveKind::BOTH.map(|drive| on(drive, *io)).concat()).collect()
}

fn finish(lab: &mut Lab<'_>, rows: &JoinRows, claims: Vec<Claim>) -> Result<()> {
    let claims: Vec<Claim> = claims.into_iter().map(|claim| lab.write_claim(claim)).collect::<Result<_>>()?;
    lab.say_tables(&[rows.table(), tell::claims_table(&claims)])
}

/// Runs the experiment `join-page-size`: with blocked I/O, "the page size has a small impact" (section
/// 2.4.4).
pub fn join_page_size(lab: &mut Lab<'_>) -> Result<()> {
    let places = places(&[BlockIo::Blocked]);
    let rows = JoinRows::measure(lab, &places, scale_of(lab, SIZE_SCALE))?;
    let mut claims = Vec::new();
    for drive in DriveKind::BOTH {
        claims.extend(JoinMethod::ALL.into_iter().filter_map(|method| impact(&rows, drive, method)));
    }
    claims.extend(rows.choices(&places));
    finish(lab, &rows, claims)
}

/// Returns the claim about the longest I/O time of all page sizes, divided by the shortest one.
fn impact(rows: &JoinRows, drive: DriveKind, method: JoinMethod) -> Option<Claim> {
    let of = |kib: usize| rows.at(place(drive, kib, BlockIo::Blocked), method);
    let all: Vec<&JoinRow> = PAGES_KIB.into_iter().map(of).collect::<Option<_>>()?;
    let seconds = || all.iter().map(|row| row.io_s.median);
    let ours = seconds().fold(0.0, f64::max) / seconds().fold(f64::INFINITY, f64::min);
    let at = all.first()?.claim_place(&["page KiB"]);
    Some(at.similar("I/O time, slowest page size / fastest", ours))
}

/// Runs the experiment `join-page-io`, which compares page-sized requests with blocked requests.
pub fn join_page_io(lab: &mut Lab<'_>) -> Result<()> {
    let places = places(&[BlockIo::PageSized, BlockIo::Blocked]);
    let rows = JoinRows::measure(lab, &places, scale_of(lab, IO_SCALE))?;
    let mut claims: Vec<Claim> = blocked_gain(&rows).into_iter().collect();
    let stated = [JoinMethod::SortMerge, JoinMethod::Grace];
    claims.extend(stated.into_iter().filter_map(|method| small_pages(&rows, method)));
    let page_sized: Vec<JoinPlace> =
        places.iter().filter(|place| place.io == BlockIo::PageSized).copied().collect();
    claims.extend(rows.choices(&page_sized));
    finish(lab, &rows, claims)
}

/// Returns the claim about the median ratio of all joins and page sizes on flash.
fn blocked_gain(rows: &JoinRows) -> Option<Claim> {
    let mut gains = Vec::new();
    let mut at = None;
    for method in JoinMethod::ALL {
        for kib in PAGES_KIB {
            let of = |io| rows.at(place(DriveKind::Flash, kib, io), method);
            let (Some(paged), Some(blocked)) = (of(BlockIo::PageSized), of(BlockIo::Blocked)) else {
                continue;
            };
            gains.push(paged.io_s.median / blocked.io_s.median);
            at = Some(blocked.claim_place(&["page KiB", "join", "requests"]));
        }
    }
    gains.sort_by(f64::total_cmp);
    let median = gains.get(gains.len() / 2)?;
    let says = "I/O time, page-sized / blocked requests, median of joins and pages";
    Some(at?.published(says, *median, BLOCKED_GAIN, Better::Higher))
}

/// Returns the claim of section 2.4.5 that with pages of 2 KB sort-merge and Grace are slower on flash than
/// on the disk.
fn small_pages(rows: &JoinRows, method: JoinMethod) -> Option<Claim> {
    let [disk, flash] =
        DriveKind::BOTH.map(|drive| rows.at(place(drive, PAGES_KIB[0], BlockIo::PageSized), method));
    let (disk, flash) = (disk?, flash?);
    let ours = disk.io_s.median / flash.io_s.median;
    let at = disk.claim_place(&["drive"]);
    let says = format!("I/O time of {}, disk / flash (published: flash is slower)", name(method));
    Some(at.in_words(says, ours, (ours >= 1.0).then(|| "flash is faster".to_owned())))
}
