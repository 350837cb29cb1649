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
//! 2. The limit is never below [`LIMIT_BYTES_MIN`], so that writers always get on.
//!
//! This module does not know who waits for the log, or how pages are written.

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
/// The pages of a measurement of the home. Redo also reads so many at once.
const SAMPLE_PAGES: usize = 64;
/// With fewer pages, a measurement says nothing.
const SAMPLE_PAGES_MIN: u64 = 16;
/// The distance between pages of one extent that are measured.
const SAMPLE_STEP_PAGES: usize = 5;
/// The time between two measurements of the home.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(60);
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

/// How fast redo is.
#[derive(Clone, Copy, Debug)]
struct RedoSpeed {
    log_bytes_per_second: f64,
    page_seconds: f64,
    /// The time that the last redo took, in proportion to the estimate of the two speeds.
    slowness: f64,
}

impl RedoSpeed {
    const UNKNOWN: RedoSpeed =
        RedoSpeed { log_bytes_per_second: LOG_BYTES_PER_SECOND, page_seconds: PAGE_SECONDS, slowness: 1.0 };

    fn seconds(&self, log_bytes: u64, pages: u64) -> f64 {
        let log_seconds = log_bytes as f64 / self.log_bytes_per_second;
        self.slowness * (log_seconds + pages as f64 * self.page_seconds)
    }

    /// Compares a redo with the estimate for it. A faster one changes nothing, because the next one may meet
    /// other pages.
    fn learn(&mut self, redo: Duration, log_bytes: u64, pages: u64) {
        let expected = self.seconds(log_bytes, pages);
        if log_bytes >= TELLING_BYTES && expected > 0.0 {
            self.slowness = (redo.as_secs_f64() / expected).clamp(1.0, SLOWNESS_MAX);
        }
    }

    /// Returns the log length at which redo takes `budget` seconds, if the next changes are like those in
    /// the log now.
    fn limit_bytes(&self, log_bytes: u64, pages: u64, budget: f64) -> u64 {
        if log_bytes < SHORT_BYTES {
            return u64::MAX;
        }
        let limit = log_bytes as f64 * budget / self.seconds(log_bytes, pages);
        (limit as u64).max(LIMIT_BYTES_MIN)
    }
}

/// The state between two settings of the limit.
struct State {
    speed: RedoSpeed,
    /// The seconds that the last start took before redo.
    before_redo: f64,
    sampled: Option<Instant>,
    adjusted: Option<Instant>,
    /// The extent after the last sampled page.
    next: ExtentNo,
}

/// The bound of the time of a start.
pub(crate) struct RestartBound {
    target: Option<Duration>,
    state: Mutex<State>,
}

impl RestartBound {
    /// Begins with what this start has measured. `pages` is the number of pages that its redo has changed.
    pub(crate) fn new(config: &CheckpointConfig, recovery: Option<Recovery>, pages: u64) -> RestartBound {
        let mut speed = RedoSpeed::UNKNOWN;
        let before_redo = recovery.map_or(0.0, |recovery| recovery.levels_time.as_secs_f64());
        if let Some(Recovery { redo, analysis_time, redo_time, .. }) = recovery {
            speed.learn(analysis_time + redo_time, redo.log_bytes, pages);
        }
        let state = State { speed, before_redo, sampled: None, adjusted: None, next: 0 };
        RestartBound { target: config.recovery_target, state: Mutex::new(state) }
    }
}

impl Shared {
    /// Sets the limit of the log so that redo stays within the target. Measures the home now and then. The
    /// producer of page writes calls this in each of its rounds.
    pub(crate) fn bound_restart(&self) {
        let Some(target) = self.restart_bound.target else { return };
        let mut state = self.restart_bound.state.lock();
        if state.adjusted.is_some_and(|when| when.elapsed() < ADJUST_INTERVAL) {
            return;
        }
        if state.sampled.is_none_or(|when| when.elapsed() >= SAMPLE_INTERVAL) {
            if let Some(seconds) = self.sample_pages(&mut state.next) {
                state.speed.page_seconds = seconds;
            }
            state.sampled = Some(Instant::now());
        }
        let target = target.as_secs_f64();
        let budget = (target * USED_PART - state.before_redo).max(target * REDO_PART_MIN);
        let (log_bytes, pages) = self.to_redo();
        self.log.set_limit(state.speed.limit_bytes(log_bytes, pages, budget));
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

    /// Reads pages that are not in the pool, all at once, as redo does. Returns the seconds for each, or
    /// `None` if there were too few such pages.
    fn sample_pages(&self, next: &mut ExtentNo) -> Option<f64> {
        let ids = self.pages_to_sample(next);
        let before = self.counters.prefetched.load(Relaxed);
        let began = Instant::now();
        self.pool.prefetch(&ids);
        let read = self.counters.prefetched.load(Relaxed) - before;
        (read >= SAMPLE_PAGES_MIN).then(|| began.elapsed().as_secs_f64() / read as f64)
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
        let speed = RedoSpeed { log_bytes_per_second: 1e6, page_seconds: 0.01, slowness: 1.0 };
        // 10 MB of log take 10 s, and 1,000 pages take 10 s, too.
        assert!((speed.seconds(10_000_000, 1000) - 20.0).abs() < 1e-9);
        assert_eq!(speed.limit_bytes(10_000_000, 1000, 5.0), 2_500_000);
        assert_eq!(speed.limit_bytes(10_000_000, 0, 5.0), 5_000_000);
        assert_eq!(speed.limit_bytes(10_000_000, 1000, 0.001), LIMIT_BYTES_MIN);
        assert_eq!(speed.limit_bytes(1000, 10, 0.001), u64::MAX, "there is nothing to bound yet");
    }

    #[test]
    fn a_slower_redo_than_expected_is_remembered() {
        let mut speed = RedoSpeed { log_bytes_per_second: 1e7, page_seconds: 0.001, slowness: 1.0 };
        // The estimate is 2 s.
        speed.learn(Duration::from_secs(6), 10_000_000, 1000);
        assert!((speed.slowness - 3.0).abs() < 1e-9);
        let mut speed = RedoSpeed { slowness: 1.0, ..speed };
        speed.learn(Duration::from_secs(1), 10_000_000, 1000);
        assert!((speed.slowness - 1.0).abs() < 1e-9);
        speed.learn(Duration::from_secs(100), 1000, 1000);
        assert!((speed.slowness - 1.0).abs() < 1e-9, "too little was redone");
    }
}
