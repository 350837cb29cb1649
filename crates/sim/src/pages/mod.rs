//! The pager under test: mini-transactions on raw pages.
//!
//! The root page lists the pages in use; each page is an array of 64-bit words. A commit here is one
//! mini-transaction; it is acknowledged when the log was flushed up to it.
//!
//! Invariants
//! 1. The digest is the XOR over all words that are not zero of a hash of (page, word, value), so
//!    pages that are freed and given out again must read as they were last formatted.
//!
//! What it does not know: trees, rows.

mod known;

use std::sync::Arc;

use varve_device::Space;
use varve_pager::page::{FIRST_ENGINE_KIND, PAGE_HEADER_BYTES};
use varve_pager::{CheckpointConfig, Lsn, PageId, Pager, PagerConfig, RedoError, RedoOps, SpaceId};

use self::known::{Known, Model, digest};
use crate::devices::Devices;
use crate::parts::Part;
use crate::relief::{Steps, drive};
use crate::rng::Rng;
use crate::search::{Recovered, Subject, WRONG, Workbench, outcome};

pub(crate) const PAGE_BYTES: usize = 4096;
/// After a recovery there are 1, 2, 4, ... commits more.
const COMMITS_AFTER_BITS: u64 = 8;

/// Few of them mostly: what a recovery leaves in memory is soon gone.
fn commits_after(rng: &mut Rng) -> usize {
    let bits = 1 + rng.below(COMMITS_AFTER_BITS);
    1 << rng.below(bits)
}

/// Pages the root can list: a small part of its body, so that torn writes of it matter.
const PAGES_MAX: usize = 150;

/// Words of a page of this size.
fn words(page_bytes: usize) -> u64 {
    (page_bytes - PAGE_HEADER_BYTES) as u64 / 8
}
pub(crate) const KIND: u8 = FIRST_ENGINE_KIND + 100;

/// Kinds of load, chosen by the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Everything now and then.
    Even,
    /// Segments come and go, with checkpoints between.
    Fleeting,
    /// Pages are written again and again, in batches of all sizes, and the redo position stays behind: copies of
    /// several ages lie in the doublewrite file.
    Cleaning,
}

const LOADS: [Load; 4] = [Load::Even, Load::Even, Load::Fleeting, Load::Cleaning];

/// The pager with its smallest pool, so that pages are stolen.
pub struct Pages {
    /// Mini-transactions of the workload.
    pub commits: usize,
    /// Kind of load; `None` = by the seed.
    pub load: Option<Load>,
    /// What it is put together from.
    pub part: Part,
    /// Bytes of a page.
    pub page_bytes: usize,
}

impl Pages {
    /// A workload of this many mini-transactions.
    pub fn new(commits: usize) -> Pages {
        Pages { commits, load: None, part: Part::Doublewrite, page_bytes: PAGE_BYTES }
    }

    fn open(&self, part: Part, devices: &Devices) -> Result<Pager, String> {
        let mut config = small_config(devices);
        resize(&mut config, self.page_bytes);
        part.configure(&mut config, devices);
        Pager::open(config, Arc::new(NoOperations)).map_err(text)
    }

    /// Goes on from what is `known` until there are so many commits, on the pager; gives what is known then.
    fn stage(
        &self,
        pager: &Pager,
        known: Known,
        stage: Stage,
        bench: &mut Workbench,
    ) -> Result<Known, String> {
        let known = match known.load {
            Some(_) => known,
            None => {
                let owner = bench.relief.make(|| pager.create_segment(SpaceId::DATA).map_err(text))?;
                let some = LOADS[bench.rng.below(LOADS.len() as u64) as usize];
                Known { owner, load: self.load.or(Some(some)), ..known }
            }
        };
        let mut worker = Worker::new(pager, bench, known, words(self.page_bytes));
        worker.fills = stage.part.compresses();
        let mut errors = drive(&mut worker, stage.commits);
        errors.extend(worker.acknowledge().err());
        if errors.is_empty() && stage.reads && digest(pager)? != worker.model.digest {
            errors.push(format!("{WRONG}: the pages do not read as they were written"));
        }
        let known = worker.known();
        if errors.is_empty() && !stage.is_last {
            errors.extend(pager.shutdown().map_err(text).err());
        }
        outcome(errors).map(|()| known)
    }

    /// What is done first after a recovery, while what it left is still in memory: its notes become durable, the redo position
    /// moves, pages are written that it has changed.
    fn begin_anew(pager: &Pager, bench: &mut Workbench) -> Done {
        if bench.rng.one_in(2) {
            pager.flush_log(pager.log().end()).map_err(text)?;
        }
        if bench.rng.one_in(3) {
            pager.checkpoint().map_err(text)?;
        }
        if bench.rng.one_in(3) {
            pager.tick_nvm(1 + bench.rng.below(8) as usize).map_err(text)?;
        }
        if bench.rng.one_in(2) {
            pager.tick_write(1 + bench.rng.below(20) as usize).map_err(text)?;
        }
        Ok(())
    }
}

