//! Planted faults: mistakes in the database's code that a test switches on. They prove that the crash tests
//! find such mistakes.
//!
//! Invariants
//! 1. A fault counts as found only if a check failed. If no run reached the faulty code, the fault counts as
//!    not found.
//! 2. Without a planted fault the same searches find no failure.
//!
//! The checks are the same with and without planted faults.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use varve_device::{Directory, Fault, Faulty, Lies, Operation, Rule, Space, When, plant, planted_hits};

use crate::damage::damage;
use crate::engine::{Engine, Load, Plant};
use crate::nvm::{Nvm, NvmFlaw};
use crate::pages::{self, Pages};
use crate::parts::Part;
use crate::regions::{Swap, swap_regions};
use crate::search::{PANIC, Plan, SearchResult, Subject, WRONG, run, search_run};
use crate::toy::{Flaw, Toy};
use crate::trees::Trees;

/// The message for a seed that does not end.
const HANGS: &str = "it goes on for ever";
/// The time limit of a seed, which usually takes one or two seconds.
const HANG: Duration = Duration::from_secs(60);

/// The planted fault.
#[derive(Clone)]
pub enum Wrong {
    /// A switch in the code under test (`varve_device::planted`).
    Code(&'static str),
    /// The device reports writes as durable that are not.
    Device(Lies),
    /// The device damages single writes.
    Spoiled(Rule),
    /// A configuration without page protection.
    Unprotected,
    /// The workload records something that it has not done.
    Workload(Plant),
    /// The toy database has a fault.
    Toy(Flaw),
    /// The toy log in persistent memory has a fault.
    Nvm(NvmFlaw),
}

/// The subject with which the fault is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Raw pages.
    Pages,
    /// The B+tree.
    Trees,
    /// The engine.
    Engine,
    /// The engine with rows that do not fit a page.
    Large,
    /// The engine with parents and children.
    Family,
    /// The engine with views, roles and constraints that are made and dropped.
    Catalog,
    /// The engine with tables and indexes in tablespaces that are made and dropped.
    Tablespaces,
    /// Raw pages of segments that are made and dropped.
    Drops,
    /// Raw pages in the packed layout.
    Packed,
    /// The same with segments that are made and dropped.
    PackedDrops,
    /// The same with files that become much longer, and then shorter again.
    PackedCuts,
    /// Raw pages that are compressed in the data files.
    Compressed,
    /// The same with segments that are made and dropped.
    CompressedDrops,
    /// Raw pages with a flash cache.
    Flash,
    /// The same with a cache that delays writing changed pages to the data files.
    FlashLazy,
    /// The same with databases that continue after crashes.
    FlashLives,
    /// Raw pages with damage while the database is shut down.
    AtRest,
    /// Raw pages under full-page-log.
    Images,
    /// The same with databases that continue after a crash, with more log to redo than fits in memory.
    ImagesLives,
    /// Raw pages on devices with atomic writes.
    Atomic,
    /// Raw pages with the log in persistent memory.
    NvmLog,
    /// Raw pages with doublewrite copies in persistent memory.
    NvmCopies,
    /// Raw pages in persistent memory before they are written to the data files.
    NvmPages,
    /// The same with databases that continue after a crash.
    NvmLives,
    /// The same with segments that are made and dropped.
    NvmDrops,
    /// The same with segments that are made and dropped, packed pages in the data files, and a slot for each
    /// page.
    NvmHoldsPacked,
    /// Raw pages in persistent memory, with damage while the database is shut down.
    NvmAtRest,
    /// The same with a region that was replaced by an earlier state of the same region.
    NvmEarlier,
    /// Raw pages that move out of a region.
    Moves,
    /// Raw pages with changes of the page protection.
    Switching,
    /// Raw pages with a log whose capacity is lowered.
    LogLowered,
    /// The toy database and the toy log.
    Toy,
}

/// A planted fault that the tests must find.
#[derive(Clone)]
pub struct Planted {
    /// The planted fault.
    pub wrong: Wrong,
    /// The subject with which the fault is searched.
    pub on: On,
    /// The promise that the fault breaks.
    pub breaks: &'static str,
}

