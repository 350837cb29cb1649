//! Fuzzes a start with a region of persistent memory that has eight page slots. The start reads the region's
//! header, the headers of the slots, and the pages in the slots.
//!
//! The input has these fields, in this order. A run overwrites some bytes (see `input.rs`).
//!
//! | field | bytes |
//! |---|---|
//! | LSN up to which the log is durable | 4 |
//! | checksum of the region's header: 0 corrects it | 1 |
//! | runs over a valid header | runs |
//! | for each slot: its page number; 0 leaves the slot free, and the fields below are missing | 1 |
//! | LSN of the page | 2 |
//! | sequence number of the slot | 1 |
//! | runs over a valid page | runs |
//! | checksum of the page: 0 corrects it | 1 |
//! | runs over a valid slot header | runs |
//! | checksum of the slot header: 0 corrects it | 1 |

use std::collections::BTreeSet;
use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory, Region};
use varve_pager::{Lsn, PageId, PageNo, SpaceId, fuzzing, page};

use crate::input::{Input, PAGE_BYTES};

const SLOTS: u32 = 8;
const SLOT_HEADER_BYTES: usize = 64;
const CHECKED: std::ops::Range<usize> = 8..40;

/// Checks that the region is refused, or that each page has one complete version, and that opening the region
/// again finds the same pages.
pub fn nvm_region(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let durable = Lsn::new(u64::from(input.u32()));
    let region = region(&mut input);
    let Ok(found) = fuzzing::Slots::open(Arc::clone(&region), durable) else { return };
    let versions = found.versions();
    let pages: BTreeSet<PageId> = versions.iter().map(|(id, ..)| *id).collect();
    let slots: BTreeSet<u32> = versions.iter().map(|(_, slot, ..)| *slot).collect();
    assert!(pages.len() == versions.len() && slots.len() == versions.len(), "one slot a page: {versions:?}");
    let (all, free) = found.counts();
    assert_eq!(free + versions.len(), all, "a slot is lost");
    for (id, slot, _, lsn) in &versions {
        let read = found.read(*id).unwrap_or_else(|error| panic!("slot {slot} was taken: {error}"));
        page::verify(&read, *id).unwrap_or_else(|damage| panic!("{id}: {damage}"));
        assert!(page::page_lsn(&read) == *lsn && *lsn <= durable, "{id} at {lsn:?} in slot {slot}");
    }
    assert_eq!(found.check().ok(), Some(Vec::new()), "what a start takes, a check finds whole");
    drop(found);
    let again = reopened(&region, durable);
    assert_eq!(again.versions(), versions, "opening twice is opening once");
    assert_eq!(again.counts(), (all, free));
    put_again(&again, &versions);
    let later = reopened(&region, durable);
    let newer = later
        .versions()
        .into_iter()
        .zip(&versions)
        .all(|(now, before)| now.0 == before.0 && now.2 > before.2);
    assert!(free == 0 || newer, "a put counts more than what was there: {:?}", later.versions());
}

fn reopened(region: &Arc<dyn Region>, durable: Lsn) -> fuzzing::Slots {
    fuzzing::Slots::open(Arc::clone(region), durable).expect("it opened before")
}

/// Puts each page again without a change, if there is a free slot. The data files have no page, and have
/// space for all.
fn put_again(slots: &fuzzing::Slots, versions: &[(PageId, u32, u64, Lsn)]) {
    for (id, ..) in versions.iter().filter(|_| slots.counts().1 > 0) {
        let page = slots.read(*id).expect("it was read before");
        slots.put(*id, &page).expect("home takes everything");
    }
}

/// Returns a region as the input says.
fn region(input: &mut Input<'_>) -> Arc<dyn Region> {
    let (mut header, headers_at, pages_at, len_bytes) = fuzzing::region_header(PAGE_BYTES as u32, SLOTS);
    let keeps_checksum = input.byte() != 0;
    input.runs(&mut header);
    if !keeps_checksum {
        let (checked, checksum) = header.split_at_mut(PAGE_BYTES - 4);
        checksum.copy_from_slice(&crc32c::crc32c(checked).to_le_bytes());
    }
    let region = MemoryDirectory::new().map("nvm.varve", len_bytes).expect("memory takes it");
    region.store(0, &header);
    for slot in 0..u64::from(SLOTS) {
        if let Some((line, page)) = filled(input) {
            region.store(headers_at + slot * SLOT_HEADER_BYTES as u64, &line);
            region.store(pages_at + slot * PAGE_BYTES as u64, &page);
        }
    }
    region
}

/// Returns the header and the image of a slot.
fn filled(input: &mut Input<'_>) -> Option<([u8; SLOT_HEADER_BYTES], Vec<u8>)> {
    let no = input.byte();
    if no == 0 {
        return None;
    }
    let id = PageId::new(SpaceId::DATA, PageNo(u32::from(no)));
    let mut page = vec![0; PAGE_BYTES];
    page::format(&mut page, id, 20, 9);
    page::set_page_lsn(&mut page, Lsn::new(u64::from(input.u16())));
    let sequence = u64::from(input.byte()) + 1;
    input.runs(&mut page);
    if input.byte() == 0 {
        page::seal(&mut page);
    }
    let mut line = fuzzing::slot_header(id, sequence, &page);
    input.runs(&mut line);
    if input.byte() == 0 {
        let sequence = u64::from_le_bytes(line[..8].try_into().expect("eight bytes")) >> 8;
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&line[CHECKED]), &sequence.to_le_bytes());
        line[CHECKED.end..CHECKED.end + 4].copy_from_slice(&checksum.to_le_bytes());
    }
    Some((line, page))
}
