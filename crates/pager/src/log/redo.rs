//! The operations of log records on pages. The same function makes a change in normal work and repeats it in
//! redo.
//!
//! Invariants
//! 1. The result of an operation depends only on the page's bytes and the record's payload.
//! 2. A format or image record sets the whole page. So redo that begins with such a record does not need a
//!    valid page.
//!
//! The pager's operations have the numbers 0 to 15. The engine's begin at `FIRST_ENGINE_OP`.
//!
//! | operation | payload |
//! |---|---|
//! | 3 format | kind (1 byte), varint owner: empty body, header as given, the rest zero |
//! | 4 write | varint offset, bytes: overwrites them |
//! | 5 image | bytes 18..32 of the header, varint hole offset, varint hole length, then the body around the hole |
//!
//! Operations 1 and 2 change no page (`log/record.rs`). The hole of an image is a run of zeros. Its offset
//! counts from the start of the body.
//!
//! This module does not know keys, rows or the log.

use crate::base::ids::PageId;
use crate::base::page::{self, PAGE_HEADER_BYTES};
use crate::log::record::{put_varint, take_bytes, take_varint};

/// A redo operation could not be applied.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct RedoError(pub String);

/// The functions through which the pager learns about the engine's pages. Above all, they say how the
/// engine's redo operations (`op >= 16`) change a page.
pub trait RedoOps: Send + Sync {
    /// Applies `op` with `payload` to the bytes of the whole page.
    fn apply(&self, op: u8, page: &mut [u8], payload: &[u8]) -> Result<(), RedoError>;

    /// Returns the kinds of pages for which the flash cache counts hits and misses. Each kind has the names
    /// of the two counters.
    fn counted_kinds(&self) -> &'static [[&'static str; 2]] {
        &[]
    }

    /// Returns the index of this page's kind in [`counted_kinds`](Self::counted_kinds). The page may be any
    /// page.
    fn counted_kind(&self, _page: &[u8]) -> usize {
        0
    }
}

/// The first number of an operation that belongs to the engine.
pub const FIRST_ENGINE_OP: u8 = 16;

pub(crate) const OP_FORMAT: u8 = 3;
pub(crate) const OP_WRITE: u8 = 4;
pub(crate) const OP_IMAGE: u8 = 5;

/// The first byte of the page header that an image contains. The bytes before it are identity, LSN and
/// checksum.
const IMAGE_FROM: usize = 18;

/// Returns whether the operation sets the whole page, so that the old content is not needed.
pub(crate) fn is_whole_page(op: u8) -> bool {
    op == OP_FORMAT || op == OP_IMAGE
}

/// Applies any operation to the page `id`.
pub(crate) fn apply(
    ops: &dyn RedoOps,
    id: PageId,
    page: &mut [u8],
    op: u8,
    payload: &[u8],
) -> Result<(), RedoError> {
    let done = match op {
        OP_FORMAT => apply_format(id, page, payload),
        OP_WRITE => apply_write(page, payload),
        OP_IMAGE => apply_image(id, page, payload),
        op if op >= FIRST_ENGINE_OP => return ops.apply(op, page, payload),
        _ => None,
    };
    done.ok_or_else(|| RedoError(format!("operation {op} with {} bytes makes no sense", payload.len())))
}

/// Writes a format payload to `out`.
pub(crate) fn put_format(out: &mut Vec<u8>, kind: u8, owner: u32) {
    out.push(kind);
    put_varint(out, u64::from(owner));
}

fn apply_format(id: PageId, page: &mut [u8], payload: &[u8]) -> Option<()> {
    let (kind, mut rest) = payload.split_first()?;
    let owner = u32::try_from(take_varint(&mut rest)?).ok()?;
    page::format(page, id, *kind, owner);
    rest.is_empty().then_some(())
}

fn apply_write(page: &mut [u8], mut payload: &[u8]) -> Option<()> {
    let offset = usize::try_from(take_varint(&mut payload)?).ok()?;
    if offset < PAGE_HEADER_BYTES {
        return None;
    }
    page.get_mut(offset..offset.checked_add(payload.len())?)?.copy_from_slice(payload);
    Some(())
}

