//! The interface of the log for the pool and the levels below it. It has three parts: flushing the log before
//! a page is written, appending records that change no page, and stopping the log after a failure.
//!
//! What it does not know: how the log is written.

use crate::base::error::{PagerError, Result};
use crate::base::image::Image;
use crate::base::lsn::Lsn;

/// Why nothing is changed any more; `LogError::Poisoned` has the rest of the sentence.
pub(crate) const PANICKED: &str =
    "a fault of the program (a panic in the storage engine, told in the server's log)";

/// What the pool and the levels need of the log.
pub(crate) trait WriteAhead: Send + Sync {
    /// End of the durable log.
    fn durable_lsn(&self) -> Lsn;
    /// All before this is durable, and redo can begin here.
    fn durable_block(&self) -> Lsn {
        self.durable_lsn()
    }
    /// Makes the log durable up to `upto`.
    fn flush(&self, upto: Lsn) -> Result<()>;
    /// Notes that these images are stable; needs no flush.
    fn note_written(&self, images: &[&Image]);
    /// Appends a note, if there is room for it; needs no flush.
    fn note(&self, _kind: u8, _payload: &[u8]) -> bool {
        false
    }
    /// Makes room for notes of these lengths in bytes, one behind the other. Returns whether there is room.
    /// The caller may hold no latch.
    fn make_room_for(&self, _notes: &[usize]) -> bool {
        false
    }
    /// Fails once it has been stopped: with the first cause, and, if that was `Stopped`, with the same words.
    fn check(&self) -> Result<()>;
    /// Stops it for good: no more is acknowledged. Of a second cause nothing is kept.
    fn stop(&self, cause: &PagerError);
    /// Stops it since a panic may have left anything in memory.
    fn panicked(&self) {
        self.stop(&PagerError::Stopped { cause: PANICKED.into() });
    }
}
