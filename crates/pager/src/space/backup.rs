//! What backup and restore need to know about spaces, and the making of spaces that a backup fills.
//!
//! This module does not know the format of backups.

use super::map::Map;
use super::{Spaces, grow};
use crate::base::error::Result;
use crate::base::ids::{Access, PageId, SpaceId};
use crate::base::space_format::{ExtentNo, Geometry};
use crate::pool::{PageS, Pool};

impl Spaces {
    /// Returns the spaces in use that survive a restart.
    pub(crate) fn durable_ids(&self) -> Vec<SpaceId> {
        self.durable().map(|space| space.geometry.space).collect()
    }

    /// Returns the next extent from `from` on that has a page in use. Returns `None` at the end of the space,
    /// or if the space was dropped.
    pub(crate) fn extent_to_copy(&self, space: SpaceId, from: ExtentNo) -> Option<(Geometry, ExtentNo)> {
        let space = self.space(space).ok()?;
        let map = space.map();
        let is_used = |extent: &ExtentNo| map.entry(*extent).is_some_and(|entry| entry.owner != 0);
        (from..map.extent_count()).find(is_used).map(|extent| (space.geometry, extent))
    }

    /// Returns the lengths of the spaces that survive a restart, in pages.
    pub(crate) fn lengths(&self) -> Vec<(SpaceId, u32)> {
        let of = |geometry: Geometry| (geometry.space, self.file_pages(geometry));
        self.durable().map(|space| of(space.geometry)).collect()
    }

    /// Makes the file of a new space as long as that of the database that is restored, with an empty
    /// descriptor page for each group of extents.
    pub(crate) fn lengthen_to(&self, space: SpaceId, pages: u32) -> Result<()> {
        let geometry = self.geometry(space)?;
        let layout = self.layout(geometry)?;
        let mut extent = self.file_pages(geometry) / geometry.extent_pages;
        let target = pages / geometry.extent_pages;
        while extent < target {
            let group = geometry.group_of(extent);
            let stop = target.min((group + 1) * geometry.group_extents);
            if extent.is_multiple_of(geometry.group_extents) {
                grow::write_new(&*layout, geometry.descriptor_of(group), &geometry.new_descriptor(group))?;
            }
            layout.resize(space, stop * geometry.extent_pages)?;
            extent = stop;
        }
        Ok(())
    }

    /// Reads the maps again, after the descriptor pages were replaced.
    pub(crate) fn load_again(&self, pool: &Pool, database_id: u64) -> Result<()> {
        self.durable().for_each(|space| *space.map() = Map::new(space.geometry));
        self.load(pool, database_id, false)
    }

    /// Returns whether the descriptor page says that the page is allocated. The map in memory also has pages
    /// that an open mini-transaction has reserved.
    pub(crate) fn is_allocation_logged(&self, pool: &Pool, id: PageId) -> Result<bool> {
        let geometry = self.geometry(id.space())?;
        let extent = geometry.extent_of(id);
        let descriptor: PageS<'_> =
            pool.fix(geometry.descriptor_of(geometry.group_of(extent)), Access::Sequential)?;
        Ok(geometry.entry(&descriptor, extent)?.used.has(geometry.within(id)))
    }

    /// Returns whether the page is allocated.
    pub(crate) fn is_allocated(&self, id: PageId) -> bool {
        let Ok(geometry) = self.geometry(id.space()) else { return false };
        let entry = self.entry(geometry, geometry.extent_of(id));
        entry.is_some_and(|entry| entry.used.has(geometry.within(id)))
    }
}
