//! Measures recovery: it fills a log with small changes of many pages, stops without a checkpoint, and opens
//! the database again.
//!
//! `cargo run --release -p varve-pager --example recovery_rate -- DIR [pages] [changes]`

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use varve_device::{FileDirectory, FileOptions};
use varve_pager::{PageId, Pager, PagerConfig, RedoError, RedoOps, SpaceId};

struct NoOps;

impl RedoOps for NoOps {
    fn apply(&self, op: u8, _page: &mut [u8], _payload: &[u8]) -> Result<(), RedoError> {
        Err(RedoError(format!("unknown operation {op}")))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: recovery_rate DIR [pages] [changes]")?;
    let pages_count: usize = arguments.next().map_or(Ok(20_000), |text| text.parse())?;
    let changes_count: usize = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let directory = FileDirectory::open_or_create(Path::new(&path), FileOptions::default())?;
    let mut config = PagerConfig::new(directory);
    config.pool_bytes = 512 << 20;
    config.log_capacity_bytes = 2 << 30;
    config.background = false;
    let pager = Pager::open(config.clone(), Arc::new(NoOps))?;
    let pages = fill(&pager, pages_count)?;
    pager.shutdown()?;
    change(&pager, &pages, changes_count)?;
    let log_bytes = pager.log().stats().used_bytes;
    drop(pager);
    let started = Instant::now();
    let pager = Pager::open(config, Arc::new(NoOps))?;
    let elapsed_s = started.elapsed().as_secs_f64();
    let log_mib = log_bytes as f64 / f64::from(1 << 20);
    println!(
        "recovered {log_mib:.0} MiB of log, {changes_count} changes of {pages_count} pages in {elapsed_s:.2} s: \
         {:.0} changes/s, {:.0} MiB/s",
        changes_count as f64 / elapsed_s,
        log_mib / elapsed_s
    );
    pager.shutdown()?;
    Ok(())
}

fn fill(pager: &Pager, count: usize) -> Result<Vec<PageId>, varve_pager::PagerError> {
    let owner = pager.create_segment(SpaceId::DATA)?;
    let mut pages = Vec::new();
    for _ in 0..count {
        let mut mtr = pager.begin()?;
        let id = mtr.allocate(SpaceId::DATA, owner, None)?;
        mtr.create(id, 40, owner)?;
        mtr.commit();
        pages.push(id);
    }
    Ok(pages)
}

fn change(pager: &Pager, pages: &[PageId], count: usize) -> Result<(), varve_pager::PagerError> {
    let mut at = 1_usize;
    for i in 0..count {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut mtr = pager.begin()?;
        let h = mtr.x(pages[(at >> 20) % pages.len()])?;
        mtr.write(h, 64 + (i % 70) * 100, &[i as u8; 100]);
        mtr.commit();
    }
    pager.flush_log(pager.log().end())
}
