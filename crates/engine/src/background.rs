//! The background threads of an open database.
//!
//! Invariants
//! 1. The threads run as long as the database or one of its transactions exists. `stop` ends them, and so
//!    does the drop of the last reference to the database. Only the thread that archives the log is left if
//!    its store hangs.
//! 2. The threads have a reference to `Core`, the part of the open database that all its handles share,
//!    and not to a `Database` handle. With a reference to a handle, the threads would keep the database
//!    open for ever.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::bell::Bell;
use crate::error::{Error, Result};

/// A shutdown waits at most this long for the archive of the log.
pub(crate) const ARCHIVE_ENDS_MAX: Duration = Duration::from_secs(10);
/// The time between two looks at a thread that may hang.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The threads of one open database.
pub(crate) struct BackgroundThreads {
    purge_bell: Arc<Bell>,
    recovery_bell: Arc<Bell>,
    archive_bell: Arc<Bell>,
    handles: Mutex<Vec<JoinHandle<()>>>,
    /// The thread that archives the log. It may hang in the store, so nobody waits for it without a limit.
    archive: Mutex<Option<JoinHandle<()>>>,
}

impl BackgroundThreads {
    /// Returns an object that has no threads yet.
    pub(crate) fn new(purge_bell: Arc<Bell>) -> BackgroundThreads {
        let (recovery_bell, archive_bell, handles, archive) = Default::default();
        BackgroundThreads { purge_bell, recovery_bell, archive_bell, handles, archive }
    }

    /// Returns the bell of the thread that archives the log.
    pub(crate) fn archive_bell(&self) -> &Arc<Bell> {
        &self.archive_bell
    }

    /// Returns the bell of the thread that rolls back transactions which a crash left unfinished.
    pub(crate) fn recovery_bell(&self) -> &Arc<Bell> {
        &self.recovery_bell
    }

    /// Starts a thread.
    pub(crate) fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        self.handles.lock().push(started(name, body)?);
        Ok(())
    }

    /// Starts the thread that archives the log.
    pub(crate) fn spawn_archive(&self, body: impl FnOnce() + Send + 'static) -> Result<()> {
        *self.archive.lock() = Some(started("varve-archive", body)?);
        Ok(())
    }

    /// Waits until the thread that archives the log has ended, at most up to `limit`. Returns whether it has
    /// ended. Otherwise the thread is left.
    pub(crate) fn archive_ends_until(&self, limit: Instant) -> bool {
        self.archive_bell.stop();
        let Some(thread) = self.archive.lock().take() else { return true };
        while !thread.is_finished() {
            if Instant::now() >= limit {
                return false;
            }
            thread::sleep(LOOK_EVERY);
        }
        // The thread has reported its panic, if it had one.
        let _reported = thread.join();
        true
    }

    /// Ends all threads, and waits for them, except for the one that archives the log.
    pub(crate) fn stop(&self) {
        self.purge_bell.stop();
        self.recovery_bell.stop();
        self.archive_bell.stop();
        for thread in self.handles.lock().drain(..) {
            if thread.join().is_err() {
                // The thread has reported its panic; there is nothing to wait for.
            }
        }
    }
}

fn started(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name(name.into()).spawn(body);
    thread.map_err(|error| Error::Unsupported { what: format!("a thread more ({error})") })
}

impl Drop for BackgroundThreads {
    fn drop(&mut self) {
        self.stop();
        self.archive_ends_until(Instant::now() + ARCHIVE_ENDS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn an_archive_that_hangs_does_not_stop_the_end() {
        let threads = BackgroundThreads::new(Arc::default());
        let (release, hangs) = mpsc::channel::<()>();
        let body = move || {
            let _ended = hangs.recv();
        };
        threads.spawn_archive(body).unwrap();
        threads.stop();
        assert!(!threads.archive_ends_until(Instant::now() + Duration::from_millis(20)));
        drop(release);
        threads.spawn_archive(|| {}).unwrap();
        assert!(threads.archive_ends_until(Instant::now() + ARCHIVE_ENDS_MAX));
    }
}
