//! The files of the spaces. A space is a set of pages, and each space has one file.
//!
//! Invariants
//! 1. A page with a number below [`SpaceFile::pages`] exists on the device. The file's new length is durable
//!    before this number grows.
//! 2. The pager opens each file once, and keeps the handle until it ends.
//!
//! This module does not know what pages contain, or which pages are in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use varve_device::{BlockFile, Directory, Durability, ErrorKind, OpenHow, Purpose, Space, WriteOp, planted};

use crate::base::error::{PagerError, Result};
use crate::base::ids::{PageId, PageRange, SpaceId};
use crate::base::image::Image;
use crate::home::compression::stored_page::Stored;

/// The file of one space.
pub(crate) struct SpaceFile {
    space: SpaceId,
    file: Arc<dyn BlockFile>,
    page_size: usize,
    /// The size of the blocks of which a hole in the file consists; 0 if the file cannot have holes.
    hole_bytes: u32,
    pages: AtomicU32,
}

/// The largest step by which a file grows. A smaller file grows by a sixteenth of its length.
const GROWTH_BYTES_MAX: u64 = 64 << 20;

/// Returns the number of pieces by which a file of `count` pieces grows. A piece has `piece_bytes` bytes. The
/// step is at least `least` pieces, if they are not too long.
pub(crate) fn growth_step(count: u32, least: u32, piece_bytes: u64) -> u32 {
    let largest = u32::try_from(GROWTH_BYTES_MAX / piece_bytes).unwrap_or(u32::MAX).max(1);
    (count / 16).max(least).min(largest)
}

/// Returns the name of a space's file.
pub(crate) fn file_name(space: SpaceId) -> String {
    match space.is_tablespace() {
        true => format!("tablespace-{}.varve", space.0),
        false => format!("{}.varve", space.name()),
    }
}

/// Returns the device space and the purpose of I/O of a space, for the accounting of I/O.
pub(crate) fn device_space(space: SpaceId) -> (Space, Purpose) {
    match space {
        SpaceId::ROLLBACK => (Space::Rollback, Purpose::UndoPage),
        SpaceId::TEMPORARY => (Space::Temporary, Purpose::Temporary),
        _ => (Space::Data, Purpose::DataPage),
    }
}

/// Opens a file of a space. It is an error if the file does not exist.
pub(crate) fn open_existing(
    space: SpaceId,
    directory: &dyn Directory,
    name: &str,
) -> Result<Arc<dyn BlockFile>> {
    let (kind, _) = device_space(space);
    directory.open(name, OpenHow::existing(kind)).map_err(|error| match error.kind {
        ErrorKind::NotFound => PagerError::Incompatible { what: missing(space, directory, name) },
        _ => error.into(),
    })
}

fn missing(space: SpaceId, directory: &dyn Directory, name: &str) -> String {
    let (location, stem) = (directory.location(), space.name());
    if space.is_tablespace() {
        return format!(
            "{location}/{name} is missing, the file of {}: if its device is not mounted, mount it; otherwise put the file back, or \
             restore a backup of all directories",
            space.title()
        );
    }
    let copies = if space == SpaceId::DATA { " and doublewrite.varve" } else { "" };
    format!(
        "{location}/{name} is missing, which belongs to the {stem} space. If the configuration names another device for the space \
         than before, move its files there while the database is stopped: all whose names begin with {stem}{copies}. Otherwise \
         put the file back, or restore a backup of all directories"
    )
}

impl SpaceFile {
    /// Opens the space's file, or makes an empty one.
    pub(crate) fn open(
        space: SpaceId,
        directory: &dyn Directory,
        page_size: usize,
        create: bool,
    ) -> Result<SpaceFile> {
        let (kind, _) = device_space(space);
        let file = match create {
            true => directory.open(&file_name(space), OpenHow::or_create(kind))?,
            false => open_existing(space, directory, &file_name(space))?,
        };
        if create {
            file.set_len(0)?;
            file.flush()?;
        }
        let pages = u32::try_from(file.len_bytes()? / page_size as u64).map_err(|_| PagerError::Corrupt {
            what: format!("the file of {} is longer than 2^32 pages", space.title()),
        })?;
        let hole_bytes = directory.capabilities().hole_bytes;
        Ok(SpaceFile { space, file, page_size, hole_bytes, pages: AtomicU32::new(pages) })
    }

    pub(crate) fn file(&self) -> &dyn BlockFile {
        &*self.file
    }

    pub(crate) fn space(&self) -> SpaceId {
        self.space
    }

    /// Returns the size of the blocks of which a hole in the file consists, or 0 if the file cannot have
    /// holes.
    pub(crate) fn hole_bytes(&self) -> u32 {
        self.hole_bytes
    }

    pub(crate) fn purpose(&self) -> Purpose {
        device_space(self.space).1
    }

    /// Returns the length in pages.
    pub(crate) fn pages(&self) -> u32 {
        self.pages.load(Ordering::Acquire)
    }

    /// Returns the byte offset of a page that exists.
    pub(crate) fn offset(&self, id: PageId) -> Result<u64> {
        let pages = self.pages();
        if id.no().0 < pages {
            return Ok(u64::from(id.no().0) * self.page_size as u64);
        }
        Err(PagerError::NoSuchPage { id, pages })
    }

    /// Returns the offset and length, in bytes, of pages that exist.
    pub(crate) fn range(&self, ids: PageRange) -> Result<(u64, u64)> {
        Ok((self.offset(ids.first)?, u64::from(ids.count) * self.page_size as u64))
    }

