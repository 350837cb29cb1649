//! Tests of the slot table of the flash cache: slots are filled, read, written, cleaned and freed.

use super::*;
use crate::base::ids::{PageNo, SpaceId};

fn page(no: u32) -> PageId {
    PageId::new(SpaceId::DATA, PageNo(no))
}

fn table(slots: u32) -> Partition {
    Partition::new(slots, Order::Lru2, CleanOrder::LastUse)
}

fn admit(table: &mut Partition, no: u32, lsn: u64, now: u64) -> Admitted {
    let new = Arrival { id: page(no), lsn: Lsn::new(lsn), lacks: None, now, heat: None };
    table.admit(new, |_| 0)
}

fn keep(table: &mut Partition, no: u32, lsn: u64, since: u64) -> SlotNo {
    let lacks = Some(Lsn::new(since));
    let new = Arrival { id: page(no), lsn: Lsn::new(lsn), lacks, now: lsn, heat: None };
    let Admitted::Slot(slot) = table.admit(new, |_| 0) else { panic!("{no} is refused") };
    slot
}

fn put(table: &mut Partition, no: u32, now: u64) -> SlotNo {
    let Admitted::Slot(slot) = admit(table, no, now, now) else { panic!("{no} is refused") };
    assert!(table.written(slot, true));
    slot
}

fn read(table: &mut Partition, no: u32, now: u64) -> Option<Reading> {
    match table.begin_read(page(no), now)? {
        ReadFrom::Slot(reading) => Some(reading),
        ReadFrom::OnItsWay(_) => None,
    }
}

#[test]
fn the_victim_is_the_page_whose_last_but_one_access_is_longest_ago() {
    let mut table = table(3);
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
    let mut table = table(2);
    let Admitted::Slot(slot) = admit(&mut table, 1, 1, 1) else { panic!() };
    assert!(table.begin_read(page(1), 2).is_none(), "it is not there yet");
    assert!(table.remove(page(1)) && !table.remove(page(1)));
    let newer = admit(&mut table, 1, 2, 2);
    assert!(matches!(newer, Admitted::Slot(other) if other != slot));
    assert!(table.is_unwanted(slot) && !table.written(slot, true), "the older one");
    let Admitted::Slot(other) = newer else { panic!() };
    assert!(table.written(other, true));
    let reading = read(&mut table, 1, 3).unwrap();
    assert_eq!((reading.slot, reading.lsn), (other, Lsn::new(2)));
    assert!(table.remove(page(1)));
    assert_eq!(table.counts(), Counts { free: 1, writing: 1, ..Counts::default() });
    assert!(!table.end_read(other, Saw::Page));
    assert_eq!(table.counts(), Counts { free: 2, ..Counts::default() });
}

#[test]
fn a_slot_in_use_is_no_victim() {
    let mut table = table(1);
    let slot = put(&mut table, 1, 1);
    assert_eq!(admit(&mut table, 1, 1, 2), Admitted::Has { is_dirty: false });
    read(&mut table, 1, 2).unwrap();
    read(&mut table, 1, 3).unwrap();
    assert_eq!(admit(&mut table, 2, 1, 4), Admitted::Busy);
    assert!(
        !table.end_read(slot, Saw::Page) && table.end_read(slot, Saw::Other),
        "the second one found damage"
    );
    assert!(matches!(admit(&mut table, 2, 1, 5), Admitted::Slot(_)));
    assert_eq!(admit(&mut table, 3, 1, 5), Admitted::Busy);
}

#[test]
fn a_dirty_slot_is_no_victim_until_it_is_cleaned() {
    let mut table = table(2);
    let slot = keep(&mut table, 1, 5, 3);
    assert_eq!(table.begin_read(page(1), 6), Some(ReadFrom::OnItsWay(slot)), "home lacks it");
    assert!(table.written(slot, true) && table.is_dirty(page(1)));
    put(&mut table, 2, 7);
    put(&mut table, 3, 8);
    assert!(!table.touch(page(2), 9) && table.touch(page(1), 9), "2 made room");
    let cleaning = table.begin_clean(page(1)).unwrap();
    assert_eq!(cleaning, Cleaning { slot, lsn: Lsn::new(5), is_written: true });
    assert!(table.begin_clean(page(1)).is_none(), "one at a time");
    assert_eq!(table.take(page(1)), None, "it stays while it is cleaned");
    table.end_clean(slot, true);
    assert_eq!((table.dirty_count(), table.counts().clean), (0, 2));
    put(&mut table, 4, 10);
    put(&mut table, 5, 11);
    assert!(!table.touch(page(1), 12));
}

