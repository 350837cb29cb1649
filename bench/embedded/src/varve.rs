//! Varve's six memory-oriented engines, by the trait [`Store`] of the crate `memory`.
//!
//! A region of persistent memory is mapped from a file in main memory. A commit writes cache lines back and
//! waits for a fence. A call on a file inside the region takes as long as a call on a file of the file
//! system.
//!
//! This module does not know several partitions or SQL.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use varve_device::{Directory, FileDirectory, FileOptions, thread_cpu_ns};
use varve_memory::{
    Allocator, Commit, Cow, CowSettings, FileCosts, Inplace, InplaceSettings, LogSettings, LogStructured,
    LsmSettings, NvmCow, NvmCowSettings, NvmInplace, NvmInplaceSettings, NvmLogSettings, NvmLogStructured,
    Owner, Store, StoreResult, TableNo,
};

use crate::Failure;
use crate::database::{Database, Kind, MEMTABLE_BYTES, Sizes};
use crate::workload::{KEY_BYTES, Workload};

const REGION: &str = "region";
/// Name of the store's root.
const ROOT: &str = "store";
const DATABASE: u64 = 1;
const TABLE: TableNo = TableNo::new(0);
/// Bytes of the region for each byte of rows: old and new runs or checkpoints, logs, and a page cache.
const REGION_FACTOR: u64 = 5;
const REGION_BYTES: u64 = 256 << 20;
/// Rows that the load commits together.
const LOADED_TOGETHER: u64 = 64;
/// A batch is ended by `sync`, never by its length.
const BATCH: usize = usize::MAX;

/// All engines.
pub const KINDS: [Kind; 7] = [
    Kind {
        name: "inplace",
        durable_by: "log record, 2 fences",
        group_by: Some("one write of the log"),
        needs_memory: true,
        create: |path, sizes| {
            create(path, sizes, |root| {
                let checkpoint_log_bytes = sizes.data_bytes.max(64 << 20);
                let settings = InplaceSettings { files: root.files, checkpoint_log_bytes };
                Ok(Box::new(Inplace::open(root.allocator, ROOT, root.owner, settings)?))
            })
        },
    },
    Kind {
        name: "nvm_inplace",
        durable_by: "write-back and fences",
        group_by: None,
        needs_memory: true,
        create: |path, sizes| create_nvm_inplace(path, sizes, NvmInplaceSettings::WITHOUT_CACHE),
    },
    Kind {
        name: "nvm_inplace_cached",
        durable_by: "write-back and fences; lookups cached in DRAM",
        group_by: None,
        needs_memory: true,
        create: |path, sizes| create_nvm_inplace(path, sizes, NvmInplaceSettings::WITH_CACHE),
    },
    Kind {
        name: "cow",
        durable_by: "pages, then the master record",
        group_by: Some("one batch of the tree"),
        needs_memory: true,
        create: |path, sizes| {
            create(path, sizes, |root| {
                let settings = CowSettings {
                    files: root.files,
                    batch_transactions: BATCH,
                    cache_bytes: sizes.cache_bytes,
                };
                Ok(Box::new(Cow::open(root.allocator, ROOT, root.owner, settings)?))
            })
        },
    },
    Kind {
        name: "nvm_cow",
        durable_by: "nodes, then the master record",
        group_by: Some("one batch of the tree"),
        needs_memory: true,
        create: |path, sizes| {
            create(path, sizes, |root| {
                let settings = NvmCowSettings { batch_transactions: BATCH, ..NvmCowSettings::default() };
                Ok(Box::new(NvmCow::open(root.allocator, ROOT, root.owner, settings)?))
            })
        },
    },
    Kind {
        name: "log",
        durable_by: "log record, 2 fences",
        group_by: Some("one write of the log"),
        needs_memory: true,
        create: |path, sizes| {
            create(path, sizes, |root| {
                let settings = LogSettings { files: root.files, lsm: lsm(), cache_bytes: sizes.cache_bytes };
                Ok(Box::new(LogStructured::open(root.allocator, ROOT, root.owner, settings)?))
            })
        },
    },
    Kind {
        name: "nvm_log",
        durable_by: "write-back and fences",
        group_by: None,
        needs_memory: true,
        create: |path, sizes| {
            create(path, sizes, |root| {
                let settings = NvmLogSettings { lsm: lsm() };
                Ok(Box::new(NvmLogStructured::open(root.allocator, ROOT, root.owner, settings)?))
            })
        },
    },
];

