//! A leaf entry as readers see it, and the encoding of its value.
//!
//! Invariants
//! 1. The stamp of a clustered entry (transaction id and roll pointer) has a fixed offset in the value. So it
//!    can be overwritten without moving the value.
//!
//! This module does not know pages or slots.

use super::{Columns, STAMP_BYTES};
use crate::fixed;

/// Flag of an entry that its transaction has deleted, and that older snapshots may still need.
pub const FLAG_DELETED: u8 = 0x01;
/// Largest transaction id that an entry can store.
pub const TXN_MAX: u64 = (1 << 48) - 1;

/// The transaction that wrote an entry of a clustered leaf, and the address of the version before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Transaction id, 48 bits.
    pub txn: u64,
    /// Roll pointer; 0 means that there is no older version.
    pub roll: u64,
    /// `FLAG_DELETED`, and bits of the transaction layer.
    pub flags: u8,
}

/// An entry of a leaf. Its key is in two parts.
#[derive(Clone, Copy)]
pub struct EntryRef<'a> {
    pub(crate) prefix: &'a [u8],
    pub(crate) suffix: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) stamped: bool,
    /// The columns with the entry's row, and its number there.
    pub(crate) in_columns: Option<(Columns<'a>, usize)>,
}

impl<'a> EntryRef<'a> {
    /// Returns the flags.
    #[inline]
    pub const fn flags(&self) -> u8 {
        self.value[0]
    }

    /// Returns whether the entry is delete-marked.
    #[inline]
    pub const fn is_deleted(&self) -> bool {
        self.flags() & FLAG_DELETED != 0
    }

    /// Returns the transaction id of a clustered entry, 0 for a secondary one.
    #[inline]
    pub fn txn(&self) -> u64 {
        if !self.stamped {
            return 0;
        }
        let [a, b, c, d, e, f] = fixed::bytes_at(self.value, 1);
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    /// Returns the roll pointer of a clustered entry, 0 for a secondary one.
    #[inline]
    pub fn roll(&self) -> u64 {
        if !self.stamped {
            return 0;
        }
        u64::from_le_bytes(fixed::bytes_at(self.value, 7))
    }

    /// Returns the flags, transaction id and roll pointer.
    pub fn stamp(&self) -> Stamp {
        Stamp { txn: self.txn(), roll: self.roll(), flags: self.flags() }
    }

    /// Returns the row of a clustered entry, or nothing (an empty slice) for a secondary one. A row that lies
    /// by columns is put together in `spare`.
    #[inline]
    pub fn payload<'s>(&self, spare: &'s mut Vec<u8>) -> &'s [u8]
    where
        'a: 's,
    {
        match self.in_columns {
            None if self.stamped => &self.value[STAMP_BYTES..],
            None => &[],
            Some((columns, row)) => {
                spare.clear();
                columns.append_row(row, spare);
                spare
            }
        }
    }

    /// Returns the length of the key in bytes.
    pub const fn key_bytes(&self) -> usize {
        self.prefix.len() + self.suffix.len()
    }

    /// Appends the key to `out`.
    pub fn append_key(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix);
        out.extend_from_slice(self.suffix);
    }

    /// Returns a copy of the key.
    pub fn key(&self) -> Vec<u8> {
        [self.prefix, self.suffix].concat()
    }
}

/// Returns the first bytes of a clustered leaf value.
pub(crate) fn encode_stamp(stamp: Stamp) -> [u8; STAMP_BYTES] {
    assert!(stamp.txn <= TXN_MAX, "transaction id {} exceeds 48 bits", stamp.txn);
    let mut raw = [0; STAMP_BYTES];
    raw[0] = stamp.flags;
    let [a, b, c, d, e, f, ..] = stamp.txn.to_le_bytes();
    fixed::put_at(&mut raw, 1, [a, b, c, d, e, f]);
    fixed::put_at(&mut raw, 7, stamp.roll.to_le_bytes());
    raw
}
