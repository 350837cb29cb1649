//! An emulated region of persistent memory: a region whose operations take as long as a profile says. The
//! caller waits in a loop without sleeping (spinning).
//!
//! Invariants
//! 1. The real operation is done first, then the latency of the profile is added. The time for the bandwidth
//!    counts from the beginning of the operation, so it includes the real duration.
//! 2. If a thread spun too long, it spins less the next time, by at most [`CREDIT_NS_MAX`].
//! 3. The processor's cache is modelled as a direct-mapped cache. A line stays in the model until another
//!    line takes its place, even if the real processor has evicted it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::Result;
use crate::nvm_profile::NvmProfile;
use crate::persist::Ticks;
use crate::region::{self, LINE_BYTES, Region, RegionFacts, RegionTally, WORD_BYTES};

/// The largest credit for spinning too long. A longer overshoot was caused by the scheduler, so it gives no
/// more credit.
const CREDIT_NS_MAX: f64 = 1_000.0;

thread_local! {
    /// How many ticks this thread has spun too long.
    static CREDIT: Cell<u64> = const { Cell::new(0) };
    /// Whether this thread wrote lines back since its last fence.
    static HAS_WRITTEN_BACK: Cell<bool> = const { Cell::new(false) };
}

/// A region with the latency and bandwidth of a profile.
pub struct EmulatedRegion {
    inner: Arc<dyn Region>,
    profile: NvmProfile,
    ticks: &'static Ticks,
    /// Ticks for each nanosecond of the profile.
    ticks_per_ns: f64,
    cache: Cache,
    /// The time at which the bus has transferred all bytes that were requested so far, in ticks.
    bus_free: AtomicU64,
}

impl EmulatedRegion {
    /// Makes `inner` as slow as `profile`, with its times multiplied by `dilation` (1 = none).
    pub fn wrap(inner: Arc<dyn Region>, profile: NvmProfile, dilation: f64) -> Arc<EmulatedRegion> {
        assert!(dilation.is_finite() && dilation > 0.0, "time dilation is a positive number");
        let ticks = Ticks::of_process();
        let cache = Cache::new(profile.cache_bytes);
        let ticks_per_ns = ticks.per_ns * dilation;
        Arc::new(EmulatedRegion { inner, profile, ticks, ticks_per_ns, cache, bus_free: AtomicU64::new(0) })
    }

    /// Adds lines to the bus from the time `begun` on, and returns the time at which they are transferred.
    fn bus(&self, begun: u64, lines: u64) -> u64 {
        if self.profile.bandwidth_bytes_per_s == 0.0 || lines == 0 {
            return begun;
        }
        let bytes = (lines * LINE_BYTES) as f64;
        let takes = (bytes * 1e9 / self.profile.bandwidth_bytes_per_s * self.ticks_per_ns) as u64;
        let through = |free: u64| free.max(begun) + takes;
        let before = self.bus_free.fetch_update(Relaxed, Relaxed, |free| Some(through(free)));
        through(before.unwrap_or_else(|unchanged| unchanged))
    }

    /// Spins for `extra_ns` from now, and until `through` at least.
    fn spin(&self, extra_ns: f64, through: u64) {
        let extra = (extra_ns * self.ticks_per_ns) as u64;
        let now = self.ticks.now();
        let until = (now + extra).max(through);
        if until <= now {
            return;
        }
        let until = until.saturating_sub(CREDIT.take());
        let mut at = self.ticks.now();
        while at < until {
            std::hint::spin_loop();
            at = self.ticks.now();
        }
        CREDIT.set((at - until).min((CREDIT_NS_MAX * self.ticks.per_ns) as u64));
    }

    /// Is called after a read that began at `begun`. Adds the time of the lines that are not in the modelled
    /// cache. Consecutive lines are charged together.
    fn charge_read(&self, begun: u64, offset: u64, len_bytes: usize) {
        if len_bytes == 0 || self.profile.reads_are_free() {
            return;
        }
        let (mut extra_ns, mut missed, mut run) = (0.0, 0, 0);
        let lines = region::lines(offset, len_bytes as u64);
        for line in lines.start..=lines.end {
            if line < lines.end && self.cache.misses(line) {
                run += 1;
            } else {
                extra_ns += self.profile.run_ns(run, self.profile.read_extra_ns);
                missed += run;
                run = 0;
            }
        }
        self.spin(extra_ns, self.bus(begun, missed));
    }

    /// Is called after a write-back that began at `begun`. Adds the time of its lines.
    fn charge_write_back(&self, begun: u64, offset: u64, len_bytes: u64) {
        if len_bytes > 0 {
            let lines = region::lines(offset, len_bytes);
            let count = lines.end - lines.start;
            HAS_WRITTEN_BACK.set(true);
            self.spin(self.profile.run_ns(count, self.profile.write_line_ns), self.bus(begun, count));
        }
    }

    fn note_stored(&self, offset: u64, len_bytes: usize) {
        if len_bytes > 0 && !self.profile.reads_are_free() {
            for line in region::lines(offset, len_bytes as u64) {
                self.cache.misses(line);
            }
        }
    }
}

impl NvmProfile {
    /// Returns whether reads take no extra time. Then the cache is not modelled.
    fn reads_are_free(&self) -> bool {
        self.read_extra_ns == 0.0 && self.bandwidth_bytes_per_s == 0.0
    }
}

impl Region for EmulatedRegion {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) {
        let begun = self.ticks.now();
        self.inner.read(offset, buf);
        self.charge_read(begun, offset, buf.len());
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        self.inner.store(offset, bytes);
        self.note_stored(offset, bytes.len());
    }

    fn write_back(&self, offset: u64, len_bytes: u64) {
        let begun = self.ticks.now();
        self.inner.write_back(offset, len_bytes);
        self.charge_write_back(begun, offset, len_bytes);
    }

    fn fence(&self) {
        self.inner.fence();
        if HAS_WRITTEN_BACK.take() {
            self.spin(self.profile.persist_extra_ns, 0);
        }
    }

    fn facts(&self) -> RegionFacts {
        RegionFacts {
            emulates: Some(self.profile.name.clone()),
            cell: self.profile.cell,
            ..self.inner.facts()
        }
    }

    fn tally(&self) -> RegionTally {
        self.inner.tally()
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }

    /// Takes the same time as a store and a write-back. The reason is that the profile has times for lines
    /// that reach the medium, no matter how they reach it.
    fn store_back(&self, offset: u64, bytes: &[u8]) {
        let begun = self.ticks.now();
        self.inner.store_back(offset, bytes);
        self.note_stored(offset, bytes.len());
        self.charge_write_back(begun, offset, bytes.len() as u64);
    }

    fn store_word(&self, offset: u64, value: u64) {
        self.inner.store_word(offset, value);
        self.note_stored(offset, WORD_BYTES);
    }

    fn load_word(&self, offset: u64) -> u64 {
        let begun = self.ticks.now();
        let value = self.inner.load_word(offset);
        self.charge_read(begun, offset, WORD_BYTES);
        value
    }
}

/// A direct-mapped cache. Each place has the number of its line plus one; 0 = no line.
struct Cache {
    tags: Box<[AtomicU64]>,
}

impl Cache {
    fn new(bytes: u64) -> Cache {
        Cache { tags: (0..bytes / LINE_BYTES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Puts a line into the cache. Returns whether it was not there before.
    fn misses(&self, line: u64) -> bool {
        let places = self.tags.len() as u64;
        let place = line.checked_rem(places).and_then(|at| self.tags.get(at as usize));
        place.is_none_or(|tag| tag.swap(line + 1, Relaxed) != line + 1)
    }
}
