//! Finds the times of a drive. It measures the drive, or reads a device profile. The cost model needs these
//! times.
//!
//! Invariants
//! 1. A measurement leaves no file. If a crash leaves one, the next measurement removes it.
//! 2. All times are greater than 0, so that the cost model can divide by them.

use std::time::Instant;

use twox_hash::XxHash64;
use varve_device::{AlignedBuf, BlockFile, Directory, Durability, OpenHow, Profile, Purpose, Space};

use crate::allocation::DriveTimes;
use crate::error::Result;

const FILE: &str = "spill-measured";
/// The length of a long request. Its access time is short compared with its transfer.
const BLOCK_BYTES: usize = 1 << 20;
/// The length of the file.
const LEN_BYTES: u64 = 8 << 20;
/// Random reads of one page each.
const READS: u64 = 33;
const PAGE_BYTES: u64 = 4096;
/// The least access time, in microseconds.
const LATENCY_MIN_US: f64 = 1.0;
/// The highest speed in bytes for each microsecond: about that of main memory.
const SPEED_MAX: f64 = 100_000.0;

impl DriveTimes {
    /// Measures the drive of a directory with a file of 8 MiB. A flash drive takes some milliseconds, a disk
    /// about half a second.
    ///
    /// The seek of a disk can't be told from its rotational delay here, so `latency_us` has both. If the
    /// directory does not use direct I/O, the result is the speed of the kernel's page cache.
    pub fn measure(directory: &dyn Directory) -> Result<DriveTimes> {
        if directory.exists(FILE)? {
            directory.remove(FILE)?;
        }
        let measured = measure(directory);
        match directory.remove(FILE) {
            Err(error) if measured.is_ok() => Err(error.into()),
            _ => measured,
        }
    }

    /// Takes the times from a device profile. Long requests have the rate of sequential operations on all
    /// channels.
    pub fn of(profile: &Profile) -> DriveTimes {
        let rates = &profile.operations_per_s;
        let speed = |per_s: f64| (per_s * profile.anchor_bytes as f64 / 1e6).min(SPEED_MAX);
        let under_way_write = Some(profile.under_way_write_per_s).filter(|per_s| *per_s > 0.0);
        let read_bytes_per_us = speed(rates.sequential_read.max(profile.under_way_per_s));
        let read_us = f64::from(profile.channels) * 1e6 / rates.random_read;
        DriveTimes {
            seek_us: 0.0,
            latency_us: (read_us - profile.anchor_bytes as f64 / read_bytes_per_us).max(LATENCY_MIN_US),
            read_bytes_per_us,
            write_bytes_per_us: speed(
                rates.sequential_write.max(under_way_write.unwrap_or(profile.under_way_per_s)),
            ),
        }
    }
}

fn measure(directory: &dyn Directory) -> Result<DriveTimes> {
    let file = directory.open(FILE, OpenHow::new_file(Space::Temporary))?;
    file.set_len(LEN_BYTES)?;
    let mut block = AlignedBuf::new(BLOCK_BYTES);
    // A drive may store zeros faster than other bytes.
    for (n, word) in (0..).zip(block.chunks_exact_mut(8)) {
        word.copy_from_slice(&random(n).to_le_bytes());
    }
    let speed = |us: f64| (LEN_BYTES as f64 / us).min(SPEED_MAX);
    let write_bytes_per_us = speed(write_blocks_us(&*file, &block)?);
    let read_bytes_per_us = speed(read_blocks_us(&*file, &mut block)?);
    let page_bytes = PAGE_BYTES.max(u64::from(file.sector_bytes()));
    let page_us = read_page_us(&*file, &mut block[..page_bytes as usize])?;
    let latency_us = (page_us - page_bytes as f64 / read_bytes_per_us).max(LATENCY_MIN_US);
    Ok(DriveTimes { seek_us: 0.0, latency_us, read_bytes_per_us, write_bytes_per_us })
}