/// The result of a search for a planted fault.
#[derive(Debug, Clone)]
pub struct Hunted {
    /// The number of images that were tried.
    pub images: usize,
    /// The seed that found the fault.
    pub seed: u64,
    /// The number of times that the wrong code ran, for switches in the code.
    pub hits: u64,
    /// The failure that was found; `None` if there was none.
    pub caught: Option<String>,
    /// The time of the search.
    pub took: Duration,
}

impl Hunted {
    /// Returns a short name of the check that found the fault.
    pub fn by(&self) -> &'static str {
        let Some(what) = &self.caught else { return "NOT FOUND" };
        let signs = [
            (HANGS, "the workload hangs"),
            (WRONG, "a read at run time"),
            ("cannot be used: it panics", "an assertion in recovery"),
            (PANIC, "an assertion at run time"),
            ("the workload stopped", "an error at run time"),
            ("a state that never was", "the oracle: no such state, after damage"),
            ("finished recovery had shown", "a second crash"),
            ("the check finds", "varve check"),
            ("cannot be used", "recovery refuses"),
            ("where ", "the oracle: commits missing"),
            ("none of the workload's", "the oracle: no such state"),
        ];
        signs.iter().find(|(sign, _)| what.contains(sign)).map_or("another", |(_, by)| by)
    }
}

impl Planted {
    /// Returns the name in tables.
    pub fn name(&self) -> String {
        let said = |lies: &Lies| match *lies {
            Lies { flushes_of: Some(space), .. } => format!("flushes of {} do nothing", space.name()),
            Lies { durable_writes_of: Some(space), .. } => {
                format!("durable writes of {} are not", space.name())
            }
            _ => "directory syncs do nothing".into(),
        };
        match &self.wrong {
            Wrong::Code(name) => (*name).into(),
            Wrong::Device(lies) => format!("device: {}", said(lies)),
            Wrong::Spoiled(Rule { fault, space, .. }) => {
                let fault = match fault {
                    Fault::Lost => "lost",
                    Fault::Misdirected { .. } => "misdirected",
                    _ => "flipped",
                };
                format!("device: a write of {} in 40 is {fault}", space.map_or("all", Space::name))
            }
            Wrong::Unprotected => "pages: no protection".into(),
            Wrong::Workload(plant) => format!("workload: {plant:?}"),
            Wrong::Toy(flaw) => format!("toy: {flaw:?}"),
            Wrong::Nvm(flaw) => format!("toy in nvm: {flaw:?}"),
        }
    }

