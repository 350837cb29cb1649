//! Model of table locks and row locks. It checks three rules. No two transactions hold conflicting modes. No
//! transaction waits for ever. A transaction becomes a deadlock victim only if there is a cycle of waits.
//!
//! The tested code is the engine's `table_lock.rs`, `lock_queue.rs`, `waits.rs` and `deadlock.rs`, and its
//! registry. The model replaces the list of a row's lock holders.

use std::sync::{Arc, Mutex};

use shuttle::thread;

use crate::checker::{How, Model};
use crate::engine::ids::Owner;
use crate::engine::modes::LockMode;
use crate::engine::registry::Registry;
use crate::engine::table_lock::{TableLock, Waiting};
use crate::engine::waits::{HeldRow, Patience, Waits, wake_one};
use crate::frames::plain;
use crate::pager::PagerError;

pub(crate) const TABLES: Model = Model {
    name: "no two have modes of a table that exclude each other, and nobody waits for ever",
    how: How::Shuttle,
    run: tables,
    flaws: &[
        "strong modes looked for before the table is noted",
        "a strong mode that is not counted",
        "a note taken back in silence",
        "a wake-up forgotten after the queue was looked at",
    ],
};

pub(crate) const WATCHED: Model = Model {
    name: "who waits for a table that somebody uses is told of the end",
    how: How::Shuttle,
    run: watched,
    flaws: &["a note watched after it was looked at"],
};

pub(crate) const CIRCLES: Model = Model {
    name: "of those who lock two tables crosswise one is the victim at most, and all come to an end",
    how: How::Shuttle,
    run: circles,
    flaws: &[],
};

pub(crate) const UPGRADES: Model = Model {
    name: "who shares a row and wants more of it is no victim of those who wait for him",
    how: How::Shuttle,
    run: upgrades,
    flaws: &["a follower put behind himself"],
};

/// The errors of the engine that locks can return.
#[derive(Debug)]
pub(crate) enum Error {
    Deadlock,
    LockTimeout,
    TooManyLocks,
    Cancelled,
    #[expect(dead_code, reason = "read by Debug alone")]
    Pager(PagerError),
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl From<PagerError> for Error {
    fn from(error: PagerError) -> Self {
        Self::Pager(error)
    }
}

const FOREVER: Patience<'static> =
    Patience { timeout: None, deadline: None, cancel: None, log: None, notice: None };

struct LocksUnderTest {
    registry: Registry,
    waits: Waits,
    tables: [TableLock; 2],
    /// For the check: the transactions that have the tables, and their modes.
    inside: Mutex<Vec<(usize, Owner, LockMode)>>,
    /// The transactions that have the row, shared or exclusively.
    row: Mutex<Vec<(Owner, bool)>>,
}

fn world() -> Arc<LocksUnderTest> {
    Arc::new(LocksUnderTest {
        registry: Registry::new(),
        waits: Waits::default(),
        tables: [TableLock::new(1), TableLock::new(2)],
        inside: Mutex::default(),
        row: Mutex::default(),
    })
}

impl LocksUnderTest {
    fn lock(&self, me: Owner, table: usize, mode: LockMode) -> Result<()> {
        let waiting = Waiting { registry: &self.registry, waits: &self.waits, me, patience: FOREVER };
        match mode.is_weak() {
            true => drop(self.tables[table].lock_weak(mode, waiting)?),
            false => drop(self.tables[table].lock(mode, waiting)?),
        }
        let mut inside = plain(&self.inside);
        let excluded = inside.iter().filter(|(other, owner, has)| {
            *other == table && *owner != me && has.bit() & mode.excludes() != 0
        });
        assert_eq!(excluded.count(), 0, "{mode:?} of table {table} beside {inside:?}");
        inside.push((table, me, mode));
        Ok(())
    }

    fn end(&self, me: Owner) {
        plain(&self.inside).retain(|(_, owner, _)| *owner != me);
        plain(&self.row).retain(|(owner, _)| *owner != me);
        self.waits.unlock_all(&self.registry, me, 0, |_, _| false);
        self.registry.end(me);
        self.waits.wake(&self.registry, me);
        self.registry.vacate(me);
    }

