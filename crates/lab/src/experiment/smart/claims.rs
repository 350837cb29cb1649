//! What Do 2012 (section 5.4) states about scans in a smart device, the bars of this project, and our figures
//! beside them.
//!
//! 1. The thesis scanned rows (NSM) on the disk and on flash. So a published ratio to the host has the layout
//!    `row` on the host's side, also if the device scans `pax`. The bars of this project compare one layout.
//! 2. A ratio of times is judged only if the emulation kept up, and if the slower run was limited by a drive
//!    or the device. Ratios of energy follow from the times, so the same holds for them.

use super::super::claim::Claim;
use super::super::order::{ROUND_NOISE, RankedFigure, judge_figures};
use super::super::spilled::{ClaimPlace, ranked, speed};
use super::super::verdict::{Better, Verdict};
use super::bed::{ScanDrive, ScanLayout, ScanQuery};
use super::energy::{DISK_S, FLASH_OVER_SMART, FLASH_S, SMART_PAX_S, SMART_ROW_S};
use super::rows::{ScanRow, ScanRows};

/// Section 5.4.2: ratios at 0.1 %.
const DISK_OVER_SMART: f64 = 14.0;
const DISK_OVER_SMART_JOULES: f64 = 14.5;
const FLASH_OVER_SMART_JOULES: f64 = 2.4;
/// Section 5.4.3: the device is 43 % slower if all rows are returned.
const FLASH_OVER_SMART_OF_ALL: f64 = 1.0 / 1.43;
/// Section 5.4.2: the average is more than twice as fast, and takes less than half of the energy.
const AVERAGE_GAIN: f64 = 2.0;
/// Table 5.1: internal bandwidth over the interface's.
const BANDWIDTH_BOUND: f64 = 1560.0 / 550.0;
/// Bars of this project.
const FLASH_OVER_SMART_BAR: f64 = 2.1;
const ROW_OVER_PAX_BAR: f64 = 1.5;

const FEW: ScanQuery = ScanQuery::rows(0.1);
const ALL: ScanQuery = ScanQuery::rows(100.0);
const AVERAGE: ScanQuery = ScanQuery::average(1.0);
/// The factors that differ between two layouts.
const OVER_LAYOUTS: [&str; 2] = ["drive", "layout"];

/// Two rows whose times or joules are divided.
#[derive(Clone, Copy)]
struct RowPair<'r> {
    over: &'r ScanRow,
    under: &'r ScanRow,
}

impl RowPair<'_> {
    fn times(self) -> f64 {
        self.over.seconds.median / self.under.seconds.median
    }

    fn joules(self) -> f64 {
        self.over.modelled_joules / self.under.modelled_joules
    }

    /// A claim of this pair, unless the pair can't be judged.
    fn judged(self, claim: Claim) -> Claim {
        let slower = if self.times() >= 1.0 { self.over } else { self.under };
        let spoilt = self.over.not_judged().or_else(|| self.under.not_judged()).or_else(|| slower.idle());
        match spoilt {
            Some(reason) if claim.verdict != Verdict::NotInText => {
                Claim { verdict: Verdict::NotJudged(reason), ..claim }
            }
            _ => claim,
        }
    }
}

fn pair<'r>(over: Option<&'r ScanRow>, under: Option<&'r ScanRow>) -> Option<RowPair<'r>> {
    Some(RowPair { over: over?, under: under? })
}

/// All claims about measured rows.
pub fn claims(rows: &ScanRows) -> Vec<Claim> {
    let mut claims = Vec::new();
    claims.extend(few_rows(rows));
    claims.extend(few_rows_of_one_layout(rows));
    claims.extend(orders(rows));
    claims.extend(all_rows(rows));
    claims.extend(averages(rows));
    for layout in ScanLayout::BOTH {
        for query in ScanQuery::ALL {
            claims.extend(planner(rows, layout, query));
            claims.extend(same_disk(rows, layout, query));
            claims.extend(not_in_text(rows, layout, query));
        }
    }
    claims
}

