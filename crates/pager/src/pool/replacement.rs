//! The page replacement policies that the configuration can choose.
//!
//! What it does not know: how a page is chosen (`evict.rs`).

/// Which clean page leaves the pool first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement {
    /// Second chance.
    Clock,
    /// The page whose last but one access is longest ago (O'Neil 1993), found by sampling.
    Lru2,
}
