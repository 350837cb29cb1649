//! The fast codecs, lz4, lzo and snappy. They only replace repetitions, and do no entropy coding.
//!
//! Invariants: those of `mod.rs`.
//!
//! This module does not know pages, or why an algorithm was chosen.

use lz4_flex::block::CompressTable;
use lzokay::compress::Dict;

/// State for compressing that is kept between calls.
#[derive(Default)]
pub(super) struct Fast {
    lz4: Option<CompressTable>,
    lzo: Option<Box<Dict>>,
    snappy: Option<snap::raw::Encoder>,
    /// A buffer for lz4 and snappy. They need space for the worst case, which is longer than a page.
    room: Vec<u8>,
}

impl Fast {
    pub(super) fn compress_lz4(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let table = self.lz4.get_or_insert_with(CompressTable::small);
        let most = lz4_flex::block::get_maximum_output_size(plain.len());
        through(&mut self.room, most, out, |room| {
            lz4_flex::block::compress_into_with_table(plain, room, table).ok()
        })
    }

    pub(super) fn compress_lzo(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let dict = self.lzo.get_or_insert_with(Dict::new);
        lzokay::compress::compress_no_alloc(plain, out, dict).ok()
    }

    pub(super) fn compress_snappy(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let encoder = self.snappy.get_or_insert_with(snap::raw::Encoder::new);
        let most = snap::raw::max_compress_len(plain.len());
        through(&mut self.room, most, out, |room| encoder.compress(plain, room).ok())
    }
}

/// Compresses into `room`, and copies the result to `out` if it fits.
fn through(
    room: &mut Vec<u8>,
    most: usize,
    out: &mut [u8],
    compress: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> Option<usize> {
    if room.len() < most {
        room.resize(most, 0);
    }
    let count = compress(room)?;
    out.get_mut(..count)?.copy_from_slice(&room[..count]);
    Some(count)
}

pub(super) fn decompress_lz4(from: &[u8], out: &mut [u8]) -> bool {
    let wanted = out.len();
    lz4_flex::block::decompress_into(from, out).is_ok_and(|count| count == wanted)
}

pub(super) fn decompress_lzo(from: &[u8], out: &mut [u8]) -> bool {
    let wanted = out.len();
    lzokay::decompress::decompress(from, out).is_ok_and(|count| count == wanted)
}

pub(super) fn decompress_snappy(from: &[u8], out: &mut [u8]) -> bool {
    let is_right = snap::raw::decompress_len(from).is_ok_and(|says| says == out.len());
    is_right && snap::raw::Decoder::new().decompress(from, out).is_ok()
}
