//! Test: at any cut through a doublewrite, with any subset of what was in flight, every page is whole after repair.
//!
//! What it does not know: pool, log.

use std::sync::Arc;

use varve_device::{Directory, Fate, MemoryDirectory, RecordLog, Recorder, Timeline};

use super::*;
use crate::files::SpaceFile;
use crate::ids::{Access, PageId, PageNo, SpaceId};
use crate::page;

const PAGES: u32 = 24;

fn image(no: u32, lsn: u64) -> Image {
    let id = PageId::new(SpaceId::DATA, PageNo(no));
    let mut bytes = vec![lsn as u8; 4096];
    page::set_page_lsn(&mut bytes, Lsn::new(lsn));
    page::format(&mut bytes, id, 16, 0);
    bytes[100..].fill(lsn as u8);
    Image::of(id, &bytes, Access::Random)
}

fn area(directory: Arc<dyn Directory>, is_new: bool) -> (Arc<SpaceFiles>, Box<dyn Protection>) {
    let file = SpaceFile::open(SpaceId::DATA, &*directory, 4096, is_new).unwrap();
    if is_new {
        file.resize(PAGES).unwrap();
    }
    let mut config = PagerConfig::new(directory);
    config.page_size = 4096;
    config.protection = ProtectionKind::Doublewrite { batch_slots: 6, single_slots: 2 };
    let files = Arc::new(SpaceFiles::new(vec![file]));
    let protection = open(&config, &files, is_new).unwrap();
    (files, protection)
}

fn write(protection: &dyn Protection, pages: impl Iterator<Item = u32>, lsn: u64, cause: Cause) {
    let images: Vec<Image> = pages.map(|no| image(no, lsn)).collect();
    protection.write(&images.iter().collect::<Vec<_>>(), cause).unwrap();
}

/// LSN of the page at home, which must be whole.
fn lsn_at_home(files: &SpaceFiles, no: u32, what: &str) -> u64 {
    let id = PageId::new(SpaceId::DATA, PageNo(no));
    let file = files.of(id).unwrap();
    let mut buf = varve_device::AlignedBuf::new(4096);
    file.file().read_at(file.offset(id).unwrap(), &mut buf, file.purpose()).unwrap();
    page::verify(&buf, id).unwrap_or_else(|damage| panic!("{what}: page {no}: {damage}"));
    page::page_lsn(&buf).get()
}

#[test]
fn every_page_is_whole_after_repair() {
    let inner = MemoryDirectory::new();
    let (_, protection) = area(inner.clone(), true);
    for first in (0..PAGES).step_by(6) {
        write(&*protection, first..first + 6, 10, Cause::Drain);
    }
    let log = RecordLog::new();
    let (_, protection) = area(Recorder::wrap(inner, log.clone()), false);
    for lsn in 11..=20 {
        write(&*protection, (0..PAGES).filter(|no| u64::from(no % 3) == lsn % 3), lsn, Cause::Checkpoint);
        log.mark(lsn);
        write(&*protection, (0..3).map(|no| no * 7 + lsn as u32 % 3), lsn, Cause::EvictInline);
    }
    let mut timeline = Timeline::new(log.recording());
    for cut in 0..=timeline.end() {
        timeline.advance(cut);
        let pending = timeline.pending().len();
        for seed in 0..4 {
            let fate = |at: usize| match (seed + at) % 4 {
                0 => Fate::Absent,
                1 => Fate::Torn { unit_bytes: 512, seed: cut + at as u64 },
                2 => Fate::Garbage { seed: cut + at as u64 },
                _ => Fate::Present,
            };
            let directory = timeline.image(&(0..pending).map(fate).collect::<Vec<_>>()).remove(0);
            let (files, protection) = area(directory, false);
            protection.repair(Lsn::new(9)).unwrap();
            let what = format!("cut {cut}, fates {seed}");
            let newest = timeline.marks().last().copied().unwrap_or(10);
            for no in 0..PAGES {
                let lsn = lsn_at_home(&files, no, &what);
                let written = (11..=newest).rev().find(|lsn| lsn % 3 == u64::from(no % 3)).unwrap_or(10);
                assert!(lsn >= written, "{what}: page {no} went back to {lsn} from {written}");
            }
        }
    }
}
