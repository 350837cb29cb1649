//! A region that takes samples. They show in which functions of an engine the time passes, or another amount
//! grows.
//!
//! Engines reach their data only by calls on the region. A sample measures an interval: from the end of one
//! call to the end of the next one. It has the amount by which the meter grew, and the functions that made
//! the second call (a stack). So the amount includes the second call, and the engine's work since the first
//! call. Each call is sampled with the same probability. So the amounts of the samples are in proportion to
//! the amounts of all calls.
//!
//! Invariants
//! 1. A stack is taken after the interval to which it belongs. Intervals shortly after a stack are not
//!    sampled, because taking the stack has displaced other data from the processor's caches.
//! 2. Every call is passed to the region below without a change.
//!
//! This module does not know which functions belong to which part of an engine (`parts.rs`).

use std::backtrace::Backtrace;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use varve_bench::random::Random;
use varve_device::{Region, RegionFacts, RegionTally};

/// The number of calls after a stack that are not sampled.
const CALLS_DISTURBED: u64 = 16;
/// How often the cost of reading a meter is measured. The median counts.
const METER_READS: usize = 101;

/// A function that reads an amount which only grows, such as nanoseconds or bytes.
pub type Meter = Box<dyn Fn() -> f64 + Send + Sync>;

/// The interval between the ends of two calls.
pub struct Sample {
    /// The functions that made the second call. It is `None` for the interval between two transactions.
    pub stack: Option<Backtrace>,
    /// How much the meter grew in the interval, without the cost of reading the meter.
    pub amount: f64,
}

/// A region that takes samples. One worker uses it.
pub struct SampledRegion {
    inner: Arc<dyn Region>,
    meter: Meter,
    meter_cost: f64,
    /// The number of calls until the end of the next sample. The sample begins after the last call but one.
    left: AtomicU64,
    state: Mutex<Sampling>,
}

struct Sampling {
    samples: Vec<Sample>,
    samples_max: usize,
    begun: f64,
    /// The mean number of calls between two samples.
    distance: u64,
    random: Random,
}

