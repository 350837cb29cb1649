//! Fuzzes the page map of a space with packed pages: the heads and pages of the map's file, and the log
//! records that change the map (notes).
//!
//! The input has six blocks: two heads, and two places for each of two map pages. A block is described by
//! runs, which overwrite some bytes of a valid block (see `input.rs`). The byte after the runs corrects the
//! block's checksum if it is 0.
//!
//! Log records follow. A log record has its kind (u8, modulo 3), the end of its group in the log (u16), and
//! these fields:
//!
//! | kind | what |
//! |---|---|
//! | 0 | addresses of pages: number of pages u8 (modulo 8); the fields below for each page |
//! |   | flags u8 (1: moved, 2: high part of the address is one) |
//! |   | page u16, LSN u16, address u16, length in units u8 |
//! | 1 | pages whose contents are discarded: first u16, count u16 |
//! | 2 | any payload of a record of addresses, after its length u8 |

use std::sync::Arc;

use varve_device::{MemoryDirectory, MemoryImage};
use varve_pager::log::record::put_varint;
use varve_pager::{Lsn, PageId, PageNo, SpaceId, fuzzing};

use crate::input::{Input, PAGE_BYTES};

const DATABASE: u64 = 77;
const BLOCK_BYTES: usize = 4096;
const BLOCKS: u64 = 6;
const HEADS: u64 = 2;
const NOTE_DISCARD: u8 = 1;
const NOTE_MAP: u8 = 3;
/// The most records of kind 2, because each of them may need a new chunk of the map.
const ANY_NOTES_MAX: usize = 2;
/// End of the log before the first note.
const LOG_END: u64 = 4096;
/// No map reaches this number of heads or checkpoints, so the target does not continue above this limit.
const COUNT_MAX: u64 = 1 << 60;
/// The length of the header block, in units.
const HEADER_UNITS: u64 = 8;

type Note = (Lsn, u8, Vec<u8>);

/// Checks that the map is refused, or that every page has its own place in the file and the next copy of the
/// map is read as the same map.
pub fn packed_map(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let Some(directory) = directory(&mut input) else { return };
    let (notes, goes_on) = notes(&mut input);
    let recover =
        |notes: &[Note]| fuzzing::recover_packed(&*directory, (DATABASE, PAGE_BYTES), notes, goes_on);
    let Ok(pages) = recover(&notes) else { return };
    let mut places: Vec<(u64, u64)> =
        pages.iter().map(|(_, address, units)| (*address, address + u64::from(*units))).collect();
    places.sort_unstable();
    assert!(places.array_windows().all(|[one, next]| one.1 <= next.0), "two pages in one place: {pages:?}");
    assert!(places.first().is_none_or(|first| first.0 >= HEADER_UNITS), "a page in the header");
    let file_units = image(&directory, "data.varve").len_bytes() / 512;
    assert!(places.last().is_none_or(|last| last.1 <= file_units), "a page outside of the file");
    if goes_on {
        assert_eq!(recover(&[]).ok(), Some(pages), "the map as it was copied");
    }
}

fn image(directory: &MemoryDirectory, name: &str) -> MemoryImage {
    let found = directory.images().into_iter().find(|(found, _)| found == name);
    found.expect("the file is there").1
}

/// Returns the files of a small space, with the map as the input says. Returns `None` if a counter in it
/// exceeds `COUNT_MAX`.
fn directory(input: &mut Input<'_>) -> Option<Arc<MemoryDirectory>> {
    let made = MemoryDirectory::new();
    fuzzing::make_packed(&*made, DATABASE, PAGE_BYTES).expect("memory takes it");
    let mut map = image(&made, "data.map.varve");
    let mut is_usual = true;
    for number in 0..BLOCKS {
        let mut block = vec![0; BLOCK_BYTES];
        map.read(number * BLOCK_BYTES as u64, &mut block);
        input.runs(&mut block);
        if input.byte() == 0 {
            seal(&mut block, number < HEADS);
        }
        map.write(number * BLOCK_BYTES as u64, &block);
        let count = |at: usize| block[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        is_usual &= number >= HEADS || count(40) < COUNT_MAX && count(48) < COUNT_MAX;
    }
    let files = made.images().into_iter().map(|(name, image)| match name.as_str() {
        "data.map.varve" => (name, map.clone()),
        _ => (name, image),
    });
    is_usual.then(|| MemoryDirectory::from_images(files))
}

/// Corrects the checksum of a block. A head ends with its checksum, and a map page begins with it.
fn seal(block: &mut [u8], is_head: bool) {
    let (at, covered) = if is_head { (BLOCK_BYTES - 4, 0..BLOCK_BYTES - 4) } else { (0, 4..BLOCK_BYTES) };
    let checksum = crc32c::crc32c(&block[covered]);
    block[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns the log records, and whether the map may be copied after them. A copy has as many map pages as the
/// largest page number needs.
fn notes(input: &mut Input<'_>) -> (Vec<Note>, bool) {
    let (mut notes, mut of_any) = (Vec::new(), 0);
    while !input.is_empty() {
        let kind = input.byte() % 3;
        let lsn = Lsn::new(LOG_END + u64::from(input.u16()));
        notes.push(match kind {
            0 => (lsn, NOTE_MAP, places(input)),
            1 => (lsn, NOTE_DISCARD, discard(input)),
            _ => {
                of_any += 1;
                (lsn, NOTE_MAP, input.piece().to_vec())
            }
        });
        if of_any == ANY_NOTES_MAX {
            break;
        }
    }
    (notes, of_any == 0)
}

fn places(input: &mut Input<'_>) -> Vec<u8> {
    let mut payload = Vec::new();
    for _ in 0..input.byte() % 8 {
        let flags = input.byte();
        let (page, lsn, address, units) = (input.u16(), input.u16(), input.u16(), input.byte());
        let address = u64::from(address) | u64::from(flags & 2) << 30;
        let fields = [u64::from(SpaceId::DATA.0), u64::from(page), u64::from(lsn), address];
        fields.into_iter().for_each(|field| put_varint(&mut payload, field));
        put_varint(&mut payload, u64::from(units) << 1 | u64::from(flags & 1));
    }
    payload
}

fn discard(input: &mut Input<'_>) -> Vec<u8> {
    let first = PageId::new(SpaceId::DATA, PageNo(u32::from(input.u16())));
    let count = u32::from(input.u16());
    [&first.to_u64().to_le_bytes()[..], &count.to_le_bytes()].concat()
}