/// Section 5.4.2: the published ratios at 0.1 %, with rows on the host's side.
fn few_rows(rows: &ScanRows) -> Vec<Claim> {
    let mut claims = Vec::new();
    let host = |drive| rows.at(ScanLayout::Row, FEW, drive);
    let device = |layout| rows.at(layout, FEW, ScanDrive::Smart);
    let published = [
        (ScanDrive::Flash, ScanLayout::Pax, FLASH_OVER_SMART),
        (ScanDrive::Flash, ScanLayout::Row, FLASH_S / SMART_ROW_S),
        (ScanDrive::Disk, ScanLayout::Pax, DISK_OVER_SMART),
        (ScanDrive::Disk, ScanLayout::Row, DISK_S / SMART_ROW_S),
    ];
    for (drive, layout, published) in published {
        let Some(pair) = pair(host(drive), device(layout)) else { continue };
        let says = format!("time, {} row / smart {}", drive.name(), layout.name());
        let at = pair.under.claim_place(&OVER_LAYOUTS);
        claims.push(pair.judged(at.published(says, pair.times(), published, Better::Higher)));
    }
    for (drive, published) in
        [(ScanDrive::Flash, FLASH_OVER_SMART_JOULES), (ScanDrive::Disk, DISK_OVER_SMART_JOULES)]
    {
        let Some(pair) = pair(host(drive), device(ScanLayout::Pax)) else { continue };
        let says = format!("modelled energy, {} row / smart pax", drive.name());
        let at = pair.under.claim_place(&OVER_LAYOUTS);
        claims.push(pair.judged(at.published(says, pair.joules(), published, Better::Higher)));
    }
    claims
}

/// The bars of this project at 0.1 %, and the bound of the bandwidths.
fn few_rows_of_one_layout(rows: &ScanRows) -> Vec<Claim> {
    let mut claims = Vec::new();
    let of = |layout, drive| rows.at(layout, FEW, drive);
    if let Some(pair) = pair(of(ScanLayout::Pax, ScanDrive::Flash), of(ScanLayout::Pax, ScanDrive::Smart)) {
        let at = pair.under.claim_place(&["drive"]);
        let bar = at.at_least("time, flash / smart", pair.times(), FLASH_OVER_SMART_BAR);
        let says = "time, flash / smart: not above the bound of the bandwidths";
        claims.extend([bar, at.at_most(says, pair.times(), BANDWIDTH_BOUND)].map(|claim| pair.judged(claim)));
    }
    let dense = |drive| of(ScanLayout::DensePax, drive);
    if let Some(pair) = pair(dense(ScanDrive::Flash), dense(ScanDrive::Smart)) {
        let at = pair.under.claim_place(&["drive"]);
        let says = "time, flash / smart, as many rows a page as published";
        claims.push(pair.judged(at.published(says, pair.times(), FLASH_OVER_SMART, Better::Higher)));
    }
    if let Some(pair) = pair(of(ScanLayout::Row, ScanDrive::Smart), of(ScanLayout::Pax, ScanDrive::Smart)) {
        let at = pair.under.claim_place(&["layout"]);
        let says = "time in the device, row / pax";
        let published = at.published(says, pair.times(), SMART_ROW_S / SMART_PAX_S, Better::Higher);
        let bar = at.at_least(says, pair.times(), ROW_OVER_PAX_BAR);
        claims.extend([published, bar].map(|claim| pair.judged(claim)));
    }
    claims
}

/// A place in an order of speeds, with its published seconds.
struct PublishedTime {
    layout: ScanLayout,
    drive: ScanDrive,
    seconds: f64,
}

impl PublishedTime {
    fn ranked(&self, row: &ScanRow) -> RankedFigure {
        let name = format!("{} {}", self.drive.name(), self.layout.name());
        let figure = ranked(name, speed(row.seconds), row.rounds, 1.0 / self.seconds);
        RankedFigure { spoilt: row.not_judged(), ..figure }
    }
}

/// The order of these drives and layouts for a query.
fn order(rows: &ScanRows, query: ScanQuery, of: &[PublishedTime]) -> Option<Claim> {
    let found: Vec<&ScanRow> =
        of.iter().map(|one| rows.at(one.layout, query, one.drive)).collect::<Option<_>>()?;
    let figures = of.iter().zip(&found).map(|(one, row)| one.ranked(row)).collect();
    let at = found.first()?.claim_place(&OVER_LAYOUTS);
    judge_figures("speed", &at.factors, at.rounds, figures)
}

