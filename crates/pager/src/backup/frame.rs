//! The format of a backup: a sequence of frames.
//!
//! A frame, little endian:
//!
//! | at | bytes | what |
//! |---:|---:|---|
//! | 0 | 4 | crc32c over all bytes of the frame from offset 4 on |
//! | 4 | 1 | kind (`contents.rs`) |
//! | 5 | 1 | compression algorithm of the contents, 0 = none (`base/compression.rs`) |
//! | 6 | 2 | zero |
//! | 8 | 4 | bytes of the contents as they are stored |
//! | 12 | 4 | bytes of the contents after decompression |
//! | 16 | 8 | number of the frame, from 0 |
//! | 24 | .. | the contents |
//!
//! Invariants
//! 1. The reader returns a frame only if its checksum and its number are right, and its contents can be
//!    decompressed to the length that the frame says.
//!
//! This module does not know what the contents mean.

use std::io::Read;

use crate::base::compression::{Algorithm, Compression};
use crate::base::error::{PagerError, Result};
use crate::home::compression::codec::Codecs;
use crate::log::format::{get_u32, get_u64, put_u32, put_u64};

/// Bytes before the contents of a frame.
pub(crate) const FRAME_HEAD_BYTES: usize = 24;
/// The most bytes of contents. A log block can be as long as a segment of the log.
const CONTENTS_BYTES_MAX: u32 = 1 << 30;

/// Writes frames.
#[derive(Default)]
pub(crate) struct FrameWriter {
    codecs: Codecs,
    compression: Compression,
    number: u64,
}

impl FrameWriter {
    pub(crate) fn new(compression: Compression) -> FrameWriter {
        FrameWriter { compression, ..FrameWriter::default() }
    }

    /// Appends a frame to `out`. Contents that do not become shorter are not compressed.
    pub(crate) fn put(&mut self, kind: u8, contents: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + FRAME_HEAD_BYTES + contents.len(), 0);
        let frame = &mut out[start..];
        let stored = &mut frame[FRAME_HEAD_BYTES..];
        let shorter = contents.len().saturating_sub(1);
        let compressed = self.codecs.compress(self.compression, contents, &mut stored[..shorter]);
        let (algorithm, length) = match compressed {
            Some(length) => (self.compression.algorithm, length),
            None => {
                stored.copy_from_slice(contents);
                (Algorithm::None, contents.len())
            }
        };
        let frame = &mut frame[..FRAME_HEAD_BYTES + length];
        (frame[4], frame[5]) = (kind, algorithm.code());
        put_u32(frame, 8, length as u32);
        put_u32(frame, 12, contents.len() as u32);
        put_u64(frame, 16, self.number);
        let checksum = crc32c::crc32c(&frame[4..]);
        put_u32(frame, 0, checksum);
        out.truncate(start + FRAME_HEAD_BYTES + length);
        self.number += 1;
    }
}

/// A frame that was read.
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) contents: Vec<u8>,
}

/// Takes frames from bytes that come in pieces.
#[derive(Default)]
pub(crate) struct FrameReader {
    codecs: Codecs,
    number: u64,
}

impl FrameReader {
    /// Returns the number of bytes of the frame whose head `bytes` has, or `None` if it has fewer bytes than
    /// a head.
    pub(crate) fn length_of(&self, bytes: &[u8]) -> Result<Option<usize>> {
        let Some(head) = bytes.get(..FRAME_HEAD_BYTES) else { return Ok(None) };
        let (stored, plain) = (get_u32(head, 8), get_u32(head, 12));
        if stored > CONTENTS_BYTES_MAX || plain > CONTENTS_BYTES_MAX || get_u64(head, 16) != self.number {
            return Err(self.damaged("its head is not that of this frame"));
        }
        Ok(Some(FRAME_HEAD_BYTES + stored as usize))
    }

    /// Decodes the bytes of a whole frame.
    pub(crate) fn take(&mut self, frame: &[u8]) -> Result<Frame> {
        if self.length_of(frame)? != Some(frame.len()) {
            return Err(self.damaged("it is not complete"));
        }
        if get_u32(frame, 0) != crc32c::crc32c(&frame[4..]) {
            return Err(self.damaged("its checksum is wrong"));
        }
        let (stored, plain_bytes) = (&frame[FRAME_HEAD_BYTES..], get_u32(frame, 12) as usize);
        let contents = match Algorithm::of_code(frame[5]) {
            _ if frame[6..8] != [0, 0] => None,
            Some(Algorithm::None) => Some(stored.to_vec()).filter(|stored| stored.len() == plain_bytes),
            Some(algorithm) => {
                let mut plain = vec![0; plain_bytes];
                self.codecs.decompress(algorithm, stored, &mut plain).then_some(plain)
            }
            None => None,
        };
        let contents = contents.ok_or_else(|| self.damaged("its contents cannot be decompressed"))?;
        self.number += 1;
        Ok(Frame { kind: frame[4], contents })
    }

    /// Reads the next frame. Returns `None` at the end of the bytes.
    pub(crate) fn read(&mut self, from: &mut dyn Read) -> Result<Option<Frame>> {
        let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES);
        self.fill(from, &mut frame, FRAME_HEAD_BYTES)?;
        if frame.is_empty() {
            return Ok(None);
        }
        let length = self.length_of(&frame)?.ok_or_else(|| self.damaged("it is not complete"))?;
        self.fill(from, &mut frame, length)?;
        self.take(&frame).map(Some)
    }

    /// Reads until `frame` has `length` bytes, or until the end. Memory grows only as bytes come, because the
    /// length may be damaged.
    fn fill(&self, from: &mut dyn Read, frame: &mut Vec<u8>, length: usize) -> Result<()> {
        let missing = (length - frame.len()) as u64;
        let read = from.take(missing).read_to_end(frame);
        read.map(drop).map_err(|error| PagerError::Backup { what: format!("it cannot be read: {error}") })
    }

    fn damaged(&self, why: &str) -> PagerError {
        PagerError::Corrupt { what: format!("the backup is damaged: frame {}: {why}", self.number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> (Vec<u8>, Vec<Vec<u8>>) {
        let contents: Vec<Vec<u8>> =
            vec![b"start".to_vec(), vec![7; 10_000], Vec::new(), (0..=255).collect()];
        let mut out = Vec::new();
        let mut writer = FrameWriter::new(Compression::of(Algorithm::Lz4));
        contents.iter().for_each(|one| writer.put(3, one, &mut out));
        (out, contents)
    }

    fn read_all(mut bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut reader = FrameReader::default();
        let mut found = Vec::new();
        while let Some(frame) = reader.read(&mut bytes)? {
            found.push(frame.contents);
        }
        Ok(found)
    }

    #[test]
    fn frames_come_back() {
        let (bytes, contents) = written();
        assert!(bytes.len() < 2000, "the second one is compressed");
        assert_eq!(read_all(&bytes).unwrap(), contents);
    }

    #[test]
    fn no_changed_byte_and_no_cut_goes_unseen() {
        let (bytes, contents) = written();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(read_all(&damaged).is_err(), "byte {at}");
            assert_ne!(read_all(&bytes[..at]).ok(), Some(contents.clone()), "cut at {at}");
        }
    }

    #[test]
    fn a_missing_frame_is_seen() {
        let (bytes, _) = written();
        let first = FRAME_HEAD_BYTES + 5;
        assert!(read_all(&bytes[first..]).is_err());
    }
}
