//! A thread panics while it writes the log for other threads. The others do not wait for ever: their commits
//! fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

use crate::log_support::*;
use varve_device::{
    Accounting, BlockFile, Capabilities, Directory, Durability, Location, MemoryDirectory, OpenHow, Purpose,
    Result as DeviceResult,
};
use varve_pager::log::{FIRST_LSN, LogConfig, StoredLog, Tail};
use varve_pager::{Log, LogError};

const FOLLOWERS: u64 = 3;

/// A device with a bug. If it is armed, the next write waits until the followers are in the queue, and then
/// panics.
struct Buggy {
    inner: Arc<MemoryDirectory>,
    armed: Arc<AtomicBool>,
}

struct BuggyFile {
    inner: Arc<dyn BlockFile>,
    armed: Arc<AtomicBool>,
}

impl Directory for Buggy {
    fn open(&self, name: &str, how: OpenHow) -> DeviceResult<Arc<dyn BlockFile>> {
        Ok(Arc::new(BuggyFile { inner: self.inner.open(name, how)?, armed: self.armed.clone() }))
    }
    fn exists(&self, name: &str) -> DeviceResult<bool> {
        self.inner.exists(name)
    }
    fn list(&self) -> DeviceResult<Vec<String>> {
        self.inner.list()
    }
    fn rename(&self, from: &str, to: &str) -> DeviceResult<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, name: &str) -> DeviceResult<()> {
        self.inner.remove(name)
    }
    fn sync(&self) -> DeviceResult<()> {
        self.inner.sync()
    }
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }
    fn accounting(&self) -> &Arc<Accounting> {
        self.inner.accounting()
    }
    fn location(&self) -> String {
        self.inner.location()
    }
}

impl BlockFile for BuggyFile {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn location(&self) -> &Location {
        self.inner.location()
    }
    fn len_bytes(&self) -> DeviceResult<u64> {
        self.inner.len_bytes()
    }
    fn sector_bytes(&self) -> u32 {
        self.inner.sector_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8], why: Purpose) -> DeviceResult<()> {
        self.inner.read_at(offset, buf, why)
    }
    fn write_at(&self, offset: u64, buf: &[u8], why: Purpose, how: Durability) -> DeviceResult<()> {
        if self.armed.swap(false, SeqCst) {
            std::thread::sleep(Duration::from_millis(100));
            panic!("a bug in the device, planted by the test");
        }
        self.inner.write_at(offset, buf, why, how)
    }
    fn flush(&self) -> DeviceResult<()> {
        self.inner.flush()
    }
    fn punch(&self, offset: u64, len_bytes: u64) -> DeviceResult<()> {
        self.inner.punch(offset, len_bytes)
    }
    fn set_len(&self, len_bytes: u64) -> DeviceResult<()> {
        self.inner.set_len(len_bytes)
    }
}

#[test]
fn a_leader_that_panics_fails_the_commits_of_all_and_hangs_none() {
    let directory = MemoryDirectory::new();
    let armed = Arc::new(AtomicBool::new(false));
    let device: Arc<dyn Directory> = Arc::new(Buggy { inner: directory.clone(), armed: armed.clone() });
    let stored = StoredLog::open(LogConfig { directory: device, ..config(&directory) }, DATABASE).unwrap();
    let log = Arc::new(stored.resume(1, Tail::empty(), FIRST_LSN).unwrap());
    let safe = append(&log, b"safe");
    log.flush(safe).unwrap();
    armed.store(true, SeqCst);
    let leader = spawn_commit(&log, b"of the leader");
    while armed.load(SeqCst) {
        std::thread::yield_now();
    }
    let followers: Vec<_> = (0..FOLLOWERS).map(|no| spawn_commit(&log, &no.to_le_bytes())).collect();
    assert!(leader.recv_timeout(Duration::from_secs(10)).is_err(), "the leader must have panicked");
    for follower in followers {
        let ended = follower.recv_timeout(Duration::from_secs(10)).expect("a follower hangs");
        assert!(matches!(ended, Err(LogError::Poisoned(_))), "{ended:?}");
    }
    assert_eq!(log.stats().followers_count, FOLLOWERS, "they must have waited for the leader");
    assert!(log.flush(append(&log, b"later")).is_err());
    let notes = read_all(&directory).unwrap().0;
    assert_eq!(notes, [(safe, b"safe".to_vec())]);
}

/// Commits in a thread of its own. The channel passes its result, and closes if the thread panics.
fn spawn_commit(log: &Arc<Log>, payload: &[u8]) -> mpsc::Receiver<Result<(), LogError>> {
    let (tell, told) = mpsc::channel();
    let (log, payload) = (log.clone(), payload.to_vec());
    std::thread::spawn(move || {
        let lsn = append(&log, &payload);
        let ended = log.flush(lsn);
        let _receiver_waits = tell.send(ended);
    });
    told
}