#[test]
fn a_page_that_changes_while_it_is_cleaned_gives_its_slot_up_afterwards() {
    let mut table = table(1);
    let slot = keep(&mut table, 1, 5, 3);
    table.written(slot, true);
    table.begin_clean(page(1)).unwrap();
    assert!(table.remove(page(1)) && !table.lacks(slot, page(1)));
    assert_eq!(admit(&mut table, 1, 9, 9), Admitted::Busy);
    table.end_clean(slot, true);
    assert_eq!(table.counts(), Counts { free: 1, ..Counts::default() });
    assert!(table.is_at_rest());
}

#[test]
fn dirty_slots_are_cleaned_by_last_use_or_by_recovery_lsn() {
    for (order, first) in [(CleanOrder::LastUse, 1), (CleanOrder::RecoveryLsn, 2)] {
        let mut table = Partition::new(3, Order::Lru2, order);
        for (no, lsn, since) in [(1, 10, 9), (2, 11, 4)] {
            let slot = keep(&mut table, no, lsn, since);
            assert!(table.written(slot, true));
        }
        assert_eq!(table.next_to_clean(), Some(page(first)), "{order:?}");
        let cleaning = table.begin_clean(page(first)).unwrap();
        table.end_clean(cleaning.slot, false);
        table.pass_over(cleaning.slot);
        let other = 3 - first;
        assert_eq!(table.next_to_clean(), Some(page(other)), "{order:?}: home had no room for {first}");
        let cleaning = table.begin_clean(page(other)).unwrap();
        table.end_clean(cleaning.slot, true);
        assert_eq!(table.next_to_clean(), Some(page(first)), "{order:?}: it is all that is left");
    }
}

#[test]
fn an_invalid_slot_stays_its_page_s_and_is_written_again() {
    let mut table = table(2);
    let slot = put(&mut table, 1, 1);
    assert!(table.invalidate(page(1)) && !table.invalidate(page(1)));
    assert!(table.begin_read(page(1), 2).is_none() && !table.touch(page(1), 2));
    assert_eq!((table.has_invalid(page(1)), table.counts().invalid), (true, 1));
    assert_eq!(admit(&mut table, 1, 5, 5), Admitted::Slot(slot));
    assert!(table.written(slot, true));
    assert_eq!(read(&mut table, 1, 6).map(|reading| reading.lsn), Some(Lsn::new(5)));
}

#[test]
fn only_hotter_pages_push_others_out() {
    let mut table = Partition::new(2, Order::Heat, CleanOrder::LastUse);
    let heats = |id: PageId| u64::from(id.no().0) * 10;
    let arrive = |table: &mut Partition, no: u32, heat| {
        let new = Arrival { id: page(no), lsn: Lsn::new(1), lacks: None, now: 1, heat: Some(heat) };
        let admitted = table.admit(new, heats);
        if let Admitted::Slot(slot) = admitted {
            table.written(slot, true);
        }
        admitted
    };
    arrive(&mut table, 7, 1);
    arrive(&mut table, 3, 30);
    assert_eq!(arrive(&mut table, 1, 30), Admitted::Colder, "7 has become hotter, 3 has not");
    assert!(matches!(arrive(&mut table, 5, 31), Admitted::Slot(_)));
    assert!(table.touch(page(7), 2) && !table.touch(page(3), 2));
}

#[test]
fn a_ring_gives_up_what_it_was_given_first() {
    let mut table = Partition::new(3, Order::Fifo, CleanOrder::LastUse);
    (1..=3).for_each(|no| {
        put(&mut table, no, u64::from(no));
    });
    (4..9).for_each(|now| assert!(table.touch(page(1), now)));
    put(&mut table, 4, 9);
    assert!(!table.touch(page(1), 10));
}
