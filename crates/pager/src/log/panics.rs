//! What a panic does to the database: within the storage engine it stops it, since what is in memory can't be trusted any more.
//!
//! 1. Code that changes shared state holds a [`StopOnPanic`]. A panic that unwinds through it stops the log before it goes on, so no change is
//!    acknowledged and no page is written behind it.
//! 2. A guard that was made while its thread was panicking already (by a destructor) is quiet: that panic came from elsewhere.
//! 3. Latches and frames in flight are given back by destructors, so nobody waits for a thread that is gone.
//!
//! A panic anywhere else, under shared latches too, leaves the pager as it was: it is an error of its statement, which is rolled back.
//!
//! Not known here: who catches the panic.

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
