//! Prepares variants for measurement: each variant gets its own copy of a loaded database.
//!
//! 1. Most variants share one loaded database, which was loaded with doublewrite. When a variant with
//!    persistent memory opens its copy for the first time, a part of the data moves there. Two kinds of
//!    variants are loaded separately, with the same rows in the same order. The first kind has settings that
//!    are fixed when a database is created. The second kind needs files with pages as the variant writes
//!    them.
//! 2. A database is loaded without an emulated drive, and as fast as possible. In a measurement, the
//!    intervals of page writers and checkpoints are multiplied by the dilation, the factor on the times of
//!    the emulated drive.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use varve_device::Accounting;
use varve_engine::Database;
use varve_pager::{
    CleanOrder, FlashConfig, FlashDesign, FlashFill, FlashRestart, FlashScans, FlashSettings, NvmConfig,
    PagerConfig, Times,
};

use super::copies::{Bench, Copied, DatabasePaths};
use super::device::Device;
use super::drives::{Drive, Drives};
use super::row::Factors;
use super::tell::plain;
use varve_bench::database::MeasuredDatabase;
use varve_bench::embedded::{Embedded, open_with};
use varve_bench::report::hash_of;
use varve_bench::workload::Workload;
use varve_bench::{BenchError, Result};

/// The size of the log, as a multiple of the pool.
pub const LOG_BYTES_OF_POOL: u64 = 4;
/// The number of the log's segments.
const LOG_SEGMENTS: u64 = 8;
/// The size of a segment is a multiple of this, which is the size of the largest page.
pub const SEGMENT_UNIT_BYTES: u64 = 64 << 10;
/// The least size of the pool while a database is loaded.
const LOADING_POOL_BYTES: usize = 256 << 20;
/// The most databases that are loaded at the same time.
const LOADS: usize = 2;
/// Bytes of a region of persistent memory besides log and pages: the region's header, and the header of each
/// slot.
const REGION_HEAD_BYTES: u64 = 16 << 10;
const SLOT_HEADER_BYTES: u64 = 64;
/// The size of a region is a multiple of this.
const REGION_UNIT_BYTES: u64 = 4096;

/// The sizes with which a database is loaded and opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Bytes of the pool.
    pub pool_bytes: usize,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Bytes of one segment of the log.
    pub segment_bytes: u64,
}

impl Sizes {
    /// Sizes with a log of four pools in eight segments.
    pub fn new(page_bytes: usize, pool_bytes: usize) -> Self {
        // Segments must have whole pages, whatever the size of a page is.
        let log_bytes =
            (pool_bytes as u64 * LOG_BYTES_OF_POOL).next_multiple_of(LOG_SEGMENTS * SEGMENT_UNIT_BYTES);
        Self { page_bytes, pool_bytes, log_bytes, segment_bytes: log_bytes / LOG_SEGMENTS }
    }

    /// Replaces the log by one of this many segments of this size.
    pub fn with_log(mut self, segments: u64, segment_bytes: u64) -> Self {
        (self.log_bytes, self.segment_bytes) = (segments * segment_bytes, segment_bytes);
        self
    }
}

/// The parts of a variant's database that are in persistent memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InNvm {
    /// Bytes of the area for pages or for doublewrite copies.
    pub area_bytes: u64,
    /// Whether the log is in persistent memory, too. It has the same size there as in files.
    pub log: bool,
}

/// The settings of a variant's flash cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlash {
    /// Bytes of the cache's file.
    pub bytes: u64,
    /// The design of the cache.
    pub design: FlashDesign,
    /// The most pages that wait in memory to be written to the cache.
    pub queued_max: usize,
    /// The percentage of slots that may be dirty.
    pub dirty_percent: u8,
    /// The order in which dirty slots are written to the data files.
    pub clean_order: CleanOrder,
    /// What becomes of the cache when the database is opened again.
    pub restart: FlashRestart,
    /// How the cache is filled.
    pub fill: FlashFill,
    /// How pages of scans are recognized.
    pub scans: FlashScans,
}

