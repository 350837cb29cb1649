//! Bounds the time of a start after a crash (`recovery_target`).
//!
//! ```text
//!   speed of the home, measured now and then --\
//!   speed of the last redo --------------------+--> seconds that redo would take --> limit of the log
//!   log from the redo position, dirty pages ---/
//! ```
//!
//! Redo reads the log, and it reads each page that is dirty now. The time for both is estimated. From it
//! follows how long the log may be. At this limit the pager does the same as in a full log: writers wait
//! until pages are written, and the redo position moves on.
//!
//! Invariants
//! 1. Without a target the log has no limit but its capacity.
//! 2. The limit is never below [`LIMIT_BYTES_MIN`]. It grows if a checkpoint logs so much that no writer gets
//!    on. So writers never wait for ever.
//!
//! This module does not know which threads wait for the log, or how pages are written.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::base::ids::PageId;
use crate::base::space_format::ExtentNo;
use crate::config::CheckpointConfig;
use crate::recovery::Recovery;
use crate::running::shared::Shared;

/// The smallest limit of the log. With a target that is too short for it, a start takes longer than the
/// target.
pub(crate) const LIMIT_BYTES_MIN: u64 = 1 << 20;
/// The part of the target that the estimate may use. The rest is for errors of the estimate, and for the start
/// of the process.
const USED_PART: f64 = 0.7;
/// The least part of the target for redo, however long the rest of a start takes.
const REDO_PART_MIN: f64 = 0.1;
/// The bytes of the log that a start analyses and redoes in a second, without reading pages. It holds until
/// a start has redone enough to say more.
const LOG_BYTES_PER_SECOND: f64 = 64e6;
/// The seconds for reading a page, until it was measured.
const PAGE_SECONDS: f64 = 100e-6;
/// A start says how fast redo is if it has redone this many bytes.
const TELLING_BYTES: u64 = 8 << 20;
/// How far the time of the last redo may change the estimate.
const SLOWNESS_MAX: f64 = 8.0;
/// The number of pages that one measurement of the data files reads. Redo reads the same number at once.
const SAMPLE_PAGES: usize = 64;
/// With fewer pages, a measurement says nothing.
const SAMPLE_PAGES_MIN: usize = 16;
/// The distance between pages of one extent that are measured.
const SAMPLE_STEP_PAGES: usize = 5;
/// The time between two measurements of the home.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(60);
/// The time after a measurement that has found too few pages.
const SAMPLE_RETRY: Duration = Duration::from_secs(5);
/// The time between two settings of the limit.
const ADJUST_INTERVAL: Duration = Duration::from_millis(20);
/// If less than this must be redone, the log has no limit.
const SHORT_BYTES: u64 = 256 << 10;

/// What a start after a crash would have to do now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RestartEstimate {
    /// The bytes of the log that would be redone.
    pub log_bytes: u64,
    /// The pages that redo would read.
    pub pages: u64,
    /// The time that this would take, with the other steps of a start.
    pub time: Duration,
    /// The target, `recovery_target`.
    pub target: Duration,
}

/// A redo that was long enough to say how fast redo is.
#[derive(Clone, Copy, Debug)]
struct LastRedo {
    seconds: f64,
    log_bytes: u64,
    /// The pages that it has changed.
    pages: u64,
}

/// How fast redo is.
#[derive(Clone, Copy, Debug)]
struct RedoSpeed {
    page_seconds: f64,
    last: Option<LastRedo>,
}

impl RedoSpeed {
    /// Returns the seconds that redo takes.
    fn seconds(&self, log_bytes: u64, pages: u64) -> f64 {
        let slowness = self.last.map_or(1.0, |last| {
            // A faster redo than expected changes nothing, because the next one may meet other pages.
            (last.seconds / self.expected(last.log_bytes, last.pages)).clamp(1.0, SLOWNESS_MAX)
        });
        slowness * self.expected(log_bytes, pages)
    }

    /// Returns the seconds that follow from the speeds of the log and of the home.
    fn expected(&self, log_bytes: u64, pages: u64) -> f64 {
        log_bytes as f64 / LOG_BYTES_PER_SECOND + pages as f64 * self.page_seconds
    }

