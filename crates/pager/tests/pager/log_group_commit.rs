//! Many threads append and flush: when `flush` returns, the thread's records are durable, and groups are
//! written together.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::log_support::*;
use varve_device::MemoryDirectory;
use varve_pager::Lsn;
use varve_pager::log::LogConfig;

const THREADS: usize = 8;
const COMMITS: usize = 200;

fn roomy(directory: &std::sync::Arc<MemoryDirectory>) -> LogConfig {
    LogConfig { capacity_bytes: 1000 * SEGMENT_BYTES, ..config(directory) }
}

#[test]
fn acknowledged_is_durable_and_lsns_are_unique() {
    let directory = MemoryDirectory::new();
    let stored = varve_pager::log::StoredLog::open(roomy(&directory), DATABASE).unwrap();
    let tail = varve_pager::log::Tail::empty();
    let log = stored.resume(1, tail, varve_pager::log::FIRST_LSN).unwrap();
    let acknowledged: Mutex<Vec<Note>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, acknowledged) = (&log, &acknowledged);
            scope.spawn(move || {
                for i in 0..COMMITS {
                    log.admit().unwrap();
                    let bytes = payload(thread * COMMITS + i, 20 + i);
                    let lsn = append(log, &bytes);
                    log.flush(lsn).unwrap();
                    assert!(log.durable() >= lsn);
                    acknowledged.lock().unwrap().push((lsn, bytes));
                }
            });
        }
    });
    let (notes, _) = read_all(&directory).unwrap();
    let mut acknowledged = acknowledged.into_inner().unwrap();
    acknowledged.sort();
    assert_eq!(acknowledged, notes);
    let lsns: HashSet<Lsn> = notes.iter().map(|(lsn, _)| *lsn).collect();
    assert_eq!(lsns.len(), THREADS * COMMITS);
    assert!(log.stats().flushes_count <= (THREADS * COMMITS) as u64 + log.stats().live_segments_count);
}

#[test]
fn a_stopped_log_lets_everybody_go_with_an_error() {
    let directory = MemoryDirectory::new();
    let log = create(&directory);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let log = &log;
                scope.spawn(move || {
                    loop {
                        let lsn = append(log, &payload(thread, 10));
                        if let Err(error) = log.flush(lsn) {
                            assert!(log.durable() < lsn);
                            return error.to_string();
                        }
                        if log.end().get() > SEGMENT_BYTES / 2 {
                            log.poison("the test said so");
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            assert!(worker.join().unwrap().contains("the test said so"));
        }
    });
    assert!(log.admit().is_err());
}
