//! Spaces. This folder allocates pages and extents to owners, and makes the files of spaces longer and
//! shorter.
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
//! This module does not know what the pages are for, levels, or the log's format.

mod backup;
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
use crate::base::space_table::SpaceTable;
use crate::home::layouts::Layouts;
use crate::pool::{PREFETCH_MAX, PageS, Pool};

/// The number of free extents that are available when a mini-transaction begins.
pub(crate) const RESERVE_EXTENTS: u32 = 4;
/// The number of free extents that background threads keep, so that mini-transactions seldom wait for a file
/// to grow.
pub(crate) const BACKGROUND_EXTENTS: u32 = 2 * RESERVE_EXTENTS;

/// Free extents that wait to be cut off the end of the file.
struct Cut {
    /// The entries of the map for these extents.
    off: CutOff,
    /// Every log record that touched these extents is before this position.
    lsn: Lsn,
    /// Whether the durable start of redo is after `lsn`, so that the extents can be cut off.
    is_due: bool,
}

/// The state of growing and shrinking a file.
#[derive(Default)]
struct Growth {
    cut: Option<Cut>,
    /// The error of the last attempt to grow the file.
    error: Option<DeviceError>,
    /// Hollow extents are free extents whose file blocks may not be allocated. On a full device their blocks
    /// are reserved extent by extent. The next attempt begins at this extent.
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
    /// Whether the tablespace is being dropped, or was dropped, so that nothing can be allocated in it. The
    /// flag changes under the lock of the map.
    is_closed: AtomicBool,
}

/// All spaces.
pub(crate) struct Spaces {
    /// The spaces that each database has. The index is the number of the space minus one.
    own: [Space; 3],
    tablespaces: SpaceTable<Space>,
    layouts: Arc<Layouts>,
    growth_extents: u32,
}

impl Spaces {
    /// Makes the spaces. Their maps are not read yet.
    pub(crate) fn new(layouts: Arc<Layouts>, page_size: usize, growth_extents: u32) -> Spaces {
        let own = [SpaceId::DATA, SpaceId::ROLLBACK, SpaceId::TEMPORARY]
            .map(|id| Space::new(Geometry::of(id, page_size)));
        Spaces { own, tablespaces: SpaceTable::default(), layouts, growth_extents }
    }

    /// Adds a tablespace of an existing database before its map is read.
    pub(crate) fn add(&self, id: SpaceId, page_size: usize) {
        self.tablespaces.add(id, Space::new(Geometry::of(id, page_size)));
    }

    /// Adds a tablespace that was just made, and reads its map.
    pub(crate) fn add_made(&self, id: SpaceId, pool: &Pool) -> Result<()> {
        let space = Space::new(Geometry::of(id, pool.page_size()));
        self.load_map(&space, pool, false)?;
        self.tablespaces.add(id, space);
        Ok(())
    }

    /// Removes the layout of a tablespace that was closed, or whose making failed.
    pub(crate) fn remove(&self, id: SpaceId) {
        // A thread that grows or cuts the file holds this lock while it uses the layout.
        let _growth = self.tablespaces.get(id).map(|space| space.growth.lock());
        self.layouts.remove(id);
    }

    /// Returns all spaces that are in use.
    fn each(&self) -> impl Iterator<Item = &Space> {
        self.own.iter().chain(self.tablespaces.iter().filter(|space| !space.is_closed()))
    }

    /// Returns all spaces that are in use and survive a restart.
    fn durable(&self) -> impl Iterator<Item = &Space> {
        self.each().filter(|space| space.geometry.space.is_logged())
    }

    /// Returns the layouts of all spaces.
    pub(crate) fn layouts(&self) -> &Layouts {
        &self.layouts
    }

    /// Returns the header pages of all spaces that survive a restart.
    pub(crate) fn headers(&self) -> Vec<PageId> {
        self.durable().map(|space| space.geometry.header()).collect()
    }

    /// Returns the data space and the tablespaces, in which tables can be.
    pub(crate) fn of_tables(&self) -> Vec<SpaceId> {
        let ids = self.durable().map(|space| space.geometry.space);
        ids.filter(|id| *id != SpaceId::ROLLBACK).collect()
    }

