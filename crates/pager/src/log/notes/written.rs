//! The log record which says that pages were written to the data files: each page is stable there up to a
//! page LSN.
//!
//! Payload, repeated: varint space, varint page number, varint page LSN of the image.
//!
//! Invariants
//! 1. The record is appended after the images are stable. So redo may skip older changes of these pages
//!    without reading the pages (BUF_WRITE of Do 2012; other systems have "page flushed" records).
//! 2. The record is a hint. The log is not flushed for it. Without the record, recovery gives the same
//!    result, but reads more pages. There is one exception (3).
//! 3. The LSN in the last record of a page is never newer than the page in the data files. Otherwise redo
//!    would skip changes. So if a start puts an older copy there, it first stores a record of this copy
//!    durably.
//!
//! This module does not know which thread wrote the pages.

use crate::base::ids::{PageId, PageNo, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::log::record::{put_varint, take_varint};

/// Kind of the note record.
pub(crate) const NOTE_WRITTEN: u8 = 2;

/// A planted fault. With this fault the log gets no records of written pages, because these records would
/// hide nearly all effects of the fault.
pub(crate) const IMAGE_IGNORED: &str = "full-page-log: records before an image are redone on a torn page";

/// A planted fault. With this fault the log gets no records of written pages, for the same reason.
pub(crate) const BEFORE_REDO: &str = "flash: changes before redo are not looked at";

/// Returns the payload for these images.
pub(crate) fn encode(images: &[&Image]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(images.len() * 12);
    images.iter().for_each(|image| put(&mut payload, image.id(), image.lsn()));
    payload
}

/// Returns the payload for one page with this page LSN.
pub(crate) fn encode_page(id: PageId, lsn: Lsn) -> Vec<u8> {
    let mut payload = Vec::new();
    put(&mut payload, id, lsn);
    payload
}

fn put(payload: &mut Vec<u8>, id: PageId, lsn: Lsn) {
    put_varint(payload, u64::from(id.space().0));
    put_varint(payload, u64::from(id.no().0));
    put_varint(payload, lsn.get());
}

/// Decodes the pages and LSNs of a payload. `None` means that the payload is not valid.
pub(crate) fn decode(mut payload: &[u8]) -> Option<Vec<(PageId, Lsn)>> {
    let mut images = Vec::new();
    while !payload.is_empty() {
        let space = SpaceId(u16::try_from(take_varint(&mut payload)?).ok()?);
        let no = PageNo(u32::try_from(take_varint(&mut payload)?).ok()?);
        images.push((PageId::new(space, no), Lsn::new(take_varint(&mut payload)?)));
    }
    Some(images)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::Access;
    use crate::base::page;

    #[test]
    fn images_come_back_and_rubbish_does_not() {
        let id = PageId::new(SpaceId::ROLLBACK, PageNo(300));
        let mut bytes = vec![0; 4096];
        page::format(&mut bytes, id, 16, 0);
        page::set_page_lsn(&mut bytes, Lsn::new(1000));
        let image = Image::of(id, &bytes, Access::Random);
        let payload = encode(&[&image]);
        assert_eq!(payload, [2, 0xAC, 2, 0xE8, 7]);
        assert_eq!(decode(&payload), Some(vec![(id, Lsn::new(1000))]));
        assert_eq!(decode(&payload[..4]), None);
    }
}
