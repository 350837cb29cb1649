//! Storage of rows that are too large for a leaf. Such a row is in a chain of pages of the tree's segment.
//! The leaf has an overflow pointer with the address of the chain.
//!
//! Page, after the pager's header (little endian): next page number u32 (0 = last), data bytes u32, data.
//!
//! Overflow pointer (little endian): head u8 (`row::EXTERNAL` and the layout version), payload bytes u32,
//! first page number u32.
//!
//! Invariants
//! 1. A chain is complete before its overflow pointer is put into a leaf. After that it is never changed,
//!    only freed.
//! 2. The mini-transaction that allocates a page of a chain also links it, so the first page leads to all
//!    others. The mini-transaction of `begin` also writes an undo record that names the first page.
//! 3. A chain is freed from its front, page by page, even if it is incomplete.
//!
//! This module does not know when a chain is no longer needed. Rollback and purge know it.

use varve_device::reached;
use varve_pager::{Access, H, Mtr, PageId, PageNo, Pager, page};

use crate::fixed;
use crate::node::KIND_OVERFLOW;
use crate::row::{EXTERNAL, ROW_BYTES_MAX, ROW_LAYOUT};
use crate::tree::{Checker, Tree, TreeError, TreeResult};

const NEXT: usize = 32;
const LENGTH: usize = 36;
const DATA: usize = 40;
/// Length of an overflow pointer in bytes.
pub const POINTER_BYTES: usize = 9;
/// The number of pages that are reserved in a space together.
const RESERVE_PAGES: usize = 64;

/// Returns whether a payload is the overflow pointer of a chain.
#[inline]
pub fn is_pointer(payload: &[u8]) -> bool {
    payload.first().is_some_and(|head| head & EXTERNAL != 0)
}

