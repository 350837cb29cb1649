//! A spool stores the rows of a result in order, for a client that reads them in slices. Rows that do not fit
//! in memory are in a file.
//!
//! Layout, little endian: for each row its length u32, and its bytes. The newest rows are in memory, up to a
//! budget. Older rows are in a file on the temporary device, in whole blocks.
//!
//! Invariants
//! 1. Memory is bounded: the newest bytes up to the budget, one block that was read, and 8 bytes for each
//!    `STRIDE` rows.
//! 2. The file is removed with the spool. After a crash the next start removes it.
//! 3. The file's bytes count against the caller's quota until the spool is dropped.
//!
//! This module does not know the content of a row.

use std::sync::Arc;

use varve_device::{AlignedBuf, Directory, Durability, Purpose};
use varve_pager::PagerError;

use crate::error::{Error, Result};
use crate::quota::TemporaryQuota;
use crate::sort::RunFile;

/// Memory limit. Above it, rows are written to the file.
const BUDGET_BYTES: usize = 4 << 20;
/// Unit of reading and writing.
const BLOCK_BYTES: usize = 256 << 10;
/// The position of every row with a number divisible by this is stored.
const STRIDE: u64 = 64;

/// Rows in the order in which they were pushed.
pub struct Spool {
    directory: Arc<dyn Directory>,
    budget_bytes: usize,
    quota: Arc<TemporaryQuota>,
    file: Option<RunFile>,
    /// The number of bytes in the file.
    written: u64,
    /// The bytes that were taken from the quota. After a failed write they are more than `written`.
    taken: u64,
    /// The bytes after those in the file.
    tail: Vec<u8>,
    rows: u64,
    /// The position of each row whose number is divisible by `STRIDE`.
    places: Vec<u64>,
    /// The block that was read last, with its position.
    block: Option<(u64, AlignedBuf)>,
    /// The number and the position of the row after the one that was read last.
    next: (u64, u64),
    row: Vec<u8>,
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool").field("rows", &self.rows).field("written", &self.written).finish()
    }
}

impl Spool {
    pub(crate) fn new(temporary: &Arc<dyn Directory>, quota: Arc<TemporaryQuota>) -> Spool {
        Spool::with_budget(temporary, quota, BUDGET_BYTES)
    }

