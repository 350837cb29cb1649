//! `nvm-interfaces`: durable bandwidth of memory from the allocator, and of files in the same region. The
//! bytes of a write are varied (Arulraj 2015, section 2.2, figure 1).
//!
//! A write to memory is a store, a write-back and a fence. A write to a file is a call that writes and a call
//! of `fsync`. Only the processor's time is measured, because neither kind of write waits for a device.

use std::sync::Arc;

use serde::Serialize;

use varve_bench::Result;
use varve_bench::random::Random;
use varve_bench::report::Spread;
use varve_device::{Region, thread_cpu_ns};
use varve_memory::{Allocator, FileCosts, FileHandle, Files, Owner};

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::row::{Factors, Subject};
use super::super::table::TextTable;
use super::super::tell;
use super::super::verdict::{Better, Verdict};
use super::sizes::{PlacedBed, StoreSizes};
use super::ycsb::write_all;
use crate::stores::refused;

/// Bytes of the area that the writes overwrite.
const AREA_BYTES: u64 = 4 << 20;
const CHUNKS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const PATTERNS: [&str; 2] = ["sequential", "random"];
/// Writes of a round. Tests do a tenth of them.
const WRITES: u64 = 20_000;
/// The number of rounds of each point.
const ROUNDS: usize = 5;

/// The bandwidths of both interfaces for one size of a write.
#[derive(Debug, Clone, Serialize)]
struct InterfaceRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    #[serde(skip)]
    pattern: &'static str,
    #[serde(skip)]
    chunk_bytes: usize,
    /// Durable bandwidth of memory from the allocator, in MB/s.
    allocator_mb_s: Spread,
    /// Durable bandwidth of a file, in MB/s.
    file_mb_s: Spread,
}

impl InterfaceRow {
    fn ratio(&self) -> f64 {
        self.allocator_mb_s.median / self.file_mb_s.median
    }
}

/// Runs the experiment `nvm-interfaces`.
pub fn nvm_interfaces(lab: &mut Lab<'_>) -> Result<()> {
    let sizes = StoreSizes::of(lab);
    let placed = PlacedBed::make(lab, &sizes.bed(), 1)?;
    let region = placed.bed.region(0).ok_or_else(|| refused("there is no region"))?;
    let writes = if sizes.tuples < 1_000 { WRITES / 10 } else { WRITES };
    let system_call = placed.bed.settings.system_call;
    let costs = FileCosts { system_call, ..FileCosts::default() };
    let mut written = Written::prepare(region, costs, writes)?;
    let mut rows = Vec::new();
    for pattern in PATTERNS {
        for chunk_bytes in CHUNKS {
            let factors = Factors::from([("pattern", pattern.into()), ("bytes", chunk_bytes.into())]);
            if lab.wants(&factors) {
                let places = Places { pattern, chunk_bytes };
                let (mut allocator, mut file) = (Vec::new(), Vec::new());
                for _ in 0..ROUNDS {
                    allocator.push(written.write_memory(places));
                    file.push(written.write_file(places)?);
                }
                let Subject { experiment, figure } = lab.subject();
                let (allocator_mb_s, file_mb_s) = (Spread::of(&allocator), Spread::of(&file));
                let row = "interface";
                let row = InterfaceRow {
                    row,
                    experiment,
                    figure,
                    factors,
                    pattern,
                    chunk_bytes,
                    allocator_mb_s,
                    file_mb_s,
                };
                lab.write_row(&row)?;
                rows.push(row);
            }
        }
    }
    let claims = write_all(lab, PATTERNS.into_iter().flat_map(|pattern| claims(pattern, &rows)).collect())?;
    lab.say_tables(&[table(&rows), tell::claims_table(&claims)])
}

/// The order of the offsets of writes, and the size of a write.
#[derive(Clone, Copy)]
struct Places {
    pattern: &'static str,
    chunk_bytes: usize,
}

impl Places {
    /// Returns the offsets at which this number of writes are made.
    fn offsets(self, writes: u64) -> impl Iterator<Item = u64> {
        let (bytes, is_random) = (self.chunk_bytes as u64, self.pattern == "random");
        let (places, mut random) = (AREA_BYTES / bytes, Random::seeded(bytes));
        (0..writes).map(move |number| bytes * if is_random { random.below(places) } else { number % places })
    }
}

