//! The experiment `join-buffer`: the four joins by the size of the buffer (Do 2012, figure 2.1, tables 2.3
//! and 2.4).

use varve_bench::Result;
use varve_spill::BlockIo;

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::scale::ByScale;
use super::super::tell;
use super::bed::DriveKind;
use super::buffer_claims::{SourceProcessor, claims};
use super::join_rows::{JoinPlace, JoinRows, scale_of};

/// Sizes of the buffer, in megabytes.
pub const MEGABYTES: [u64; 6] = [100, 200, 300, 400, 500, 600];

/// The number by which inputs and buffers are divided.
const SCALE: ByScale<u64> = ByScale { quick: 64, full: 16 };

/// Returns the place of figure 2.1 with this buffer.
pub fn place(drive: DriveKind, megabytes: u64) -> JoinPlace {
    JoinPlace { drive, megabytes, page_bytes: 8 << 10, io: BlockIo::Blocked }
}

/// Runs the experiment `join-buffer`.
pub fn join_buffer(lab: &mut Lab<'_>) -> Result<()> {
    let on = |drive| MEGABYTES.map(|megabytes| place(drive, megabytes));
    let places = DriveKind::BOTH.map(on).concat();
    let scale = scale_of(lab, SCALE);
    let rows = JoinRows::measure(lab, &places, scale)?;
    let source = SourceProcessor::of(&rows, scale);
    if let Some(source) = source {
        lab.say(&format!("a processor like the source's is {:.1} times slower", source.factor()))?;
    }
    let mut found = claims(&rows, source);
    found.extend(rows.choices(&places));
    let found: Vec<Claim> = found.into_iter().map(|claim| lab.write_claim(claim)).collect::<Result<_>>()?;
    lab.say_tables(&[rows.table(), tell::claims_table(&found)])
}
