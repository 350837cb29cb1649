//! The check compares allocated pages with used pages. It must look at each page only once, however many
//! segments there are. Before this test existed, a database with 438 MiB of rollback segments took most of a
//! minute for the comparison.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "engine/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use varve_engine::tree::Checker;
use varve_pager::{PageId, PageNo, SpaceId};

const SEGMENTS: u32 = 40_000;
const PAGES: u32 = 10 * SEGMENTS;
const PATIENCE: Duration = Duration::from_secs(10);

fn page(no: u32) -> PageId {
    PageId::new(SpaceId::DATA, PageNo(no))
}

#[test]
fn many_segments_take_no_longer_than_their_pages() {
    let pager = common::new_pager(4096);
    let mut checker = Checker::new();
    for no in 0..PAGES {
        checker.claim(page(no), 1000 + no % SEGMENTS);
    }
    let began = Instant::now();
    checker.compare_all_with_allocation(&pager, SpaceId::DATA).unwrap();
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    assert_eq!(checker.damage_count(), u64::from(PAGES), "nothing of this is allocated");
    assert_eq!(
        checker.damages()[0],
        format!("page {} is used by segment 1000, but not allocated to it", page(0))
    );
}

#[test]
fn all_segments_together_are_compared_as_each_alone() {
    let pager = common::new_pager(4096);
    let (mut together, mut alone) = (Checker::new(), Checker::new());
    let owners: Vec<u32> = (0..3).map(|_| pager.create_segment(SpaceId::DATA).unwrap()).collect();
    for owner in &owners {
        let mut mtr = pager.begin().unwrap();
        let ids: Vec<PageId> = (0..3).map(|_| mtr.allocate(SpaceId::DATA, *owner, None).unwrap()).collect();
        for id in &ids {
            mtr.create(*id, 40, *owner).unwrap();
        }
        mtr.commit();
        for checker in [&mut together, &mut alone] {
            // One page of each segment is leaked: nothing claims it. One page is claimed that was never
            // allocated.
            checker.claim(ids[0], *owner);
            checker.claim(ids[1], *owner);
            checker.claim(page(100_000 + owner), *owner);
        }
    }
    together.compare_all_with_allocation(&pager, SpaceId::DATA).unwrap();
    for owner in owners {
        alone.compare_with_allocation(&pager, SpaceId::DATA, owner).unwrap();
    }
    assert_eq!(together.damages(), alone.damages());
    assert_eq!(together.damage_count(), 6);
}
