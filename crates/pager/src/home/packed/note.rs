//! The log record with the new places of pages in packed spaces. A place is the position of a stored page in
//! its file.
//!
//! Payload, repeated: varint space, varint page number, varint LSN, varint address of the place, varint 2 x
//! its units, plus 1 if the page was only moved.
//!
//! Invariants
//! 1. The record is appended when the new places are durable. The log is flushed up to the record before an
//!    older place of the page may be overwritten. So a crash finds one of the two places.
//! 2. A page that was written has the LSN of its image. So the record also says that the data file has the
//!    page up to this LSN (`log/notes/written.rs`). If the log has no LSN for an image, the image gets the
//!    log's end at the time when it was made. This LSN is after every discard of the page, and before every
//!    change.
//! 3. A page that was only moved has the LSN 0, because its content is the same.
//!
//! This module does not know how the record changes the map (`replay.rs`).

use super::unit_run::UnitRun;
use crate::base::ids::{PageNo, SpaceId};
use crate::base::lsn::Lsn;
use crate::log::record::{put_varint, take_varint};

/// Kind of the note record (kinds below 16 belong to the pager).
pub(crate) const NOTE_MAP: u8 = 3;

/// The largest number of pages in one note record. The record must fit into a small log segment.
pub(crate) const NOTE_PAGES_MAX: usize = 1024;

/// The entry of a note record for one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) no: PageNo,
    /// The LSN of the image, or 0 if the page was only moved.
    pub(crate) lsn: Lsn,
    pub(crate) place: UnitRun,
    pub(crate) is_moved: bool,
}

/// Returns the payload for pages of a space.
pub(crate) fn encode(space: SpaceId, pages: &[Said]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(pages.len() * 16);
    for said in pages {
        put_varint(&mut payload, u64::from(space.0));
        put_varint(&mut payload, u64::from(said.no.0));
        put_varint(&mut payload, said.lsn.get());
        put_varint(&mut payload, said.place.address());
        put_varint(&mut payload, u64::from(said.place.units()) << 1 | u64::from(said.is_moved));
    }
    payload
}

/// Decodes a payload. `None` means that it is not valid.
pub(crate) fn decode(mut payload: &[u8]) -> Option<Vec<(SpaceId, Said)>> {
    let mut pages = Vec::new();
    while !payload.is_empty() {
        pages.push(take(&mut payload)?);
    }
    Some(pages)
}

fn take(payload: &mut &[u8]) -> Option<(SpaceId, Said)> {
    let space = SpaceId(u16::try_from(take_varint(payload)?).ok()?);
    let no = PageNo(u32::try_from(take_varint(payload)?).ok()?);
    let lsn = Lsn::new(take_varint(payload)?);
    let address = take_varint(payload)?;
    let length = take_varint(payload)?;
    let place = UnitRun::new(address, u32::try_from(length >> 1).ok()?)?;
    Some((space, Said { no, lsn, place, is_moved: length & 1 == 1 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_and_rubbish_does_not() {
        let place = |address, units| UnitRun::new(address, units).unwrap();
        let written = Said { no: PageNo(300), lsn: Lsn::new(1000), place: place(0x1234, 5), is_moved: false };
        let moved = Said { no: PageNo(7), lsn: Lsn::ZERO, place: place(8, 128), is_moved: true };
        let payload = encode(SpaceId::DATA, &[written, moved]);
        assert_eq!(payload, [1, 0xAC, 2, 0xE8, 7, 0xB4, 0x24, 10, 1, 7, 0, 8, 0x81, 2]);
        assert_eq!(decode(&payload), Some(vec![(SpaceId::DATA, written), (SpaceId::DATA, moved)]));
        assert_eq!(decode(&payload[..payload.len() - 1]), None);
        assert_eq!(decode(&[1, 7, 0, 0, 10]), None, "a page in the header block");
        assert_eq!(decode(&[1, 7, 0, 8, 0]), None, "a page without length");
    }

    #[test]
    fn the_longest_note_fits_into_the_smallest_segment() {
        let place = UnitRun::new((1 << 40) - 128, 128).unwrap();
        let said = Said { no: PageNo(u32::MAX), lsn: Lsn::new(1 << 62), place, is_moved: true };
        assert!(encode(SpaceId(u16::MAX), &[said; NOTE_PAGES_MAX]).len() < 32 << 10);
    }
}
