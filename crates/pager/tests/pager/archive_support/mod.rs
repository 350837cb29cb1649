//! Helpers for tests of the log archive: an archive in memory that can fail, and a database whose states are
//! known at each LSN.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use varve_pager::{
    ArchiveOptions, ArchiveSource, ArchiveStore, Archiver, BackupOptions, BackupSource, Compression, Lsn,
    PageId, Pager, PagerConfig, PagerError, RestoreReport, SpaceId, StoredPiece, TimelineName, Until,
    restore_until,
};

use crate::common::{KIND, NoOps, Random, get, open};

/// The number that each page has.
pub type Known = BTreeMap<PageId, u64>;

/// An archive in memory.
#[derive(Default)]
pub struct MemoryArchive {
    pub pieces: Mutex<BTreeMap<(u64, u64, u64), Vec<u8>>>,
    /// Whether all calls fail.
    pub fails: AtomicBool,
    /// Whether `create` fails.
    pub is_full: AtomicBool,
    /// Whether `read` fails.
    pub fails_reads: AtomicBool,
    /// Whether `create` stores the piece, and fails all the same.
    pub loses_answers: AtomicBool,
}

fn key(timeline: TimelineName, start: Lsn) -> (u64, u64, u64) {
    (timeline.database, timeline.timeline, start.get())
}

impl MemoryArchive {
    fn check(&self) -> io::Result<()> {
        if self.fails.load(Ordering::Relaxed) { Err(io::Error::other("it is gone")) } else { Ok(()) }
    }

    /// Returns the names of all timelines.
    pub fn names(&self) -> Vec<TimelineName> {
        self.timelines().unwrap()
    }

    /// Returns the number of pieces of a timeline.
    pub fn count(&self, timeline: TimelineName) -> usize {
        self.pieces(timeline).unwrap().len()
    }
}

impl ArchiveStore for MemoryArchive {
    fn location(&self) -> String {
        "in memory".into()
    }

    fn timelines(&self) -> io::Result<Vec<TimelineName>> {
        self.check()?;
        let name = |(database, timeline, _): &(u64, u64, u64)| TimelineName {
            database: *database,
            timeline: *timeline,
        };
        let mut names: Vec<TimelineName> = self.pieces.lock().keys().map(name).collect();
        names.dedup();
        Ok(names)
    }

    fn pieces(&self, timeline: TimelineName) -> io::Result<Vec<StoredPiece>> {
        self.check()?;
        let pieces = self.pieces.lock();
        let range = pieces.range(key(timeline, Lsn::ZERO)..=key(timeline, Lsn::MAX));
        let stored = |((_, _, start), piece): (&(u64, u64, u64), &Vec<u8>)| StoredPiece {
            start: Lsn::new(*start),
            bytes: piece.len() as u64,
        };
        Ok(range.map(stored).collect())
    }

    fn create(&self, timeline: TimelineName, start: Lsn, piece: &[u8]) -> io::Result<bool> {
        self.check()?;
        if self.is_full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut pieces = self.pieces.lock();
        if pieces.contains_key(&key(timeline, start)) {
            return Ok(false);
        }
        pieces.insert(key(timeline, start), piece.to_vec());
        if self.loses_answers.load(Ordering::Relaxed) { Err(io::Error::other("no answer")) } else { Ok(true) }
    }

    fn replace(&self, timeline: TimelineName, start: Lsn, piece: &[u8]) -> io::Result<()> {
        self.check()?;
        self.pieces.lock().insert(key(timeline, start), piece.to_vec());
        Ok(())
    }

    fn remove(&self, timeline: TimelineName, starts: &[Lsn]) -> io::Result<()> {
        self.check()?;
        let mut pieces = self.pieces.lock();
        starts.iter().for_each(|start| drop(pieces.remove(&key(timeline, *start))));
        Ok(())
    }

    fn read(&self, timeline: TimelineName, start: Lsn) -> io::Result<Vec<u8>> {
        self.check()?;
        if self.fails_reads.load(Ordering::Relaxed) {
            return Err(io::Error::other("a passing error"));
        }
        let found = self.pieces.lock().get(&key(timeline, start)).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// A backup in memory.
pub struct Stored(pub Vec<u8>);

impl BackupSource for Stored {
    fn name(&self) -> String {
        "the backup".into()
    }

    fn open(&self) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(&self.0[..]))
    }
}

pub fn backup_of(pager: &Pager) -> Stored {
    let mut backup = pager.backup(BackupOptions::default()).unwrap();
    let mut bytes = Vec::new();
    while backup.next(&mut bytes).unwrap() {}
    Stored(bytes)
}

/// One change: the LSN of its commit, the page, and its number, or `None` if the page was freed.
type Done = (Lsn, PageId, Option<u64>);

/// A moment at which the state is known.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    pub lsn: Lsn,
    pub time_us: u64,
}

/// A database with an archive, whose state is known at each LSN.
pub struct Archived {
    pub config: PagerConfig,
    pub store: Arc<MemoryArchive>,
    pub pager: Pager,
    pub archiver: Archiver,
    pub owner: u32,
    pub done: Vec<Done>,
    pub random: Random,
}

pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

pub fn options(store: &Arc<MemoryArchive>) -> ArchiveOptions {
    let interval = Duration::from_secs(1);
    ArchiveOptions { store: store.clone(), interval, compression: Compression::NONE }
}

fn begin(config: &PagerConfig, store: &Arc<MemoryArchive>) -> (Pager, Archiver) {
    let pager = open(config);
    let archiver = Archiver::begin(&pager, options(store)).unwrap();
    (pager, archiver)
}

impl Archived {
    pub fn new(config: PagerConfig, seed: u64) -> Archived {
        let config = PagerConfig { archives: true, ..config };
        let store = Arc::default();
        let (pager, archiver) = begin(&config, &store);
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        let random = Random(seed);
        Archived { config, store, pager, archiver, owner, done: Vec::new(), random }
    }

    /// Opens the database again with another configuration.
    pub fn opened(self, config: PagerConfig) -> Archived {
        let Archived { store, pager, archiver, owner, done, random, .. } = self;
        drop((pager, archiver));
        let (pager, archiver) = begin(&config, &store);
        Archived { config, store, pager, archiver, owner, done, random }
    }

    /// Ends the run, cleanly or as `kill -9` does, and begins another one.
    pub fn restarted(self, is_clean: bool) -> Archived {
        if is_clean {
            let _failed = self.archiver.archive();
            self.pager.shutdown().unwrap();
            let _failed = self.archiver.archive();
        }
        let config = self.config.clone();
        self.opened(config)
    }

    /// Returns the state at an LSN.
    pub fn at(&self, lsn: Lsn) -> Known {
        let mut known = Known::new();
        for (_, id, number) in self.done.iter().filter(|(end, ..)| *end <= lsn) {
            match number {
                Some(number) => drop(known.insert(*id, *number)),
                None => drop(known.remove(id)),
            }
        }
        known
    }

    fn change(&mut self, known: &Known) {
        let number = self.random.next();
        let chosen = known.keys().nth(self.random.below(known.len().max(1) as u64) as usize).copied();
        let mut mtr = self.pager.begin().unwrap();
        let (id, number) = match (self.random.below(10), chosen) {
            (0..4, _) | (_, None) => {
                let id = mtr.allocate(SpaceId::DATA, self.owner, None).unwrap();
                let new = mtr.create(id, KIND, self.owner).unwrap();
                mtr.write(new, 100, &number.to_le_bytes());
                (id, Some(number))
            }
            (4, Some(id)) => {
                mtr.free(id).unwrap();
                (id, None)
            }
            (_, Some(id)) => {
                let old = mtr.x(id).unwrap();
                mtr.write(old, 100, &number.to_le_bytes());
                (id, Some(number))
            }
        };
        mtr.note_commit();
        let end = mtr.commit();
        self.done.push((end, id, number));
    }

    /// Makes random changes, durably.
    pub fn work(&mut self, steps: u64) {
        let mut known = self.at(Lsn::MAX);
        for _ in 0..steps {
            self.change(&known);
            if let Some((_, id, number)) = self.done.last() {
                match number {
                    Some(number) => drop(known.insert(*id, *number)),
                    None => drop(known.remove(id)),
                }
            }
        }
        self.pager.flush_log(self.pager.log().end()).unwrap();
    }

    /// Returns the present moment. Later commits have later times.
    pub fn mark(&self) -> Mark {
        let mark = Mark { lsn: self.pager.log().end(), time_us: now_us() };
        while now_us() <= mark.time_us {}
        mark
    }

    pub fn backup(&self) -> Stored {
        backup_of(&self.pager)
    }

    /// Restores a backup to a moment.
    pub fn restore(
        &self,
        target: &PagerConfig,
        backup: &Stored,
        until: Until,
    ) -> Result<RestoreReport, PagerError> {
        self.restore_on(target, backup, until, None)
    }

    pub fn restore_on(
        &self,
        target: &PagerConfig,
        backup: &Stored,
        until: Until,
        timeline: Option<u64>,
    ) -> Result<RestoreReport, PagerError> {
        let archive = ArchiveSource { store: &*self.store, timeline, until };
        restore_until(target.clone(), Arc::new(NoOps), &[backup], Some(archive), &str::to_owned)
    }

    /// Returns the messages of the archiver.
    pub fn notices(&self) -> String {
        let notices = self.archiver.take_notices();
        notices.into_iter().map(|notice| notice.what + "\n").collect()
    }
}

/// Opens a database twice, and checks that it has exactly these pages.
pub fn check(config: &PagerConfig, known: &Known, what: &str) {
    for _ in 0..2 {
        let pager = open(config);
        assert_eq!(pager.check().unwrap().damages, Vec::<String>::new(), "{what}");
        let owners = pager.owners(SpaceId::DATA).unwrap();
        let ids = owners.keys().flat_map(|owner| pager.pages_of_owner(SpaceId::DATA, *owner).unwrap());
        let found: Known = ids.map(|id| (id, get(&pager, id).unwrap())).collect();
        assert_eq!(found.len(), known.len(), "{what}");
        assert_eq!(&found, known, "{what}");
        pager.shutdown().unwrap();
    }
}
