//! The packed layout: stored pages out of place, in sector-aligned slots of whole extents, found through a page map.
//!
//! A page that is written goes to the next slot of the extent being filled; nothing is overwritten, so a crash always
//! finds the version before. Where pages lie is in memory, in notes of the log, and in checkpoints of the map.
//!
//! | file | what |
//! |---|---|
//! | `place.rs` | where a stored page lies: its number form |
//! | `format.rs` | header block, heads, map pages |
//! | `map_file.rs` | the file that they are in: two places for each |
//! | `note.rs` | the note in the log |
//! | `page_map.rs` | where the newest form of each page lies, read without a lock |
//! | `extents.rs` | what lives in each extent, which are free |
//! | `book.rs` | what is held, and what a crash would find |
//! | `replay.rs` | what the log says since the last checkpoint of the map |

mod book;
mod chunks;
#[cfg(test)]
mod crashes;
mod extents;
pub(crate) mod format;
mod map_file;
pub(crate) mod note;
mod page_map;
pub(crate) mod place;
mod replay;
