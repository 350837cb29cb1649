//! Lanes. Before a publication (several changes that are atomic in a crash) makes its changes, it stores them
//! as steps in a lane.
//!
//! A lane is 256 bytes, one block of the medium. At most one publication uses it at a time.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | seal: bits 0..32 crc32c of the steps; bits 32..64 number of steps, 1 to 15; 0 = no publication |
//! | 8 | 8 | zeros |
//! | 16 | 16 each | steps: kind of the step (highest byte) and offset of a word (7 bytes); a value |
//!
//! A step sets bits of the word (1), clears bits (2), or stores the value (3). Steps can be repeated. So
//! recovery repeats all steps of a lane with a valid seal, like a redo log.
//!
//! Invariants
//! 1. If the seal of a lane is valid, the lane has all its steps. The seal is durable before the first step
//!    changes a word. The changes of all steps are durable before the seal is cleared.
//! 2. The cleared seal is durable before the publication returns. Otherwise recovery could repeat a step
//!    after another thread has changed the same word durably.
//!
//! This module does not know the meaning of the words.

use varve_device::{Region, WORD_BYTES};

use crate::error::{MemoryError, Result};
use crate::layout::{LANE_BYTES, LANES, Layout, get_u64};
use crate::sizes::STEPS_MAX;

const STEPS_AT: usize = 16;
const STEP_BYTES: usize = 16;
const OFFSET_BITS: u32 = 56;

/// One change of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Sets bits.
    Set { at: u64, bits: u64 },
    /// Clears bits.
    Clear { at: u64, bits: u64 },
    /// Stores a value.
    Store { at: u64, value: u64 },
}

impl Change {
    fn encode(self) -> [u64; 2] {
        let (what, at, value) = match self {
            Change::Set { at, bits } => (1, at, bits),
            Change::Clear { at, bits } => (2, at, bits),
            Change::Store { at, value } => (3, at, value),
        };
        [what << OFFSET_BITS | at, value]
    }

    fn decode(head: u64, value: u64, layout: &Layout) -> Option<Change> {
        let at = head & ((1 << OFFSET_BITS) - 1);
        let found = match head >> OFFSET_BITS {
            1 => Change::Set { at, bits: value },
            2 => Change::Clear { at, bits: value },
            3 => Change::Store { at, value },
            _ => return None,
        };
        let is_possible = match found {
            Change::Store { .. } => layout.is_published(at),
            _ => layout.is_in_bitmaps(at),
        };
        (is_possible && at.is_multiple_of(WORD_BYTES as u64)).then_some(found)
    }

    /// Makes the change, and begins to write it back.
    fn redo(self, region: &dyn Region) {
        let (at, value) = match self {
            Change::Set { at, bits } => (at, region.load_word(at) | bits),
            Change::Clear { at, bits } => (at, region.load_word(at) & !bits),
            Change::Store { at, value } => (at, value),
        };
        store_back(region, at, value);
    }
}

/// Stores a word, and begins to write it back.
pub(crate) fn store_back(region: &dyn Region, at: u64, value: u64) {
    region.store_word(at, value);
    region.write_back(at, WORD_BYTES as u64);
}

/// Stores 1 to 15 changes in a lane and seals it, durably. From then on, recovery makes all these changes
/// after a crash.
pub(crate) fn seal(region: &dyn Region, lane_at: u64, changes: &[Change]) {
    let mut bytes = [0; LANE_BYTES];
    let places = bytes.chunks_exact_mut(WORD_BYTES).skip(STEPS_AT / WORD_BYTES);
    let words = changes.iter().flat_map(|change| change.encode());
    places.zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
    let end = STEPS_AT + changes.len() * STEP_BYTES;
    let seal = seal_of(&bytes, changes.len());
    if let Some(place) = bytes.first_chunk_mut() {
        *place = seal.to_le_bytes();
    }
    region.store(lane_at, bytes.get(..end).unwrap_or(&bytes));
    region.persist(lane_at, end as u64);
}

fn seal_of(bytes: &[u8; LANE_BYTES], count: usize) -> u64 {
    let steps = bytes.get(STEPS_AT..STEPS_AT + count * STEP_BYTES).unwrap_or_default();
    u64::from(crc32c::crc32c(steps)) | (count as u64) << 32
}

/// Clears a lane durably.
pub(crate) fn clear(region: &dyn Region, lane_at: u64) {
    store_back(region, lane_at, 0);
    region.fence();
}

/// Repeats the changes of all sealed lanes, and clears the lanes. If a crash interrupts recovery, the next
/// recovery repeats it.
pub(crate) fn recover(region: &dyn Region, layout: &Layout) -> Result<()> {
    let used: Vec<(u64, [u8; LANE_BYTES])> = (0..LANES)
        .map(|lane| {
            let mut bytes = [0; LANE_BYTES];
            region.read(layout.lane_at(lane), &mut bytes);
            (layout.lane_at(lane), bytes)
        })
        .filter(|(_, bytes)| get_u64(bytes, 0) != 0)
        .collect();
    if used.is_empty() {
        return Ok(());
    }
    let mut changes = Vec::new();
    for (at, bytes) in &used {
        changes.extend(read(*at, bytes, layout)?);
    }
    changes.into_iter().for_each(|change| change.redo(region));
    region.fence();
    // A lane with an invalid seal is cleared, too. A crash left it half written, and the steps of a later
    // publication could make this seal valid.
    used.iter().for_each(|(at, _)| store_back(region, *at, 0));
    region.fence();
    Ok(())
}

/// Returns the changes of a lane. If the lane is not sealed, there are none.
fn read(at: u64, bytes: &[u8; LANE_BYTES], layout: &Layout) -> Result<Vec<Change>> {
    let seal = get_u64(bytes, 0);
    let count = (seal >> 32) as usize;
    if !(1..=STEPS_MAX).contains(&count) || seal_of(bytes, count) != seal {
        return Ok(Vec::new());
    }
    let step = |step: usize| {
        let from = STEPS_AT + step * STEP_BYTES;
        Change::decode(get_u64(bytes, from), get_u64(bytes, from + WORD_BYTES), layout)
    };
    let changes: Option<Vec<Change>> = (0..count).map(step).collect();
    changes.ok_or(MemoryError::Damaged { what: "a lane, whose steps cannot be", at })
}
