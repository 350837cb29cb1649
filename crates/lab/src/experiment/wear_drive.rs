//! An emulated flash drive in memory that counts its wear. It has a limited size, and its requests take no
//! time. A database is loaded and updated on this drive.
//!
//! 1. All data on the drive was written through the drive, so its flash translation layer has counted every
//!    write.
//! 2. An erase block of the drive has the size that the drive profile states, but at most a 512th of the
//!    drive. With larger erase blocks, a small drive would have only a few of them. The blocks that are open
//!    for writing would then be all its spare flash.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use varve_device::{Directory, Emulated, FlashReport, MemoryDirectory, Profile};
use varve_engine::Database;
use varve_pager::{PackedConfig, PagerConfig};

use super::stand::{LOG_BYTES_OF_POOL, levels};
use varve_bench::database::MeasuredDatabase;
use varve_bench::driver::{self, Plan};
use varve_bench::embedded::{Embedded, open_with};
use varve_bench::workload::Workload;
use varve_bench::{BenchError, Result};

/// The size of a page, which is Varve's default.
pub const PAGE_BYTES: usize = 8192;
/// The size of a database, as a multiple of its pool.
const DATABASE_OF_POOL: u64 = 30;
const POOL_FRAMES_MIN: usize = 64;
/// The least size of the pool while a database is loaded.
const LOADING_POOL_BYTES: usize = 64 << 20;
const LOG_SEGMENTS: u64 = 8;
/// Names of the files with pages in place.
const DATA: &str = "data.varve";
const ROLLBACK: &str = "rollback.varve";
/// The least permitted size of an extent (`PackedConfig`).
const EXTENT_BYTES_MIN: u64 = 64 << 10;
/// The least number of erase blocks of a drive.
const BLOCKS: u64 = 512;
/// Sessions run for this time before the written bytes are counted again.
const ROUND: Duration = Duration::from_millis(200);

/// A function that sets the configuration with which a database is opened.
pub type Configure<'a> = &'a (dyn Fn(&mut PagerConfig) + Sync);

/// The emulated drive of a database, and the drive of its log if that is separate.
pub struct Drive {
    memory: Arc<MemoryDirectory>,
    emulated: Arc<Emulated>,
    log: Option<Arc<dyn Directory>>,
    block_bytes: u64,
}

impl Drive {
    /// Returns an empty drive of this capacity.
    pub fn new(profile: &Profile, capacity_bytes: u64, log_is_apart: bool) -> Result<Self> {
        let mut profile = profile.clone().without_time();
        let Some(translation) = &mut profile.translation else {
            let counts =
                |name: &&str| Profile::shipped(name).is_ok_and(|profile| profile.translation.is_some());
            let known: Vec<_> = Profile::names().into_iter().filter(counts).collect();
            return Err(BenchError::Arguments(format!(
                "profile {} has no translation layer to count by: choose one of {}",
                profile.name,
                known.join(", ")
            )));
        };
        let fitting = capacity_bytes / BLOCKS / u64::from(translation.page_bytes);
        let pages = u32::try_from(fitting).unwrap_or(u32::MAX).clamp(2, translation.block_pages);
        translation.block_pages = 1 << pages.ilog2();
        let block_bytes = u64::from(translation.block_pages) * u64::from(translation.page_bytes);
        let memory = MemoryDirectory::new();
        let emulated = Emulated::sized(memory.clone(), profile, 1.0, capacity_bytes);
        let log = log_is_apart.then(|| MemoryDirectory::new() as Arc<dyn Directory>);
        Ok(Self { memory, emulated, log, block_bytes })
    }

    /// Returns the size of an extent of a packed layout. It is the size of an erase block, as on a large
    /// drive.
    pub fn extent_bytes(&self) -> u64 {
        self.block_bytes.clamp(EXTENT_BYTES_MIN, PackedConfig::DEFAULT.extent_bytes)
    }

    /// Returns the bytes of the drive's files whose name is `wanted`.
    fn file_bytes(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        let images = self.memory.images();
        images.iter().filter(|(name, _)| wanted(name)).map(|(_, image)| image.len_bytes()).sum()
    }

    fn config(&self, pool_bytes: usize, configure: Configure<'_>) -> PagerConfig {
        let mut config = PagerConfig::new(self.emulated.clone());
        config.temporary = MemoryDirectory::new();
        if let Some(log) = &self.log {
            config.log = log.clone();
        }
        let log_bytes = pool_bytes as u64 * LOG_BYTES_OF_POOL;
        (config.page_size, config.pool_bytes) = (PAGE_BYTES, pool_bytes);
        config.log_segment_bytes = (log_bytes / LOG_SEGMENTS).next_multiple_of(4096);
        config.log_capacity_bytes = config.log_segment_bytes * LOG_SEGMENTS;
        configure(&mut config);
        config
    }

