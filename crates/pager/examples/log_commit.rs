//! Measures durable commits of the log, in turn with plain 4 KiB writes with fdatasync.
//!
//! `cargo run --release -p varve-pager --example log_commit -- DIR [seconds per round] [group bytes]`

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use varve_device::{Directory, FileDirectory, FileOptions};
use varve_pager::Log;
use varve_pager::log::{Admission, FIRST_LSN, LogConfig, StoredLog, Tail, record};

const ROUNDS: usize = 4;
const SEGMENT_BYTES: u64 = 64 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("usage: log_commit DIR [seconds] [group bytes]")?;
    let seconds: f64 = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    let group_bytes: usize = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let round = Duration::from_secs_f64(seconds);
    std::fs::create_dir_all(&directory)?;
    let bare = bare_file(Path::new(&directory))?;
    let log = open_log(Path::new(&directory))?;
    for _ in 0..ROUNDS {
        let (bare_us, log_us) = pair_round(&bare, &log, group_bytes, round)?;
        let ratio = log_us / bare_us;
        println!(
            "1 thread, medians: bare 4 KiB fdatasync {bare_us:.1} us, log {log_us:.1} us, ratio {ratio:.3}"
        );
    }
    for threads in [2, 4, 8, 16, 32] {
        let result = log_round(&log, threads, group_bytes, round);
        println!(
            "{threads} threads: {:.0} commits/s, {:.2} commits a flush, {:.1} us each",
            result.commits_per_s, result.group_size, result.latency_us
        );
    }
    Ok(())
}

/// Returns a zero-filled file, as long as a segment.
fn bare_file(directory: &Path) -> std::io::Result<File> {
    let path = directory.join("bare");
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    let zeros = vec![0; 1 << 20];
    (0..SEGMENT_BYTES >> 20).try_for_each(|at| file.write_all_at(&zeros, at << 20))?;
    file.sync_all()?;
    Ok(file)
}

/// Returns the median latencies of both, in microseconds. The two are measured in turn, so that other work of
/// the device slows both of them equally.
fn pair_round(file: &File, log: &Log, group_bytes: usize, round: Duration) -> std::io::Result<(f64, f64)> {
    let block = vec![7; 4096];
    let records = group(group_bytes);
    let (mut bare, mut logged) = (Vec::new(), Vec::new());
    let started = Instant::now();
    while started.elapsed() < round {
        let before = Instant::now();
        file.write_all_at(&block, bare.len() as u64 * 4096 % SEGMENT_BYTES)?;
        file.sync_data()?;
        bare.push(before.elapsed());
        let before = Instant::now();
        commit(log, &records);
        logged.push(before.elapsed());
    }
    Ok((median_us(bare), median_us(logged)))
}

fn median_us(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn open_log(directory: &Path) -> Result<Log, Box<dyn std::error::Error>> {
    let directory: Arc<dyn Directory> =
        FileDirectory::open_or_create(&directory.join("log"), FileOptions::default())?;
    let config = LogConfig { directory, segment_bytes: SEGMENT_BYTES, capacity_bytes: 8 * SEGMENT_BYTES };
    StoredLog::remove_own(&*config.directory, 1)?;
    let stored = StoredLog::open(config, 1)?;
    let log = stored.resume(1, Tail::empty(), FIRST_LSN)?;
    log.prepare_ahead()?;
    Ok(log)
}

struct Round {
    latency_us: f64,
    commits_per_s: f64,
    group_size: f64,
}

fn log_round(log: &Log, threads: usize, group_bytes: usize, round: Duration) -> Round {
    let (stop, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    let before = log.stats();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| commits.fetch_add(commit_until(log, group_bytes, &stop), Ordering::Relaxed));
        }
        std::thread::sleep(round);
        stop.store(true, Ordering::Relaxed);
    });
    let elapsed_s = started.elapsed().as_secs_f64();
    let flushes = log.stats().flushes_count - before.flushes_count;
    let commits = commits.into_inner() as f64;
    Round {
        latency_us: elapsed_s * 1e6 * threads as f64 / commits,
        commits_per_s: commits / elapsed_s,
        group_size: commits / flushes as f64,
    }
}

fn group(group_bytes: usize) -> Vec<u8> {
    let mut records = Vec::new();
    record::put_note(&mut records, 200, &vec![5; group_bytes]);
    records
}

fn commit(log: &Log, records: &[u8]) {
    if log.admit().expect("the log works") == Admission::Full {
        let point = log.redo_point(|| None).expect("the log works");
        log.truncate(point).expect("the log works");
    }
    let lsn = log.append(records, |at| at.end);
    log.flush(lsn).expect("the log works");
}

fn commit_until(log: &Log, group_bytes: usize, stop: &AtomicBool) -> u64 {
    let records = group(group_bytes);
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        commit(log, &records);
        count += 1;
    }
    count
}
