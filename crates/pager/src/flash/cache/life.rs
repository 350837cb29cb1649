//! The life of the cache: one state, from the start of the database to its end.
//!
//! ```text
//!   Opened --begin--> Restoring --redone--> Open --threads_begin--> Serving --stay_dirty--> Leaving
//!     |                                      ^                         ^                       |
//!     '----------------redone----------------'                         '-----stay_no_more------'
//!
//!   from                 take_no_more                  lose
//!   Restoring            ------------> FailingInRedo   ----> LostInRedo
//!                                       | redone              | redone
//!                                       v                     v
//!   any other state      ------------> Failing         ----> Lost
//! ```
//!
//! Each edge has the name of the function of the cache that takes it. [`State::after`] is the only place that
//! says which state follows. `begin` and `redone` are in `restart/start.rs`, `take_no_more` and `lose` in
//! `trouble.rs`, the others in `mod.rs`.
//!
//! Invariants
//! 1. A failing or lost cache stays so until the next start.
//! 2. Redo may read pages of an earlier start. This ends once, with `redone`.
//! 3. States are ordered: first the states of a sound device, then those of a failing device, then those of a
//!    lost device. So one comparison tells whether the device can be used.
//!
//! This module does not know what is done in a state.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A state of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(in crate::flash) enum State {
    /// Redo has not ended. The cache has no pages of the previous start.
    Opened,
    /// Redo has not ended. The cache may have pages of the previous start.
    Restoring,
    /// Redo has ended, and every change of a page is reported to the cache. No thread writes for the cache
    /// yet. A pager without threads stays in this state.
    Open,
    /// Threads write queued pages, and clean dirty slots.
    Serving,
    /// A shutdown leaves changed pages on flash.
    Leaving,
    /// The same as `Failing`, but redo has not ended.
    FailingInRedo,
    /// The cache takes no more pages, and its changed pages are written to the data files.
    Failing,
    /// The same as `Lost`, but redo has not ended.
    LostInRedo,
    /// The cache is not used until the next start.
    Lost,
}

/// An event that moves the cache from one state to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::flash) enum Event {
    /// `begin`: a start looks for pages that the previous start left.
    Restore,
    /// `redone`: redo has ended.
    RedoEnds,
    /// `threads_begin`: threads write queued pages.
    ThreadsBegin,
    /// `stay_dirty`: a shutdown leaves changed pages on flash.
    LeavePages,
    /// `stay_no_more`: the shutdown was refused, or can't leave pages.
    KeepRunning {
        /// Threads write what is queued.
        has_threads: bool,
    },
    /// `take_no_more`: the device returned too many errors.
    Fail,
    /// `lose`: the device is of no use.
    Lose,
}

impl State {
    const ALL: [State; 9] = [
        State::Opened,
        State::Restoring,
        State::Open,
        State::Serving,
        State::Leaving,
        State::FailingInRedo,
        State::Failing,
        State::LostInRedo,
        State::Lost,
    ];

    #[inline]
    fn of(code: u8) -> State {
        State::ALL.get(usize::from(code)).copied().unwrap_or(State::Lost)
    }

    /// Returns the state after an event. `None` means that the event does not change the state.
    fn after(self, event: Event) -> Option<State> {
        use State::{Failing, FailingInRedo, Leaving, Lost, LostInRedo, Open, Opened, Restoring, Serving};
        let next = match (self, event) {
            (Opened, Event::Restore) => Restoring,
            (Failing, Event::Restore) => FailingInRedo,
            (Lost, Event::Restore) => LostInRedo,
            (Opened | Restoring, Event::RedoEnds) => Open,
            (FailingInRedo, Event::RedoEnds) => Failing,
            (LostInRedo, Event::RedoEnds) => Lost,
            (Open, Event::ThreadsBegin) => Serving,
            (Open | Serving, Event::LeavePages) => Leaving,
            (Leaving, Event::KeepRunning { has_threads }) => {
                if has_threads {
                    Serving
                } else {
                    Open
                }
            }
            (Restoring, Event::Fail) => FailingInRedo,
            (Opened | Open | Serving | Leaving, Event::Fail) => Failing,
            (Restoring | FailingInRedo, Event::Lose) => LostInRedo,
            (Opened | Open | Serving | Leaving | Failing, Event::Lose) => Lost,
            _ => return None,
        };
        Some(next)
    }
}

/// The state, which all threads read.
pub(in crate::flash) struct Life(AtomicU8);

impl Default for Life {
    fn default() -> Life {
        Life(AtomicU8::new(State::Opened as u8))
    }
}

impl Life {
    /// Applies an event. Returns whether it changed the state.
    pub(in crate::flash) fn on(&self, event: Event) -> bool {
        let next = |code| State::of(code).after(event).map(|state| state as u8);
        self.0.fetch_update(Relaxed, Relaxed, next).is_ok()
    }

    /// Returns the state now.
    #[inline]
    pub(in crate::flash) fn state(&self) -> State {
        State::of(self.0.load(Relaxed))
    }

    /// Returns whether redo runs, and may use pages of the previous start.
    #[inline]
    pub(in crate::flash) fn is_restoring(&self) -> bool {
        matches!(self.state(), State::Restoring | State::FailingInRedo | State::LostInRedo)
    }

    /// Returns whether redo has ended, and the device is sound.
    #[inline]
    pub(in crate::flash) fn is_open(&self) -> bool {
        matches!(self.state(), State::Open | State::Serving | State::Leaving)
    }

    /// Returns whether the device is failing or lost.
    #[inline]
    pub(in crate::flash) fn is_failing(&self) -> bool {
        self.0.load(Relaxed) >= State::FailingInRedo as u8
    }

    /// Returns whether the device is lost.
    #[inline]
    pub(in crate::flash) fn is_lost(&self) -> bool {
        self.0.load(Relaxed) >= State::LostInRedo as u8
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, State};

    const EVENTS: [Event; 7] = [
        Event::Restore,
        Event::RedoEnds,
        Event::ThreadsBegin,
        Event::LeavePages,
        Event::KeepRunning { has_threads: true },
        Event::Fail,
        Event::Lose,
    ];

    #[test]
    fn codes_are_the_order_of_the_list() {
        for (code, state) in (0..).zip(State::ALL) {
            assert_eq!((state as u8, State::of(code)), (code, state));
        }
    }

    #[test]
    fn a_device_never_gets_better() {
        let rank =
            |state: State| u8::from(state >= State::FailingInRedo) + u8::from(state >= State::LostInRedo);
        for state in State::ALL {
            for event in EVENTS {
                let next = state.after(event).unwrap_or(state);
                assert!(rank(next) >= rank(state), "{state:?} --{event:?}--> {next:?}");
            }
            let after = |event| state.after(event).unwrap_or(state);
            assert_eq!(rank(after(Event::Lose)), 2, "{state:?}");
            assert!(rank(after(Event::Fail)) >= 1, "{state:?}");
        }
    }

    #[test]
    fn redo_ends_once() {
        for state in State::ALL {
            let behind = state.after(Event::RedoEnds).unwrap_or(state);
            assert!(behind.after(Event::RedoEnds).is_none(), "{state:?}");
        }
    }
}
