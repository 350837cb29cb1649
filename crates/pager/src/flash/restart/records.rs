//! The parts of the cache that keep slot records for the next start.
//!
//! Invariants
//! 1. With lazy verification, only `hardening` writes slot records, from time to time in the background. With
//!    memory-mapped and log-based restart, only `keeping` writes them, and it writes each record as soon as
//!    its slot changes. If the cache is not used again after a restart (`restart = "none"`), neither writes
//!    any.
//! 2. `hardening` has the identity of the file under every scheme.
//!
//! This module does not know what a record says.

use super::mirror::Keeping;
use super::rounds::Hardening;
use crate::flash::config::FlashRestart;

/// The records of the slots under one restart scheme.
pub(in crate::flash) struct Records {
    /// The scheme.
    pub(in crate::flash) scheme: FlashRestart,
    /// Records that are written in rounds.
    pub(in crate::flash) hardening: Hardening,
    /// Records that are kept at once.
    pub(in crate::flash) keeping: Keeping,
}
