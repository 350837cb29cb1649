//! The table that says which layout each space has. A request for pages of several spaces is split here, and
//! each layout gets the pages of its own spaces.
//!
//! What it does not know: what a layout does with the pages.

use std::sync::Arc;

use crate::base::error::{PagerError, Result};
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
}

const SPACES: usize = 3;

impl Layouts {
    /// The spaces in `packed` have their packed layouts, and all others are in place.
    pub(crate) fn new(in_place: InPlace, packed: Vec<(SpaceId, PackedSpace)>) -> Layouts {
        let mut layouts = Layouts { all: vec![Arc::new(in_place)], by_space: [0; SPACES] };
        for (space, layout) in packed {
            layouts.by_space[usize::from(space.0) - 1] = layouts.all.len();
            layouts.all.push(Arc::new(layout));
        }
        layouts
    }

    fn number_of(&self, space: SpaceId) -> Option<usize> {
        self.by_space.get(usize::from(space.0).checked_sub(1)?).copied()
    }

    /// The layout of the page's space.
    pub(crate) fn of(&self, id: PageId) -> Result<&dyn Layout> {
        let number = self.number_of(id.space()).ok_or(PagerError::NoSuchPage { id, pages: 0 })?;
        Ok(&*self.all[number])
    }

    /// All layouts.
    pub(crate) fn each(&self) -> impl Iterator<Item = &dyn Layout> {
        self.all.iter().map(|layout| &**layout)
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
        for (number, layout) in self.all.iter().enumerate() {
            let is_there = |image: &&Image| self.number_of(image.id().space()) == Some(number);
            let there: Vec<&Image> = images.iter().copied().filter(is_there).collect();
            if !there.is_empty() {
                layout.write(&there, cause, need)?;
            }
        }
        Ok(())
    }
}