    /// Returns the log length at which redo takes `budget` seconds, if the next changes are like those in
    /// the log now.
    fn limit_bytes(&self, log_bytes: u64, pages: u64, budget: f64) -> u64 {
        if log_bytes < SHORT_BYTES {
            return u64::MAX;
        }
        (log_bytes as f64 * budget / self.seconds(log_bytes, pages)) as u64
    }
}

/// The state between two settings of the limit.
struct State {
    speed: RedoSpeed,
    /// The seconds that the last start took before redo.
    before_redo: f64,
    /// When the home is measured next.
    sample_at: Instant,
    adjusted: Option<Instant>,
    /// The extent after the last sampled page.
    next: ExtentNo,
    /// The smallest limit. It grows if the log is at its limit, and a checkpoint did not help.
    floor_bytes: u64,
    /// The numbers of changes and of checkpoints at the last setting.
    seen: (u64, u64),
}

/// The bound of the time of a start.
pub(crate) struct RestartBound {
    target: Option<Duration>,
    state: Mutex<State>,
}

impl RestartBound {
    /// Begins with what this start has measured. `pages` is the number of pages that its redo has changed.
    pub(crate) fn new(config: &CheckpointConfig, recovery: Option<Recovery>, pages: u64) -> RestartBound {
        let is_long = |recovery: &Recovery| recovery.redo.log_bytes >= TELLING_BYTES;
        let before_redo = recovery.map_or(0.0, |recovery| {
            // A short analysis finds the end of the log, which takes as long for any log.
            let analysis = if is_long(&recovery) { Duration::ZERO } else { recovery.analysis_time };
            (recovery.levels_time + analysis).as_secs_f64()
        });
        let last = recovery.filter(is_long).map(|recovery| {
            let seconds = (recovery.analysis_time + recovery.redo_time).as_secs_f64();
            LastRedo { seconds, log_bytes: recovery.redo.log_bytes, pages }
        });
        let state = State {
            speed: RedoSpeed { page_seconds: PAGE_SECONDS, last },
            before_redo,
            sample_at: Instant::now(),
            adjusted: None,
            next: 0,
            floor_bytes: LIMIT_BYTES_MIN,
            seen: (0, 0),
        };
        RestartBound { target: config.recovery_target, state: Mutex::new(state) }
    }
}

impl Shared {
    /// Sets the limit of the log so that redo stays within the target. Measures the home now and then. The
    /// producer of page writes calls this in each of its rounds.
    pub(crate) fn bound_restart(&self) {
        let Some(target) = self.restart_bound.target else { return };
        let target = target.as_secs_f64();
        self.sample_home();
        let mut state = self.restart_bound.state.lock();
        if state.adjusted.is_some_and(|when| when.elapsed() < ADJUST_INTERVAL) {
            return;
        }
        let seen = (self.log.changes_count(), self.counters.checkpoints.load(Relaxed));
        let is_full = self.log.is_full();
        match is_full && seen.0 == state.seen.0 && seen.1 > state.seen.1 {
            // The checkpoint itself has logged as much as the limit allows, so no writer would get on.
            true => state.floor_bytes = state.floor_bytes.saturating_mul(2),
            false if !is_full => state.floor_bytes = LIMIT_BYTES_MIN,
            false => {}
        }
        state.seen = seen;
        let budget = (target * USED_PART - state.before_redo).max(target * REDO_PART_MIN);
        let (log_bytes, pages) = self.to_redo();
        let limit_bytes = state.speed.limit_bytes(log_bytes, pages, budget);
        self.log.set_limit(limit_bytes.max(state.floor_bytes));
        state.adjusted = Some(Instant::now());
    }

    /// Returns what a start after a crash would have to do now, if there is a target.
    pub(crate) fn restart_estimate(&self) -> Option<RestartEstimate> {
        let target = self.restart_bound.target?;
        let (log_bytes, pages) = self.to_redo();
        let state = self.restart_bound.state.lock();
        let time = Duration::from_secs_f64(state.before_redo + state.speed.seconds(log_bytes, pages));
        Some(RestartEstimate { log_bytes, pages, time, target })
    }

