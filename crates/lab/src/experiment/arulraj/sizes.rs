//! Sizes of the experiments on memory-oriented engines, and the regions that they run in.
//!
//! | size | paper | here |
//! |---|---|---|
//! | partitions | 8 | 1 or 2 |
//! | tuples of a partition | 250,000 | the same with `--full`, a tenth with `--quick` |
//! | modelled cache of a partition | 2.5 MB of 20 MB | the same for each tuple |
//! | transactions of a partition | 1,000,000 | four for each tuple, as there |
//! | commits in a group | not in text | 100 |
//! | log bytes between two checkpoints | not in text | as many as the data has |

use std::time::Duration;

use varve_bench::Result;
use varve_device::CacheShape;

use super::super::copies::Copied;
use super::super::lab::Lab;
use crate::stores::ycsb::TUPLE_BYTES;
use crate::stores::{Bed, StoreSettings, system_call};

/// Tuples of a partition of the paper.
const PAPER_TUPLES: u64 = 250_000;
/// Partitions of the paper, which share its cache.
const PAPER_PARTITIONS: u64 = 8;
const TRANSACTIONS_OF_A_TUPLE: u64 = 4;
/// Commits that are made durable together.
const GROUP: usize = 100;
/// Bytes of a region for each byte of tuples: an old and a new checkpoint, a log, and copies.
const REGION_FACTOR: u64 = 8;
/// Bytes of a region beside that: segments of the size classes.
const REGION_BYTES: u64 = 24 << 20;

/// Sizes of a partition.
#[derive(Debug, Clone, Copy)]
pub struct StoreSizes {
    /// Tuples of YCSB.
    pub tuples: u64,
    /// Transactions of YCSB.
    pub transactions: usize,
    /// Bytes of its rows.
    pub data_bytes: u64,
}

impl StoreSizes {
    /// The sizes that the user asked for.
    pub fn of(lab: &Lab<'_>) -> Self {
        let tuples = lab.scale().store_tuples;
        let transactions = (tuples * TRANSACTIONS_OF_A_TUPLE) as usize;
        Self { tuples, transactions, data_bytes: tuples * TUPLE_BYTES as u64 }
    }

    /// The modelled cache of a partition: the paper's part of the paper's, for each tuple.
    pub fn cache(&self) -> CacheShape {
        let whole = CacheShape::PAPER.split(PAPER_PARTITIONS);
        let bytes = u128::from(whole.bytes) * u128::from(self.tuples) / u128::from(PAPER_TUPLES);
        CacheShape { bytes: u64::try_from(bytes).unwrap_or(u64::MAX), ..whole }
    }

    fn region_bytes(&self) -> u64 {
        (self.data_bytes * REGION_FACTOR + REGION_BYTES).next_multiple_of(1 << 20)
    }
}

/// A bed, and the directory of its regions, which is removed with it.
pub struct PlacedBed {
    /// The bed.
    pub bed: Bed,
    _place: Copied,
}

impl PlacedBed {
    /// Maps the regions, measures a system call, and says what is measured how.
    pub fn make(lab: &mut Lab<'_>, sizes: StoreSizes, partitions: usize) -> Result<Self> {
        let place = lab.empty("stores")?;
        let directory = &place.place().region;
        let regions = Bed::open(directory, partitions, sizes.region_bytes())?;
        let settings = StoreSettings {
            system_call: system_call(directory)?,
            checkpoint_log_bytes: sizes.data_bytes,
            batch_transactions: GROUP,
        };
        let bed = Bed::new(regions, sizes.cache(), GROUP, settings);
        lab.say(&describe(&bed, sizes))?;
        Ok(Self { bed, _place: place })
    }
}

/// What a reader has to know about all figures of a bed.
fn describe(bed: &Bed, sizes: StoreSizes) -> String {
    let facts = bed.region(0).map(|region| region.facts());
    let (medium, write_back) =
        facts.map_or(("none", "none"), |facts| (facts.medium.name(), facts.write_back.name()));
    let nanoseconds = |time: Duration| time.as_nanos();
    format!(
        "persistent memory is {medium}, written back by {write_back}; latencies are modelled (decision 0110)\n\
         {} partitions (the paper has 8), each with {} tuples and {} transactions; modelled cache of {} KiB, {} ways, each\n\
         groups of {} commits; a call on a file takes {} ns beside its work, as a call on a file in memory does here",
        bed.partitions(),
        sizes.tuples,
        sizes.transactions,
        bed.cache.bytes >> 10,
        bed.cache.ways,
        bed.group,
        nanoseconds(bed.settings.system_call),
    )
}
