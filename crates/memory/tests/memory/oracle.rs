//! The expected contents of a region: the active chunks with their contents, and the roots.

use std::collections::BTreeMap;

use varve_memory::{ActiveChunk, Allocator, Owner, Pointer};

/// An active chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    pub owner: u16,
    pub len_bytes: u64,
    /// The number from which the contents of the chunk follow.
    pub tag: u64,
    /// The second word of the chunk, which publications store.
    pub link: u64,
}

/// A state of the region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub chunks: BTreeMap<Pointer, Chunk>,
    pub roots: BTreeMap<String, u64>,
}

pub const OWNERS: [u16; 3] = [0, 7, 4095];
/// The offset of the second word of a chunk.
pub const LINK_AT: u64 = 8;
/// The contents of large chunks are checked at both ends only.
const ENDS_BYTES: u64 = 256;

pub fn owner(number: u16) -> Owner {
    Owner::new(number).unwrap_or_else(|| panic!("{number} is an owner"))
}

/// Returns the places of the words of a chunk that follow from its tag.
fn words(len_bytes: u64) -> impl Iterator<Item = u64> {
    let is_checked = move |at: &u64| *at < ENDS_BYTES || *at >= len_bytes - ENDS_BYTES.min(len_bytes);
    (0..len_bytes).step_by(8).filter(is_checked).filter(|at| *at != LINK_AT)
}

fn word(tag: u64, at: u64) -> u64 {
    tag.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ at.rotate_left(40)
}

/// Stores the contents of a chunk, and begins to write them back.
pub fn fill(allocator: &Allocator, pointer: Pointer, chunk: &Chunk) {
    let region = allocator.region();
    let ends = ENDS_BYTES.min(chunk.len_bytes);
    for start in [0, chunk.len_bytes - ends] {
        let value = |at| if at == LINK_AT { chunk.link } else { word(chunk.tag, at) };
        let words = (start..start + ends).step_by(8).map(value);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        region.store_back(pointer.to_u64() + start, &bytes);
    }
}

/// Compares a region with a state. The error says what is wrong.
pub fn compare(allocator: &Allocator, state: &State) -> Result<(), String> {
    allocator.check().map_err(|error| error.to_string())?;
    let found = allocator.active_chunks().map_err(|error| error.to_string())?;
    let expected: Vec<ActiveChunk> = state
        .chunks
        .iter()
        .map(|(pointer, chunk)| ActiveChunk {
            pointer: *pointer,
            len_bytes: chunk.len_bytes,
            owner: owner(chunk.owner),
        })
        .collect();
    if found != expected {
        return Err(format!("active chunks {found:?}, not {expected:?}"));
    }
    for (pointer, chunk) in &state.chunks {
        compare_contents(allocator, *pointer, chunk)?;
    }
    for number in OWNERS {
        let of_owner = state.chunks.values().filter(|chunk| chunk.owner == number);
        let expected: u64 = of_owner.map(|chunk| chunk.len_bytes).sum();
        let used = allocator.used_bytes(owner(number)).map_err(|error| error.to_string())?;
        if used != expected {
            return Err(format!("owner {number} uses {used} bytes, not {expected}"));
        }
    }
    compare_roots(allocator, state)
}

fn compare_contents(allocator: &Allocator, pointer: Pointer, chunk: &Chunk) -> Result<(), String> {
    let region = allocator.region();
    let wrong =
        words(chunk.len_bytes).find(|at| region.load_word(pointer.to_u64() + at) != word(chunk.tag, *at));
    if let Some(at) = wrong {
        return Err(format!("{pointer}, tag {}: its word at {at} is wrong", chunk.tag));
    }
    let link = region.load_word(pointer.to_u64() + LINK_AT);
    if link == chunk.link { Ok(()) } else { Err(format!("{pointer}: link {link}, not {}", chunk.link)) }
}

fn compare_roots(allocator: &Allocator, state: &State) -> Result<(), String> {
    let names = allocator.root_names();
    let value = |name: &str| allocator.root_value(name).unwrap_or(u64::MAX);
    let found: BTreeMap<String, u64> = names.iter().map(|name| (name.to_string(), value(name))).collect();
    if found == state.roots { Ok(()) } else { Err(format!("roots {found:?}, not {:?}", state.roots)) }
}
