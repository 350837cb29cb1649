//! Implements statement_timeout by a thread that cancels the session's statement after the set time.
//!
//! Invariants
//! 1. Only a session that has used the setting has this thread. The thread ends with the session.
//! 2. After `stop` the watchdog cancels nothing until the next `start`.
//!
//! This module does not know statements. It sets the same flag as a cancel request of a user.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
struct State {
    deadline: Option<Instant>,
    expired: bool,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Cancels a statement that takes too long.
pub(super) struct Watchdog {
    shared: Arc<Shared>,
}

impl Watchdog {
    /// Starts the thread. If the system cannot start one, statements run without a limit of time.
    pub(super) fn new(cancel: Arc<AtomicBool>) -> Watchdog {
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let body = move || watch(&seen, &cancel);
        // If the thread cannot be started, the session still runs statements.
        let _ = std::thread::Builder::new().name("varve-timeout".into()).stack_size(64 << 10).spawn(body);
        Watchdog { shared }
    }

    /// Starts the time of a statement.
    pub(super) fn start(&self, timeout: Duration) {
        let mut state = self.shared.state.lock();
        state.deadline = Some(Instant::now() + timeout);
        self.shared.changed.notify_one();
    }

    /// Ends the time of the statement. Returns whether the time was over.
    pub(super) fn stop(&self) -> bool {
        let mut state = self.shared.state.lock();
        state.deadline = None;
        std::mem::take(&mut state.expired)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.state.lock().ended = true;
        self.shared.changed.notify_one();
    }
}

fn watch(shared: &Shared, cancel: &AtomicBool) {
    let mut state = shared.state.lock();
    while !state.ended {
        match state.deadline {
            None => shared.changed.wait(&mut state),
            Some(deadline) if Instant::now() >= deadline => {
                state.deadline = None;
                state.expired = true;
                cancel.store(true, Ordering::Relaxed);
            }
            Some(deadline) => {
                shared.changed.wait_until(&mut state, deadline);
            }
        }
    }
}
