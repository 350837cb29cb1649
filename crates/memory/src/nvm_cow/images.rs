//! Images in DRAM of the nodes and tuples that the open batch has made.
//!
//! The end of the batch stores each image into its chunk, in whole cache lines past the processor's cache. If
//! nodes and tuples were made in their chunks, each line of a new chunk would be fetched before it is stored,
//! and each line would be written back by an instruction of its own.
//!
//! Invariants
//! 1. Images take a bounded number of bytes. A node or tuple for which there is no room here is made in its
//!    chunk.
//! 2. A chunk whose image is here has arbitrary contents until the end of the batch.
//!
//! This module does not know which chunks the images belong to.

use varve_device::LINE_BYTES;

/// The largest number of images of nodes.
const NODES_MAX: usize = 256;
/// The largest number of bytes of all images of tuples.
const TUPLES_BYTES_MAX: usize = 1 << 20;

/// The image of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeImage(u32);

/// The image of a tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TupleImage {
    at: u32,
    len_bytes: u32,
}

/// The images of a batch.
#[derive(Default)]
pub(super) struct Images {
    nodes: Vec<Box<[u8]>>,
    free_nodes: Vec<NodeImage>,
    /// Tuples, each padded to whole lines.
    tuples: Vec<u8>,
}

impl Images {
    /// Adds the image of a node, with arbitrary contents. Returns `None` if there are too many images.
    pub(super) fn add_node(&mut self, node_bytes: usize) -> Option<NodeImage> {
        if let Some(image) = self.free_nodes.pop() {
            return Some(image);
        }
        let number = Some(self.nodes.len()).filter(|number| *number < NODES_MAX)?;
        self.nodes.push(vec![0; node_bytes].into());
        Some(NodeImage(number as u32))
    }

    /// Returns the bytes of a node.
    #[inline]
    pub(super) fn node(&self, image: NodeImage) -> &[u8] {
        self.nodes.get(image.0 as usize).map(AsRef::as_ref).unwrap_or_default()
    }

    /// Returns the bytes of a node, to be changed.
    #[inline]
    pub(super) fn node_mut(&mut self, image: NodeImage) -> &mut [u8] {
        self.nodes.get_mut(image.0 as usize).map(AsMut::as_mut).unwrap_or_default()
    }

    /// Removes the image of a node.
    pub(super) fn remove_node(&mut self, image: NodeImage) {
        self.free_nodes.push(image);
    }

    /// Adds the image of a tuple. Returns `None` if there is no room for it.
    pub(super) fn add_tuple(&mut self, head: &[u8], row: &[u8]) -> Option<TupleImage> {
        let (at, len_bytes) = (self.tuples.len(), head.len() + row.len());
        let end = (at + len_bytes).next_multiple_of(LINE_BYTES as usize);
        if end > TUPLES_BYTES_MAX {
            return None;
        }
        self.tuples.extend_from_slice(head);
        self.tuples.extend_from_slice(row);
        self.tuples.resize(end, 0);
        Some(TupleImage { at: at as u32, len_bytes: len_bytes as u32 })
    }

    /// Returns the bytes of a tuple.
    #[inline]
    pub(super) fn tuple(&self, image: TupleImage) -> &[u8] {
        let TupleImage { at, len_bytes } = image;
        self.tuples.get(at as usize..(at + len_bytes) as usize).unwrap_or_default()
    }

    /// Returns the bytes of a tuple, to be changed.
    pub(super) fn tuple_mut(&mut self, image: TupleImage) -> &mut [u8] {
        let TupleImage { at, len_bytes } = image;
        self.tuples.get_mut(at as usize..(at + len_bytes) as usize).unwrap_or_default()
    }

    /// Returns the bytes of a tuple, and zeros after it up to the end of its last line.
    pub(super) fn tuple_lines(&self, image: TupleImage) -> &[u8] {
        let end = (image.at + image.len_bytes).next_multiple_of(LINE_BYTES as u32);
        self.tuples.get(image.at as usize..end as usize).unwrap_or_default()
    }

    /// Removes all images.
    pub(super) fn clear(&mut self) {
        self.free_nodes.clear();
        self.free_nodes.extend((0..self.nodes.len() as u32).map(NodeImage));
        self.tuples.clear();
    }
}
