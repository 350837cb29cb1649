//! Warms up a database before a measurement. Emulated drives have no delays meanwhile, so the warm-up runs as
//! fast as the machine can.
//!
//! On the drives of Do 2012 a flash cache needs hours to fill. All variants of a comparison are warmed up by
//! the same number of transactions, even the variant without a cache. So all buffer pools are equally warm,
//! and all tables have grown by the same amount.
//!
//! 1. A flash cache is steady when it is full, or when its hit rate stops rising. The result row says whether
//!    the cache was steady.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use varve_engine::Database;

use super::stand::{OpenStand, levels};
use varve_bench::Result;
use varve_bench::database::MeasuredDatabase;
use varve_bench::driver::{self, Plan};
use varve_bench::workload::Workload;

/// A warm-up runs in slices of this length. After each slice, the transactions and the hits are counted.
const SLICE: Duration = Duration::from_millis(250);
/// The seeds of warm-up slices begin here, so that they differ from the seeds of rounds.
const SEEDS: u64 = 1 << 20;
/// The most slices of a warm-up.
const SLICES_MAX: u64 = 2_400;
/// A cache is full if at least this percentage of its slots is allocated (Do 2012, section 3.3.3).
const FULL_PERCENT: f64 = 95.0;
/// The hit rate has stopped rising if it is at most this much above the hit rate of the quarter before.
const FLAT: f64 = 0.02;

/// How full a flash cache is, in percent of its slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct CacheState {
    /// Slots that aren't free, in percent.
    pub filled_percent: f64,
    /// Slots with a page version that the data files lack, in percent.
    pub dirty_percent: f64,
    /// Slots whose page has changed in memory since it was written to the slot, in percent.
    pub invalid_percent: f64,
}

impl CacheState {
    /// Returns the state of a database's flash cache, if the database has one.
    pub fn of(database: &Database) -> Option<Self> {
        let levels = levels(database);
        let of = |name: &str| levels.get(name).copied().map(|count| count as f64);
        let percent = |name: &str| Some(100.0 * of(name)? / of("flash.frames")?.max(1.0));
        Some(Self {
            filled_percent: 100.0 - percent("flash.free")?,
            dirty_percent: percent("flash.dirty")?,
            invalid_percent: percent("flash.invalid")?,
        })
    }
}

/// The reads that a flash cache answered, and those that it could not answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct CacheReads {
    hits: u64,
    misses: u64,
}

impl CacheReads {
    /// Returns the reads since the database was opened. Both counts are 0 if it has no cache.
    pub fn of(database: &Database) -> Self {
        Self::among(&levels(database))
    }

    fn among(levels: &BTreeMap<String, u64>) -> Self {
        let of = |name: &str| levels.get(name).copied().unwrap_or(0);
        Self { hits: of("flash.read_hits"), misses: of("flash.read_misses") }
    }

    /// Returns the reads after an earlier moment.
    pub fn since(self, before: Self) -> Self {
        Self { hits: self.hits - before.hits, misses: self.misses - before.misses }
    }

    /// Returns the share of the reads that the cache answered. It is `None` if there were no reads.
    pub fn hit_rate(self) -> Option<f64> {
        let all = self.hits + self.misses;
        (all > 0).then(|| self.hits as f64 / all as f64)
    }
}

/// The results of a warm-up.
#[derive(Debug, Clone, Serialize)]
pub struct Warmth {
    /// The number of transactions.
    pub transactions: u64,
    /// Seconds by wall time.
    pub seconds: f64,
    /// The state of the cache after the warm-up.
    pub cache: Option<CacheState>,
    /// The hit rate of the cache in each quarter of the warm-up.
    pub hit_rates: Vec<f64>,
    /// Whether the cache was full, or its hit rate had stopped rising. It is true if there is no cache.
    pub is_steady: bool,
}

/// Warms a database up: runs slices of the load until this many transactions are done. `number` determines
/// the requests.
pub fn up(
    opened: &OpenStand,
    target: &dyn MeasuredDatabase,
    workload: &dyn Workload,
    plan: Plan,
    transactions: u64,
    number: u64,
) -> Result<Warmth> {
    let began = Instant::now();
    let mut seen = vec![(0, CacheReads::of(&opened.database))];
    for slice in 0..SLICES_MAX {
        let done = seen.last().map_or(0, |(done, _)| *done);
        if done >= transactions {
            break;
        }
        let seed = SEEDS * number + slice + SEEDS;
        let round = driver::round(target, workload, plan, SLICE, seed)?;
        seen.push((done + round.transactions, CacheReads::of(&opened.database)));
    }
    let cache = CacheState::of(&opened.database);
    let hit_rates = quarters(&seen);
    let is_flat = match hit_rates.as_slice() {
        [.., third, fourth] => fourth - third <= FLAT,
        _ => false,
    };
    let is_steady = cache.is_none_or(|cache| cache.filled_percent >= FULL_PERCENT || is_flat);
    let transactions = seen.last().map_or(0, |(done, _)| *done);
    Ok(Warmth { transactions, seconds: began.elapsed().as_secs_f64(), cache, hit_rates, is_steady })
}

/// Returns the hit rates of the four quarters of a warm-up. Quarters without reads are left out.
fn quarters(seen: &[(u64, CacheReads)]) -> Vec<f64> {
    let slices = seen.len().saturating_sub(1);
    let at = |quarter: usize| seen.get(slices * quarter / 4).map(|(_, asked)| *asked);
    (0..4).filter_map(|quarter| at(quarter + 1)?.since(at(quarter)?).hit_rate()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarters_of_a_warm_up_tell_whether_hits_still_rise() {
        let seen: Vec<(u64, CacheReads)> = [(0, 0), (0, 100), (20, 180), (70, 230), (120, 280)]
            .map(|(hits, misses)| (0, CacheReads { hits, misses }))
            .into();
        assert_eq!(quarters(&seen), [0.0, 0.2, 0.5, 0.5]);
        assert!(quarters(&seen[..1]).is_empty());
        assert_eq!(CacheReads::default().hit_rate(), None);
    }
}
