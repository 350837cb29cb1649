//! Runs a load on an engine in several partitions at once, for times or for counts.
//!
//! 1. A run makes its partitions anew and loads them. All partitions wait for each other before the
//!    transactions begin. So a run never sees rows, or a layout, that another run left.
//! 2. Times are measured without the modelled cache, and counts are taken with it. A count begins after the
//!    load of the rows, as in the paper (section 5.3).
//!
//! This module does not know published values.

use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use varve_bench::{BenchError, Result};
use varve_device::{CacheCounts, CacheShape, Directory, FileDirectory, FileOptions, Region, Wear};

use super::driver::{self, RunTimes};
use super::engines::{Engine, StoreSettings};
use super::load::{PartitionLoad, refused};
use super::partition::{Partition, used_bytes};

/// The regions of the partitions, and the settings with which engines run in them.
pub struct Bed {
    regions: Vec<Arc<dyn Region>>,
    /// The modelled cache of one partition.
    pub cache: CacheShape,
    /// Commits that one flush makes durable together.
    pub group: usize,
    /// Settings of the engines.
    pub settings: StoreSettings,
}

/// The times of a run in all partitions.
#[derive(Debug, Clone)]
pub struct RawRun {
    /// The times of each partition, in the order of the partitions.
    pub times: Vec<RunTimes>,
}

/// The counts of one partition.
#[derive(Debug, Clone)]
pub struct Counted {
    /// The counts of the partition's modelled cache.
    pub counts: CacheCounts,
    /// How often cache lines were written to the medium.
    pub wear: Wear,
    /// The most bytes of the region that were allocated at once.
    pub peak_bytes: u64,
    /// Bytes that were allocated when the rows were loaded.
    pub loaded_bytes: u64,
    /// Bytes that the engine stored after the load.
    pub stored_bytes: u64,
}

impl Bed {
    /// Maps a region for each partition in a directory of a file system in memory.
    ///
    /// Errors: the file system has no space for the regions.
    pub fn open(directory: &Path, partitions: usize, region_bytes: u64) -> Result<Vec<Arc<dyn Region>>> {
        let files = FileDirectory::open_or_create(directory, FileOptions::default()).map_err(refused)?;
        let map = |number| files.map(&format!("partition{number}"), region_bytes).map_err(refused);
        (0..partitions).map(map).collect()
    }

    /// Makes a bed of these regions.
    pub fn new(
        regions: Vec<Arc<dyn Region>>,
        cache: CacheShape,
        group: usize,
        settings: StoreSettings,
    ) -> Self {
        Self { regions, cache, group, settings }
    }

    /// Returns the number of partitions.
    pub fn partitions(&self) -> usize {
        self.regions.len()
    }

    /// Returns the region of a partition.
    pub fn region(&self, partition: usize) -> Option<&Arc<dyn Region>> {
        self.regions.get(partition)
    }

    /// Measures times: runs a load without a modelled cache, and compares the rows with those that it must
    /// leave.
    ///
    /// Errors: a store refuses a call; a row is wrong.
    pub fn time<L: PartitionLoad>(&self, engine: &Engine, loads: &[L]) -> Result<RawRun> {
        let one = |partition: &mut Partition, load: &L| {
            let mut worker = load.worker();
            let numbers = 0..load.transactions();
            let times =
                driver::run(worker.as_mut(), partition.store.as_mut(), numbers, self.group, &mut || ())?;
            load.check(partition.store.as_ref(), load.transactions())?;
            Ok(times)
        };
        let mode = Mode { cache: None, settings: self.settings };
        Ok(RawRun { times: self.in_all(engine, loads, mode, &one)? })
    }

    /// Takes counts: runs a load with the modelled cache, and compares the rows with those that it must
    /// leave.
    ///
    /// Errors: a store refuses a call; a row is wrong.
    pub fn count<L: PartitionLoad>(&self, engine: &Engine, loads: &[L]) -> Result<Vec<Counted>> {
        let settings = StoreSettings { system_call: Duration::ZERO, ..self.settings };
        let one = |partition: &mut Partition, load: &L| self.count_one(partition, load);
        self.in_all(engine, loads, Mode { cache: Some(self.cache), settings }, &one)
    }

    fn count_one(&self, partition: &mut Partition, load: &impl PartitionLoad) -> Result<Counted> {
        let allocator = Arc::clone(partition.allocator());
        let stored_bytes = || allocator.region().tally().stored_bytes;
        let (loaded_bytes, stored_before) = (used_bytes(&allocator), stored_bytes());
        if let Some(cache) = partition.cache() {
            cache.restart_counts();
        }
        let mut peak_bytes = loaded_bytes;
        let mut watch = || peak_bytes = peak_bytes.max(used_bytes(&allocator));
        let (mut worker, numbers) = (load.worker(), 0..load.transactions());
        driver::run(worker.as_mut(), partition.store.as_mut(), numbers, self.group, &mut watch)?;
        watch();
        let cache = partition.cache().ok_or_else(|| refused("a count needs a modelled cache"))?;
        let (counts, wear) = (cache.counts(), cache.wear());
        let stored_bytes = stored_bytes() - stored_before;
        load.check(partition.store.as_ref(), load.transactions())?;
        Ok(Counted { counts, wear, peak_bytes, loaded_bytes, stored_bytes })
    }

    /// Makes and loads all partitions. Then it calls `one` for all of them at the same time.
    fn in_all<L: PartitionLoad, T: Send>(
        &self,
        engine: &Engine,
        loads: &[L],
        mode: Mode,
        one: &(dyn Fn(&mut Partition, &L) -> Result<T> + Sync),
    ) -> Result<Vec<T>> {
        let are_loaded = Barrier::new(self.regions.len().min(loads.len()));
        let prepare = |region: &Arc<dyn Region>, load: &L| -> Result<Partition> {
            let mut partition = Partition::create(engine, Arc::clone(region), mode.cache, mode.settings)?;
            load.load(partition.store.as_mut())?;
            partition.store.sync().map_err(refused)?;
            Ok(partition)
        };
        let run = |region: &Arc<dyn Region>, load: &L| {
            let prepared = prepare(region, load);
            // This thread waits even if it failed: otherwise the other threads would wait forever.
            are_loaded.wait();
            one(&mut prepared?, load)
        };
        std::thread::scope(|scope| {
            let pairs = self.regions.iter().zip(loads);
            let running: Vec<_> = pairs.map(|(region, load)| scope.spawn(|| run(region, load))).collect();
            let died = |_| BenchError::Connection("a worker panicked".to_owned());
            running.into_iter().map(|thread| thread.join().map_err(died)?).collect()
        })
    }
}

/// The cache and the settings with which partitions are made.
#[derive(Clone, Copy)]
struct Mode {
    cache: Option<CacheShape>,
    settings: StoreSettings,
}
