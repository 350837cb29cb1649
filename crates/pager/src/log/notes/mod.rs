//! Note records: log records that change no page. Each file of this folder is for one kind of note record:
//! its payload, and the facts that redo learns from it.
//!
//! This module does not know when a note is written.

pub(crate) mod discarded;
pub(crate) mod discards;
pub(crate) mod stored_forms;
pub(crate) mod time;
pub(crate) mod written;
