//! Where the pieces of an archive are stored: a directory, or later an object store.
//!
//! This module does not know what is in a piece.

use std::fmt;
use std::io;

use crate::base::lsn::Lsn;

/// The name of a timeline: its database, and a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimelineName {
    /// The database whose log the timeline has.
    pub database: u64,
    /// The number of the timeline.
    pub timeline: u64,
}

impl fmt::Display for TimelineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}", self.database, self.timeline)
    }
}

impl TimelineName {
    /// Returns the name that `text` is.
    pub fn of(text: &str) -> Option<TimelineName> {
        let (database, timeline) = text.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let name = TimelineName { database: number(database)?, timeline: number(timeline)? };
        (name.to_string() == text).then_some(name)
    }
}

/// A piece in the list of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPiece {
    /// The LSN of its first block, which is its name.
    pub start: Lsn,
    /// Its length.
    pub bytes: u64,
}

/// Stores the pieces of timelines.
///
/// Invariants
/// 1. A piece appears whole or not at all, also after a crash.
/// 2. When `create`, `replace` or `remove` has returned without an error, its effect is durable. This is also
///    true if `create` has found a piece: an earlier attempt may have made it, and failed afterwards.
pub trait ArchiveStore: Send + Sync {
    /// Returns the place of the archive, for messages.
    fn location(&self) -> String;

    /// Returns all timelines.
    fn timelines(&self) -> io::Result<Vec<TimelineName>>;

    /// Returns the pieces of a timeline, by ascending LSN. A timeline that does not exist has no pieces.
    fn pieces(&self, timeline: TimelineName) -> io::Result<Vec<StoredPiece>>;

    /// Stores a piece. Returns false, and changes nothing, if the timeline has a piece with this name. Then
    /// that piece is durable, too.
    fn create(&self, timeline: TimelineName, start: Lsn, piece: &[u8]) -> io::Result<bool>;

    /// Stores a piece instead of the one with this name.
    fn replace(&self, timeline: TimelineName, start: Lsn, piece: &[u8]) -> io::Result<()>;

    /// Removes pieces, in this order. Pieces that do not exist are left out.
    fn remove(&self, timeline: TimelineName, starts: &[Lsn]) -> io::Result<()>;

    /// Reads a piece. The error is `NotFound` if it does not exist.
    fn read(&self, timeline: TimelineName, start: Lsn) -> io::Result<Vec<u8>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_other_names_are_none() {
        let name = TimelineName { database: 0xAB, timeline: u64::MAX };
        assert_eq!(name.to_string(), "00000000000000ab-ffffffffffffffff");
        assert_eq!(TimelineName::of(&name.to_string()), Some(name));
        for other in ["", "lost+found", "ab-cd", "00000000000000AB-ffffffffffffffff"] {
            assert_eq!(TimelineName::of(other), None, "{other}");
        }
    }
}
