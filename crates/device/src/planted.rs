//! Hooks for crash tests in the database's code: planted faults, and counters of reached events.
//!
//! A planted fault is a mistake that a crash test can switch on. The code asks `planted("what is wrong")`,
//! and does the wrong thing if the answer is true. Only the crash tests are built with the feature `planted`.
//! Without this feature the answer is a constant `false`, and the compiler removes the branch.
//!
//! `reached("what happened")` counts an event. A search uses the counts to show that its workloads reach the
//! important code.
//!
//! Invariants
//! 1. At most one fault is switched on, and only for the calling thread. So tests that run in parallel do not
//!    disturb each other. A thread that works for another one gets its fault by `PlantedFault`.

/// Whether this build is for the test harness. Then the code makes checks that are too slow for a normal
/// build, as in debug builds.
pub const IN_HARNESS: bool = cfg!(feature = "planted");

#[cfg(feature = "planted")]
mod switch {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;

    thread_local! {
        static ACTIVE: Cell<Option<&'static str>> = const { Cell::new(None) };
        static HITS: Cell<u64> = const { Cell::new(0) };
        static REACHED: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
    }

    /// Returns whether this fault is switched on for the calling thread.
    #[inline]
    pub fn planted(name: &str) -> bool {
        let hit = ACTIVE.get().is_some_and(|active| active == name);
        if hit {
            HITS.set(HITS.get() + 1);
        }
        hit
    }

    /// Switches a fault on (or off) for the calling thread, and resets the count of hits.
    pub fn plant(name: Option<&'static str>) {
        ACTIVE.set(name);
        HITS.set(0);
    }

    /// The fault that is switched on for a thread, if there is one.
    #[derive(Debug, Clone, Copy)]
    pub struct PlantedFault(Option<&'static str>);

    impl PlantedFault {
        /// Returns the fault of the calling thread.
        pub fn of_this_thread() -> PlantedFault {
            PlantedFault(ACTIVE.get())
        }

        /// Switches the fault on for the calling thread, which works for the other one.
        pub fn plant(self) {
            plant(self.0);
        }
    }

    /// Switches on the panic with this name (`panic at ...`, decision 0905). Any other name switches the
    /// panic off.
    pub fn plant_panic(name: &str) {
        match name.starts_with("panic at ") {
            true => ACTIVE.set(Some(name.to_owned().leak())),
            false if ACTIVE.get().is_some_and(|active| active.starts_with("panic at ")) => ACTIVE.set(None),
            false => {}
        }
    }

    /// Counts that the calling thread has reached an event.
    pub fn reached(event: &'static str) {
        REACHED.with_borrow_mut(|counts| *counts.entry(event).or_default() += 1);
    }

    /// Returns the events that the calling thread has reached since the last call, and how often.
    pub fn take_reached() -> BTreeMap<&'static str, u64> {
        REACHED.take()
    }

    /// Returns how often the code reached the fault since it was switched on.
    pub fn planted_hits() -> u64 {
        HITS.get()
    }
}

#[cfg(feature = "planted")]
pub use switch::{PlantedFault, plant, plant_panic, planted, planted_hits, reached, take_reached};

/// Panics if the panic of this name is switched on.
#[inline(always)]
pub fn planted_panic(place: &'static str) {
    assert!(!planted(place), "planted: {place}");
}

/// Nothing, in a build without the harness.
#[cfg(not(feature = "planted"))]
#[derive(Debug, Clone, Copy)]
pub struct PlantedFault;

#[cfg(not(feature = "planted"))]
impl PlantedFault {
    /// Does nothing in a build without the harness.
    #[inline(always)]
    pub const fn of_this_thread() -> PlantedFault {
        PlantedFault
    }

    /// Does nothing in a build without the harness.
    #[inline(always)]
    pub const fn plant(self) {}
}

/// Does nothing in a build without the harness.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn plant_panic(_name: &str) {}

/// Returns whether this fault is switched on. It is never on in a build without the harness.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn planted(_name: &str) -> bool {
    false
}

/// Does nothing in a build without the harness.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn reached(_event: &'static str) {}
