//! A workload on the engine with several threads: sessions that commit together, purge, undo and page writers
//! run at the same time.
//!
//! Each thread writes its own rows of one shared table with an index. So the order of commits is known for
//! each thread, but not between threads. After a crash, the rows of a thread must be in one of the thread's
//! states: that of its last acknowledged commit, or that of the commit that had begun.
//!
//! The operating system schedules the threads. So the seed cannot repeat a failed run. Only the recording of
//! the run shows the failure again.
//!
//! Invariants
//! 1. Row `id` belongs to thread `id % THREADS`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_device::{RecordLog, Timeline};
use varve_engine::{
    Change, Database, Isolation, NewIndex, Options, Outcome, RowImage, ScanIndex, ScanSpec, Table,
};

use super::session::{data, key, new_table, primary_key, scan, stored};
use super::{Done, SCHEMA, text};
use crate::choice::choices;
use crate::cuts::Moments;
use crate::devices::{Devices, Medium};
use crate::model::{Row, body, hash_row};
use crate::pages::small_config;
use crate::rng::Rng;
use crate::search::{Failure, SearchResult, WRONG, guarded, timed};

const THREADS: usize = 4;
const TABLE: &str = "shared";

/// The commits of one thread: the digests of its states, beginning with the empty one.
type States = Mutex<Vec<u64>>;

fn mark(thread: usize, number: usize, acknowledged: bool) -> u64 {
    (thread as u64) << 40 | (number as u64) << 1 | u64::from(acknowledged)
}

/// Returns the last commit of a thread that was acknowledged, or begun, before a cut.
fn last(marks: &[u64], thread: usize, acknowledged: bool) -> usize {
    let of_thread = marks.iter().filter(|mark| (**mark >> 40) as usize == thread);
    let of_kind = of_thread.filter(|mark| (**mark & 1 == 1) == acknowledged);
    of_kind.map(|mark| ((mark & 0xFF_FFFF_FFFF) >> 1) as usize).max().unwrap_or(0)
}

fn open(devices: &Devices, background: bool) -> Result<Arc<Database>, String> {
    let mut pager = small_config(devices);
    pager.pool_bytes = 128 * pager.page_size;
    pager.log_capacity_bytes *= 4;
    pager.background = background;
    pager.page_writers = 3;
    Database::open(Options::new(pager)).map_err(text)
}

fn make_table(db: &Arc<Database>) -> Done {
    let mut txn = db.begin(Isolation::ReadCommitted);
    txn.start_statement();
    let def = txn.create_table(new_table(TABLE, Some(primary_key(TABLE)))).map_err(text)?;
    let name = format!("{TABLE}_by_group");
    let index = NewIndex {
        table: def.id,
        name,
        columns: vec![1],
        unique: false,
        constraint: false,
        tablespace: None,
    };
    txn.create_index(index).map_err(text)?;
    txn.commit().map_err(text)
}

struct Worker<'a> {
    db: &'a Arc<Database>,
    log: &'a RecordLog,
    states: &'a States,
    thread: usize,
    rng: Rng,
    rows: BTreeMap<i64, Row>,
}

impl Worker<'_> {
    fn one(&mut self) -> Done {
        let mut txn = self.db.begin(Isolation::ReadCommitted);
        txn.start_statement();
        let missing = || format!("{WRONG}: the table is not in the catalog");
        let def = txn.catalog().table(SCHEMA, TABLE).ok_or_else(missing)?;
        let table = txn.table(&def).map_err(text)?;
        let mut rows = self.rows.clone();
        for _ in 0..1 + self.rng.below(5) {
            txn.start_statement();
            self.write(&mut txn, &table, &mut rows)?;
        }
        if self.rng.one_in(6) {
            return txn.rollback().map_err(text);
        }
        let digest = rows.iter().fold(0, |sum, (id, row)| sum ^ hash(*id, row));
        self.rows = rows;
        let number = self.begin(digest);
        txn.commit().map_err(text)?;
        self.log.mark(mark(self.thread, number, true));
        Ok(())
    }

    fn begin(&self, digest: u64) -> usize {
        let mut states = self.states.lock();
        states.push(digest);
        let number = states.len() - 1;
        self.log.mark(mark(self.thread, number, false));
        number
    }

    /// Inserts, replaces or deletes one of the thread's rows.
    fn write(
        &mut self,
        txn: &mut varve_engine::Transaction,
        table: &Table,
        rows: &mut BTreeMap<i64, Row>,
    ) -> Done {
        let id = (self.rng.below(80) as usize * THREADS + self.thread) as i64;
        let len = if self.rng.one_in(12) { 5000 } else { 120 };
        let text_len = 1 + self.rng.below(len) as usize;
        let row = Row {
            group: self.rng.below(12) as i32,
            balance: self.rng.below(1000) as i64,
            body: body(&mut self.rng, text_len),
        };
        let Entry::Occupied(held) = rows.entry(id) else {
            txn.insert(table, &data(id, &row)).map_err(text)?;
            rows.insert(id, row);
            return Ok(());
        };
        let image = RowImage::encode(table.def().row_schema(), &data(id, &row)).map_err(text)?;
        let change = if self.rng.one_in(3) { Change::Delete } else { Change::Replace(image) };
        match change {
            Change::Delete => drop(held.remove()),
            _ => *held.into_mut() = row,
        }
        match txn.modify(table, &key(table.def(), id), &mut |_| Ok(change.clone())).map_err(text)? {
            Outcome::Changed => Ok(()),
            outcome => Err(format!("{WRONG}: row {id} is {outcome:?}")),
        }
    }
}

