//! Access for the fuzz target of the page map: it makes the files of a small packed space, and recovers the
//! space from them.
//!
//! This module does not know how the fuzz target changes the files between the two steps.

use varve_device::{AlignedBuf, Directory, Durability, OpenHow, Purpose};

use super::Identity;
use super::format::{MapPage, PLACES, Shape};
use super::map_file::{Checkpoint, MapFile};
use super::recover::SpaceFiles;
use super::unit_run::UnitRun;
use crate::base::error::Result;
use crate::base::ids::{PageNo, SpaceId};
use crate::base::lsn::Lsn;
use crate::home::files;
use crate::log::{Observe, Record};

const EXTENT_BYTES: u64 = 64 << 10;
const EXTENTS: u64 = 4;
/// The pages that the space has, from two map pages.
const PAGES: [u32; 3] = [1, 7, PLACES + 2];

/// A page and its place: address and length in units.
pub(crate) type Lies = (u32, u64, u32);

fn identity(database: u64, page_size: usize) -> Identity {
    Identity { space: SpaceId::DATA, database, page_size }
}

/// Makes the files of a data space of a few pages, after two checkpoints of its map.
pub(crate) fn make(directory: &dyn Directory, database: u64, page_size: usize) -> Result<()> {
    let space = SpaceId::DATA;
    let shape = Shape { page_size: page_size as u32, extent_bytes: EXTENT_BYTES, database, space };
    let (kind, _) = files::device_space(space);
    let file = directory.open(&files::file_name(space), OpenHow::or_create(kind))?;
    file.set_len(EXTENTS * EXTENT_BYTES)?;
    let header = AlignedBuf::copy_of(&shape.header());
    file.write_at(0, &header, Purpose::Mapping, Durability::Now)?;
    let map_file = MapFile::create(directory, shape)?;
    map_file.resize(2 * PLACES)?;
    for round in 1..3 {
        let page = |number| MapPage {
            number,
            checkpoint: map_file.next_checkpoint(),
            places: (number * PLACES..(number + 1) * PLACES)
                .map(|no| {
                    UnitRun::new(u64::from(no % 100) * 4 + round * 8, 4).filter(|_| PAGES.contains(&no))
                })
                .collect(),
        };
        let (log_from, after) = (Lsn::new(4096), Lsn::new(4096 + round));
        map_file.checkpoint(&Checkpoint { pages: vec![page(0), page(1)], map_pages: 2, log_from, after })?;
    }
    Ok(())
}

/// Recovers the space from its files and the given log records, each with the end of its group. Takes a
/// checkpoint of the map if the fuzz target continues.
pub(crate) fn recover(
    directory: &dyn Directory,
    (database, page_size): (u64, usize),
    notes: &[(Lsn, u8, Vec<u8>)],
    goes_on: bool,
) -> Result<Vec<Lies>> {
    let mut found = SpaceFiles::open(directory, &identity(database, page_size), 0)?;
    for (lsn, kind, payload) in notes {
        found.replay.observe(*lsn, &Record::Note { kind: *kind, payload })?;
    }
    let mut parts = found.into_parts()?;
    if goes_on {
        let head = parts.map_file.head();
        let (pages, map_pages) = parts.book.copy(parts.map_file.next_checkpoint(), head.map_pages);
        let after = notes.iter().map(|(lsn, ..)| *lsn).fold(head.after, Lsn::max);
        parts.map_file.checkpoint(&Checkpoint { pages, map_pages, log_from: head.log_from, after })?;
    }
    let lies = |(no, place): (PageNo, UnitRun)| (no.0, place.address(), place.units());
    Ok(parts.map.each().map(lies).collect())
}
