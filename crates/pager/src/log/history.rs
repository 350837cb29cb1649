//! The history of pages, which the analysis of the log finds before redo. It says where redo starts, which
//! page versions the data files have, and which pages were discarded.
//!
//! This module does not know how the log is analysed (`recovery/`), or what redo does.

use std::collections::HashMap;

use crate::base::ids::PageId;
use crate::base::lsn::Lsn;
use crate::log::notes::discarded::Discards;

/// The facts about pages that analysis has found in the log.
pub(crate) struct History {
    /// Where reading the log starts.
    pub(crate) from: Lsn,
    /// The position at which redo starts, which is `from` or after it. All earlier changes are stable in the
    /// data files.
    pub(crate) stable: Lsn,
    /// Where the log ends.
    pub(crate) until: Lsn,
    pub(crate) discards: Discards,
    /// For each page that a note record names, the page LSN of its last stable image.
    pub(crate) written: HashMap<PageId, Lsn>,
    /// The pages that were changed between `from` and `stable`, with the end of the last group that changed
    /// them.
    pub(crate) changed_before: HashMap<PageId, Lsn>,
}

impl History {
    /// Returns the history of a log that begins at `start`.
    pub(crate) fn empty(start: Lsn) -> History {
        History {
            from: start,
            stable: start,
            until: start,
            discards: Discards::default(),
            written: HashMap::new(),
            changed_before: HashMap::new(),
        }
    }

    /// Returns whether the page was changed after `lsn`, and before redo starts.
    pub(crate) fn is_changed_before_redo(&self, id: PageId, lsn: Lsn) -> bool {
        self.changed_before.get(&id).is_some_and(|changed| *changed > lsn)
    }

    /// Returns the page LSN of the last stable image of a page, if a note record names the page.
    pub(crate) fn home_has(&self, id: PageId) -> Option<Lsn> {
        self.written.get(&id).copied()
    }

    /// Returns whether the log says that the page was discarded after `lsn`.
    pub(crate) fn is_discarded_after(&self, id: PageId, lsn: Lsn) -> bool {
        self.discards.covers(id, lsn)
    }
}