fn hash(id: i64, row: &Row) -> u64 {
    hash_row(TABLE, id, row.group, row.balance, &row.body)
}

fn work(devices: &Devices, log: &RecordLog, states: &[States], seed: u64, commits: usize) -> Done {
    let db = open(devices, true)?;
    make_table(&db)?;
    let mut rng = Rng::new(seed);
    let worked: Done = std::thread::scope(|scope| {
        let spawn = |(thread, states)| {
            let (db, rng, rows) = (&db, rng.fork(), Default::default());
            let mut worker = Worker { db, log, states, thread, rng, rows };
            scope.spawn(move || (0..commits).try_for_each(|_| worker.one()))
        };
        let threads: Vec<_> = states.iter().enumerate().map(spawn).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_string())?)
    });
    worked?;
    db.shutdown().map_err(text)
}

/// Opens the database after a crash. Returns a digest of each thread's rows, and the damages.
fn recover(devices: &Devices) -> Result<([u64; THREADS], Vec<String>), String> {
    let db = open(devices, false)?;
    let mut digests = [0; THREADS];
    let mut txn = db.begin(Isolation::ReadCommitted);
    txn.start_statement();
    let mut damages = Vec::new();
    if let Some(def) = txn.catalog().table(SCHEMA, TABLE) {
        let table = txn.table(&def).map_err(text)?;
        let mut on_row = |_: &[u8], row: varve_engine::RowRef<'_>| {
            match stored(row) {
                Ok((id, row)) => digests[id as usize % THREADS] ^= hash(id, &row),
                Err(what) => damages.push(what),
            }
            Ok(ControlFlow::Continue(()))
        };
        txn.scan(&table, &ScanSpec::ALL, &mut on_row).map_err(text)?;
        let all = digests.iter().fold(0, |sum, one| sum ^ one);
        for index in &def.indexes {
            if scan(&mut txn, &table, ScanIndex::Secondary(index.id))?.0 != all {
                damages.push(format!("index {} holds other rows than its table", index.name));
            }
        }
    }
    txn.commit().map_err(text)?;
    db.tick().map_err(text)?;
    damages.extend(db.check().map_err(text)?.damages);
    db.shutdown().map_err(text)?;
    Ok((digests, damages))
}

fn judge(marks: &[u64], states: &[Vec<u64>], devices: &Devices) -> Done {
    let (digests, damages) = guarded(|| recover(devices))?;
    if let Some(damage) = damages.first() {
        return Err(format!("the check finds {} damages, first: {damage}", damages.len()));
    }
    for (thread, digest) in digests.into_iter().enumerate() {
        let (acknowledged, begun) = (last(marks, thread, true), last(marks, thread, false));
        let promised = states.get(thread).and_then(|states| states.get(acknowledged..=begun));
        if !promised.is_some_and(|promised| promised.contains(&digest)) {
            return Err(format!("thread {thread}: none of its states from {acknowledged} to {begun}"));
        }
    }
    Ok(())
}

/// Runs the threads once, and tries crash images of the recording.
pub fn search_throng(seed: u64, commits: usize, images: usize) -> SearchResult {
    const IMAGES_PER_CUT: usize = 8;
    let log = RecordLog::new();
    let devices = Devices::recorded(Medium::Memory, seed, &log);
    let states: Vec<States> = (0..THREADS).map(|_| Mutex::new(vec![0])).collect();
    let mut found = SearchResult::default();
    if let Err(what) = guarded(|| work(&devices, &log, &states, seed, commits)) {
        found
            .failures
            .push(Failure { image: 0, what: format!("seed {seed}: the workload itself failed: {what}") });
        return found;
    }
    let states: Vec<Vec<u64>> = states.into_iter().map(Mutex::into_inner).collect();
    found.commits = states.iter().map(|states| states.len() - 1).sum();
    let mut rng = Rng::new(seed ^ 0x7480);
    let recording = log.recording();
    let cuts = Moments::of(&recording).some(images / 2, &mut rng);
    let mut timeline = Timeline::new(recording);
    for cut in cuts {
        timeline.advance(cut);
        for fates in choices(&timeline.pending(), &mut rng, IMAGES_PER_CUT) {
            let devices = Devices::of_images(Medium::Memory, timeline.image(&fates));
            found.images += 1;
            let judged = timed(&mut found.recovering, || judge(timeline.marks(), &states, &devices));
            if let Err(what) = judged {
                found
                    .failures
                    .push(Failure { image: found.images, what: format!("seed {seed}, cut {cut}: {what}") });
                return found;
            }
        }
    }
    found
}