/// Writes to `out` the payload that makes any page look like `page`.
pub(crate) fn put_image(out: &mut Vec<u8>, page: &[u8]) {
    let body = &page[PAGE_HEADER_BYTES..];
    let (hole, hole_bytes) = longest_zero_run(body);
    out.extend_from_slice(&page[IMAGE_FROM..PAGE_HEADER_BYTES]);
    put_varint(out, hole as u64);
    put_varint(out, hole_bytes as u64);
    out.extend_from_slice(&body[..hole]);
    out.extend_from_slice(&body[hole + hole_bytes..]);
}

fn apply_image(id: PageId, page: &mut [u8], mut payload: &[u8]) -> Option<()> {
    let header = take_bytes(&mut payload, (PAGE_HEADER_BYTES - IMAGE_FROM) as u64)?;
    let hole = usize::try_from(take_varint(&mut payload)?).ok()?;
    let hole_bytes = usize::try_from(take_varint(&mut payload)?).ok()?;
    let body_bytes = page.len() - PAGE_HEADER_BYTES;
    if payload.len().checked_add(hole_bytes)? != body_bytes || hole > payload.len() {
        return None;
    }
    page::format(page, id, 0, 0);
    page[IMAGE_FROM..PAGE_HEADER_BYTES].copy_from_slice(header);
    let body = &mut page[PAGE_HEADER_BYTES..];
    body[..hole].copy_from_slice(&payload[..hole]);
    body[hole + hole_bytes..].copy_from_slice(&payload[hole..]);
    Some(())
}

/// Returns the start and length of the longest run of zero words. A page with rows has such a run between its
/// slots and its rows.
fn longest_zero_run(body: &[u8]) -> (usize, usize) {
    const WORD: usize = 8;
    let mut best = (0, 0);
    let mut run = (0, 0);
    for (i, word) in body.chunks_exact(WORD).enumerate() {
        if word != [0; WORD] {
            run = ((i + 1) * WORD, 0);
            continue;
        }
        run.1 += WORD;
        if run.1 > best.1 {
            best = run;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{PageNo, SpaceId};

    struct NoOps;
    impl RedoOps for NoOps {
        fn apply(&self, op: u8, _page: &mut [u8], _payload: &[u8]) -> Result<(), RedoError> {
            Err(RedoError(format!("no operation {op}")))
        }
    }

    const ID: PageId = PageId::new(SpaceId::DATA, PageNo(7));

    fn redo(page: &mut [u8], op: u8, payload: &[u8]) -> Result<(), RedoError> {
        apply(&NoOps, ID, page, op, payload)
    }

    #[test]
    fn an_image_makes_any_page_equal() {
        let mut page = vec![0_u8; 4096];
        page::format(&mut page, ID, 20, 9);
        page[40..50].fill(3);
        page[4000..4096].fill(4);
        let mut payload = Vec::new();
        put_image(&mut payload, &page);
        assert!(payload.len() < 200, "the hole is left out");
        let mut other = vec![0xEE_u8; 4096];
        redo(&mut other, OP_IMAGE, &payload).unwrap();
        page::set_page_lsn(&mut other, page::page_lsn(&page));
        assert_eq!(page[4..], other[4..]);
    }

    #[test]
    fn images_without_zeros_and_of_zeros_work() {
        for fill in [0_u8, 1] {
            let mut page = vec![fill; 4096];
            page[..PAGE_HEADER_BYTES].fill(0);
            let mut payload = Vec::new();
            put_image(&mut payload, &page);
            let mut other = vec![2_u8; 4096];
            redo(&mut other, OP_IMAGE, &payload).unwrap();
            assert_eq!(page[PAGE_HEADER_BYTES..], other[PAGE_HEADER_BYTES..]);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let mut page = vec![0_u8; 4096];
        assert!(redo(&mut page, OP_WRITE, &[0xFF, 0x1F, 1, 2]).is_err(), "over the end");
        assert!(redo(&mut page, OP_WRITE, &[4, 1]).is_err(), "the header");
        assert!(redo(&mut page, OP_IMAGE, &[0; 30]).is_err(), "wrong length");
        assert!(redo(&mut page, 9, &[]).is_err(), "no such operation");
        assert!(redo(&mut page, OP_FORMAT, &[]).is_err(), "empty");
    }
}