/// A configuration to compare.
#[derive(Clone)]
pub struct Variant {
    /// The factors that distinguish the variant from others. If it has a name, the factor `variant` is the
    /// name.
    pub factors: Factors,
    configure: Arc<dyn Fn(&mut PagerConfig) + Send + Sync>,
    nvm: Option<InNvm>,
    flash: Option<InFlash>,
    warmed_by: Option<u64>,
    load: Load,
    has_atomic_writes: bool,
}

/// The settings with which a variant's database is loaded.
#[derive(Clone)]
enum Load {
    /// The settings that most variants share: doublewrite, pages in place, no compression.
    Shared,
    /// The settings of the variant itself.
    Own,
    /// Settings that several variants share. The name identifies them.
    OfSeveral(&'static str, fn(&mut PagerConfig)),
}

impl Variant {
    /// Returns a variant with this name and these settings.
    pub fn named(name: &str, configure: impl Fn(&mut PagerConfig) + Send + Sync + 'static) -> Self {
        Self::new(configure).with("variant", name)
    }

    /// Returns a variant with these settings. [`Variant::with`] adds its factors.
    pub fn new(configure: impl Fn(&mut PagerConfig) + Send + Sync + 'static) -> Self {
        let (factors, configure) = (Factors::new(), Arc::new(configure));
        let (load, has_atomic_writes) = (Load::Shared, false);
        Self { factors, configure, nvm: None, flash: None, warmed_by: None, load, has_atomic_writes }
    }

    /// Adds a factor.
    pub fn with(mut self, factor: &'static str, value: impl Into<Value>) -> Self {
        self.factors.insert(factor, value.into());
        self
    }

    /// Adds a region of persistent memory. The variant's copy of the database gets it at its first start.
    pub fn in_nvm(mut self, nvm: InNvm) -> Self {
        self.nvm = Some(nvm);
        self
    }

    /// Adds a flash cache, which is on the separate drive for it.
    pub fn in_flash(mut self, flash: InFlash) -> Self {
        self.flash = Some(flash);
        self
    }

    /// Sets that the variant is warmed up by at least this many transactions. Emulated drives have no delays
    /// until then, so the warm-up runs as fast as the machine can.
    pub fn warmed_by(mut self, transactions: u64) -> Self {
        self.warmed_by = Some(transactions);
        self
    }

    /// Sets that the variant starts without a warm-up: its pool and its cache are empty.
    pub fn cold(mut self) -> Self {
        self.warmed_by = None;
        self
    }

    /// Returns the number of transactions of the warm-up, if the variant has one.
    pub fn warm_transactions(&self) -> Option<u64> {
        self.warmed_by
    }

    /// Sets that the database is loaded with the variant's own settings. Its files must contain pages as the
    /// variant writes them.
    pub fn loaded_as_it_is(mut self) -> Self {
        self.load = Load::Own;
        self
    }

    /// Sets that the database is loaded with these settings. Variants that give the same name share the
    /// loaded database.
    pub fn shared_load(mut self, name: &'static str, configure: fn(&mut PagerConfig)) -> Self {
        self.load = Load::OfSeveral(name, configure);
        self
    }

    /// Returns the settings for loading the variant's database, and a name that distinguishes these settings
    /// from others.
    fn loading(&self) -> (Variant, String) {
        match self.load {
            Load::Shared => (Self::new(|_| {}), String::new()),
            Load::Own => (self.clone(), format!("{} {:?}", self.label(), self.nvm)),
            Load::OfSeveral(name, configure) => (Self::new(configure), name.to_owned()),
        }
    }

    /// Sets that the variant needs a drive with atomic writes of pages.
    pub fn with_atomic_writes(mut self) -> Self {
        self.has_atomic_writes = true;
        self
    }

