//! A gate lets any number of threads in, or one thread closes it. It works like a read-write lock.
//!
//! Invariants
//! 1. A thread that closes the gate waits until all threads have left. While the gate is closed, or a thread
//!    waits to close it, no other thread enters.
//!
//! This module does not know what threads do inside.

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
struct State {
    holders: usize,
    is_closed: bool,
}

/// The gate.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

/// Keeps the gate open.
pub(super) struct Pass<'g>(&'g Gate);

/// Keeps the gate closed.
pub(super) struct Closed<'g>(&'g Gate);

impl Gate {
    /// Waits until the gate is open, and enters. The gate cannot be closed until the result is dropped.
    pub(super) fn enter(&self) -> Pass<'_> {
        let mut state = self.state.lock();
        while state.is_closed {
            self.changed.wait(&mut state);
        }
        state.holders += 1;
        Pass(self)
    }

    /// Closes the gate, and waits until all threads have left.
    pub(super) fn close(&self) -> Closed<'_> {
        let mut state = self.state.lock();
        while state.is_closed {
            self.changed.wait(&mut state);
        }
        state.is_closed = true;
        while state.holders > 0 {
            self.changed.wait(&mut state);
        }
        Closed(self)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.state.lock().holders -= 1;
        self.0.changed.notify_all();
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    #[test]
    fn closing_waits_for_those_who_are_in_and_keeps_others_out() {
        let (gate, inside) = (Gate::default(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..300 {
                        let _pass = gate.enter();
                        inside.fetch_add(1, SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, SeqCst);
                    }
                });
            }
            for _ in 0..100 {
                let _closed = gate.close();
                assert_eq!(inside.load(SeqCst), 0);
                std::thread::yield_now();
                assert_eq!(inside.load(SeqCst), 0);
            }
        });
    }
}
