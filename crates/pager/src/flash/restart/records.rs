//! The parts of the cache that keep slot records for the next start.
//!
//! Invariants
//! 1. Under lazy verification only `hardening` writes records, in the background. Under memory-mapped and
//!    log-based restart only `keeping` does, at once. Without a restart scheme neither does.
//! 2. `hardening` has the identity of the file under every scheme.
//!
//! What it does not know: what a record says.

use super::mirror::Keeping;
use super::rounds::Hardening;
use crate::flash::config::FlashRestart;

/// The records, by one scheme.
pub(in crate::flash) struct Records {
    /// The scheme.
    pub(in crate::flash) scheme: FlashRestart,
    /// Records that are written in rounds.
    pub(in crate::flash) hardening: Hardening,
    /// Records that are kept at once.
    pub(in crate::flash) keeping: Keeping,
}
