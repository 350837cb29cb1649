//! The log record of a discard: the content of some pages is not needed any more.
//!
//! Payload (little endian), repeated: first page id u64, number of pages u32.
//!
//! Invariants
//! 1. Redo skips every older record of a discarded page. The reason is that the pool dropped the page without
//!    writing it. So the version of the page that these records change may not exist.
//!
//! This module does not know which code drops pages, or when.

use crate::base::ids::{PageId, PageRange};

/// Kind of the note record.
pub(crate) const NOTE_DISCARD: u8 = 1;

const RANGE_BYTES: usize = 12;

/// Returns the payload for these ranges.
pub(crate) fn encode(ranges: &[PageRange]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(ranges.len() * RANGE_BYTES);
    for range in ranges {
        payload.extend_from_slice(&range.first.to_u64().to_le_bytes());
        payload.extend_from_slice(&range.count.to_le_bytes());
    }
    payload
}

/// Decodes the ranges of a payload. `None` means that the payload is not valid.
pub(crate) fn decode(payload: &[u8]) -> Option<Vec<PageRange>> {
    let ranges = payload.chunks(RANGE_BYTES).map(|bytes| {
        let first = PageId::from_u64(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?))?;
        let count = u32::from_le_bytes(bytes.get(8..)?.try_into().ok()?);
        first.no().0.checked_add(count).map(|_| PageRange { first, count })
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{PageNo, SpaceId};

    #[test]
    fn ranges_come_back_and_rubbish_does_not() {
        let range = |no, count| PageRange { first: PageId::new(SpaceId::DATA, PageNo(no)), count };
        let ranges = [range(64, 64), range(1024, 1)];
        let payload = encode(&ranges);
        assert_eq!(&payload[..12], b"\x40\0\0\0\x01\0\0\0\x40\0\0\0");
        assert_eq!(decode(&payload).as_deref(), Some(&ranges[..]));
        assert_eq!(decode(&payload[..23]), None);
        assert_eq!(decode(&[0; 12]), None);
        assert_eq!(decode(&encode(&[range(u32::MAX, 2)])), None);
    }
}
