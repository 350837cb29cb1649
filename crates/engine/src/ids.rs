//! Identities of transactions, versions and trees.
//!
//! Invariants
//! 1. A transaction id is used once and fits into 48 bits. 0 means "before all transactions".
//! 2. A roll pointer of 0 means that there is no older version.
//!
//! Roll pointer, 64 bits: page number in the rollback space (32) | slot in the page (12) | generation (20).
//! The generation is the low 20 bits of the id of the transaction that wrote the record. If a slot was freed
//! and used again, its generation no longer matches.
//!
//! This module does not know the content of an undo record.

use std::fmt;

use varve_pager::{PageId, PageNo, SpaceId};

const SLOT_BITS: u32 = 12;
const GENERATION_BITS: u32 = 20;

/// Transaction ids are below this limit, which no database reaches.
const TXN_LIMIT: u64 = 1 << 48;

/// Identity of a transaction that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TxnId(u64);

impl TxnId {
    /// The id of a transaction that has not written, and of versions that are older than all transactions.
    pub const NONE: TxnId = TxnId(0);

    /// Returns the id with this number. Panics above 48 bits.
    pub fn new(number: u64) -> Self {
        assert!(number < TXN_LIMIT, "transaction ids are used up");
        Self(number)
    }

    /// Reads an id from a page. Returns `None` if no transaction can have this id. The limit is half of all
    /// ids, so that later ids are valid, too.
    pub fn read(number: u64) -> Option<Self> {
        (number < TXN_LIMIT / 2).then_some(Self(number))
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where an undo record is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RollPointer(u64);

impl RollPointer {
    /// Most records of one undo page.
    pub const SLOTS_MAX: usize = 1 << SLOT_BITS;

    /// Returns the record in `slot` of an undo page, written by `txn`.
    pub fn new(page: PageNo, slot: u16, txn: TxnId) -> Self {
        assert!(usize::from(slot) < Self::SLOTS_MAX, "slot {slot} of an undo page");
        let generation = txn.0 & ((1 << GENERATION_BITS) - 1);
        Self(u64::from(page.0) << 32 | u64::from(slot) << GENERATION_BITS | generation)
    }

    /// Returns the pointer with this stored number.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the number that an entry stores.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns whether there is no older version.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the undo page.
    pub const fn page(self) -> PageId {
        PageId::new(SpaceId::ROLLBACK, PageNo((self.0 >> 32) as u32))
    }

    /// Returns the slot in the page.
    pub const fn slot(self) -> u16 {
        (self.0 >> GENERATION_BITS) as u16 & ((1 << SLOT_BITS) - 1)
    }

    /// Returns whether `txn` can have written the record.
    pub const fn fits(self, txn: TxnId) -> bool {
        let mask = (1 << GENERATION_BITS) - 1;
        self.0 & mask == txn.0 & mask
    }
}

impl fmt::Debug for RollPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "roll {}#{}", self.page(), self.slot())
    }
}

/// The identity of a transaction for transactions that wait for it: its slot in the registry, and a serial
/// number. The slot is not enough, because transactions use it one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    pub(crate) slot: u32,
    pub(crate) serial: u64,
}

/// The root page of a tree and the segment of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeAddress {
    /// The space of the pages: the data space or a tablespace. For a rollback segment this field has no
    /// meaning, because all of them are in the rollback space.
    pub space: SpaceId,
    /// Number of the root page.
    pub root: u32,
    /// Segment that owns the pages.
    pub owner: u32,
}

impl TreeAddress {
    /// Returns an address in the data space.
    pub const fn in_data(root: u32, owner: u32) -> TreeAddress {
        TreeAddress { space: SpaceId::DATA, root, owner }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fuzz test once found that a root page with such an id made the opening panic.
    #[test]
    fn an_impossible_transaction_is_not_read() {
        assert_eq!(TxnId::read(7), Some(TxnId::new(7)));
        assert_eq!([1 << 47, 1 << 48, u64::MAX].map(TxnId::read), [None; 3]);
    }

    #[test]
    fn a_roll_pointer_keeps_its_parts() {
        let pointer = RollPointer::new(PageNo(77), 4095, TxnId::new((1 << 47) + 5));
        assert_eq!(pointer.page().no(), PageNo(77));
        assert_eq!(pointer.slot(), 4095);
        assert!(pointer.fits(TxnId::new((1 << 47) + 5)));
        assert!(!pointer.fits(TxnId::new(6)));
    }
}