    fn subject(&self, seed: u64) -> Box<dyn Subject> {
        // Short runs test the beginning closely, and in long runs the log reuses its segments.
        let commits = [4000, 100, 1500][seed as usize % 3];
        match (self.on, &self.wrong) {
            (_, Wrong::Toy(flaw)) => Box::new(Toy { flaw: *flaw, commits: 40 }),
            (_, Wrong::Nvm(flaw)) => Box::new(Nvm { flaw: *flaw, commits: 40 }),
            (_, Wrong::Workload(plant)) => Box::new(Engine { plant: *plant, ..Engine::new(150) }),
            (_, Wrong::Unprotected) => Box::new(Pages { part: Part::Unprotected, ..Pages::new(commits) }),
            (On::Trees, _) => Box::new(Trees::new(commits)),
            (On::Large, _) => Box::new(Engine { load: Some(Load::Large), ..Engine::new(100) }),
            (On::Family, _) => Box::new(Engine { load: Some(Load::Family), ..Engine::new(150) }),
            (On::Tablespaces, _) => {
                let load = Some(Load::Definitions);
                Box::new(Engine { load, part: Part::Tablespaces, ..Engine::new(100) })
            }
            (On::Catalog, _) => Box::new(Engine { load: Some(Load::Catalog), ..Engine::new(100) }),
            (On::AtRest, _) => {
                Box::new(Pages { load: Some(pages::Load::Cleaning), ..Pages::new(commits.min(1500)) })
            }
            (On::NvmLog, _) => Box::new(Pages { part: Part::NvmLog, ..Pages::new(commits) }),
            (On::NvmCopies, _) => Box::new(Pages { part: Part::NvmDoublewrite, ..Pages::new(commits) }),
            (On::NvmPages | On::NvmLives, _) => {
                Box::new(Pages { part: Part::NvmPages, ..Pages::new(commits) })
            }
            (On::NvmDrops, _) => {
                let load = Some(pages::Load::Fleeting);
                Box::new(Pages { part: Part::NvmPages, load, ..Pages::new(commits.clamp(400, 1500)) })
            }
            (On::NvmHoldsPacked, _) => {
                let load = Some(pages::Load::Fleeting);
                Box::new(Pages { part: Part::NvmHoldsPacked, load, ..Pages::new(commits.clamp(400, 1500)) })
            }
            (On::NvmEarlier, _) => Box::new(Pages { part: Part::NvmPages, ..Pages::new(commits.min(1500)) }),
            (On::NvmAtRest, _) => {
                let load = Some(pages::Load::Cleaning);
                Box::new(Pages { part: Part::NvmPages, load, ..Pages::new(commits.min(1500)) })
            }
            (On::Moves, _) => Box::new(Pages { part: Part::MoveOut, ..Pages::new(commits.min(900)) }),
            (On::LogLowered, _) => {
                Box::new(Pages { part: Part::LogLowered, ..Pages::new(commits.max(1500)) })
            }
            (On::Switching, _) => Box::new(Pages { part: Part::Switching, ..Pages::new(commits) }),
            (On::Compressed, _) => Box::new(Pages { part: Part::Compressed, ..Pages::new(commits) }),
            (On::CompressedDrops, _) => {
                let load = Some(pages::Load::Fleeting);
                Box::new(Pages { part: Part::Compressed, load, ..Pages::new(commits) })
            }
            (On::Drops, _) => Box::new(Pages { load: Some(pages::Load::Fleeting), ..Pages::new(commits) }),
            (On::Flash, _) => Box::new(Pages { part: Part::Flash, ..Pages::new(commits.max(1500)) }),
            (On::FlashLazy | On::FlashLives, _) => {
                Box::new(Pages { part: Part::FlashLazy, ..Pages::new(commits.max(1500)) })
            }
            (On::Packed, _) => Box::new(Pages { part: Part::Packed, ..Pages::new(commits) }),
            (On::PackedDrops, _) => {
                let load = Some(pages::Load::Fleeting);
                Box::new(Pages { part: Part::Packed, load, ..Pages::new(commits) })
            }
            (On::PackedCuts, _) => {
                let load = Some(pages::Load::Receding);
                Box::new(Pages { part: Part::Packed, load, ..Pages::new(commits.max(1500)) })
            }
            (On::Atomic, _) => Box::new(Pages { part: Part::AtomicWrite, ..Pages::new(commits) }),
            (On::Images, _) => Box::new(Pages { part: Part::FullPageLog, ..Pages::new(commits) }),
            (On::ImagesLives, _) => {
                Box::new(Pages { part: Part::FullPageLog, ..Pages::hoard(commits.clamp(300, 600)) })
            }
            (On::Engine, _) => Box::new(Engine::new(150)),
            _ => Box::new(Pages::new(commits)),
        }
    }

    /// Searches one seed after the other, from `first` on, until a check fails.
    pub fn hunt(&self, first: u64, seeds: u64, images_per_seed: usize) -> Hunted {
        let started = Instant::now();
        let mut hunted = Hunted { images: 0, seed: 0, hits: 0, caught: None, took: Duration::ZERO };
        for seed in first..first + seeds {
            hunted.seed = seed;
            // A fault may cause an endless loop. Then the thread is left running.
            let Some((found, hits)) = self.try_seed_in_time(seed, images_per_seed) else {
                hunted.caught = Some(format!("seed {seed}: {HANGS}"));
                hunted.hits += 1;
                break;
            };
            hunted.images += found.images;
            hunted.hits += hits;
            if let Some(failure) = found.failures.into_iter().next() {
                hunted.caught = Some(failure.what);
                break;
            }
        }
        hunted.took = started.elapsed();
        hunted
    }

    /// Returns the result of one seed, and the number of times that the wrong code ran. `None` means that the
    /// seed does not end.
    fn try_seed_in_time(&self, seed: u64, images: usize) -> Option<(SearchResult, u64)> {
        let (send, wait) = channel();
        let fault = self.clone();
        std::thread::spawn(move || {
            if let Wrong::Code(name) = fault.wrong {
                plant(Some(name));
            }
            let found = fault.try_seed(seed, images);
            send.send((found, planted_hits()))
        });
        wait.recv_timeout(HANG).ok()
    }

