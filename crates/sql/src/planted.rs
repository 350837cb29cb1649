//! Faults planted on purpose, which `e2e/random-queries --planted` has to find.
//!
//! A place that could be wrong asks `planted("what is wrong")` and behaves wrongly if that is switched on, by the variable
//! `VARVE_PLANTED` of the environment. Only builds with debug assertions look there. In others the answer is a constant
//! `false`, and the compiler removes the question.
//!
//! Does not know: which faults there are (the script has the list), what they break.

#[cfg(debug_assertions)]
use std::sync::OnceLock;

/// Whether this fault is switched on.
#[cfg(debug_assertions)]
pub fn planted(name: &str) -> bool {
    static ACTIVE: OnceLock<Option<String>> = OnceLock::new();
    ACTIVE.get_or_init(|| std::env::var("VARVE_PLANTED").ok()).as_deref() == Some(name)
}

/// Whether this fault is switched on: never, in a build without debug assertions.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn planted(_name: &str) -> bool {
    false
}
