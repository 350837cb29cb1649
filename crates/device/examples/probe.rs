//! Prints what probing finds in a directory, and how long the basic operations take there.
//!
//!     cargo run --release -p varve-device --example probe DIR [PROFILE]
//!
//! With a profile the directory is emulated, and the report of the emulation is printed, too.
//!
//! This program does not know how fast a device serves several callers, or several batches at a time.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use varve_device::{
    AlignedBuf, BlockFile, Directory, Durability, Emulated, FileDirectory, FileOptions, OpenHow, Profile,
    Purpose, ReadOp, Result, Space,
};

const FILE: &str = "varve.measure";
const PAGE_BYTES: usize = 8192;
const PAGES: u64 = 8192;
const WHY: Purpose = Purpose::DataPage;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let directory = FileDirectory::open(Path::new(&path), FileOptions::default())?;
    println!("{}", directory.capabilities());
    let file = directory.open(FILE, OpenHow::or_create(Space::Temporary))?;
    fill(&*file)?;
    let measured = match std::env::args().nth(2) {
        None => measure(&*file),
        Some(name) => measure_emulated(directory.clone(), &name),
    };
    directory.remove(FILE)?;
    measured
}

fn measure_emulated(directory: Arc<FileDirectory>, name: &str) -> Result<()> {
    let profile = match Profile::shipped(name) {
        Ok(profile) => profile,
        Err(error) => {
            println!("{error}");
            return Ok(());
        }
    };
    let emulated = Emulated::wrap(directory, profile, 1.0);
    measure(&*emulated.open(FILE, OpenHow::existing(Space::Temporary))?)?;
    println!("{:?}", emulated.report());
    Ok(())
}

fn fill(file: &dyn BlockFile) -> Result<()> {
    let page = AlignedBuf::new(PAGE_BYTES);
    for no in 0..PAGES {
        file.write_at(no * PAGE_BYTES as u64, &page, WHY, Durability::Later)?;
    }
    file.flush()
}

fn measure(file: &dyn BlockFile) -> Result<()> {
    let mut buf = AlignedBuf::new(PAGE_BYTES);
    time("read 8 KiB, scattered", 1, |no| file.read_at(scattered(no), &mut buf, WHY))?;
    let mut bufs: Vec<_> = (0..32).map(|_| AlignedBuf::new(PAGE_BYTES)).collect();
    time("read 32 x 8 KiB in a batch", 32, |no| {
        let op = |(at, buf)| ReadOp { offset: scattered(no * 32 + at as u64), buf, why: WHY };
        let mut ops: Vec<_> = bufs.iter_mut().enumerate().map(|(at, buf)| op((at, &mut buf[..]))).collect();
        file.read_batch(&mut ops)
    })?;
    let block = AlignedBuf::new(4096);
    time("write 4 KiB durably", 1, |no| file.write_at(no % 1024 * 4096, &block, WHY, Durability::Now))?;
    time("write 4 KiB and flush", 1, |no| {
        file.write_at(no % 1024 * 4096, &block, WHY, Durability::Later)?;
        file.flush()
    })
}

fn scattered(no: u64) -> u64 {
    no.wrapping_mul(0x9E37_79B9_7F4A_7C15) % PAGES * PAGE_BYTES as u64
}

/// Repeats an operation for half a second and prints its mean time.
fn time(what: &str, parts: u64, mut operation: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < Duration::from_millis(500) {
        operation(count)?;
        count += 1;
    }
    let each_us = started.elapsed().as_secs_f64() * 1e6 / count as f64;
    println!("{what}: {each_us:.1} us, {:.0} per second", parts as f64 * 1e6 / each_us);
    Ok(())
}