    fn try_seed(&self, seed: u64, images: usize) -> SearchResult {
        let (lies, rule) = match &self.wrong {
            Wrong::Device(lies) => (*lies, None),
            Wrong::Spoiled(rule) => (Lies::default(), Some(rule)),
            _ => (Lies::default(), None),
        };
        let subject = self.subject(seed);
        let wrap = |device: Arc<dyn Directory>| -> Arc<dyn Directory> {
            let Some(rule) = rule else { return device };
            let faulty = Faulty::wrap(device);
            faulty.arm(rule.clone());
            faulty
        };
        let run = run(&*subject, seed, wrap);
        if let Some(what) = &run.error {
            let what = format!("seed {seed}: the workload stopped: {what}");
            let failures = vec![crate::search::Failure { image: 0, what }];
            return SearchResult { failures, ..SearchResult::default() };
        }
        let goes_on = matches!(self.on, On::NvmLives | On::ImagesLives | On::FlashLives);
        match self.on {
            On::AtRest | On::NvmAtRest => return damage(&*subject, &run, seed, images).found,
            On::NvmEarlier => {
                return swap_regions(&*subject, &run, &run, &[Swap::Earlier], seed, images / 5);
            }
            _ => {}
        }
        search_run(&*subject, &run, Plan { lies, goes_on, second_crash_every: 3, ..Plan::new(seed, images) })
    }
}

const PAGES: On = On::Pages;
const TREES: On = On::Trees;
const ENGINE: On = On::Engine;
const DROPS: On = On::Drops;
const PACKED: On = On::Packed;
const PACKED_DROPS: On = On::PackedDrops;
const LARGE: On = On::Large;
const FAMILY: On = On::Family;
const CATALOG: On = On::Catalog;
const AT_REST: On = On::AtRest;
const IMAGES: On = On::Images;
const IMAGES_LIVES: On = On::ImagesLives;
const ATOMIC: On = On::Atomic;
const NVM_LOG: On = On::NvmLog;
const NVM_COPIES: On = On::NvmCopies;
const NVM_PAGES: On = On::NvmPages;
const NVM_LIVES: On = On::NvmLives;
const NVM_HOLDS_PACKED: On = On::NvmHoldsPacked;
const NVM_AT_REST: On = On::NvmAtRest;
const NVM_EARLIER: On = On::NvmEarlier;
const MOVES: On = On::Moves;
const SWITCHING: On = On::Switching;
const LOG_LOWERED: On = On::LogLowered;
const PACKED_CUTS: On = On::PackedCuts;
const NVM_DROPS: On = On::NvmDrops;
const FLASH: On = On::Flash;
const FLASH_LAZY: On = On::FlashLazy;
const FLASH_LIVES: On = On::FlashLives;
const COMPRESSED: On = On::Compressed;
const COMPRESSED_DROPS: On = On::CompressedDrops;

