//! A panic inside the storage engine stops the database, because the shared state in memory can't be trusted
//! any more.
//!
//! Invariants
//! 1. Code that changes shared state holds a [`StopOnPanic`]. A panic that unwinds through this guard stops
//!    the log. After that, no change is acknowledged, and no page is written.
//! 2. If a destructor makes such a guard while its thread is already panicking, the guard does nothing,
//!    because the panic began in other code.
//! 3. Destructors release latches and end page writes and reads in flight. So no thread waits for a thread
//!    that has ended.
//!
//! A panic in any other code leaves the pager unchanged, even if the code holds shared latches. Such a panic
//! becomes an error of its statement, which is rolled back.
//!
//! This module does not know where the panic is caught.

use crate::log::write_ahead::WriteAhead;

/// A guard that stops the database if a panic unwinds through it.
#[must_use = "it watches for as long as it lives"]
pub struct StopOnPanic<'l> {
    log: &'l dyn WriteAhead,
    was_panicking: bool,
}

impl<'l> StopOnPanic<'l> {
    /// Makes a guard.
    #[inline]
    pub(crate) fn of(log: &'l dyn WriteAhead) -> StopOnPanic<'l> {
        StopOnPanic { log, was_panicking: std::thread::panicking() }
    }
}

impl Drop for StopOnPanic<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            self.log.panicked();
        }
    }
}