    /// Returns whether the variant needs a drive with atomic writes of pages.
    pub fn has_atomic_writes(&self) -> bool {
        self.has_atomic_writes
    }

    /// Returns the variant's factors as one word, which can be the name of a directory.
    pub fn label(&self) -> String {
        let values: Vec<String> = self.factors.values().map(plain).collect();
        values.join("-").replace(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.', "_")
    }

    /// Returns the variant's configuration for a database in these directories.
    fn config(&self, sizes: Sizes, on: &Drives, dilation: f64) -> Result<PagerConfig> {
        let mut config = PagerConfig::new(on.files.clone());
        config.temporary = on.temporary.clone();
        config.page_size = sizes.page_bytes;
        config.pool_bytes = sizes.pool_bytes;
        config.log_capacity_bytes = sizes.log_bytes;
        config.log_segment_bytes = sizes.segment_bytes;
        if let Some(log) = &on.log {
            config.log = log.clone();
        }
        if let (Some(flash), Some(directory)) = (self.flash, &on.flash) {
            config.flash = Some(FlashConfig {
                queued_max: flash.queued_max,
                ..FlashConfig::with(
                    directory.clone(),
                    FlashSettings {
                        design: flash.design,
                        dirty_percent: flash.dirty_percent,
                        clean_order: flash.clean_order,
                        restart: flash.restart,
                        fill: flash.fill,
                        scans: flash.scans,
                        ..FlashSettings::of_size(flash.bytes)
                    },
                )
            });
        }
        if let (Some(nvm), Some(directory)) = (self.nvm, &on.nvm) {
            let log_bytes = if nvm.log { sizes.log_bytes } else { 0 };
            let size_bytes = nvm.region_bytes(log_bytes, sizes.page_bytes as u64);
            config.nvm = Some(NvmConfig { directory: directory.clone(), size_bytes, log_bytes });
        }
        (self.configure)(&mut config);
        let dilated = |ms: u64| (ms as f64 * dilation) as u64;
        config.checkpoint.interval_ms = dilated(config.checkpoint.interval_ms);
        if let Some(pacing) = &mut config.pacing {
            pacing.interval_ms = dilated(pacing.interval_ms);
        }
        Ok(config)
    }
}

impl InNvm {
    fn region_bytes(self, log_bytes: u64, page_bytes: u64) -> u64 {
        let slots = self.area_bytes.div_ceil(page_bytes);
        let bytes = REGION_HEAD_BYTES + log_bytes + slots * (page_bytes + SLOT_HEADER_BYTES) + page_bytes;
        bytes.next_multiple_of(REGION_UNIT_BYTES)
    }
}

/// The results of a load.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// The time from the first statement to the end of the shutdown.
    pub took: Duration,
    /// Counters of the levels after the load.
    pub levels: BTreeMap<String, u64>,
    /// Bytes of allocated pages, uncompressed.
    pub pages_bytes: u64,
}

impl Loaded {
    /// Returns the bytes of compressible pages as they were stored, divided by their uncompressed bytes. It
    /// is 1 if no page is to be compressed.
    pub fn stored_share(&self) -> f64 {
        let of = |name: &str| self.levels.get(name).copied().unwrap_or(0) as f64;
        let plain = of("home.plain_bytes");
        if plain > 0.0 { of("home.stored_bytes") / plain } else { 1.0 }
    }
}

/// A variant, and its own copy of a loaded database.
pub struct Stand {
    pub(super) variant: Variant,
    pub(super) sizes: Sizes,
    copy: Copied,
}

/// The open database of a stand.
pub struct OpenStand {
    /// The database.
    pub database: Arc<Database>,
    /// The drives. The first one has the data files.
    pub drives: Vec<Drive>,
    /// The counters of persistent memory, if the variant has any.
    pub nvm: Option<Arc<Accounting>>,
    /// The time that threads spent for each purpose.
    pub times: Arc<Times>,
}

impl OpenStand {
    /// Switches the delays of emulated drives on or off.
    pub fn take_times(&self, is_on: bool) {
        take_times(&self.drives, is_on);
    }
}

fn take_times(drives: &[Drive], is_on: bool) {
    drives.iter().filter_map(|drive| drive.emulated.as_ref()).for_each(|drive| drive.take_times(is_on));
}

impl Stand {
    /// Makes a stand for each variant: a copy of a loaded database. A database that is not loaded yet is
    /// loaded first. The copies are made on `copies`, which may be another file system.
    pub fn of_all(
        bench: &Bench,
        copies: &Bench,
        workload: &dyn Workload,
        sizes: Sizes,
        variants: &[Variant],
    ) -> Result<Vec<Stand>> {
        let mut missing: BTreeMap<String, &Variant> = BTreeMap::new();
        for variant in variants {
            missing.entry(base_name(workload, sizes, variant)).or_insert(variant);
        }
        let loads: Vec<(String, &Variant)> = missing.into_iter().collect();
        let load_part = |part: &[(String, &Variant)]| {
            part.iter().try_for_each(|(name, variant)| {
                let load =
                    |place: &DatabasePaths| load(place, workload, sizes, variant, &Device::REAL).map(drop);
                bench.base(name, load).map(drop)
            })
        };
        std::thread::scope(|scope| {
            let parts = loads.chunks(loads.len().div_ceil(LOADS).max(1));
            let load_part = &load_part;
            let threads: Vec<_> = parts.map(|part| scope.spawn(move || load_part(part))).collect();
            let panicked = || BenchError::Connection("a thread that loads panicked".to_owned());
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| panicked())?)
        })?;
        let stand = |variant: &Variant| {
            let base = bench.base(&base_name(workload, sizes, variant), |_| Ok(()))?;
            let copy = copies.copy(&base, &variant.label())?;
            Ok(Stand { variant: variant.clone(), sizes, copy })
        };
        variants.iter().map(stand).collect()
    }

    /// Loads a database in a directory of its own on this device. No other stand shares it. Returns also the
    /// results of the load.
    pub fn fresh(
        bench: &Bench,
        workload: &dyn Workload,
        sizes: Sizes,
        device: &Device,
        variant: &Variant,
    ) -> Result<(Stand, Loaded)> {
        let copy = bench.empty(&variant.label())?;
        let loaded = load(copy.place(), workload, sizes, variant, device)?;
        Ok((Stand { variant: variant.clone(), sizes, copy }, loaded))
    }

    /// Opens the database. If the variant has a warm-up, emulated drives have no delays yet.
    pub fn open(&self, device: &Device, dilation: f64) -> Result<OpenStand> {
        self.open_so(device, dilation, self.variant.warmed_by.is_none())
    }

    /// Opens the database while emulated drives have their delays, whether the variant has a warm-up or not.
    pub fn open_at_once(&self, device: &Device, dilation: f64) -> Result<OpenStand> {
        self.open_so(device, dilation, true)
    }

    fn open_so(&self, device: &Device, dilation: f64, takes_times: bool) -> Result<OpenStand> {
        let device = self.device(device);
        let drives = Drives::open(self.copy.place(), self.variant.nvm.is_some(), &device, dilation)?;
        take_times(&drives.all, takes_times);
        let mut config = self.variant.config(self.sizes, &drives, dilation)?;
        let times = Arc::new(Times::on());
        config.times = Arc::clone(&times);
        let nvm = drives.nvm.as_ref().map(|directory| Arc::clone(directory.accounting()));
        Ok(OpenStand { database: open_with(config)?, drives: drives.all, nvm, times })
    }

    fn device(&self, device: &Device) -> Device {
        match self.variant.has_atomic_writes {
            true => device.clone().with_atomic_writes(self.sizes.page_bytes),
            false => device.clone(),
        }
    }

    /// Returns the bytes of the blocks that the file system has allocated to the database's files, without
    /// the log.
    pub fn allocated_bytes(&self) -> Result<u64> {
        self.copy.allocated_bytes(|name| !name.starts_with("log"))
    }

    /// Returns a description of the stand, for the hash of the configuration.
    pub fn describe(&self) -> String {
        let Sizes { page_bytes, pool_bytes, log_bytes, .. } = self.sizes;
        let Variant { nvm, flash, factors, warmed_by, .. } = &self.variant;
        let factors = serde_json::json!(factors);
        let flash = flash.map(|flash| format!(", {flash:?}")).unwrap_or_default();
        let warm = warmed_by.map(|count| format!(", warmed by {count} transactions")).unwrap_or_default();
        format!(
            "{factors}, pages of {page_bytes} bytes, pool {pool_bytes}, log {log_bytes}, NVM {nvm:?}{flash}{warm}"
        )
    }
}

