//! Sizes of the experiments on memory-oriented engines, and the regions that they run in.
//!
//! | size | paper | here |
//! |---|---|---|
//! | partitions | 8 | 1 or 2 |
//! | tuples of a partition (YCSB) | 250,000 | the same with `--full`, a tenth with `--quick` |
//! | warehouses of a partition (TPC-C) | 1 | 4 with `--full`, 1 with `--quick` |
//! | items of a warehouse | 100,000 | the same with `--full`, a tenth with `--quick` |
//! | customers of a district | 3,000 | three for each 100 items, as there |
//! | modelled cache of a partition | 2.5 MB of 20 MB | the same for each tuple, or for each item |
//! | transactions of a partition (YCSB) | 1,000,000 | four for each tuple, as there |
//! | transactions of a partition (TPC-C) | not in text | two for each item, so space grows about as there |
//! | commits in a group | not in text | 100 |
//! | log bytes between two checkpoints | not in text | as many as the data has |
//! | page cache of `cow` | not in text | a quarter of the data, so the hot fifth fits |
//! | MemTable | not in text | a 64th of the data, as LevelDB's 4 MB of 250 MB |

use std::time::Duration;

use varve_bench::{Result, tpcc};
use varve_device::CacheShape;

use super::super::copies::Copied;
use super::super::lab::Lab;
use crate::stores::ycsb::TUPLE_BYTES;
use crate::stores::{Bed, StoreSettings, system_call};

/// Tuples of a partition in the paper.
const PAPER_TUPLES: u64 = 250_000;
/// Partitions in the paper. They share its cache.
const PAPER_PARTITIONS: u64 = 8;
const TRANSACTIONS_OF_A_TUPLE: u64 = 4;
/// Commits that one flush makes durable together.
pub const GROUP: usize = 100;
/// Bytes of a region for each byte of rows: an old and a new checkpoint, a log, and copies.
const REGION_FACTOR: u64 = 8;
/// Bytes of a region in addition to `REGION_FACTOR`: the allocator's segments for its size classes need them.
const REGION_BYTES: u64 = 24 << 20;
/// Items of a warehouse in the paper.
const PAPER_ITEMS: u64 = 100_000;
/// The number of TPC-C's transactions for each item of a warehouse.
const TRANSACTIONS_OF_AN_ITEM: i64 = 2;
/// Bytes of TPC-C's rows for each item: the item and its stock.
const ITEM_BYTES: i64 = 410;
/// Bytes of TPC-C's rows for each customer: the customer, a payment, an order and ten lines.
const CUSTOMER_BYTES: i64 = 1_400;
/// The space of TPC-C's rows at the end of a run, divided by their space at its beginning.
const TPCC_GROWTH: u64 = 3;
/// The size of the data, as a multiple of the page cache of `cow`.
const DATA_OF_PAGE_CACHE: u64 = 4;
/// The size of the data, as a multiple of a MemTable.
const DATA_OF_MEMTABLE: u64 = 64;
/// Bytes of a node of `nvm_cow`, as in the paper.
pub const COW_NODE_BYTES: usize = 4096;

/// Returns the modelled cache of a partition with `rows` rows. The paper's share of its cache is made smaller
/// in the ratio of `rows` to `paper_rows`.
fn cache_of(rows: u64, paper_rows: u64) -> CacheShape {
    let whole = CacheShape::PAPER.split(PAPER_PARTITIONS);
    let bytes = u128::from(whole.bytes) * u128::from(rows) / u128::from(paper_rows);
    CacheShape { bytes: u64::try_from(bytes).unwrap_or(u64::MAX), ..whole }
}

/// Sizes of a partition under any load.
#[derive(Debug, Clone)]
pub struct BedSizes {
    /// A description of the rows, for people.
    pub rows: String,
    /// Bytes of the rows before the first transaction.
    pub data_bytes: u64,
    /// Bytes of the rows at the end.
    pub grown_bytes: u64,
    /// The modelled cache of the partition.
    pub cache: CacheShape,
}

impl BedSizes {
    /// Returns the bytes of a partition's region.
    pub fn region_bytes(&self) -> u64 {
        (self.grown_bytes * REGION_FACTOR + REGION_BYTES).next_multiple_of(1 << 20)
    }

    fn settings(&self, system_call: Duration) -> StoreSettings {
        StoreSettings {
            system_call,
            checkpoint_log_bytes: self.data_bytes,
            batch_transactions: GROUP,
            node_bytes: COW_NODE_BYTES,
            cache_bytes: (self.data_bytes / DATA_OF_PAGE_CACHE) as usize,
            memtable_bytes: self.data_bytes / DATA_OF_MEMTABLE,
        }
    }
}

