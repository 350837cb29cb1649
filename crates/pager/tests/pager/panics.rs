//! A panic within the pager stops the database, leaves no thread waiting, and does not prevent the next
//! start. A panic in other code changes nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{NoOps, add, config, get, open};
use varve_device::{Fault, Faulty, MemoryDirectory, Operation, Rule, Space, When};
use varve_pager::{Access, Pager, PagerConfig, SpaceId};

const WAIT: Duration = Duration::from_secs(20);

const FRAMES: usize = 64;

fn flush(pager: &Pager) {
    pager.flush_log(pager.log().end()).unwrap();
}

/// Returns whether calls are refused because the database has stopped.
fn has_stopped(pager: &Pager) -> bool {
    let Err(refused) = pager.begin().map(drop) else { return false };
    let said = refused.to_string();
    said.contains("takes no more changes") && said.contains("a panic in the storage engine")
}

fn panics(work: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err(), "it was to panic");
}

#[test]
fn in_a_mini_transaction_it_stops_the_database_and_frees_the_latches() {
    let directory = MemoryDirectory::new();
    let pager = open(&config(&directory, FRAMES));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let page = add(&pager, owner, 1).unwrap();
    flush(&pager);
    panics(|| {
        let mut mtr = pager.begin().unwrap();
        let h = mtr.x(page).unwrap();
        mtr.write(h, 100, &2_u64.to_le_bytes());
        panic!("between a change and its commit");
    });
    assert!(!pager.is_sound() && has_stopped(&pager));
    let latched = pager.try_fix_x(page, Access::Random).unwrap();
    assert!(latched.is_some(), "the latch is free");
    drop(latched);
    assert!(pager.shutdown().is_err(), "what memory has is not stored");
    drop(pager);
    let again = open(&config(&MemoryDirectory::from_images(directory.images()), FRAMES));
    assert!(again.is_sound());
    assert_eq!(get(&again, page).unwrap(), 1, "what was acknowledged is there, and nothing else");
}

#[test]
fn outside_of_mini_transactions_it_is_an_error_of_its_statement() {
    let pager = open(&config(&MemoryDirectory::new(), FRAMES));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let page = add(&pager, owner, 1).unwrap();
    panics(|| {
        let _latched = pager.fix_s(page, Access::Random).unwrap();
        panic!("while a page is read");
    });
    panics(|| {
        let _latched = pager.fix_x(page, Access::Random).unwrap();
        panic!("before anything is changed");
    });
    assert!(pager.is_sound());
    assert_eq!(get(&pager, page).unwrap(), 1);
    add(&pager, owner, 3).unwrap();
    pager.shutdown().unwrap();
}

/// A destructor may use the pager during a panic of other code. Then this panic is no panic of the pager.
#[test]
fn a_destructor_may_use_the_pager_while_its_thread_panics() {
    struct RollsBack<'p>(&'p Pager, u32);
    impl Drop for RollsBack<'_> {
        fn drop(&mut self) {
            add(self.0, self.1, 5).unwrap();
            flush(self.0);
        }
    }
    let pager = open(&config(&MemoryDirectory::new(), FRAMES));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    panics(|| {
        let _transaction = RollsBack(&pager, owner);
        panic!("in a statement");
    });
    assert!(pager.is_sound());
    pager.shutdown().unwrap();
}

#[test]
fn a_step_that_is_watched_stops_it() {
    let pager = open(&config(&MemoryDirectory::new(), FRAMES));
    panics(|| {
        let _watch = pager.stop_on_panic();
        panic!("in the middle of a commit");
    });
    assert!(!pager.is_sound() && has_stopped(&pager));
}

/// Each thread of the pager panics in turn. The test recognizes a thread by its operation on a device.
#[test]
fn in_a_thread_of_the_pager_it_leaves_nobody_waiting() {
    let operations = [
        (Operation::Write, Space::Data),
        (Operation::Flush, Space::Data),
        (Operation::Write, Space::Control),
        (Operation::Write, Space::Log),
    ];
    for (operation, space) in operations {
        let memory = MemoryDirectory::new();
        let faulty = Faulty::wrap(memory.clone());
        let on = || faulty.clone();
        let small = config(&memory, FRAMES);
        let threads = PagerConfig { background: true, data: on(), log: on(), control: on(), ..small };
        let pager = Pager::open(threads, Arc::new(NoOps)).unwrap();
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        let page = add(&pager, owner, 1).unwrap();
        flush(&pager);
        let rule =
            Rule { operation: Some(operation), space: Some(space), when: When::Nth(3), fault: Fault::Panics };
        faulty.arm(rule);
        let until = Instant::now() + WAIT;
        // The work continues until it is refused. A panic in this thread is right, too.
        while Instant::now() < until && pager.is_sound() {
            let _refused = catch_unwind(AssertUnwindSafe(|| {
                let _added = add(&pager, owner, 7);
                let _flushed = pager.flush_log(pager.log().end());
                let _checkpoint = pager.checkpoint();
            }));
        }
        assert!(!pager.is_sound(), "{operation} of {}: it never stopped", space.name());
        assert!(has_stopped(&pager), "{operation} of {}", space.name());
        drop(pager);
        let again = open(&config(&MemoryDirectory::from_images(memory.images()), FRAMES));
        assert_eq!(get(&again, page).unwrap(), 1, "{operation} of {}", space.name());
    }
}