    fn use_table(&self, mode: LockMode) {
        for _ in 0..2 {
            let me = self.registry.claim();
            self.lock(me, 0, mode).expect("one table is no circle");
            thread::yield_now();
            self.end(me);
        }
    }

    /// Locks both tables. Returns whether the transaction was a deadlock victim.
    fn use_both(&self, first: usize, modes: [LockMode; 2]) -> bool {
        let me = self.registry.claim();
        let outcome = self.lock(me, first, modes[0]).and_then(|()| {
            thread::yield_now();
            self.lock(me, 1 - first, modes[1])
        });
        self.end(me);
        outcome.is_err()
    }

    /// Locks the row exclusively or shared.
    fn lock_row(&self, me: Owner, alone: bool) -> Result<()> {
        let ticket = self.waits.ticket();
        loop {
            let released = self.waits.releases();
            let holder = {
                let mut row = plain(&self.row);
                let found =
                    row.iter().find(|(owner, is_alone)| *owner != me && (alone || *is_alone)).copied();
                if found.is_none() {
                    row.push((me, alone));
                }
                found
            };
            let Some((by, _)) = holder else { return Ok(()) };
            self.waits.wait(&self.registry, me, HeldRow { by, released, want: 7, ticket }, FOREVER)?;
        }
    }
}

fn finish<T>(threads: Vec<thread::JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().expect("the model fails at its first panic")).collect()
}

fn start<T: Send + 'static>(
    world: &Arc<LocksUnderTest>,
    run: fn(&LocksUnderTest) -> T,
) -> thread::JoinHandle<T> {
    let world = Arc::clone(world);
    thread::spawn(move || run(&world))
}

fn tables() {
    let world = world();
    finish(vec![
        start(&world, |world| world.use_table(LockMode::RowExclusive)),
        start(&world, |world| world.use_table(LockMode::AccessShare)),
        start(&world, |world| world.use_table(LockMode::Share)),
        start(&world, |world| world.use_table(LockMode::AccessExclusive)),
        // Wake-ups for earlier waits in the same slots.
        start(&world, |world| {
            for _ in 0..2 {
                let me = world.registry.claim();
                (0..=me.slot).for_each(|slot| wake_one(&world.registry, slot));
                world.end(me);
            }
        }),
    ]);
}

fn watched() {
    let world = world();
    let once = |world: &LocksUnderTest, mode| {
        let me = world.registry.claim();
        world.lock(me, 0, mode).expect("one table is no circle");
        world.end(me);
    };
    let other = Arc::clone(&world);
    let reader = thread::spawn(move || once(&other, LockMode::AccessShare));
    once(&world, LockMode::AccessExclusive);
    finish(vec![reader]);
}

fn circles() {
    use LockMode::{AccessExclusive, AccessShare};
    let world = world();
    let victims = finish(vec![
        start(&world, |world| world.use_both(0, [AccessShare, AccessExclusive])),
        start(&world, |world| world.use_both(1, [AccessShare, AccessExclusive])),
        start(&world, |world| world.use_both(0, [AccessShare, AccessShare])),
    ]);
    assert!(!victims[2], "a reader is in no circle of holders");
    assert!(victims.into_iter().filter(|victim| *victim).count() <= 1);
}

fn upgrades() {
    let world = world();
    let both = [(); 2].map(|()| world.registry.claim());
    for sharer in both {
        world.lock_row(sharer, false).expect("nobody is there");
    }
    let other = Arc::clone(&world);
    let gone = thread::spawn(move || other.end(both[0]));
    let other = Arc::clone(&world);
    let upgraded = thread::spawn(move || {
        other.lock_row(both[1], true).expect("it only waits for a share that is given back");
        other.end(both[1]);
    });
    let alone = |world: &LocksUnderTest| {
        let me = world.registry.claim();
        world.lock_row(me, true).expect("it has nothing that anybody waits for");
        world.end(me);
    };
    finish(vec![gone, upgraded, start(&world, alone), start(&world, alone)]);
}
