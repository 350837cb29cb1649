//! One test harness for all table engines: a model, crash images, and runs without one of the write-backs or
//! fences.

mod batch_images;
mod batches;
mod costs;
mod crash;
mod damage;
mod drops;
mod failing_calls;
mod full_regions;
mod full_sweep;
mod group_commit;
mod life;
mod log_structured;
mod lookup_cache;
mod many_images;
mod model;
mod needed;
mod nvm_inplace_faults;
mod random;
mod savepoints;
mod shrinking_file;
mod sparse_nodes;

use std::sync::Arc;

use varve_memory::{
    Allocator, Cow, CowSettings, FileCosts, Inplace, InplaceSettings, LogSettings, LogStructured,
    LsmSettings, NvmCow, NvmCowSettings, NvmInplace, NvmInplaceSettings, NvmLogSettings, NvmLogStructured,
    Owner, Store, StoreResult,
};

/// An engine under test.
#[derive(Clone, Copy)]
pub struct Engine {
    pub name: &'static str,
    pub open: fn(Arc<Allocator>) -> StoreResult<Box<dyn Store>>,
}

pub static ENGINES: [Engine; 6] = [
    Engine { name: "nvm_inplace", open: open_nvm_inplace },
    Engine { name: "inplace", open: open_inplace },
    Engine { name: "nvm_cow", open: open_nvm_cow },
    Engine { name: "cow", open: open_cow },
    Engine { name: "nvm_log", open: open_nvm_log },
    Engine { name: "log", open: open_log },
];

/// Returns the engine with a name.
fn engine(name: &str) -> &'static Engine {
    let found = ENGINES.iter().find(|engine| engine.name == name);
    found.unwrap_or_else(|| panic!("there is no engine {name}"))
}

/// The name of the store's root.
const ROOT: &str = "partition 0";

fn owner(number: u16) -> Owner {
    Owner::new(number).unwrap_or_else(|| panic!("{number} is an owner"))
}

/// Opens the engine `nvm_inplace`. The cache of lookups grows once, and then tuples displace each other.
fn open_nvm_inplace(allocator: Arc<Allocator>) -> StoreResult<Box<dyn Store>> {
    let settings = NvmInplaceSettings { lookup_cache_bytes_max: 8192 };
    NvmInplace::open_with(allocator, ROOT, owner(1), settings).map(|store| Box::new(store) as Box<dyn Store>)
}

/// Opens the engine `inplace`. Checkpoints are frequent, so that short lives have some.
fn open_inplace(allocator: Arc<Allocator>) -> StoreResult<Box<dyn Store>> {
    let settings = InplaceSettings { checkpoint_log_bytes: 5000, ..InplaceSettings::default() };
    Inplace::open(allocator, ROOT, owner(1), settings).map(|store| Box::new(store) as Box<dyn Store>)
}

fn open_nvm_cow(allocator: Arc<Allocator>) -> StoreResult<Box<dyn Store>> {
    let settings = NvmCowSettings::default();
    NvmCow::open(allocator, ROOT, owner(1), settings).map(|store| Box::new(store) as Box<dyn Store>)
}

/// The settings of the LSM trees. MemTables are small, so that short lives have runs and merges.
const LSM: LsmSettings = LsmSettings { memtable_bytes: 3000, growth: 2 };

fn open_nvm_log(allocator: Arc<Allocator>) -> StoreResult<Box<dyn Store>> {
    let settings = NvmLogSettings { lsm: LSM };
    NvmLogStructured::open(allocator, ROOT, owner(1), settings).map(|store| Box::new(store) as Box<dyn Store>)
}

/// Opens the engine `log`. The cache of blocks is small, so that blocks lose their frames.
fn open_log(allocator: Arc<Allocator>) -> StoreResult<Box<dyn Store>> {
    let settings = LogSettings { lsm: LSM, files: FileCosts::default(), cache_bytes: 20_000 };
    LogStructured::open(allocator, ROOT, owner(1), settings).map(|store| Box::new(store) as Box<dyn Store>)
}

/// Opens the engine `cow`. The page cache is small, so that pages lose their frames.
fn open_cow(allocator: Arc<Allocator>) -> StoreResult<Box<dyn Store>> {
    let settings = CowSettings { cache_bytes: 80_000, ..CowSettings::default() };
    Cow::open(allocator, ROOT, owner(1), settings).map(|store| Box::new(store) as Box<dyn Store>)
}
