//! Model of the flash cache, between a simple buffer pool that is correct and data files in memory. Three
//! kinds of threads run at the same time: cleaners, the thread that writes the queue to flash, and a thread
//! that changes and writes a page.
//!
//! The tested code is `pager/src/flash/`, without the code that runs at a start.
//!
//! The model records what has happened, so that its checks can use it. The records are protected by ordinary
//! mutexes, which the model checker does not see. No thread waits while it holds such a mutex, so the mutexes
//! add no step to the model.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, JoinHandle};
use varve_device::{
    AlignedBuf, DeviceError, ErrorKind, Fault, Faulty, MemoryDirectory, Operation, Rule, When,
};

use crate::checker::{How, Model};
use crate::frames::plain;
use crate::pager::base::image::Image;
use crate::pager::flash::io::store::slots_of;
use crate::pager::flash::{
    FlashCache, FlashConfig, FlashDesign, FlashFill, FlashRestart, FlashSettings, Owner, Surroundings,
    running,
};
use crate::pager::level::ledger::Ledger;
use crate::pager::level::{Cause, Got, Level, LevelReport, Need, Run, Step, Tier, Want};
use crate::pager::log::WriteAhead;
use crate::pager::{Access, Lsn, PageId, PageNo, PageRange, PagerError, Result, SpaceId, page};

pub(crate) const CLEANERS: Model = Model {
    name: "what is brought home from flash never lands after a newer version, also where home refuses it",
    how: How::Shuttle,
    run: cleaners,
    flaws: &[
        "mark of a cleaning taken away after its slot was let go",
        "put without waiting for what is on its way home",
    ],
};

pub(crate) const QUEUE: Model = Model {
    name: "a page on its way to flash is found, and written once",
    how: How::Shuttle,
    run: queue,
    flaws: &["slot free before its page has left the queue"],
};

pub(crate) const LEAVES: Model = Model {
    name: "a drive that takes no more pages is left, and no change with it",
    how: How::Shuttle,
    run: leaves,
    flaws: &["dirty pages looked for before the last of them is taken"],
};

const PAGE_BYTES: usize = 4096;
/// The number of steps that a write to the data files takes. Other threads may run in each step.
const WRITE_STEPS: usize = 8;

fn id(no: u32) -> PageId {
    PageId::new(SpaceId::DATA, PageNo(no))
}

fn below(limit: u32) -> u32 {
    thread_rng().gen_range(0..limit)
}

/// A log in which everything is durable, and which must not be stopped.
struct ModelLog;

impl WriteAhead for ModelLog {
    fn durable_lsn(&self) -> Lsn {
        Lsn::new(u64::MAX)
    }
    fn flush(&self, _upto: Lsn) -> Result<()> {
        Ok(())
    }
    fn note_written(&self, _images: &[&Image]) {}
    fn check(&self) -> Result<()> {
        Ok(())
    }
    fn stop(&self, cause: &PagerError) {
        panic!("home can have everything, and the log is stopped: {cause}");
    }
}

#[derive(Default)]
struct Stored {
    pages: HashMap<PageId, (Lsn, Vec<u8>)>,
    busy: HashSet<PageId>,
}

/// The level of the data files ("home"). It checks that a page has only one operation at a time, and that no
/// older image follows a newer one. It may refuse some puts because of missing space.
struct Home {
    stored: Mutex<Stored>,
    ledger: Arc<Ledger>,
    /// The number of puts that will still be refused.
    refusals: AtomicU32,
}

impl Home {
    fn begin(&self, id: PageId, what: &str) {
        assert!(plain(&self.stored).busy.insert(id), "{what} of page {id} while it is read or written");
    }

    fn keep(&self, image: &Image) {
        let mut stored = plain(&self.stored);
        let newest = stored.pages.get(&image.id()).map_or(Lsn::ZERO, |(lsn, _)| *lsn);
        assert!(newest <= image.lsn(), "an older image of page {} after a newer", image.id());
        stored.pages.insert(image.id(), (image.lsn(), image.bytes().to_vec()));
    }
}

