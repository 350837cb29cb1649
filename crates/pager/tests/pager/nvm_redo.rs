//! Redo over slots in persistent memory whose page images are newer than the images that redo makes. During
//! redo these images are written to the data files.

use std::sync::Arc;

use crate::common::{add, config, get, open, set};
use varve_device::MemoryDirectory;
use varve_pager::{Access, NvmConfig, PageId, Pager, PagerConfig, ProtectionKind, SpaceId};

/// The number of pages without a slot that redo changes before the tested page. It exceeds the number of
/// frames and free slots together, so that slots are written to the data files. The next constant is the
/// number of such pages after the tested page. It exceeds the number of frames, so that the page is put.
const EARLY: u64 = 100;
const LATE: u64 = 45;
/// The number of pages that fill slots, in two halves.
const FILLING: u64 = 180;

fn in_nvm(directory: &Arc<MemoryDirectory>, frames: usize) -> PagerConfig {
    let nvm = NvmConfig { directory: directory.clone(), size_bytes: 1100 << 10, log_bytes: 512 << 10 };
    PagerConfig { nvm: Some(nvm), protection: ProtectionKind::Nvm, ..config(directory, frames) }
}

fn counter(pager: &Pager, name: &str) -> u64 {
    let levels = pager.stats().levels;
    let nvm = levels.iter().find(|level| level.name == "nvm").unwrap();
    nvm.counters.iter().find(|(found, _)| *found == name).unwrap().1
}

/// Returns the files that a crash leaves after a flush of the log.
fn crash(directory: &Arc<MemoryDirectory>, pager: &Pager) -> Arc<MemoryDirectory> {
    pager.flush_log(pager.log().end()).unwrap();
    MemoryDirectory::from_images(directory.images())
}

/// Sets a second number of the page.
fn set_second(pager: &Pager, id: PageId, number: u64) {
    let mut mtr = pager.begin().unwrap();
    let page = mtr.x(id).unwrap();
    mtr.write(page, 200, &number.to_le_bytes());
    mtr.commit();
}

fn second(pager: &Pager, id: PageId) -> u64 {
    let page = pager.fix_s(id, Access::Random).unwrap();
    u64::from_le_bytes(page[200..208].try_into().unwrap())
}

/// Makes temporary pages, so that changed pages are put, until most slots are used. The pages in `latched`
/// can't be put.
fn fill_slots(pager: &Pager, latched: &[PageId]) {
    let extents: Vec<_> = (0..20).map(|_| pager.take_temporary().unwrap()).collect();
    let mut holder = pager.begin().unwrap();
    for id in latched {
        holder.x(*id).unwrap();
    }
    let put_pages = || {
        let before = counter(pager, "puts");
        let is_enough = |id| {
            drop(pager.create_temporary(id).unwrap());
            counter(pager, "puts") > before + 85
        };
        assert!(
            extents.iter().flat_map(|extent| extent.pages()).any(is_enough),
            "{} puts, {} free",
            counter(pager, "puts") - before,
            counter(pager, "free")
        );
    };
    // A thread that holds latches begins nothing else.
    std::thread::scope(|scope| scope.spawn(put_pages).join()).unwrap();
}

/// Returns a database and a page. The log has the page's format record, its first number and its second
/// number. The page's slot has the first number.
fn before_redo() -> (Arc<MemoryDirectory>, PageId) {
    let directory = MemoryDirectory::new();
    let pager = open(&in_nvm(&directory, 1024));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let pages: Vec<PageId> =
        (0..EARLY + LATE + FILLING).map(|number| add(&pager, owner, number).unwrap()).collect();
    pager.shutdown().unwrap();
    drop(pager);

    let pager = open(&in_nvm(&directory, 355));
    while pager.tick_nvm(1000).unwrap() > 0 {}
    let (changed, filling) = pages.split_at((EARLY + LATE) as usize);
    let (early, late) = changed.split_at(EARLY as usize);
    let (first, last) = filling.split_at(FILLING as usize / 2);
    let set_all = |pages: &[PageId]| pages.iter().for_each(|id| set(&pager, *id, 9).unwrap());
    set_all(first);
    set_all(early);
    let page = add(&pager, owner, 0).unwrap();
    set_all(late);
    set_all(last);
    set(&pager, page, 1).unwrap();
    // Pages whose log is durable are put first.
    pager.flush_log(pager.log().end()).unwrap();
    fill_slots(&pager, changed);
    set_second(&pager, page, 2);
    (crash(&directory, &pager), page)
}

/// In an earlier version, redo rebuilt a page from its format record. Meanwhile the newer image in the page's
/// slot was written to the data files, and the log recorded this. Then redo put an early state of the page.
/// After the next crash, the record hid the changes that this state lacked.
#[test]
fn a_page_is_not_begun_anew_whose_newer_image_goes_home_in_redo() {
    let (directory, page) = before_redo();
    let pager = open(&in_nvm(&directory, 32));
    assert!(counter(&pager, "home_pages") > 0, "redo wrote no slots home");
    assert_eq!((get(&pager, page).unwrap(), second(&pager, page)), (1, 2));
    let crashed = crash(&directory, &pager);

    let pager = open(&in_nvm(&crashed, 128));
    assert_eq!((get(&pager, page).unwrap(), second(&pager, page)), (1, 2));
    pager.shutdown().unwrap();
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}
