//! The file of the cache.
//!
//! `flash.varve`, little endian: a header of 4096 bytes, then the frames, a page each.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | magic "VARVEFLC" |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | page size in bytes |
//! | 16 | 8 | database id |
//! | 24 | 4 | frames |
//! | 28 | 4064 | zeros |
//! | 4092 | 4 | crc32c over bytes 0..4092 |
//!
//! Invariants
//! 1. Whatever is in the frames at a start means nothing.
//! 2. Only a file that is empty or begins with the magic is ever written over.
//!
//! Not known here: which page is in which frame.

use std::sync::Arc;

use varve_device::{AlignedBuf, BlockFile, Directory, Durability, OpenHow, Purpose, ReadOp, Space, WriteOp};

use crate::error::{PagerError, Result};
use crate::log::format::{put_u32, put_u64};

/// Name of the file.
pub const FLASH_FILE: &str = "flash.varve";
/// Bytes before the first frame.
pub(crate) const HEADER_BYTES: u64 = 4096;

const MAGIC: &[u8; 8] = b"VARVEFLC";
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = HEADER_BYTES as usize - 4;

/// The frames.
pub(super) struct Store {
    file: Arc<dyn BlockFile>,
    page_size: usize,
}

impl Store {
    /// Makes the file as long as so many frames need, and says whose it is.
    pub(super) fn open(
        directory: &dyn Directory,
        database: u64,
        page_size: usize,
        frames: u32,
    ) -> Result<Store> {
        let is_new = !directory.exists(FLASH_FILE)?;
        let file = directory.open(FLASH_FILE, OpenHow::or_create(Space::Flash))?;
        let mut header = AlignedBuf::new(HEADER_BYTES as usize);
        let is_empty = is_new || file.len_bytes()? == 0;
        if !is_empty && (file.len_bytes()? < HEADER_BYTES || !begins_with_magic(&*file, &mut header)?) {
            let what = format!(
                "{}/{FLASH_FILE} is no flash cache, and is left as it is: move it away, or give the cache another device",
                directory.location()
            );
            return Err(PagerError::Incompatible { what });
        }
        header.fill(0);
        header[..8].copy_from_slice(MAGIC);
        put_u32(&mut header, 8, VERSION);
        put_u32(&mut header, 12, page_size as u32);
        put_u64(&mut header, 16, database);
        put_u32(&mut header, 24, frames);
        let crc = crc32c::crc32c(&header[..CHECKSUM_AT]);
        put_u32(&mut header, CHECKSUM_AT, crc);
        let made = file
            .set_len(HEADER_BYTES + u64::from(frames) * page_size as u64)
            .and_then(|()| file.write_at(0, &header, Purpose::FlashMeta, Durability::Later));
        match made {
            Err(error) if is_new => {
                // What was begun takes room that others may need; a device that refuses even this keeps it.
                let _ = directory.remove(FLASH_FILE);
                Err(error.into())
            }
            made => Ok(made.map(|()| Store { file, page_size })?),
        }
    }

    /// Room for a page.
    pub(super) fn buffer(&self) -> AlignedBuf {
        AlignedBuf::new(self.page_size)
    }

    fn offset(&self, frame: u32) -> u64 {
        HEADER_BYTES + u64::from(frame) * self.page_size as u64
    }

    /// Reads frames together.
    pub(super) fn read<'f>(&self, frames: impl Iterator<Item = (u32, &'f mut [u8])>) -> Result<()> {
        let why = Purpose::FlashPage;
        let mut ops: Vec<ReadOp<'_>> =
            frames.map(|(frame, buf)| ReadOp { offset: self.offset(frame), buf, why }).collect();
        Ok(self.file.read_batch(&mut ops)?)
    }

    /// Reads one.
    pub(super) fn read_one(&self, frame: u32, buf: &mut [u8]) -> Result<()> {
        Ok(self.file.read_at(self.offset(frame), buf, Purpose::FlashPage)?)
    }

    /// Writes frames together; not durably, since nobody trusts them after a crash.
    pub(super) fn write<'f>(&self, frames: impl Iterator<Item = (u32, &'f [u8])>) -> Result<()> {
        let (why, durability) = (Purpose::FlashPage, Durability::Later);
        let ops: Vec<WriteOp<'_>> =
            frames.map(|(frame, buf)| WriteOp { offset: self.offset(frame), buf, why, durability }).collect();
        Ok(self.file.write_batch(&ops)?)
    }
}

fn begins_with_magic(file: &dyn BlockFile, header: &mut AlignedBuf) -> Result<bool> {
    file.read_at(0, header, Purpose::FlashMeta)?;
    Ok(&header[..8] == MAGIC)
}
