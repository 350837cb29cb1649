//! The memory account of an operator: a budget in bytes, and grants that are taken from it.
//!
//! Invariants
//! 1. The grants of a budget are never larger together than the budget.
//! 2. A grant is returned when it is dropped.
//! 3. Every buffer, table and tree of an operator has a grant before it is allocated. Only structures of a
//!    fixed, small size have none.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use varve_device::AlignedBuf;

use crate::error::{Result, SpillError};

/// The memory budget of one operator, in bytes.
#[derive(Debug)]
pub struct MemoryBudget {
    limit_bytes: AtomicUsize,
    used_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
}

impl MemoryBudget {
    /// Returns a budget of this number of bytes.
    pub fn new(limit_bytes: usize) -> Arc<MemoryBudget> {
        let (used_bytes, peak_bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let limit_bytes = AtomicUsize::new(limit_bytes);
        Arc::new(MemoryBudget { limit_bytes, used_bytes, peak_bytes })
    }

    /// Takes a part of the budget. Fails with [`SpillError::Memory`] if too little is left.
    pub fn take(self: &Arc<Self>, wanted_bytes: usize) -> Result<MemoryGrant> {
        let limit_bytes = self.limit_bytes();
        let more = |used: usize| used.checked_add(wanted_bytes).filter(|sum| *sum <= limit_bytes);
        match self.used_bytes.fetch_update(Relaxed, Relaxed, more) {
            Ok(before) => {
                self.peak_bytes.fetch_max(before + wanted_bytes, Relaxed);
                Ok(MemoryGrant { budget: Arc::clone(self), bytes: wanted_bytes })
            }
            Err(used) => {
                Err(SpillError::Memory { wanted_bytes, left_bytes: limit_bytes - used, limit_bytes })
            }
        }
    }

    /// Returns the number of bytes that are left.
    pub fn left_bytes(&self) -> usize {
        self.limit_bytes().saturating_sub(self.used_bytes.load(Relaxed))
    }

    /// Returns the size of the budget, in bytes.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Relaxed)
    }

    /// Makes the budget larger, if it is too small for a row. A budget never shrinks.
    pub fn raise_to(&self, limit_bytes: usize) {
        self.limit_bytes.fetch_max(limit_bytes, Relaxed);
    }

    /// Returns the largest sum of grants so far.
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Relaxed)
    }
}

/// A part of a budget. It is returned to the budget when it is dropped.
#[derive(Debug)]
pub struct MemoryGrant {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl Drop for MemoryGrant {
    fn drop(&mut self) {
        self.budget.used_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

/// An aligned buffer for direct I/O, with its grant.
pub(crate) struct Buffer {
    bytes: AlignedBuf,
    _grant: MemoryGrant,
}

impl Buffer {
    /// Returns a buffer filled with zeros.
    pub(crate) fn new(memory: &Arc<MemoryBudget>, len_bytes: usize) -> Result<Buffer> {
        let grant = memory.take(len_bytes)?;
        Ok(Buffer { bytes: AlignedBuf::new(len_bytes), _grant: grant })
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Bytes that need no alignment, with their grant.
pub(crate) struct Bytes {
    bytes: Box<[u8]>,
    _grant: MemoryGrant,
}

impl Bytes {
    /// Returns bytes filled with zeros.
    pub(crate) fn new(memory: &Arc<MemoryBudget>, len_bytes: usize) -> Result<Bytes> {
        let grant = memory.take(len_bytes)?;
        Ok(Bytes { bytes: vec![0; len_bytes].into_boxed_slice(), _grant: grant })
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}
