//! The codecs with entropy coding, zlib and zstd. Their state is expensive to make, so each thread keeps it.
//!
//! Invariants: those of `mod.rs`. Neither codec writes a checksum or a length, because pages have their own.
//!
//! This module does not know pages, or why an algorithm was chosen.

use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};
use zstd::bulk::{Compressor, Decompressor};

/// Deflate without zlib's header.
#[derive(Default)]
pub(super) struct Zlib {
    deflate: Option<(u8, Compress)>,
    inflate: Option<Decompress>,
}

impl Zlib {
    pub(super) fn compress(&mut self, level: u8, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let kept = self.deflate.take().filter(|(of, _)| *of == level);
        let fresh = || (level, Compress::new(flate2::Compression::new(u32::from(level)), false));
        let (_, mut deflate) = kept.unwrap_or_else(fresh);
        deflate.reset();
        let status = deflate.compress(plain, out, FlushCompress::Finish).ok()?;
        if status != Status::StreamEnd {
            // The reset of zlib-rs 0.6 does not clear the state of a stream that did not end. The next stream
            // would panic or give wrong bytes.
            return None;
        }
        let count = deflate.total_out() as usize;
        self.deflate = Some((level, deflate));
        Some(count)
    }

    pub(super) fn decompress(&mut self, from: &[u8], out: &mut [u8]) -> bool {
        let inflate = self.inflate.get_or_insert_with(|| Decompress::new(false));
        inflate.reset(false);
        let status = inflate.decompress(from, out, FlushDecompress::Finish);
        let is_whole = inflate.total_in() == from.len() as u64 && inflate.total_out() == out.len() as u64;
        is_whole && matches!(status, Ok(Status::StreamEnd))
    }
}

/// Zstandard frames.
#[derive(Default)]
pub(super) struct Zstd {
    compressor: Option<(u8, Compressor<'static>)>,
    decompressor: Option<Decompressor<'static>>,
}

impl Zstd {
    pub(super) fn compress(&mut self, level: u8, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let kept = self.compressor.take().filter(|(of, _)| *of == level);
        let (_, compressor) = self.compressor.insert(match kept {
            Some(kept) => kept,
            None => (level, new_compressor(level).ok()?),
        });
        compressor.compress_to_buffer(plain, out).ok()
    }

    pub(super) fn decompress(&mut self, from: &[u8], out: &mut [u8]) -> bool {
        if self.decompressor.is_none() {
            self.decompressor = Decompressor::new().ok();
        }
        let wanted = out.len();
        let decompressor = self.decompressor.as_mut();
        decompressor
            .is_some_and(|zstd| zstd.decompress_to_buffer(from, out).is_ok_and(|count| count == wanted))
    }
}

fn new_compressor(level: u8) -> std::io::Result<Compressor<'static>> {
    let mut compressor = Compressor::new(i32::from(level))?;
    compressor.include_checksum(false)?;
    compressor.include_contentsize(false)?;
    Ok(compressor)
}
