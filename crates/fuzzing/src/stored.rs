//! Fuzzes pages as they are stored: the compression of a page, its decompression, and the decoding of any
//! bytes as a stored page.
//!
//! The input has these fields, in this order:
//!
//! | field | bytes |
//! |---|---|
//! | space, page number | 2, 4 |
//! | algorithm and level of the compression | 1, 1 |
//! | the page, as runs (see `input.rs`) | runs |
//! | changes of the stored page: offset, value that is combined by XOR | 2, 1 each |
//! | an offset after the end of the stored page, which ends the changes | 2 |
//! | checksum: 0 corrects it | 1 |
//! | bytes that replace the compressed data | rest |

use varve_pager::page::{self, FIRST_ENGINE_KIND, PageDamage};
use varve_pager::{Algorithm, Compression, PageId, PageNo, SpaceId, fuzzing};

use crate::input::{Input, PAGE_BYTES};

const SECTOR_BYTES: usize = 512;
const HEADER_BYTES: usize = 40;
const LENGTH: usize = 28;
const FLAGS: usize = 19;
const OWNER: u32 = 16;

/// Checks that a stored page is decoded to the original page, and that other bytes are refused or are a valid
/// stored page.
pub fn stored_page(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let id = PageId::new(SpaceId(1 + input.u16() % 2), PageNo(input.u32()));
    let how = compression(&mut input);
    let mut page = input.page();
    let body = page[32..].to_vec();
    page::format(&mut page, id, FIRST_ENGINE_KIND, OWNER);
    page[32..].copy_from_slice(&body);
    page::seal(&mut page);
    let stored = fuzzing::encode(id, &page, how, SECTOR_BYTES);
    assert!(
        stored.len() <= PAGE_BYTES && stored.len().is_multiple_of(SECTOR_BYTES),
        "{how:?}: whole sectors"
    );
    assert_eq!(
        fuzzing::decode(id, &stored, PAGE_BYTES).as_ref(),
        Ok(&page),
        "{how:?}: another page comes back"
    );
    changed(id, stored.clone(), &page, &mut input);
    foreign(id, stored, &mut input);
}

fn compression(input: &mut Input<'_>) -> Compression {
    let algorithm = Algorithm::of_code(input.byte() % 8).unwrap_or_default();
    Compression { algorithm, level: input.byte() % (algorithm.levels().end() + 1) }
}

/// Checks that a change is reported as damage, if it is within the stored bytes.
fn changed(id: PageId, mut stored: Vec<u8>, page: &Vec<u8>, input: &mut Input<'_>) {
    while !input.is_empty() {
        let at = usize::from(input.u16());
        let Some(byte) = stored.get_mut(at) else { break };
        *byte ^= input.byte();
    }
    if let Ok(found) = fuzzing::decode(id, &stored, PAGE_BYTES) {
        assert_eq!(&found, page, "a change gives another page");
    }
}

/// Checks bytes that no codec has made, with a right checksum. They are only accepted if the decoded page has
/// a right checksum, too.
fn foreign(id: PageId, mut stored: Vec<u8>, input: &mut Input<'_>) {
    let keeps_checksum = input.byte() != 0;
    if stored[FLAGS] == 0 {
        return;
    }
    let count = input.bytes(stored.len() - HEADER_BYTES);
    stored[HEADER_BYTES..HEADER_BYTES + count.len()].copy_from_slice(count);
    if !count.is_empty() {
        stored[LENGTH..HEADER_BYTES - 8].copy_from_slice(&(count.len() as u32).to_le_bytes());
    }
    if !keeps_checksum {
        let says = stored[LENGTH..LENGTH + 4].try_into().map_or(0, u32::from_le_bytes) as usize;
        let checksum = crc32c::crc32c(&stored[4..(HEADER_BYTES + says).min(stored.len())]);
        stored[..4].copy_from_slice(&checksum.to_le_bytes());
    }
    match fuzzing::decode(id, &stored, PAGE_BYTES) {
        Ok(page) => assert_eq!(page::verify(&page, id), Ok(()), "what is handed up is whole"),
        Err(PageDamage::Zero) => panic!("a compressed page is not nothing"),
        Err(_) => {}
    }
}
