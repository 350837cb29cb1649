//! Panics: a panic inside the storage engine stops the database, because the shared state in memory can't be
//! trusted any more.
//!
//! 1. Code that changes shared state holds a [`StopOnPanic`]. A panic that unwinds through this guard stops
//!    the log. After that, no change is acknowledged and no page is written.
//! 2. A guard that a destructor makes while its thread is already panicking does nothing, because that panic
//!    began elsewhere.
//! 3. Destructors release latches and frames in flight, so no thread waits for a thread that is gone.
//!
//! A panic in any other code, even under shared latches, leaves the pager unchanged. Such a panic becomes an
//! error of its statement, which is rolled back.
//!
//! Not known here: where the panic is caught.

use crate::log::write_ahead::WriteAhead;

/// Stops the database if a panic goes through it.
#[must_use = "it watches for as long as it lives"]
pub struct StopOnPanic<'l> {
    log: &'l dyn WriteAhead,
    was_panicking: bool,
}

impl<'l> StopOnPanic<'l> {
    /// Watches from now on.
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
