//! Giving back space never blocks a file for long. Files are cut and punched in pieces, whose size is adapted
//! to the time that they take, and other requests are served in between.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "pager/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{add, get};
use parking_lot::Mutex;
use varve_device::{
    Accounting, BlockFile, Capabilities, Directory, Durability, Location, MemoryDirectory, OpenHow, Purpose,
    Result as DeviceResult,
};
use varve_pager::{PageId, PagerConfig, SpaceId, Trim};

const MIB: u64 = 1 << 20;

/// Counters of the space that was given back.
#[derive(Default)]
struct Given {
    bytes: AtomicU64,
    pieces: AtomicU64,
    /// The longest piece, in bytes.
    longest: AtomicU64,
    /// The largest number of pieces that were given back while one read waited.
    overtook: AtomicU64,
}

/// A file system that needs time when it gets room back, and does nothing else with the file meanwhile.
struct Slow {
    inner: Arc<MemoryDirectory>,
    time_of_mib: Duration,
    given: Arc<Given>,
}

struct SlowFile {
    inner: Arc<dyn BlockFile>,
    time_of_mib: Duration,
    given: Arc<Given>,
    busy: Mutex<()>,
}

impl SlowFile {
    fn give(&self, bytes: u64) {
        let nanos = self.time_of_mib.as_nanos() as u64 * bytes / MIB;
        std::thread::sleep(Duration::from_nanos(nanos));
        self.given.bytes.fetch_add(bytes, SeqCst);
        self.given.pieces.fetch_add(1, SeqCst);
        self.given.longest.fetch_max(bytes, SeqCst);
    }
}

impl Directory for Slow {
    fn open(&self, name: &str, how: OpenHow) -> DeviceResult<Arc<dyn BlockFile>> {
        let inner = self.inner.open(name, how)?;
        let (time_of_mib, given) = (self.time_of_mib, self.given.clone());
        Ok(Arc::new(SlowFile { inner, time_of_mib, given, busy: Mutex::default() }))
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

impl BlockFile for SlowFile {
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
        let before = self.given.pieces.load(SeqCst);
        let _turn = self.busy.lock();
        self.given.overtook.fetch_max(self.given.pieces.load(SeqCst) - before, SeqCst);
        self.inner.read_at(offset, buf, why)
    }
    fn write_at(&self, offset: u64, buf: &[u8], why: Purpose, how: Durability) -> DeviceResult<()> {
        let _turn = self.busy.lock();
        self.inner.write_at(offset, buf, why, how)
    }
    fn flush(&self) -> DeviceResult<()> {
        self.inner.flush()
    }
    fn punch(&self, offset: u64, len_bytes: u64) -> DeviceResult<()> {
        let _turn = self.busy.lock();
        self.give(len_bytes);
        self.inner.punch(offset, len_bytes)
    }
    fn set_len(&self, len_bytes: u64) -> DeviceResult<()> {
        let _turn = self.busy.lock();
        let before = self.inner.len_bytes()?;
        if len_bytes < before {
            self.give(before - len_bytes);
        }
        self.inner.set_len(len_bytes)
    }
}

/// Drops a segment of `pages` pages, which is after a small segment or before it, while the small segment is
/// read.
fn drop_one(trim: Trim, is_at_the_end: bool, pages: u64) -> Arc<Given> {
    let (inner, given) = (MemoryDirectory::new(), Arc::<Given>::default());
    let data = Slow { inner: inner.clone(), time_of_mib: Duration::from_millis(40), given: given.clone() };
    let mut config = PagerConfig { data: Arc::new(data), trim, ..crate::common::config(&inner, 64) };
    config.background = true;
    config.checkpoint.interval_ms = 20;
    config.log_capacity_bytes = 16 << 20;
    let pager = common::open(&config);
    let fill = |pages: u64| {
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        (owner, (0..pages).map(|number| add(&pager, owner, number).unwrap()).collect::<Vec<PageId>>())
    };
    // There are more pages than the pool holds, so that reads go to the file.
    let (first, last) = if is_at_the_end { (200, pages) } else { (pages, 200) };
    let (first, last) = (fill(first), fill(last));
    let ((gone, _), (_, others)) = if is_at_the_end { (last, first) } else { (first, last) };
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !is_done.load(SeqCst) {
                for (number, id) in others.iter().enumerate() {
                    assert_eq!(get(&pager, *id).unwrap(), number as u64);
                }
            }
        });
        pager.drop_segment(SpaceId::DATA, gone).unwrap();
        let began = Instant::now();
        let is_short = || given.bytes.load(SeqCst) < pages * 4096 / 2;
        while is_short() && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
        // This comes before any assertion. If an assertion failed first, the reader would never end.
        is_done.store(true, SeqCst);
        reader.join().unwrap();
        assert!(!is_short(), "{:?}", pager.stats());
    });
    pager.shutdown().unwrap();
    given
}

/// A table at the end of its file is cut off in pieces. An earlier version cut it off in one piece, and with
/// 4 GiB on xfs, reads of the file waited 8.7 seconds.
#[test]
fn a_file_gets_shorter_a_piece_at_a_time() {
    for trim in [Trim::Off, Trim::On] {
        let given = drop_one(trim, true, 2500);
        let [longest, overtook] = [&given.longest, &given.overtook].map(|count| count.load(SeqCst));
        // The first piece takes 40 ms, twice as long as others may wait.
        assert!(longest <= MIB, "{trim:?}: {longest} bytes at once");
        assert!(overtook <= 2, "{trim:?}: a read waited for {overtook} pieces");
    }
}

#[test]
fn holes_get_shorter_where_one_takes_long() {
    let given = drop_one(Trim::On, false, 2500);
    let [bytes, pieces, longest] =
        [&given.bytes, &given.pieces, &given.longest].map(|count| count.load(SeqCst));
    assert!(longest <= MIB, "{longest} bytes at once");
    assert!(
        pieces >= bytes / (MIB / 2),
        "{pieces} pieces for {bytes} bytes: half a megabyte takes as long as others may wait"
    );
}
