//! Errors of the allocator: the pointer, the place, and the cause.
//!
//! Invariants
//! 1. A call that returns an error has changed no chunk and no word.
//!
//! This module does not know which SQLSTATE an error becomes.

use crate::pointer::{Pointer, Word};
use crate::sizes::{ROOT_NAME_BYTES_MAX, ROOTS, STEPS_MAX};

/// Result of an operation of the allocator.
pub type Result<T> = std::result::Result<T, MemoryError>;

/// Returns what a full region still has, for a message.
fn what_is_free(needed_bytes: u64, free_bytes: u64) -> String {
    match free_bytes {
        0 => "no segment is free".into(),
        _ if free_bytes >= needed_bytes => format!("{free_bytes} bytes are free, but not in one piece"),
        _ => format!("{free_bytes} bytes are free"),
    }
}

/// Why an operation was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// There is no room for a chunk of this size.
    #[error("persistent memory is full: no place for {needed_bytes} bytes ({})", what_is_free(*.needed_bytes, *.free_bytes))]
    Full {
        /// The number of bytes of the chunk that was asked for, rounded up to what it would take.
        needed_bytes: u64,
        /// The number of bytes in free segments. They may not be adjacent, so there can be more bytes than
        /// were asked for.
        free_bytes: u64,
    },
    /// No chunk begins at the pointer.
    #[error("{pointer} is a foreign pointer: {why}")]
    Foreign {
        /// The pointer.
        pointer: Pointer,
        /// What is there instead.
        why: &'static str,
    },
    /// The pointer leads to a chunk that is free, for example because it was freed before.
    #[error("the chunk at {pointer} is free: it was never allocated, or freed before")]
    NotAllocated {
        /// The pointer.
        pointer: Pointer,
    },
    /// The chunk is active already, so it cannot be activated.
    #[error("the chunk at {pointer} is active already")]
    AlreadyActive {
        /// The pointer.
        pointer: Pointer,
    },
    /// Another call is activating or freeing the chunk.
    #[error("the chunk at {pointer} is being activated or freed by another call")]
    InChange {
        /// The pointer.
        pointer: Pointer,
    },
    /// The word is in no allocated chunk and in no root.
    #[error("{word} is neither in an allocated chunk nor a root")]
    ForeignWord {
        /// The word.
        word: Word,
    },
    /// The publication has no steps, or more steps than one publication can have.
    #[error("a publication of {count} steps: it has 1 to {STEPS_MAX}")]
    StepCount {
        /// The number of steps of the publication.
        count: usize,
    },
    /// A root cannot have this name.
    #[error("{name:?} is no name for a root: it has 1 to {ROOT_NAME_BYTES_MAX} bytes")]
    RootName {
        /// The name.
        name: Box<str>,
    },
    /// There is already a root with this name.
    #[error("there is a root {name:?} already")]
    RootExists {
        /// The name.
        name: Box<str>,
    },
    /// There is no root with this name.
    #[error("there is no root {name:?}")]
    NoRoot {
        /// The name.
        name: Box<str>,
    },
    /// The table of roots is full.
    #[error("all {ROOTS} roots are in use")]
    RootsFull,
    /// The region is too small or too large for an allocator.
    #[error("a region of {got_bytes} bytes: an allocator takes {least_bytes} to {most_bytes} bytes")]
    Size {
        /// The size of the region, in bytes.
        got_bytes: u64,
        /// The smallest size, in bytes.
        least_bytes: u64,
        /// The largest size, in bytes.
        most_bytes: u64,
    },
    /// The region has no allocator, or a crash interrupted the step that makes it.
    #[error("the region holds no allocator: its first word is {found:#018x}")]
    NoAllocator {
        /// The number in the place of the magic.
        found: u64,
    },
    /// The region was written by another version of the program.
    #[error(
        "the allocator's region has version {found}, and this program knows version {known}: \
         the program that wrote it can dump its tables"
    )]
    OtherVersion {
        /// The version in the header.
        found: u32,
        /// The version of this program.
        known: u32,
    },
    /// The region belongs to another database.
    #[error("the allocator's region belongs to database {found:#018x}, not to {expected:#018x}")]
    OtherDatabase {
        /// The database in the header.
        found: u64,
        /// The database that opens the region.
        expected: u64,
    },
    /// The region has another length than it was made with.
    #[error("the allocator's region has {found_bytes} bytes, and it was made with {expected_bytes}")]
    OtherLength {
        /// The size of the region, in bytes.
        found_bytes: u64,
        /// The size of the region in its header, in bytes.
        expected_bytes: u64,
    },
    /// Bytes in the region have a value that is impossible.
    #[error("the allocator's region is damaged: {what} at byte {at}")]
    Damaged {
        /// What is damaged.
        what: &'static str,
        /// The place of the damage, in bytes from the region's beginning.
        at: u64,
    },
}
