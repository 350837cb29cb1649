//! Splits the time of a load by the parts of an engine, with samples.
//!
//! 1. The first tenth of the transactions is not sampled. Its calls are counted, so that the samples can be
//!    spread evenly over the other transactions.
//! 2. An interval in which another process ran is left out, because it says nothing about the engine.
//!
//! This module does not know published values.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use varve_bench::Result;
use varve_device::{CacheCounts, CachedRegion, Region};
use varve_memory::Store;

use super::bed::Bed;
use super::driver;
use super::engines::{Engine, StoreSettings};
use super::load::{Ending, PartitionLoad, Worker, refused};
use super::partition::Partition;
use super::parts::Part;
use super::sampled::{Meter, Sample, SampledRegion};

/// The number of samples of a run: at most 2,000, and at most one for 4 transactions.
const SAMPLES: u64 = 2_000;
const TRANSACTIONS_OF_SAMPLE: u64 = 4;
/// The number of transactions, divided by this, is the number that is not sampled: the first tenth.
const TENTHS: usize = 10;
/// The longest time between two calls of an engine. If more time passes, another process ran.
const INTERVAL_NS_MAX: f64 = 200_000.0;

/// A function that computes the extra latency of persistent memory from counts of the modelled cache, in
/// nanoseconds.
pub type ExtraNs = Arc<dyn Fn(&CacheCounts) -> f64 + Send + Sync>;

/// The amount that is split.
pub enum Metered {
    /// Wall time, in ordinary memory.
    Time,
    /// The extra latency of persistent memory, computed from the counts of the modelled cache.
    Extra(ExtraNs),
}

/// An amount, split by parts of an engine.
#[derive(Debug, Clone, Default)]
pub struct Split {
    /// The sum of the samples' amounts, by part.
    amounts: BTreeMap<Part, f64>,
    /// The number of samples.
    pub samples: usize,
    /// The number of samples that were left out.
    pub left_out: usize,
    /// The amount of all transactions during which samples were taken, for all parts together.
    pub total: f64,
    /// The number of these transactions.
    pub transactions: usize,
}

impl Split {
    /// Adds up the samples by part. A sample with more than `amount_max` is left out.
    ///
    /// Errors: no sample names a function, because the program has no symbols.
    pub fn of(samples: &[Sample], amount_max: f64) -> Result<Self> {
        let mut split = Split { samples: samples.len(), ..Split::default() };
        let mut named = 0;
        for Sample { stack, amount } in samples {
            if *amount > amount_max {
                split.left_out += 1;
                continue;
            }
            let part = stack.as_ref().map_or(Some(Part::Other), |stack| Part::of_stack(&stack.to_string()));
            named += usize::from(stack.is_some() && part.is_some());
            *split.amounts.entry(part.unwrap_or(Part::Other)).or_default() += amount;
        }
        match named > 0 {
            true => Ok(split),
            false => {
                Err(refused("no sample names a function: build varve-lab with symbols (profile release)"))
            }
        }
    }

    /// Returns the share of a part, between 0 and 1.
    pub fn share(&self, part: Part) -> f64 {
        let all: f64 = self.amounts.values().sum();
        if all > 0.0 { self.amounts.get(&part).copied().unwrap_or_default() / all } else { 0.0 }
    }
}

/// Splits the time of a load in the first partition of a bed.
///
/// Errors: a store refuses a call; a row is wrong; the program has no symbols.
pub fn split(bed: &Bed, engine: &Engine, load: &dyn PartitionLoad, metered: Metered) -> Result<Split> {
    let region = Arc::clone(bed.region(0).ok_or_else(|| refused("there is no region"))?);
    let (region, meter, settings, amount_max): (Arc<dyn Region>, Meter, _, _) = match metered {
        Metered::Time => {
            let began = Instant::now();
            let meter = move || began.elapsed().as_nanos() as f64;
            (region, Box::new(meter), bed.settings, INTERVAL_NS_MAX)
        }
        Metered::Extra(extra_ns) => {
            let cache = CachedRegion::wrap(region, bed.cache);
            let counted = Arc::clone(&cache);
            let settings = StoreSettings { system_call: Duration::ZERO, ..bed.settings };
            (cache, Box::new(move || extra_ns(&counted.counts())), settings, f64::INFINITY)
        }
    };
    let sampled = SampledRegion::wrap(region, meter);
    let seen = Arc::clone(&sampled) as Arc<dyn Region>;
    let mut partition = Partition::create(engine, seen, None, settings)?;
    load.load(partition.store.as_mut())?;
    partition.store.sync().map_err(refused)?;
    run(&sampled, partition.store.as_mut(), load, bed.group, amount_max)
}

fn run(
    sampled: &SampledRegion,
    store: &mut dyn Store,
    load: &dyn PartitionLoad,
    group: usize,
    amount_max: f64,
) -> Result<Split> {
    let (all, counted) = (load.transactions(), load.transactions() / TENTHS);
    let mut worker = MarkedWorker { worker: load.worker(), sampled };
    sampled.begin_counting();
    driver::run(&mut worker, store, 0..counted, group, &mut || ())?;
    let calls = sampled.calls() * (TENTHS as u64 - 1);
    let before = sampled.amount();
    let samples = SAMPLES.min(all as u64 / TRANSACTIONS_OF_SAMPLE).max(1);
    sampled.begin(2 * samples as usize, calls / samples);
    driver::run(&mut worker, store, counted..all, group, &mut || ())?;
    let total = sampled.amount() - before;
    let samples = sampled.end();
    load.check(store, all)?;
    Ok(Split { total, transactions: all - counted, ..Split::of(&samples, amount_max)? })
}

/// A worker that marks the beginning of each transaction. The interval before it belongs to no part of the
/// engine.
struct MarkedWorker<'w> {
    worker: Box<dyn Worker + 'w>,
    sampled: &'w SampledRegion,
}

impl Worker for MarkedWorker<'_> {
    fn execute(&mut self, number: usize, store: &mut dyn Store) -> Result<Ending> {
        self.sampled.between();
        self.worker.execute(number, store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(amount: f64, is_call: bool) -> Sample {
        Sample { stack: is_call.then(std::backtrace::Backtrace::force_capture), amount }
    }

    #[test]
    fn long_intervals_are_left_out_and_a_program_without_symbols_is_refused() {
        // The stack of this test has no function of the engines.
        assert!(Split::of(&[sample(1.0, true), sample(1.0, false)], 10.0).is_err());
        let mut split = Split { samples: 3, ..Split::default() };
        split.amounts = BTreeMap::from([(Part::Log, 3.0), (Part::Other, 1.0)]);
        assert_eq!((split.share(Part::Log), split.share(Part::Index)), (0.75, 0.0));
    }
}
