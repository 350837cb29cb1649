//! The places where the bytes of runs are: the region, or a file in the region.
//!
//! This module does not know what the bytes mean.

use super::block_cache::BlockCache;
use crate::files::{FileHandle, Files};
use crate::pointer::Pointer;
use crate::space::Space;
use crate::store_error::{StoreError, StoreResult};

/// The place in which bytes are found by offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    /// The bytes are in the region. Offsets count from the beginning of the region.
    Region,
    /// The bytes are in a file. Offsets count from the beginning of the file.
    File(FileHandle),
}

/// The region, and the files of an engine that has some, with the cache of their blocks.
#[derive(Clone, Copy)]
pub(crate) struct Media<'m> {
    pub(crate) space: &'m Space,
    pub(crate) files: Option<&'m Files>,
    pub(crate) cache: Option<&'m BlockCache>,
}

/// The same media as in [`Media`], but for writing.
pub(crate) struct MediaMut<'m> {
    pub(crate) space: &'m Space,
    pub(crate) files: Option<&'m mut Files>,
}

impl Media<'_> {
    /// Reads bytes. Errors: the location has no bytes at this offset, so something is damaged.
    #[inline]
    pub(crate) fn read(&self, location: Location, at: u64, buf: &mut [u8]) -> StoreResult<()> {
        match (location, self.files) {
            (Location::Region, _) => self.space.read(Pointer::from_u64(at), 0, buf),
            (Location::File(file), Some(files)) => match self.cache {
                Some(cache) => cache.read(self.space, files, file, at, buf),
                None => Ok(files.read_at(file, at, buf)?),
            },
            (Location::File(_), None) => Err(damaged("a run, which is in a file", at)),
        }
    }
}

impl MediaMut<'_> {
    /// Returns the same media for reads that do not use the cache.
    pub(crate) fn media(&self) -> Media<'_> {
        Media { space: self.space, files: self.files.as_deref(), cache: None }
    }
}

/// Returns the error that something is damaged at an offset.
pub(crate) fn damaged(what: &'static str, at: u64) -> StoreError {
    StoreError::Damaged { what, at: Pointer::from_u64(at) }
}
