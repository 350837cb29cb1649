//! Spaces: allocation of pages and extents to owners, growing and shrinking of the space files.
//!
//! Invariants
//! 1. The descriptor pages record which pages are allocated. A descriptor page changes in the same
//!    mini-transaction as the pages that refer to the allocated page. The maps in memory are read from the
//!    descriptor pages after redo.
//! 2. A file grows before any page refers to its new pages. Growing is not logged. A new group of extents has
//!    a descriptor page, which is durable before the file is long enough for the group. An incomplete extent
//!    at the end of a file is ignored.
//! 3. A file shrinks by cutting free extents off its end. A cut waits until redo starts after every log
//!    record that touched the extents.
//! 4. The disk blocks of free extents are returned to the device under the rule of `freed.rs`. They are
//!    reserved again before the extents are allocated.
//! 5. Mini-transactions allocate from free extents only. The file grows before they begin, while they hold no
//!    latch.
//!
//! What it does not know: what the pages are for, levels, the log's format.

mod freed;
mod grow;
pub(crate) mod map;
mod pending;
mod trim;
mod verify;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use varve_device::DeviceError;

pub(crate) use pending::Pending;
pub use verify::CheckReport;

use self::map::{CutOff, Map};
use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageNo, PageRange, SpaceId};
use crate::base::lsn::Lsn;
use crate::base::space_format::{Bits, Entry, ExtentNo, Geometry};
use crate::home::layouts::Layouts;
use crate::pool::{PREFETCH_MAX, PageS, Pool};

/// The number of free extents that are available when a mini-transaction begins.
pub(crate) const RESERVE_EXTENTS: u32 = 4;
/// The number of free extents that background threads keep, so that mini-transactions seldom wait for a file
/// to grow.
pub(crate) const BACKGROUND_EXTENTS: u32 = 2 * RESERVE_EXTENTS;

/// Free extents that wait to be cut off the end of the file.
struct Cut {
    /// The entries of the map for them.
    off: CutOff,
    /// Every log record that touched these extents is before this position.
    lsn: Lsn,
    /// The durable start of redo is after `lsn`, so the extents can be cut off.
    is_due: bool,
}

/// The state of growing and shrinking a file.
#[derive(Default)]
struct Growth {
    cut: Option<Cut>,
    /// The error of the last attempt to grow the file.
    error: Option<DeviceError>,
    /// Hollow extents are free extents whose file blocks may not be allocated. On a full device their
    /// blocks are reserved extent by extent; the next attempt begins at this extent.
    asked: ExtentNo,
}

struct Space {
    geometry: Geometry,
    map: Mutex<Map>,
    /// A copy of the map's number of free extents, which can be read without the lock.
    free_extents: AtomicU32,
    growth: Mutex<Growth>,
    /// Number of mini-transactions that wait for the file to grow.
    waiting: AtomicU32,
    /// The last attempt to grow the file failed.
    is_stuck: AtomicBool,
}

/// All spaces.
pub(crate) struct Spaces {
    spaces: [Space; 3],
    layouts: Arc<Layouts>,
    growth_extents: u32,
}

impl Spaces {
    /// Makes the spaces. Their maps are not read yet.
    pub(crate) fn new(layouts: Arc<Layouts>, page_size: usize, growth_extents: u32) -> Spaces {
        let space = |id| {
            let geometry = Geometry::of(id, page_size);
            Space {
                geometry,
                map: Mutex::new(Map::new(geometry)),
                free_extents: AtomicU32::new(0),
                growth: Mutex::default(),
                waiting: AtomicU32::new(0),
                is_stuck: AtomicBool::new(false),
            }
        };
        let spaces = [space(SpaceId::DATA), space(SpaceId::ROLLBACK), space(SpaceId::TEMPORARY)];
        Spaces { spaces, layouts, growth_extents }
    }

    /// Called after redo: checks the headers and reads the maps. `has_hollow` means that in files with the
    /// in-place layout, free extents may have no disk blocks.
    pub(crate) fn load(&self, pool: &Pool, database_id: u64, has_hollow: bool) -> Result<()> {
        let durable = || self.spaces.iter().filter(|space| SpaceId::DURABLE.contains(&space.geometry.space));
        // The pages are prefetched together, because they are scattered over the data files. Reading them
        // one by one would take much of the time of a start on disks.
        let first = |space: &Space| [space.geometry.header(), space.geometry.descriptor_of(0)];
        pool.prefetch(&durable().flat_map(first).collect::<Vec<_>>());
        durable().try_for_each(|space| {
            let header: PageS<'_> = pool.fix(space.geometry.header(), Access::Random)?;
            space.geometry.check_header(&header, database_id)?;
            drop(header);
            self.load_map(space, pool, has_hollow)
        })
    }