/// Returns whether a payload of this length, with a key of this length, is stored in a chain.
pub fn must_spill(pager: &Pager, key_bytes: usize, payload_bytes: usize) -> bool {
    payload_bytes > crate::node::payload_bytes_max(pager.page_size(), key_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(fixed::bytes_at(bytes, at))
}

/// Allocates the empty first page in the caller's mini-transaction, before its first change. The caller must
/// have reserved one page with `Pager::reserve`.
pub fn begin(mtr: &mut Mtr<'_>, tree: &Tree) -> TreeResult<PageId> {
    let first = mtr.allocate(tree.root().space(), tree.owner(), None)?;
    mtr.create(first, KIND_OVERFLOW, tree.owner())?;
    Ok(first)
}

/// Fills the chain, in its own mini-transactions. Returns the overflow pointer for the leaf. The caller must
/// hold no latch.
pub fn fill(pager: &Pager, tree: &Tree, first: PageId, payload: &[u8]) -> TreeResult<Vec<u8>> {
    assert!(payload.len() <= ROW_BYTES_MAX, "a payload of {} bytes is no row", payload.len());
    reached("overflow: chain written");
    let room = pager.page_size() - DATA;
    let mut last = first;
    for (index, part) in payload.chunks(room).enumerate() {
        if index % RESERVE_PAGES == 0 {
            pager.reserve(first.space(), RESERVE_PAGES as u32)?;
        }
        last = add(pager, tree, last, part, index == 0)?;
    }
    Ok(pointer(payload.len(), first))
}

/// Writes a part into the first page, or into a new page after `last`. Returns the page.
fn add(pager: &Pager, tree: &Tree, last: PageId, part: &[u8], is_first: bool) -> TreeResult<PageId> {
    let mut mtr = pager.begin()?;
    let held = latch(&mut mtr, tree, last)?;
    if is_first {
        write_part(&mut mtr, held, part);
        mtr.commit();
        return Ok(last);
    }
    let next = mtr.allocate(last.space(), tree.owner(), Some(last))?;
    let page = mtr.create(next, KIND_OVERFLOW, tree.owner())?;
    write_part(&mut mtr, page, part);
    mtr.write(held, NEXT, &next.no().0.to_le_bytes());
    mtr.commit();
    Ok(next)
}

fn write_part(mtr: &mut Mtr<'_>, page: H, part: &[u8]) {
    let mut bytes = Vec::with_capacity(4 + part.len());
    bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
    bytes.extend_from_slice(part);
    mtr.write(page, LENGTH, &bytes);
}

fn latch(mtr: &mut Mtr<'_>, tree: &Tree, id: PageId) -> TreeResult<H> {
    let held = mtr.x(id)?;
    check_page(mtr.page(held), id, Some(tree.owner()))?;
    Ok(held)
}

fn check_page(bytes: &[u8], id: PageId, owner: Option<u32>) -> TreeResult<()> {
    let own = owner.is_none_or(|owner| page::page_owner(bytes) == owner);
    let sound = page::page_kind(bytes) == KIND_OVERFLOW
        && own
        && u32_at(bytes, LENGTH) as usize <= bytes.len() - DATA;
    if sound {
        return Ok(());
    }
    Err(TreeError::Damaged { page: id, what: "it is not the overflow page that a row refers to".into() })
}

fn pointer(payload_bytes: usize, first: PageId) -> Vec<u8> {
    let mut out = vec![ROW_LAYOUT | EXTERNAL];
    out.extend_from_slice(&(payload_bytes as u32).to_le_bytes());
    out.extend_from_slice(&first.no().0.to_le_bytes());
    debug_assert_eq!(out.len(), POINTER_BYTES);
    out
}

/// Returns the first page of the chain to which an overflow pointer in a tree of `tree`'s space refers.
pub fn first_page(tree: &Tree, pointer: &[u8]) -> PageId {
    assert!(is_pointer(pointer) && pointer.len() == POINTER_BYTES, "not an overflow pointer");
    PageId::new(tree.root().space(), PageNo(u32_at(pointer, 5)))
}

/// Checks that an overflow pointer can be followed, because a damaged leaf may have a payload with the flag
/// EXTERNAL.
fn check_pointer(tree: &Tree, pointer: &[u8]) -> TreeResult<()> {
    let length = pointer.get(1..5).map(|_| payload_bytes(pointer));
    if pointer.len() == POINTER_BYTES
        && is_pointer(pointer)
        && length.is_some_and(|length| length <= ROW_BYTES_MAX)
    {
        return Ok(());
    }
    let what = "a row of this tree is neither there nor says where it is".into();
    Err(TreeError::Damaged { page: tree.root(), what })
}

/// Returns whether the chain to which an overflow pointer refers begins with this page.
pub(crate) fn begins_at(pointer: &[u8], page: PageNo) -> bool {
    pointer.len() == POINTER_BYTES && u32_at(pointer, 5) == page.0
}

/// Returns the length of the payload to which an overflow pointer refers.
pub fn payload_bytes(pointer: &[u8]) -> usize {
    u32_at(pointer, 1) as usize
}

/// Appends the payload to which an overflow pointer refers to `out`.
pub fn read(pager: &Pager, tree: &Tree, pointer: &[u8], out: &mut Vec<u8>) -> TreeResult<()> {
    check_pointer(tree, pointer)?;
    let end = out.len() + payload_bytes(pointer);
    let mut id = first_page(tree, pointer);
    while out.len() < end {
        let page = pager.fix_s(id, Access::Sequential)?;
        check_page(&page, id, Some(tree.owner()))?;
        let bytes = u32_at(&page, LENGTH) as usize;
        let next = u32_at(&page, NEXT);
        out.extend_from_slice(&page[DATA..DATA + bytes]);
        if out.len() > end || (out.len() < end && next == 0) || bytes == 0 {
            let what = "its chain of overflow pages is not as long as its row says".into();
            return Err(TreeError::Damaged { page: id, what });
        }
        id = PageId::new(id.space(), PageNo(next));
    }
    Ok(())
}

/// Frees the first page of a chain in the caller's mini-transaction, before its first change, and returns the
/// page that is the first one then. The caller stores this page in the same mini-transaction. So a crash
/// neither leaks a page nor frees it twice.
pub fn free_first(mtr: &mut Mtr<'_>, tree: &Tree, first: PageId) -> TreeResult<Option<PageId>> {
    let held = latch(mtr, tree, first)?;
    let next = u32_at(mtr.page(held), NEXT);
    mtr.free(first)?;
    Ok((next != 0).then(|| PageId::new(first.space(), PageNo(next))))
}

/// Claims the pages of a chain and checks that it is as long as its overflow pointer says.
pub fn check(pager: &Pager, tree: &Tree, pointer: &[u8], checker: &mut Checker) {
    if let Err(error) = check_pointer(tree, pointer) {
        return checker.damage(error.to_string());
    }
    let mut id = first_page(tree, pointer);
    let mut bytes_left = payload_bytes(pointer);
    loop {
        if !checker.claim(id, tree.owner()) {
            return;
        }
        let seen = pager.fix_s(id, Access::Sequential).map_err(TreeError::from).and_then(|page| {
            check_page(&page, id, Some(tree.owner()))?;
            Ok((u32_at(&page, NEXT), u32_at(&page, LENGTH) as usize))
        });
        match seen {
            Err(error) => return checker.damage(error.to_string()),
            Ok((0, bytes)) if bytes == bytes_left => return,
            Ok((next, bytes)) if next != 0 && bytes < bytes_left => {
                bytes_left -= bytes;
                id = PageId::new(id.space(), PageNo(next));
            }
            Ok(_) => return checker.damage(format!("the overflow chain at page {id} has the wrong length")),
        }
    }
}
