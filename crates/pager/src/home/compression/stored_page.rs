//! The stored form of a page in its data file: plain, or compressed (Lindstrom 2017, section 3).
//!
//! A plain stored page is the sealed page of `base/page.rs`, with flags 0. A compressed stored page has this
//! format (little endian):
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | checksum: CRC-32C of bytes 4 .. 40 + n |
//! | 4 | 15 | as in the plain page: page number, page LSN, space, kind |
//! | 19 | 1 | flags: 1 |
//! | 20 | 4 | owner |
//! | 24 | 1 | algorithm ([`Algorithm::code`], not 0) |
//! | 25 | 1 | log2 of the page size |
//! | 26 | 2 | 0 |
//! | 28 | 4 | n: compressed bytes |
//! | 32 | 4 | checksum of the plain sealed page (its bytes 0..4) |
//! | 36 | 4 | 0 |
//! | 40 | n | bytes 32 .. page size of the plain page, compressed |
//! | 40 + n | .. | zeros up to a length that the device can write; not covered by the checksum, not looked at |
//!
//! Invariants
//! 1. A compressed page is decompressed only after its own checksum was verified. The result is returned only
//!    if the plain page's checksum is right, too. So a faulty codec is reported as damage, and never returns
//!    a wrong page.
//! 2. The bytes after a stored page are never read as part of it, because they may be the end of a longer
//!    page that was stored there before.
//! 3. A page is compressed only if its stored form becomes shorter, in lengths that the device can write
//!    ([`StoredLengths`]).
//!
//! This module does not know where pages are stored, or why an algorithm was chosen.

#[cfg(test)]
mod tests;

use std::cell::RefCell;

use varve_device::{AlignedBuf, planted, reached};

use crate::base::compression::{Algorithm, Compression};
use crate::base::ids::{PageId, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::page::{self, PAGE_HEADER_BYTES, PageDamage, StoredDamage, kind, u32_at};
use crate::base::space_format::OWNER_SYSTEM;
use crate::home::compression::codec::Codecs;

/// Length of a compressed page's header; the compressed bytes follow.
pub(crate) const STORED_HEADER_BYTES: usize = 40;

/// Flags of a compressed page.
const COMPRESSED: u8 = 1;

const ALGORITHM: usize = 24;
const PAGE_SIZE_LOG2: usize = 25;
const ZERO_1: usize = 26;
const LENGTH: usize = 28;
const PLAIN_CHECKSUM: usize = 32;
const ZERO_2: usize = 36;
const _: () = assert!(ALGORITHM == page::RESERVED && ZERO_2 + 4 == STORED_HEADER_BYTES);

/// The form in which a page was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Plain.
    Plain,
    /// The page is compressed. With the header it has this many bytes.
    Compressed(Algorithm, usize),
}

impl Form {
    /// Returns the number of used bytes of a stored page, for this page size.
    pub(crate) fn bytes(self, page_size: usize) -> usize {
        match self {
            Form::Plain => page_size,
            Form::Compressed(_, bytes) => bytes,
        }
    }
}

/// The lengths that the stored form of a page may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredLengths {
    /// Multiples of this many bytes: a power of two, at least the device's sector.
    Multiples(usize),
    /// Powers of two, at least this many bytes. Only writes of such lengths, at multiples of their lengths,
    /// can be atomic (`Capabilities::writes_whole` of the crate `device`).
    PowersOfTwo(usize),
}

impl StoredLengths {
    /// Returns the greatest length that is shorter than a page, or `None` if there is no such length.
    pub(crate) fn below(self, page_size: usize) -> Option<usize> {
        let (longest, least) = match self {
            StoredLengths::Multiples(unit) => (page_size.checked_sub(unit)?, unit),
            StoredLengths::PowersOfTwo(least) => (page_size / 2, least),
        };
        (longest >= least).then_some(longest)
    }

    /// Returns the least length that has room for these bytes.
    fn fit(self, bytes: usize) -> usize {
        match self {
            StoredLengths::Multiples(unit) => bytes.next_multiple_of(unit),
            StoredLengths::PowersOfTwo(least) => bytes.next_power_of_two().max(least),
        }
    }
}

impl std::fmt::Display for StoredLengths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoredLengths::Multiples(unit) => write!(f, "sectors of {unit} bytes"),
            StoredLengths::PowersOfTwo(least) => write!(f, "atomic writes of at least {least} bytes"),
        }
    }
}

/// An image in its stored form.
pub(crate) struct Stored<'i> {
    image: &'i Image,
    encoded: Option<AlignedBuf>,
}

