//! The page: header, checksum, identity.
//!
//! Layout (little endian)
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | checksum: CRC-32C of all bytes from offset 4 to the end of the page |
//! | 4 | 4 | page number |
//! | 8 | 8 | page LSN: end of the last mini-transaction that changed the page |
//! | 16 | 2 | space |
//! | 18 | 1 | kind |
//! | 19 | 1 | flags: 0; 1 in the stored form of a compressed page (`home/compression/stored_page.rs`), which is never in memory |
//! | 20 | 4 | owner: the segment that the page was allocated to, 0 = none |
//! | 24 | 8 | reserved (0) |
//! | 32 | .. | body |
//!
//! Invariants
//! 1. The checksum covers the identity of the page. So a page that was read from a wrong place is detected.
//! 2. The checksum is computed when the page is copied for writing ([`seal`]). In the pool it is out of date.
//!
//! This module does not know what the body means.

use varve_device::planted;

use crate::base::compression::Algorithm;
use crate::base::ids::{PageId, PageNo, SpaceId};
use crate::base::lsn::Lsn;

/// Length of the page header, in bytes; the body follows.
pub const PAGE_HEADER_BYTES: usize = 32;
/// Smallest page size, in bytes.
pub const PAGE_SIZE_MIN_BYTES: usize = 4096;
/// Largest page size, in bytes.
pub const PAGE_SIZE_MAX_BYTES: usize = 65536;

pub(crate) const CHECKSUM: usize = 0;
pub(crate) const PAGE_NO: usize = 4;
const PAGE_LSN: usize = 8;
const SPACE: usize = 16;
const KIND: usize = 18;
pub(crate) const FLAGS: usize = 19;
pub(crate) const OWNER: usize = 20;
pub(crate) const RESERVED: usize = 24;
const _: () = assert!(RESERVED + 8 == PAGE_HEADER_BYTES && FLAGS + 1 == OWNER);

/// The kinds of the pager's own pages. Kinds from [`FIRST_ENGINE_KIND`] on belong to the engine.
pub mod kind {
    /// First page of a space.
    pub const SPACE_HEADER: u8 = 1;
    /// Allocation of a group of extents.
    pub const DESCRIPTOR: u8 = 2;
    /// The engine's root page.
    pub const ROOT: u8 = 3;
    /// Page of the temporary space.
    pub const TEMPORARY: u8 = 4;
}

/// Page kinds from here on are the engine's.
pub const FIRST_ENGINE_KIND: u8 = 16;

/// The reason why a page that was read from a device cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PageDamage {
    /// All bytes are zero: the page was never written, or its write was lost.
    #[error("all of it is zero")]
    Zero,
    /// The checksum does not match.
    #[error("its checksum is {found:#010x} where its bytes give {computed:#010x}")]
    Checksum {
        /// Stored in the page.
        found: u32,
        /// Computed from the bytes.
        computed: u32,
    },
    /// The bytes are an intact page, but another one than was requested.
    #[error("it holds page {} of space {}", .no.0, .space.0)]
    Identity {
        /// The space that the page says it belongs to.
        space: SpaceId,
        /// The number it says it has.
        no: PageNo,
    },
    /// The page is newer than the log.
    #[error(
        "its LSN {lsn} lies beyond the end of the log at {durable}: log and page are not of one database"
    )]
    BeyondLog {
        /// The page LSN.
        lsn: Lsn,
        /// End of the durable log.
        durable: Lsn,
    },
    /// The page is stored compressed, and cannot be made plain.
    #[error("its compressed form {what}")]
    Stored {
        /// What is wrong with it.
        what: StoredDamage,
    },
}

/// The reason why a compressed page cannot be made plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoredDamage {
    /// According to its header, the page is longer than the space that contains it.
    #[error("says that it has {says} bytes where there are {has}")]
    Length {
        /// Length in the header of the stored form.
        says: u32,
        /// Bytes that were read.
        has: u32,
    },
    /// No algorithm has this code.
    #[error("was made by algorithm {0}, which this program does not know")]
    Algorithm(u8),
    /// The page size in its header is not that of this database.
    #[error("is that of a page of 2^{0} bytes")]
    PageSize(u8),
    /// Reserved bytes are not zero.
    #[error("has bytes set that this program does not know")]
    Reserved,
    /// The codec returned an error.
    #[error("is refused by {0}")]
    Decompress(Algorithm),
    /// The decompressed bytes differ from the bytes that were compressed.
    #[error("gives other bytes than were compressed")]
    Contents,
}

pub(crate) fn u32_at(page: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&page[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn u64_at(page: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&page[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// Returns the page LSN.
#[inline]
pub fn page_lsn(page: &[u8]) -> Lsn {
    Lsn::new(u64_at(page, PAGE_LSN))
}

/// Sets the page LSN.
#[inline]
pub fn set_page_lsn(page: &mut [u8], lsn: Lsn) {
    page[PAGE_LSN..PAGE_LSN + 8].copy_from_slice(&lsn.get().to_le_bytes());
}

/// Returns the identity that the page says it has.
pub fn page_identity(page: &[u8]) -> PageId {
    let space = u16::from_le_bytes([page[SPACE], page[SPACE + 1]]);
    PageId::new(SpaceId(space), PageNo(u32_at(page, PAGE_NO)))
}

/// Returns the kind.
#[inline]
pub fn page_kind(page: &[u8]) -> u8 {
    page[KIND]
}

/// Returns the owner, 0 = none.
pub fn page_owner(page: &[u8]) -> u32 {
    u32_at(page, OWNER)
}

/// Makes an empty page: sets the header, and fills the body with zeros. The page LSN does not change.
pub fn format(page: &mut [u8], id: PageId, kind: u8, owner: u32) {
    let lsn = page_lsn(page);
    page.fill(0);
    page[PAGE_NO..PAGE_NO + 4].copy_from_slice(&id.no().0.to_le_bytes());
    page[SPACE..SPACE + 2].copy_from_slice(&id.space().0.to_le_bytes());
    page[KIND] = kind;
    page[OWNER..OWNER + 4].copy_from_slice(&owner.to_le_bytes());
    set_page_lsn(page, lsn);
}

/// Computes and stores the checksum. This is the last step before the page is written.
pub fn seal(page: &mut [u8]) {
    let checksum = crc32c::crc32c(&page[PAGE_NO..]);
    page[CHECKSUM..CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// Checks checksum and identity of bytes that were read from the place of page `id`.
pub fn verify(page: &[u8], id: PageId) -> Result<(), PageDamage> {
    verify_checksum(page)?;
    verify_identity(page, id)
}

/// Checks only the identity, which is at the same offset in every stored form.
pub(crate) fn verify_identity(page: &[u8], id: PageId) -> Result<(), PageDamage> {
    let found = page_identity(page);
    if found == id {
        return Ok(());
    }
    Err(PageDamage::Identity { space: found.space(), no: found.no() })
}

/// Checks only the checksum.
pub fn verify_checksum(page: &[u8]) -> Result<(), PageDamage> {
    let found = u32_at(page, CHECKSUM);
    let computed = crc32c::crc32c(&page[PAGE_NO..]);
    if found == computed || planted("pages: the checksum is not looked at") {
        return Ok(());
    }
    if found == 0 && page.iter().all(|byte| *byte == 0) {
        return Err(PageDamage::Zero);
    }
    Err(PageDamage::Checksum { found, computed })
}