impl Level for Home {
    fn read(&self, runs: &mut [Run<'_, '_>], _why: Access) -> Result<()> {
        for run in runs {
            for (at, want) in (0_u32..).zip(run.want.iter_mut()) {
                let (id, Want::Page { frame, got }) = (run.first.plus(at), want) else { continue };
                self.begin(id, "a read");
                thread::yield_now();
                let mut stored = plain(&self.stored);
                let (lsn, bytes) = stored.pages.get(&id).expect("home has all");
                frame.copy_from_slice(bytes);
                *got = Some(Got { from: Tier::Home, lsn: *lsn, taken: false });
                stored.busy.remove(&id);
            }
        }
        Ok(())
    }

    fn put(&self, batch: &[Image], _cause: Cause, _need: Need) -> Result<()> {
        batch.iter().for_each(|image| self.begin(image.id(), "a write"));
        (0..WRITE_STEPS).for_each(|_| thread::yield_now());
        let less = |left: u32| left.checked_sub(1);
        let is_refused = self.refusals.fetch_update(SeqCst, SeqCst, less).is_ok();
        for image in batch {
            if !is_refused {
                self.keep(image);
                self.ledger.stable(image.id(), image.lsn());
            }
            plain(&self.stored).busy.remove(&image.id());
        }
        match is_refused {
            true => Err(DeviceError::new("the model", Operation::Write, ErrorKind::NoSpace).into()),
            false => Ok(()),
        }
    }

    fn offer(&self, _id: PageId, _why: Access, _copy: &mut dyn FnMut() -> Image) {}
    fn changed(&self, _id: PageId) {}
    fn discard(&self, _ids: PageRange, _after: Lsn) -> Result<()> {
        Ok(())
    }
    fn checkpoint(&self, _step: Step) -> Result<()> {
        Ok(())
    }
    fn drain(&self) -> Result<()> {
        Ok(())
    }
    fn report(&self) -> Vec<LevelReport> {
        Vec::new()
    }
}

/// A cache, and the state that the pool knows.
struct CacheUnderTest {
    cache: Arc<FlashCache>,
    home: Arc<Home>,
    ledger: Arc<Ledger>,
    drive: Arc<Faulty>,
    /// The newest version of each page.
    newest: Mutex<HashMap<PageId, Lsn>>,
}

impl CacheUnderTest {
    /// Returns a cache without pages. The data files have all pages.
    fn new(frames: u32, pages: u32) -> Arc<CacheUnderTest> {
        let ledger = Arc::<Ledger>::default();
        let home =
            Arc::new(Home { stored: Mutex::default(), ledger: ledger.clone(), refusals: AtomicU32::new(0) });
        let drive = Faulty::wrap(MemoryDirectory::new());
        let bytes = (1..)
            .map(|pages| pages * PAGE_BYTES as u64)
            .find(|bytes| slots_of(*bytes, PAGE_BYTES) == frames)
            .expect("some file has so many");
        let config = FlashConfig {
            pending_max: 100,
            queued_max: 4,
            writers: 1,
            ..FlashConfig::with(
                drive.clone(),
                FlashSettings {
                    design: FlashDesign::LazyCleaning,
                    // The model's data files have no neighbouring pages for a wider read.
                    fill: FlashFill::Plain,
                    dirty_percent: 1,
                    restart: FlashRestart::None,
                    ..FlashSettings::of_size(bytes)
                },
            )
        };
        let owner = Owner { database: 7, page_size: PAGE_BYTES, clock: running() };
        let around = Surroundings {
            has_threads: true,
            is_below_nvm: false,
            below: home.clone(),
            ledger: ledger.clone(),
            log: Arc::new(ModelLog),
        };
        let cache = FlashCache::open(&config, owner, around).cache.expect("its device is sound");
        cache.redone(|_| true);
        cache.threads_begin();
        let world = CacheUnderTest { cache, home, ledger, drive, newest: Mutex::default() };
        for no in 0..pages {
            let image = world.change(no);
            world.home.keep(&image);
            world.ledger.stable(image.id(), image.lsn());
        }
        Arc::new(world)
    }

    /// Changes the page in the pool.
    fn change(&self, no: u32) -> Image {
        self.cache.changed(id(no));
        let start = plain(&self.newest).values().copied().max().unwrap_or(Lsn::new(1000));
        self.ledger.first_change(id(no), start, start);
        let lsn = start.forward(10);
        plain(&self.newest).insert(id(no), lsn);
        let mut bytes = vec![0; PAGE_BYTES];
        page::format(&mut bytes, id(no), 40, 16);
        page::set_page_lsn(&mut bytes, lsn);
        Image::of(id(no), &bytes, Access::Random)
    }