/// Switches in the code: subject, name, and what the fault breaks.
const CODE: &[(On, &str, &str)] = &[
    (PAGES, "log: blocks are not durable", "acknowledged commits"),
    (PAGES, "log: a commit's flush is dropped", "acknowledged commits"),
    (ENGINE, "log: segments are recycled early", "redo of pages still dirty"),
    (LARGE, "log: torn blocks are taken for whole", "the log as a prefix"),
    (PAGES, "log: segment headers are not durable", "segments found after a crash"),
    (PAGES, "log: the directory is not synced", "segments found after a crash"),
    (LOG_LOWERED, "log: a file beyond the capacity is removed by its path", "a log of lower capacity"),
    (NVM_LOG, "region files: a durable write is not written back", "acknowledged commits"),
    (NVM_LOG, "region files: a durable write is not fenced", "acknowledged commits"),
    (NVM_COPIES, "region files: a flush is not fenced", "torn pages"),
    (NVM_COPIES, "doublewrite: batches skip it", "torn pages"),
    (NVM_COPIES, "doublewrite: not flushed before the pages", "torn pages"),
    (NVM_COPIES, "doublewrite: torn pages are not mended", "torn pages"),
    (NVM_PAGES, "nvm: the page is not written back", "images in slots"),
    (NVM_PAGES, "nvm: no fence before a slot is published", "images in slots"),
    (NVM_PAGES, "nvm: the older version is retired first", "pages that the ledger calls stable"),
    (NVM_PAGES, "nvm: a freed slot is not fenced", "images in slots"),
    (NVM_PAGES, "nvm: freed before home is durable", "pages that the ledger calls stable"),
    (NVM_LIVES, "nvm: put returns before the state is fenced", "pages that the ledger calls stable"),
    (NVM_PAGES, "nvm: the control file does not name the region", "pages that only the region has"),
    (NVM_LIVES, "redo: what slots hold is begun anew", "pages that redo leaves in memory"),
    (NVM_DROPS, "nvm: a dropped page's slot goes at once", "drops that a crash takes back"),
    (NVM_HOLDS_PACKED, "nvm: packed pages are forgotten before redo is past them", "redo of freed pages"),
    (NVM_AT_REST, "nvm: slot images are not verified", "images in slots"),
    (NVM_EARLIER, "nvm: the stamp is not compared", "regions put back from an earlier moment"),
    (MOVES, "nvm: the region is left with pages in it", "pages that only the region has"),
    (SWITCHING, "doublewrite: torn pages are not mended", "torn pages"),
    (SWITCHING, "full-page-log: one image a checkpoint", "torn pages"),
    (NVM_LOG, "log: blocks are not durable", "acknowledged commits"),
    (NVM_LOG, "log: segment headers are not durable", "segments found after a crash"),
    (PAGES, "checkpoint: its position passes dirty pages", "redo of pages still dirty"),
    (DROPS, "checkpoint: the log is not flushed before it is stored", "redo of pages that were dropped"),
    (FLASH, "flash: older copies stay", "pages in the cache that were changed"),
    (FLASH_LAZY, "flash: older copies stay", "pages in the cache that were changed"),
    (FLASH_LAZY, "flash: what is kept back counts as stable", "pages that only flash had"),
    (FLASH_LAZY, "flash: what is cleaned does not go home", "pages that were brought home"),
    (FLASH_LAZY, "flash: records from before redo are believed", "slots that are found again"),
    (FLASH_LAZY, "flash: changes before redo are not looked at", "slots that are older than home"),
    (FLASH_LAZY, "flash: notes of what is home are not looked at", "slots that are older than home"),
    (FLASH_LAZY, "flash: what home may lack is clean after a start", "slots that home lacks"),
    (FLASH_LAZY, "flash: another size forgets what home lacks", "pages that only flash had"),
    (FLASH_LAZY, "flash: a seal's dirty slots are clean", "slots that home lacks"),
    (FLASH_LIVES, "flash: behind a seal the ledger hears nothing", "slots that home lacks"),
    (FLASH_LIVES, "flash: redo tells the ledger nothing of what only flash has", "slots that home lacks"),
    (PAGES, "open: a mark is expected before headers have it", "files that are taken for older ones"),
    (PAGES, "control: one slot is always written", "the control file as a whole"),
    (PAGES, "control: slots are not durable", "the redo position before the log is cut"),
    (PAGES, "doublewrite: batches skip it", "torn pages"),
    (PAGES, "doublewrite: not flushed before the pages", "torn pages"),
    (PAGES, "doublewrite: torn pages are not mended", "torn pages"),
    (IMAGES, "full-page-log: one image a checkpoint", "torn pages"),
    (IMAGES, "full-page-log: records before an image are redone on a torn page", "torn pages"),
    (IMAGES_LIVES, "full-page-log: notes of redo hide images", "torn pages that redo wrote in between"),
    (ATOMIC, "atomic-write: ordinary writes", "torn pages"),
    (PAGES, "pages: not flushed in place", "pages that the ledger calls stable"),
    (PAGES, "pages: written before their log", "write-ahead"),
    (PAGES, "pages: the checksum is not looked at", "torn pages"),
    (COMPRESSED, "stored: the checksum is not looked at", "torn pages"),
    (COMPRESSED, "stored: the length is one sector short", "the ends of pages"),
    (COMPRESSED, "stored: a page that does not shrink is cut", "pages stored plain"),
    (COMPRESSED, "doublewrite: the mended page is written one sector short", "torn pages"),
    (COMPRESSED, "trim: one block too many", "the ends of pages"),
    (TREES, "redo: applied twice", "redo twice is redo once"),
    (PAGES, "redo: every 50th change is skipped", "pages after a crash"),
    (AT_REST, "redo: a mended page is taken for home", "pages mended from an older copy"),
    (PAGES, "ledger: every seventh page is forgotten", "redo of pages still dirty"),
    (TREES, "space: an allocation is not logged", "pages owned once"),
    (TREES, "space: a freed page stays allocated", "allocated = reachable"),
    (ENGINE, "space: dropped pages are not noted", "redo of pages that are gone"),
    (ENGINE, "space: a drop forgets an extent", "allocated = reachable"),
    (ENGINE, "space: a file's new length is not flushed", "growth of files"),
    (On::Tablespaces, "tablespace: a drop is not listed", "the list of tablespaces"),
    (COMPRESSED_DROPS, "trim: freed extents before redo has passed them", "redo of freed pages"),
    (TREES, "tree: a merged page is not freed", "allocated = reachable"),
    (PACKED, "packed: noted before flushed", "slots that a note names"),
    (
        PACKED,
        "packed: the note is not flushed before pages are stable",
        "redo of pages that a crash finds older",
    ),
    (PACKED, "packed: an extent is free while its notes are not durable", "slots that a crash finds"),
    (PACKED, "packed: the map checkpoint takes held entries", "pages that are held"),
    (PACKED_DROPS, "packed: the map checkpoint forgets the log's flush", "drops that a crash takes back"),
    (PACKED, "packed: map pages are written to their valid place", "torn map pages"),
    (PACKED, "packed: the head names its pages before they are flushed", "the map as a whole"),
    (PACKED, "packed: the log is cut beyond its last checkpoint", "notes of places"),
    (PACKED_CUTS, "packed: a cut gives its slots back without a note", "two pages in one place"),
    (PACKED, "packed: what was moved gives its slot back without a note", "slots that a crash finds"),
    (PACKED, "packed: a page that was moved is said to be new", "redo of pages that were moved"),
    (ENGINE, "undo: every 20th record is lost", "rollback"),
    (ENGINE, "undo: a transaction's begin is not logged", "atomicity: losers stay"),
    (ENGINE, "commit: its mark is not logged", "acknowledged commits"),
    (ENGINE, "commit: definitions are not waited for", "acknowledged commits"),
    (FAMILY, "shares: who deletes a row looks at nobody", "foreign keys"),
    (CATALOG, "catalog: what is kept about an object stays when it goes", "the catalog"),
    (CATALOG, "rewrite: the rows' new columns are not there", "rows of a rewritten table"),
    (ENGINE, "rollback: row and record in two steps", "losers undone exactly once"),
    (ENGINE, "rollback: a new table's pages stay", "allocated = reachable"),
    (ENGINE, "rollback: overflow chains stay", "allocated = reachable"),
    (ENGINE, "index: every eighth entry is missed", "indexes = visible rows"),
    (ENGINE, "purge: snapshots are not waited for", "versions that are still seen"),
    (ENGINE, "purge: overflow chains stay", "allocated = reachable"),
    (ENGINE, "sequence: only one value of a block is reserved", "values given once"),
    (ENGINE, "catalog: an object without its name", "the catalog as a whole"),
    (ENGINE, "transactions: ids are not reserved", "ids given once"),
];

