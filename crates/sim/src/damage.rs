//! Damage at rest: a flipped bit, a sector of an older time, a zeroed sector, after a clean crash.
//!
//! The database may repair it, refuse to open, or report it in its check. It must not show a state that
//! never was. Two things no checksum can tell: a damaged tail of the log from a torn one, so an older state
//! may be shown; and a page that is whole but old, so the first sector of a page is never made stale.
//!
//! Invariants
//! 1. One damage an image, in a sector that was ever written.
//!
//! What it does not know: what is in the files.

use varve_device::MemoryImage;

use crate::devices::Devices;
use crate::rng::Rng;
use crate::search::{Failure, Found, Run, Subject, recover_guarded};

const SECTOR_BYTES: usize = 512;
/// Sectors of the subjects' pages.
const PAGE_SECTORS: u64 = 8;

/// What happened to damaged images.
#[derive(Debug, Clone, Default)]
pub struct Verdicts {
    /// Opening failed with an error.
    pub refused: usize,
    /// The check or a read reported damage.
    pub reported: usize,
    /// The full state was shown and nothing reported: repaired, or not in use.
    pub harmless: usize,
    /// An older state was shown.
    pub older: usize,
    /// What must not happen.
    pub found: Found,
}

/// Tries `images` damages of what a workload left.
pub fn damage(subject: &dyn Subject, run: &Run, seed: u64, images: usize) -> Verdicts {
    let (old, new) = (run.image_at(run.end() * 3 / 4), run.image_at(run.end()));
    let mut rng = Rng::new(seed);
    let mut verdicts = Verdicts::default();
    for image in 1..=images {
        let Some((what, devices)) = spoil(&old, &new, &mut rng) else { continue };
        verdicts.found.images += 1;
        let recovered = recover_guarded(subject, &devices);
        match recovered {
            Err(error) if error.starts_with(crate::PANIC) => {
                let what = format!("seed {seed}, image {image}, {what}: {error}");
                verdicts.found.failures.push(Failure { image, what });
            }
            Err(_) => verdicts.refused += 1,
            Ok(recovered) if !recovered.damages.is_empty() => verdicts.reported += 1,
            Ok(recovered) => match run.digests().iter().rposition(|digest| *digest == recovered.digest) {
                Some(number) if number + 1 == run.digests().len() => verdicts.harmless += 1,
                Some(_) => verdicts.older += 1,
                None => {
                    let what =
                        format!("seed {seed}, image {image}, {what}: a state that never was, unreported");
                    verdicts.found.failures.push(Failure { image, what });
                }
            },
        }
    }
    verdicts
}

/// The files of each device.
type Files = [Vec<(String, MemoryImage)>];

fn sector(image: &MemoryImage, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR_BYTES];
    image.read(number * SECTOR_BYTES as u64, &mut bytes);
    bytes
}

/// The new files with one sector damaged, and what was done.
fn spoil(old: &Files, new: &Files, rng: &mut Rng) -> Option<(String, Devices)> {
    let mut files = new.to_vec();
    let of_device = |(device, files): (usize, &Vec<_>)| (0..files.len()).map(move |file| (device, file));
    let all: Vec<(usize, usize)> = files.iter().enumerate().flat_map(of_device).collect();
    let (device, file) = all[rng.below(all.len() as u64) as usize];
    let (name, image) = files.get_mut(device)?.get_mut(file)?;
    let sectors = image.len_bytes() / SECTOR_BYTES as u64;
    let number = (0..50)
        .map(|_| rng.below(sectors.max(1)))
        .find(|at| sector(image, *at).iter().any(|byte| *byte != 0))?;
    let mut bytes = sector(image, number);
    let how = match rng.below(4) {
        0 => {
            bytes.fill(0);
            "zeroed"
        }
        1 if !number.is_multiple_of(PAGE_SECTORS) || name.starts_with("log") => {
            let (_, before) = old.get(device)?.iter().find(|(before, _)| before == name)?;
            bytes = sector(before, number);
            "stale"
        }
        _ => {
            let bit = rng.below(SECTOR_BYTES as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            "flipped"
        }
    };
    image.write(number * SECTOR_BYTES as u64, &bytes);
    let what = format!("{how} sector {number} of {name}");
    Some((what, Devices::holding(files)))
}
