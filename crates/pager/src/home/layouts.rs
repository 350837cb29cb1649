//! The table that says which layout each space has. A request for pages of several spaces is split here, and
//! each layout gets the pages of its own spaces.
//!
//! What it does not know: what a layout does with the pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::base::error::{PagerError, Result};
use crate::base::growing_list::GrowingList;
use crate::base::ids::{PageId, SpaceId};
use crate::base::image::Image;
use crate::home::in_place::InPlace;
use crate::home::layout::Layout;
use crate::home::packed::PackedSpace;
use crate::level::{Cause, Need, Want};

/// Which layout each space has.
pub(crate) struct Layouts {
    all: Vec<Arc<dyn Layout>>,
    /// For each space, the index in `all`. The index in this array is the number of the space minus one.
    by_space: [usize; SPACES],
    /// The layouts of tablespaces, in the order in which they were opened. Their indexes follow those of
    /// `all`.
    tablespaces: GrowingList<OfTablespace>,
}

/// The layout of a tablespace.
struct OfTablespace {
    space: SpaceId,
    layout: InPlace,
    is_dropped: AtomicBool,
}

const SPACES: usize = 3;

impl Layouts {
    /// The spaces in `packed` have their packed layouts, and all others are in place.
    pub(crate) fn new(in_place: InPlace, packed: Vec<(SpaceId, PackedSpace)>) -> Layouts {
        let all: Vec<Arc<dyn Layout>> = vec![Arc::new(in_place)];
        let mut layouts = Layouts { all, by_space: [0; SPACES], tablespaces: GrowingList::default() };
        for (space, layout) in packed {
            layouts.by_space[usize::from(space.0) - 1] = layouts.all.len();
            layouts.all.push(Arc::new(layout));
        }
        layouts
    }

    /// Adds the layout of a tablespace. Returns false if the list is full, because too many were made since
    /// the start.
    pub(crate) fn add(&self, space: SpaceId, layout: InPlace) -> bool {
        self.tablespaces.push(OfTablespace { space, layout, is_dropped: AtomicBool::new(false) }).is_ok()
    }

    /// Excludes a dropped tablespace from checkpoints, because its pages are not needed any more.
    pub(crate) fn note_dropped(&self, space: SpaceId) {
        let dropped = self.tablespaces.iter().find(|one| one.space == space);
        dropped.into_iter().for_each(|one| one.is_dropped.store(true, Relaxed));
    }

    fn number_of(&self, space: SpaceId) -> Option<usize> {
        match self.by_space.get(usize::from(space.0).checked_sub(1)?) {
            Some(number) => Some(*number),
            None => self.number_of_tablespace(space),
        }
    }

    #[cold]
    fn number_of_tablespace(&self, space: SpaceId) -> Option<usize> {
        let at = self.tablespaces.iter().position(|one| one.space == space)?;
        Some(self.all.len() + at)
    }

    /// The layout of the page's space.
    pub(crate) fn of(&self, id: PageId) -> Result<&dyn Layout> {
        match self.by_space.get(usize::from(id.space().0).wrapping_sub(1)) {
            Some(number) => Ok(&*self.all[*number]),
            None => self.of_tablespace(id),
        }
    }

    #[cold]
    fn of_tablespace(&self, id: PageId) -> Result<&dyn Layout> {
        let found = self.tablespaces.iter().find(|one| one.space == id.space());
        found.map(|one| &one.layout as &dyn Layout).ok_or(PagerError::NoSuchPage { id, pages: 0 })
    }

    /// All layouts, except those of dropped tablespaces.
    pub(crate) fn each(&self) -> impl Iterator<Item = &dyn Layout> {
        let tablespaces = self.tablespaces.iter().filter(|one| !one.is_dropped.load(Relaxed));
        let tablespaces = tablespaces.map(|one| &one.layout as &dyn Layout);
        self.all.iter().map(|layout| &**layout).chain(tablespaces)
    }

    fn of_number(&self, number: usize) -> Option<&dyn Layout> {
        let all = self.all.iter().map(|layout| &**layout);
        all.chain(self.tablespaces.iter().map(|one| &one.layout as &dyn Layout)).nth(number)
    }

    /// Reads pages of any spaces.
    pub(crate) fn read(&self, wants: &mut [(PageId, &mut Want<'_>)]) -> Result<()> {
        let number = |id: &PageId| self.number_of(id.space());
        let mut groups = wants.chunk_by_mut(|a, b| number(&a.0) == number(&b.0));
        groups.try_for_each(|group| self.of(group[0].0)?.read(group))
    }

    /// Whether the pages of both spaces are written by one layout.
    pub(crate) fn is_one(&self, one: SpaceId, other: SpaceId) -> bool {
        self.number_of(one) == self.number_of(other)
    }

    /// Writes pages of several spaces. All of them are logged, or all are temporary. If a device refuses
    /// pages of one layout, pages of another layout may have been written.
    pub(crate) fn write(&self, images: &[&Image], cause: Cause, need: Need) -> Result<()> {
        let number = |image: &&Image| self.number_of(image.id().space());
        for (at, layout) in self.all.iter().enumerate() {
            let there: Vec<&Image> = images.iter().copied().filter(|one| number(one) == Some(at)).collect();
            if !there.is_empty() {
                layout.write(&there, cause, need)?;
            }
        }
        if self.tablespaces.iter().next().is_none() {
            return Ok(());
        }
        let mut others: Vec<(usize, &Image)> =
            images.iter().filter_map(|image| Some((number(image)?, *image))).collect();
        others.retain(|(at, _)| *at >= self.all.len());
        others.sort_by_key(|(at, _)| *at);
        for group in others.chunk_by(|one, other| one.0 == other.0) {
            let there: Vec<&Image> = group.iter().map(|(_, image)| *image).collect();
            let Some(layout) = self.of_number(group[0].0) else { continue };
            layout.write(&there, cause, need)?;
        }
        Ok(())
    }
}
