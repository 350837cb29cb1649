//! The table that says which layout each space has. A request for pages of several spaces is split here, and
//! each layout gets the pages of its own spaces.
//!
//! Invariants
//! 1. The layout of a dropped tablespace is removed from the table. Its files and its directory are closed
//!    when the last thread that uses the layout releases it.
//!
//! This module does not know what a layout does with the pages.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::RwLock;
use varve_device::Directory;

use crate::base::error::{PagerError, Result};
use crate::base::ids::{PageId, SpaceId};
use crate::base::image::Image;
use crate::base::space_table::SpaceTable;
use crate::home::in_place::InPlace;
use crate::home::layout::Layout;
use crate::home::packed::PackedSpace;
use crate::level::{Cause, Need, Want};

/// Which layout each space has.
pub(crate) struct Layouts {
    /// The layouts of the spaces that each database has.
    own: Vec<Arc<dyn Layout>>,
    /// For each of these spaces, the index in `own`. The index in this array is the number of the space minus
    /// one.
    by_space: [usize; OWN_SPACES],
    /// The layouts of tablespaces. `None` means that the tablespace was dropped.
    tablespaces: SpaceTable<RwLock<Option<Arc<OfTablespace>>>>,
}

/// The layout of a tablespace.
pub(crate) struct OfTablespace {
    layout: InPlace,
    /// The directory with its files.
    directory: Arc<dyn Directory>,
}

const OWN_SPACES: usize = 3;

/// A layout in use. The layout of a tablespace exists at least as long as this.
pub(crate) enum LayoutInUse<'a> {
    Own(&'a (dyn Layout + 'static)),
    OfTablespace(Arc<OfTablespace>),
}

impl Deref for LayoutInUse<'_> {
    type Target = dyn Layout;

    fn deref(&self) -> &Self::Target {
        match self {
            LayoutInUse::Own(layout) => *layout,
            LayoutInUse::OfTablespace(one) => &one.layout,
        }
    }
}

impl Layouts {
    /// Returns the table of a database in which the spaces in `packed` have their packed layouts, and all
    /// others are in place.
    pub(crate) fn new(in_place: InPlace, packed: Vec<(SpaceId, PackedSpace)>) -> Layouts {
        let own: Vec<Arc<dyn Layout>> = vec![Arc::new(in_place)];
        let mut layouts = Layouts { own, by_space: [0; OWN_SPACES], tablespaces: SpaceTable::default() };
        for (space, layout) in packed {
            layouts.by_space[usize::from(space.0) - 1] = layouts.own.len();
            layouts.own.push(Arc::new(layout));
        }
        layouts
    }

    /// Adds the layout of a tablespace.
    pub(crate) fn add(&self, space: SpaceId, layout: InPlace, directory: Arc<dyn Directory>) {
        self.tablespaces.add(space, RwLock::new(Some(Arc::new(OfTablespace { layout, directory }))));
    }

    /// The directory of a tablespace.
    pub(crate) fn directory(&self, space: SpaceId) -> Option<Arc<dyn Directory>> {
        self.tablespace(space).map(|one| one.directory.clone())
    }

    fn tablespace(&self, space: SpaceId) -> Option<Arc<OfTablespace>> {
        self.tablespaces.get(space)?.read().clone()
    }

    /// Removes the layout of a dropped tablespace.
    pub(crate) fn remove(&self, space: SpaceId) {
        let removed = self.tablespaces.get(space).and_then(|slot| slot.write().take());
        drop(removed);
    }

    /// A number of the layout of a space. Spaces with one layout have one number.
    fn number_of(&self, space: SpaceId) -> usize {
        let of_own = self.by_space.get(usize::from(space.0).wrapping_sub(1));
        of_own.copied().unwrap_or_else(|| self.own.len() + usize::from(space.0))
    }

    fn find(&self, space: SpaceId) -> Option<LayoutInUse<'_>> {
        if let Some(number) = self.by_space.get(usize::from(space.0).wrapping_sub(1)) {
            return Some(LayoutInUse::Own(&*self.own[*number]));
        }
        self.tablespace(space).map(LayoutInUse::OfTablespace)
    }

    /// The layout of the page's space.
    pub(crate) fn of(&self, id: PageId) -> Result<LayoutInUse<'_>> {
        self.find(id.space()).ok_or(PagerError::NoSuchPage { id, pages: 0 })
    }

    /// All layouts, except those of dropped tablespaces.
    pub(crate) fn each(&self) -> impl Iterator<Item = LayoutInUse<'_>> {
        let tablespaces = self.tablespaces.iter().filter_map(|slot| slot.read().clone());
        let own = self.own.iter().map(|layout| LayoutInUse::Own(&**layout));
        own.chain(tablespaces.map(LayoutInUse::OfTablespace))
    }

    /// Reads pages of any spaces.
    pub(crate) fn read(&self, wants: &mut [(PageId, &mut Want<'_>)]) -> Result<()> {
        let mut groups = wants.chunk_by_mut(|a, b| self.is_one(a.0.space(), b.0.space()));
        groups.try_for_each(|group| self.of(group[0].0)?.read(group))
    }

    /// Returns whether the pages of both spaces are written by one layout.
    pub(crate) fn is_one(&self, one: SpaceId, other: SpaceId) -> bool {
        self.number_of(one) == self.number_of(other)
    }

    /// Writes pages of several spaces. All of them are logged, or all are temporary. If a device refuses
    /// pages of one layout, pages of another layout may have been written.
    pub(crate) fn write(&self, images: &[&Image], cause: Cause, need: Need) -> Result<()> {
        let space = |image: &&Image| image.id().space();
        if images.is_sorted_by_key(|image| self.number_of(space(image))) {
            return self.write_sorted(images, cause, need);
        }
        let mut sorted = images.to_vec();
        sorted.sort_by_key(|image| self.number_of(space(image)));
        self.write_sorted(&sorted, cause, need)
    }

    /// As `write`, for pages in the order of the numbers of their layouts.
    fn write_sorted(&self, images: &[&Image], cause: Cause, need: Need) -> Result<()> {
        for group in images.chunk_by(|a, b| self.is_one(a.id().space(), b.id().space())) {
            let space = group[0].id().space();
            match self.find(space) {
                Some(layout) => layout.write(group, cause, need)?,
                // Its tablespace was dropped, so the pages are not needed any more.
                None if space.is_tablespace() => {}
                None => return Err(PagerError::NoSuchPage { id: group[0].id(), pages: 0 }),
            }
        }
        Ok(())
    }
}
