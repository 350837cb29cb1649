//! A copy in memory of the slot records that are written at once (memory-mapped and log-based restart).
//!
//! This module does not know what a record says.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};
use varve_device::AlignedBuf;

use super::record::TABLE_BLOCK_BYTES;
use crate::base::lsn::Lsn;
use crate::flash::config::FlashRestart;

/// The state of records that are written at once.
#[derive(Default)]
pub(in crate::flash) struct Keeping {
    /// The records on flash, by block.
    pub(in crate::flash) mirror: RwLock<Vec<Mutex<AlignedBuf>>>,
    /// Whether the header of the file says that its records are not valid.
    pub(in crate::flash) is_void: AtomicBool,
    /// Held by the thread that makes the records invalid.
    pub(in crate::flash) voiding: Mutex<()>,
    /// The position in the log at which the last note records of the whole table begin, and the end of the
    /// log after them.
    pub(in crate::flash) noted: Mutex<Option<(Lsn, Lsn)>>,
}

impl Keeping {
    pub(in crate::flash) fn new(restart: FlashRestart, blocks: u32) -> Keeping {
        let keeping = Keeping::default();
        keeping.reshape(restart, blocks);
        keeping
    }

    /// Begins again with `blocks` blocks that have no records.
    pub(in crate::flash) fn reshape(&self, restart: FlashRestart, blocks: u32) {
        let count = if restart == FlashRestart::MemoryMapped { blocks } else { 0 };
        let zeros = || {
            let mut block = AlignedBuf::new(TABLE_BLOCK_BYTES);
            block.fill(0);
            Mutex::new(block)
        };
        *self.mirror.write() = (0..count).map(|_| zeros()).collect();
        self.is_void.store(false, Relaxed);
    }
}