/// A range of memory and a file of the same length, which the measurement overwrites.
struct Written {
    region: Arc<dyn Region>,
    memory_at: u64,
    files: Files,
    file: FileHandle,
    writes: u64,
}

impl Written {
    fn prepare(region: &Arc<dyn Region>, costs: FileCosts, writes: u64) -> Result<Self> {
        let owner = |number| Owner::new(number).ok_or_else(|| refused("there is no such owner"));
        let allocator = Arc::new(Allocator::format(Arc::clone(region), 1).map_err(refused)?);
        let chunk = allocator.allocate(owner(1)?, AREA_BYTES).map_err(refused)?;
        allocator.activate(chunk).map_err(refused)?;
        let mut files = Files::open(Arc::clone(&allocator), "files", owner(2)?, costs).map_err(refused)?;
        let file = files.create("written").map_err(refused)?;
        files.write_at(file, 0, &vec![0; AREA_BYTES as usize]).map_err(refused)?;
        files.fsync(file).map_err(refused)?;
        Ok(Self { region: Arc::clone(region), memory_at: chunk.to_u64(), files, file, writes })
    }

    fn mb_s(&self, places: Places, began_ns: u64) -> f64 {
        let ns = thread_cpu_ns().saturating_sub(began_ns).max(1);
        (self.writes * places.chunk_bytes as u64) as f64 * 1000.0 / ns as f64
    }

    fn write_memory(&self, places: Places) -> f64 {
        let (bytes, began_ns) = (vec![7; places.chunk_bytes], thread_cpu_ns());
        for at in places.offsets(self.writes) {
            self.region.store(self.memory_at + at, &bytes);
            self.region.persist(self.memory_at + at, bytes.len() as u64);
        }
        self.mb_s(places, began_ns)
    }

    fn write_file(&mut self, places: Places) -> Result<f64> {
        let (bytes, began_ns) = (vec![7; places.chunk_bytes], thread_cpu_ns());
        for at in places.offsets(self.writes) {
            self.files.write_at(self.file, at, &bytes).map_err(refused)?;
            self.files.fsync(self.file).map_err(refused)?;
        }
        Ok(self.mb_s(places, began_ns))
    }
}

/// Returns claims about one pattern: the published range of the ratio, and that the ratio is greater for
/// small writes.
fn claims(pattern: &'static str, rows: &[InterfaceRow]) -> Vec<Claim> {
    let own: Vec<&InterfaceRow> = rows.iter().filter(|row| row.pattern == pattern).collect();
    let (Some(least), Some(greatest)) = (own.first(), own.last()) else { return Vec::new() };
    let mean = (own.iter().map(|row| row.ratio().ln()).sum::<f64>() / own.len() as f64).exp();
    let factors = Factors::from([("pattern", pattern.into())]);
    let says = "bandwidth: allocator / file, geometric mean of the sizes (published: 10 to 12)".to_owned();
    let claim = Claim::found(&factors, says, mean).of_rounds(ROUNDS).beside(Some(10.0));
    let verdict = Verdict::within(mean, (10.0, 12.0), Better::Higher);
    let mut claims = vec![Claim { verdict, ..claim }];
    if pattern == "sequential" && own.len() > 1 {
        let ours = least.ratio() / greatest.ratio();
        let says = format!("gap at {} bytes / gap at {}", least.chunk_bytes, greatest.chunk_bytes);
        let verdict = Verdict::at_least(1.0, ours);
        claims.push(Claim::found(&factors, says, ours).of_rounds(ROUNDS).judged(1.0, verdict));
    }
    claims
}

fn table(rows: &[InterfaceRow]) -> TextTable {
    let mut table = TextTable::headed(&["pattern", "bytes", "allocator MB/s", "file MB/s", "ratio"]);
    for row in rows {
        table.push(vec![
            row.pattern.to_owned(),
            row.chunk_bytes.to_string(),
            row.allocator_mb_s.to_string(),
            row.file_mb_s.to_string(),
            format!("{:.2}", row.ratio()),
        ]);
    }
    table
}
