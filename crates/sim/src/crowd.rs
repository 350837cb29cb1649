//! Tests the pager with several threads: group commit, page writers and checkpoints run at the same time.
//!
//! Each thread changes words of a few pages in one mini-transaction, and waits until the log of the change is
//! durable. The history records a commit while the commit's log records are appended. So the history has the
//! order of the log.
//!
//! The operating system schedules the threads. So the seed cannot repeat a failed run. Only the recording of
//! the run shows the failure again.
//!
//! Invariants
//! 1. A thread latches pages in ascending order.
//!
//! All pages are allocated before the threads start, so this workload does not test allocation.

use std::sync::Arc;

use parking_lot::Mutex;
use varve_pager::page::PAGE_HEADER_BYTES;
use varve_pager::{Access, Lsn, Mtr, PageId, Pager, SpaceId};

use crate::devices::Devices;
use crate::history::History;
use crate::pages::{KIND, NoOperations, small_config};
use crate::parts::Part;
use crate::rng::Rng;
use crate::search::{Recovered, Subject, Workbench};

const THREADS: u64 = 4;
const PAGES: u64 = 90;
const WORDS: u64 = 8;
/// After a recovery each thread makes 1, 2, 4, ... more commits.
const COMMITS_AFTER_BITS: u64 = 6;

/// The workload of several threads on raw pages.
pub struct Crowd {
    /// The number of mini-transactions of each thread.
    pub commits: usize,
    /// The configuration, which does not change.
    pub part: Part,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn open(devices: &Devices, part: Part, background: bool) -> Result<Pager, String> {
    let mut config = varve_pager::PagerConfig { background, ..small_config(devices) };
    part.configure(&mut config, devices);
    Pager::open(config, Arc::new(NoOperations)).map_err(text)
}

fn hash(page: u64, word: u64, value: u64) -> u64 {
    if value == 0 { 0 } else { Rng::new(page << 40 ^ word << 32 ^ value.rotate_left(9)).draw() }
}

fn offset(word: u64) -> usize {
    PAGE_HEADER_BYTES + word as usize * 8
}

fn word_of(page: &[u8], word: u64) -> u64 {
    let bytes = page.get(offset(word)..offset(word) + 8);
    bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Returns the pages, in the order in which the root page lists them.
fn listed(pager: &Pager) -> Result<Vec<PageId>, String> {
    let root = pager.fix_s(PageId::ROOT, Access::Random).map_err(text)?;
    Ok((0..PAGES).filter_map(|entry| PageId::from_u64(word_of(&root, entry))).collect())
}

/// Makes the pages and lists them. The mini-transactions do not change the state in the history.
fn make_pages(pager: &Pager) -> Result<(), String> {
    let owner = pager.create_segment(SpaceId::DATA).map_err(text)?;
    for entry in 0..PAGES {
        pager.reserve(SpaceId::DATA, 1).map_err(text)?;
        let mut mtr = pager.begin().map_err(text)?;
        let root = mtr.x(PageId::ROOT).map_err(text)?;
        let id = mtr.allocate(SpaceId::DATA, owner, None).map_err(text)?;
        mtr.create(id, KIND, owner).map_err(text)?;
        mtr.write(root, offset(entry), &id.to_u64().to_le_bytes());
        mtr.commit();
    }
    Ok(())
}

struct Worker<'a> {
    pager: &'a Pager,
    pages: &'a [PageId],
    history: &'a History,
    digest: &'a Mutex<u64>,
    rng: Rng,
}

impl Worker<'_> {
    fn one(&mut self) -> Result<(), String> {
        let mut chosen: Vec<u64> = (0..1 + self.rng.below(3)).map(|_| self.rng.below(PAGES)).collect();
        chosen.sort_unstable();
        chosen.dedup();
        let mut mtr = self.pager.begin().map_err(text)?;
        let mut change = 0;
        let mut held = Vec::new();
        for page in chosen {
            held.push((page, mtr.x(self.pages[page as usize]).map_err(text)?));
        }
        for (page, handle) in held {
            let (word, value) = (self.rng.below(WORDS), self.rng.draw());
            change ^= hash(page, word, word_of(mtr.page(handle), word)) ^ hash(page, word, value);
            mtr.write(handle, offset(word), &value.to_le_bytes());
        }
        let (number, end) = self.commit(mtr, change);
        self.pager.flush_log(end).map_err(text)?;
        self.history.acknowledge(number);
        Ok(())
    }

    fn commit(&self, mtr: Mtr<'_>, change: u64) -> (usize, Lsn) {
        let mut number = 0;
        let end = mtr.commit_with(|_| {
            let mut digest = self.digest.lock();
            *digest ^= change;
            number = self.history.begin(*digest);
        });
        (number, end)
    }
}

/// Returns the digest of all words.
fn digest(pager: &Pager) -> Result<u64, String> {
    let mut digest = 0;
    for (page, id) in (0..).zip(listed(pager)?) {
        let bytes = pager.fix_s(id, Access::Random).map_err(text)?;
        digest ^=
            (0..WORDS).map(|word| hash(page, word, word_of(&bytes, word))).fold(0, |sum, one| sum ^ one);
    }
    Ok(digest)
}

impl Crowd {
    /// Runs this number of mini-transactions in each thread, and shuts down cleanly.
    fn run(&self, pager: &Pager, bench: &mut Workbench, digest: u64, commits: usize) -> Result<(), String> {
        let pages = listed(pager)?;
        let digest = Mutex::new(digest);
        let worked: Result<(), String> = std::thread::scope(|scope| {
            let spawn = |_| {
                let rng = bench.rng.fork();
                let history = &bench.history;
                let mut worker = Worker { pager, pages: &pages, history, digest: &digest, rng };
                scope.spawn(move || (0..commits).try_for_each(|_| worker.one()))
            };
            let threads: Vec<_> = (0..THREADS).map(spawn).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_string())?)
        });
        worked?;
        pager.shutdown().map_err(text)
    }
}

impl Subject for Crowd {
    fn work(&self, bench: &mut Workbench) -> Result<(), String> {
        let pager = open(&bench.devices, self.part, true)?;
        make_pages(&pager)?;
        self.run(&pager, bench, 0, self.commits)
    }

    fn go_on(&self, bench: &mut Workbench, twin: &Devices) -> Result<(), String> {
        let before = digest(&open(twin, self.part, false)?)?;
        bench.history.resume(before);
        let pager = open(&bench.devices, self.part, true)?;
        bench.history.opened();
        // The crash was during the creation of the pages, so there are too few for the workload.
        if listed(&pager)?.len() < PAGES as usize {
            return pager.shutdown().map_err(text);
        }
        let commits = 1 << bench.rng.below(COMMITS_AFTER_BITS);
        self.run(&pager, bench, before, commits)
    }

    fn recover(&self, devices: &Devices, opened: &mut dyn FnMut()) -> Result<Recovered, String> {
        let pager = open(devices, self.part, false)?;
        opened();
        let damages = pager.check().map_err(text)?.damages;
        let digest = digest(&pager)?;
        pager.shutdown().map_err(text)?;
        Ok(Recovered { digest, damages })
    }
}
