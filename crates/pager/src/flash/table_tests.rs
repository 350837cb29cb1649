//! Frames change their state, and go in an order.

use super::table::{Admitted, Counts, FrameNo, Order, Partition, Reading, Written};
use crate::ids::{PageId, PageNo, PageRange, SpaceId};
use crate::lsn::Lsn;

fn page(no: u32) -> PageId {
    PageId::new(SpaceId::DATA, PageNo(no))
}

fn put(table: &mut Partition, no: u32, now: u64) -> FrameNo {
    let Admitted::Frame(frame) = table.admit(page(no), Lsn::new(now), now) else {
        panic!("{no} is refused")
    };
    assert!(table.written(frame, Written::Clean));
    frame
}

#[test]
fn the_victim_is_the_page_whose_last_but_one_access_is_longest_ago() {
    let mut table = Partition::new(3);
    for no in 1..=3 {
        put(&mut table, no, u64::from(no));
    }
    assert!(table.touch(page(1), 4) && table.touch(page(1), 5));
    put(&mut table, 4, 6);
    assert!(!table.touch(page(2), 7), "used once, and came before 3");
    assert!(table.touch(page(1), 7) && table.touch(page(3), 7));
}

#[test]
fn a_page_that_changes_while_it_is_written_or_read_is_not_found_again() {
    let mut table = Partition::new(2);
    let Admitted::Frame(frame) = table.admit(page(1), Lsn::new(1), 1) else { panic!() };
    assert!(table.begin_read(page(1), 2, 1).is_none(), "it is not there yet");
    assert!(table.remove(page(1)) && !table.remove(page(1)));
    let newer = table.admit(page(1), Lsn::new(2), 2);
    assert!(matches!(newer, Admitted::Frame(other) if other != frame));
    assert!(!table.written(frame, Written::Clean), "the older one");
    let Admitted::Frame(other) = newer else { panic!() };
    assert!(table.written(other, Written::Clean));
    let reading = table.begin_read(page(1), 3, 1).unwrap();
    assert_eq!(reading, Reading { frame: other, lsn: Lsn::new(2), is_dirty: false });
    assert!(table.remove(page(1)));
    assert_eq!(table.counts(), Counts { free: 1, writing: 1, ..Counts::default() });
    assert!(!table.end_read(reading.frame, true));
    assert_eq!(table.counts(), Counts { free: 2, ..Counts::default() });
}

#[test]
fn a_frame_in_use_is_no_victim() {
    let mut table = Partition::new(1);
    let frame = put(&mut table, 1, 1);
    assert_eq!(table.admit(page(1), Lsn::new(1), 2), Admitted::Has);
    table.begin_read(page(1), 2, 1).unwrap();
    table.begin_read(page(1), 3, 1).unwrap();
    assert_eq!(table.admit(page(2), Lsn::new(1), 4), Admitted::Busy);
    assert!(!table.end_read(frame, true) && table.end_read(frame, false), "the second one found damage");
    assert!(matches!(table.admit(page(2), Lsn::new(1), 5), Admitted::Frame(_)));
    assert_eq!(table.admit(page(3), Lsn::new(1), 5), Admitted::Busy);
}
#[test]
fn a_dirty_page_stays_until_home_has_it() {
    let mut table = Partition::new(2);
    let admit = |table: &mut Partition, no: u32, lsn: u64| match table.admit(page(no), Lsn::new(lsn), lsn)
    {
        Admitted::Frame(frame) => frame,
        other => panic!("{no}: {other:?}"),
    };
    for no in 1..=2 {
        let frame = admit(&mut table, no, u64::from(no));
        assert!(table.written(frame, Written::Dirty));
    }
    assert_eq!(table.admit(page(3), Lsn::new(3), 3), Admitted::Busy);
    assert_eq!(table.next_dirty(), Some(page(1)));
    let cleaning = table.begin_clean(page(1)).unwrap();
    assert!(
        table.begin_clean(page(1)).is_none() && table.cleans_any(PageRange { first: page(0), count: 2 })
    );
    assert_eq!(
        (table.next_dirty(), table.admit(page(3), Lsn::new(3), 3)),
        (Some(page(2)), Admitted::Busy)
    );
    table.end_clean(page(1), cleaning.frame, false);
    assert_eq!((table.dirty_count(), table.next_dirty()), (2, Some(page(1))), "home refused it");
    let cleaning = table.begin_clean(page(1)).unwrap();
    table.end_clean(page(1), cleaning.frame, true);
    assert_eq!(table.counts(), Counts { clean: 1, dirty: 1, ..Counts::default() });
    // Changed above, and back again, while the older version is on its way.
    let older = table.begin_clean(page(2)).unwrap();
    assert!(table.remove(page(2)) && table.dirty_count() == 0);
    let newer = admit(&mut table, 2, 9);
    assert!(table.written(newer, Written::Dirty) && table.begin_clean(page(2)).is_none());
    table.end_clean(page(2), older.frame, true);
    assert_eq!(
        (table.dirty_count(), table.next_dirty()),
        (1, Some(page(2))),
        "the newer one is not home"
    );
    assert_eq!(table.begin_clean(page(2)).unwrap().lsn, Lsn::new(9));
}
