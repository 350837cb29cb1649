//! Files grow over the boundary of an allocation group, or shrink, and the database crashes at any moment in
//! between.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{KIND, NoOps, Random, config};
use varve_device::{Directory, Fate, MemoryDirectory, RecordLog, Recorder, Timeline};
use varve_pager::{PageId, Pager, PagerConfig, SpaceId};

fn config_in(directory: Arc<dyn Directory>) -> PagerConfig {
    let mut config = config(&MemoryDirectory::new(), 128);
    config.data = directory.clone();
    config.log = directory.clone();
    config.rollback = directory.clone();
    config.temporary = directory.clone();
    config.control = directory;
    config
}

fn open(directory: Arc<dyn Directory>) -> Pager {
    Pager::open(config_in(directory), Arc::new(NoOps)).unwrap()
}

/// Takes whole extents, one per mini-transaction, and formats the first page of each.
fn take(pager: &Pager, owner: u32, extents: u32) -> PageId {
    let mut last = PageId::ROOT;
    for _ in 0..extents {
        let mut mtr = pager.begin().unwrap();
        last = mtr.allocate_extent(SpaceId::DATA, owner).unwrap().first;
        mtr.create(last, KIND, owner).unwrap();
        mtr.commit();
    }
    last
}

fn settle(pager: &Pager) {
    while pager.tick_write(100).unwrap() > 0 {}
    pager.checkpoint().unwrap();
}

/// Opens images at many cuts, with three kinds of fates for each cut. `judge` gets the owners that were
/// found, and the last mark.
fn at_every_cut(log: &RecordLog, cuts: u64, judge: impl Fn(BTreeMap<u32, u64>, u64)) {
    let mut timeline = Timeline::new(log.recording());
    let mut random = Random(0xA110C);
    let end = timeline.end();
    for cut in (1..=cuts).map(|part| end * part / cuts) {
        timeline.advance(cut);
        let mark = timeline.marks().last().copied().unwrap_or(0);
        let pending = timeline.pending().len();
        for style in 0..3 {
            let fate = |random: &mut Random| match (style, random.below(3)) {
                (0, _) | (2, 0) => Fate::Absent,
                (1, _) | (2, 1) => Fate::Present,
                _ => Fate::Torn { unit_bytes: 512, seed: random.next() },
            };
            let fates: Vec<Fate> = (0..pending).map(|_| fate(&mut random)).collect();
            let pager = open(timeline.image(&fates).remove(0));
            let what = format!("cut {cut} of {end}, style {style}");
            judge(pager.owners(SpaceId::DATA).unwrap(), mark);
            let owner = pager.create_segment(SpaceId::DATA).unwrap();
            take(&pager, owner, 12);
            if cut % 16 == 0 && style == 2 {
                assert_eq!(pager.check().unwrap().damages, Vec::<String>::new(), "{what}");
            }
        }
    }
}

#[test]
fn growth_over_a_group_boundary() {
    let inner = MemoryDirectory::new();
    let pager = open(inner.clone());
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    take(&pager, owner, 110);
    pager.shutdown().unwrap();
    drop(pager);
    let log = RecordLog::new();
    let pager = open(Recorder::wrap(inner, log.clone()));
    for extents in 111..150 {
        take(&pager, owner, 1);
        pager.flush_log(pager.log().end()).unwrap();
        log.mark(extents * 64);
    }
    drop(pager);
    at_every_cut(&log, 60, |owners, flushed| assert!(owners[&owner] >= flushed.max(110 * 64)));
}

#[test]
fn shrinking_and_growing_again() {
    let inner = MemoryDirectory::new();
    drop(open(inner.clone()));
    let log = RecordLog::new();
    let pager = open(Recorder::wrap(inner, log.clone()));
    let stays = pager.create_segment(SpaceId::DATA).unwrap();
    take(&pager, stays, 2);
    for round in 0..4 {
        let goes = pager.create_segment(SpaceId::DATA).unwrap();
        take(&pager, goes, 130 + 10 * round);
        if round % 2 == 0 {
            settle(&pager);
        }
        pager.drop_segment(SpaceId::DATA, goes).unwrap();
        take(&pager, stays, 1);
        pager.checkpoint().unwrap();
        settle(&pager);
        settle(&pager);
        log.mark(3 + u64::from(round));
    }
    drop(pager);
    at_every_cut(&log, 80, |owners, extents| {
        assert!(owners.get(&stays).copied().unwrap_or(0) >= extents * 64);
    });
}
