//! `nvm-cost-model`: bytes that an operation stores, compared with the cost model of the paper (Arulraj 2015,
//! appendix A, table 3).
//!
//! 1. The model splits bytes into memory, log and table. The measurement counts the sum of the bytes, and
//!    samples split the sum by parts of the engine. The part `tuple` corresponds to the model's memory, and
//!    the part `log` to its log. Bookkeeping has parts of its own (index, allocator, directory). The model
//!    has only a small constant for it.
//! 2. The bytes are those that an engine stores through the interface of the region. The numbers of lines and
//!    of media writes are not compared, because a formula of bytes cannot predict them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use varve_bench::Result;
use varve_device::Region;
use varve_memory::{Store, TableNo};

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::row::{Factors, Subject};
use super::super::table::TextTable;
use super::super::tell;
use super::super::verdict::Verdict;
use super::sizes::{PlacedBed, StoreSizes};
use super::ycsb::write_all;
use crate::stores::ycsb::{COLUMN_BYTES, MIXES, SKEWS, TUPLE_BYTES, Ycsb};
use crate::stores::{Bed, ENGINES, Engine, Part, Partition, PartitionLoad, SampledRegion, Split, refused};

/// The bar: an engine may store this many times the bytes of the model.
const BAR: f64 = 1.1;
/// Roughly the number of calls on the region that an operation makes. The interval between two samples is
/// computed from it.
const CALLS_OF_OPERATION: u64 = 16;
/// Samples of each kind of operation: at most 3,000 in all, and at most one for 4 operations.
const SAMPLES: u64 = 3_000;
const OPERATIONS_OF_SAMPLE: u64 = 4;
/// One tuple in this number is deleted.
const DELETED_EACH: u64 = 4;

/// Sizes that the model's formulas contain, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct ModelSizes {
    /// The size of a tuple (T).
    pub tuple: f64,
    /// The size of the fixed and variable fields that an update changes (F + V).
    pub fields: f64,
    /// The fixed fields among these (F).
    pub fixed: f64,
    /// The size of a pointer (p).
    pub pointer: f64,
    /// A node that a copy-on-write tree copies (B). It is 0 if the dirty directory already has a copy of the
    /// node.
    pub node: f64,
    /// The size of a small write (epsilon).
    pub small: f64,
    /// The write amplification of a log-structured tree (theta).
    pub amplification: f64,
}

/// The sizes of YCSB here. An update changes one column, which counts as a variable field. Copied nodes have
/// 4 KiB. Write amplification is 1, the least value that a log-structured tree can have.
const SIZES: ModelSizes = ModelSizes {
    tuple: TUPLE_BYTES as f64,
    fields: COLUMN_BYTES as f64,
    fixed: 0.0,
    pointer: 8.0,
    node: 4096.0,
    small: 8.0,
    amplification: 1.0,
};

/// A change of one tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Adds a tuple.
    Insert,
    /// Changes the value of one column.
    Update,
    /// Removes a tuple.
    Delete,
}

impl Operation {
    const ALL: [Operation; 3] = [Operation::Insert, Operation::Update, Operation::Delete];

    fn name(self) -> &'static str {
        match self {
            Operation::Insert => "insert",
            Operation::Update => "update",
            Operation::Delete => "delete",
        }
    }
}

/// Bytes that an operation stores according to the model, by category.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ModelBytes {
    /// Bytes in memory: the tuple in its slot, or in a cached node.
    pub memory: f64,
    /// Bytes in the log.
    pub log: f64,
    /// Bytes in the table storage: checkpoints, directories, runs.
    pub table: f64,
}

impl ModelBytes {
    fn total(self) -> f64 {
        self.memory + self.log + self.table
    }
}

/// Returns the model's bytes of an operation (table 3). Returns `None` for an engine that the table does not
/// have.
pub fn model_bytes(engine: &str, operation: Operation, sizes: &ModelSizes) -> Option<ModelBytes> {
    let ModelSizes { tuple, fields, fixed, pointer, node, small, amplification } = *sizes;
    let [insert, update, delete] = match engine {
        "inplace" => [[tuple, tuple, tuple], [fields, 2.0 * fields, fields], [small, tuple, small]],
        "cow" => {
            // If the dirty directory already has a copy of the node (`node` is 0), only the change is
            // written.
            let table = |change: f64| if node > 0.0 { node } else { change };
            [
                [node + tuple, 0.0, table(tuple)],
                [node + fields, 0.0, table(fields)],
                [node + small, 0.0, table(small)],
            ]
        }
        "log" => [
            [tuple, tuple, amplification * tuple],
            [fields, 2.0 * fields, amplification * fields],
            [small, tuple, small],
        ],
        "nvm_inplace" => {
            [[tuple, pointer, pointer], [fields + pointer, fixed + pointer, 0.0], [small, pointer, small]]
        }
        "nvm_cow" => {
            [[tuple, 0.0, node + pointer], [tuple + fields, 0.0, node + pointer], [small, 0.0, node + small]]
        }
        "nvm_log" => [
            [tuple, pointer, amplification * tuple],
            [fields + pointer, fixed + pointer, amplification * (fixed + pointer)],
            [small, pointer, small],
        ],
        _ => return None,
    };
    let [memory, log, table] = match operation {
        Operation::Insert => insert,
        Operation::Update => update,
        Operation::Delete => delete,
    };
    Some(ModelBytes { memory, log, table })
}

