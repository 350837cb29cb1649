//! Measures how long it takes to make pages durable in a mapped region, for each kind of store instruction.
//!
//! It is called as `page_stores FILE [MIB]`, where FILE is the region. It is created if it does not exist. A
//! file on a tmpfs emulates persistent memory at the speed of main memory.

use std::path::Path;
use std::time::Instant;

use varve_device::{Directory, FileDirectory, FileOptions, Region};

const PAGE_BYTES: usize = 4096;
const ROUNDS: usize = 7;

/// Makes a page durable at an offset of the region.
type Way = fn(&dyn Region, u64, &[u8]);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("say where the region's file is to be")?;
    let mebibytes: u64 = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let path = Path::new(&path);
    let (Some(above), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err("say a file in a directory".into());
    };
    let directory = FileDirectory::open(above, FileOptions::default())?;
    let region = directory.map(name, mebibytes << 20)?;
    println!("{:?}", region.facts());
    let page = vec![0x5A; PAGE_BYTES];
    let ways: [(&str, Way); 3] = [
        ("store alone", |region, at, page| region.store(at, page)),
        ("store, write back, fence", |region, at, page| {
            region.store(at, page);
            region.persist(at, page.len() as u64);
        }),
        ("store back, fence", |region, at, page| {
            region.store_back(at, page);
            region.fence();
        }),
    ];
    for (name, way) in ways {
        let mut times: Vec<f64> = (0..ROUNDS).map(|_| round(&*region, &page, way)).collect();
        times.sort_by(f64::total_cmp);
        println!("{name}: {:.0} ns a page (median of {ROUNDS}; best {:.0})", times[ROUNDS / 2], times[0]);
    }
    Ok(())
}

/// Returns the nanoseconds for a page. Each page of the region is stored once, in an order that no prefetcher
/// follows.
fn round(region: &dyn Region, page: &[u8], way: Way) -> f64 {
    let pages = region.len_bytes() / PAGE_BYTES as u64;
    let began = Instant::now();
    for no in 0..pages {
        way(region, no * 7919 % pages * PAGE_BYTES as u64, page);
    }
    began.elapsed().as_nanos() as f64 / pages as f64
}