    fn load_map(&self, space: &Space, pool: &Pool, has_hollow: bool) -> Result<()> {
        let geometry = space.geometry;
        let extents = self.file_pages(geometry) / geometry.extent_pages;
        let mut map = space.map();
        let firsts: Vec<ExtentNo> = (0..extents).step_by(geometry.group_extents as usize).collect();
        // Only as many pages as are read together. If there were more, the first ones might leave the pool
        // before they are used.
        for some in firsts.chunks(PREFETCH_MAX) {
            let descriptor = |first: &ExtentNo| geometry.descriptor_of(geometry.group_of(*first));
            pool.prefetch(&some.iter().map(descriptor).collect::<Vec<_>>());
            for first in some {
                let page: PageS<'_> = pool.fix(descriptor(first), Access::Sequential)?;
                for extent in *first..extents.min(first + geometry.group_extents) {
                    map.push(geometry.entry(&page, extent)?);
                }
            }
        }
        let layout = self.layouts.of(geometry.header())?;
        if has_hollow && layout.leaves_holes() {
            map.hollow_out();
        } else {
            map.note_holding(|extent| layout.holds(geometry.pages_of(extent)));
        }
        Ok(())
    }

    fn space(&self, id: SpaceId) -> Result<&Space> {
        let found = self.spaces.iter().find(|space| space.geometry.space == id);
        found.ok_or_else(|| PagerError::Corrupt { what: format!("there is no space {}", id.0) })
    }

    fn file_pages(&self, geometry: Geometry) -> u32 {
        self.layouts.of(geometry.header()).map_or(0, |layout| layout.pages(geometry.space))
    }

    /// Numbers of the last checkpoints of the maps of packed spaces.
    pub(crate) fn map_checkpoints(&self) -> [u64; 2] {
        let header = |space| PageId::new(space, PageNo(0));
        SpaceId::DURABLE
            .map(|space| self.layouts.of(header(space)).map_or(0, |layout| layout.map_checkpoint()))
    }

    pub(crate) fn geometry(&self, space: SpaceId) -> Result<Geometry> {
        self.space(space).map(|space| space.geometry)
    }

    /// Extents of an owner.
    pub(crate) fn extents_of(&self, space: SpaceId, owner: u32) -> Result<Vec<ExtentNo>> {
        Ok(self.space(space)?.map().extents_of(owner))
    }

    pub(crate) fn entry(&self, geometry: Geometry, extent: ExtentNo) -> Option<Entry> {
        self.space(geometry.space).ok()?.map().entry(extent).copied()
    }

    fn take_page(&self, space: SpaceId, owner: u32, near: Option<PageId>) -> Result<PageId> {
        let space = self.space(space)?;
        let taken = space.map().take_page(owner, near);
        taken.ok_or_else(|| space.full())
    }

    fn take_extent(&self, space: SpaceId, owner: u32) -> Result<PageRange> {
        let space = self.space(space)?;
        let taken = space.map().take_whole(owner);
        taken.ok_or_else(|| space.full())
    }

    pub(crate) fn give_back(&self, geometry: Geometry, extent: ExtentNo, pages: &Bits) {
        if let Ok(space) = self.space(geometry.space) {
            space.map().give_back(extent, pages);
        }
    }

    /// Reserves an extent of the temporary space, and makes the space larger if necessary. This space has no
    /// descriptor pages.
    pub(crate) fn take_temporary(&self) -> Result<PageRange> {
        self.reserve(SpaceId::TEMPORARY, 1)?;
        self.take_extent(SpaceId::TEMPORARY, crate::base::space_format::FIRST_OWNER)
    }

    /// Frees an extent of the temporary space.
    pub(crate) fn give_temporary(&self, pages: PageRange) -> Result<()> {
        let geometry = self.geometry(pages.first.space())?;
        assert!(!geometry.space.is_logged() && pages == geometry.pages_of(geometry.extent_of(pages.first)));
        self.give_back(geometry, geometry.extent_of(pages.first), &Bits::first(geometry.extent_pages));
        Ok(())
    }

    /// Whether a page is within the file of its space, allocated or not.
    pub(crate) fn has_place(&self, id: PageId) -> bool {
        self.geometry(id.space()).is_ok_and(|geometry| id.no().0 < self.file_pages(geometry))
    }

    /// The number of allocated pages of a space.
    pub(crate) fn used_pages(&self, space: SpaceId) -> u64 {
        self.space(space).map_or(0, |space| space.map().used_pages())
    }
}

/// The locked map. When it is released, the number of free extents is copied to `free_extents`.
struct MapGuard<'a> {
    map: MutexGuard<'a, Map>,
    free_extents: &'a AtomicU32,
}

impl Deref for MapGuard<'_> {
    type Target = Map;
    fn deref(&self) -> &Map {
        &self.map
    }
}

impl DerefMut for MapGuard<'_> {
    fn deref_mut(&mut self) -> &mut Map {
        &mut self.map
    }
}

impl Drop for MapGuard<'_> {
    fn drop(&mut self) {
        self.free_extents.store(self.map.free_count(), Relaxed);
    }
}

impl Space {
    fn map(&self) -> MapGuard<'_> {
        MapGuard { map: self.map.lock(), free_extents: &self.free_extents }
    }

    /// Whether fewer than `extents` extents are free.
    fn is_short(&self, extents: u32) -> bool {
        self.free_extents.load(Relaxed) < extents
    }

    /// The error if nothing can be allocated.
    #[cold]
    fn full(&self) -> PagerError {
        let error = self.growth.try_lock().and_then(|growth| growth.error.clone());
        error.map_or(PagerError::NoFreePage { space: self.geometry.space }, PagerError::Device)
    }
}
