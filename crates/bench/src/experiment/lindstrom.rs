//! Lindstrom 2017: pages compressed on flash.
//!
//! LinkBench's mix, by page size. What is compared there are codecs; without one this shows what page sizes cost by themselves.

use varve_pager::PagerConfig;

use super::lab::{Lab, Variant};
use super::row::Factors;
use crate::Result;
use crate::linkbench::LinkBench;

/// Its page-size study has a database ten times the pool.
const DATABASE_OF_POOL: u64 = 10;
/// Bytes of data pages for each node of the graph: an estimate. The ratio that comes of it is printed with the points.
const BYTES_OF_A_NODE: u64 = 1_000;

const PLAIN: Variant = Variant { name: "none", configure: |_: &mut PagerConfig| {} };

/// Figures 13 to 15.
pub fn page_size(lab: &mut Lab<'_>) -> Result<()> {
    let workload = LinkBench::new(lab.scale().nodes)?;
    let pool_bytes = (lab.scale().nodes * BYTES_OF_A_NODE / DATABASE_OF_POOL).max(4 << 20) as usize;
    let mut points = Vec::new();
    for clients in lab.clients(&[16], &[16]) {
        for page_kib in [4usize, 8, 16, 32, 64] {
            let base = lab.base(&workload, page_kib << 10, pool_bytes)?;
            let stands = [lab.stand(&base, PLAIN)?];
            let factors = Factors::from([("clients", clients.into()), ("page KiB", page_kib.into())]);
            let device = lab.device();
            points.extend(lab.compare(&stands, &workload, &device, (clients, &factors))?);
        }
    }
    lab.tell(&points, &[])
}