    /// Changes the length durably. If the device has no space, the length stays as it was.
    pub(crate) fn resize(&self, pages: u32) -> Result<()> {
        self.set_pages(pages)?;
        if !planted("space: a file's new length is not flushed") {
            self.file.flush()?;
        }
        Ok(())
    }

    /// Does the same as `resize`, but not durably.
    pub(crate) fn set_pages(&self, pages: u32) -> Result<()> {
        let before = self.pages();
        if pages < before {
            self.pages.store(pages, Ordering::Release);
        }
        self.file.set_len(u64::from(pages) * self.page_size as u64).inspect_err(|error| {
            if error.is_no_space() {
                self.pages.store(before, Ordering::Release);
            }
        })?;
        self.pages.store(pages, Ordering::Release);
        Ok(())
    }

    /// Writes a sealed page durably to an address that nothing refers to yet.
    pub(crate) fn write_unlogged(&self, image: &Image) -> Result<()> {
        let offset = u64::from(image.id().no().0) * self.page_size as u64;
        self.file.write_at(offset, image.bytes(), self.purpose(), Durability::Later)?;
        self.file.flush()?;
        self.pages.fetch_max(image.id().no().0 + 1, Ordering::AcqRel);
        Ok(())
    }
}

/// The files of all spaces.
pub(crate) struct SpaceFiles {
    files: Vec<SpaceFile>,
}

impl SpaceFiles {
    pub(crate) fn new(files: Vec<SpaceFile>) -> SpaceFiles {
        SpaceFiles { files }
    }

    /// Returns all files.
    pub(crate) fn each(&self) -> impl Iterator<Item = &SpaceFile> {
        self.files.iter()
    }

    /// Returns the file of a space.
    pub(crate) fn space(&self, space: SpaceId) -> Option<&SpaceFile> {
        self.files.iter().find(|file| file.space == space)
    }

    /// Returns the file that has the page.
    pub(crate) fn of(&self, id: PageId) -> Result<&SpaceFile> {
        self.space(id.space()).ok_or(PagerError::NoSuchPage { id, pages: 0 })
    }

    /// Writes pages in place: the pages of one file in one batch.
    pub(crate) fn write(&self, pages: &[&Stored<'_>]) -> Result<()> {
        self.write_each(pages, |file, ops| file.write_batch(ops))
    }

    /// Does the same as `write`, but after a crash each page is written as a whole or not at all.
    pub(crate) fn write_whole(&self, pages: &[&Stored<'_>]) -> Result<()> {
        if planted("atomic-write: ordinary writes") {
            return self.write(pages);
        }
        self.write_each(pages, |file, ops| file.write_batch_atomic(ops))
    }

    fn write_each(
        &self,
        pages: &[&Stored<'_>],
        write: impl Fn(&dyn BlockFile, &[WriteOp<'_>]) -> varve_device::Result<()>,
    ) -> Result<()> {
        for group in pages.chunk_by(|a, b| a.id().space() == b.id().space()) {
            let file = self.of(group[0].id())?;
            let mut ops = Vec::with_capacity(group.len());
            for page in group {
                let offset = file.offset(page.id())?;
                let (why, durability) = (file.purpose(), Durability::Later);
                ops.push(WriteOp { offset, buf: page.bytes(), why, durability });
            }
            write(&*file.file, &ops)?;
        }
        Ok(())
    }

    /// Writes one page in place, durably.
    pub(crate) fn write_now(&self, page: &Stored<'_>) -> Result<()> {
        self.write_copy(page.id(), page.bytes())
    }

    /// Writes a page's stored bytes in place, durably.
    pub(crate) fn write_copy(&self, id: PageId, stored: &[u8]) -> Result<()> {
        let file = self.of(id)?;
        file.file.write_at(file.offset(id)?, stored, file.purpose(), Durability::Now)?;
        Ok(())
    }

    /// Flushes the files that hold these pages.
    pub(crate) fn flush(&self, pages: &[&Stored<'_>]) -> Result<()> {
        for file in &self.files {
            if pages.iter().any(|page| page.id().space() == file.space) {
                file.file.flush()?;
            }
        }
        Ok(())
    }

    /// Flushes all files but the temporary one.
    pub(crate) fn flush_all(&self) -> Result<()> {
        let mut durable = self.files.iter().filter(|file| file.space.is_logged());
        durable.try_for_each(|file| Ok(file.file.flush()?))
    }
}

#[cfg(test)]
mod tests {
    use varve_device::{ErrorKind, Fault, Faulty, MemoryDirectory, Operation, Rule, When};

    use super::*;

    /// If a full device refuses a cut, the length stays as it was. In an earlier version, the map could then
    /// allocate pages that the file seemed not to have.
    #[test]
    fn a_refused_cut_leaves_the_length() {
        let device = Faulty::wrap(MemoryDirectory::new());
        let file = SpaceFile::open(SpaceId::DATA, &*device, 4096, true).unwrap();
        file.resize(24).unwrap();
        device.arm(Rule {
            operation: Some(Operation::SetLen),
            space: None,
            when: When::From(1),
            fault: Fault::Fails(ErrorKind::NoSpace),
        });
        file.resize(8).unwrap_err();
        assert_eq!(file.pages(), 24);
        device.disarm();
        file.resize(8).unwrap();
        assert_eq!(file.pages(), 8);
    }
}
