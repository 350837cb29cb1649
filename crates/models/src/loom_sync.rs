//! Replacements for the standard library's atomics and the pager's latch, in the sources that loom runs.

pub(crate) use loom::sync::atomic;

/// A latch that no thread takes, because the code that loom tests does not use it.
pub(crate) struct Latch;

impl Latch {
    pub(crate) fn new() -> Latch {
        Latch
    }

    pub(crate) fn is_free(&self) -> bool {
        true
    }
}
