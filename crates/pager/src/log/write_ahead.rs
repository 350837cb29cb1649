//! The interface of the log for the pool and the levels below it. It has three parts: flushing the log before
//! a page is written, appending records that change no page, and stopping the log after a failure.
//!
//! This module does not know how the log is written.

use crate::base::error::{PagerError, Result};
use crate::base::image::Image;
use crate::base::lsn::Lsn;

/// The reason for a stop after a panic. `LogError::Poisoned` has the rest of the sentence.
pub(crate) const PANICKED: &str =
    "a fault of the program (a panic in the storage engine, told in the server's log)";

/// The functions of the log that the pool and the levels use.
pub(crate) trait WriteAhead: Send + Sync {
    /// Returns the end of the durable log.
    fn durable_lsn(&self) -> Lsn;
    /// Returns a position at which redo can begin. Everything before it is durable.
    fn durable_block(&self) -> Lsn {
        self.durable_lsn()
    }
    /// Makes the log durable up to `upto`.
    fn flush(&self, upto: Lsn) -> Result<()>;
    /// Appends a record which says that these images are stable. No flush is needed.
    fn note_written(&self, images: &[&Image]);
    /// Appends a note record if the log has space for it. Returns whether it did. No flush is needed.
    fn note(&self, _kind: u8, _payload: &[u8]) -> bool {
        false
    }
    /// Makes space for note records of these lengths in bytes. Returns whether there is space.
    fn make_room_for(&self, _notes: &[usize]) -> bool {
        false
    }
    /// If the log has stopped, returns the first cause as an error. If this cause was `Stopped`, its text is
    /// the same.
    fn check(&self) -> Result<()>;
    /// Stops the log for ever. Nothing more is acknowledged after that. Only the first cause is kept.
    fn stop(&self, cause: &PagerError);
    /// Stops the log after a panic, because the state in memory can't be trusted then.
    fn panicked(&self) {
        self.stop(&PagerError::Stopped { cause: PANICKED.into() });
    }
}