/// Returns the time to write all blocks one after the other, durably.
fn write_blocks_us(file: &dyn BlockFile, block: &[u8]) -> Result<f64> {
    let began = Instant::now();
    for offset in (0..LEN_BYTES).step_by(BLOCK_BYTES) {
        file.write_at(offset, block, Purpose::Temporary, Durability::Later)?;
    }
    file.flush()?;
    Ok(us_since(began))
}

/// Returns the time to read all blocks one after the other.
fn read_blocks_us(file: &dyn BlockFile, block: &mut [u8]) -> Result<f64> {
    let began = Instant::now();
    for offset in (0..LEN_BYTES).step_by(BLOCK_BYTES) {
        file.read_at(offset, block, Purpose::Temporary)?;
    }
    Ok(us_since(began))
}

/// Returns the median time to read a page at any address.
fn read_page_us(file: &dyn BlockFile, page: &mut [u8]) -> Result<f64> {
    let (page_bytes, mut reads_us) = (page.len() as u64, Vec::new());
    for n in 0..READS {
        let offset = random(n) % (LEN_BYTES / page_bytes) * page_bytes;
        let began = Instant::now();
        file.read_at(offset, page, Purpose::Temporary)?;
        reads_us.push(us_since(began));
    }
    reads_us.sort_by(f64::total_cmp);
    Ok(reads_us[reads_us.len() / 2])
}

/// Returns a number that looks random, the same for each `n`.
fn random(n: u64) -> u64 {
    XxHash64::oneshot(0, &n.to_le_bytes())
}

fn us_since(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use varve_device::{Emulated, MemoryDirectory};

    use super::*;

    /// Checks that a measurement of an emulated drive finds the times of its profile, and leaves no file. A
    /// busy machine can make every time wrong, so one of several measurements must be right.
    #[test]
    fn a_measurement_finds_the_times_of_the_profile() {
        for name in ["ssd-ocz", "sata-ssd-2014"] {
            let profile = Profile::shipped(name).unwrap();
            let expected = DriveTimes::of(&profile);
            let files = MemoryDirectory::new();
            // A crash has left the file of an earlier measurement.
            files.open(FILE, OpenHow::new_file(Space::Temporary)).unwrap();
            let drive = Emulated::wrap(files.clone(), profile, 1.0);
            let is_near = |found: f64, expected: f64| found < expected * 1.3 && found > expected / 3.0;
            let is_right = |found: DriveTimes| {
                is_near(found.read_bytes_per_us, expected.read_bytes_per_us)
                    && is_near(found.write_bytes_per_us, expected.write_bytes_per_us)
                    && is_near(found.latency_us, expected.latency_us)
            };
            let measured = || DriveTimes::measure(drive.as_ref()).unwrap();
            assert!((0..100).any(|_| is_right(measured())), "{name} {:?} {expected:?}", measured());
            assert_eq!(files.list().unwrap(), Vec::<String>::new());
        }
    }

    /// Checks the times of the thesis' drive (table 2.2: 350 us, 120 and 80 MB/s).
    #[test]
    fn the_profile_of_the_thesis_gives_its_table() {
        let times = DriveTimes::of(&Profile::shipped("ssd-ocz").unwrap());
        assert!((times.latency_us - 350.0).abs() < 1.0, "{times:?}");
        assert!(
            (times.read_bytes_per_us - 120.0).abs() < 1.0 && (times.write_bytes_per_us - 80.0).abs() < 1.0
        );
    }

    /// Checks that each shipped profile gives times with which the cost model can calculate.
    #[test]
    fn every_profile_gives_times() {
        for name in Profile::names() {
            let times = DriveTimes::of(&Profile::shipped(name).unwrap());
            let all = [times.latency_us, times.read_bytes_per_us, times.write_bytes_per_us];
            assert!(all.iter().all(|time| time.is_finite() && *time > 0.0), "{name} {times:?}");
        }
    }
}
