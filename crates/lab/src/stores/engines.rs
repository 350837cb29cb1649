//! The engines that are compared. An engine joins with its line in [`ENGINES`].
//!
//! What it does not know: loads.

use std::sync::Arc;
use std::time::Duration;

use varve_bench::Result;
use varve_memory::{
    Allocator, FileCosts, Inplace, InplaceSettings, NvmCow, NvmCowSettings, NvmInplace, Owner, Store,
    StoreResult,
};

use super::load::refused;

/// The name of a partition's store in its region.
const NAME: &str = "partition";
/// Owner of what a store needs beside its tables: logs, files, directories.
const STORE_OWNER: u16 = 1;

/// Settings of the engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreSettings {
    /// Time of each call on a file beside its work.
    pub system_call: Duration,
    /// `inplace` writes a checkpoint when its log is longer.
    pub checkpoint_log_bytes: u64,
    /// Transactions of a batch of the copy-on-write engines.
    pub batch_transactions: usize,
}

/// What a store is opened with.
struct StoreRoot {
    allocator: Arc<Allocator>,
    owner: Owner,
    settings: StoreSettings,
}

/// An engine.
pub struct Engine {
    /// Its name, as in `CREATE TABLE ... USING`.
    pub name: &'static str,
    /// The engine with files that has the same architecture; `None` for these.
    pub traditional: Option<&'static str>,
    open: fn(StoreRoot) -> StoreResult<Box<dyn Store>>,
}

/// All engines, in the order of the paper's charts.
pub const ENGINES: &[Engine] = &[
    Engine { name: "inplace", traditional: None, open: open_inplace },
    Engine { name: "nvm_inplace", traditional: Some("inplace"), open: open_nvm_inplace },
    Engine { name: "nvm_cow", traditional: Some("cow"), open: open_nvm_cow },
];

impl Engine {
    /// Opens the store of an allocator's region; makes an empty one if there is none.
    ///
    /// Errors: the region is too small, or damaged.
    pub fn open(&self, allocator: Arc<Allocator>, settings: StoreSettings) -> Result<Box<dyn Store>> {
        let owner = Owner::new(STORE_OWNER).ok_or_else(|| refused("there is no owner 1"))?;
        (self.open)(StoreRoot { allocator, owner, settings }).map_err(refused)
    }

    /// The engine of this name, if it joined.
    pub fn named(name: &str) -> Option<&'static Engine> {
        ENGINES.iter().find(|engine| engine.name == name)
    }
}

fn open_nvm_inplace(root: StoreRoot) -> StoreResult<Box<dyn Store>> {
    Ok(Box::new(NvmInplace::open(root.allocator, NAME, root.owner)?))
}

fn open_nvm_cow(root: StoreRoot) -> StoreResult<Box<dyn Store>> {
    let batch_transactions = root.settings.batch_transactions;
    let settings = NvmCowSettings { batch_transactions, ..NvmCowSettings::default() };
    Ok(Box::new(NvmCow::open(root.allocator, NAME, root.owner, settings)?))
}

fn open_inplace(root: StoreRoot) -> StoreResult<Box<dyn Store>> {
    let StoreSettings { system_call, checkpoint_log_bytes, .. } = root.settings;
    let settings = InplaceSettings { files: FileCosts { system_call }, checkpoint_log_bytes };
    Ok(Box::new(Inplace::open(root.allocator, NAME, root.owner, settings)?))
}
