//! Model of a latch: which modes different threads may hold at the same time, with the pager's lock, upgrade
//! and downgrade.
//!
//! The tested code is `pager/src/base/latch.rs`. The model replaces the lock of parking_lot by one with the
//! same contract (`sync`).

use std::sync::{Arc, Mutex, PoisonError};

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::checker::{How, Model};
use crate::pager::base::latch::sealed::Mode as _;
use crate::pager::base::latch::{Exclusive, Latch, Shared, SharedExclusive};

pub(crate) const MODES: Model = Model {
    name: "shared with shared, one shared-exclusive among them, exclusive alone, also after upgrade and downgrade",
    how: How::Shuttle,
    run: modes,
    flaws: &["upgraded without waiting for the readers", "downgraded by letting go"],
};

#[derive(Default)]
struct Inside {
    shared: usize,
    upgradable: usize,
    exclusive: usize,
    /// Increased by each exclusive holder.
    version: u64,
}

/// The latch, and the records of its holders. These are in an ordinary mutex, so they add no step to the
/// model.
struct LatchUnderTest {
    latch: Latch,
    inside: Mutex<Inside>,
}

impl LatchUnderTest {
    fn change(&self, change: impl FnOnce(&mut Inside)) -> u64 {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut inside);
        let alone = inside.exclusive == 0 || inside.exclusive + inside.shared + inside.upgradable == 1;
        assert!(
            alone && inside.upgradable <= 1,
            "{} S, {} SX, {} X at once",
            inside.shared,
            inside.upgradable,
            inside.exclusive
        );
        inside.version
    }

    fn share(&self) {
        Shared::lock(&self.latch);
        self.stay_shared(self.change(|inside| inside.shared += 1));
    }

    /// Checks that nothing changes while the latch is held shared.
    fn stay_shared(&self, version: u64) {
        thread::yield_now();
        assert_eq!(self.change(|inside| inside.shared -= 1), version, "changed under a shared latch");
        // SAFETY: held shared, by `share` or `alter`.
        unsafe { Shared::unlock(&self.latch) };
    }

    fn upgrade(&self) {
        SharedExclusive::lock(&self.latch);
        let before = self.change(|inside| inside.upgradable += 1);
        thread::yield_now();
        assert_eq!(
            self.change(|inside| inside.upgradable -= 1),
            before,
            "changed under a shared-exclusive latch"
        );
        // SAFETY: held shared-exclusive since the lock above.
        unsafe { SharedExclusive::upgrade(&self.latch) };
        self.leave_exclusive(before);
    }

    fn leave_exclusive(&self, before: u64) {
        assert_eq!(self.change(|inside| inside.exclusive += 1), before, "somebody wrote during the upgrade");
        thread::yield_now();
        self.change(|inside| {
            inside.exclusive -= 1;
            inside.version += 1;
        });
        // SAFETY: held exclusively by the caller.
        unsafe { Exclusive::unlock(&self.latch) };
    }

    /// Holds the latch exclusively, and then downgrades it to shared without a gap.
    fn alter(&self) {
        Exclusive::lock(&self.latch);
        self.change(|inside| inside.exclusive += 1);
        thread::yield_now();
        let version = self.change(|inside| {
            inside.exclusive -= 1;
            inside.version += 1;
        });
        // SAFETY: held exclusively since the lock above.
        unsafe { Shared::downgrade(&self.latch) };
        assert_eq!(
            self.change(|inside| inside.shared += 1),
            version,
            "somebody wrote between exclusive and shared"
        );
        self.stay_shared(version);
    }

    fn try_alone(&self) {
        if Exclusive::try_lock(&self.latch) {
            let version = self.change(|_| ());
            self.leave_exclusive(version);
        }
    }
}

fn modes() {
    let room = Arc::new(LatchUnderTest { latch: Latch::new(), inside: Mutex::default() });
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let room = Arc::clone(&room);
            thread::spawn(move || {
                for _ in 0..2 {
                    match thread_rng().gen_range(0..4) {
                        0 => room.share(),
                        1 => room.upgrade(),
                        2 => room.alter(),
                        _ => room.try_alone(),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("the model fails at its first panic"));
    assert!(room.latch.is_free());
}
