//! The workload `pages`: mini-transactions on raw pages, without trees and rows.
//!
//! The root page lists the pages in use. Each page is an array of 64-bit words. A commit is one
//! mini-transaction here. It is acknowledged when the log is durable up to the end of this mini-transaction.
//!
//! Invariants
//! 1. The digest is an XOR of hashes. Each word that is not zero has one hash, of (page, word, value). So the
//!    digest also tests pages that were freed and allocated again: they must read as they were last
//!    formatted.

mod known;
mod worker;

use std::sync::Arc;

use varve_device::Space;
use varve_pager::page::{FIRST_ENGINE_KIND, PAGE_HEADER_BYTES};
use varve_pager::{
    CheckpointConfig, CheckpointKind, PageId, Pager, PagerConfig, RedoError, RedoOps, SpaceId,
};

use self::known::{Known, digest};
use self::worker::Worker;
use crate::devices::Devices;
use crate::moves::open_or_drain;
use crate::parts::Part;
use crate::relief::drive;
use crate::rng::Rng;
use crate::search::{Recovered, Subject, WRONG, Workbench, guarded, outcome, went_on};

pub(crate) const PAGE_BYTES: usize = 4096;
/// After a recovery, the workload makes 1, 2, 4, ... more commits.
const COMMITS_AFTER_BITS: u64 = 8;

/// Returns the number of commits after a recovery. It is usually small, because the pages that a recovery
/// leaves in memory are soon evicted.
fn commits_after(rng: &mut Rng) -> usize {
    let bits = 1 + rng.below(COMMITS_AFTER_BITS);
    1 << rng.below(bits)
}

/// The number of pages that the root can list. The list is a small part of the root page, so that torn writes
/// of it matter.
const PAGES_MAX: usize = 150;

/// Returns the number of words of a page with this size.
fn words(page_bytes: usize) -> u64 {
    (page_bytes - PAGE_HEADER_BYTES) as u64 / 8
}
pub(crate) const KIND: u8 = FIRST_ENGINE_KIND + 100;

/// Kinds of load, chosen by the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// All kinds of changes.
    Even,
    /// Segments are made and dropped, with checkpoints between.
    Fleeting,
    /// Pages are written many times, in batches of all sizes, and the redo position does not advance. So the
    /// doublewrite file has copies of different ages.
    Cleaning,
    /// Many pages change many times, and few are written. So redo must restore all of them.
    Hoarding,
    /// Space for very many pages is reserved, and returned.
    Receding,
}

const LOADS: [Load; 4] = [Load::Even, Load::Even, Load::Fleeting, Load::Cleaning];

/// The number of frames of the pool in the workload, and after a crash.
pub type Frames = [usize; 2];

/// Few frames, so that changed pages are evicted.
const FEW: Frames = [48, 48];
/// The numbers of frames before a crash and after it. Before the crash all pages fit into the pool. Redo then
/// has fewer frames than pages to restore. So it writes pages, and finds later changes of the same pages
/// afterwards. With as many frames as before, redo would rarely do so.
const MANY_THEN_FEW: Frames = [192, 32];

/// The pager with a small pool.
pub struct Pages {
    /// The number of mini-transactions.
    pub commits: usize,
    /// Kind of load; `None` means that the seed decides.
    pub load: Option<Load>,
    /// The configuration.
    pub part: Part,
    /// The page size in bytes.
    pub page_bytes: usize,
    /// The number of frames.
    pub frames: Frames,
}

impl Pages {
    /// Returns a workload with this number of mini-transactions.
    pub fn new(commits: usize) -> Pages {
        Pages { commits, load: None, part: Part::Doublewrite, page_bytes: PAGE_BYTES, frames: FEW }
    }

    /// Returns a workload whose pages all fit into memory, so they are rarely written. After the crash there
    /// is less memory.
    pub fn hoard(commits: usize) -> Pages {
        Pages { load: Some(Load::Hoarding), frames: MANY_THEN_FEW, ..Pages::new(commits) }
    }

    fn open(&self, part: Part, devices: &Devices, frames: usize) -> Result<Pager, String> {
        Self::open_as(self.config(part, devices, frames))
    }

    /// Opens the database on its devices after a crash, with the configuration that the part has at its end.
    /// A part that moves the database may have to finish the move first.
    fn open_again(&self, devices: &Devices) -> Result<Pager, String> {
        let config = self.config(self.part, devices, self.frames[1]);
        if self.part.moves() { open_or_drain(config, devices, Self::open_as) } else { Self::open_as(config) }
    }

    fn open_as(config: PagerConfig) -> Result<Pager, String> {
        Pager::open(config, Arc::new(NoOperations)).map_err(text)
    }

    fn config(&self, part: Part, devices: &Devices, frames: usize) -> PagerConfig {
        let mut config = small_config(devices);
        resize(&mut config, self.page_bytes);
        config.pool_bytes = frames * self.page_bytes;
        part.configure(&mut config, devices);
        config
    }

