//! Gives the fuzz tests in `crates/fuzzing` access to private formats. It is built only with the feature
//! `fuzzing`.
//!
//! 1. Each function takes bytes as they could be in a page, and calls the unchanged code that reads them. It
//!    panics only if decoded bytes, encoded again, differ.

use crate::catalog::codec;
use crate::root;
use crate::undo::page::{self, HeaderPage, UndoPage};
use crate::undo::{Record, RecordRef};

/// Reads a page in every way in which a page of the rollback space is read. Returns the number of bytes of
/// its records.
pub fn undo_page(bytes: &[u8], slots: &[u32]) -> usize {
    let mut seen = page::listed(bytes).map_or(0, |listed| listed.len());
    if let Some(header) = HeaderPage::new(bytes) {
        seen += usize::from(header.is_active()) + (header.txn() as usize & 1);
        std::hint::black_box((header.head(), header.tail(), header.start()));
    }
    let Some(undo) = UndoPage::new(bytes) else { return seen };
    std::hint::black_box((undo.previous(), undo.next(), undo.free_bytes()));
    for record in slots.iter().filter_map(|slot| undo.record(*slot)) {
        seen += record.len();
        undo_record(record);
    }
    seen
}

/// Returns the records of a page, if it is an undo page.
pub fn undo_records(bytes: &[u8]) -> Vec<Vec<u8>> {
    let Some(undo) = UndoPage::new(bytes) else { return Vec::new() };
    (0..undo.count()).map_while(|slot| undo.record(slot)).map(<[u8]>::to_vec).collect()
}

/// Returns whether the bytes are an undo record. If they are one, checks that it is the same after encoding
/// and decoding.
pub fn undo_record(bytes: &[u8]) -> bool {
    let Some(read) = RecordRef::decode(bytes) else { return false };
    let mut again = Record::default();
    again.encode(&read);
    assert_eq!(again.decode(), Some(read), "a record comes back");
    assert!(!read.kind.is_row() || again.bytes() == bytes, "a row's record has one form");
    true
}

/// Returns whether the bytes are a definition of the catalog. If they are one, checks that it is the same
/// after encoding and decoding.
pub fn definition(bytes: &[u8]) -> bool {
    let Some(read) = codec::decode(bytes) else { return false };
    let again = codec::encode(&read);
    // Sequences also have an older encoding, which is not written any more.
    if !matches!(read, codec::Definition::Sequence(_)) {
        assert_eq!(again, bytes, "a definition has one form");
    }
    let twice = codec::decode(&again).map(|read| codec::encode(&read));
    assert_eq!(twice, Some(again), "a definition comes back");
    true
}

/// Returns whether a page is the engine's root page.
pub fn root_page(bytes: &[u8]) -> bool {
    root::decode(bytes).is_ok()
}
