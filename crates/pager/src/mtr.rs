//! Mini-transactions. (log engineer)
use crate::error::Result;
use crate::ids::{PageId, PageRange, SpaceId};
use crate::lsn::Lsn;
use crate::pager::Pager;
use crate::pool::PageX;

/// Handle of a page within its mini-transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct H(pub(crate) u16);

/// A mini-transaction: its page changes are in the log together or not at all.
pub struct Mtr<'p> {
    #[expect(dead_code, reason = "skeleton")]
    pager: &'p Pager,
}

#[expect(unused_variables, reason = "skeleton")]
impl<'p> Mtr<'p> {
    /// Latches a page shared.
    pub fn s(&mut self, id: PageId) -> Result<H> {
        unimplemented!()
    }
    /// Latches a page shared-exclusive.
    pub fn sx(&mut self, id: PageId) -> Result<H> {
        unimplemented!()
    }
    /// Latches a page exclusive.
    pub fn x(&mut self, id: PageId) -> Result<H> {
        unimplemented!()
    }
    /// Takes over a latched page.
    pub fn adopt(&mut self, g: PageX<'p>) -> H {
        unimplemented!()
    }
    /// A fresh page, exclusively latched and formatted.
    pub fn create(&mut self, id: PageId, kind: u8, owner: u32) -> Result<H> {
        unimplemented!()
    }
    /// The bytes of a page.
    pub fn page(&self, h: H) -> &[u8] {
        unimplemented!()
    }
    /// Applies an engine operation now and records it.
    pub fn apply(&mut self, h: H, op: u8, payload: &[u8]) {
        unimplemented!()
    }
    /// Overwrites bytes and records it.
    pub fn write(&mut self, h: H, offset: usize, bytes: &[u8]) {
        unimplemented!()
    }
    /// Replaces the whole body and records it.
    pub fn image(&mut self, h: H, bytes: &[u8]) {
        unimplemented!()
    }
    /// Releases an unmodified page.
    pub fn release(&mut self, h: H) {
        unimplemented!()
    }
    /// Reserves a free page; the descriptor is changed at commit. Fails if the space's reserve is used up
    /// (`Pager::reserve` first for many pages).
    pub fn allocate(&mut self, space: SpaceId, owner: u32, near: Option<PageId>) -> Result<PageId> {
        unimplemented!()
    }
    /// Reserves a whole extent.
    pub fn allocate_extent(&mut self, space: SpaceId, owner: u32) -> Result<PageRange> {
        unimplemented!()
    }
    /// Frees a page at commit.
    pub fn free(&mut self, id: PageId) -> Result<()> {
        unimplemented!()
    }
    /// A record without a page.
    pub fn note(&mut self, kind: u8, payload: &[u8]) {
        unimplemented!()
    }
    /// Appends the records; gives the end LSN.
    pub fn commit(self) -> Lsn {
        unimplemented!()
    }
    /// As `commit`; `f` runs inside the append section.
    pub fn commit_with(self, f: impl FnOnce(Lsn)) -> Lsn {
        unimplemented!()
    }
}
