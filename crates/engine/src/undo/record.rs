//! The undo record.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 1 | kind |
//! | 1 | 6 | transaction that made the change |
//! | 7 | 4 | segment that owns the clustered tree (NewSegment, DropSegment: the segment itself) |
//! | 11 | 4 | first page of an overflow chain in the data space that purge (updates, Delete) or rollback (Chain) frees; 0 none |
//! | 15 | 1 | row kinds from here: flags of the entry before |
//! | 16 | 6 | its transaction |
//! | 22 | 8 | its roll pointer |
//! | 30 | 2 | length of the key |
//! | 32 | | key, then the payload before (not for Insert and Lock) |
//!
//! Invariants
//! 1. The first page of the overflow chain is at a fixed offset. So one mini-transaction can free a page of
//!    the chain and write the next page's number into the record.
//! 2. Decoding checks all lengths, because the bytes may come from an outdated roll pointer.
//!
//! This module does not know where records are stored.

use varve_pager::PageNo;

use crate::ids::TxnId;
use crate::node::Stamp;

/// Offset of the chain's page number.
pub(crate) const CHAIN_OFFSET: usize = 11;
const ROW_HEAD_BYTES: usize = 32;
const HEAD_BYTES: usize = 15;

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A row was inserted where there was no entry.
    Insert = 1,
    /// A row was replaced, or was inserted in the place of a deleted row.
    Update = 2,
    /// A row was marked as deleted.
    Delete = 3,
    /// A row was locked. Only the stamp changed.
    Lock = 4,
    /// A segment of the data space was made. A rollback drops it.
    NewSegment = 5,
    /// A segment was given up. Purge drops it.
    DropSegment = 6,
    /// An overflow chain was begun. A rollback frees it.
    Chain = 7,
    /// A row was replaced by one with the same columns in all indexes, so purge and rollback do not change
    /// index entries.
    UpdatePlain = 8,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Insert,
            2 => Self::Update,
            3 => Self::Delete,
            4 => Self::Lock,
            5 => Self::NewSegment,
            6 => Self::DropSegment,
            7 => Self::Chain,
            8 => Self::UpdatePlain,
            _ => return None,
        })
    }

    /// Returns whether the record belongs to a row.
    pub(crate) const fn is_row(self) -> bool {
        matches!(self, Self::Insert | Self::Update | Self::UpdatePlain | Self::Delete | Self::Lock)
    }
}

/// The entry before the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before<'a> {
    pub(crate) stamp: Stamp,
    /// The payload before the change. It is empty for Insert and Lock, and if the old row was deleted.
    pub(crate) payload: &'a [u8],
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordRef<'a> {
    pub(crate) kind: Kind,
    pub(crate) txn: TxnId,
    pub(crate) tree: u32,
    /// The first page of an overflow chain, in the space of the tree.
    pub(crate) chain: Option<PageNo>,
    pub(crate) key: &'a [u8],
    pub(crate) before: Before<'a>,
}

/// An encoded record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Vec<u8>);

impl Record {
    /// Encodes into this record's buffer.
    pub(crate) fn encode(&mut self, record: &RecordRef<'_>) {
        let out = &mut self.0;
        out.clear();
        out.push(record.kind as u8);
        out.extend_from_slice(&record.txn.get().to_le_bytes()[..6]);
        out.extend_from_slice(&record.tree.to_le_bytes());
        out.extend_from_slice(&record.chain.map_or(0, |no| no.0).to_le_bytes());
        if record.kind.is_row() {
            let stamp = record.before.stamp;
            out.push(stamp.flags);
            out.extend_from_slice(&stamp.txn.to_le_bytes()[..6]);
            out.extend_from_slice(&stamp.roll.to_le_bytes());
            out.extend_from_slice(&(record.key.len() as u16).to_le_bytes());
            out.extend_from_slice(record.key);
            out.extend_from_slice(record.before.payload);
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Copies encoded bytes into this record.
    pub(crate) fn copy_from(&mut self, bytes: &[u8]) {
        self.0.clear();
        self.0.extend_from_slice(bytes);
    }

    /// Returns the decoded record, or `None` if the bytes are not a record.
    pub(crate) fn decode(&self) -> Option<RecordRef<'_>> {
        RecordRef::decode(&self.0)
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut raw = [0; 8];
    raw[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(raw)
}

impl<'a> RecordRef<'a> {
    /// Returns a record that belongs to no row.
    pub(crate) const fn plain(
        kind: Kind,
        txn: TxnId,
        tree: u32,
        chain: Option<PageNo>,
    ) -> RecordRef<'static> {
        let stamp = Stamp { txn: 0, roll: 0, flags: 0 };
        RecordRef { kind, txn, tree, chain, key: &[], before: Before { stamp, payload: &[] } }
    }

    /// Reads a record. Returns `None` if the bytes are not a record.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let head = bytes.get(..HEAD_BYTES)?;
        let kind = Kind::from_byte(head[0])?;
        let txn = TxnId::new(number(&head[1..7]));
        let tree = number(&head[7..11]) as u32;
        let chain = Some(number(&head[11..15]) as u32).filter(|no| *no != 0).map(PageNo);
        if !kind.is_row() {
            return Some(Self::plain(kind, txn, tree, chain));
        }
        let row = bytes.get(HEAD_BYTES..ROW_HEAD_BYTES)?;
        let stamp = Stamp { flags: row[0], txn: number(&row[1..7]), roll: number(&row[7..15]) };
        let key_end = ROW_HEAD_BYTES + number(&row[15..17]) as usize;
        let key = bytes.get(ROW_HEAD_BYTES..key_end)?;
        let before = Before { stamp, payload: &bytes[key_end..] };
        Some(Self { kind, txn, tree, chain, key, before })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_encoding() {
        let stamp = Stamp { txn: 1 << 40, roll: 123_456_789, flags: 1 };
        let before = Before { stamp, payload: b"row" };
        let chain = Some(PageNo(7));
        let row = RecordRef { kind: Kind::Update, txn: TxnId::new(5), tree: 8, chain, key: b"key", before };
        let plain = RecordRef::plain(Kind::NewSegment, TxnId::new(5), 8, None);
        let mut record = Record::default();
        for expect in [row, plain] {
            record.encode(&expect);
            assert_eq!(record.decode(), Some(expect));
            for cut in 0..record.bytes().len().min(ROW_HEAD_BYTES + 2) {
                let cut = RecordRef::decode(&record.bytes()[..cut]);
                assert!(cut.is_none() || !expect.kind.is_row());
            }
        }
    }

    #[test]
    fn layout_snapshot() {
        let stamp = Stamp { txn: 2, roll: 3, flags: 1 };
        let before = Before { stamp, payload: b"p" };
        let mut record = Record::default();
        let row =
            RecordRef { kind: Kind::Delete, txn: TxnId::new(9), tree: 8, chain: None, key: b"k", before };
        record.encode(&row);
        let expect = [
            3, 9, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0,
            b'k', b'p',
        ];
        assert_eq!(record.bytes(), expect);
    }
}