    /// Returns the bytes of the log, and the pages, that would be redone now.
    fn to_redo(&self) -> (u64, u64) {
        (self.log.bytes_to_redo(), self.ledger.pages_count() as u64)
    }

    /// Measures the home if it is time for it, and no writer waits for this thread. The lock is not held
    /// while pages are read.
    fn sample_home(&self) {
        let mut state = self.restart_bound.state.lock();
        if Instant::now() < state.sample_at || self.pool.is_tight() || self.log.is_full() {
            return;
        }
        let mut next = state.next;
        drop(state);
        let seconds = self.sample_pages(&mut next);
        state = self.restart_bound.state.lock();
        state.next = next;
        state.speed.page_seconds = seconds.unwrap_or(state.speed.page_seconds);
        let pause = if seconds.is_some() { SAMPLE_INTERVAL } else { SAMPLE_RETRY };
        state.sample_at = Instant::now() + pause;
    }

    /// Reads pages that are not in the pool, all at once, as redo does. Returns the seconds for each, or
    /// `None` if there were too few such pages.
    fn sample_pages(&self, next: &mut ExtentNo) -> Option<f64> {
        let ids = self.pages_to_sample(next);
        let began = Instant::now();
        self.pool.prefetch(&ids);
        let took = began.elapsed();
        let read = ids.iter().filter(|id| self.pool.is_resident(**id)).count();
        (read >= SAMPLE_PAGES_MIN).then(|| took.as_secs_f64() / read as f64)
    }

    /// Returns pages that are in use and not in the pool. They are far from each other, as those of random
    /// changes are.
    fn pages_to_sample(&self, next: &mut ExtentNo) -> Vec<PageId> {
        let mut ids = Vec::new();
        let lengths = self.spaces.lengths().into_iter();
        let Some((space, pages)) = lengths.max_by_key(|(_, pages)| *pages) else { return ids };
        while let Some((geometry, extent)) = self.spaces.extent_to_copy(space, *next) {
            let extents = pages / geometry.extent_pages;
            let of_each = 1 + SAMPLE_PAGES / (1 + extents as usize);
            let entry = self.spaces.entry(geometry, extent);
            let used = entry.iter().flat_map(|entry| entry.used.iter()).step_by(SAMPLE_STEP_PAGES);
            let used = used.map(|within| geometry.page_of(extent, within));
            ids.extend(used.filter(|id| !self.pool.is_resident(*id)).take(of_each));
            *next = extent + 1 + extents / SAMPLE_PAGES as ExtentNo;
            if ids.len() >= SAMPLE_PAGES {
                return ids;
            }
        }
        *next = 0;
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_keeps_redo_within_the_budget() {
        let speed = RedoSpeed { page_seconds: 0.01, last: None };
        // 64 MB of log take 1 s, and 100 pages take 1 s, too.
        assert!((speed.seconds(64_000_000, 100) - 2.0).abs() < 1e-9);
        assert_eq!(speed.limit_bytes(64_000_000, 100, 0.5), 16_000_000);
        assert_eq!(speed.limit_bytes(64_000_000, 0, 0.5), 32_000_000);
        assert_eq!(speed.limit_bytes(1000, 10, 0.001), u64::MAX, "there is nothing to bound yet");
    }

    #[test]
    fn a_slower_redo_than_expected_is_remembered() {
        let slowness = |seconds, page_seconds| {
            let last = Some(LastRedo { seconds, log_bytes: 64_000_000, pages: 1000 });
            let speed = RedoSpeed { page_seconds, last };
            speed.seconds(64_000_000, 0)
        };
        assert!((slowness(6.0, 0.001) - 3.0).abs() < 1e-9);
        assert!((slowness(6.0, 0.005) - 1.0).abs() < 1e-9, "the measured home explains it");
        assert!((slowness(1.0, 0.001) - 1.0).abs() < 1e-9);
        assert!((slowness(100.0, 0.001) - SLOWNESS_MAX).abs() < 1e-9);
    }
}
