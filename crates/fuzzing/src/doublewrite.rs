//! Fuzzes the doublewrite file: its header, its slots, and the repair of damaged pages from the slots.
//!
//! The input has these fields, in this order. A run overwrites some bytes (see `input.rs`).
//!
//! | field | bytes |
//! |---|---|
//! | LSN at which redo starts | 8 |
//! | version of the header (lowest bit) | 1 |
//! | checksum of the header: 0 corrects it | 1 |
//! | runs over a valid header | runs |
//! | for each of four data pages: a value that damages the page unless it is 0 | 1 each |
//! | for each slot: runs over a page of zeros; a number, of which 0 corrects the checksum | runs, 1 |

use std::sync::Arc;

use varve_device::{MemoryDirectory, MemoryImage};
use varve_pager::page::{self, PageDamage};
use varve_pager::{Lsn, PageId, PageNo, PagerConfig, ProtectionKind, SpaceId, fuzzing};

use crate::input::{Input, PAGE_BYTES};

const DATA_PAGES: u32 = 4;
const BATCH_SLOTS: u32 = 3;
const SINGLE_SLOTS: u32 = 2;
const FILE_NAME: &str = "doublewrite.varve";

/// Checks that the repair fails, or that every repaired page is whole and every page that was whole is
/// unchanged.
pub fn doublewrite(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let redo_start = Lsn::new(input.u64());
    let area = area(&mut input);
    let data = data(&mut input);
    let area = slots(area, &mut input);
    let before = data.clone();
    let files = [("data.varve", data), ("rollback.varve", MemoryImage::default()), (FILE_NAME, area)];
    let directory = MemoryDirectory::from_images(files.map(|(name, image)| (name.to_owned(), image)));
    let Ok(mended) = fuzzing::repair(&config(directory.clone()), redo_start) else { return };
    let after = directory.images().into_iter().find(|(name, _)| name == "data.varve");
    let after = after.expect("the file is there").1;
    for no in 0..DATA_PAGES {
        let id = PageId::new(SpaceId::DATA, PageNo(no));
        let (old, new) = (page_of(&before, no), page_of(&after, no));
        let is_whole = fuzzing::decode(id, &new, PAGE_BYTES).is_ok();
        assert!(!mended.contains(&id) || is_whole, "{id} was mended with damage");
        assert!(page::verify(&old, id).is_err() || old == new, "{id} was whole and is another now");
    }
}

fn config(directory: Arc<MemoryDirectory>) -> PagerConfig {
    let mut config = PagerConfig::new(directory);
    config.page_size = PAGE_BYTES;
    config.protection = ProtectionKind::Doublewrite { batch_slots: BATCH_SLOTS, single_slots: SINGLE_SLOTS };
    config
}

/// Returns the header as the input says.
fn area(input: &mut Input<'_>) -> MemoryImage {
    let mut header = vec![0; PAGE_BYTES];
    header[..8].copy_from_slice(b"VARVEDBW");
    // Version 2 of the header has the id of a database, and the older version 1 has none.
    let version = 1 + u32::from(input.byte() & 1);
    for (at, field) in [version, PAGE_BYTES as u32, BATCH_SLOTS, SINGLE_SLOTS].into_iter().enumerate() {
        header[8 + 4 * at..12 + 4 * at].copy_from_slice(&field.to_le_bytes());
    }
    let keeps_checksum = input.byte() != 0;
    input.runs(&mut header);
    if !keeps_checksum {
        let end = if version == 1 { 24 } else { 32 };
        let checksum = crc32c::crc32c(&header[..end]);
        header[end..end + 4].copy_from_slice(&checksum.to_le_bytes());
    }
    let mut image = MemoryImage::default();
    image.set_len(PAGE_BYTES as u64 * u64::from(1 + BATCH_SLOTS + SINGLE_SLOTS));
    image.write(0, &header);
    image
}

fn data(input: &mut Input<'_>) -> MemoryImage {
    let mut image = MemoryImage::default();
    for no in 0..DATA_PAGES {
        let mut bytes = vec![0; PAGE_BYTES];
        page::format(&mut bytes, PageId::new(SpaceId::DATA, PageNo(no)), 20, 9);
        page::seal(&mut bytes);
        bytes[100] ^= input.byte();
        image.write(u64::from(no) * PAGE_BYTES as u64, &bytes);
    }
    image
}

fn slots(mut image: MemoryImage, input: &mut Input<'_>) -> MemoryImage {
    for slot in 1..=u64::from(BATCH_SLOTS + SINGLE_SLOTS) {
        let mut bytes = input.page();
        if input.byte() == 0 {
            page::seal(&mut bytes);
            assert!(!matches!(page::verify_checksum(&bytes), Err(PageDamage::Checksum { .. })));
        }
        image.write(slot * PAGE_BYTES as u64, &bytes);
    }
    image
}

fn page_of(image: &MemoryImage, no: u32) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_BYTES];
    image.read(u64::from(no) * PAGE_BYTES as u64, &mut bytes);
    bytes
}
