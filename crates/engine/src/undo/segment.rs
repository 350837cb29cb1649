//! A rollback segment while its transaction uses it: append, pop, end.
//!
//! Invariants
//! 1. A `Segment` in memory has the number of the tail page, its record count and its free bytes. They equal
//!    those in the page, because only the owner of the `Segment` changes the page.
//! 2. `prepare` takes all latches and makes all space that is needed. So nothing after it in the
//!    mini-transaction can fail.
//! 3. Latch order: header page, then tail page.
//!
//! This module does not know trees or transaction states.

use varve_device::{planted, reached};
use varve_pager::{Access, H, Mtr, PageId, Pager, SpaceId};

use super::Mark;
use super::page::{self, HeaderPage, KIND_UNDO, UndoPage};
use super::record::Record;
use crate::error::{Error, Result};
use crate::ids::{RollPointer, TxnId};

/// Latched undo pages of one mini-transaction.
#[derive(Clone, Copy)]
pub(crate) struct Prepared {
    tail: H,
    /// The header page. It is latched only for the transaction's first record.
    header: Option<H>,
}

/// A rollback segment, which one transaction uses, or which is idle in the pool.
#[derive(Debug)]
pub(crate) struct Segment {
    owner: u32,
    header: PageId,
    tail: PageId,
    tail_count: u32,
    tail_free_bytes: usize,
    /// The beginning of the active transaction's records; `None` if the segment is idle.
    start: Option<Mark>,
}

impl Segment {
    /// Reads the state of a segment from its pages.
    pub(crate) fn open(pager: &Pager, header: PageId) -> Result<Self> {
        let (owner, tail, start) = {
            let page = pager.fix_s(header, Access::Random)?;
            let read = HeaderPage::new(&page).ok_or_else(|| not_undo(header))?;
            let start = read.is_active().then(|| Mark { page: read.start().0, slot: read.start().1 });
            (varve_pager::page::page_owner(&page), read.tail(), start)
        };
        let mut segment = Self { owner, header, tail, tail_count: 0, tail_free_bytes: 0, start };
        segment.read_tail(pager)?;
        Ok(segment)
    }

    fn read_tail(&mut self, pager: &Pager) -> Result<()> {
        let page = pager.fix_s(self.tail, Access::Random)?;
        let read = UndoPage::new(&page).ok_or_else(|| not_undo(self.tail))?;
        self.tail_count = read.count();
        self.tail_free_bytes = read.free_bytes();
        Ok(())
    }

    pub(crate) fn header(&self) -> PageId {
        self.header
    }

    /// Returns the position after the newest record.
    pub(crate) fn top(&self) -> Mark {
        Mark { page: self.tail, slot: self.tail_count }
    }

    /// Returns the beginning of the active transaction's records.
    pub(crate) fn start(&self) -> Option<Mark> {
        self.start
    }

    /// Latches the pages that `append` of a record of `bytes` needs. `None` means that the tail is full. Then
    /// the caller ends the mini-transaction without changes, calls `extend`, and begins again.
    pub(crate) fn prepare(&self, mtr: &mut Mtr<'_>, bytes: usize) -> Result<Option<Prepared>> {
        if bytes > self.tail_free_bytes || self.tail_count as usize >= RollPointer::SLOTS_MAX {
            return Ok(None);
        }
        let header = if self.start.is_none() { Some(mtr.x(self.header)?) } else { None };
        let tail = mtr.x(self.tail)?;
        Ok(Some(Prepared { tail, header }))
    }

    /// Does the same as `prepare` for one more record in the mini-transaction, after those that were appended
    /// to the prepared tail. `None` means that the tail is full. Then the caller commits and begins again.
    pub(crate) fn prepare_more(&self, prepared: Prepared, bytes: usize) -> Option<Prepared> {
        let has_room = bytes <= self.tail_free_bytes && (self.tail_count as usize) < RollPointer::SLOTS_MAX;
        has_room.then_some(Prepared { header: None, ..prepared })
    }

    /// Returns the position of the next record.
    pub(crate) fn next_pointer(&self, txn: TxnId) -> RollPointer {
        RollPointer::new(self.tail.no(), self.tail_count as u16, txn)
    }

    /// Appends a record to the prepared tail.
    pub(crate) fn append(&mut self, mtr: &mut Mtr<'_>, prepared: Prepared, txn: TxnId, record: &Record) {
        if let Some(header) = prepared.header {
            let start = self.top();
            if !planted("undo: a transaction's begin is not logged") {
                page::begin(mtr, header, txn.get(), start);
            }
            self.start = Some(start);
        }
        page::append(mtr, prepared.tail, record.bytes());
        self.note_tail(mtr, prepared.tail);
    }