    /// Returns the space in which this owner of a table or an index has pages. If it has none, it is the data
    /// space.
    pub(crate) fn space_of_owner(&self, owner: u32) -> SpaceId {
        let mut open = self.tablespaces.iter().filter(|space| !space.is_closed());
        let found = open.find(|space| space.map().has_owner(owner));
        found.map_or(SpaceId::DATA, |space| space.geometry.space)
    }

    /// Closes a tablespace if nothing is allocated in it. Returns whether it is closed.
    pub(crate) fn close(&self, id: SpaceId) -> Result<bool> {
        let space = self.space(id)?;
        let map = space.map();
        let is_empty = map.has_no_owner();
        if is_empty {
            space.is_closed.store(true, Relaxed);
        }
        Ok(is_empty)
    }

    /// Opens a tablespace again that could not be dropped.
    pub(crate) fn reopen(&self, id: SpaceId) {
        if let Some(space) = self.tablespaces.get(id) {
            space.is_closed.store(false, Relaxed);
        }
    }

    /// Is called after redo. Checks the headers and reads the maps. `has_hollow` means that in files with the
    /// in-place layout, free extents may have no disk blocks.
    pub(crate) fn load(&self, pool: &Pool, database_id: u64, has_hollow: bool) -> Result<()> {
        // The pages are prefetched together, because they are scattered over the data files. Reading them
        // one by one would take much of the time of a start on disks.
        let first = |space: &Space| [space.geometry.header(), space.geometry.descriptor_of(0)];
        pool.prefetch(&self.durable().flat_map(first).collect::<Vec<_>>());
        self.durable().try_for_each(|space| {
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
        if let Some(space) = self.own.get(usize::from(id.0).wrapping_sub(1)) {
            return Ok(space);
        }
        let found = self.tablespaces.get(id).filter(|space| !space.is_closed());
        found.ok_or(PagerError::NoSuchTablespace { id })
    }

    fn file_pages(&self, geometry: Geometry) -> u32 {
        self.layouts.of(geometry.header()).map_or(0, |layout| layout.pages(geometry.space))
    }

    /// Returns the numbers of the last checkpoints of the maps of packed spaces.
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
        let mut map = space.map();
        let taken = if space.is_closed() { None } else { map.take_page(owner, near) };
        drop(map);
        taken.ok_or_else(|| space.full())
    }

    fn take_extent(&self, space: SpaceId, owner: u32) -> Result<PageRange> {
        let space = self.space(space)?;
        let mut map = space.map();
        let taken = if space.is_closed() { None } else { map.take_whole(owner) };
        drop(map);
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

    /// Returns whether a page is within the file of its space, allocated or not.
    pub(crate) fn has_place(&self, id: PageId) -> bool {
        self.geometry(id.space()).is_ok_and(|geometry| id.no().0 < self.file_pages(geometry))
    }

    /// Returns the number of allocated pages of a space.
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
    fn new(geometry: Geometry) -> Space {
        Space {
            geometry,
            map: Mutex::new(Map::new(geometry)),
            free_extents: AtomicU32::new(0),
            growth: Mutex::default(),
            waiting: AtomicU32::new(0),
            is_stuck: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// Locks the growth of the file. `None` if the tablespace is being dropped. While the lock is held, the
    /// layout of the space is not removed.
    fn open_growth(&self) -> Option<MutexGuard<'_, Growth>> {
        let growth = self.growth.lock();
        (!self.is_closed()).then_some(growth)
    }

    fn map(&self) -> MapGuard<'_> {
        MapGuard { map: self.map.lock(), free_extents: &self.free_extents }
    }

    /// Returns whether fewer than `extents` extents are free.
    fn is_short(&self, extents: u32) -> bool {
        self.free_extents.load(Relaxed) < extents
    }

    /// Returns the error if nothing can be allocated.
    #[cold]
    fn full(&self) -> PagerError {
        let error = self.growth.try_lock().and_then(|growth| growth.error.clone());
        error.map_or(PagerError::NoFreePage { space: self.geometry.space }, PagerError::Device)
    }
}