    /// Continues from `known` on this pager until there are enough commits. Returns the data about the pages
    /// at the end.
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
        worker.trims = stage.part.trims();
        worker.is_last = stage.is_last;
        let mut errors = drive(&mut worker, stage.commits);
        errors.extend(guarded(|| worker.acknowledge()).err());
        errors.extend(went_on(&errors, pager.is_sound()));
        if errors.is_empty() && stage.reads && digest(pager)? != worker.model.digest {
            errors.push(format!("{WRONG}: the pages do not read as they were written"));
        }
        let known = worker.known();
        if errors.is_empty() && !stage.is_last {
            errors.extend(self.shut_down(pager).err());
        }
        outcome(errors).map(|()| known)
    }

    /// Shuts the pager down. If the part moves, the database then leaves its region.
    fn shut_down(&self, pager: &Pager) -> Done {
        if self.part.moves() {
            pager.leave_region_at_shutdown();
        }
        pager.shutdown().map_err(text)
    }

    /// Does the first work after a recovery, while the pages from the recovery are still in memory. Makes the
    /// recovery's log records durable, writes some of its pages, moves the redo position, and writes others
    /// of its pages.
    fn begin_empty(pager: &Pager, bench: &mut Workbench) -> Done {
        for _ in 0..bench.rng.below(4) {
            if bench.rng.one_in(3) {
                pager.flush_log(pager.log().end()).map_err(text)?;
            }
            pager.tick_write(1 + bench.rng.below(16) as usize).map_err(text)?;
            if bench.rng.one_in(3) {
                pager.tick_nvm(1 + bench.rng.below(8) as usize).map_err(text)?;
            }
            if bench.rng.one_in(2) {
                pager.checkpoint().map_err(text)?;
            }
        }
        Ok(())
    }
}

/// A part of a run, on one open pager.
struct Stage {
    part: Part,
    /// The number of commits at which the stage ends.
    commits: usize,
    /// Whether all pages are read and compared at the end.
    reads: bool,
    /// Whether the stage ends with a crash instead of a clean shutdown.
    is_last: bool,
}

/// Returns a configuration in which all events happen soon: pages, pool, log and files are small, and there
/// are no threads.
pub fn small_config(devices: &Devices) -> PagerConfig {
    PagerConfig {
        page_size: PAGE_BYTES,
        pool_bytes: 48 * PAGE_BYTES,
        log_segment_bytes: 64 << 10,
        log_capacity_bytes: 512 << 10,
        checkpoint: CheckpointConfig {
            kind: CheckpointKind::Indirect,
            interval_ms: 1000,
            log_fraction: 0.5,
            recovery_target: None,
        },
        // A crash image is a copy of a database, which a start would refuse otherwise.
        accepts_copy: true,
        background: false,
        growth_extents: 1,
        log: devices.of(Space::Log),
        rollback: devices.of(Space::Rollback),
        temporary: devices.of(Space::Temporary),
        control: devices.of(Space::Control),
        ..PagerConfig::new(devices.of(Space::Data))
    }
}

/// Changes the page size. The number of frames, and the number of pages that fit in a segment, stay the same.
pub(crate) fn resize(config: &mut PagerConfig, page_bytes: usize) {
    let times = |bytes: u64| bytes / config.page_size as u64 * page_bytes as u64;
    config.log_segment_bytes = times(config.log_segment_bytes);
    config.log_capacity_bytes = times(config.log_capacity_bytes);
    config.pool_bytes = times(config.pool_bytes as u64) as usize;
    config.page_size = page_bytes;
}

fn page_id(number: u64) -> PageId {
    PageId::new(SpaceId::DATA, varve_pager::PageNo(number as u32))
}

/// Redo without operations of an engine.
pub(crate) struct NoOperations;

impl RedoOps for NoOperations {
    fn apply(&self, op: u8, _: &mut [u8], _: &[u8]) -> Result<(), RedoError> {
        Err(RedoError(format!("operation {op} was never logged")))
    }
}

type Done = Result<(), String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn word_offset(word: u64) -> usize {
    PAGE_HEADER_BYTES + word as usize * 8
}

impl Subject for Pages {
    fn work(&self, bench: &mut Workbench) -> Result<(), String> {
        let stages = self.part.stages();
        let mut known = Known::default();
        for (before, part) in stages.iter().copied().enumerate() {
            let commits = self.commits * (before + 1) / stages.len();
            let pager = bench.relief.make(|| self.open(part, &bench.devices, self.frames[0]))?;
            let is_last = commits >= self.commits;
            known = self.stage(&pager, known, Stage { part, commits, reads: true, is_last }, bench)?;
            if !is_last {
                bench.history.rests();
            }
            if part == Part::Unprotected && !is_last {
                bench.history.crash_from_here();
            }
        }
        Ok(())
    }

    fn go_on(&self, bench: &mut Workbench, twin: &Devices) -> Result<(), String> {
        let mut known = Known::of(&self.open_again(twin)?)?;
        bench.history.resume(known.model.digest);
        let mut pager = self.open_again(&bench.devices)?;
        bench.history.opened();
        Self::begin_empty(&pager, bench)?;
        // One of three runs is shut down once, and may continue with another part. A part that moves the
        // database completes the move then.
        let is_shut_down = bench.rng.one_in(3) || self.part.moves();
        let (stages, reads) = (1 + usize::from(is_shut_down), bench.rng.one_in(2));
        let mut part = self.part;
        for stage in 1..=stages {
            let commits = bench.history.digests().len() + commits_after(&mut bench.rng);
            known =
                self.stage(&pager, known, Stage { part, commits, reads, is_last: stage == stages }, bench)?;
            if stage < stages {
                bench.history.rests();
                part = self.part.after_shutdown();
                pager = self.open(part, &bench.devices, self.frames[1])?;
            }
        }
        Ok(())
    }

    fn recover(&self, devices: &Devices, opened: &mut dyn FnMut()) -> Result<Recovered, String> {
        let pager = self.open_again(devices)?;
        opened();
        let shown = digest(&pager)?;
        let mut damages = pager.check().map_err(text)?.damages;
        self.shut_down(&pager)?;
        drop(pager);
        if self.part.moves() {
            let pager =
                self.open(self.part, devices, self.frames[1]).map_err(|why| format!("moved: {why}"))?;
            if digest(&pager)? != shown {
                damages.push("the move has changed what the pages hold".into());
            }
            damages.extend(pager.check().map_err(text)?.damages);
            pager.shutdown().map_err(text)?;
        }
        Ok(Recovered { digest: shown, damages })
    }
}
