//! Opens a packed space. The page map is rebuilt as a crash or a shutdown left it.
//!
//! ```text
//!  read heads, header block, map pages --> apply log records (analysis) --> count live slots of each extent
//! ```
//!
//! Invariants
//! 1. Nothing is written until the control file has the log's new life (the time from this opening to the
//!    next).
//! 2. Places outside the file, and places that overlap, are damage. The error names the page.
//! 3. Space that no entry of the map names is free. So recovery needs to know neither which extent was being
//!    filled nor which writes were in flight.
//!
//! This module does not know the rules for log records (`replay.rs`) or redo.

use std::collections::BTreeSet;
use std::sync::Arc;

use varve_device::{AlignedBuf, BlockFile, Directory, Purpose};

use super::book::Book;
use super::extents::Extents;
use super::format::{BLOCK_BYTES, Shape};
use super::map_file::MapFile;
use super::page_map::PageMap;
use super::read::Window;
use super::replay::Replay;
use super::{Identity, PackedParts, PackedSpace, sector_bytes};
use crate::base::error::{PagerError, Result};
use crate::base::ids::PageId;
use crate::base::lsn::Lsn;
use crate::home::compression::stored_page;
use crate::home::files;

/// The files of a space, and its map with the log records that were read so far.
pub(crate) struct SpaceFiles {
    file: Arc<dyn BlockFile>,
    location: String,
    map_file: MapFile,
    stale: BTreeSet<u32>,
    /// Applies the log records.
    pub(crate) replay: Replay,
}

impl SpaceFiles {
    /// Reads the files of a space. Checkpoint `known` of its map was durable. If the map is older, it was
    /// replaced by an old copy, and the log since then is gone.
    pub(crate) fn open(directory: &dyn Directory, who: &Identity, known: u64) -> Result<SpaceFiles> {
        let map_file = MapFile::open(directory, who)?;
        let head = map_file.head();
        if head.checkpoint < known {
            let what = format!(
                "the map of the {} space in {} is older than the database: checkpoint {} where {known} was durable; put back \
                 all files of one backup",
                who.space.name(),
                directory.location(),
                head.checkpoint
            );
            return Err(PagerError::Incompatible { what });
        }
        let name = files::file_name(who.space);
        let file = files::open_existing(who.space, directory, &name)?;
        let location = format!("{}/{name}", directory.location());
        check_header(&*file, &location, &head.shape)?;
        let (map, stale) = map_file.load()?;
        let replay = Replay::new(who.space, map, head.after);
        Ok(SpaceFiles { file, location, map_file, stale, replay })
    }

    /// Returns the length of the extents, which is fixed when the space is made.
    pub(crate) fn extent_bytes(&self) -> u64 {
        self.map_file.head().shape.extent_bytes
    }

    /// Returns an error if the log ends at `until`, before the checkpoint of the map.
    pub(crate) fn refuse_shorter(&self, until: Lsn) -> Result<()> {
        let head = self.map_file.head();
        if head.after <= until {
            return Ok(());
        }
        let what = format!(
            "the map of {} goes with a log that reaches to {}, and this one ends at {until}: restore both from one backup",
            self.location, head.after
        );
        Err(PagerError::Corrupt { what })
    }

    /// Reads the page from the place that the map and the log give. `None` means that it has no place, or is
    /// damaged there.
    pub(crate) fn read(&self, id: PageId, page_size: usize) -> Result<Option<AlignedBuf>> {
        let Some(place) = self.replay.place(id.no()) else { return Ok(None) };
        let window = Window::of(place, sector_bytes(&*self.file));
        if window.offset + window.len_bytes as u64 > self.file.len_bytes()? {
            return Ok(None);
        }
        let (mut slot, mut page) = (AlignedBuf::new(window.len_bytes), AlignedBuf::new(page_size));
        self.file.read_at(window.offset, &mut slot, files::device_space(id.space()).1)?;
        let stored = &slot[window.skip..window.skip + place.len_bytes()];
        Ok(stored_page::decode(stored, id, &mut page).is_ok().then_some(page))
    }

    /// Makes the space, after the log was read.
    pub(crate) fn into_space(self, parts: PackedParts) -> Result<PackedSpace> {
        let own = self.into_parts()?;
        Ok(PackedSpace::over(own.file, own.map_file, own.map, own.book, parts))
    }

    /// Makes the parts of the space from the map after all log records.
    pub(super) fn into_parts(self) -> Result<Parts> {
        let shape = self.map_file.head().shape;
        // A killed process may have left slots in caches of the system. They must be durable, because redo
        // treats their pages as stable.
        self.file.flush()?;
        match self.map_file.mend_heads() {
            // One block with the head is enough. The other one is tried again before the next head is
            // written.
            Err(cause) if cause.is_no_space() => {}
            mended => mended?,
        }
        let (map, mut dirty) = self.replay.finish();
        dirty.extend(self.stale);
        let count = u32::try_from(self.file.len_bytes()? / shape.extent_bytes).unwrap_or(u32::MAX);
        let extents = Extents::recovered(shape.extent_bytes as usize, count, map.each()).map_err(|bad| {
            PagerError::Corrupt {
                what: format!("the map of {} is damaged: {bad}: restore it from a backup", self.location),
            }
        })?;
        let map = Arc::new(map);
        let book = Book::new(map.clone(), extents, dirty);
        Ok(Parts { file: self.file, map_file: self.map_file, map, book })
    }
}

/// The parts of a space.
pub(super) struct Parts {
    pub(super) file: Arc<dyn BlockFile>,
    pub(super) map_file: MapFile,
    pub(super) map: Arc<PageMap>,
    pub(super) book: Book,
}

fn check_header(file: &dyn BlockFile, location: &str, shape: &Shape) -> Result<()> {
    let mut block = AlignedBuf::new(BLOCK_BYTES);
    if file.len_bytes()? >= BLOCK_BYTES as u64 {
        file.read_at(0, &mut block, Purpose::Mapping)?;
    }
    shape.check_header(&block).map_err(|damage| PagerError::Corrupt {
        what: format!(
            "the header block of {location} is not that of the space: {damage}: restore it from a backup"
        ),
    })
}
