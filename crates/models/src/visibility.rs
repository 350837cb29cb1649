//! Model of snapshots and the order of commits. It checks three rules. What a snapshot shows never changes.
//! It is a prefix of the commit order. It includes all commits that were acknowledged before the snapshot was
//! taken.
//!
//! The tested code is the engine's `status.rs` and `registry.rs` on the pager's log. The model replaces rows
//! by a list of writers, and it replaces `Core::sight`.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use shuttle::thread;
use varve_device::MemoryDirectory;

use crate::checker::{How, Model, flaw};
use crate::engine::ids::TxnId;
use crate::engine::registry::Registry;
use crate::engine::status::{Status, StatusTable};
use crate::frames::plain;
use crate::pager::log::{FIRST_LSN, LogConfig, StoredLog, Tail, record};
use crate::pager::{Log, Lsn};

pub(crate) const SNAPSHOTS: Model = Model {
    name: "a snapshot always shows the same prefix of the commits, with all that were acknowledged before it",
    how: How::Shuttle,
    run: snapshots,
    flaws: &[
        COMMITTED_LATE,
        "tag of a state not looked at again",
        "tag of a state not cleared before it changes",
        "floor above what an old snapshot must not see",
    ],
};

pub(crate) const HORIZON: Model = Model {
    name: "no snapshot is older than a horizon that was given out",
    how: How::Shuttle,
    run: horizon,
    flaws: &[
        "snapshot taken without looking at the horizon again",
        "horizon raised after the snapshots are read",
    ],
};

/// This bug is planted in this file, and not in the copied sources.
pub(crate) const COMMITTED_LATE: &str = "committed after the append section";

struct TransactionsUnderTest {
    log: Log,
    status: StatusTable,
    registry: Registry,
    /// The writers of existing rows, in no particular order.
    rows: Mutex<Vec<TxnId>>,
    /// The commits in LSN order.
    commits: Mutex<Vec<(Lsn, TxnId)>>,
    acknowledged: Mutex<Vec<TxnId>>,
    /// For the check: the snapshots in use.
    in_use: Mutex<Vec<(usize, Lsn)>>,
}

fn world() -> Arc<TransactionsUnderTest> {
    let config =
        LogConfig { directory: MemoryDirectory::new(), segment_bytes: 64 << 10, capacity_bytes: 512 << 10 };
    let stored = StoredLog::open(config, 7).expect("a new log");
    let log = stored.resume(1, Tail::empty(), FIRST_LSN).expect("a new log");
    Arc::new(TransactionsUnderTest {
        log,
        status: StatusTable::new(TxnId::new(1)),
        registry: Registry::new(),
        rows: Mutex::default(),
        commits: Mutex::default(),
        acknowledged: Mutex::default(),
        in_use: Mutex::default(),
    })
}

impl TransactionsUnderTest {
    fn write(&self, commits: bool) {
        let owner = self.registry.claim();
        let id = self.status.assign(owner, TxnId::new(1 << 40)).expect("ids are not used up");
        plain(&self.rows).push(id);
        thread::yield_now();
        if commits {
            self.commit(id);
        } else {
            plain(&self.rows).retain(|row| *row != id);
            self.status.set_aborted(id);
        }
        self.registry.end(owner);
        self.registry.vacate(owner);
    }

    fn commit(&self, id: TxnId) {
        let mut records = Vec::new();
        record::put_note(&mut records, 9, b"commit");
        let lsn = self.log.append(&records, |appended| {
            if !flaw(COMMITTED_LATE) {
                self.status.set_committed(id, appended.end);
            }
            plain(&self.commits).push((appended.end, id));
            appended.end
        });
        if flaw(COMMITTED_LATE) {
            self.status.set_committed(id, lsn);
        }
        self.log.flush(lsn).expect("memory takes the log");
        plain(&self.acknowledged).push(id);
    }

