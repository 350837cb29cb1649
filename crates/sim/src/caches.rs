//! Damages a flash cache as a crash may do: the cache is lost, emptied, replaced by an earlier state, a
//! mixture of two states, or has wrong bytes.
//!
//! A database must recover the same contents without its flash cache. So the damage must not change the
//! recovered contents. There is one exception. A shutdown may leave changed pages in the cache and mark the
//! cache as complete (a seal). The next start then uses the cache without reading it, so it may notice
//! damaged pages only when a query reads them. The database then stops, and the next start recovers
//! everything.
//!
//! Invariants
//! 1. The same seed does the same damage to the same crash images.

use std::sync::Arc;

use varve_device::{
    AlignedBuf, Directory, Durability, MemoryDirectory, MemoryImage, OpenHow, Purpose, Space,
};
use varve_pager::{FLASH_FILE, FlashRestart};

use crate::rng::Rng;

const BLOCK_BYTES: u64 = 4096;
/// Offsets in the cache's header: the number of frames, the way in which records are stored, and the seal.
const FRAMES_AT: usize = 24;
const HOW_AT: usize = 28;
const SEAL_AT: usize = 48;
/// The number of records in a block. The blocks of records follow the header, and the frames follow them.
const RECORDS_OF_BLOCK: u32 = 64;
/// In one of this many crashes, the cache has no additional damage.
const INTACT_EVERY: u64 = 3;

/// Returns the cache's file, if there is one.
pub(crate) fn cache_of(images: &[Arc<MemoryDirectory>]) -> Option<MemoryImage> {
    let files = images.iter().flat_map(|device| device.images());
    files.into_iter().find(|(name, _)| name == FLASH_FILE).map(|(_, image)| image)
}

/// Damages the cache, or leaves it as it is. `earlier` is an earlier state of the cache. Returns whether the
/// cache was damaged.
pub(crate) fn spoil(images: &[Arc<MemoryDirectory>], earlier: Option<&MemoryImage>, seed: u64) -> bool {
    let has_cache = |device: &&Arc<MemoryDirectory>| device.exists(FLASH_FILE).is_ok_and(|exists| exists);
    let Some(device) = images.iter().find(has_cache) else { return false };
    let mut rng = Rng::new(seed);
    if rng.one_in(INTACT_EVERY) {
        return false;
    }
    let Ok(file) = device.open(FLASH_FILE, OpenHow::existing(Space::Flash)) else { return false };
    let blocks = file.len_bytes().unwrap_or_default() / BLOCK_BYTES;
    // The cache does not check memory-mapped records against the log. So the test may lose their drive, but
    // never gives it an earlier state.
    let mut header = AlignedBuf::new(BLOCK_BYTES as usize);
    header.fill(0);
    let has_header = blocks > 0 && file.read_at(0, &mut header, Purpose::FlashMeta).is_ok();
    let is_mapped = has_header && header[HOW_AT] == FlashRestart::MemoryMapped as u8;
    let is_sealed = header[SEAL_AT..SEAL_AT + 8].iter().any(|byte| *byte != 0);
    // A sealed file without its header is like any other file. So the damage is usually in the pages that the
    // seal covers.
    let kind = if is_mapped { rng.below(3) } else { rng.below(if is_sealed { 9 } else { 6 }) };
    let done = match (kind, earlier) {
        (0, _) => device.remove(FLASH_FILE),
        (1, _) => file.set_len(0),
        // Only few blocks are damaged, so that most of the cache is used.
        (2, _) => (0..1 + rng.below(3)).try_for_each(|_| {
            let mut garbage = AlignedBuf::new(BLOCK_BYTES as usize);
            garbage.fill(rng.draw() as u8);
            file.write_at(
                rng.below(blocks.max(1)) * BLOCK_BYTES,
                &garbage,
                Purpose::FlashPage,
                Durability::Now,
            )
        }),
        (_, Some(earlier)) if blocks > 0 => {
            // The earlier state replaces all blocks, half of them, or some blocks. These are blocks of the
            // whole file, or only of the frames.
            let share = [1, 2, 8][rng.below(3) as usize];
            let frames = header[FRAMES_AT..].first_chunk().map_or(0, |frames| u32::from_le_bytes(*frames));
            let from_frames = 1 + u64::from(frames.div_ceil(RECORDS_OF_BLOCK));
            let first = if rng.one_in(2) { from_frames } else { u64::from(is_sealed) };
            let old = earlier.len_bytes() / BLOCK_BYTES;
            let each = (first..blocks.min(old)).filter(|_| rng.one_in(share)).collect::<Vec<u64>>();
            each.into_iter().try_for_each(|block| {
                let mut bytes = AlignedBuf::new(BLOCK_BYTES as usize);
                earlier.read(block * BLOCK_BYTES, &mut bytes);
                file.write_at(block * BLOCK_BYTES, &bytes, Purpose::FlashPage, Durability::Now)
            })
        }
        _ => return false,
    };
    done.expect("files in memory take everything");
    true
}

/// Returns whether the database stopped because of a wrong slot that only the flash cache had.
pub(crate) fn is_stop(error: &str) -> bool {
    error.contains("in its slot on flash")
        || error.contains("the flash cache on") && error.contains("changed pages")
}