impl<'i> Stored<'i> {
    /// Returns the plain form.
    pub(crate) fn plain(image: &'i Image) -> Stored<'i> {
        Stored { image, encoded: None }
    }

    /// Returns the compressed form if it is shorter, otherwise the plain form.
    pub(crate) fn of(image: &'i Image, how: Compression, lengths: StoredLengths) -> Stored<'i> {
        let encoded = if how.is_none() { None } else { encode(image, how, lengths) };
        Stored { image, encoded }
    }

    /// Returns the id of the page.
    pub(crate) fn id(&self) -> PageId {
        self.image.id()
    }

    /// Returns the page LSN.
    pub(crate) fn lsn(&self) -> Lsn {
        self.image.lsn()
    }

    /// Returns whether the page is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.encoded.is_some()
    }

    /// Returns the bytes to write: the compressed page with zeros up to its length, or the page.
    pub(crate) fn bytes(&self) -> &[u8] {
        let Some(stored) = &self.encoded else { return self.image.bytes() };
        if planted("stored: the length is one sector short") {
            return &stored[..stored.len().saturating_sub(512).max(512)];
        }
        stored
    }
}

/// The codecs and the buffer with which a thread compresses and decompresses.
#[derive(Default)]
struct Bench {
    codecs: Codecs,
    /// A buffer for compressed bytes.
    scratch: Vec<u8>,
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(Bench::default());
}

impl Bench {
    /// Returns the codecs, and a buffer of this length.
    fn scratch(&mut self, bytes: usize) -> (&mut Codecs, &mut [u8]) {
        if self.scratch.len() < bytes {
            self.scratch.resize(bytes, 0);
        }
        (&mut self.codecs, &mut self.scratch[..bytes])
    }
}

/// Returns whether a page may be compressed. Pages that a start reads before it knows how pages are stored
/// stay plain.
fn may_be_compressed(page: &[u8]) -> bool {
    let kind = page::page_kind(page);
    let is_pagers = [kind::SPACE_HEADER, kind::DESCRIPTOR, kind::ROOT].contains(&kind)
        || page::page_owner(page) == OWNER_SYSTEM
        || page::page_identity(page).space() == SpaceId::TEMPORARY;
    // The stored form has no place for these bytes of the page header, so they must be zero.
    let is_formatted = page[page::FLAGS] == 0 && page[page::RESERVED..PAGE_HEADER_BYTES] == [0; 8];
    !is_pagers && is_formatted
}

fn encode(image: &Image, how: Compression, lengths: StoredLengths) -> Option<AlignedBuf> {
    let page = image.bytes();
    let longest = lengths.below(page.len())?;
    let room = longest.checked_sub(STORED_HEADER_BYTES)?;
    if !may_be_compressed(page) {
        return None;
    }
    BENCH.with(|bench| {
        let mut bench = bench.borrow_mut();
        let (codecs, scratch) = bench.scratch(room);
        let count = codecs.compress(how, &page[PAGE_HEADER_BYTES..], scratch);
        if count.is_none() {
            reached("home: page stored plain");
            if planted("stored: a page that does not shrink is cut") {
                return Some(AlignedBuf::copy_of(&page[..longest]));
            }
        }
        let count = count?;
        let mut stored = AlignedBuf::new(lengths.fit(STORED_HEADER_BYTES + count));
        put_header(&mut stored, page, how.algorithm, count);
        stored[STORED_HEADER_BYTES..STORED_HEADER_BYTES + count].copy_from_slice(&scratch[..count]);
        let checksum = crc32c::crc32c(&stored[page::PAGE_NO..STORED_HEADER_BYTES + count]);
        stored[..page::PAGE_NO].copy_from_slice(&checksum.to_le_bytes());
        Some(stored)
    })
}

/// Writes the header of the stored form, except its checksum.
fn put_header(stored: &mut [u8], page: &[u8], algorithm: Algorithm, count: usize) {
    stored[page::PAGE_NO..page::RESERVED].copy_from_slice(&page[page::PAGE_NO..page::RESERVED]);
    stored[page::FLAGS] = COMPRESSED;
    stored[ALGORITHM] = algorithm.code();
    stored[PAGE_SIZE_LOG2] = page.len().ilog2() as u8;
    stored[LENGTH..LENGTH + 4].copy_from_slice(&(count as u32).to_le_bytes());
    stored[PLAIN_CHECKSUM..PLAIN_CHECKSUM + 4].copy_from_slice(&page[..page::PAGE_NO]);
}

/// Returns whether the flags say that this is a compressed page.
#[inline]
fn is_compressed(stored: &[u8]) -> bool {
    stored.get(page::FLAGS) == Some(&COMPRESSED)
}

fn damage(what: StoredDamage) -> PageDamage {
    PageDamage::Stored { what }
}

/// Returns the length in bytes of the compressed page at the beginning of `stored`. A length above `at_most`
/// is damage.
fn compressed_bytes(stored: &[u8], at_most: usize) -> Result<usize, PageDamage> {
    let has = stored.len().min(at_most);
    let says = match stored.len() {
        STORED_HEADER_BYTES.. => u32_at(stored, LENGTH),
        _ => 0,
    };
    let bytes = STORED_HEADER_BYTES.saturating_add(says as usize);
    if bytes <= has { Ok(bytes) } else { Err(damage(StoredDamage::Length { says, has: has as u32 })) }
}

/// Checks everything that can be checked before decompressing. Returns the algorithm and the length with the
/// header.
fn check(stored: &[u8], id: PageId, page_size: usize) -> Result<(Algorithm, usize), PageDamage> {
    let bytes = compressed_bytes(stored, page_size)?;
    let (found, computed) = (u32_at(stored, page::CHECKSUM), crc32c::crc32c(&stored[page::PAGE_NO..bytes]));
    if found != computed && !planted("stored: the checksum is not looked at") {
        return Err(PageDamage::Checksum { found, computed });
    }
    page::verify_identity(stored, id)?;
    let code = stored[ALGORITHM];
    let algorithm = Algorithm::of_code(code).filter(|algorithm| *algorithm != Algorithm::None);
    let algorithm = algorithm.ok_or(damage(StoredDamage::Algorithm(code)))?;
    if u32::from(stored[PAGE_SIZE_LOG2]) != page_size.ilog2() {
        return Err(damage(StoredDamage::PageSize(stored[PAGE_SIZE_LOG2])));
    }
    if stored[ZERO_1..LENGTH] != [0; 2] || stored[ZERO_2..STORED_HEADER_BYTES] != [0; 4] {
        return Err(damage(StoredDamage::Reserved));
    }
    Ok((algorithm, bytes))
}

/// Decompresses a page that `check` has accepted.
fn unpack(
    codecs: &mut Codecs,
    algorithm: Algorithm,
    stored: &[u8],
    frame: &mut [u8],
) -> Result<(), PageDamage> {
    let body = &mut frame[PAGE_HEADER_BYTES..];
    let unchecked = planted("stored: the checksum is not looked at");
    if !codecs.decompress(algorithm, &stored[STORED_HEADER_BYTES..], body) && !unchecked {
        return Err(damage(StoredDamage::Decompress(algorithm)));
    }
    frame[..PAGE_HEADER_BYTES].fill(0);
    frame[..page::RESERVED].copy_from_slice(&stored[..page::RESERVED]);
    frame[..page::PAGE_NO].copy_from_slice(&stored[PLAIN_CHECKSUM..ZERO_2]);
    frame[page::FLAGS] = 0;
    let met = page::verify_checksum(frame);
    if unchecked { Ok(()) } else { met.map_err(|_| damage(StoredDamage::Contents)) }
}

/// Checks the stored form of page `id`, and makes the plain page in `frame`. `stored` may be longer than the
/// page. After an error the content of `frame` is undefined.
pub(crate) fn decode(stored: &[u8], id: PageId, frame: &mut [u8]) -> Result<Form, PageDamage> {
    if is_compressed(stored) {
        let (algorithm, bytes) = check(stored, id, frame.len())?;
        BENCH.with(|bench| unpack(&mut bench.borrow_mut().codecs, algorithm, &stored[..bytes], frame))?;
        return Ok(Form::Compressed(algorithm, bytes));
    }
    let (says, has) = (frame.len() as u32, stored.len() as u32);
    let plain = stored.get(..frame.len()).ok_or(damage(StoredDamage::Length { says, has }))?;
    frame.copy_from_slice(plain);
    page::verify(frame, id).map(|()| Form::Plain)
}

/// Checks the stored form of `id` without making the plain page. `stored` may be longer than needed.
pub(crate) fn verify(stored: &[u8], id: PageId, page_size: usize) -> Result<(), PageDamage> {
    if is_compressed(stored) {
        return check(stored, id, page_size).map(drop);
    }
    let (says, has) = (page_size as u32, stored.len() as u32);
    let plain = stored.get(..page_size).ok_or(damage(StoredDamage::Length { says, has }))?;
    page::verify(plain, id)
}

/// Does the same as [`decode`], for stored bytes that are in the frame already. After an error the content of
/// the frame is undefined.
#[inline]
pub(crate) fn decode_in(frame: &mut [u8], id: PageId) -> Result<Form, PageDamage> {
    if is_compressed(frame) {
        return decode_aside(frame, id);
    }
    page::verify(frame, id).map(|()| Form::Plain)
}

/// Decodes a compressed page in its frame, through a copy of the compressed bytes.
fn decode_aside(frame: &mut [u8], id: PageId) -> Result<Form, PageDamage> {
    let (algorithm, bytes) = check(frame, id, frame.len())?;
    BENCH.with(|bench| {
        let mut bench = bench.borrow_mut();
        let (codecs, scratch) = bench.scratch(bytes);
        scratch.copy_from_slice(&frame[..bytes]);
        unpack(codecs, algorithm, scratch, frame)
    })?;
    Ok(Form::Compressed(algorithm, bytes))
}