impl SampledRegion {
    /// Wraps a region. Samples are not taken yet.
    pub fn wrap(inner: Arc<dyn Region>, meter: Meter) -> Arc<Self> {
        let mut costs: Vec<f64> = (0..METER_READS).map(|_| -meter() + meter()).collect();
        costs.sort_unstable_by(f64::total_cmp);
        let meter_cost = costs.get(METER_READS / 2).copied().unwrap_or_default();
        let random = Random::seeded(1);
        let state = Sampling { samples: Vec::new(), samples_max: 0, begun: 0.0, distance: 1, random };
        Arc::new(Self { inner, meter, meter_cost, left: AtomicU64::new(u64::MAX), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, Sampling> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the amount that the meter shows.
    pub fn amount(&self) -> f64 {
        (self.meter)()
    }

    /// Begins to count calls, without samples.
    pub fn begin_counting(&self) {
        self.left.store(u64::MAX, Relaxed);
    }

    /// Returns the number of calls since [`SampledRegion::begin_counting`].
    pub fn calls(&self) -> u64 {
        u64::MAX - self.left.load(Relaxed)
    }

    /// Begins to take samples, at most `samples_max` of them. On average, one call in `distance` is sampled.
    pub fn begin(&self, samples_max: usize, distance: u64) {
        let mut state = self.state();
        (state.samples_max, state.distance) = (samples_max, distance.max(1));
        self.left.store(state.next_distance(), Relaxed);
    }

    /// Stops taking samples, and returns them.
    pub fn end(&self) -> Vec<Sample> {
        self.left.store(u64::MAX, Relaxed);
        std::mem::take(&mut self.state().samples)
    }

    /// Ends an interval that belongs to no call, such as the interval between two transactions.
    pub fn between(&self) {
        self.count(false);
    }

    #[inline]
    fn count(&self, is_call: bool) {
        let left = self.left.load(Relaxed);
        self.left.store(left.wrapping_sub(1), Relaxed);
        if left <= 1 {
            self.sample(left == 1, is_call);
        }
    }

    #[cold]
    fn sample(&self, begins: bool, is_call: bool) {
        let now = (self.meter)();
        let mut state = self.state();
        if begins {
            // The meter is read again, so that the time for the lock is not in the interval.
            state.begun = (self.meter)();
            return;
        }
        let amount = (now - state.begun - self.meter_cost).max(0.0);
        let stack = is_call.then(Backtrace::force_capture);
        state.samples.push(Sample { stack, amount });
        let is_last = state.samples.len() >= state.samples_max;
        let left = if is_last { u64::MAX } else { state.next_distance() };
        self.left.store(left, Relaxed);
    }
}

impl Sampling {
    fn next_distance(&mut self) -> u64 {
        CALLS_DISTURBED + self.random.below(2 * self.distance)
    }
}

impl Region for SampledRegion {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) {
        self.inner.read(offset, buf);
        self.count(true);
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        self.inner.store(offset, bytes);
        self.count(true);
    }

    fn write_back(&self, offset: u64, len_bytes: u64) {
        self.inner.write_back(offset, len_bytes);
        self.count(true);
    }

    fn fence(&self) {
        self.inner.fence();
        self.count(true);
    }

    fn facts(&self) -> RegionFacts {
        self.inner.facts()
    }

    fn tally(&self) -> RegionTally {
        self.inner.tally()
    }

    fn settle(&self) -> varve_device::Result<()> {
        self.inner.settle()
    }

    fn store_word(&self, offset: u64, value: u64) {
        self.inner.store_word(offset, value);
        self.count(true);
    }

    fn load_word(&self, offset: u64) -> u64 {
        let value = self.inner.load_word(offset);
        self.count(true);
        value
    }

    fn store_back(&self, offset: u64, bytes: &[u8]) {
        self.inner.store_back(offset, bytes);
        self.count(true);
    }

    fn prefetch(&self, offset: u64, len_bytes: u64) {
        self.inner.prefetch(offset, len_bytes);
    }
}

#[cfg(test)]
mod tests {
    use varve_device::{Directory, MemoryDirectory};

    use super::*;

    /// One call in ten stores 91 bytes, and the others store one byte each. So 91 of 100 bytes are from the
    /// large calls.
    #[test]
    fn amounts_are_in_proportion_to_those_of_all_calls() {
        let region = MemoryDirectory::new().map("region", 4096).expect("a region");
        let below = Arc::clone(&region);
        let sampled = SampledRegion::wrap(region, Box::new(move || below.tally().stored_bytes as f64));
        sampled.begin(10_000, 7);
        let mut calls = 0;
        while sampled.state().samples.len() < 10_000 {
            sampled.store(0, if calls % 10 == 0 { &[1; 91] } else { &[1] });
            calls += 1;
        }
        let samples = sampled.end();
        let large: f64 =
            samples.iter().filter(|sample| sample.amount > 1.0).map(|sample| sample.amount).sum();
        let all: f64 = samples.iter().map(|sample| sample.amount).sum();
        assert!((large / all - 0.91).abs() < 0.02, "{large} of {all}");
        let stack = samples[0].stack.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(stack.contains("amounts_are_in_proportion"), "{stack}");
    }

    #[test]
    fn the_time_between_transactions_has_no_stack() {
        let region = MemoryDirectory::new().map("region", 4096).expect("a region");
        let sampled = SampledRegion::wrap(region, Box::new(|| 0.0));
        sampled.begin(100, 1);
        for _ in 0..10_000 {
            sampled.store(0, &[1]);
            sampled.between();
        }
        let samples = sampled.end();
        let between = samples.iter().filter(|sample| sample.stack.is_none()).count();
        assert_eq!(samples.len(), 100);
        assert!((20..80).contains(&between), "{between}");
    }
}