/// The orders of drives that the text states, at 0.1 % and at 100 %.
fn orders(rows: &ScanRows) -> Vec<Claim> {
    let row = |drive, seconds| PublishedTime { layout: ScanLayout::Row, drive, seconds };
    let pax = |seconds| PublishedTime { layout: ScanLayout::Pax, drive: ScanDrive::Smart, seconds };
    let few = [
        pax(SMART_PAX_S),
        row(ScanDrive::Smart, SMART_ROW_S),
        row(ScanDrive::Flash, FLASH_S),
        row(ScanDrive::Disk, DISK_S),
    ];
    let all = [
        row(ScanDrive::Flash, FLASH_S),
        pax(FLASH_S / FLASH_OVER_SMART_OF_ALL),
        row(ScanDrive::Disk, DISK_S),
    ];
    order(rows, FEW, &few).into_iter().chain(order(rows, ALL, &all)).collect()
}

/// Section 5.4.3: if all rows are returned, the device is slower than flash.
fn all_rows(rows: &ScanRows) -> Option<Claim> {
    let device = rows.at(ScanLayout::Pax, ALL, ScanDrive::Smart);
    let pair = pair(rows.at(ScanLayout::Row, ALL, ScanDrive::Flash), device)?;
    let at = pair.under.claim_place(&OVER_LAYOUTS);
    let says = "time, flash row / smart pax";
    Some(pair.judged(at.published(says, pair.times(), FLASH_OVER_SMART_OF_ALL, Better::Higher)))
}

/// Section 5.4.2.2: the average at 1 % gains more than a factor of two in time and in energy.
fn averages(rows: &ScanRows) -> Vec<Claim> {
    let mut claims = Vec::new();
    let device = rows.at(ScanLayout::Pax, AVERAGE, ScanDrive::Smart);
    for drive in [ScanDrive::Flash, ScanDrive::Disk] {
        let Some(pair) = pair(rows.at(ScanLayout::Row, AVERAGE, drive), device) else { continue };
        let at = pair.under.claim_place(&OVER_LAYOUTS);
        for (figure, ours) in [("time", pair.times()), ("modelled energy", pair.joules())] {
            let says = format!("{figure}, {} row / smart pax (published: above 2)", drive.name());
            let contradicts = (ours <= AVERAGE_GAIN).then(|| "it is at most 2".to_owned());
            claims.push(pair.judged(at.in_words(says, ours, contradicts)));
        }
    }
    claims
}

/// A query for which the planner chooses is not slower than without a device. If the planner has chosen the
/// host, both runs have the same plan, and the noise of a single round is permitted.
fn planner(rows: &ScanRows, layout: ScanLayout, query: ScanQuery) -> Option<Claim> {
    let of = |drive| rows.at(layout, query, drive);
    let pair = pair(of(ScanDrive::Flash), of(ScanDrive::Planner))?;
    let at: ClaimPlace = pair.under.claim_place(&["drive"]);
    let (says, bar) = match pair.under.is_in_device() {
        true => ("time, flash / planner's choice (the device)", 1.0),
        false => ("time, flash / planner's choice (the host, the same plan)", 1.0 - ROUND_NOISE),
    };
    Some(pair.judged(at.at_least(says, pair.times(), bar)))
}

/// Section 5.4.2.1: the disk needs the same time at each selectivity.
fn same_disk(rows: &ScanRows, layout: ScanLayout, query: ScanQuery) -> Option<Claim> {
    let is_other = query != FEW && !query.is_average;
    let of = |query| rows.at(layout, query, ScanDrive::Disk);
    let pair = pair(of(query), of(FEW)).filter(|_| is_other)?;
    let at = pair.over.claim_place(&["drive"]);
    Some(pair.judged(at.similar("time on the disk / that at 0.1 %", pair.times())))
}

/// The other ratios of flash and device, which figure 5.4 shows only as a plot.
fn not_in_text(rows: &ScanRows, layout: ScanLayout, query: ScanQuery) -> Option<Claim> {
    let of = |drive| rows.at(layout, query, drive);
    let pair = pair(of(ScanDrive::Flash), of(ScanDrive::Smart)).filter(|_| query != FEW)?;
    let at = pair.under.claim_place(&["drive"]);
    let found = Claim::found(&at.factors, "time, flash / smart".to_owned(), pair.times());
    Some(Claim { verdict: Verdict::NotInText, ..found.of_rounds(at.rounds) })
}
