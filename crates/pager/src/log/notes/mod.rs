//! Notes: records of the log that change no page. Each file has one kind: its payload, and what redo learns from it.
//!
//! What it does not know: when a note is written.

pub(crate) mod discarded;
pub(crate) mod discards;
pub(crate) mod stored_forms;
pub(crate) mod written;
