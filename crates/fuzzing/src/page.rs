//! Fuzzes the page header and its checksum (target `page`), and the pager's own redo operations (target
//! `page_redo`).
//!
//! The input of `page` has space (u16), number (u32), the page, kind (u8), owner (u32), and the place and
//! value of a change (u16, u8). The input of `page_redo` is a page and operations. An operation has its
//! number (u8), the length of its payload, and the payload.

use varve_engine::redo::EngineRedo;
use varve_pager::page::{self as format, PAGE_HEADER_BYTES, PageDamage};
use varve_pager::{PageId, PageNo, SpaceId, fuzzing};

use crate::input::{Input, PAGE_BYTES};

/// Checks that a page with a valid checksum is found whole and in the right place, and that it is not after a
/// change of any byte.
pub fn page(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let id = PageId::new(SpaceId(input.u16()), PageNo(input.u32()));
    let mut page = input.page();
    // Both results are right for a page without a corrected checksum.
    let _ = format::verify(&page, id);
    format::seal(&mut page);
    match format::verify(&page, id) {
        Ok(()) => assert_eq!(format::page_identity(&page), id),
        Err(PageDamage::Identity { .. }) => assert_ne!(format::page_identity(&page), id),
        Err(damage) => panic!("a sealed page is refused: {damage}"),
    }
    let lsn = format::page_lsn(&page);
    let (kind, owner) = (input.byte(), input.u32());
    format::format(&mut page, id, kind, owner);
    format::seal(&mut page);
    assert_eq!(format::verify(&page, id), Ok(()));
    assert_eq!((format::page_kind(&page), format::page_owner(&page)), (kind, owner));
    assert_eq!(format::page_lsn(&page), lsn);
    page[usize::from(input.u16()) % PAGE_BYTES] ^= input.byte() | 1;
    assert!(format::verify(&page, id).is_err(), "a changed byte goes unnoticed");
}

/// Checks that operations fit their page or are refused, and that an image turns any page into the page from
/// which it was made.
pub fn page_redo(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut page = input.page();
    let id = format::page_identity(&page);
    while !input.is_empty() {
        let (op, payload) = (input.byte() % 16, input.piece());
        // Both results are right, because the operation may not fit.
        let _ = fuzzing::redo(&EngineRedo, id, &mut page, op, payload);
        assert_eq!(format::page_identity(&page), id, "operation {op} changed the identity");
    }
    let (op, payload) = fuzzing::image(&page);
    let mut other = vec![0xEE; PAGE_BYTES];
    let done = fuzzing::redo(&EngineRedo, id, &mut other, op, &payload);
    assert!(done.is_ok(), "an image fits its page: {done:?}");
    assert_eq!(page[PAGE_HEADER_BYTES..], other[PAGE_HEADER_BYTES..], "the body comes back");
}