/// The sizes of YCSB in a partition.
#[derive(Debug, Clone, Copy)]
pub struct StoreSizes {
    /// The number of tuples.
    pub tuples: u64,
    /// The number of transactions.
    pub transactions: usize,
}

impl StoreSizes {
    /// Returns the sizes that the user asked for.
    pub fn of(lab: &Lab<'_>) -> Self {
        let tuples = lab.scale().store_tuples;
        Self { tuples, transactions: (tuples * TRANSACTIONS_OF_A_TUPLE) as usize }
    }

    /// Returns the sizes of a partition, from which its region and settings are computed.
    pub fn bed(&self) -> BedSizes {
        let data_bytes = self.tuples * TUPLE_BYTES as u64;
        let rows = format!("{} tuples and {} transactions", self.tuples, self.transactions);
        BedSizes { rows, data_bytes, grown_bytes: data_bytes, cache: cache_of(self.tuples, PAPER_TUPLES) }
    }
}

/// The sizes of TPC-C in a partition.
#[derive(Debug, Clone, Copy)]
pub struct TpccSizes {
    /// The numbers of rows.
    pub scale: tpcc::Scale,
    /// The number of transactions.
    pub transactions: usize,
}

impl TpccSizes {
    /// Returns the sizes that the user asked for.
    pub fn of(lab: &Lab<'_>) -> Self {
        let scale = lab.scale().store_tpcc;
        let transactions = (scale.warehouses * scale.items * TRANSACTIONS_OF_AN_ITEM) as usize;
        Self { scale, transactions }
    }

    /// Returns the sizes of a partition, from which its region and settings are computed.
    pub fn bed(&self) -> BedSizes {
        let tpcc::Scale { warehouses, districts, customers, items } = self.scale;
        let data_bytes = (warehouses * (items * ITEM_BYTES + districts * customers * CUSTOMER_BYTES)) as u64;
        let rows = format!(
            "{warehouses} warehouses, {items} items, {customers} customers a district and {} transactions",
            self.transactions
        );
        let cache = cache_of((warehouses * items) as u64, PAPER_ITEMS);
        BedSizes { rows, data_bytes, grown_bytes: data_bytes * TPCC_GROWTH, cache }
    }
}

/// A test bed, and the directory of its regions. The directory is removed when this value is dropped.
pub struct PlacedBed {
    /// The bed.
    pub bed: Bed,
    _place: Copied,
}

impl PlacedBed {
    /// Maps the regions, measures the time of a system call, and prints how the test bed measures.
    pub fn make(lab: &mut Lab<'_>, sizes: &BedSizes, partitions: usize) -> Result<Self> {
        let place = lab.empty("stores")?;
        let directory = &place.place().region;
        let regions = Bed::open(directory, partitions, sizes.region_bytes())?;
        let settings = sizes.settings(system_call(directory)?);
        let bed = Bed::new(regions, sizes.cache, GROUP, settings);
        lab.say(&describe(&bed, sizes))?;
        Ok(Self { bed, _place: place })
    }
}

/// Returns a description of the measurement, which a reader needs for all figures of a bed.
fn describe(bed: &Bed, sizes: &BedSizes) -> String {
    let facts = bed.region(0).map(|region| region.facts());
    let (medium, write_back) =
        facts.map_or(("none", "none"), |facts| (facts.medium.name(), facts.write_back.name()));
    let StoreSettings { system_call, cache_bytes, memtable_bytes, .. } = bed.settings;
    format!(
        "persistent memory is {medium}, written back by {write_back}; latencies are modelled (decision 0110)\n\
         {} partitions (the paper has 8), each with {}; modelled cache of {} KiB, {} ways, each\n\
         groups of {} commits; a call on a file takes {} ns beside its work, as a call on a file in memory does here\n\
         lookups of nvm_inplace search its tree, as in the paper, or ask a cache in DRAM first where a row says so \
         (up to 64 MiB for each index, as in tables of SQL; accesses to it are not counted)\n\
         page cache of cow, and block cache of log where a row says so: {} KiB; MemTables of {} KiB; 1, 5 and 15 minutes' load of the machine: {}",
        bed.partitions(),
        sizes.rows,
        bed.cache.bytes >> 10,
        bed.cache.ways,
        bed.group,
        system_call.as_nanos(),
        cache_bytes >> 10,
        memtable_bytes >> 10,
        load_of_machine(),
    )
}

/// Returns the load averages of the machine, as the kernel reports them. The text is "unknown" if the kernel
/// has no such file.
fn load_of_machine() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let words: Vec<&str> = text.split(' ').take(3).collect();
    if words.len() == 3 { words.join(", ") } else { "unknown".to_owned() }
}
