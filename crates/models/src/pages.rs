//! Model of the buffer pool's frames and page table. Threads fix, pin, evict, write and drop pages at the
//! same time.
//!
//! The tested code is everything in `pager/src/pool/`, with `base/latch.rs` and `level/ledger.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, JoinHandle};

use crate::checker::{How, Model};
use crate::frames::{PAGES, PoolUnderTest, id};
use crate::pager::base::latch::{Exclusive, Shared};
use crate::pager::level::Cause;
use crate::pager::pool::Pin;
use crate::pager::{Lsn, PageId, PageRange, page};

pub(crate) const CHANGES: Model = Model {
    name: "no page is lost, doubled, mistaken or half changed",
    how: How::Shuttle,
    run: changes,
    flaws: &[
        "latched without looking at the page again",
        "entered without looking whether the page is there",
        "taken out without the stripe",
        "two writes of a page at once",
        "clean after the write instead of with the copy",
        "page before log",
    ],
};

pub(crate) const FAILED_WRITE: Model = Model {
    name: "a failed write loses no change and leaves no page behind",
    how: How::Shuttle,
    run: failed_write,
    flaws: &["clean although the write failed"],
};

pub(crate) const DISCARD: Model = Model {
    name: "a discarded page is not written any more, and who discards it gets to know when its write ended",
    how: How::Shuttle,
    run: discard,
    flaws: &["discarded during its write", "end of a write told without the mutex"],
};

pub(crate) const PINNED: Model = Model {
    name: "a pinned page stays in its frame",
    how: How::Shuttle,
    run: pinned,
    flaws: &["evicted although pinned"],
};

pub(crate) const IN_ORDER: Model = Model {
    name: "latches taken in order make no deadlock, whatever the evictor does",
    how: How::Shuttle,
    run: in_order,
    flaws: &[],
};

pub(crate) const TAKEN: Model = Model {
    name: "who waits for a page that leaves does not wait for the next page of its frame",
    how: How::Shuttle,
    run: taken,
    flaws: &["given a page while somebody waits for the last one"],
};

fn start(world: &Arc<PoolUnderTest>, run: impl FnOnce(&PoolUnderTest) + Send + 'static) -> JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || run(&world))
}

fn finish(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("the model fails at its first panic"));
}

fn below(limit: u32) -> u32 {
    thread_rng().gen_range(0..limit)
}

/// Returns one of two pages that all threads use often, or any page.
fn some_page() -> u32 {
    if below(2) == 0 { below(2) } else { below(PAGES) }
}

fn one_step(world: &PoolUnderTest) {
    match below(9) {
        0..3 => world.change(some_page()),
        3 => world.change_upgraded(some_page()),
        4 | 5 => world.read(some_page()),
        6 => drop(
            world.pool.clean(&[id(some_page()), id(some_page())], Cause::Checkpoint).expect("writes succeed"),
        ),
        7 => {
            let write = |dirty: &[u32]| world.pool.write_frames(dirty);
            world.pool.refill_to(world.pool.high_water(), write).expect("writes succeed");
        }
        _ if below(2) == 0 => world.try_read(some_page()),
        _ => world.pool.prefetch(&[id(some_page()), id(some_page())]),
    }
}

fn changes() {
    let world = PoolUnderTest::new();
    let steps = |world: &PoolUnderTest| (0..4).for_each(|_| one_step(world));
    finish([start(&world, steps), start(&world, steps), start(&world, steps)]);
    (0..PAGES).for_each(|no| world.read(no));
    let dirty = world.pool.dirty_pages();
    world.pool.clean(&dirty, Cause::Drain).expect("writes succeed");
    assert_eq!((world.ledger.oldest(), world.pool.dirty_count()), (None, 0), "everything is written");
}

fn failed_write() {
    const CHANGED: u32 = 2;
    let world = PoolUnderTest::new();
    (0..CHANGED).for_each(|no| world.change(no));
    world.level.fails.store(true, SeqCst);
    let all: Vec<PageId> = (0..CHANGED).map(id).collect();
    let cleaner = start(&world, move |world| drop(world.pool.clean(&all, Cause::Checkpoint)));
    let reader = start(&world, |world| (0..4).for_each(|_| world.read(CHANGED + below(PAGES - CHANGED))));
    let another = start(&world, |world| (0..3).for_each(|_| world.read(some_page())));
    finish([cleaner, reader, another]);
    world.level.fails.store(false, SeqCst);
    (0..PAGES).for_each(|no| world.read(no));
}

fn discard() {
    let world = PoolUnderTest::new();
    world.change(0);
    world.change(1);
    let cleaner = start(&world, |world| drop(world.pool.clean(&[id(0), id(1)], Cause::Checkpoint)));
    let reader = start(&world, |world| world.read(2 + below(PAGES - 2)));
    let dropper = start(&world, |world| {
        world.pool.discard(PageRange { first: id(0), count: 2 }, Lsn::ZERO).expect("memory can be discarded");
        assert!(!world.pool.is_resident(id(0)) && !world.pool.is_resident(id(1)));
    });
    finish([cleaner, reader, dropper]);
    assert_eq!(world.ledger.oldest(), None);
}

fn pinned() {
    let world = PoolUnderTest::with(&[2]);
    let holder = start(&world, |world| {
        let no = 2;
        let Some(page) = world.fixed::<Shared>(no) else { return };
        let pin = Pin::new(&page);
        drop(page);
        thread::yield_now();
        let page = pin.lock();
        assert_eq!((page.id(), page::page_identity(&page)), (id(no), id(no)), "the pinned page has left");
    });
    let steps = |world: &PoolUnderTest| (0..4).for_each(|_| world.read(below(PAGES)));
    finish([holder, start(&world, steps)]);
}

fn in_order() {
    let world = PoolUnderTest::new();
    let climb = |world: &PoolUnderTest| {
        for _ in 0..3 {
            let low = below(PAGES - 1);
            let high = low + 1 + below(PAGES - 1 - low);
            let _low = world.fixed::<Exclusive>(low);
            let _high = world.fixed::<Exclusive>(high);
        }
    };
    finish([start(&world, climb), start(&world, climb), start(&world, climb)]);
}

/// Runs a schedule in which page 2 is evicted first, and page 0 gets its frame, while a thread that holds
/// page 1 waits for page 2.
fn taken() {
    let world = PoolUnderTest::with(&[2, 1]);
    let climb = |low: u32| {
        move |world: &PoolUnderTest| {
            let _low = world.fixed::<Exclusive>(low);
            let _high = world.fixed::<Exclusive>(low + 1);
        }
    };
    finish([start(&world, climb(1)), start(&world, climb(0))]);
}