    /// Returns the writers whose rows a snapshot sees now.
    fn visible(&self, snapshot: Lsn) -> Vec<TxnId> {
        loop {
            let floor = self.status.floor();
            let rows = plain(&self.rows).clone();
            let seen: Option<Vec<_>> = rows.iter().map(|row| self.sees(*row, floor, snapshot)).collect();
            if let Some(seen) = seen {
                let mut shown: Vec<_> =
                    rows.into_iter().zip(seen).filter(|(_, seen)| *seen).map(|(row, _)| row).collect();
                shown.sort();
                return shown;
            }
        }
    }

    /// Does the same as `Core::sight`. `None` means that the row must be read again.
    fn sees(&self, row: TxnId, floor: TxnId, snapshot: Lsn) -> Option<bool> {
        if row < floor {
            return Some(true);
        }
        match self.status.get(row) {
            Status::Old => Some(true),
            Status::Committed(lsn, _) => Some(lsn <= snapshot),
            Status::Active(_) => Some(false),
            Status::Aborted | Status::Forgotten => None,
        }
    }

    fn read(&self) {
        let owner = self.registry.claim();
        let promised = plain(&self.acknowledged).clone();
        let snapshot = self.registry.take_snapshot(owner, || self.log.durable());
        let first = self.visible(snapshot);
        thread::yield_now();
        let second = self.visible(snapshot);
        let mut prefix: Vec<TxnId> =
            plain(&self.commits).iter().filter(|(lsn, _)| *lsn <= snapshot).map(|(_, id)| *id).collect();
        prefix.sort();
        assert_eq!(
            (&first, &second),
            (&prefix, &prefix),
            "snapshot {snapshot} shows something else than its prefix"
        );
        assert!(promised.iter().all(|id| first.contains(id)), "a snapshot without an acknowledged commit");
        self.registry.end(owner);
        self.registry.vacate(owner);
    }

    fn purge(&self) {
        let oldest = self.registry.oldest(self.log.durable());
        self.status.advance_floor(oldest);
    }
}

fn finish(threads: Vec<thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("the model fails at its first panic"));
}

fn start(world: &Arc<TransactionsUnderTest>, run: fn(&TransactionsUnderTest)) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || run(&world))
}

fn snapshots() {
    let world = world();
    let writer =
        start(&world, |world| [true, true, false].into_iter().for_each(|commits| world.write(commits)));
    let another = start(&world, |world| (0..3).for_each(|_| world.write(true)));
    let reader = start(&world, |world| (0..2).for_each(|_| world.read()));
    let purger = start(&world, |world| (0..3).for_each(|_| world.purge()));
    finish(vec![writer, another, reader, purger]);
    world.read();
}

fn horizon() {
    static NOW: AtomicU64 = AtomicU64::new(0);
    NOW.store(0, SeqCst);
    let world = world();
    let reader = |world: &TransactionsUnderTest| {
        for _ in 0..2 {
            let owner = world.registry.claim();
            let snapshot = world.registry.take_snapshot(owner, || Lsn::new(NOW.fetch_add(1, SeqCst)));
            plain(&world.in_use).push((owner.slot as usize, snapshot));
            thread::yield_now();
            plain(&world.in_use).retain(|(slot, _)| *slot != owner.slot as usize);
            world.registry.end(owner);
            world.registry.vacate(owner);
        }
    };
    let purger = |world: &TransactionsUnderTest| {
        for _ in 0..3 {
            let oldest = world.registry.oldest(Lsn::new(NOW.fetch_add(1, SeqCst)));
            let in_use = plain(&world.in_use);
            assert!(
                in_use.iter().all(|(_, snapshot)| *snapshot >= oldest),
                "horizon {oldest} above a snapshot in use: {in_use:?}"
            );
            drop(in_use);
            thread::yield_now();
        }
    };
    finish(vec![start(&world, reader), start(&world, reader), start(&world, purger)]);
}