/// Switches that no search here can find, and the reasons.
pub const NOT_HUNTED: &[(&str, &str)] = &[
    ("nvm: the ledger hears before the second fence", "only a second thread could see it: for a model"),
    (
        "nvm: a superseded slot is reused while it is written home",
        "only a second thread could see it: for a model",
    ),
    (
        "trim: holes before the page is durable",
        "not found in 9,600 images, whose pages seldom get shorter; pager/tests/pager/crash_images.rs finds it",
    ),
    (
        "full-page-log: the log is cut behind what redo changed",
        "one thread can show it, but 10,000 images did not: behind a checkpoint that was moved by writes of other pages, \
         a page that redo wrote in between has to be torn; pager/tests/pager/full_page_log.rs finds it",
    ),
    (
        "nvm: recovery takes the older version",
        "no crash shows it: of two versions the ledger has not heard of the newer one, and redo makes it of the older",
    ),
    (
        "packed: a shorter length is durable before its notes",
        "the pages behind it were discarded by a checkpoint before, and that has flushed the note",
    ),
];

/// Planted faults that tests of the pager itself find (`pager/src/home/packed/tests/hunts.rs`,
/// `pager/src/flash/tests/filling.rs`, `pager/tests/pager/flash_restart.rs`). Crash images cannot find these
/// faults: two threads would have to meet in the middle of a move, a discard or a read, or the records of a
/// cache would have to be older than its seal.
pub const HUNTED_ELSEWHERE: &[&str] = &[
    "archive: a piece that could not be stored counts as archived",
    "archive: a timeline of another history is taken",
    "archive: another history is continued",
    "flash: any records are taken for sealed",
    "flash: what is read along is not watched",
    "packed: a discard frees its slots at once",
    "packed: a move of a discarded page counts",
    "packed: reclamation ignores a newer slot",
    "packed: recovery takes notes of discarded pages",
    "restore: the commit after the moment is taken",
];