/// Returns the name of the loaded database from which a variant gets its copy.
fn base_name(workload: &dyn Workload, sizes: Sizes, variant: &Variant) -> String {
    let (_, how) = variant.loading();
    let Sizes { page_bytes, log_bytes, .. } = sizes;
    let settings = format!("{} {} {page_bytes} {log_bytes} {how}", workload.name(), workload.settings());
    format!("{}-{}", workload.name(), hash_of(&settings))
}

/// Makes a new database, loads the workload's tables, and shuts the database down.
fn load(
    place: &DatabasePaths,
    workload: &dyn Workload,
    sizes: Sizes,
    variant: &Variant,
    device: &Device,
) -> Result<Loaded> {
    let (how, _) = variant.loading();
    let drives = Drives::open(place, how.nvm.is_some(), device, 1.0)?;
    let mut config = how.config(sizes, &drives, 1.0)?;
    config.pool_bytes = LOADING_POOL_BYTES.max(sizes.pool_bytes);
    config.pacing = None;
    let began = Instant::now();
    let database = open_with(config)?;
    workload.load(Embedded::new(Arc::clone(&database), "").connect(&[])?.as_mut())?;
    database.shutdown()?;
    let pager = database.stats().pager;
    let pages_bytes = (pager.data_pages + pager.rollback_pages) * sizes.page_bytes as u64;
    Ok(Loaded { took: began.elapsed(), levels: levels(&database), pages_bytes })
}

