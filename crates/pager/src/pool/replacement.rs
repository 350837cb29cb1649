//! The page replacement policies that the configuration can choose.
//!
//! This module does not know how a page is chosen (`evict.rs`).

/// The policy that chooses which clean page leaves the pool first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement {
    /// Clock (second chance).
    Clock,
    /// LRU-2 (O'Neil 1993): of a sample of pages, the page whose last but one access is longest ago leaves
    /// first.
    Lru2,
}
