//! `ycsb-engines`: YCSB on all engines, by mix and skew.

use varve_bench::Result;

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::table::TextTable;
use super::super::tell;
use super::measure::{self, NamedLoad, Plan, Which};
use super::rows::{DRAM, HIGH, HIGH_PARALLEL, LOW, MODELS, Spot, StoreRow};
use super::sizes::{PlacedBed, StoreSizes};
use super::ycsb_claims;
use crate::stores::ycsb::{MIXES, Mix, SKEWS, Skew, Ycsb};

/// Runs the experiment `ycsb-engines`.
pub fn ycsb_engines(lab: &mut Lab<'_>) -> Result<()> {
    let sizes = StoreSizes::of(lab);
    for partitions in lab.clients(&[1], &[2]) {
        let placed = PlacedBed::make(lab, &sizes.bed(), partitions)?;
        let plan = Plan { rounds: lab.scale().rounds, models: &MODELS, which: Which::AllAndVariants };
        let mut rows = Vec::new();
        for mix in MIXES {
            for skew in SKEWS {
                let loads = loads(sizes, mix, skew, partitions);
                let load = NamedLoad { name: mix.name, skew: skew.name, loads: &loads, node_bytes: None };
                rows.extend(measure::engines(lab, &placed.bed, &load, plan)?);
            }
        }
        let claims = write_all(lab, ycsb_claims::all(&rows))?;
        lab.say_tables(&[table(&rows), counts_table(&rows), tell::claims_table(&claims)])?;
    }
    Ok(())
}

/// Draws the transactions of each partition.
pub fn loads(sizes: StoreSizes, mix: Mix, skew: Skew, partitions: usize) -> Vec<Ycsb> {
    let one = |partition| Ycsb::new(mix, skew, sizes.tuples, sizes.transactions, partition);
    (1..=partitions as u64).map(one).collect()
}

/// Writes the rows of claims, and returns the claims as they were written.
pub fn write_all(lab: &mut Lab<'_>, claims: Vec<Claim>) -> Result<Vec<Claim>> {
    claims.into_iter().map(|claim| lab.write_claim(claim)).collect()
}

/// Returns the table of the engines' times.
pub fn table(rows: &[StoreRow]) -> TextTable {
    let models = [DRAM, LOW, HIGH, HIGH_PARALLEL];
    let mut head = vec!["load", "skew", "partitions", "engine", "tps, raw", "cpu us"];
    head.extend(models);
    let mut table = TextTable::headed(&head);
    for row in rows {
        let mut line = spot_cells(row);
        line.push(row.tps.map_or_else(String::new, |tps| tps.to_string()));
        line.push(row.cpu_us.map_or_else(String::new, |us| format!("{:.2}", us.median)));
        let modelled = |model: &str| row.modelled_tps.get(model).map_or(0.0, |spread| spread.median);
        line.extend(models.map(|model| format!("{:.0}", modelled(model))));
        table.push(line);
    }
    table
}

/// Returns the table of the engines' counts. They are averages for a transaction, except for allocated bytes
/// and wear.
pub fn counts_table(rows: &[StoreRow]) -> TextTable {
    let mut table = TextTable::headed(&[
        "load",
        "skew",
        "partitions",
        "engine",
        "loads",
        "stores",
        "fences",
        "256-byte writes",
        "stored bytes",
        "MiB loaded",
        "MiB peak",
        "worn lines",
        "most-worn line",
    ]);
    for row in rows {
        let mut line = spot_cells(row);
        line.extend([row.loads, row.stores, row.fences].map(|count| format!("{count:.2}")));
        line.extend([format!("{:.2}", row.medium_writes), format!("{:.0}", row.stored_bytes)]);
        line.extend([row.loaded_bytes, row.peak_bytes].map(|bytes| (bytes >> 20).to_string()));
        line.extend([row.worn_lines, row.most_writes].map(|count| count.to_string()));
        table.push(line);
    }
    table
}

fn spot_cells(row: &StoreRow) -> Vec<String> {
    let Spot { load, skew, partitions, .. } = row.spot;
    vec![load.to_owned(), skew.to_owned(), partitions.to_string(), row.spot.label()]
}