/// A part of a run, on one open pager.
struct Stage {
    part: Part,
    /// Until there are so many.
    commits: usize,
    /// All pages are read at the end and compared.
    reads: bool,
    /// It ends in a crash, and not in a clean shutdown.
    is_last: bool,
}

/// A configuration in which everything happens soon: small pages, pool, log and files, no threads.
pub fn small_config(devices: &Devices) -> PagerConfig {
    PagerConfig {
        page_size: PAGE_BYTES,
        pool_bytes: 48 * PAGE_BYTES,
        log_segment_bytes: 64 << 10,
        log_capacity_bytes: 512 << 10,
        checkpoint: CheckpointConfig { interval_ms: 1000, log_fraction: 0.5 },
        background: false,
        growth_extents: 1,
        log: devices.of(Space::Log),
        rollback: devices.of(Space::Rollback),
        temporary: devices.of(Space::Temporary),
        control: devices.of(Space::Control),
        ..PagerConfig::new(devices.of(Space::Data))
    }
}

/// The same with pages of another size: as many frames, and segments that hold as many pages.
pub(crate) fn resize(config: &mut PagerConfig, page_bytes: usize) {
    let times = |bytes: u64| bytes / config.page_size as u64 * page_bytes as u64;
    config.log_segment_bytes = times(config.log_segment_bytes);
    config.log_capacity_bytes = times(config.log_capacity_bytes);
    config.pool_bytes = times(config.pool_bytes as u64) as usize;
    config.page_size = page_bytes;
}

/// No operations beyond the pager's own.
pub(crate) struct NoOperations;

impl RedoOps for NoOperations {
    fn apply(&self, op: u8, _: &mut [u8], _: &[u8]) -> Result<(), RedoError> {
        Err(RedoError(format!("operation {op} was never logged")))
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn word_offset(word: u64) -> usize {
    PAGE_HEADER_BYTES + word as usize * 8
}

/// One run of the workload.
struct Worker<'a> {
    pager: &'a Pager,
    bench: &'a mut Workbench,
    model: Model,
    /// Entries of the root page; 0 = none.
    pages: Vec<u64>,
    owner: u32,
    load: Load,
    /// Words of a page.
    words: u64,
    /// Whether pages are now and then filled with noise, which no codec makes shorter.
    fills: bool,
    /// Pages of the segment that will be dropped as a whole, and its owner.
    burst: Option<(u32, Vec<usize>)>,
    /// The last commit and the end of its log.
    last: Option<(usize, Lsn)>,
}

type Done = Result<(), String>;

impl<'a> Worker<'a> {
    fn new(pager: &'a Pager, bench: &'a mut Workbench, known: Known, words: u64) -> Worker<'a> {
        let Known { model, mut pages, owner, load, burst } = known;
        pages.resize(PAGES_MAX, 0);
        let load = load.unwrap_or(Load::Even);
        Worker { pager, bench, model, pages, owner, load, words, fills: false, burst, last: None }
    }

    fn known(self) -> Known {
        let Worker { model, pages, owner, load, burst, .. } = self;
        Known { model, pages, owner, load: Some(load), burst }
    }

    fn one(&mut self) -> Done {
        if self.fills && self.bench.rng.one_in(10) {
            return self.fill();
        }
        match self.load {
            Load::Fleeting if self.burst.is_none() && self.bench.rng.one_in(8) => return self.fleet(),
            Load::Cleaning if self.bench.rng.one_in(6) => return self.clean(),
            _ => {}
        }
        match self.bench.rng.below(20) {
            0 => self.write_some(),
            1 if self.bench.rng.one_in(if self.load == Load::Cleaning { 20 } else { 3 }) => {
                self.pager.checkpoint().map_err(text)
            }
            2..=4 => self.acknowledge(),
            5 | 6 => self.allocate(self.owner).map(|_| ()),
            7 => self.free(),
            8 if self.bench.rng.one_in(8) => self.burst(),
            8 if self.bench.rng.one_in(40) => self.room_for_later(),
            _ => self.change(),
        }
    }

    /// Writes out of the pool, and now and then from persistent memory home.
    fn write_some(&mut self) -> Done {
        let pages = 1 + self.bench.rng.below(20) as usize;
        self.pager.tick_write(pages).map_err(text)?;
        if pages.is_multiple_of(4) {
            self.pager.tick_nvm(pages).map_err(text)?;
        }
        Ok(())
    }

