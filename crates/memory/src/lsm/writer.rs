//! Writes a packed run: entries in the order of their keys, and among them the nodes of the index above them.
//!
//! Invariants
//! 1. A run is written from its beginning to its end. A node is written when it is full, after the entries
//!    that it leads to.
//!
//! This module does not know where entries come from, or how the run becomes durable and a valid run of the
//! store.

use super::arena::Arena;
use super::bloom;
use super::entry::{EntryBytes, Kind};
use super::media::{Location, MediaMut, damaged};
use super::node::{NodeBuffer, NodeEntry, node_bytes};
use crate::files::FileHandle;
use crate::store_error::StoreResult;

/// The number of bytes that are collected for one write to a file.
const FILE_BUFFER_BYTES: usize = 65_536;

/// Where a run is written to.
pub(crate) enum Output {
    /// An arena in the region.
    Arena(Arena),
    /// A file.
    File(FileOutput),
}

/// A file, and bytes that are not in it yet.
pub(crate) struct FileOutput {
    pub(crate) file: FileHandle,
    pub(crate) written_bytes: u64,
    pub(crate) buffer: Vec<u8>,
}

impl FileOutput {
    pub(crate) fn new(file: FileHandle) -> FileOutput {
        FileOutput { file, written_bytes: 0, buffer: Vec::new() }
    }

    fn flush(&mut self, media: &mut MediaMut<'_>) -> StoreResult<()> {
        let no_files = damaged("a run, which is in a file", self.written_bytes);
        media.files.as_mut().ok_or(no_files)?.append(self.file, &self.buffer)?;
        self.written_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Output {
    fn location(&self) -> Location {
        match self {
            Output::Arena(_) => Location::Region,
            Output::File(output) => Location::File(output.file),
        }
    }

    /// Appends bytes, and returns where they begin.
    fn append(&mut self, media: &mut MediaMut<'_>, bytes: &[u8]) -> StoreResult<u64> {
        match self {
            Output::Arena(arena) => {
                let at = arena.take(media.space, bytes.len())?;
                arena.store(media.space, at, bytes)?;
                Ok(at.to_u64())
            }
            Output::File(output) => {
                if output.buffer.len() >= FILE_BUFFER_BYTES {
                    output.flush(media)?;
                }
                let at = output.written_bytes + output.buffer.len() as u64;
                output.buffer.extend_from_slice(bytes);
                Ok(at)
            }
        }
    }
}

/// A run that is being written.
pub(crate) struct RunWriter {
    output: Output,
    /// The unfinished node of each level, from the leaf up.
    nodes: Vec<NodeBuffer>,
    filter: Vec<u8>,
    entry_bytes: u64,
    keys: u64,
    tombstones: u64,
}

/// A run that is written.
pub(crate) struct WrittenRun {
    pub(crate) output: Output,
    /// The offset of the root node.
    pub(crate) root: u64,
    /// The offset of the Bloom filter.
    pub(crate) filter_at: u64,
    pub(crate) filter: Vec<u8>,
    pub(crate) entry_bytes: u64,
    pub(crate) keys: u64,
    pub(crate) tombstones: u64,
}

impl RunWriter {
    /// Begins a run that will have at most this many keys.
    pub(crate) fn new(output: Output, keys_max: u64) -> RunWriter {
        let filter = vec![0; bloom::filter_bytes(keys_max)];
        RunWriter { output, nodes: Vec::new(), filter, entry_bytes: 0, keys: 0, tombstones: 0 }
    }

    /// Adds an entry whose key is greater than all keys before.
    pub(crate) fn add(&mut self, media: &mut MediaMut<'_>, entry: &[u8]) -> StoreResult<()> {
        let decoded = EntryBytes::decode(entry).ok_or(damaged("a merged entry", 0))?;
        let key = decoded.search_key();
        bloom::add(&mut self.filter, key.hash());
        let at = self.output.append(media, entry)?;
        self.entry_bytes += entry.len() as u64;
        self.keys += 1;
        self.tombstones += u64::from(decoded.head.kind == Kind::Tombstone);
        self.push(media, 0, NodeEntry { head: key.head, entry: at, child: 0 })
    }

    /// Adds an entry to the node of a level. A full node is written first, and gets an entry in the node
    /// above.
    fn push(&mut self, media: &mut MediaMut<'_>, level: usize, mut entry: NodeEntry) -> StoreResult<()> {
        let len_bytes = node_bytes(self.output.location());
        for level in level.. {
            if level == self.nodes.len() {
                self.nodes.push(NodeBuffer::new(len_bytes, level == 0));
            }
            let Some(node) = self.nodes.get_mut(level) else { break };
            let first = node.first().filter(|_| node.is_full());
            let Some(first) = first else {
                node.push(&entry);
                break;
            };
            let bytes = node.take();
            node.push(&entry);
            let child = self.output.append(media, &bytes)?;
            entry = NodeEntry { child, ..first };
        }
        Ok(())
    }

    /// Writes the last nodes and the Bloom filter. Returns `None` if the run has no entries.
    pub(crate) fn finish(mut self, media: &mut MediaMut<'_>) -> StoreResult<Option<WrittenRun>> {
        let mut level = 0;
        let root = loop {
            let Some(node) = self.nodes.get_mut(level) else { return Ok(None) };
            let Some(first) = node.first() else { return Ok(None) };
            let bytes = node.take();
            let child = self.output.append(media, &bytes)?;
            level += 1;
            if level == self.nodes.len() {
                break child;
            }
            self.push(media, level, NodeEntry { child, ..first })?;
        };
        let filter_at = self.output.append(media, &self.filter)?;
        if let Output::File(output) = &mut self.output {
            output.flush(media)?;
        }
        let RunWriter { output, filter, entry_bytes, keys, tombstones, .. } = self;
        Ok(Some(WrittenRun { output, root, filter_at, filter, entry_bytes, keys, tombstones }))
    }
}
