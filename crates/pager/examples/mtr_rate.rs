//! Measures mini-transactions that do not wait for the device. Each mini-transaction makes one small change
//! of a page in memory.
//!
//! `cargo run --release -p varve-pager --example mtr_rate -- [threads] [seconds]`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use varve_device::MemoryDirectory;
use varve_pager::{PageId, Pager, PagerConfig, RedoError, RedoOps, SpaceId};

const PAGES_A_THREAD: u64 = 64;

struct NoOps;

impl RedoOps for NoOps {
    fn apply(&self, op: u8, _page: &mut [u8], _payload: &[u8]) -> Result<(), RedoError> {
        Err(RedoError(format!("unknown operation {op}")))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let threads: u64 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    let mut config = PagerConfig::new(MemoryDirectory::new());
    config.log_segment_bytes = 16 << 20;
    config.log_capacity_bytes = 256 << 20;
    let pager = Pager::open(config, Arc::new(NoOps))?;
    let owner = pager.create_segment(SpaceId::DATA)?;
    let mut pages = Vec::new();
    for _ in 0..threads * PAGES_A_THREAD {
        let mut mtr = pager.begin()?;
        let id = mtr.allocate(SpaceId::DATA, owner, None)?;
        mtr.create(id, 40, owner)?;
        mtr.commit();
        pages.push(id);
    }
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for own in pages.chunks(PAGES_A_THREAD as usize) {
            scope.spawn(|| count.fetch_add(change_until(&pager, own, &stop), Ordering::Relaxed));
        }
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
    });
    let count = count.into_inner() as f64;
    let elapsed_s = started.elapsed().as_secs_f64();
    let each_ns = elapsed_s * 1e9 * threads as f64 / count;
    println!("{threads} threads: {:.0} mini-transactions/s, {each_ns:.0} ns each", count / elapsed_s);
    Ok(())
}

fn change_until(pager: &Pager, pages: &[PageId], stop: &AtomicBool) -> u64 {
    let mut count = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let mut mtr = pager.begin().expect("the pager works");
        let h = mtr.x(pages[(count % PAGES_A_THREAD) as usize]).expect("the page is there");
        mtr.write(h, 200, &[count as u8; 100]);
        mtr.commit();
        count += 1;
    }
    count
}