    fn note_tail(&mut self, mtr: &Mtr<'_>, tail: H) {
        let Some(read) = UndoPage::new(mtr.page(tail)) else {
            panic!("the tail {} of a rollback segment is no undo page", self.tail)
        };
        self.tail_count = read.count();
        self.tail_free_bytes = read.free_bytes();
    }

    /// Adds an empty page at the tail, in a separate mini-transaction. The caller holds no latch.
    pub(crate) fn extend(&mut self, pager: &Pager) -> Result<()> {
        pager.reserve(SpaceId::ROLLBACK, 1)?;
        let mut mtr = pager.begin()?;
        let header = mtr.x(self.header)?;
        let tail = mtr.x(self.tail)?;
        let new = mtr.allocate(SpaceId::ROLLBACK, self.owner, Some(self.tail))?;
        let added = mtr.create(new, KIND_UNDO, self.owner)?;
        let (head, previous) = ends(&mtr, header, tail, self.tail)?;
        page::set_links(&mut mtr, tail, previous, Some(new));
        page::set_links(&mut mtr, added, Some(self.tail), None);
        page::set_ends(&mut mtr, header, head, new);
        self.note_tail(&mtr, added);
        self.tail = new;
        reached("undo: page added");
        mtr.commit();
        Ok(())
    }

    /// Copies the newest record of the active transaction. `None` means that all records are popped.
    pub(crate) fn read_top(&mut self, pager: &Pager, record: &mut Record) -> Result<Option<RollPointer>> {
        let Some(start) = self.start else { return Ok(None) };
        while self.top() != start && self.tail_count == 0 {
            self.trim(pager)?;
        }
        if self.top() == start {
            return Ok(None);
        }
        let page = pager.fix_s(self.tail, Access::Random)?;
        let slot = self.tail_count - 1;
        let bytes = UndoPage::new(&page).and_then(|p| p.record(slot)).ok_or_else(|| not_undo(self.tail))?;
        record.copy_from(bytes);
        let txn = record.decode().ok_or_else(|| not_undo(self.tail))?.txn;
        Ok(Some(RollPointer::new(self.tail.no(), slot as u16, txn)))
    }

    /// Latches the tail for `pop` and `patch_chain`.
    pub(crate) fn prepare_pop(&self, mtr: &mut Mtr<'_>) -> Result<Prepared> {
        Ok(Prepared { tail: mtr.x(self.tail)?, header: None })
    }

    /// Removes the newest record.
    pub(crate) fn pop(&mut self, mtr: &mut Mtr<'_>, prepared: Prepared) {
        page::pop(mtr, prepared.tail);
        self.note_tail(mtr, prepared.tail);
    }

    /// Replaces the first page of the chain in the newest record.
    pub(crate) fn patch_chain(&self, mtr: &mut Mtr<'_>, prepared: Prepared, chain: Option<PageId>) {
        page::patch_chain(mtr, prepared.tail, (self.tail_count - 1) as u16, chain);
    }

    /// Frees the empty tail page.
    fn trim(&mut self, pager: &Pager) -> Result<()> {
        let mut mtr = pager.begin()?;
        let header = mtr.x(self.header)?;
        let previous = {
            let tail = mtr.x(self.tail)?;
            let previous = UndoPage::new(mtr.page(tail)).and_then(UndoPage::previous);
            mtr.release(tail);
            previous.ok_or_else(|| not_undo(self.tail))?
        };
        let before = mtr.x(previous)?;
        let (head, further) = ends(&mtr, header, before, previous)?;
        mtr.free(self.tail)?;
        page::set_links(&mut mtr, before, further, None);
        page::set_ends(&mut mtr, header, head, previous);
        self.note_tail(&mtr, before);
        self.tail = previous;
        mtr.commit();
        Ok(())
    }

    /// Latches the header for `end`.
    pub(crate) fn prepare_end(&self, mtr: &mut Mtr<'_>) -> Result<H> {
        Ok(mtr.x(self.header)?)
    }

    /// Records that the transaction is committed, or undone completely. Its records stay for readers and
    /// purge.
    pub(crate) fn end(&mut self, mtr: &mut Mtr<'_>, header: H) {
        page::end(mtr, header);
        self.start = None;
    }
}

/// Returns the head page of the segment and the page before `page`.
fn ends(mtr: &Mtr<'_>, header: H, page: H, id: PageId) -> Result<(PageId, Option<PageId>)> {
    let head = HeaderPage::new(mtr.page(header)).ok_or_else(|| not_undo(id))?.head();
    let previous = UndoPage::new(mtr.page(page)).ok_or_else(|| not_undo(id))?.previous();
    Ok((head, previous))
}

pub(crate) fn not_undo(page: PageId) -> Error {
    Error::corrupt(format!("page {page} of a rollback segment does not hold what it should"))
}
