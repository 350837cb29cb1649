//! Model of appends to the log and of group commit: a leader and its followers, on a log in memory that works
//! or fails.
//!
//! The tested code is everything in `pager/src/log/`. At the end, the log's own reader must find all
//! acknowledged commits in a copy of the device.

use std::sync::{Arc, Mutex};

use shuttle::thread;
use varve_device::{Directory, Fault, Faulty, MemoryDirectory, Operation, Rule, Space, When};

use crate::checker::{How, Model};
use crate::frames::plain;
use crate::pager::log::{FIRST_LSN, Known, Life, LogConfig, Record, StoredLog, Tail, record};
use crate::pager::{Log, LogError, Lsn};

pub(crate) const COMMITS: Model = Model {
    name: "appends are told of in LSN order, and what a flush acknowledged is on the device",
    how: How::Shuttle,
    run: commits,
    flaws: &[
        "state of a waiter set after it stands in line",
        "parked once",
        "no leader after the leader",
        "durable before it is written",
        "told of the append after the section",
    ],
};

pub(crate) const FAILS: Model = Model {
    name: "when a write fails, nothing is acknowledged any more and nobody waits for ever",
    how: How::Shuttle,
    run: fails,
    flaws: &["acknowledged without looking again", "followers of a failed log not released"],
};

const SEGMENT_BYTES: u64 = 64 << 10;
const DATABASE: u64 = 7;
const THREADS: u8 = 3;
const COMMITS_EACH: u8 = 2;

fn config(directory: Arc<dyn Directory>) -> LogConfig {
    LogConfig { directory, segment_bytes: SEGMENT_BYTES, capacity_bytes: 8 * SEGMENT_BYTES }
}

struct LogUnderTest {
    log: Log,
    device: Arc<MemoryDirectory>,
    /// The LSNs in the order in which the append section reported them.
    told: Mutex<Vec<Lsn>>,
}

impl LogUnderTest {
    fn new(device: Arc<MemoryDirectory>, directory: Arc<dyn Directory>) -> Arc<LogUnderTest> {
        let stored = StoredLog::open(config(directory), DATABASE).expect("a new log");
        let log = stored.resume(1, Tail::empty(), FIRST_LSN).expect("a new log");
        Arc::new(LogUnderTest { log, device, told: Mutex::default() })
    }

    fn append(&self, number: u8) -> Lsn {
        let mut records = Vec::new();
        record::put_note(&mut records, 9, &[number]);
        self.log.append(&records, |appended| {
            thread::yield_now();
            let mut told = plain(&self.told);
            assert!(told.last().is_none_or(|last| *last < appended.end), "told of LSN {} late", appended.end);
            told.push(appended.end);
            appended.end
        })
    }

    /// Returns the records that would be left after a crash at this moment.
    fn survivors(&self) -> Vec<(Lsn, u8)> {
        let copy = MemoryDirectory::from_images(self.device.images());
        let stored = StoredLog::open(config(copy), DATABASE).expect("the copy opens");
        let lives = [Life { incarnation: 1, after: FIRST_LSN, start: FIRST_LSN }];
        let mut found = Vec::new();
        let known = Known { lsn: Lsn::ZERO, why: "", is_end: false };
        let read = stored.each_group::<LogError>(&lives, FIRST_LSN, known, |group| {
            for one in group.records {
                if let Ok(Record::Note { payload, .. }) = one {
                    found.push((group.end, payload[0]));
                }
            }
            Ok(())
        });
        assert!(read.is_ok(), "the log is damaged: {:?}", read.err());
        found
    }

    /// Appends and flushes. Checks that an acknowledged commit survives a crash.
    fn commit(&self, number: u8) -> Result<(), LogError> {
        let lsn = self.append(number);
        self.log.flush(lsn)?;
        assert!(self.log.durable() >= lsn);
        assert!(
            self.survivors().contains(&(lsn, number)),
            "commit {number} was acknowledged and is not on the device"
        );
        Ok(())
    }
}

/// Runs the commits of all threads, and returns the number of acknowledged ones.
fn run(world: &Arc<LogUnderTest>) -> usize {
    let threads: Vec<_> = (0..THREADS)
        .map(|no| {
            let world = Arc::clone(world);
            thread::spawn(move || {
                let numbers = (0..COMMITS_EACH).map(|commit| no * COMMITS_EACH + commit);
                numbers.take_while(|number| world.commit(*number).is_ok()).count()
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().expect("the model fails at its first panic")).sum()
}

fn commits() {
    let device = MemoryDirectory::new();
    let world = LogUnderTest::new(device.clone(), device);
    assert_eq!(run(&world), usize::from(THREADS * COMMITS_EACH));
    let told = plain(&world.told).clone();
    assert_eq!(world.survivors().iter().map(|(lsn, _)| *lsn).collect::<Vec<_>>(), told);
}

fn fails() {
    let device = MemoryDirectory::new();
    let faulty = Faulty::wrap(device.clone());
    let world = LogUnderTest::new(device, faulty.clone());
    faulty.arm(Rule {
        operation: Some(Operation::Write),
        space: Some(Space::Log),
        when: When::From(2),
        fault: Fault::Short,
    });
    let acknowledged = run(&world);
    assert!(acknowledged < usize::from(THREADS * COMMITS_EACH), "the fault was not met");
    assert!(world.log.admit().is_err(), "a failed log admits");
}