/// Counters of the levels below the pool. A name has the form `level.counter`.
pub fn levels(database: &Database) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    // The level of the data files reports each of its layouts, so counters with the same name are added.
    for report in database.stats().pager.levels {
        for (name, count) in report.counters {
            *sums.entry(format!("{}.{name}", report.name)).or_default() += count;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_holds_what_is_asked_for() {
        let nvm = InNvm { area_bytes: 2 << 20, log: true };
        let bytes = nvm.region_bytes(1 << 20, 4096);
        assert!(((3 << 20) + 512 * 64..(3 << 20) + (64 << 10)).contains(&bytes), "{bytes}");
        assert!(bytes.is_multiple_of(4096));
    }

    #[test]
    fn logs_of_any_pool_have_whole_segments() {
        for pool_bytes in [8 << 20, 10_000_000, 50_000_000] {
            let sizes = Sizes::new(4096, pool_bytes);
            assert_eq!(sizes.log_bytes, LOG_SEGMENTS * sizes.segment_bytes);
            assert_eq!(sizes.segment_bytes % SEGMENT_UNIT_BYTES, 0, "{pool_bytes}");
        }
        assert_eq!(Sizes::new(4096, 8 << 20).log_bytes, 32 << 20);
    }

    #[test]
    fn labels_are_names_of_directories() {
        let variant = Variant::named("nvm/dwb", |_| {}).with("area MiB", 2.5);
        assert_eq!(variant.label(), "2.5-nvm_dwb");
    }
}
