//! Measures the buffer pool: fixing pages in memory, random reads beyond memory, and changes.
//!
//! The calls are `pool_speed resident [threads]`, `pool_speed reads DIRECTORY [threads] [seconds] [pages]`
//! and `pool_speed updates DIRECTORY [threads] [seconds] [pages]`. With `updates`, changes are not flushed,
//! so the speed of the page writers is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use varve_device::{Directory, FileDirectory, FileOptions, MemoryDirectory};
use varve_pager::{Access, PageId, PageNo, Pager, PagerConfig, ProtectionKind, RedoError, RedoOps, SpaceId};

struct NoOps;

impl RedoOps for NoOps {
    fn apply(&self, op: u8, _page: &mut [u8], _payload: &[u8]) -> Result<(), RedoError> {
        Err(RedoError(format!("unknown operation {op}")))
    }
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: u64| arguments.get(at).and_then(|a| a.parse().ok()).unwrap_or(default);
    match arguments.get(1).map(String::as_str) {
        Some("resident") => resident(number(2, 1)),
        Some("reads") => {
            let directory = arguments.get(2).ok_or("which directory?")?;
            reads(
                FileDirectory::open_or_create(directory.as_ref(), FileOptions::default())?,
                number(3, 32),
                number(4, 10),
                number(5, 262_144) as u32,
            )
        }
        Some("updates") => {
            let directory = arguments.get(2).ok_or("which directory?")?;
            let directory = FileDirectory::open_or_create(directory.as_ref(), FileOptions::default())?;
            updates(directory, number(3, 16), number(4, 10), number(5, 131_072) as u32)
        }
        _ => {
            Err("pool_speed resident [threads] | reads|updates DIRECTORY [threads] [seconds] [pages]".into())
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(limit)) >> 64) as u64
    }
}

/// Fills pages, in whole extents. Returns the ids of the pages.
fn fill(pager: &Pager, pages: u32) -> Result<Vec<PageId>, varve_pager::PagerError> {
    let owner = pager.create_segment(SpaceId::DATA)?;
    let mut ids = Vec::new();
    while (ids.len() as u32) < pages {
        let mut mtr = pager.begin()?;
        let extent = mtr.allocate_extent(SpaceId::DATA, owner)?;
        for id in extent.pages() {
            mtr.create(id, 40, owner)?;
            ids.push(id);
        }
        mtr.commit();
    }
    Ok(ids)
}

fn resident(threads: u64) -> Outcome {
    let mut config = PagerConfig::new(MemoryDirectory::new());
    config.pool_bytes = 1 << 30;
    let pager = Pager::open(config, Arc::new(NoOps))?;
    let ids = fill(&pager, 100_000)?;
    for (name, count) in [("1 page", 1), ("1,000 pages", 1000), ("100,000 pages", ids.len())] {
        let start = Instant::now();
        let rounds = 5_000_000_u64;
        std::thread::scope(|scope| {
            for no in 0..threads {
                let (pager, ids) = (&pager, &ids[..count]);
                scope.spawn(move || {
                    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (no + 1));
                    let mut sum = 0_u64;
                    for _ in 0..rounds {
                        let id = ids[random.below(ids.len() as u64) as usize];
                        let page = pager.fix_s(id, Access::Random).expect("resident");
                        sum += u64::from(page[64]);
                    }
                    std::hint::black_box(sum);
                });
            }
        });
        let each = start.elapsed().as_nanos() as f64 / rounds as f64;
        println!("fix_s and unfix, {name}, {threads} threads: {each:.1} ns per call and thread");
    }
    Ok(())
}

fn reads(directory: Arc<dyn Directory>, threads: u64, seconds: u64, pages: u32) -> Outcome {
    let mut config = PagerConfig::new(directory.clone());
    config.pool_bytes = 128 << 20;
    config.protection = ProtectionKind::None;
    let pager = Pager::open(config, Arc::new(NoOps))?;
    if pager.is_new() {
        fill(&pager, pages)?;
        pager.checkpoint()?;
    }
    println!("{}", directory.capabilities());
    let ids = pager.pages_of_owner(SpaceId::DATA, 16)?;
    assert!(ids.first() != Some(&PageId::new(SpaceId::DATA, PageNo(0))));
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let before = pager.stats();
    std::thread::scope(|scope| {
        for no in 0..threads {
            let (pager, ids, stop, done) = (&pager, &ids, &stop, &done);
            scope.spawn(move || {
                let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (no + 1));
                while !stop.load(Relaxed) {
                    let id = ids[random.below(ids.len() as u64) as usize];
                    let page = pager.fix_s(id, Access::Random).expect("a sound page");
                    std::hint::black_box(page[64]);
                    done.fetch_add(1, Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_secs(seconds));
        stop.store(true, Relaxed);
    });
    let after = pager.stats();
    let misses = after.misses - before.misses;
    println!(
        "{threads} threads, {} pages, {} frames: {} fixes/s, {} reads/s",
        ids.len(),
        after.frames,
        done.load(Relaxed) / seconds,
        misses / seconds
    );
    pager.shutdown()?;
    Ok(())
}

fn updates(directory: Arc<dyn Directory>, threads: u64, seconds: u64, pages: u32) -> Outcome {
    let mut config = PagerConfig::new(directory);
    config.pool_bytes = 128 << 20;
    config.log_capacity_bytes = 512 << 20;
    let pager = Pager::open(config, Arc::new(NoOps))?;
    if pager.is_new() {
        fill(&pager, pages)?;
        pager.checkpoint()?;
    }
    let ids = pager.pages_of_owner(SpaceId::DATA, 16)?;
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for no in 0..threads {
            let (pager, ids, stop, done) = (&pager, &ids, &stop, &done);
            scope.spawn(move || {
                let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (no + 1));
                while !stop.load(Relaxed) {
                    let id = ids[random.below(ids.len() as u64) as usize];
                    let mut mtr = pager.begin().expect("log space");
                    let page = mtr.x(id).expect("a sound page");
                    mtr.write(page, 64, &random.0.to_le_bytes());
                    mtr.commit();
                    done.fetch_add(1, Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_secs(seconds));
        stop.store(true, Relaxed);
    });
    println!("{threads} threads: {} updates/s; {:?}", done.load(Relaxed) / seconds, pager.stats());
    println!("{:?}", pager.log().stats());
    let start = Instant::now();
    pager.shutdown()?;
    println!("shutdown took {:?}", start.elapsed());
    Ok(())
}
