//! `node-size`: throughput by the bytes of an index node (Arulraj 2015, appendix B, figure 15).
//!
//! Only the copy-on-write engine for persistent memory is measured, because only there the node size is a
//! setting. The in-place engines have nodes of 512 bytes: the bits of a node's entries are one word, which
//! one store changes as a whole. Nodes of `cow` are pages of its file. The log-structured engines have no
//! B+tree.

use varve_bench::Result;

use super::super::claim::Claim;
use super::super::lab::Lab;
use super::super::order::{self, RankedFigure};
use super::super::table::TextTable;
use super::super::tell;
use super::claims::factors_of;
use super::measure::{self, NamedLoad, Plan, Which};
use super::rows::{DRAM, Figure, HIGH, LOW, MODELS, StoreRow};
use super::sizes::{COW_NODE_BYTES, PlacedBed, StoreSizes};
use super::ycsb::{loads, write_all};
use super::ycsb_claims::{Group, groups};
use crate::stores::ycsb::{MIXES, SKEWS};

/// Node sizes that are compared. The allocator of the engine accepts nodes of 512 to 16,384 bytes.
const NODE_BYTES: [usize; 6] = [512, 1024, 2048, COW_NODE_BYTES, 8192, 16_384];
/// The figure that is compared: throughput at the latency of the paper's figure.
const FIGURE: Figure = Figure::Throughput(LOW);

/// Runs the experiment `node-size`.
pub fn node_size(lab: &mut Lab<'_>) -> Result<()> {
    let (sizes, [low, _]) = (StoreSizes::of(lab), SKEWS);
    let plan = Plan { rounds: lab.scale().rounds, models: &MODELS, which: Which::Named("nvm_cow") };
    let mut placed = PlacedBed::make(lab, &sizes.bed(), 1)?;
    let mut rows = Vec::new();
    for mix in MIXES {
        let loads = loads(sizes, mix, low, 1);
        for node_bytes in NODE_BYTES {
            placed.bed.settings.node_bytes = node_bytes;
            let load =
                NamedLoad { name: mix.name, skew: low.name, loads: &loads, node_bytes: Some(node_bytes) };
            rows.extend(measure::engines(lab, &placed.bed, &load, plan)?);
        }
    }
    let claims = groups(&rows).iter().filter_map(best).collect();
    let claims = write_all(lab, claims)?;
    lab.say_tables(&[table(&rows), tell::claims_table(&claims)])
}

/// Returns the claim that nodes of 4 KiB are best.
fn best(group: &Group<'_>) -> Option<Claim> {
    let is_published = |row: &&&StoreRow| row.spot.node_bytes == Some(COW_NODE_BYTES);
    let published = group.rows.iter().find(is_published)?;
    let others = group.rows.iter().filter(|row| !is_published(row));
    let tps = |row: &StoreRow| FIGURE.of(row).median;
    let closest = others.max_by(|one, other| tps(one).total_cmp(&tps(other)))?;
    let named = |row: &StoreRow, rank| RankedFigure {
        name: format!("{} bytes", row.spot.node_bytes.unwrap_or_default()),
        ..FIGURE.ranked(row, rank)
    };
    let mut factors = factors_of(published, FIGURE);
    factors.remove("node_bytes");
    let placed = vec![named(published, 2.0), named(closest, 1.0)];
    order::judge_figures("best size of a node", &factors, published.rounds, placed)
}

fn table(rows: &[StoreRow]) -> TextTable {
    let models = [DRAM, LOW, HIGH];
    let mut head = vec!["load", "bytes of a node", "cpu us"];
    head.extend(models);
    head.extend(["loads", "stores", "fences", "stored bytes"]);
    let mut table = TextTable::headed(&head);
    for row in rows {
        let node_bytes = row.spot.node_bytes.unwrap_or_default();
        let mut line = vec![row.spot.load.to_owned(), node_bytes.to_string()];
        line.push(row.cpu_us.map_or_else(String::new, |us| format!("{:.2}", us.median)));
        let modelled = |model: &str| row.modelled_tps.get(model).map_or(0.0, |spread| spread.median);
        line.extend(models.map(|model| format!("{:.0}", modelled(model))));
        line.extend([row.loads, row.stores, row.fences].map(|count| format!("{count:.2}")));
        line.push(format!("{:.0}", row.stored_bytes));
        table.push(line);
    }
    table
}
