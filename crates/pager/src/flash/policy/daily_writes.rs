//! The daily limit of bytes that the flash cache writes to its drive. A token bucket keeps the limit.
//!
//! Invariants
//! 1. Every write to the drive takes its bytes from the bucket. Records of slots are written even if the
//!    bucket is empty, so its level may become negative. Then no page is admitted until the level is positive
//!    again.
//! 2. The bucket holds a twenty-fifth of a day's bytes, and the same number of bytes is added each hour. So
//!    within any 24 hours the cache admits no more than a day's bytes, plus the writes that were in progress
//!    when the bucket became empty.
//! 3. Records may take a tenth of the bytes that are added, or half of them while the redo position waits for
//!    the records. The rest is always left for admitted pages.
//!
//! This module does not know what is written, or what happens to pages that are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A clock: it returns the time since some fixed moment.
pub(crate) type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

const UNLIMITED: u64 = 0;
const HOUR_SECONDS: f64 = 3600.0;
/// The number of parts of a day's bytes: one for each hour, and one that has been saved.
const PARTS: f64 = 25.0;
/// The part of the added bytes that records may take, and the part while a thread waits for the records.
const RECORDS_SHARE: f64 = 0.1;
const AWAITED_SHARE: f64 = 0.5;

/// Returns the real clock, which starts at zero now.
pub(crate) fn running() -> Clock {
    let began = Instant::now();
    Arc::new(move || began.elapsed())
}

#[derive(Default)]
struct Bucket {
    /// Bytes in the bucket. Below zero, more was written than allowed.
    bytes: f64,
    /// When bytes were last added.
    at: Duration,
    /// The bytes of the records that were written, minus the share of records in the bytes that were added
    /// until then.
    owed: f64,
    owed_at: Duration,
}

/// The daily limit with its bucket.
pub(in crate::flash) struct Budget {
    /// Bytes a day.
    daily: AtomicU64,
    bucket: Mutex<Bucket>,
    clock: Clock,
}

impl Budget {
    /// Begins with a full bucket. `None` means that there is no limit.
    pub(in crate::flash) fn new(daily: Option<u64>, clock: Clock) -> Budget {
        let budget = Budget { daily: AtomicU64::new(UNLIMITED), bucket: Mutex::default(), clock };
        budget.set(daily);
        budget
    }

    /// Sets the bytes of a day. Bytes that were saved are kept, as far as the new bucket holds them. If there
    /// was no limit before, the bucket is full.
    pub(in crate::flash) fn set(&self, daily: Option<u64>) {
        let mut bucket = self.bucket.lock();
        let before = self.daily.swap(daily.unwrap_or(UNLIMITED), Relaxed);
        if before == UNLIMITED {
            let now = (self.clock)();
            *bucket = Bucket { bytes: f64::MAX, at: now, owed: 0.0, owed_at: now };
        }
        self.accrue(&mut bucket);
    }

    /// Returns the limit in bytes a day, if there is one.
    fn daily(&self) -> Option<u64> {
        Some(self.daily.load(Relaxed)).filter(|daily| *daily != UNLIMITED)
    }

    fn accrue(&self, bucket: &mut Bucket) {
        let hourly = self.daily.load(Relaxed) as f64 / PARTS;
        let now = (self.clock)();
        let hours = now.saturating_sub(bucket.at).as_secs_f64() / HOUR_SECONDS;
        bucket.bytes = (bucket.bytes + hours * hourly).min(hourly);
        bucket.at = now;
    }

    /// Returns whether a page may be admitted.
    pub(in crate::flash) fn allows(&self) -> bool {
        if self.daily().is_none() {
            return true;
        }
        let mut bucket = self.bucket.lock();
        self.accrue(&mut bucket);
        bucket.bytes > 0.0
    }

    /// Returns whether more records may be written. `is_awaited` means that the redo position waits for them.
    pub(in crate::flash) fn allows_records(&self, is_awaited: bool) -> bool {
        let Some(daily) = self.daily() else { return true };
        let mut bucket = self.bucket.lock();
        let now = (self.clock)();
        let hours = now.saturating_sub(bucket.owed_at).as_secs_f64() / HOUR_SECONDS;
        let share = if is_awaited { AWAITED_SHARE } else { RECORDS_SHARE };
        bucket.owed = (bucket.owed - hours * share * daily as f64 / PARTS).max(0.0);
        bucket.owed_at = now;
        bucket.owed <= 0.0
    }

    /// Counts `bytes` bytes that are being written as bytes of records.
    pub(in crate::flash) fn owe(&self, bytes: u64) {
        if self.daily().is_some() {
            self.bucket.lock().owed += bytes as f64;
        }
    }

    /// Takes `bytes` bytes from the bucket, because they are being written.
    pub(in crate::flash) fn spend(&self, bytes: u64) {
        if self.daily().is_some() {
            let mut bucket = self.bucket.lock();
            self.accrue(&mut bucket);
            bucket.bytes -= bytes as f64;
        }
    }
}

/// A clock that a test moves on.
#[cfg(test)]
#[derive(Default)]
pub(in crate::flash) struct Hands(
    /// Microseconds.
    AtomicU64,
);

#[cfg(test)]
impl Hands {
    pub(in crate::flash) fn clock(self: &Arc<Self>) -> Clock {
        let hands = self.clone();
        Arc::new(move || Duration::from_micros(hands.0.load(Relaxed)))
    }

    pub(in crate::flash) fn pass(&self, seconds: u64) {
        self.pass_us(seconds * 1_000_000);
    }

    pub(in crate::flash) fn pass_us(&self, us: u64) {
        self.0.fetch_add(us, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;

    #[test]
    fn no_day_has_more_than_its_bytes() {
        let hands = Arc::new(Hands::default());
        let budget = Budget::new(Some(25_000), hands.clock());
        let mut written = [0_u64; 100];
        for in_hour in &mut written {
            hands.pass(HOUR);
            while budget.allows() {
                budget.spend(100);
                *in_hour += 100;
            }
        }
        assert_eq!(written, [1000; 100]);
        assert!(written.windows(24).all(|day| day.iter().sum::<u64>() <= 25_000));
    }

    #[test]
    fn an_hour_is_saved_and_no_more() {
        let hands = Arc::new(Hands::default());
        let budget = Budget::new(Some(25_000), hands.clock());
        hands.pass(50 * HOUR);
        budget.spend(999);
        assert!(budget.allows());
        budget.spend(2001);
        hands.pass(2 * HOUR);
        assert!(!budget.allows(), "what was overdrawn is made up for first");
        hands.pass(4);
        assert!(budget.allows());
    }

    #[test]
    fn another_limit_keeps_what_was_saved() {
        let hands = Arc::new(Hands::default());
        let budget = Budget::new(None, hands.clock());
        budget.spend(u64::MAX);
        assert!(budget.allows() && budget.daily().is_none());
        budget.set(Some(25_000));
        budget.spend(900);
        budget.set(Some(250_000));
        budget.spend(99);
        assert!(budget.allows());
        budget.spend(1);
        assert!(!budget.allows());
        budget.set(None);
        assert!(budget.allows());
        budget.set(Some(1));
        assert!(budget.allows(), "it begins full");
    }
}
