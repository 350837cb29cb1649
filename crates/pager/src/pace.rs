//! How fast room goes back to devices: a hole that is punched holds up the file's other I/O.
//!
//! Invariants
//! 1. At a tenth, whoever works rests nine times as long as each piece of his work took, and an end of the pager ends the rest.
//!
//! What it does not know: what the work is.

use std::time::{Duration, Instant};

use crate::pager::Shared;

/// Rests for each part of work.
const RESTS: u32 = 9;
/// How long is slept before the end of the pager is looked for.
const NAP: Duration = Duration::from_millis(20);

/// How the pieces of a long work follow each other.
pub(crate) enum Pace<'s> {
    /// One at once behind the other.
    AtOnce,
    /// So that at most a tenth of the time is work.
    Tenth(&'s Shared),
}

impl Pace<'_> {
    /// Does a piece, and rests.
    pub(crate) fn piece<T>(&self, work: impl FnOnce() -> T) -> T {
        let Pace::Tenth(shared) = self else { return work() };
        let began = Instant::now();
        let done = work();
        let worked = began.elapsed();
        while !shared.is_stopping() {
            let Some(rest) = (worked * (RESTS + 1)).checked_sub(began.elapsed()) else { break };
            std::thread::sleep(rest.min(NAP));
        }
        done
    }

    /// Whether the pager is about to end: what is left waits for the next start.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Pace::Tenth(shared) if shared.is_stopping())
    }
}