    fn acknowledge(&mut self) -> Done {
        if let Some((number, lsn)) = self.last {
            self.pager.flush_log(lsn).map_err(text)?;
            self.bench.history.acknowledge(number);
            self.last = None;
        }
        Ok(())
    }

    /// The entry of some listed page that is not of the burst, or some empty entry.
    fn pick(&mut self, listed: bool) -> Option<usize> {
        let of_burst = |at: &usize| self.burst.as_ref().is_some_and(|(_, entries)| entries.contains(at));
        let fits = |at: &usize| (self.pages[*at] != 0) == listed && !of_burst(at);
        let fitting: Vec<usize> = (0..self.pages.len()).filter(fits).collect();
        (!fitting.is_empty()).then(|| fitting[self.bench.rng.below(fitting.len() as u64) as usize])
    }

    /// Makes a segment of several pages, or drops it as a whole.
    fn burst(&mut self) -> Done {
        match self.burst.take() {
            Some((owner, entries)) => self.drop_burst(owner, entries),
            None => {
                let pages = 1 + self.bench.rng.below(80);
                self.burst = Some(self.make_burst(pages)?);
                Ok(())
            }
        }
    }

    /// A segment that is dropped while some of its pages, and nothing older, are dirty: right before a checkpoint they
    /// hold nothing back any more, though nothing of the drop is durable yet.
    fn fleet(&mut self) -> Done {
        self.pager.tick_write(1000).map_err(text)?;
        let pages = 3 + self.bench.rng.below(6);
        let (owner, entries) = self.make_burst(pages)?;
        self.pager.tick_write(2 + self.bench.rng.below(4) as usize).map_err(text)?;
        self.drop_burst(owner, entries)?;
        if self.bench.rng.one_in(4) { Ok(()) } else { self.pager.checkpoint().map_err(text) }
    }

    /// Writes many pages or few.
    fn clean(&mut self) -> Done {
        let pages = if self.bench.rng.one_in(4) { 40 } else { 1 + self.bench.rng.below(6) };
        self.pager.tick_write(pages as usize).map(|_| ()).map_err(text)
    }

    fn make_burst(&mut self, pages: u64) -> Result<(u32, Vec<usize>), String> {
        let owner = self.pager.create_segment(SpaceId::DATA).map_err(text)?;
        let mut entries = Vec::new();
        for _ in 0..pages {
            entries.extend(self.allocate(owner)?);
        }
        Ok((owner, entries))
    }

    fn drop_burst(&mut self, owner: u32, entries: Vec<usize>) -> Done {
        let mut mtr = self.pager.begin().map_err(text)?;
        let root = mtr.x(PageId::ROOT).map_err(text)?;
        for entry in entries {
            let number = std::mem::take(&mut self.pages[entry]);
            mtr.write(root, word_offset(entry as u64), &[0; 8]);
            self.model.clear(number);
            self.model.set(0, entry as u64, 0);
        }
        self.commit(mtr)?;
        self.pager.drop_segment(SpaceId::DATA, owner).map_err(text)
    }

    /// Makes the file longer than anybody needs; checkpoints cut it again.
    fn room_for_later(&mut self) -> Done {
        let pages = 800 + self.bench.rng.below(800) as u32;
        self.pager.reserve(SpaceId::DATA, pages).map_err(text)?;
        self.pager.checkpoint().map_err(text)
    }

    /// Lists a new page with one word in it; gives its entry.
    fn allocate(&mut self, owner: u32) -> Result<Option<usize>, String> {
        let Some(entry) = self.pick(false) else { return Ok(None) };
        let value = self.bench.rng.draw() | 1;
        self.pager.reserve(SpaceId::DATA, 1).map_err(text)?;
        let mut mtr = self.pager.begin().map_err(text)?;
        let root = mtr.x(PageId::ROOT).map_err(text)?;
        let id = mtr.allocate(SpaceId::DATA, owner, None).map_err(text)?;
        let page = mtr.create(id, KIND, owner).map_err(text)?;
        let number = u64::from(id.no().0);
        mtr.write(page, word_offset(0), &value.to_le_bytes());
        mtr.write(root, word_offset(entry as u64), &number.to_le_bytes());
        self.pages[entry] = number;
        self.model.set(number, 0, value);
        self.model.set(0, entry as u64, number);
        self.commit(mtr).map(|()| Some(entry))
    }

    /// Takes a page off the list and gives it back.
    fn free(&mut self) -> Done {
        let Some(entry) = self.pick(true) else { return Ok(()) };
        let number = self.pages[entry];
        let mut mtr = self.pager.begin().map_err(text)?;
        let root = mtr.x(PageId::ROOT).map_err(text)?;
        mtr.free(page_id(number)).map_err(text)?;
        self.pages[entry] = 0;
        mtr.write(root, word_offset(entry as u64), &[0; 8]);
        self.model.clear(number);
        self.model.set(0, entry as u64, 0);
        self.commit(mtr)
    }