    /// Makes a new database, loads the workload's rows, and shuts the database down.
    pub fn load(
        &self,
        workload: &dyn Workload,
        pool_bytes: usize,
        configure: Configure<'_>,
    ) -> Result<Loaded> {
        let mut config = self.config(pool_bytes, configure);
        config.pool_bytes = LOADING_POOL_BYTES.max(pool_bytes);
        let database = open_with(config)?;
        workload.load(Embedded::new(Arc::clone(&database), "").connect(&[])?.as_mut())?;
        database.shutdown()?;
        let of = levels(&database);
        let of = |name: &str| of.get(name).copied().unwrap_or(0) as f64;
        let stored_share = of("home.stored_bytes") / of("home.plain_bytes").max(1.0);
        let pager = database.stats().pager;
        let in_file = |name: &str| self.file_bytes(|file| file == name);
        let used_bytes = (pager.data_pages + pager.rollback_pages) * PAGE_BYTES as u64;
        let pages_bytes = in_file(DATA) + in_file(ROLLBACK);
        let files_bytes = self.file_bytes(|_| true);
        let live_bytes = files_bytes - pages_bytes + used_bytes;
        let unused_bytes = in_file(DATA).saturating_sub(pager.data_pages * PAGE_BYTES as u64);
        Ok(Loaded { files_bytes, live_bytes, unused_bytes, stored_share })
    }

    /// Opens the database.
    pub fn open(&self, pool_bytes: usize, configure: Configure<'_>) -> Result<Worn<'_>> {
        let database = open_with(self.config(pool_bytes, configure))?;
        Ok(Worn { drive: self, database, seed: 0, transactions: 0 })
    }

    fn flash(&self) -> FlashReport {
        self.emulated.report().flash.unwrap_or_default()
    }
}

/// Returns the size of the pool for a database of this many bytes.
pub fn pool_bytes(database_bytes: u64) -> usize {
    let frames = (database_bytes / DATABASE_OF_POOL) as usize / PAGE_BYTES;
    frames.max(POOL_FRAMES_MIN) * PAGE_BYTES
}

/// The sizes after a load.
#[derive(Debug, Clone, Copy)]
pub struct Loaded {
    /// Bytes of the drive's files.
    pub files_bytes: u64,
    /// Bytes of the drive's files without unused pages. The value is right only for pages in place.
    pub live_bytes: u64,
    /// Bytes of unused pages of the data file. The value is right only for pages in place.
    pub unused_bytes: u64,
    /// Bytes of compressible pages as they were stored, divided by their uncompressed bytes.
    pub stored_share: f64,
}

/// An open database on the drive.
pub struct Worn<'d> {
    drive: &'d Drive,
    database: Arc<Database>,
    seed: u64,
    transactions: u64,
}

impl Worn<'_> {
    /// Runs sessions until the host has written this many more bytes. Returns what was counted meanwhile.
    pub fn run(&mut self, workload: &dyn Workload, clients: usize, host_bytes: u64) -> Result<Interval> {
        let before = self.counts();
        let target = Embedded::new(Arc::clone(&self.database), "");
        let plan = Plan { threads: clients, rounds: 1, seconds: 0, warm_seconds: 0 };
        loop {
            self.seed += 1;
            let round = driver::round(&target, workload, plan, ROUND, self.seed)?;
            self.transactions += round.transactions;
            let done = self.counts().since(&before);
            if done.flash.host_bytes >= host_bytes {
                return Ok(done);
            }
        }
    }

    /// Shuts the database down.
    pub fn end(self) -> Result<()> {
        Ok(self.database.shutdown()?)
    }

    fn counts(&self) -> Interval {
        let account = self.drive.emulated.accounting();
        let log = self.drive.log.as_ref().map(|log| log.accounting());
        let bytes =
            |account: &varve_device::Accounting| account.rows().iter().map(|row| row.written.bytes).sum();
        let mut by_purpose = BTreeMap::new();
        for row in account.rows() {
            *by_purpose.entry(row.purpose.name()).or_default() += row.written.bytes;
        }
        Interval {
            transactions: self.transactions,
            flash: self.drive.flash(),
            by_purpose,
            log_apart_bytes: log.map_or(0, |log| bytes(log)),
            levels: levels(&self.database),
        }
    }
}

/// The counters of an interval.
#[derive(Debug, Clone)]
pub struct Interval {
    /// The number of transactions, which are reads and updates.
    pub transactions: u64,
    /// The bytes that the drive has counted.
    pub flash: FlashReport,
    /// Bytes that the host wrote to the drive, by purpose.
    pub by_purpose: BTreeMap<&'static str, u64>,
    /// Bytes that the host wrote to a separate log.
    pub log_apart_bytes: u64,
    levels: BTreeMap<String, u64>,
}

impl Interval {
    /// Returns the value of a counter of the levels.
    pub fn level(&self, name: &str) -> f64 {
        self.levels.get(name).copied().unwrap_or(0) as f64
    }

    /// Returns the bytes written to flash for each page that the database wrote.
    pub fn flash_of_a_page(&self) -> f64 {
        self.flash.flash_bytes as f64 / self.level("home.pages_written").max(1.0)
    }

    fn since(mut self, before: &Interval) -> Self {
        let less = |now: &mut u64, then: Option<&u64>| *now = now.saturating_sub(then.copied().unwrap_or(0));
        self.by_purpose.iter_mut().for_each(|(name, bytes)| less(bytes, before.by_purpose.get(name)));
        self.levels.iter_mut().for_each(|(name, count)| less(count, before.levels.get(name)));
        less(&mut self.transactions, Some(&before.transactions));
        less(&mut self.log_apart_bytes, Some(&before.log_apart_bytes));
        self.flash = self.flash.since(&before.flash);
        self
    }
}
