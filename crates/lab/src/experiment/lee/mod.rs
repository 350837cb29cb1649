//! The experiments of Lee 2008 on the log and on rollback segments.
//!
//! 1. Only the space under study is on an emulated drive. All other files are in the machine's memory, as
//!    Lee's tables were in the buffer cache (section 3).
//! 2. Processors are a part of the result, so the dilation is always 1. A point counts if its requests
//!    took the times of the drive's model, however busy the processors were.
//! 3. `rollback-pattern` and `rollback-read` measure one round. They do not use the option `--rounds`.
//!
//! This module does not know sorts and hash joins (section 6). They use the temporary space.

mod log;
mod processors;
mod read;
mod stand;
mod updates;
mod write;

pub use log::{log_device, tpcb_log};
pub use read::rollback_read;
pub use write::rollback_pattern;

use super::claim::Claim;
use super::lab::Lab;
use super::row::{Emulation, Factors, MODEL_ERROR_MAX};
use super::verdict::{Better, Verdict};
use varve_bench::Result;

/// Bytes of a page.
const PAGE_BYTES: usize = 8192;
/// The names of the two drives that are compared.
const DISK: &str = "disk";
const FLASH: &str = "flash";
const DRIVES: [&str; 2] = [DISK, FLASH];

/// A ratio of two measured figures, and the ratio of the publication.
struct PublishedRatio<'a> {
    says: &'a str,
    factors: &'a Factors,
    ours: f64,
    published: Option<f64>,
    better: Better,
    rounds: usize,
}

/// Judges a ratio of two figures, and writes its row. `emulations` are the emulations under which they were
/// measured.
fn judge(lab: &mut Lab<'_>, asked: PublishedRatio<'_>, emulations: [Option<&Emulation>; 2]) -> Result<Claim> {
    judge_unless(lab, asked, emulations.into_iter().find_map(not_judged))
}

/// Judges a ratio unless `spoilt` has a reason against it, and writes its row. Counts that do not depend on
/// time have no such reason.
fn judge_unless(lab: &mut Lab<'_>, asked: PublishedRatio<'_>, spoilt: Option<String>) -> Result<Claim> {
    let PublishedRatio { says, factors, ours, published, better, rounds } = asked;
    let verdict = match (published, spoilt) {
        (None, _) => Verdict::NotInText,
        (Some(_), Some(reason)) => Verdict::NotJudged(reason),
        (Some(published), None) => Verdict::of(ours, published, better),
    };
    let found = Claim::found(factors, says.to_owned(), ours).of_rounds(rounds).beside(published);
    lab.write_claim(Claim { verdict, ..found })
}

/// Returns the reason why a figure is not judged, if there is one.
fn not_judged(emulation: Option<&Emulation>) -> Option<String> {
    match emulation {
        None => Some("no device was emulated".to_owned()),
        Some(one) => (one.model_error_share > MODEL_ERROR_MAX).then(|| one.spoilt()),
    }
}
