//! Planted faults: wrong behaviour that a test switches on, to prove that `e2e/random-queries --planted`
//! finds it.
//!
//! Code that can be wrong calls `planted("what is wrong")`, and behaves wrongly if the result is true. The
//! environment variable `VARVE_PLANTED` switches a fault on. Only builds with debug assertions read it. In
//! other builds the function is a constant `false`, and the compiler removes the call.
//!
//! This module does not know the list of faults (the script has it) or what they break.

#[cfg(debug_assertions)]
use std::sync::OnceLock;

/// Returns whether this fault is switched on.
#[cfg(debug_assertions)]
pub fn planted(name: &str) -> bool {
    static ACTIVE: OnceLock<Option<String>> = OnceLock::new();
    ACTIVE.get_or_init(|| std::env::var("VARVE_PLANTED").ok()).as_deref() == Some(name)
}

/// Returns whether this fault is switched on. It never is in a build without debug assertions.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn planted(_name: &str) -> bool {
    false
}