    /// Changes the page, and puts it into the cache.
    fn put(&self, no: u32, cause: Cause) {
        let image = [self.change(no)];
        while let Err(refused) = self.cache.put(&image, cause, Need::Held) {
            assert!(refused.is_no_space(), "{refused}");
        }
        thread::yield_now();
    }

    /// Reads the page into the pool, and checks that it is the newest version.
    fn read(&self, no: u32) {
        let newest = plain(&self.newest)[&id(no)];
        let mut frame = AlignedBuf::new(PAGE_BYTES);
        let mut want = [Want::Page { frame: &mut frame, got: None }];
        self.cache
            .read(&mut [Run { first: id(no), want: &mut want }], Access::Random)
            .expect("nothing fails");
        assert_eq!(page::page_lsn(&frame), newest, "another version of page {no} than the newest");
    }

    /// Does the work of the thread that writes the queue.
    fn write(&self) {
        self.cache.write_some(Duration::ZERO).expect("nothing fails");
        thread::yield_now();
    }

    /// Writes the pages to the data files, as a checkpoint does.
    fn clean(&self, ids: &[PageId]) {
        if let Err(refused) = self.cache.clean(ids) {
            assert!(refused.is_no_space(), "{refused}");
        }
    }

    /// Returns the version that the data files have.
    fn at_home(&self, no: u32) -> Lsn {
        plain(&self.home.stored).pages[&id(no)].0
    }

    /// Does the work of the cleaning thread.
    fn clean_some(&self) {
        if let Err(refused) = self.cache.clean_some() {
            assert!(refused.is_no_space(), "{refused}");
        }
        thread::yield_now();
    }

    /// Writes everything to the data files, and checks it. The model calls this function when all threads
    /// have ended.
    fn end(&self) {
        self.home.refusals.store(0, SeqCst);
        self.cache.drain().expect("home has room");
        for (id, newest) in plain(&self.newest).iter() {
            assert_eq!(self.at_home(id.no().0), *newest, "page {id} at home");
        }
        assert_eq!(self.ledger.oldest(), None, "the ledger was told of everything");
    }
}

fn start(world: &Arc<CacheUnderTest>, run: impl FnOnce(&CacheUnderTest) + Send + 'static) -> JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || run(&world))
}

fn finish(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("the model fails at its first panic"));
}

fn cleaners() {
    let world = CacheUnderTest::new(2, 1);
    world.put(0, Cause::Evict);
    world.write();
    world.home.refusals.store(below(4), SeqCst);
    // A page that a checkpoint puts is written to the data files.
    let changer = start(&world, |world| {
        (0..below(30)).for_each(|_| thread::yield_now());
        world.put(0, if below(2) == 0 { Cause::Evict } else { Cause::Checkpoint });
        world.read(0);
    });
    let for_the_log = start(&world, |world| (0..3).for_each(|_| world.clean(&[id(0)])));
    let to_the_limit = start(&world, |world| (0..6).for_each(|_| world.clean_some()));
    finish([changer, for_the_log, to_the_limit]);
    world.end();
}

fn queue() {
    let world = CacheUnderTest::new(1, 2);
    let changer = start(&world, |world| {
        (0..2).for_each(|_| world.put(1, Cause::Evict));
        match below(2) {
            0 => world.read(1),
            _ => {
                world.clean(&[id(1)]);
                assert_eq!(world.at_home(1), plain(&world.newest)[&id(1)], "page 1 was brought home");
            }
        }
    });
    let writer = start(&world, |world| (0..2).for_each(|_| world.write()));
    finish([changer, writer]);
    world.end();
}

fn leaves() {
    let world = CacheUnderTest::new(3, 2);
    world.put(0, Cause::Evict);
    world.write();
    let fault = Fault::Fails(ErrorKind::Io(5));
    world.drive.arm(Rule { operation: Some(Operation::Write), space: None, when: When::From(1), fault });
    let changer = start(&world, |world| {
        for no in [1, 0, 1] {
            world.put(no, Cause::Evict);
            world.read(no);
        }
    });
    let cleaner = start(&world, |world| (0..2).for_each(|_| world.clean_some()));
    let writer = start(&world, |world| (0..3).for_each(|_| world.write()));
    finish([changer, cleaner, writer]);
    world.end();
}
