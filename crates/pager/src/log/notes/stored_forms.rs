//! The log record of how owners' pages are stored. An owner is, for example, the tree of a table. Its *stored
//! form* is the compression of its pages: algorithm and level. Redo writes pages before the engine has told
//! the pager how owners are compressed, so redo needs the stored forms from the log.
//!
//! Payload, repeated: varint space, varint owner, varint form. Form 0 is the default form. Any other form is
//! 1 + code of the algorithm + 256 x level.
//!
//! Invariants
//! 1. The part of the log that redo reads has a record of all owners whose form is not the default. Each
//!    later change of a form is logged after that record, in the order of the changes.
//! 2. The record is a hint. The log is not flushed for it, and a full device may have no space for it.
//!    Without the record, redo uses the algorithm of the stored pages that it reads.
//! 3. The record does not delay the cutting of the log. If only this record needs the old part of the log,
//!    all forms are logged again at the log's end.
//! 4. If every owner has the default form, nothing is logged, and no log is kept for it.
//!
//! This module does not know what a form does to a page.

use std::collections::HashMap;

use crate::base::compression::{Algorithm, Compression};
use crate::base::ids::SpaceId;
use crate::log::record::{put_varint, take_varint};

/// Kind of the note record.
pub(crate) const NOTE_FORMS: u8 = 4;

/// The form in which an owner's pages are stored. `None` means the default.
pub(crate) type Form = (SpaceId, u32, Option<Compression>);

/// The forms in which owners' pages are stored, according to the last record of each owner.
pub(crate) type Forms = HashMap<(SpaceId, u32), Option<Compression>>;

/// Returns the payload for these owners.
pub(crate) fn encode(forms: &[Form]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(forms.len() * 6);
    for (space, owner, how) in forms {
        let form = how.map_or(0, |how| 1 + u64::from(how.algorithm.code()) + (u64::from(how.level) << 8));
        [u64::from(space.0), u64::from(*owner), form]
            .into_iter()
            .for_each(|one| put_varint(&mut payload, one));
    }
    payload
}

/// Decodes the owners of a payload. `None` means that the payload is not valid.
pub(crate) fn decode(mut payload: &[u8]) -> Option<Vec<Form>> {
    let mut forms = Vec::new();
    while !payload.is_empty() {
        let space = SpaceId(u16::try_from(take_varint(&mut payload)?).ok()?);
        let owner = u32::try_from(take_varint(&mut payload)?).ok()?;
        let how = match take_varint(&mut payload)?.checked_sub(1) {
            None => None,
            Some(form) => {
                let algorithm = Algorithm::of_code((form & 0xFF) as u8)?;
                let how = Compression { algorithm, level: u8::try_from(form >> 8).ok()? };
                Some(how).filter(|how| how.is_valid()).map(Some)?
            }
        };
        forms.push((space, owner, how));
    }
    Some(forms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_come_back_and_rubbish_does_not() {
        let zstd = Compression { algorithm: Algorithm::Zstd, level: 19 };
        let forms = [
            (SpaceId::DATA, 300, Some(zstd)),
            (SpaceId::ROLLBACK, 16, Some(Compression::NONE)),
            (SpaceId::DATA, 17, None),
        ];
        let payload = encode(&forms);
        assert_eq!(payload, [1, 0xAC, 2, 0x88, 0x26, 2, 16, 1, 1, 17, 0]);
        assert_eq!(decode(&payload).as_deref(), Some(&forms[..]));
        assert_eq!(decode(&payload[..10]), None);
        assert_eq!(decode(&[1, 16, 9]), None, "no algorithm has this code");
        assert_eq!(decode(&[1, 16, 0x82, 4]), None, "lz4 has no level 2");
        for algorithm in Algorithm::ALL {
            let form = (SpaceId::DATA, 16, Some(Compression::of(algorithm)));
            assert_eq!(decode(&encode(&[form])), Some(vec![form]));
        }
    }
}
