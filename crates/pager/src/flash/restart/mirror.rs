//! A copy in memory of the slot records that are written at once (memory-mapped and log-based restart).
//!
//! What it does not know: what a record says.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};
use varve_device::AlignedBuf;

use super::record::TABLE_BLOCK_BYTES;
use crate::base::lsn::Lsn;
use crate::flash::config::FlashRestart;

/// What is kept at once.
#[derive(Default)]
pub(in crate::flash) struct Keeping {
    /// The records on flash, by block.
    pub(in crate::flash) mirror: RwLock<Vec<Mutex<AlignedBuf>>>,
    /// The file says that nothing can be gone on with.
    pub(in crate::flash) is_void: AtomicBool,
    /// Held by who makes it say so.
    pub(in crate::flash) voiding: Mutex<()>,
    /// Where the last notes of the whole table begin, and where the log ended behind them.
    pub(in crate::flash) noted: Mutex<Option<(Lsn, Lsn)>>,
}

impl Keeping {
    pub(in crate::flash) fn new(restart: FlashRestart, blocks: u32) -> Keeping {
        let keeping = Keeping::default();
        keeping.reshape(restart, blocks);
        keeping
    }

    /// There are so many blocks of records, and none has any.
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