/// Makes the engine `nvm_inplace`, with the cache of lookups that tables of SQL have, or without it, as in
/// the paper.
fn create_nvm_inplace(
    path: &Path,
    sizes: Sizes,
    settings: NvmInplaceSettings,
) -> Result<Box<dyn Database>, Failure> {
    create(path, sizes, |root| {
        Ok(Box::new(NvmInplace::open_with(root.allocator, ROOT, root.owner, settings)?))
    })
}

fn lsm() -> LsmSettings {
    LsmSettings { memtable_bytes: MEMTABLE_BYTES as u64, ..LsmSettings::default() }
}

/// The data with which a store is opened.
struct StoreRoot {
    allocator: Arc<Allocator>,
    owner: Owner,
    files: FileCosts,
}

fn create(
    path: &Path,
    sizes: Sizes,
    open: impl FnOnce(StoreRoot) -> StoreResult<Box<dyn Store>>,
) -> Result<Box<dyn Database>, Failure> {
    let directory = FileDirectory::open_or_create(path, FileOptions::default())?;
    let region_bytes = (sizes.data_bytes * REGION_FACTOR + REGION_BYTES).next_multiple_of(1 << 20);
    let allocator = Arc::new(Allocator::format(directory.map(REGION, region_bytes)?, DATABASE)?);
    let owner = |number| Owner::new(number).ok_or("an owner's number");
    let files = FileCosts { system_call: system_call(path)?, ..FileCosts::default() };
    let mut store = open(StoreRoot { allocator, owner: owner(1)?, files })?;
    store.create_table(owner(2)?, 1)?;
    Ok(Box::new(Varve { store, row: Vec::new() }))
}

/// Returns the processor time of a call on a file of the directory: the mean of a write of one byte and of
/// `fsync`.
fn system_call(path: &Path) -> Result<Duration, Failure> {
    const PAIRS: u32 = 2000;
    let path = path.join("system-call");
    let file = File::options().write(true).create(true).truncate(true).open(&path)?;
    let began_ns = thread_cpu_ns();
    for number in 0..PAIRS {
        file.write_at(&[0], u64::from(number))?;
        file.sync_all()?;
    }
    let each = Duration::from_nanos(thread_cpu_ns() - began_ns) / (2 * PAIRS);
    std::fs::remove_file(&path)?;
    Ok(each)
}

struct Varve {
    store: Box<dyn Store>,
    row: Vec<u8>,
}

impl Database for Varve {
    fn load(&mut self, load: &Workload) -> Result<(), Failure> {
        let mut row = Vec::new();
        for key in 0..load.rows() {
            load.row(key, &mut row);
            self.store.insert(TABLE, &[&key.to_be_bytes()], &row)?;
            if key % LOADED_TOGETHER == LOADED_TOGETHER - 1 {
                self.store.commit()?;
                self.store.sync()?;
            }
        }
        self.store.commit()?;
        Ok(self.store.sync()?)
    }

    fn run(&mut self, load: &Workload, group: usize) -> Result<(), Failure> {
        let (store, mut pending) = (&mut self.store, 0);
        for operation in load.operations() {
            let key: [u8; KEY_BYTES] = operation.key.to_be_bytes();
            let is_there = match operation.change {
                None => store.get(TABLE, 0, &key, &mut self.row)?,
                Some(change) => {
                    let (at, text) = load.patch(change);
                    store.patch(TABLE, &key, at, text)?
                }
            };
            if !is_there {
                return Err(format!("there is no row {}", operation.key).into());
            }
            let is_pending = operation.change.is_some() && store.commit()? == Commit::Pending;
            pending += usize::from(is_pending);
            if pending >= group {
                store.sync()?;
                pending = 0;
            }
        }
        Ok(store.sync()?)
    }

    fn read(&mut self, key: u64, row: &mut Vec<u8>) -> Result<bool, Failure> {
        Ok(self.store.get(TABLE, 0, &key.to_be_bytes(), row)?)
    }
}
