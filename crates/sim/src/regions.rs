//! Replaces the database's region of persistent memory by a wrong one: none, an earlier state of it, the
//! region of another database, or a shortened region.
//!
//! The region had the newest pages, the log, or doublewrite copies. So the database must refuse to open. It
//! must not show any state, not even an earlier one.
//!
//! Invariants
//! 1. The earlier state of a region is from the beginning of an earlier checkpoint. The reason is that the
//!    database cannot distinguish two states of the region between the same two checkpoints.

use varve_device::MemoryImage;
use varve_pager::NVM_FILE;

use crate::devices::Devices;
use crate::rng::Rng;
use crate::search::{Failure, PANIC, Run, SearchResult, Subject, recover_guarded};

/// The offset of the stamp, which is the number of the last checkpoint that was begun with the region.
const STAMP_AT: u64 = 4096;
/// The number of moments at which a workload is crashed.
const CRASHES: u64 = 4;

/// What replaces the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swap {
    /// The region is missing.
    Lost,
    /// The region as it was before an earlier checkpoint.
    Earlier,
    /// The region of another database.
    Foreign,
    /// The region has only its beginning.
    Short,
}

impl Swap {
    /// All replacements.
    pub const ALL: [Swap; 4] = [Swap::Lost, Swap::Earlier, Swap::Foreign, Swap::Short];
}

/// The files of each device.
type Files = Vec<Vec<(String, MemoryImage)>>;

/// Tries `images` crashes of a workload. After each crash the region is replaced by another one; `foreign` is
/// a run of another database. Each start that is not refused is a failure.
pub fn swap_regions(
    subject: &dyn Subject,
    run: &Run,
    foreign: &Run,
    swaps: &[Swap],
    seed: u64,
    images: usize,
) -> SearchResult {
    let mut rng = Rng::new(seed);
    let mut found = SearchResult::default();
    // The crashes are in the second half, because in the first half some workloads have no region yet.
    let half = run.end() / 2;
    let cuts = (0..CRASHES).map(|at| half + 1 + at * half / CRASHES + rng.below(half / CRASHES));
    let crashes: Vec<Files> = cuts.map(|cut| run.image_at(cut)).collect();
    let foreign = foreign.image_at(foreign.end());
    for number in 1..=images {
        let swap = swaps[rng.below(swaps.len().max(1) as u64) as usize];
        let crash = rng.below(CRASHES) as usize;
        let Some((files, what)) = put(swap, &crashes, crash, &foreign, &mut rng) else { continue };
        found.images += 1;
        let failure = match recover_guarded(subject, &Devices::holding(files)) {
            Err(error) if error.starts_with(PANIC) => error,
            Err(_) => continue,
            Ok(_) => "it opens".into(),
        };
        let what = format!("seed {seed}, image {number} (crash {crash}), the region is {what}: {failure}");
        found.failures.push(Failure { image: number, what });
        break;
    }
    found
}

/// Returns the files after a crash with a replaced region, and a description. Returns `None` if there is no
/// such replacement.
fn put(
    swap: Swap,
    crashes: &[Files],
    crash: usize,
    foreign: &Files,
    rng: &mut Rng,
) -> Option<(Files, String)> {
    let mut files = crashes[crash].clone();
    let mine = region(&files)?;
    let stamp = stamp_of(mine);
    let (new, what) = match swap {
        Swap::Lost => (None, "lost".into()),
        Swap::Earlier => {
            let earlier = crashes[..crash].iter().filter_map(region);
            let earlier = earlier.into_iter().find(|earlier| (1..stamp).contains(&stamp_of(earlier)))?;
            (Some(earlier.clone()), format!("of checkpoint {} instead of {stamp}", stamp_of(earlier)))
        }
        Swap::Foreign => (Some(region(foreign)?.clone()), "another database's".into()),
        Swap::Short => {
            let mut short = mine.clone();
            let len_bytes = rng.below(short.len_bytes() / 4096) * 4096;
            short.set_len(len_bytes);
            (Some(short), format!("cut to {len_bytes} bytes"))
        }
    };
    let device = files.iter_mut().find(|device| device.iter().any(|(name, _)| name == NVM_FILE))?;
    device.retain(|(name, _)| name != NVM_FILE);
    device.extend(new.map(|new| (NVM_FILE.to_owned(), new)));
    Some((files, what))
}

fn region(files: &Files) -> Option<&MemoryImage> {
    files.iter().flatten().find(|(name, _)| name == NVM_FILE).map(|(_, image)| image)
}

fn stamp_of(region: &MemoryImage) -> u64 {
    let mut word = [0; 8];
    region.read(STAMP_AT, &mut word);
    u64::from_le_bytes(word)
}