/// The bytes of an operation: measured, and of the model.
#[derive(Debug, Clone, Serialize)]
struct CostRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    #[serde(skip)]
    engine: &'static str,
    #[serde(skip)]
    operation: &'static str,
    operations: u64,
    /// Bytes that an operation stored, on average.
    stored_bytes: f64,
    /// These bytes by parts of the engine. The map is empty if the program has no symbols.
    stored_by_part: BTreeMap<&'static str, f64>,
    model: ModelBytes,
}

/// A number of operations, and the bytes that they stored.
struct Stored {
    operations: u64,
    bytes: u64,
    split: Option<Split>,
}

impl Stored {
    fn of_operation(&self) -> f64 {
        self.bytes as f64 / self.operations.max(1) as f64
    }

    fn by_part(&self) -> BTreeMap<&'static str, f64> {
        let Some(split) = &self.split else { return BTreeMap::new() };
        Part::ALL.map(|part| (part.name(), self.of_operation() * split.share(part))).into()
    }
}

/// Runs the experiment `nvm-cost-model`.
pub fn nvm_cost_model(lab: &mut Lab<'_>) -> Result<()> {
    let sizes = StoreSizes::of(lab);
    let placed = PlacedBed::make(lab, &sizes.bed(), 1)?;
    let mut rows = Vec::new();
    for engine in ENGINES {
        let measured = operations(&placed.bed, engine, sizes)?;
        for (operation, stored) in Operation::ALL.into_iter().zip(measured) {
            let factors =
                Factors::from([("engine", engine.name.into()), ("operation", operation.name().into())]);
            let Some(model) = model_bytes(engine.name, operation, &SIZES).filter(|_| lab.wants(&factors))
            else {
                continue;
            };
            let Subject { experiment, figure } = lab.subject();
            let (row, engine, operation) = ("cost", engine.name, operation.name());
            let row = CostRow {
                row,
                experiment,
                figure,
                factors,
                engine,
                operation,
                operations: stored.operations,
                stored_bytes: stored.of_operation(),
                stored_by_part: stored.by_part(),
                model,
            };
            lab.write_row(&row)?;
            rows.push(row);
        }
    }
    let claims = write_all(lab, rows.iter().map(claim).collect())?;
    lab.say_tables(&[table(&rows), tell::claims_table(&claims)])
}

/// Measures what each kind of operation stores, in the order of [`Operation::ALL`].
fn operations(bed: &Bed, engine: &Engine, sizes: StoreSizes) -> Result<[Stored; 3]> {
    let region = bed.region(0).ok_or_else(|| refused("there is no region"))?;
    let counted = Arc::clone(region);
    let meter = Box::new(move || counted.tally().stored_bytes as f64);
    let sampled = SampledRegion::wrap(Arc::clone(region), meter);
    let seen = Arc::clone(&sampled) as Arc<dyn Region>;
    let mut partition = Partition::create(engine, seen, None, bed.settings)?;
    let store = partition.store.as_mut();
    let mut update = MIXES[3];
    update.reads_percent = 0;
    let load = Ycsb::new(update, SKEWS[0], sizes.tuples, sizes.transactions, 1);
    let inserted = stored(&sampled, sizes.tuples, &mut || {
        load.load(store)?;
        store.sync().map_err(refused)
    })?;
    let (numbers, mut worker) = (0..load.transactions(), load.worker());
    let updated = stored(&sampled, load.transactions() as u64, &mut || {
        crate::stores::run(worker.as_mut(), store, numbers.clone(), bed.group, &mut || ()).map(drop)
    })?;
    let deletes = sizes.tuples.div_ceil(DELETED_EACH);
    let deleted = stored(&sampled, deletes, &mut || delete(store, sizes.tuples, bed.group).map(drop))?;
    Ok([inserted, updated, deleted])
}

