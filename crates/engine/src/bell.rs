//! Wakes a background thread, and ends it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The bell of one thread.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    condition: Condvar,
    stopped: AtomicBool,
}

impl Bell {
    pub(crate) fn ring(&self) {
        *self.rung.lock() = true;
        self.condition.notify_one();
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.ring();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Waits until the bell rings, or until the period has passed. Returns false if the thread must end.
    pub(crate) fn wait(&self, period: Duration) -> bool {
        let mut rung = self.rung.lock();
        if !*rung && !self.is_stopped() {
            self.condition.wait_for(&mut rung, period);
        }
        *rung = false;
        !self.is_stopped()
    }
}
