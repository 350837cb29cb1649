//! Kang 2016: page protection on flash, and what NVM under the buffer pool does for it.
//!
//! Sysbench's read-write script over ten tables, pages of 4 KiB, a database 30 times the pool (its section 4.2). Without NVM the first of its
//! figures can be run: what doublewrite costs.

use varve_pager::{Pacing, PagerConfig, ProtectionKind};

use super::lab::{Lab, Stand, Variant};
use super::row::Factors;
use super::verdict::Better;
use crate::Result;
use crate::sysbench::Sysbench;

const PAGE_BYTES: usize = 4096;
const TABLES: u64 = 10;

/// InnoDB's area of 2 MiB: 120 pages for batches, 392 for single pages (section 2.1), and its page cleaner, which falls behind.
const ORIGINAL: Variant = Variant {
    name: "original",
    configure: |config| {
        config.protection = ProtectionKind::Doublewrite { batch_slots: 120, single_slots: 392 };
        config.pacing = Some(Pacing::INNODB);
    },
};

/// What is chosen here if nothing is said.
const DEFAULT: Variant = Variant { name: "doublewrite", configure: |_: &mut PagerConfig| {} };

/// Pages that are torn by a crash are lost.
const UNPROTECTED: Variant =
    Variant { name: "none", configure: |config| config.protection = ProtectionKind::None };

/// Throughput without doublewrite over that with it, by sessions (section 2.2).
const COSTS: [(usize, f64); 6] = [(8, 1.14), (16, 1.22), (32, 1.55), (64, 1.61), (128, 2.49), (256, 2.78)];

fn sysbench(lab: &Lab<'_>) -> Result<Sysbench> {
    Sysbench::new("oltp_read_write", TABLES, lab.scale().rows)
}

fn stands(lab: &Lab<'_>, workload: &Sysbench, variants: &[Variant]) -> Result<Vec<Stand>> {
    let base = lab.base(workload, PAGE_BYTES, lab.scale().pool_bytes)?;
    variants.iter().map(|variant| lab.stand(&base, *variant)).collect()
}

/// Figure 2.3.
pub fn doublewrite_cost(lab: &mut Lab<'_>) -> Result<()> {
    let workload = sysbench(lab)?;
    let stands = stands(lab, &workload, &[ORIGINAL, DEFAULT, UNPROTECTED])?;
    let (mut points, mut claims) = (Vec::new(), Vec::new());
    for clients in lab.clients(&[8, 32], &COSTS.map(|(clients, _)| clients)) {
        let factors = Factors::from([("clients", clients.into())]);
        let device = lab.device();
        let compared = lab.compare(&stands, &workload, &device, (clients, &factors))?;
        let published = COSTS.iter().find(|(at, _)| *at == clients).map(|(_, cost)| *cost);
        if let [original, default, unprotected] = &compared[..] {
            claims.push(lab.claim("none / original", (unprotected, original), published, Better::Lower)?);
            claims.push(lab.claim("none / doublewrite", (unprotected, default), published, Better::Lower)?);
        }
        points.extend(compared);
    }
    lab.tell(&points, &claims)
}

/// Flush times around the profile's, from a drive with power-loss protection to a slow one.
const FLUSHES_US: [f64; 5] = [0.0, 400.0, 800.0, 1643.0, 3500.0];

/// No figure of the paper: what the emulated drive's flush time does to the baseline.
pub fn flush_sweep(lab: &mut Lab<'_>) -> Result<()> {
    let workload = sysbench(lab)?;
    let stands = stands(lab, &workload, &[ORIGINAL, DEFAULT, UNPROTECTED])?;
    let mut points = Vec::new();
    for clients in lab.clients(&[16], &[16]) {
        for flush_us in FLUSHES_US {
            let factors = Factors::from([("clients", clients.into()), ("flush us", flush_us.into())]);
            let device = lab.device_with_flush_us(flush_us);
            points.extend(lab.compare(&stands, &workload, &device, (clients, &factors))?);
        }
    }
    lab.tell(&points, &[])
}
