//! Replacements for parking_lot and the standard library's threads in the copied sources. They are built with
//! shuttle.
//!
//! A timed wait may end at any moment. The latch behaves like parking_lot's `RawRwLock`: for example, a
//! waiting writer keeps new readers out. The implementation of parking_lot is not tested.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use shuttle::sync::atomic;
pub(crate) use shuttle::thread_local;

/// Threads.
pub(crate) mod thread {
    pub(crate) use shuttle::thread::*;
    pub(crate) use std::thread::panicking;
}

const WAITING: &str = "nobody looks through a guard that waits";

/// `parking_lot::Mutex`.
#[derive(Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

/// `parking_lot::MutexGuard`; empty only inside a wait.
pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    held: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, held: Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|held| MutexGuard { mutex: self, held: Some(held) })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.held.as_ref().expect(WAITING)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect(WAITING)
    }
}

/// `parking_lot::Condvar`.
#[derive(Default)]
pub(crate) struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(shuttle::sync::Condvar::new())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect(WAITING);
        guard.held = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until the scheduler chooses to end the wait, as if the time were over.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _longest: Duration) {
        guard.held = None;
        shuttle::thread::yield_now();
        guard.held = guard.mutex.lock().held.take();
    }

    /// Does the same as `wait_for`, but only while the condition holds. Returns whether the condition still
    /// holds.
    pub(crate) fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut is_waiting: impl FnMut(&mut T) -> bool,
        longest: Duration,
    ) -> bool {
        if is_waiting(guard) {
            self.wait_for(guard, longest);
        }
        is_waiting(guard)
    }
}

/// `parking_lot::RwLock`.
#[derive(Default)]
pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> shuttle::sync::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_read(&self) -> Option<shuttle::sync::RwLockReadGuard<'_, T>> {
        self.0.try_read().ok()
    }

    pub(crate) fn write(&self) -> shuttle::sync::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Holders {
    readers: usize,
    /// Whether one holder reads and may become the writer.
    upgradable: bool,
    /// Whether there is a writer, or a writer that waits until the readers have left.
    writer: bool,
}

/// `parking_lot::RawRwLock`.
pub(crate) struct RawRwLock {
    holders: Mutex<Holders>,
    changed: Condvar,
}

impl RawRwLock {
    pub(crate) fn new() -> Self {
        Self { holders: Mutex::default(), changed: Condvar::new() }
    }

    fn try_with(&self, take: impl FnOnce(&mut Holders) -> bool) -> bool {
        take(&mut self.holders.lock())
    }

    fn wait_until(&self, mut take: impl FnMut(&mut Holders) -> bool) {
        let mut holders = self.holders.lock();
        while !take(&mut holders) {
            self.changed.wait(&mut holders);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Holders)) {
        change(&mut self.holders.lock());
        self.changed.notify_all();
    }

    pub(crate) fn is_locked(&self) -> bool {
        let holders = self.holders.lock();
        holders.writer || holders.upgradable || holders.readers > 0
    }

    pub(crate) fn lock_shared(&self) {
        self.wait_until(Holders::take_shared);
    }

    pub(crate) fn try_lock_shared(&self) -> bool {
        self.try_with(Holders::take_shared)
    }

    pub(crate) fn lock_upgradable(&self) {
        self.wait_until(Holders::take_upgradable);
    }

    pub(crate) fn try_lock_upgradable(&self) -> bool {
        self.try_with(Holders::take_upgradable)
    }

    pub(crate) fn lock_exclusive(&self) {
        self.wait_until(|holders| {
            let is_first = !holders.writer && !holders.upgradable;
            holders.writer |= is_first;
            is_first
        });
        self.wait_until(|holders| holders.readers == 0);
    }

    pub(crate) fn try_lock_exclusive(&self) -> bool {
        self.try_with(|holders| {
            let is_free = !holders.writer && !holders.upgradable && holders.readers == 0;
            holders.writer |= is_free;
            is_free
        })
    }

    pub(crate) fn upgrade(&self) {
        self.upgrade_at_once();
        self.wait_until(|holders| holders.readers == 0);
    }

    /// Upgrades without waiting for readers. Only a planted bug uses this function.
    pub(crate) fn upgrade_at_once(&self) {
        self.change(|holders| {
            holders.upgradable = false;
            holders.writer = true;
        });
    }

    pub(crate) fn downgrade(&self) {
        self.change(|holders| {
            holders.writer = false;
            holders.readers += 1;
        });
    }

    pub(crate) fn downgrade_to_upgradable(&self) {
        self.change(|holders| {
            holders.writer = false;
            holders.upgradable = true;
        });
    }

    pub(crate) fn unlock_shared(&self) {
        self.change(|holders| holders.readers -= 1);
    }

    pub(crate) fn unlock_upgradable(&self) {
        self.change(|holders| holders.upgradable = false);
    }

    pub(crate) fn unlock_exclusive(&self) {
        self.change(|holders| holders.writer = false);
    }
}

impl Holders {
    fn take_shared(&mut self) -> bool {
        self.readers += usize::from(!self.writer);
        !self.writer
    }

    fn take_upgradable(&mut self) -> bool {
        let may = !self.writer && !self.upgradable;
        self.upgradable |= may;
        may
    }
}
