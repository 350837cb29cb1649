//! The slow codecs, bzip2 and lzma. They keep no state between calls, because making it costs little compared
//! with the compression itself.
//!
//! Invariants: those of `mod.rs`.
//!
//! This module does not know pages, or why an algorithm was chosen.

use bzip2::{Action as Bzip2Action, Compress, Compression, Decompress, Status as Bzip2Status};
use liblzma::stream::{Action, Filters, LzmaOptions, Status, Stream};

/// Blocks of 100 kB, the smallest size. A page is smaller than that.
const BZIP2_BLOCK: u32 = 1;
/// 0 means the library's default for when to give up on repetitive input.
const BZIP2_WORK_FACTOR: u32 = 0;
/// The smallest dictionary of LZMA2, in bytes.
const DICTIONARY_MIN_BYTES: usize = 4096;

pub(super) fn compress_bzip2(plain: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut bzip2 = Compress::new(Compression::new(BZIP2_BLOCK), BZIP2_WORK_FACTOR);
    let status = bzip2.compress(plain, out, Bzip2Action::Finish).ok()?;
    (status == Bzip2Status::StreamEnd).then_some(bzip2.total_out() as usize)
}

pub(super) fn decompress_bzip2(from: &[u8], out: &mut [u8]) -> bool {
    let mut bzip2 = Decompress::new(false);
    let mut status = bzip2.decompress(from, out);
    if status == Ok(Bzip2Status::Ok) && bzip2.total_out() == out.len() as u64 {
        // `out` is full, but the end of the stream was not checked yet.
        let rest = from.get(bzip2.total_in() as usize..).unwrap_or_default();
        status = bzip2.decompress(rest, &mut []);
    }
    let is_whole = bzip2.total_in() == from.len() as u64 && bzip2.total_out() == out.len() as u64;
    is_whole && status == Ok(Bzip2Status::StreamEnd)
}

/// Returns the filter LZMA2, with a dictionary that holds `plain` bytes.
fn lzma_filters(level: u8, plain: usize) -> Option<Filters> {
    let mut options = LzmaOptions::new_preset(u32::from(level)).ok()?;
    let dictionary = plain.next_power_of_two().max(DICTIONARY_MIN_BYTES);
    options.dict_size(u32::try_from(dictionary).ok()?);
    let mut filters = Filters::new();
    filters.lzma2(&options);
    Some(filters)
}

pub(super) fn compress_lzma(level: u8, plain: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut lzma = Stream::new_raw_encoder(&lzma_filters(level, plain.len())?).ok()?;
    let status = lzma.process(plain, out, Action::Finish).ok()?;
    (status == Status::StreamEnd).then_some(lzma.total_out() as usize)
}

pub(super) fn decompress_lzma(from: &[u8], out: &mut [u8]) -> bool {
    // The level does not matter here, because the stream has everything that the decoder needs.
    let stream = lzma_filters(1, out.len()).and_then(|filters| Stream::new_raw_decoder(&filters).ok());
    let Some(mut lzma) = stream else { return false };
    let mut status = lzma.process(from, out, Action::Finish);
    if status == Ok(Status::Ok) && lzma.total_out() == out.len() as u64 {
        // `out` is full, but the mark at the end of the stream was not read yet.
        let rest = from.get(lzma.total_in() as usize..).unwrap_or_default();
        status = lzma.process(rest, &mut [], Action::Finish);
    }
    let is_whole = lzma.total_in() == from.len() as u64 && lzma.total_out() == out.len() as u64;
    is_whole && status == Ok(Status::StreamEnd)
}
