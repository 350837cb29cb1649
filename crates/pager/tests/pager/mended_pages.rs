//! A page that a start repairs from its copy has all its changes, even if this start crashes at any moment.
//!
//! The log's record of a written page lets redo skip older changes of the page. So no start may put a version
//! into the data files that is older than the newest of these records says.

use std::sync::Arc;

use varve_device::{Directory, Fate, MemoryDirectory, RecordLog, Recorder, Timeline};
use varve_pager::{Access, PageId, Pager, PagerConfig, SpaceId};

use crate::common::{add, config, get, open, set, stored, with_stored};

/// The number of frames of the pool in normal operation.
const MANY: usize = 256;
/// The number of frames of the pool at a start.
const FEW: usize = 32;
/// The number of other pages. A start has fewer frames, so redo writes changed pages before it comes to the
/// end of the log.
const OTHERS: u64 = 100;
const COPIES: &str = "doublewrite.varve";
/// Offsets of two numbers in the page.
const EARLY: usize = 200;
const LATE: usize = 300;

fn write(pager: &Pager, id: PageId, offset: usize, number: u64) {
    let mut mtr = pager.begin().unwrap();
    let page = mtr.x(id).unwrap();
    mtr.write(page, offset, &number.to_le_bytes());
    let end = mtr.commit();
    pager.flush_log(end).unwrap();
}

fn number(pager: &Pager, id: PageId, offset: usize) -> u64 {
    let page = pager.fix_s(id, Access::Random).unwrap();
    u64::from_le_bytes(page[offset..offset + 8].try_into().unwrap())
}

/// A database that crashed, and a page that has changes before and after a record of its writing.
struct Crashed {
    directory: Arc<MemoryDirectory>,
    /// The files of the database when the page was written for the first time.
    earlier: Arc<MemoryDirectory>,
    id: PageId,
}

/// Writes the page whose change is the oldest.
fn write_oldest(pager: &Pager, directory: &MemoryDirectory, id: PageId) {
    let before = stored(directory, id);
    assert_eq!(pager.tick_write(1).unwrap(), 1);
    assert!(stored(directory, id) != before, "another page was the oldest");
}

fn crashed() -> Crashed {
    let directory = MemoryDirectory::new();
    let pager = open(&config(&directory, MANY));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    while pager.tick_write(100).unwrap() > 0 {}
    pager.checkpoint().unwrap();
    let id = add(&pager, owner, 0).unwrap();
    let before = stored(&directory, id);
    while stored(&directory, id) == before {
        assert_eq!(pager.tick_write(1).unwrap(), 1);
    }
    let earlier = MemoryDirectory::from_images(directory.images());
    while pager.tick_write(1).unwrap() > 0 {}
    set(&pager, id, 1).unwrap();
    for other in 0..OTHERS {
        add(&pager, owner, other).unwrap();
    }
    write(&pager, id, EARLY, 7);
    write_oldest(&pager, &directory, id);
    // With this change, the record that says that the page was written becomes durable.
    write(&pager, id, LATE, 8);
    Crashed { directory, earlier, id }
}

/// Crashes the start of this database at every moment, and starts it again.
fn start_and_crash(directory: &Arc<MemoryDirectory>, id: PageId) {
    let record = RecordLog::new();
    let recorder: Arc<dyn Directory> =
        Recorder::wrap(MemoryDirectory::from_images(directory.images()), record.clone());
    let plain = config(directory, FEW);
    let recorded = PagerConfig {
        data: recorder.clone(),
        log: recorder.clone(),
        rollback: recorder.clone(),
        temporary: recorder.clone(),
        control: recorder,
        ..plain.clone()
    };
    drop(open(&recorded));
    let mut timeline = Timeline::new(record.recording());
    for cut in 0..=timeline.end() {
        timeline.advance(cut);
        let fates = vec![Fate::Present; timeline.pending().len()];
        let image = timeline.image(&fates).remove(0);
        let pager = open(&config(&image, FEW));
        let found = [get(&pager, id).unwrap(), number(&pager, id, EARLY), number(&pager, id, LATE)];
        assert_eq!(found, [1, 7, 8], "the start crashed at {cut}");
    }
}

fn with_damage(directory: &MemoryDirectory, id: PageId) -> Arc<MemoryDirectory> {
    let mut damaged = stored(directory, id);
    damaged[2048..].fill(0xAA);
    with_stored(directory, id, &damaged)
}

#[test]
fn a_page_that_was_torn_keeps_its_changes_if_its_repair_crashes() {
    let Crashed { directory, id, .. } = crashed();
    start_and_crash(&with_damage(&directory, id), id);
}

/// The only copy is older than the log's record of the written page.
#[test]
fn a_page_that_is_repaired_from_an_older_copy_keeps_its_changes_if_its_repair_crashes() {
    let Crashed { directory, earlier, id } = crashed();
    let mut images = with_damage(&directory, id).images();
    images.retain(|(name, _)| name != COPIES);
    images.extend(earlier.images().into_iter().filter(|(name, _)| name == COPIES));
    start_and_crash(&MemoryDirectory::from_images(images), id);
}
