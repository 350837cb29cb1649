//! The pages that a mini-transaction has allocated or freed, until its commit.
//!
//! Invariants
//! 1. An allocated page is reserved in the map in memory at once, so no other thread gets it. Its descriptor
//!    page changes at the commit. If the mini-transaction is dropped without commit, the reservations are
//!    released.
//! 2. Freed pages return to the map only after the commit.
//! 3. [`Pending::by_descriptor`] can't fail, because descriptor pages are pinned and checked when a change is
//!    entered. They are latched after all other pages, in the order of their page numbers. So
//!    mini-transactions never wait for each other in a circle.
//!
//! This module does not know what the pages are for.

use varve_device::planted;

use super::Spaces;
use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageRange, SpaceId};
use crate::base::space_format::{Bits, Entry, ExtentNo, Geometry};
use crate::pool::{PageS, PageX, Pin, Pool};

/// The changes of one extent at the commit.
pub(crate) struct Change<'p> {
    geometry: Geometry,
    extent: ExtentNo,
    owner: u32,
    add: Bits,
    remove: Bits,
    descriptor: Pin<'p>,
}

/// The changes of all extents of one descriptor page.
pub(crate) struct OfDescriptor<'c, 'p>(&'c [Change<'p>]);

/// The pending changes of one mini-transaction.
pub(crate) struct Pending<'p> {
    spaces: &'p Spaces,
    pool: &'p Pool,
    changes: Vec<Change<'p>>,
}

impl<'p> Pending<'p> {
    pub(crate) fn new(spaces: &'p Spaces, pool: &'p Pool) -> Pending<'p> {
        Pending { spaces, pool, changes: Vec::new() }
    }

    /// Returns whether there are no changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Reserves a page.
    pub(crate) fn allocate(&mut self, space: SpaceId, owner: u32, near: Option<PageId>) -> Result<PageId> {
        let id = self.spaces.take_page(space, owner, near)?;
        let pages = PageRange { first: id, count: 1 };
        self.reserve(owner, pages).map(|()| id)
    }

    /// Reserves all pages of a free extent.
    pub(crate) fn allocate_extent(&mut self, space: SpaceId, owner: u32) -> Result<PageRange> {
        let pages = self.spaces.take_extent(space, owner)?;
        self.reserve(owner, pages).map(|()| pages)
    }

    fn reserve(&mut self, owner: u32, pages: PageRange) -> Result<()> {
        let geometry = self.spaces.geometry(pages.first.space())?;
        let added = self.change(geometry, geometry.extent_of(pages.first), owner).map(|change| {
            pages.pages().for_each(|id| change.add.set(geometry.within(id)));
        });
        if added.is_err() {
            let mut bits = Bits::default();
            pages.pages().for_each(|id| bits.set(geometry.within(id)));
            self.spaces.give_back(geometry, geometry.extent_of(pages.first), &bits);
        }
        added
    }

    /// Frees a page when the mini-transaction commits.
    pub(crate) fn free(&mut self, id: PageId) -> Result<()> {
        let geometry = self.spaces.geometry(id.space())?;
        let (extent, within) = (geometry.extent_of(id), geometry.within(id));
        let entry = self.spaces.entry(geometry, extent).filter(|entry| entry.used.has(within));
        let change = entry.map(|entry| self.change(geometry, extent, entry.owner)).transpose()?;
        let change = change.filter(|change| !change.remove.has(within));
        let Some(change) = change else {
            return Err(PagerError::Corrupt {
                what: format!("page {id} is to be freed, but it is not in use"),
            });
        };
        if change.add.has(within) {
            change.add.clear(within);
            let mut bits = Bits::default();
            bits.set(within);
            self.spaces.give_back(geometry, extent, &bits);
        } else {
            change.remove.set(within);
        }
        Ok(())
    }

    fn change(&mut self, geometry: Geometry, extent: ExtentNo, owner: u32) -> Result<&mut Change<'p>> {
        let is_same =
            |change: &Change<'_>| change.extent == extent && change.geometry.space == geometry.space;
        let at = match self.changes.iter().position(is_same) {
            Some(at) => at,
            None => {
                let page: PageS<'p> =
                    self.pool.fix(geometry.descriptor_of(geometry.group_of(extent)), Access::Random)?;
                geometry.entry(&page, extent)?;
                let descriptor = Pin::new(&page);
                let (add, remove) = (Bits::default(), Bits::default());
                self.changes.push(Change { geometry, extent, owner, add, remove, descriptor });
                self.changes.len() - 1
            }
        };
        Ok(&mut self.changes[at])
    }

    /// Is called at the commit, before the log records are appended. Returns the changes, grouped by
    /// descriptor page.
    pub(crate) fn by_descriptor(&mut self) -> impl Iterator<Item = OfDescriptor<'_, 'p>> {
        self.changes.sort_by_key(|change| (change.geometry.space, change.extent));
        self.changes.chunk_by(|a, b| a.descriptor_id() == b.descriptor_id()).map(OfDescriptor)
    }

    /// Is called after the log records are appended. Now freed pages can be allocated again.
    pub(crate) fn committed(mut self) {
        for change in std::mem::take(&mut self.changes) {
            if change.remove.count() > 0 {
                self.spaces.give_back(change.geometry, change.extent, &change.remove);
            }
        }
    }
}

impl<'c, 'p> OfDescriptor<'c, 'p> {
    /// Returns the descriptor page, exclusively latched.
    pub(crate) fn lock(&self) -> PageX<'p> {
        self.0[0].descriptor.lock()
    }

    /// Returns the changes in this descriptor page, by extent.
    pub(crate) fn changes(&self) -> &'c [Change<'p>] {
        self.0
    }
}

impl Change<'_> {
    /// Returns the offset of the extent's entry in the descriptor page, whose bytes are `before`, and the new
    /// bytes of the entry.
    pub(crate) fn entry(&self, before: &[u8]) -> (usize, Vec<u8>) {
        let geometry = self.geometry;
        let before = geometry.entry(before, self.extent).expect("it was checked when it was pinned");
        (geometry.entry_offset(self.extent), geometry.encode_entry(&self.applied_to(&before)))
    }

    fn descriptor_id(&self) -> PageId {
        self.geometry.descriptor_of(self.geometry.group_of(self.extent))
    }

    fn applied_to(&self, before: &Entry) -> Entry {
        let mut used = before.used;
        if !planted("space: an allocation is not logged") {
            used = used.union(&self.add);
        }
        if !planted("space: a freed page stays allocated") {
            used = used.minus(&self.remove);
        }
        Entry { owner: if used.count() > 0 { self.owner } else { 0 }, used }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        for change in &self.changes {
            if change.add.count() > 0 {
                self.spaces.give_back(change.geometry, change.extent, &change.add);
            }
        }
    }
}
