//! The two marks of the NVM page buffer, counted in dirty slots. At the high mark, threads begin to write
//! pages to the data files. At the low mark, they stop. Both marks may change while the database is open.
//!
//! Invariants
//! 1. The high mark is below the number of slots. So when flushing begins, some slots are still free or
//!    clean, and puts can use them.
//!
//! This module does not know which threads flush.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::nvm::NvmFlush;

/// The number of dirty slots at which threads begin to flush, and the number at which they stop.
pub(crate) struct Marks {
    slots: usize,
    high: AtomicUsize,
    low: AtomicUsize,
    flushes_when_idle: AtomicBool,
}

impl Marks {
    pub(crate) fn new(flush: NvmFlush, slots: u32) -> Marks {
        let slots = slots as usize;
        let marks = Marks {
            slots,
            high: AtomicUsize::new(0),
            low: AtomicUsize::new(0),
            flushes_when_idle: AtomicBool::new(false),
        };
        marks.set(flush);
        marks
    }

    /// Sets the marks. They apply from the next round on.
    pub(crate) fn set(&self, flush: NvmFlush) {
        let part = |percent: u32| self.slots * percent as usize / 100;
        self.high.store(part(flush.high_water), Relaxed);
        self.low.store(part(flush.low_water), Relaxed);
        self.flushes_when_idle.store(flush.when_idle, Relaxed);
    }

    pub(crate) fn high(&self) -> usize {
        self.high.load(Relaxed)
    }

    pub(crate) fn low(&self) -> usize {
        self.low.load(Relaxed)
    }

    pub(crate) fn flushes_when_idle(&self) -> bool {
        self.flushes_when_idle.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_parts_of_the_slots() {
        let marks = Marks::new(NvmFlush::DEFAULT, 200);
        assert_eq!((marks.high(), marks.low()), (180, 160));
        marks.set(NvmFlush { high_water: 99, low_water: 0, ..NvmFlush::DEFAULT });
        assert_eq!((marks.high(), marks.low()), (198, 0), "threads begin before all slots are dirty");
    }
}
