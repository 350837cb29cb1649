//! Functions for `crates/fuzzing` that reach formats which are private here. They exist only with the feature
//! `fuzzing`.
//!
//! Invariants
//! 1. Each function takes bytes as a device might have them, and calls the unchanged code that reads them.
//!
//! This module does not know what a fuzz target expects (`crates/fuzzing` does).

use std::sync::Arc;

use varve_device::Directory;

use crate::backup::archive::piece::{Piece, PieceStart};
use crate::backup::archive::store::TimelineName;
use crate::backup::contents::{KIND_LOG, KIND_START};
use crate::backup::frame::{FrameReader, FrameWriter};
use crate::base::error::{PagerError, Result};
use crate::base::ids::{PageId, PageRange, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::page::PageDamage;
use crate::base::space_format::{Entry, Geometry};
use crate::config::PagerConfig;
use crate::control::tablespaces::TablespacesInUse;
use crate::control::{Control, StartHistory};
use crate::home::compression::stored_page;
use crate::home::files::{SpaceFile, SpaceFiles};
use crate::home::{packed, protection};
use crate::log::notes::time::Timed;
use crate::log::notes::{discards, stored_forms, written};
use crate::log::redo::{self, RedoError, RedoOps};
use crate::space::map::Map;
use crate::{Access, BackupStart, Compression};

pub use crate::nvm::fuzzing::{Slots, region_header, slot_header};

/// Bytes of a slot of the file with the history of starts.
pub const START_SLOT_BYTES: usize = crate::control::starts::SLOT_BYTES;

/// Applies one redo operation to a page.
pub fn redo(
    ops: &dyn RedoOps,
    id: PageId,
    page: &mut [u8],
    op: u8,
    payload: &[u8],
) -> std::result::Result<(), RedoError> {
    redo::apply(ops, id, page, op, payload)
}

/// Returns the operation and payload that make any page look like `page`.
pub fn image(page: &[u8]) -> (u8, Vec<u8>) {
    let mut payload = Vec::new();
    redo::put_image(&mut payload, page);
    (redo::OP_IMAGE, payload)
}

/// Decodes a note record which says that pages are in the data files. `None` means that the payload is not
/// such a record.
pub fn written(payload: &[u8]) -> Option<Vec<(PageId, Lsn)>> {
    written::decode(payload)
}

/// Decodes a note record of how pages are stored, and encodes it again. `None` means that the payload is not
/// such a record.
pub fn forms(payload: &[u8]) -> Option<Vec<u8>> {
    let forms = stored_forms::decode(payload)?;
    let again = stored_forms::encode(&forms);
    assert_eq!(stored_forms::decode(&again), Some(forms));
    Some(again)
}

/// Decodes a discard record. `None` means that the payload is not such a record.
pub fn discarded(payload: &[u8]) -> Option<Vec<PageRange>> {
    discards::decode(payload)
}

/// Returns the stored form of a page, made for a device with sectors of `unit` bytes.
pub fn encode(id: PageId, page: &[u8], how: Compression, unit: usize) -> Vec<u8> {
    let lengths = stored_page::StoredLengths::Multiples(unit);
    stored_page::Stored::of(&Image::of(id, page, Access::Random), how, lengths).bytes().to_vec()
}

/// Decodes a stored form in both ways that the pager has: into another buffer, and in place.
pub fn decode(id: PageId, stored: &[u8], page_size: usize) -> std::result::Result<Vec<u8>, PageDamage> {
    let mut page = vec![0; page_size];
    let apart = stored_page::decode(stored, id, &mut page);
    if stored.len() <= page_size {
        let mut inside = vec![0xEE; page_size];
        inside[..stored.len()].copy_from_slice(stored);
        // The header of a damaged page may say that the page is longer than `stored`. Then decoding in place
        // also reads the bytes after it.
        let within = stored_page::decode_in(&mut inside, id);
        assert!(
            apart.is_err() || (within == apart && inside == page),
            "{apart:?} apart, {within:?} in place"
        );
    }
    apart.map(|_| page)
}

/// Makes the files of a packed data space of a few pages.
pub fn make_packed(directory: &dyn Directory, database: u64, page_size: usize) -> Result<()> {
    packed::fuzzing::make(directory, database, page_size)
}

/// Recovers the space of `make_packed` (`who` is the database and the page size) from its files and from log
/// records (end of the group, kind, payload). If `goes_on` is set, also takes a checkpoint of its map.
/// Returns where each page is stored: number, address and length in units of 512 bytes.
pub fn recover_packed(
    directory: &dyn Directory,
    who: (u64, usize),
    notes: &[(Lsn, u8, Vec<u8>)],
    goes_on: bool,
) -> Result<Vec<(u32, u64, u32)>> {
    packed::fuzzing::recover(directory, who, notes, goes_on)
}

/// Opens the files of the spaces and the doublewrite file, and repairs torn pages. Returns the repaired
/// pages.
pub fn repair(config: &PagerConfig, redo_start: Lsn) -> Result<Vec<PageId>> {
    let open =
        |space, directory: &Arc<dyn Directory>| SpaceFile::open(space, &**directory, config.page_size, false);
    let files = vec![open(SpaceId::DATA, &config.data)?, open(SpaceId::ROLLBACK, &config.rollback)?];
    let files = Arc::new(SpaceFiles::new(files));
    let was = config.protection.in_force();
    let mended =
        protection::repair(was, &config.wanted_protection(None), &files, redo_start, &mut |_| Ok(()))?;
    protection::open(&config.wanted_protection(None), 0, &files, Some(was))?;
    Ok(mended.iter().map(|page| page.id).collect())
}

/// The allocation state of a space, as its header page and its first descriptor page say.
pub struct Allocation {
    geometry: Geometry,
    map: Map,
}

impl Allocation {
    /// Returns the header page and the descriptor page of a new space.
    pub fn new_pages(space: SpaceId, page_size: usize, database: u64) -> [Vec<u8>; 2] {
        let geometry = Geometry::of(space, page_size);
        [geometry.new_header(database), geometry.new_descriptor(0)]
    }

    /// Reads both pages; `extents` is how many the file has.
    pub fn read(space: SpaceId, pages: [&[u8]; 2], database: u64, extents: u32) -> Result<Allocation> {
        let geometry = Geometry::of(space, pages[0].len());
        geometry.check_header(pages[0], database)?;
        let mut map = Map::new(geometry);
        for extent in 0..extents.min(geometry.group_extents) {
            let entry = geometry.entry(pages[1], extent)?;
            let at = geometry.entry_offset(extent);
            let stored = &pages[1][at..at + geometry.entry_bytes()];
            assert_eq!(geometry.encode_entry(&entry), stored, "an entry is stored in one way");
            map.push(entry);
        }
        Ok(Allocation { geometry, map })
    }

    /// Allocates a page, and checks that the page was free.
    pub fn take(&mut self, owner: u32, near: Option<PageId>) -> Option<PageId> {
        let before = self.map.used_pages();
        let taken = self.map.take_page(owner, near)?;
        assert_eq!(self.map.used_pages(), before + 1, "{taken} was in use already");
        Some(taken)
    }

    /// Allocates an extent.
    pub fn take_extent(&mut self, owner: u32) -> Option<PageRange> {
        self.map.take_whole(owner)
    }

    /// Frees all extents of an owner.
    pub fn drop_owner(&mut self, owner: u32) {
        for extent in self.map.extents_of(owner) {
            let used = self.map.entry(extent).map(|entry| entry.used).unwrap_or_default();
            self.map.give_back(extent, &used);
        }
    }

    /// Adds `grow` free extents. If `grow` is 0, removes the free extents at the end.
    pub fn resize(&mut self, grow: u32) {
        (0..grow).for_each(|_| self.map.push(Entry::default()));
        if grow == 0 {
            self.map.truncate(self.map.free_tail());
        }
    }

    /// Checks that every entry is the same after it was encoded and decoded.
    pub fn check(&self) {
        for entry in (0..self.map.extent_count()).filter_map(|extent| self.map.entry(extent)) {
            let mut page = self.geometry.new_descriptor(0);
            let bytes = self.geometry.encode_entry(entry);
            let at = self.geometry.entry_offset(1);
            page[at..at + bytes.len()].copy_from_slice(&bytes);
            assert!(self.geometry.entry(&page, 1).is_ok_and(|back| back == *entry), "{entry:?}");
        }
    }
}

/// Decodes a slot of the file with the history of starts, and encodes it again. `None` means that the slot is
/// refused.
pub fn start_history(slot: &[u8], database: u64) -> Option<StartHistory> {
    let history = StartHistory::decode(slot, database)?;
    assert!(history.encode(database)[..] == *slot, "{history:?}");
    Some(history)
}

/// Begins a start of the database in `directory`. Returns its history, and whether there is a warning.
pub fn begin_start(directory: &dyn Directory, after: Lsn) -> Result<(StartHistory, bool)> {
    let control = Control::open(directory)?.ok_or(PagerError::Corrupt { what: "no control file".into() })?;
    control.begin_start(directory, after, |_| ())?;
    Ok((control.starts(), control.starts_warning().is_some()))
}

/// Returns the bytes of a backup with frames of these kinds and contents. The checksums are right.
pub fn backup_of(frames: &[(u8, &[u8])], how: Compression) -> Vec<u8> {
    let mut writer = FrameWriter::new(how);
    let mut out = Vec::new();
    frames.iter().for_each(|(kind, contents)| writer.put(*kind, contents, &mut out));
    out
}

/// Returns the kinds and the contents of the frames of a backup.
pub fn frames_of_backup(mut backup: &[u8]) -> Result<Vec<(u8, Vec<u8>)>> {
    let mut reader = FrameReader::default();
    let mut frames = Vec::new();
    while let Some(frame) = reader.read(&mut backup)? {
        frames.push((frame.kind, frame.contents));
    }
    Ok(frames)
}

/// Reads a piece of a log archive. Panics if a piece that can be read does not come back when it is written
/// again.
pub fn read_piece(bytes: &[u8]) -> Result<()> {
    let piece = Piece::decode(bytes)?;
    let again = Piece::decode(&piece.encode(Compression::NONE));
    assert!(again.is_ok_and(|again| again == piece), "a piece comes back");
    Ok(())
}

/// Returns a piece of a log archive with the log of a backup, which must have a log block.
pub fn piece_of_backup(backup: &[u8]) -> Result<Vec<u8>> {
    let (mut start, mut blocks) = (None, Vec::new());
    for (kind, contents) in frames_of_backup(backup)? {
        match kind {
            KIND_START => start = Some(BackupStart::decode(&contents)?),
            KIND_LOG => blocks.extend_from_slice(&contents),
            _ => {}
        }
    }
    let nothing = || PagerError::Backup { what: "there is no start".into() };
    let BackupStart { page_size, database, start, log_segment_bytes, program, .. } =
        start.ok_or_else(nothing)?;
    let timeline = TimelineName { database, timeline: 1 };
    let start = PieceStart { page_size, timeline, start, log_segment_bytes, program };
    Ok(Piece::new(start, blocks)?.encode(Compression::NONE))
}

/// Decodes the payloads of the log records that only an archived log has. Panics if a list of tablespaces
/// does not come back.
pub fn read_archive_notes(payload: &[u8]) {
    if let Some((what, time_us)) = Timed::decode(payload) {
        assert_eq!(what.payload(time_us), payload);
    }
    if let Some(list) = TablespacesInUse::decode(payload) {
        assert_eq!(TablespacesInUse::decode(&list.encode()), Some(list));
    }
}