/// Runs operations, and samples the bytes that they store.
fn stored(sampled: &SampledRegion, operations: u64, work: &mut dyn FnMut() -> Result<()>) -> Result<Stored> {
    let before = sampled.tally().stored_bytes;
    let samples = SAMPLES.min(operations / OPERATIONS_OF_SAMPLE).max(1);
    sampled.begin(2 * samples as usize, operations * CALLS_OF_OPERATION / samples);
    work()?;
    let samples = sampled.end();
    let bytes = sampled.tally().stored_bytes - before;
    // If the program has no symbols, the sum cannot be split by parts.
    Ok(Stored { operations, bytes, split: Split::of(&samples, f64::INFINITY).ok() })
}

/// Deletes some tuples, each in a transaction of its own, and returns their number.
fn delete(store: &mut dyn Store, tuples: u64, group: usize) -> Result<u64> {
    let mut deleted = 0;
    for key in (0..tuples).step_by(DELETED_EACH as usize) {
        store.delete(TableNo::new(0), &key.to_be_bytes()).map_err(refused)?;
        store.commit().map_err(refused)?;
        deleted += 1;
        if deleted % group as u64 == 0 {
            store.sync().map_err(refused)?;
        }
    }
    store.sync().map_err(refused)?;
    Ok(deleted)
}

fn claim(row: &CostRow) -> Claim {
    let ours = row.stored_bytes / row.model.total();
    let says = "bytes stored / bytes of the model".to_owned();
    let claim = Claim::found(&row.factors, says, ours).of_rounds(1);
    claim.judged(BAR, Verdict::at_most(BAR, ours))
}

fn table(rows: &[CostRow]) -> TextTable {
    let mut head = vec!["engine", "operation", "stored bytes", "model", "memory", "log", "table"];
    let parts = Part::ALL.map(|part| format!("stored: {}", part.name()));
    head.extend(parts.iter().map(String::as_str));
    let mut table = TextTable::headed(&head);
    for row in rows {
        let ModelBytes { memory, log, table: of_table } = row.model;
        let mut line = vec![row.engine.to_owned(), row.operation.to_owned()];
        let figures = [row.stored_bytes, row.model.total(), memory, log, of_table];
        let by_part = Part::ALL.map(|part| row.stored_by_part.get(part.name()).copied().unwrap_or_default());
        line.extend(figures.iter().chain(&by_part).map(|bytes| format!("{bytes:.0}")));
        table.push(line);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const TESTED: ModelSizes = ModelSizes {
        tuple: 1000.0,
        fields: 108.0,
        fixed: 8.0,
        pointer: 7.0,
        node: 4096.0,
        small: 1.0,
        amplification: 3.0,
    };

    fn bytes(engine: &str, operation: Operation, sizes: &ModelSizes) -> [f64; 3] {
        let ModelBytes { memory, log, table } =
            model_bytes(engine, operation, sizes).expect("an engine of it");
        [memory, log, table]
    }

    /// Compares the formulas with table 3, whose values were computed by hand for these sizes.
    #[test]
    fn the_table_has_the_published_formulas() {
        let of = |engine| Operation::ALL.map(|operation| bytes(engine, operation, &TESTED));
        assert_eq!(of("inplace"), [[1000.0, 1000.0, 1000.0], [108.0, 216.0, 108.0], [1.0, 1000.0, 1.0]]);
        assert_eq!(of("cow"), [[5096.0, 0.0, 4096.0], [4204.0, 0.0, 4096.0], [4097.0, 0.0, 4096.0]]);
        assert_eq!(of("log"), [[1000.0, 1000.0, 3000.0], [108.0, 216.0, 324.0], [1.0, 1000.0, 1.0]]);
        assert_eq!(of("nvm_inplace"), [[1000.0, 7.0, 7.0], [115.0, 15.0, 0.0], [1.0, 7.0, 1.0]]);
        assert_eq!(of("nvm_cow"), [[1000.0, 0.0, 4103.0], [1108.0, 0.0, 4103.0], [1.0, 0.0, 4097.0]]);
        assert_eq!(of("nvm_log"), [[1000.0, 7.0, 3000.0], [115.0, 15.0, 45.0], [1.0, 7.0, 1.0]]);
    }

    /// The right side of the table's bars: the dirty directory already has a copy of the node.
    #[test]
    fn a_copied_node_is_not_copied_again() {
        let present = ModelSizes { node: 0.0, ..TESTED };
        let of = |engine| Operation::ALL.map(|operation| bytes(engine, operation, &present));
        assert_eq!(of("cow"), [[1000.0, 0.0, 1000.0], [108.0, 0.0, 108.0], [1.0, 0.0, 1.0]]);
        assert_eq!(of("nvm_cow"), [[1000.0, 0.0, 7.0], [1108.0, 0.0, 7.0], [1.0, 0.0, 1.0]]);
    }
}
