//! The background threads of an open database.
//!
//! Invariants
//! 1. The threads run as long as the database or one of its transactions exists. `stop` ends them, and so
//!    does the drop of the last reference to the database.
//! 2. The threads have a reference to `Core`, the part of the open database that all its handles share,
//!    and not to a `Database` handle. With a reference to a handle, the threads would keep the database
//!    open for ever.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use crate::bell::Bell;
use crate::error::{Error, Result};

/// The threads of one open database.
pub(crate) struct BackgroundThreads {
    purge_bell: Arc<Bell>,
    recovery_bell: Arc<Bell>,
    archive_bell: Arc<Bell>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl BackgroundThreads {
    /// Returns an object that has no threads yet.
    pub(crate) fn new(purge_bell: Arc<Bell>) -> BackgroundThreads {
        let (recovery_bell, archive_bell, handles) = Default::default();
        BackgroundThreads { purge_bell, recovery_bell, archive_bell, handles }
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
        let thread = thread::Builder::new().name(name.into()).spawn(body);
        let thread =
            thread.map_err(|error| Error::Unsupported { what: format!("a thread more ({error})") })?;
        self.handles.lock().push(thread);
        Ok(())
    }

    /// Ends all threads and waits for them.
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

impl Drop for BackgroundThreads {
    fn drop(&mut self) {
        self.stop();
    }
}
