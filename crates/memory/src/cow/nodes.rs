//! The nodes of the tree: pages of the file, in frames of the page cache.
//!
//! Invariants
//! 1. Dirty nodes are in frames only. Their pages are marked as used in the page map, and room for them is
//!    reserved in the file.
//! 2. If the cache has no frame for a node (all are dirty, and the region has no room for another one), the
//!    node is read directly from the file. So a full region does not make reads fail.
//!
//! This module does not know the format of nodes.

use std::ops::Range;

use parking_lot::Mutex;

use super::cache::{DirtyPage, PageCache};
use super::directory::Directory;
use super::pages::{PAGE_BYTES, PageFile};
use super::space::PageMap;
use crate::cow_tree::{NodeId, NodeStore, TreeNo};
use crate::error::MemoryError;
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::store_error::{StoreError, StoreResult};

/// The nodes of a store, with its directories.
pub struct FileNodes {
    pub(super) space: Space,
    pub(super) file: PageFile,
    pub(super) map: PageMap,
    /// The page cache. Reads change it, too, because they give frames to pages.
    pub(super) cache: Mutex<PageCache>,
    pub(super) directory: Directory,
    /// The tuple that is being made or changed.
    pub(super) tuple: Vec<u8>,
    /// The leaf whose path is moved next when the file shrinks. `None` means the first leaf.
    pub(super) next_leaf: Option<NextLeaf>,
}

/// The leaf of a key.
#[derive(Debug, Clone)]
pub(super) struct NextLeaf {
    pub(super) tree: TreeNo,
    pub(super) key: Vec<u8>,
}

/// The place of the bytes of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NodeLocation {
    /// In a frame.
    Frame(Pointer),
    /// In the file, from this byte on.
    File(u64),
}

fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Memory(MemoryError::Full { .. }))
}

impl FileNodes {
    /// Writes all dirty nodes into the file. Pages that the file does not have yet are appended in the order
    /// of their numbers.
    pub(super) fn write_dirty(&mut self) -> StoreResult<()> {
        let mut bytes = [0; PAGE_BYTES];
        let mut next = self.file.page_count()?;
        for DirtyPage { page, chunk } in self.cache.get_mut().dirty() {
            self.fill_to(page, &mut next)?;
            self.space.read(chunk, 0, &mut bytes)?;
            self.file.write(page * PAGE_BYTES as u64, &bytes)?;
            next = next.max(page + 1);
        }
        self.fill_to(self.map.end(), &mut next)
    }

    /// Appends empty pages until the file has `end` pages. `next` is the number of pages that it has.
    fn fill_to(&mut self, end: u64, next: &mut u64) -> StoreResult<()> {
        while *next < end {
            self.file.write(*next * PAGE_BYTES as u64, &[0; PAGE_BYTES])?;
            *next += 1;
        }
        Ok(())
    }

    fn take_page(&mut self) -> StoreResult<u64> {
        let page = self.map.take(&mut self.file)?;
        match self.cache.get_mut().add_dirty(&self.space, page) {
            Ok(Some(_)) => Ok(page),
            other => {
                self.map.give(page);
                let (needed_bytes, free_bytes) = (PAGE_BYTES as u64, self.space.allocator().free_bytes());
                other.and(Err(MemoryError::Full { needed_bytes, free_bytes }.into()))
            }
        }
    }
}

impl NodeStore for FileNodes {
    type Place = NodeLocation;

    fn node_bytes(&self) -> usize {
        PAGE_BYTES
    }

    fn locate(&self, node: NodeId) -> StoreResult<NodeLocation> {
        let mut cache = self.cache.lock();
        if let Some(frame) = cache.find(node.0) {
            return Ok(NodeLocation::Frame(frame));
        }
        if !self.map.is_used(node.0) {
            return Err(StoreError::Damaged { what: "the number of a node", at: node.pointer() });
        }
        let at = node.0 * PAGE_BYTES as u64;
        let mut bytes = [0; PAGE_BYTES];
        self.file.read(at, &mut bytes)?;
        match cache.add(&self.space, node.0)? {
            Some(frame) => {
                self.space.store(frame, 0, &bytes)?;
                Ok(NodeLocation::Frame(frame))
            }
            None => Ok(NodeLocation::File(at)),
        }
    }

    #[inline]
    fn read(&self, place: NodeLocation, at: usize, buf: &mut [u8]) -> StoreResult<()> {
        match place {
            NodeLocation::Frame(frame) => self.space.read(frame, at as u64, buf),
            NodeLocation::File(from) => Ok(self.file.read(from + at as u64, buf)?),
        }
    }

    fn copy(
        &mut self,
        from: NodeLocation,
        into: NodeId,
        ranges: [Range<usize>; 2],
        buf: &mut Vec<u8>,
    ) -> StoreResult<()> {
        // The dirty page has a frame already. So `locate` evicts no page, and `from` stays valid.
        let into = self.locate(into)?;
        for range in ranges {
            buf.resize(range.len(), 0);
            self.read(from, range.start, buf)?;
            self.write(into, range.start, buf)?;
        }
        Ok(())
    }

    fn write(&mut self, place: NodeLocation, at: usize, bytes: &[u8]) -> StoreResult<()> {
        match place {
            NodeLocation::Frame(frame) => self.space.store(frame, at as u64, bytes),
            NodeLocation::File(from) => {
                let at = Pointer::from_u64(from);
                Err(StoreError::Damaged { what: "a dirty node, which has no frame", at })
            }
        }
    }

    fn is_dirty(&self, node: NodeId) -> bool {
        self.cache.lock().is_dirty(node.0)
    }

    /// If the region is full, gives up all clean frames and tries a second time.
    fn new_node(&mut self, _owner: Owner) -> StoreResult<NodeId> {
        let page = self.take_page().or_else(|error| match is_full(&error) {
            true => {
                self.cache.get_mut().shrink(&self.space, 0)?;
                self.take_page()
            }
            false => Err(error),
        })?;
        Ok(NodeId(page))
    }

    /// Does nothing: to free a page, only its bit in the page map has to be changed.
    fn reserve_retirement(&mut self) -> StoreResult<()> {
        Ok(())
    }

    fn retire(&mut self, node: NodeId, _owner: Owner) -> StoreResult<()> {
        let cache = self.cache.get_mut();
        match cache.is_dirty(node.0) {
            true => {
                cache.forget(node.0);
                self.map.give(node.0);
            }
            false => self.map.retire(node.0),
        }
        Ok(())
    }

    /// Always fails, because rows are in the trees: a change of a row is recorded as a change of its entries.
    fn change_row(&mut self, _value: &[u8], _at: usize, _bytes: &[u8]) -> StoreResult<()> {
        Err(StoreError::Damaged { what: "a change of a row outside its tree", at: Pointer::NONE })
    }

    /// Does nothing: rows are in the trees, so there is nothing else to free.
    fn forget_value(&mut self, _tree: TreeNo, _owner: Owner, _value: &[u8]) -> StoreResult<()> {
        Ok(())
    }
}