    fn with_budget(temporary: &Arc<dyn Directory>, quota: Arc<TemporaryQuota>, budget_bytes: usize) -> Spool {
        Spool {
            directory: Arc::clone(temporary),
            budget_bytes,
            quota,
            file: None,
            written: 0,
            taken: 0,
            tail: Vec::new(),
            rows: 0,
            places: Vec::new(),
            block: None,
            next: (0, 0),
            row: Vec::new(),
        }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> u64 {
        self.rows
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds a row.
    pub fn push(&mut self, row: &[u8]) -> Result<()> {
        if self.rows.is_multiple_of(STRIDE) {
            self.places.push(self.written + self.tail.len() as u64);
        }
        self.tail.extend_from_slice(&(row.len() as u32).to_le_bytes());
        self.tail.extend_from_slice(row);
        self.rows += 1;
        if self.tail.len() >= self.budget_bytes { self.spill() } else { Ok(()) }
    }

    /// Writes the whole blocks of the tail.
    fn spill(&mut self) -> Result<()> {
        if self.file.is_none() {
            self.file = Some(RunFile::create(&self.directory)?);
        }
        let Some(file) = &self.file else { return Ok(()) };
        let whole = self.tail.len() / BLOCK_BYTES * BLOCK_BYTES;
        self.quota.take(whole as u64)?;
        self.taken += whole as u64;
        let mut buffer = AlignedBuf::new(BLOCK_BYTES);
        for (n, block) in self.tail[..whole].chunks(BLOCK_BYTES).enumerate() {
            buffer.copy_from_slice(block);
            let at = self.written + (n * BLOCK_BYTES) as u64;
            let written = file.file().write_at(at, &buffer, Purpose::Temporary, Durability::Later);
            written.map_err(PagerError::from)?;
        }
        self.written += whole as u64;
        self.tail.drain(..whole);
        Ok(())
    }

    /// Returns the n-th row, counted from 0, or `None` after the last row. Reading forward needs no search.
    pub fn get(&mut self, n: u64) -> Result<Option<&[u8]>> {
        if n >= self.rows {
            return Ok(None);
        }
        if n != self.next.0 {
            let stride = n / STRIDE;
            let place = usize::try_from(stride).ok().and_then(|stride| self.places.get(stride));
            self.next = (stride * STRIDE, *place.ok_or_else(|| Error::corrupt("a spool without places"))?);
        }
        loop {
            let (number, place) = self.next;
            let mut length = [0; 4];
            self.read(place, &mut length)?;
            let length = u32::from_le_bytes(length) as usize;
            self.next = (number + 1, place + 4 + length as u64);
            if number == n {
                let mut row = std::mem::take(&mut self.row);
                row.resize(length, 0);
                self.read(place + 4, &mut row)?;
                self.row = row;
                return Ok(Some(&self.row));
            }
        }
    }

    fn read(&mut self, mut place: u64, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            let from = self.bytes_at(place)?;
            let some = from.len().min(out.len());
            if some == 0 {
                return Err(Error::corrupt("a spool is shorter than its rows"));
            }
            let (part, rest) = out.split_at_mut(some);
            part.copy_from_slice(&from[..some]);
            out = rest;
            place += some as u64;
        }
        Ok(())
    }

    /// Returns the bytes from `place` on, as far as they are in the same block or in memory.
    fn bytes_at(&mut self, place: u64) -> Result<&[u8]> {
        if let Some(at) = place.checked_sub(self.written) {
            return Ok(self.tail.get(at as usize..).unwrap_or_default());
        }
        let begin = place - place % BLOCK_BYTES as u64;
        if self.block.as_ref().is_none_or(|(at, _)| *at != begin) {
            let Some(file) = &self.file else { return Err(Error::corrupt("a spool without its file")) };
            let mut buffer = match self.block.take() {
                Some((_, buffer)) => buffer,
                None => AlignedBuf::new(BLOCK_BYTES),
            };
            file.file().read_at(begin, &mut buffer, Purpose::Temporary).map_err(PagerError::from)?;
            self.block = Some((begin, buffer));
        }
        let (_, block) = self.block.as_ref().ok_or_else(|| Error::corrupt("a spool without its block"))?;
        Ok(&block[(place - begin) as usize..])
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.quota.give_back(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_device::MemoryDirectory;

    fn row(n: u64) -> Vec<u8> {
        let mut row = n.to_le_bytes().to_vec();
        row.resize(8 + (n as usize * 37) % 900, n as u8);
        row
    }

    #[test]
    fn rows_come_back_in_any_order_from_memory_and_file() {
        let directory: Arc<dyn Directory> = MemoryDirectory::new();
        for budget_bytes in [usize::MAX, 600 << 10] {
            let mut spool = Spool::with_budget(&directory, Arc::default(), budget_bytes);
            (0..5000).for_each(|n| spool.push(&row(n)).unwrap());
            assert_eq!(spool.file.is_some(), budget_bytes != usize::MAX);
            let forward = 0..5000;
            let backward = (0..5000).rev().step_by(7);
            let about = (0..2000_u64).map(|n| n.wrapping_mul(2_654_435_761) % 5000);
            for n in forward.chain(backward).chain(about) {
                assert_eq!(spool.get(n).unwrap(), Some(&*row(n)), "row {n}");
            }
            assert_eq!(spool.get(5000).unwrap(), None);
            assert!(spool.block.is_none() || spool.tail.len() < 600 << 10);
        }
        assert!(directory.list().unwrap().is_empty());
    }

    #[test]
    fn a_spool_beyond_its_quota_fails_and_gives_its_part_back() {
        let directory: Arc<dyn Directory> = MemoryDirectory::new();
        let quota = Arc::new(TemporaryQuota::default());
        quota.set_limit(1 << 20);
        for _ in 0..2 {
            let mut spool = Spool::with_budget(&directory, Arc::clone(&quota), 300 << 10);
            let failed = (0..10_000).find_map(|n| spool.push(&row(n)).err()).unwrap();
            assert_eq!(failed.sqlstate(), "53400");
            assert_eq!(spool.written, 1 << 20);
        }
        assert!(directory.list().unwrap().is_empty());
    }
}
