//! Damages stored data after a crash that lost no write: a flipped bit, an older version of a sector, or a
//! sector of zeros.
//!
//! The database may repair the damage, refuse to open, or report an error in its check. It must not show a
//! state that never existed. Checksums cannot detect two cases, so the test treats them separately:
//! - A damaged end of the log looks like a log that ends earlier, so an older state is accepted.
//! - A whole page of an older version has a right checksum. If only the first sector of a page has changed,
//!   the older sector makes such a page. So the test never replaces a first sector by an older one.
//!
//! Invariants
//! 1. Each crash image has one damage, in a sector that was written before. In half of the images, the damage
//!    is in a recently written page of a data file. For such a page the doublewrite file may have a copy, and
//!    the copy may be old.

use varve_device::MemoryImage;

use crate::devices::Devices;
use crate::rng::Rng;
use crate::search::{Failure, Recovered, Run, SearchResult, Subject, recover_guarded};

const SECTOR_BYTES: usize = 512;
/// The number of sectors in a page.
const PAGE_SECTORS: u64 = 8;

/// The results for damaged images.
#[derive(Debug, Clone, Default)]
pub struct Verdicts {
    /// Opening failed with an error.
    pub refused: usize,
    /// The check or a read reported damage.
    pub reported: usize,
    /// The full state was shown and nothing was reported. The damage was repaired, or it was in unused bytes.
    pub harmless: usize,
    /// An older state was shown.
    pub older: usize,
    /// The failures.
    pub found: SearchResult,
}

/// The number of damaged images for each cut.
const IMAGES_PER_CUT: usize = 10;

/// Tries `images` damaged images of the files of a run, at its end and at earlier moments.
pub fn damage(subject: &dyn Subject, run: &Run, seed: u64, images: usize) -> Verdicts {
    let mut rng = Rng::new(seed);
    let mut verdicts = Verdicts::default();
    let mut image = 0;
    while image < images {
        let cut = if image == 0 { run.end() } else { run.end() / 4 + 1 + rng.below(run.end() * 3 / 4) };
        let (old, new) = (run.image_at(cut / 8 * 7), run.image_at(cut));
        let states = &run.digests()[..=run.span_at(cut).begun];
        for _ in 0..IMAGES_PER_CUT.min(images - image) {
            image += 1;
            let Some((what, devices)) = spoil(&old, &new, &mut rng) else { continue };
            verdicts.found.images += 1;
            if let Err(what) = verdicts.count(recover_guarded(subject, &devices), states, &what) {
                let what = format!("seed {seed}, image {image} (cut {cut}), {what}");
                verdicts.found.failures.push(Failure { image, what });
                return verdicts;
            }
        }
    }
    verdicts
}

impl Verdicts {
    /// Counts the result of an image. Returns an error if it is a failure. `states` are all states that ever
    /// existed.
    fn count(
        &mut self,
        recovered: Result<Recovered, String>,
        states: &[u64],
        what: &str,
    ) -> Result<(), String> {
        match recovered {
            Err(error) if error.starts_with(crate::PANIC) => return Err(format!("{what}: {error}")),
            Err(_) => self.refused += 1,
            Ok(recovered) if !recovered.damages.is_empty() => self.reported += 1,
            Ok(recovered) => match states.iter().rposition(|digest| *digest == recovered.digest) {
                Some(number) if number + 1 == states.len() => self.harmless += 1,
                Some(_) => self.older += 1,
                None => return Err(format!("{what}: a state that never was, unreported")),
            },
        }
        Ok(())
    }
}

/// The files of each device.
type Files = [Vec<(String, MemoryImage)>];

fn sector(image: &MemoryImage, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR_BYTES];
    image.read(number * SECTOR_BYTES as u64, &mut bytes);
    bytes
}

fn is_home(name: &str) -> bool {
    name == "data.varve" || name == "rollback.varve"
}

/// Returns the sectors of the page to which a sector belongs.
fn page(image: &MemoryImage, number: u64) -> Vec<Vec<u8>> {
    let first = number / PAGE_SECTORS * PAGE_SECTORS;
    (first..first + PAGE_SECTORS).map(|number| sector(image, number)).collect()
}

/// Returns the new files with one damaged sector, and a description of the damage.
fn spoil(old: &Files, new: &Files, rng: &mut Rng) -> Option<(String, Devices)> {
    let mut files = new.to_vec();
    let of_device = |(device, files): (usize, &Vec<_>)| (0..files.len()).map(move |file| (device, file));
    let all: Vec<(usize, usize)> = files.iter().enumerate().flat_map(of_device).collect();
    let home: Vec<(usize, usize)> =
        all.iter().copied().filter(|(device, file)| is_home(&files[*device][*file].0)).collect();
    let among = if rng.one_in(2) { &home } else { &all };
    let (device, file) = *among.get(rng.below(among.len().max(1) as u64) as usize)?;
    let (name, image) = files.get_mut(device)?.get_mut(file)?;
    let sectors = image.len_bytes() / SECTOR_BYTES as u64;
    let before = old.get(device)?.iter().find(|(before, _)| before == name).map(|(_, before)| before);
    let is_fresh = |at: u64| is_home(name) && before.is_none_or(|before| page(before, at) != page(image, at));
    let some: Vec<u64> = (0..50).map(|_| rng.below(sectors.max(1))).collect();
    let used = || some.iter().filter(|at| sector(image, **at).iter().any(|byte| *byte != 0));
    let number = *used().find(|at| is_fresh(**at)).or_else(|| used().next())?;
    let mut bytes = sector(image, number);
    let how = match rng.below(4) {
        0 => {
            bytes.fill(0);
            "zeroed"
        }
        1 if !number.is_multiple_of(PAGE_SECTORS) || name.starts_with("log") => {
            bytes = sector(before?, number);
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