/// Returns the switches in the code that are searched.
pub fn switches() -> impl Iterator<Item = &'static str> {
    CODE.iter().map(|(_, name, _)| *name)
}

/// Returns all planted faults that the tests must find.
pub fn planted_faults() -> Vec<Planted> {
    let code = CODE.iter().map(|(on, name, breaks)| Planted { wrong: Wrong::Code(name), on: *on, breaks });
    let toys = [
        Flaw::EarlyAcknowledgement,
        Flaw::NoFlush,
        Flaw::NoChecksum,
        Flaw::NoDirectorySync,
        Flaw::ForgetfulRecovery,
    ];
    let breaks = "the smallest database";
    let toys = toys.into_iter().map(|flaw| Planted { wrong: Wrong::Toy(flaw), on: On::Toy, breaks });
    let breaks = "a log in persistent memory";
    let nvm = NvmFlaw::WRONG.into_iter().map(|flaw| Planted { wrong: Wrong::Nvm(flaw), on: On::Toy, breaks });
    code.chain(lies()).chain(spoiled()).chain(others()).chain(toys).chain(nvm).collect()
}

fn lies() -> impl Iterator<Item = Planted> {
    let none = Lies::default();
    let flushes = |space| Lies { flushes_of: Some(space), ..none };
    let durable = |space| Lies { durable_writes_of: Some(space), ..none };
    // Flushes of the control file are not needed, because its writes are durable.
    let of_pages = [
        Lies { directory_syncs: true, ..none },
        flushes(Space::Data),
        flushes(Space::Log),
        durable(Space::Control),
        durable(Space::Data),
        durable(Space::Log),
    ];
    let of_engine = [flushes(Space::Rollback), durable(Space::Rollback)];
    let lie = |on| move |lies| Planted { wrong: Wrong::Device(lies), on, breaks: "what was called durable" };
    of_pages.into_iter().map(lie(PAGES)).chain(of_engine.into_iter().map(lie(ENGINE)))
}

fn spoiled() -> impl Iterator<Item = Planted> {
    let faults = [Fault::Lost, Fault::Misdirected { by_bytes: 8192 }, Fault::BitFlip { bit: 12_345 }];
    let of = |space: Space| {
        faults.clone().map(|fault| {
            let when = When::Every(40);
            let rule = Rule { operation: Some(Operation::Write), space: Some(space), when, fault };
            Planted { wrong: Wrong::Spoiled(rule), on: PAGES, breaks: "single writes" }
        })
    };
    of(Space::Data).into_iter().chain(of(Space::Log)).collect::<Vec<_>>().into_iter()
}

fn others() -> impl Iterator<Item = Planted> {
    let early = Wrong::Workload(Plant::EarlyAcknowledgement);
    [
        Planted { wrong: early, on: ENGINE, breaks: "acknowledged commits" },
        Planted { wrong: Wrong::Workload(Plant::LostRow), on: ENGINE, breaks: "rows" },
        Planted { wrong: Wrong::Unprotected, on: PAGES, breaks: "torn pages" },
    ]
    .into_iter()
}
