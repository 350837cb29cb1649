//! Owners of pages: making a new owner, and dropping an owner with all its pages. An owner is, for example,
//! the tree of a table.
//!
//! Invariants
//! 1. Owner numbers are never used again.
//! 2. A drop consists of steps, and each step is a mini-transaction. If a crash interrupts a drop, the drop
//!    can be repeated.
//! 3. The pool drops the pages of a step after the commit of the step, and before they can be allocated
//!    again.
//!
//! This module does not know what an owner stores in its pages.

use varve_device::{planted, reached};

use crate::api::pager::Pager;
use crate::base::error::Result;
use crate::base::ids::{PageRange, SpaceId};
use crate::base::space_format::{self, Bits, Entry, ExtentNo, Geometry};
use crate::log::notes::discards::{self, NOTE_DISCARD};
use crate::running::shared::Shared;

/// The most extents that one mini-transaction drops.
const STEP_EXTENTS: usize = 128;

impl Pager {
    /// Makes a new owner, and returns its number.
    pub(super) fn new_segment(&self, space: SpaceId) -> Result<u32> {
        // The data space and the tablespaces share their numbers of owners.
        let space = if space.is_tablespace() { SpaceId::DATA } else { space };
        let geometry = self.shared.spaces.geometry(space)?;
        let mut mtr = self.begin()?;
        let header = mtr.x(geometry.header())?;
        let owner = space_format::next_owner(mtr.page(header));
        mtr.write(header, space_format::NEXT_OWNER_OFFSET, &(owner + 1).to_le_bytes());
        mtr.commit();
        Ok(owner)
    }

    /// Frees all pages of an owner.
    pub(super) fn drop_pages_of(&self, space: SpaceId, owner: u32) -> Result<()> {
        assert!(owner >= space_format::FIRST_OWNER, "owner {owner} is the pager's own");
        if space == SpaceId::DATA {
            return self.shared.spaces.of_tables().into_iter().try_for_each(|one| self.drop_in(one, owner));
        }
        self.drop_in(space, owner)
    }

    fn drop_in(&self, space: SpaceId, owner: u32) -> Result<()> {
        let geometry = self.shared.spaces.geometry(space)?;
        let extents = self.shared.spaces.extents_of(space, owner)?;
        for group in extents.chunk_by(|a, b| geometry.group_of(*a) == geometry.group_of(*b)) {
            for step in group.chunks(STEP_EXTENTS) {
                self.drop_extents(geometry, step)?;
            }
        }
        Ok(())
    }

    /// Frees extents of one group.
    fn drop_extents(&self, geometry: Geometry, extents: &[ExtentNo]) -> Result<()> {
        let Shared { pool, spaces, .. } = &*self.shared;
        let ranges: Vec<PageRange> = extents.iter().map(|extent| geometry.pages_of(*extent)).collect();
        let mut mtr = self.begin()?;
        let _hold = pool.discarding(geometry.space);
        let descriptor = mtr.x(geometry.descriptor_of(geometry.group_of(extents[0])))?;
        if !planted("space: dropped pages are not noted") {
            mtr.note(NOTE_DISCARD, &discards::encode(&ranges));
        }
        let free = geometry.encode_entry(&Entry::default());
        let kept = usize::from(planted("space: a drop forgets an extent"));
        for extent in extents.iter().skip(kept) {
            mtr.write(descriptor, geometry.entry_offset(*extent), &free);
        }
        let dropped = mtr.commit();
        reached("space: extents dropped");
        ranges.into_iter().try_for_each(|range| pool.discard(range, dropped))?;
        for extent in extents {
            let used: Bits = spaces.entry(geometry, *extent).map_or_else(Bits::default, |entry| entry.used);
            spaces.give_back(geometry, *extent, &used);
        }
        Ok(())
    }
}
