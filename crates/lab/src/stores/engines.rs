//! The engines that are compared. An engine takes part if it has an entry in [`ENGINES`].
//!
//! This module does not know loads.

use std::sync::Arc;
use std::time::Duration;

use varve_bench::Result;
use varve_memory::{
    Allocator, Cow, CowSettings, FileCosts, Inplace, InplaceSettings, LogSettings, LogStructured,
    LsmSettings, NvmCow, NvmCowSettings, NvmInplace, NvmInplaceSettings, NvmLogSettings, NvmLogStructured,
    Owner, Store, StoreResult,
};

use super::load::refused;

/// The name of a partition's store in its region.
const NAME: &str = "partition";
/// The owner of what a store allocates besides its tables: logs, files, directories.
const STORE_OWNER: u16 = 1;

/// Settings of the engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreSettings {
    /// The time that each call on a file takes in addition to its work.
    pub system_call: Duration,
    /// `inplace` writes a checkpoint when its log is longer than this.
    pub checkpoint_log_bytes: u64,
    /// The number of transactions in a batch of the copy-on-write engines.
    pub batch_transactions: usize,
    /// Bytes of a node of `nvm_cow`.
    pub node_bytes: usize,
    /// Bytes of the page cache of `cow`, and of the block cache of `log` if it has one.
    pub cache_bytes: usize,
    /// Bytes of a MemTable of the log-structured engines.
    pub memtable_bytes: u64,
}

impl StoreSettings {
    fn files(&self) -> FileCosts {
        FileCosts { system_call: self.system_call, ..FileCosts::default() }
    }

    fn lsm(&self) -> LsmSettings {
        LsmSettings { memtable_bytes: self.memtable_bytes, ..LsmSettings::default() }
    }
}

/// The arguments with which a store is opened.
struct StoreRoot {
    allocator: Arc<Allocator>,
    owner: Owner,
    settings: StoreSettings,
}

/// How an engine finds the tuple of a key, if it can do without a cache that it could also have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookups {
    /// The engine searches its tree or its runs, as in the paper.
    Uncached,
    /// `nvm_inplace` asks a cache in DRAM first, as tables of SQL do (decision 0119). `log` keeps blocks of
    /// its runs in a cache that is as large as the page cache of `cow`.
    Cached,
}

impl Lookups {
    /// Returns the name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Lookups::Uncached => "uncached",
            Lookups::Cached => "cached",
        }
    }
}

/// An engine with its settings.
pub struct Engine {
    /// The name of the engine, as in `CREATE TABLE ... USING`.
    pub name: &'static str,
    /// The engine with files that has the same architecture. It is `None` for the engines with files
    /// themselves.
    pub traditional: Option<&'static str>,
    /// How the engine finds the tuple of a key, if this is a setting of the engine.
    pub lookups: Option<Lookups>,
    open: fn(StoreRoot) -> StoreResult<Box<dyn Store>>,
}

/// All engines, in the order of the paper's charts.
pub const ENGINES: &[Engine] = &[
    Engine { name: "inplace", traditional: None, lookups: None, open: open_inplace },
    Engine { name: "cow", traditional: None, lookups: None, open: open_cow },
    Engine { name: "log", traditional: None, lookups: Some(Lookups::Uncached), open: open_log },
    Engine {
        name: "nvm_inplace",
        traditional: Some("inplace"),
        lookups: Some(Lookups::Uncached),
        open: open_nvm_inplace,
    },
    Engine { name: "nvm_cow", traditional: Some("cow"), lookups: None, open: open_nvm_cow },
    Engine { name: "nvm_log", traditional: Some("log"), lookups: None, open: open_nvm_log },
];

/// Engines of [`ENGINES`] with another setting, which changes the figures.
pub const VARIANTS: &[Engine] = &[
    Engine { name: "log", traditional: None, lookups: Some(Lookups::Cached), open: open_log_cached },
    Engine {
        name: "nvm_inplace",
        traditional: Some("inplace"),
        lookups: Some(Lookups::Cached),
        open: open_nvm_inplace_cached,
    },
];

impl Engine {
    /// Opens the store in the region of an allocator. If there is no store, it makes an empty one.
    ///
    /// Errors: the region is too small, or damaged.
    pub fn open(&self, allocator: Arc<Allocator>, settings: StoreSettings) -> Result<Box<dyn Store>> {
        let owner = Owner::new(STORE_OWNER).ok_or_else(|| refused("there is no owner 1"))?;
        (self.open)(StoreRoot { allocator, owner, settings }).map_err(refused)
    }

    /// Returns the engine with this name, if [`ENGINES`] has it.
    pub fn named(name: &str) -> Option<&'static Engine> {
        ENGINES.iter().find(|engine| engine.name == name)
    }
}

fn open_nvm_inplace(root: StoreRoot) -> StoreResult<Box<dyn Store>> {
    let settings = NvmInplaceSettings::WITHOUT_CACHE;
    Ok(Box::new(NvmInplace::open_with(root.allocator, NAME, root.owner, settings)?))
}

fn open_nvm_inplace_cached(root: StoreRoot) -> StoreResult<Box<dyn Store>> {
    let settings = NvmInplaceSettings::WITH_CACHE;
    Ok(Box::new(NvmInplace::open_with(root.allocator, NAME, root.owner, settings)?))
}

fn open_nvm_cow(root: StoreRoot) -> StoreResult<Box<dyn Store>> {
    let StoreSettings { batch_transactions, node_bytes, .. } = root.settings;
    let settings = NvmCowSettings { batch_transactions, node_bytes };
    Ok(Box::new(NvmCow::open(root.allocator, NAME, root.owner, settings)?))
}

fn open_nvm_log(root: StoreRoot) -> StoreResult<Box<dyn Store>> {
    let settings = NvmLogSettings { lsm: root.settings.lsm() };
    Ok(Box::new(NvmLogStructured::open(root.allocator, NAME, root.owner, settings)?))
}

fn open_inplace(root: StoreRoot) -> StoreResult<Box<dyn Store>> {
    let checkpoint_log_bytes = root.settings.checkpoint_log_bytes;
    let settings = InplaceSettings { files: root.settings.files(), checkpoint_log_bytes };
    Ok(Box::new(Inplace::open(root.allocator, NAME, root.owner, settings)?))
}

fn open_cow(root: StoreRoot) -> StoreResult<Box<dyn Store>> {
    let StoreSettings { batch_transactions, cache_bytes, .. } = root.settings;
    let settings = CowSettings { files: root.settings.files(), batch_transactions, cache_bytes };
    Ok(Box::new(Cow::open(root.allocator, NAME, root.owner, settings)?))
}

fn open_log(root: StoreRoot) -> StoreResult<Box<dyn Store>> {
    open_log_with(root, 0)
}

fn open_log_cached(root: StoreRoot) -> StoreResult<Box<dyn Store>> {
    let cache_bytes = root.settings.cache_bytes;
    open_log_with(root, cache_bytes)
}

fn open_log_with(root: StoreRoot, cache_bytes: usize) -> StoreResult<Box<dyn Store>> {
    let settings = LogSettings { lsm: root.settings.lsm(), files: root.settings.files(), cache_bytes };
    Ok(Box::new(LogStructured::open(root.allocator, NAME, root.owner, settings)?))
}
