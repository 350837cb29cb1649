//! The master record and the two directories: the first pages of the file.
//!
//! Invariants
//! 1. The current directory is never changed. The master record changes when the other directory is durable.
//!
//! This module does not know nodes or bitmaps.

use varve_device::LINE_BYTES;

use super::pages::{DIRECTORY_PAGES, PAGE_BYTES, PageFile, Side};
use crate::cow_tree::{Directories, Line, Roots};
use crate::store::TABLES_MAX;
use crate::store_error::StoreResult;

/// The master record and the directories.
pub(super) struct Directory {
    batch: u64,
    lines: Directories,
}

impl Directory {
    /// Reads the directories of a file.
    pub(super) fn open(file: &PageFile) -> StoreResult<Directory> {
        let batch = file.read_master()?;
        let read = |batch| -> StoreResult<Vec<Line>> {
            let mut bytes = vec![0; DIRECTORY_PAGES as usize * PAGE_BYTES];
            file.read(Side::of_batch(batch).directory_at(), &mut bytes)?;
            Ok(bytes.as_chunks().0.iter().take(TABLES_MAX).copied().collect())
        };
        let lines = Directories::new(read(batch)?, read(batch.wrapping_add(1))?);
        Ok(Directory { batch, lines })
    }

    /// Returns the number of the batch that has become durable last.
    pub(super) fn batch(&self) -> u64 {
        self.batch
    }

    /// Returns the side of the dirty directory.
    pub(super) fn dirty(&self) -> Side {
        Side::of_batch(self.batch.wrapping_add(1))
    }

    /// Returns the roots of the current directory.
    pub(super) fn current(&self) -> StoreResult<Roots> {
        self.lines.current()
    }

    /// Writes those lines of the dirty directory that differ from these roots into the file.
    pub(super) fn stage(&mut self, file: &mut PageFile, roots: &mut Roots) -> StoreResult<()> {
        let from = self.dirty().directory_at();
        self.lines.stage(roots, |number, line| Ok(file.write(from + number as u64 * LINE_BYTES, line)?))
    }

    /// Makes the dirty directory the current one, durably.
    pub(super) fn flip(&mut self, file: &mut PageFile) -> StoreResult<()> {
        self.batch = self.batch.wrapping_add(1);
        self.lines.flip();
        Ok(file.write_master(self.batch)?)
    }
}

const _: () = assert!(TABLES_MAX as u64 * LINE_BYTES <= DIRECTORY_PAGES * PAGE_BYTES as u64);
