//! The engine's root page, which has the addresses of all other structures.
//!
//! Page `PageId::ROOT`, after the pager's header (little endian)
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 32 | 4 | magic "VENG" |
//! | 36 | 2 | version of the engine's formats, 2 |
//! | 38 | 2 | 1 when the database is complete; 0 while it is being made |
//! | 40 | 8 | first transaction id that was never reserved |
//! | 48 | 8 | rollback directory: page number in the rollback space, its segment |
//! | 56 | 8 x 3 | system trees: root page number, segment |
//!
//! Invariants
//! 1. The root page names a segment before the segment gets its first page. So if a crash interrupts the
//!    creation of a database, the next start can free the segment.
//!
//! This module does not know what the trees hold.

use parking_lot::{Mutex, MutexGuard};
use varve_pager::{Access, Mtr, PageId, Pager};

use crate::error::{Error, Result};
use crate::ids::{TreeAddress, TxnId};

/// Page kind in the pager's header.
const KIND_ROOT: u8 = 43;
const MAGIC: &[u8; 4] = b"VENG";
const VERSION: u16 = 2;
const MAGIC_AT: usize = 32;
const VERSION_AT: usize = 36;
const READY_AT: usize = 38;
const NEXT_TXN_AT: usize = 40;
const PLACES_AT: usize = 48;
const PLACE_BYTES: usize = 8;
/// The rollback directory and the system trees.
pub(crate) const PLACES_LEN: usize = 4;

/// Access to the root page.
#[derive(Default)]
pub(crate) struct Root {
    one: Mutex<()>,
}

/// Contents of the root page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RootInfo {
    pub(crate) is_ready: bool,
    pub(crate) next_txn: TxnId,
    pub(crate) places: [TreeAddress; PLACES_LEN],
}

impl Root {
    /// Locks the limit of ids. Only one thread changes it at a time.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.one.lock()
    }

    /// Reads the page. Returns `None` if it was never written.
    pub(crate) fn read(pager: &Pager) -> Result<Option<RootInfo>> {
        let page = pager.fix_s(PageId::ROOT, Access::Random)?;
        if varve_pager::page::page_kind(&page) != KIND_ROOT {
            return Ok(None);
        }
        decode(&page).map(Some)
    }

    /// Writes an empty page.
    pub(crate) fn create(pager: &Pager) -> Result<()> {
        let mut mtr = pager.begin()?;
        let page = mtr.create(PageId::ROOT, KIND_ROOT, 0)?;
        mtr.write(page, MAGIC_AT, MAGIC);
        mtr.write(page, VERSION_AT, &VERSION.to_le_bytes());
        mtr.write(page, NEXT_TXN_AT, &1u64.to_le_bytes());
        mtr.commit();
        Ok(())
    }

    /// Stores the address of a structure.
    pub(crate) fn set_place(pager: &Pager, which: usize, place: TreeAddress) -> Result<()> {
        let mut raw = [0; PLACE_BYTES];
        raw[..4].copy_from_slice(&place.root.to_le_bytes());
        raw[4..].copy_from_slice(&place.owner.to_le_bytes());
        change(pager, |mtr, page| mtr.write(page, PLACES_AT + which * PLACE_BYTES, &raw))
    }

    /// Marks the database as complete.
    pub(crate) fn set_ready(pager: &Pager) -> Result<()> {
        change(pager, |mtr, page| mtr.write(page, READY_AT, &1u16.to_le_bytes()))
    }

    /// Reserves the transaction ids below `next`.
    pub(crate) fn set_next_txn(&self, pager: &Pager, next: u64) -> Result<()> {
        change(pager, |mtr, page| mtr.write(page, NEXT_TXN_AT, &next.to_le_bytes()))
    }
}

fn change(pager: &Pager, edit: impl FnOnce(&mut Mtr<'_>, varve_pager::H)) -> Result<()> {
    let mut mtr = pager.begin()?;
    let page = mtr.x(PageId::ROOT)?;
    edit(&mut mtr, page);
    mtr.commit();
    Ok(())
}

fn number<const N: usize>(page: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw[..N].copy_from_slice(&page[at..at + N]);
    u64::from_le_bytes(raw)
}

pub(crate) fn decode(page: &[u8]) -> Result<RootInfo> {
    let version = number::<2>(page, VERSION_AT);
    if &page[MAGIC_AT..MAGIC_AT + 4] != MAGIC {
        return Err(Error::corrupt("the engine's root page has no magic"));
    }
    if version != u64::from(VERSION) {
        return Err(Error::Unsupported { what: format!("version {version} of the engine's formats") });
    }
    let mut places = [TreeAddress::in_data(0, 0); PLACES_LEN];
    for (which, place) in places.iter_mut().enumerate() {
        let at = PLACES_AT + which * PLACE_BYTES;
        place.root = number::<4>(page, at) as u32;
        place.owner = number::<4>(page, at + 4) as u32;
    }
    let next_txn = TxnId::read(number::<8>(page, NEXT_TXN_AT))
        .ok_or_else(|| Error::corrupt("the engine's root page names a transaction that can't be"))?;
    Ok(RootInfo { is_ready: number::<2>(page, READY_AT) == 1, next_txn, places })
}
