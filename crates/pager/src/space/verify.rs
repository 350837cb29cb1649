//! The consistency check of a space. It checks the header, the descriptor pages (which say which pages are in
//! use), and every page in use.
//!
//! Invariants
//! 1. The check changes nothing. Its result is exact if no mini-transaction runs meanwhile.
//!
//! This module does not know which pages are reachable (the engine compares with [`Spaces::owners`] and
//! [`Spaces::pages_of_owner`]).

use std::collections::BTreeMap;

use super::{Space, Spaces};
use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, SpaceId};
use crate::base::page::PageDamage;
use crate::base::space_format::{Entry, ExtentNo, Geometry, OWNER_SYSTEM};
use crate::pool::{PageS, Pool};

/// The check ends after this many damages.
const DAMAGES_MAX: usize = 100;

/// The result of `Pager::check`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The number of pages that were checked.
    pub pages: u64,
    /// The number of allocated pages that were never written.
    pub unused_pages: u64,
    /// The damages, in the order in which they were found. If it is empty, the database is sound.
    pub damages: Vec<String>,
}

impl Spaces {
    /// Checks all durable spaces.
    pub(crate) fn check(&self, pool: &Pool, database_id: u64) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        for space in self.durable() {
            match pool.fix(space.geometry.header(), Access::Sequential) {
                Ok(header) => {
                    let header: PageS<'_> = header;
                    note(&mut report, space.geometry.check_header(&header, database_id))?;
                }
                Err(error) => note(&mut report, Err(error))?,
            }
            let extents = space.map().extent_count();
            for extent in 0..extents {
                self.check_extent(space, pool, extent, &mut report)?;
            }
        }
        Ok(report)
    }

    fn check_extent(
        &self,
        space: &Space,
        pool: &Pool,
        extent: ExtentNo,
        report: &mut CheckReport,
    ) -> Result<()> {
        let geometry = space.geometry;
        let stored = match stored_entry(geometry, pool, extent) {
            Ok(entry) => entry,
            Err(error) => return note(report, Err(error)),
        };
        if let Some(mapped) = space.map().entry(extent).filter(|mapped| **mapped != stored) {
            let what = format!(
                "extent {extent} of {}: its descriptor gives it to owner {} with {} pages, memory to owner {} with {}",
                geometry.space.title(),
                stored.owner,
                stored.used.count(),
                mapped.owner,
                mapped.used.count()
            );
            note(report, Err(PagerError::Corrupt { what }))?;
        }
        let used: Vec<PageId> = stored.used.iter().map(|within| geometry.page_of(extent, within)).collect();
        pool.prefetch(&used);
        used.into_iter().try_for_each(|id| check_page(pool, id, report))
    }

    /// Returns the owners of a space, except the pager, with the number of allocated pages of each.
    pub(crate) fn owners(&self, space: SpaceId) -> Result<BTreeMap<u32, u64>> {
        let map = self.space(space)?.map();
        let mut owners = BTreeMap::new();
        for entry in (0..map.extent_count()).filter_map(|extent| map.entry(extent)) {
            if entry.owner > OWNER_SYSTEM {
                *owners.entry(entry.owner).or_insert(0) += u64::from(entry.used.count());
            }
        }
        Ok(owners)
    }

    /// Returns the owner of the extent that contains the page. `None` means that the extent is free or
    /// belongs to the pager.
    pub(crate) fn owner_of(&self, id: PageId) -> Option<u32> {
        let space = self.space(id.space()).ok()?;
        let owner = space.map().entry(space.geometry.extent_of(id))?.owner;
        (owner > OWNER_SYSTEM).then_some(owner)
    }

    /// Returns, for each owner, the bytes that its allocated pages take in the file. `None` means that the
    /// layout does not know them.
    pub(crate) fn home_bytes(&self, space: SpaceId) -> Result<Option<BTreeMap<u32, u64>>> {
        let space = self.space(space)?;
        let layout = self.layouts.of(space.geometry.header())?;
        let mut owners = BTreeMap::new();
        let count = space.map().extent_count();
        for extent in 0..count {
            // Other threads may allocate pages meanwhile, so the lock is not held all the time.
            let entry = space.map().entry(extent).copied();
            let Some(entry) = entry.filter(|entry| entry.owner > OWNER_SYSTEM) else { continue };
            let sum = owners.entry(entry.owner).or_insert(0);
            for within in entry.used.iter() {
                let Some(bytes) = layout.slot_bytes(space.geometry.page_of(extent, within)) else {
                    return Ok(None);
                };
                *sum += bytes;
            }
        }
        Ok(Some(owners))
    }

    /// Returns the allocated pages of an owner, in the order of their numbers.
    pub(crate) fn pages_of_owner(&self, space: SpaceId, owner: u32) -> Result<Vec<PageId>> {
        let space = self.space(space)?;
        let map = space.map();
        let mut pages = Vec::new();
        for extent in map.extents_of(owner) {
            let used = map.entry(extent).map_or_else(Default::default, |entry| entry.used);
            pages.extend(used.iter().map(|within| space.geometry.page_of(extent, within)));
        }
        Ok(pages)
    }
}

fn stored_entry(geometry: Geometry, pool: &Pool, extent: ExtentNo) -> Result<Entry> {
    let descriptor: PageS<'_> =
        pool.fix(geometry.descriptor_of(geometry.group_of(extent)), Access::Sequential)?;
    geometry.entry(&descriptor, extent)
}

/// Checks a page. A page of zeros is allocated, but was never written. It is counted as unused.
fn check_page(pool: &Pool, id: PageId, report: &mut CheckReport) -> Result<()> {
    report.pages += 1;
    let read: Result<PageS<'_>> = pool.fix(id, Access::Sequential);
    match read {
        Err(PagerError::DamagedPage { damage: PageDamage::Zero, .. }) => {
            report.unused_pages += 1;
            Ok(())
        }
        other => note(report, other.map(drop)),
    }
}

/// Adds a damage to the report. Other errors end the check.
fn note(report: &mut CheckReport, result: Result<()>) -> Result<()> {
    match result {
        Err(
            error @ (PagerError::DamagedPage { .. }
            | PagerError::Corrupt { .. }
            | PagerError::Incompatible { .. }),
        ) => {
            if report.damages.len() >= DAMAGES_MAX {
                return Err(error);
            }
            report.damages.push(error.to_string());
            Ok(())
        }
        other => other,
    }
}
