//! Note records: log records that change no page. Each file here has one kind: its payload, and what redo
//! learns from it.
//!
//! What it does not know: when a note is written.

pub(crate) mod discarded;
pub(crate) mod discards;
pub(crate) mod stored_forms;
pub(crate) mod written;