    /// Changes words of one to three pages.
    fn change(&mut self) -> Done {
        let mut pages = Vec::new();
        for _ in 0..1 + self.bench.rng.below(3) {
            pages.extend(self.pick(true).map(|entry| self.pages[entry]));
        }
        pages.sort_unstable();
        pages.dedup();
        let mut mtr = self.pager.begin().map_err(text)?;
        let mut held = Vec::new();
        for number in &pages {
            held.push((*number, mtr.x(page_id(*number)).map_err(text)?));
        }
        for (number, page) in held {
            for _ in 0..1 + self.bench.rng.below(4) {
                let (word, value) = (self.bench.rng.below(self.words), self.bench.rng.draw());
                mtr.write(page, word_offset(word), &value.to_le_bytes());
                self.model.set(number, word, value);
            }
        }
        self.commit(mtr)
    }

    /// Fills a page, or the beginning of one, with noise.
    fn fill(&mut self) -> Done {
        let Some(entry) = self.pick(true) else { return Ok(()) };
        let number = self.pages[entry];
        let words = if self.bench.rng.one_in(2) { self.words } else { 1 + self.bench.rng.below(self.words) };
        let values: Vec<u64> = (0..words).map(|_| self.bench.rng.draw()).collect();
        let mut mtr = self.pager.begin().map_err(text)?;
        let page = mtr.x(page_id(number)).map_err(text)?;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        mtr.write(page, word_offset(0), &bytes);
        (0..).zip(values).for_each(|(word, value)| self.model.set(number, word, value));
        self.commit(mtr)
    }

    fn commit(&mut self, mtr: varve_pager::Mtr<'_>) -> Done {
        let number = self.bench.history.begin(self.model.digest);
        let before = self.last.map_or(Lsn::ZERO, |(_, lsn)| lsn);
        self.last = Some((number, mtr.commit().max(before)));
        Ok(())
    }
}

fn page_id(number: u64) -> PageId {
    PageId::new(SpaceId::DATA, varve_pager::PageNo(number as u32))
}

impl Steps for Worker<'_> {
    fn bench(&mut self) -> &mut Workbench {
        self.bench
    }

    fn step(&mut self) -> Done {
        self.one()
    }

    fn is_sure(&self) -> bool {
        true
    }

    fn settle(&mut self) -> Done {
        self.acknowledge()
    }

    fn finish(&mut self, shuts_down: bool) -> Done {
        self.acknowledge()?;
        self.pager.checkpoint().map_err(text)?;
        if let Some(damage) = self.pager.check().map_err(text)?.damages.first() {
            return Err(format!("{WRONG}: the check finds {damage}"));
        }
        if shuts_down { self.pager.shutdown().map_err(text) } else { Ok(()) }
    }
}

impl Subject for Pages {
    fn work(&self, bench: &mut Workbench) -> Result<(), String> {
        let stages = self.part.stages();
        let mut known = Known::default();
        for (before, part) in stages.iter().copied().enumerate() {
            let commits = self.commits * (before + 1) / stages.len();
            let pager = bench.relief.make(|| self.open(part, &bench.devices))?;
            let is_last = commits >= self.commits;
            known = self.stage(&pager, known, Stage { part, commits, reads: true, is_last }, bench)?;
            if part == Part::Unprotected && !is_last {
                bench.history.crash_from_here();
            }
        }
        Ok(())
    }

    fn go_on(&self, bench: &mut Workbench, twin: &Devices) -> Result<(), String> {
        let mut known = Known::of(&self.open(self.part, twin)?)?;
        bench.history.resume(known.model.digest);
        let mut pager = self.open(self.part, &bench.devices)?;
        bench.history.opened();
        Self::begin_anew(&pager, bench)?;
        // In one of three runs it is shut down once; it may have another part then.
        let (stages, reads) = (1 + usize::from(bench.rng.one_in(3)), bench.rng.one_in(2));
        let mut part = self.part;
        for stage in 1..=stages {
            let commits = bench.history.digests().len() + commits_after(&mut bench.rng);
            known =
                self.stage(&pager, known, Stage { part, commits, reads, is_last: stage == stages }, bench)?;
            if stage < stages {
                part = self.part.after_shutdown();
                pager = self.open(part, &bench.devices)?;
            }
        }
        Ok(())
    }

    fn recover(&self, devices: &Devices, opened: &mut dyn FnMut()) -> Result<Recovered, String> {
        let pager = self.open(self.part, devices)?;
        opened();
        let digest = digest(&pager)?;
        let damages = pager.check().map_err(text)?.damages;
        pager.shutdown().map_err(text)?;
        Ok(Recovered { digest, damages })
    }
}
