//! The start of a store: it reads the current directory. There is nothing to undo or to redo.
//!
//! Invariants
//! 1. A start reads the first pages and the bitmaps, which have one bit for each page. So its time depends on
//!    the number of pages only.
//! 2. A file without pages is a new one. A crash leaves all of its first pages or none, because the length of
//!    a file grows only after all bytes before it are durable.
//!
//! This module does not know nodes or rows.

use super::directory::Directory;
use super::pages::{FIRST_PAGES, MAGIC, PAGE_BYTES, PageFile, Side};
use super::space::PageMap;
use crate::files::Files;
use crate::pointer::Pointer;
use crate::store_error::{StoreError, StoreResult};

/// The name of the file.
const NAME: &str = "pages";

/// The parts of a store that a start has opened.
pub(super) struct Opened {
    pub(super) file: PageFile,
    pub(super) directory: Directory,
    pub(super) map: PageMap,
}

/// Opens the file. If there is none, makes it.
pub(super) fn open(mut files: Files) -> StoreResult<Opened> {
    let is_there = files.names().iter().any(|name| **name == *NAME);
    let handle = if is_there { files.open_file(NAME)? } else { files.create(NAME)? };
    let mut file = PageFile::new(files, handle)?;
    if file.page_count()? == 0 {
        let mut bytes = vec![0; FIRST_PAGES as usize * PAGE_BYTES];
        bytes.iter_mut().zip(MAGIC.to_le_bytes()).for_each(|(place, byte)| *place = byte);
        file.write(0, &bytes)?;
        file.fsync()?;
    }
    let mut magic = [0; 8];
    file.read(0, &mut magic)?;
    if u64::from_le_bytes(magic) != MAGIC {
        return Err(StoreError::Damaged {
            what: "the magic of a store of the engine cow",
            at: Pointer::NONE,
        });
    }
    let directory = Directory::open(&file)?;
    let map = PageMap::open(&file, Side::of_batch(directory.batch()), directory.dirty())?;
    Ok(Opened { file, directory, map })
}
