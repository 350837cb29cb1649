//! Pins. A pin keeps the log from a position on, until a copy of the log has passed this position.
//!
//! Invariants
//! 1. A pin never stops the database. If the pinned part of the log gets longer than the log's limit, the
//!    next checkpoint breaks the pin, and the copy fails.
//! 2. The position of a pin only grows.
//! 3. The pin that waits for the archiver since the start slides instead of breaking. So log that the archive
//!    has already never costs the log that it lacks.
//!
//! This module does not know which code copies the log, or where to.

use std::sync::Arc;

use parking_lot::Mutex;
use varve_device::reached;

use super::Log;
use super::format::Geometry;
use crate::base::lsn::Lsn;

/// The position of a pin.
struct Pinned {
    at: Lsn,
    is_broken: bool,
    /// The segments of the log, if the pin slides: instead of breaking, it moves on to a later segment.
    slides: Option<Geometry>,
}

impl Pinned {
    fn fixed(at: Lsn) -> Pinned {
        Pinned { at, is_broken: false, slides: None }
    }

    /// Is called if the pin keeps more than `bytes_max` bytes before `end`.
    fn give_way(&mut self, end: Lsn, bytes_max: u64) {
        let Some(geometry) = self.slides else {
            reached("log: a pin is broken");
            self.is_broken = true;
            return;
        };
        reached("log: a pin slides");
        let least = Lsn::new(end.get().saturating_sub(bytes_max));
        self.at = self.at.max(geometry.first_block(geometry.segment_of(least) + 1));
    }
}

/// All pins of a log.
#[derive(Default)]
pub(super) struct Pins {
    all: Mutex<Vec<Arc<Mutex<Pinned>>>>,
    /// The pin that waits for the archiver since the start.
    kept: Mutex<Option<Arc<Mutex<Pinned>>>>,
}

/// Keeps the log from a position on. Dropping the pin releases the log.
pub(crate) struct LogPin {
    log: Arc<Log>,
    pinned: Arc<Mutex<Pinned>>,
}

impl Pins {
    /// Returns the position up to which the log may be cut, at most `upto`. A pin that keeps more than
    /// `bytes_max` bytes before `end` breaks, or slides.
    pub(super) fn limit(&self, upto: Lsn, end: Lsn, bytes_max: u64) -> Lsn {
        let mut limit = upto;
        for pin in &*self.all.lock() {
            let mut pinned = pin.lock();
            if pinned.is_broken || pinned.at >= upto {
                continue;
            }
            if end.since(pinned.at) > bytes_max {
                pinned.give_way(end, bytes_max);
            }
            if !pinned.is_broken {
                limit = limit.min(pinned.at);
            }
        }
        limit
    }

    /// Pins the log at a block that exists, until the archiver takes this pin. The pin slides, because nobody
    /// knows yet how much of the log the archive lacks.
    pub(super) fn keep(&self, at: Lsn, geometry: Geometry) {
        let pinned = Arc::new(Mutex::new(Pinned { slides: Some(geometry), ..Pinned::fixed(at) }));
        self.all.lock().push(pinned.clone());
        *self.kept.lock() = Some(pinned);
    }
}

impl Log {
    /// Returns the first position that a pin keeps.
    pub(crate) fn pinned_from(&self) -> Option<Lsn> {
        let pins = self.pins.all.lock();
        pins.iter().map(|pin| pin.lock()).filter(|pinned| !pinned.is_broken).map(|pinned| pinned.at).min()
    }
}

impl LogPin {
    /// Takes the pin that waits since the start, if there is one.
    pub(crate) fn take_kept(log: &Arc<Log>) -> Option<LogPin> {
        let pinned = log.pins.kept.lock().take()?;
        Some(LogPin { log: log.clone(), pinned })
    }

    /// Pins the log at the first block that may not be durable. All earlier changes are in the pages of the
    /// buffer pool.
    pub(crate) fn new(log: &Arc<Log>) -> LogPin {
        let mut pins = log.pins.all.lock();
        // A cut takes its limit under the same lock, after it has flushed the log. So this position is not
        // before a cut that has happened.
        let pinned = Arc::new(Mutex::new(Pinned::fixed(log.durable_block())));
        pins.push(pinned.clone());
        drop(pins);
        LogPin { log: log.clone(), pinned }
    }

    /// Returns the pinned position: the start of a block.
    pub(crate) fn at(&self) -> Lsn {
        self.pinned.lock().at
    }

    /// Releases the log before `to`.
    pub(crate) fn advance(&self, to: Lsn) {
        let mut pinned = self.pinned.lock();
        pinned.at = pinned.at.max(to);
    }

    /// Ends the sliding of a pin that was kept since the start. Returns its position.
    pub(crate) fn hold(&self) -> Lsn {
        let mut pinned = self.pinned.lock();
        pinned.slides = None;
        pinned.at
    }

    /// Returns whether the log at the position may be gone.
    pub(crate) fn is_broken(&self) -> bool {
        self.pinned.lock().is_broken
    }
}

impl Drop for LogPin {
    fn drop(&mut self) {
        self.log.pins.all.lock().retain(|pin| !Arc::ptr_eq(pin, &self.pinned));
    }
}
