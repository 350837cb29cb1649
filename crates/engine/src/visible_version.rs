//! Finds the version of a row that a snapshot sees, by steps back from the newest version.
//!
//! Invariants
//! 1. No latch is held while an undo page is fixed.
//! 2. If a reader meets the same unusable version of a row again and again, it returns an error. It never
//!    skips the row.
//!
//! This module does not know trees.

use std::thread;

use crate::core::{Core, Sight, View};
use crate::error::{Error, Result};
use crate::ids::{RollPointer, TxnId};
use crate::node::Stamp;
use crate::versions::{Step, Version};

/// The number of times that a version may be stale while the row is unchanged.
const SAME_STAMP_MAX: u32 = 100;
/// The number of times that an undo page may be unreadable while the row is unchanged.
const UNREADABLE_MAX: u32 = 2;

/// Does the same as [`Version::step_back`] for a caller that has prevented a rollback of the row since the
/// row was read. Returns false if no snapshot sees an older version.
pub(crate) fn step_back_kept(version: &mut Version, core: &Core, tree: u32, key: &[u8]) -> Result<bool> {
    let step = version.step_back(&core.pager, tree, key);
    match step {
        Ok(Step::Older) => return Ok(true),
        Ok(Step::Nothing) => return Ok(false),
        Ok(Step::Stale) | Err(_) => {}
    }
    // Before purge removes a record, it publishes a horizon that sees the record's transaction.
    let view = View { snapshot: core.purge.horizon(), me: TxnId::NONE, floor: core.status.floor() };
    if core.sight(&view, TxnId::new(version.stamp.txn)) == Sight::Seen {
        return Ok(false);
    }
    step.and_then(|_| Err(missing_record(version.stamp)))
}

/// The result of the search for the version that a view sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// `version` is the visible row.
    Row,
    /// The view sees no row.
    NoRow,
    /// The version is out of date. The caller reads the row again.
    Stale,
}

/// Goes back from `version`, which the view may see, to the newest version that the view sees.
pub(crate) fn look_back(
    core: &Core,
    view: &View,
    tree: u32,
    key: &[u8],
    version: &mut Version,
) -> Result<Look> {
    loop {
        match core.sight(view, TxnId::new(version.stamp.txn)) {
            Sight::Seen if version.is_deleted() => return Ok(Look::NoRow),
            Sight::Seen => return Ok(Look::Row),
            Sight::Stale => return Ok(Look::Stale),
            Sight::Unseen => {}
        }
        match version.step_back(&core.pager, tree, key)? {
            Step::Older => {}
            Step::Nothing => return Ok(Look::NoRow),
            Step::Stale => return Ok(Look::Stale),
        }
    }
}

pub(crate) fn missing_record(stamp: Stamp) -> Error {
    let pointer = RollPointer::from_raw(stamp.roll);
    Error::corrupt(format!("the undo record of transaction {} is not at {pointer:?}", stamp.txn))
}

/// Distinguishes a row that changed while it was read from undo that is lost.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    last: Option<Stamp>,
    count: u32,
}

impl Retry {
    /// Returns an error if the caller must not read the row again. The version with this stamp is stale or,
    /// with `cause`, could not be followed. If the same stamp comes again and again, the result is an error.
    /// (Once or twice is possible, if the row's transaction changes it, rolls back to a savepoint, and
    /// changes it again.)
    pub(crate) fn again(
        &mut self,
        core: &Core,
        view: &View,
        stamp: Stamp,
        cause: Option<Error>,
    ) -> Result<()> {
        core.purge.check_snapshot(view.snapshot)?;
        if self.last.replace(stamp) != Some(stamp) {
            self.count = 0;
            return Ok(());
        }
        self.count += 1;
        let max = if cause.is_some() { UNREADABLE_MAX } else { SAME_STAMP_MAX };
        if self.count < max {
            thread::yield_now();
            return Ok(());
        }
        Err(cause.unwrap_or_else(|| missing_record(stamp)))
    }
}
