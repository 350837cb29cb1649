//! The latch of a frame, with three modes: shared, shared-exclusive (upgradable) and exclusive. Waiting
//! threads sleep.
//!
//! Invariants
//! 1. Only guards (`pool/guard.rs`) and the pool release latches. Each of them releases a latch that it took,
//!    once.
//! 2. A thread that holds a latch never asks for the same latch again, because a waiting writer would block
//!    the thread.
//!
//! This module does not know what the latch protects.

use parking_lot::RawRwLock;
use parking_lot::lock_api::{
    RawRwLock as _, RawRwLockDowngrade as _, RawRwLockUpgrade as _, RawRwLockUpgradeDowngrade as _,
};

/// Latch of one frame.
pub struct Latch(RawRwLock);

impl Latch {
    pub(crate) const fn new() -> Latch {
        Latch(RawRwLock::INIT)
    }

    /// Returns whether no thread holds the latch at this moment (a hint).
    pub(crate) fn is_free(&self) -> bool {
        !self.0.is_locked()
    }
}

/// A way to hold a latch.
pub trait Mode: sealed::Mode {}
impl<M: sealed::Mode> Mode for M {}

/// Several holders, which only read.
pub struct Shared;
/// One holder, which can become exclusive. Until then, others can hold the latch in shared mode.
pub struct SharedExclusive;
/// One holder, and no others in any mode.
pub struct Exclusive;

pub(crate) mod sealed {
    use super::Latch;

    /// How a mode locks and unlocks.
    pub trait Mode {
        /// Whether the holder is alone.
        const ALONE: bool;
        /// Waits for the latch.
        fn lock(latch: &Latch);
        /// Takes the latch if that needs no waiting.
        fn try_lock(latch: &Latch) -> bool;
        /// Turns the exclusive latch into this mode.
        ///
        /// # Safety
        /// The caller holds the latch exclusively.
        unsafe fn downgrade(latch: &Latch);
        /// Releases the latch.
        ///
        /// # Safety
        /// The caller holds the latch in this mode.
        unsafe fn unlock(latch: &Latch);
    }
}

impl sealed::Mode for Shared {
    const ALONE: bool = false;
    #[inline]
    fn lock(latch: &Latch) {
        latch.0.lock_shared();
    }
    #[inline]
    fn try_lock(latch: &Latch) -> bool {
        latch.0.try_lock_shared()
    }
    unsafe fn downgrade(latch: &Latch) {
        // SAFETY: the caller holds it exclusively.
        unsafe { latch.0.downgrade() }
    }
    #[inline]
    unsafe fn unlock(latch: &Latch) {
        // SAFETY: the caller holds it shared.
        unsafe { latch.0.unlock_shared() }
    }
}

impl sealed::Mode for SharedExclusive {
    const ALONE: bool = false;
    #[inline]
    fn lock(latch: &Latch) {
        latch.0.lock_upgradable();
    }
    #[inline]
    fn try_lock(latch: &Latch) -> bool {
        latch.0.try_lock_upgradable()
    }
    unsafe fn downgrade(latch: &Latch) {
        // SAFETY: the caller holds it exclusively.
        unsafe { latch.0.downgrade_to_upgradable() }
    }
    #[inline]
    unsafe fn unlock(latch: &Latch) {
        // SAFETY: the caller holds it upgradable.
        unsafe { latch.0.unlock_upgradable() }
    }
}

impl sealed::Mode for Exclusive {
    const ALONE: bool = true;
    #[inline]
    fn lock(latch: &Latch) {
        latch.0.lock_exclusive();
    }
    #[inline]
    fn try_lock(latch: &Latch) -> bool {
        latch.0.try_lock_exclusive()
    }
    unsafe fn downgrade(_latch: &Latch) {}
    #[inline]
    unsafe fn unlock(latch: &Latch) {
        // SAFETY: the caller holds it exclusively.
        unsafe { latch.0.unlock_exclusive() }
    }
}

impl SharedExclusive {
    /// Waits until no thread holds the latch in shared mode.
    ///
    /// # Safety
    /// The caller holds the latch in this mode; afterwards it holds it exclusively.
    pub(crate) unsafe fn upgrade(latch: &Latch) {
        // SAFETY: the caller holds it upgradable.
        unsafe { latch.0.upgrade() }
    }
}
