//! Measures the cost of a call on a file that is in memory.
//!
//! The files of the engines are in the region, so an engine reaches them without the kernel (decision 0113).
//! A file system in persistent memory would be reached through the kernel. So every call on a file of an
//! engine also waits for the time that is measured here: the time of a call on a file of the machine's own
//! file system in memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use varve_bench::Result;
use varve_device::thread_cpu_ns;

/// The number of pairs of calls that are timed together.
const BATCH: u32 = 500;
/// The number of such batches. The median of their times counts.
const BATCHES: usize = 9;

/// Returns the processor time of a call on a file in this directory: the mean of a write of one byte and of
/// `fsync`.
pub fn system_call(directory: &Path) -> Result<Duration> {
    let path = directory.join("system-call");
    let file = File::options().write(true).create(true).truncate(true).open(&path)?;
    let mut times = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let began_ns = thread_cpu_ns();
        for number in 0..BATCH {
            file.write_at(&[0], u64::from(number))?;
            file.sync_all()?;
        }
        times.push(Duration::from_nanos(thread_cpu_ns() - began_ns) / (2 * BATCH));
    }
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    Ok(times.get(BATCHES / 2).copied().unwrap_or_default())
}
