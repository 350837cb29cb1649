//! Helpers for tests: a store in memory, and pieces that have no real log.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use parking_lot::Mutex;

use super::piece::{Piece, PieceStart};
use super::store::{ArchiveStore, StoredPiece, TimelineName};
use crate::base::compression::Compression;
use crate::base::lsn::Lsn;
use crate::log::format::{BLOCK_HEADER_BYTES, BlockHeader, Epoch};
use crate::log::record::{put_note, put_varint};

pub(super) const NAME: TimelineName = TimelineName { database: 5, timeline: 9 };
/// The bytes of log between the starts of two blocks.
pub(super) const BLOCK_BYTES: u64 = 1 << 20;
const SEGMENT_BYTES: u64 = 1 << 30;

/// An archive in memory, with one timeline.
#[derive(Default)]
pub(super) struct MemoryStore {
    pub(super) pieces: Mutex<BTreeMap<Lsn, Vec<u8>>>,
}

impl ArchiveStore for MemoryStore {
    fn location(&self) -> String {
        "in memory".into()
    }

    fn timelines(&self) -> io::Result<Vec<TimelineName>> {
        Ok(vec![NAME])
    }

    fn pieces(&self, _: TimelineName) -> io::Result<Vec<StoredPiece>> {
        let pieces = self.pieces.lock();
        let stored =
            |(start, piece): (&Lsn, &Vec<u8>)| StoredPiece { start: *start, bytes: piece.len() as u64 };
        Ok(pieces.iter().map(stored).collect())
    }

    fn create(&self, timeline: TimelineName, start: Lsn, piece: &[u8]) -> io::Result<bool> {
        self.replace(timeline, start, piece)?;
        Ok(true)
    }

    fn replace(&self, _: TimelineName, start: Lsn, piece: &[u8]) -> io::Result<()> {
        self.pieces.lock().insert(start, piece.to_vec());
        Ok(())
    }

    fn remove(&self, _: TimelineName, starts: &[Lsn]) -> io::Result<()> {
        self.pieces.lock().retain(|start, _| !starts.contains(start));
        Ok(())
    }

    fn read(&self, _: TimelineName, start: Lsn) -> io::Result<Vec<u8>> {
        self.pieces.lock().get(&start).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Returns the start of the block with this number.
pub(super) fn block_at(number: u64) -> Lsn {
    Lsn::new(4096 + number * BLOCK_BYTES)
}

fn block(number: u64) -> Vec<u8> {
    let (mut records, mut bytes) = (Vec::new(), vec![0; BLOCK_HEADER_BYTES]);
    put_note(&mut records, 9, &vec![7; BLOCK_BYTES as usize - 300]);
    put_varint(&mut bytes, records.len() as u64);
    bytes.extend_from_slice(&records);
    let header = BlockHeader {
        length_bytes: bytes.len() as u32,
        start: block_at(number),
        epoch: Epoch { database: NAME.database, incarnation: 1 },
        jump: false,
        sector_shift: 9,
        durable_before: block_at(number),
    };
    header.seal(&mut bytes);
    bytes
}

/// Stores pieces that have these blocks. Returns the starts of all blocks up to the last one.
pub(super) fn store_blocks(store: &MemoryStore, pieces: &[Range<u64>]) -> Vec<Lsn> {
    for numbers in pieces {
        let start = PieceStart {
            page_size: 8192,
            timeline: NAME,
            start: block_at(numbers.start),
            log_segment_bytes: SEGMENT_BYTES,
            program: "0.1".into(),
        };
        let piece = Piece::new(start, numbers.clone().flat_map(block).collect()).unwrap();
        store.replace(NAME, piece.start.start, &piece.encode(Compression::NONE)).unwrap();
    }
    let end = pieces.iter().map(|numbers| numbers.end).max().unwrap_or(0);
    (0..end).map(block_at).collect()
}
