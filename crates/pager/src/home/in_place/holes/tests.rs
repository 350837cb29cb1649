//! Tests of holes in the in-place layout. They record the requested writes and holes, compute the allocated
//! blocks of each page from this record, and compare them with a model.
//!
//! This module does not know pool or recovery.

use std::collections::BTreeSet;

use proptest::prelude::*;
use varve_device::{
    AlignedBuf, Change, ErrorKind, Fault, Faulty, MemoryDirectory, NEVER, Operation, RecordLog, Recorder,
    Rule, Space, When,
};

use super::*;
use crate::base::compression::{Algorithm, Compression};
use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageNo};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::page;
use crate::config::PagerConfig;
use crate::home::compression::by_owner::Compressions;
use crate::home::compression::stored_page::StoredLengths;
use crate::home::in_place::{InPlace, InPlaceParts};
use crate::home::layout::Layout;
use crate::home::protection::{self, kind::ProtectionKind};
use crate::home::trim::Trim;
use crate::level::ledger::Ledger;
use crate::level::{Cause, Need, Want};
use crate::log::WriteAhead;

const PAGES: u32 = 6;
const SECTOR: usize = 512;

/// A log that always counts as durable.
struct Durable;

impl WriteAhead for Durable {
    fn durable_lsn(&self) -> Lsn {
        Lsn::new(u64::MAX >> 1)
    }
    fn flush(&self, _upto: Lsn) -> Result<()> {
        Ok(())
    }
    fn note_written(&self, _images: &[&Image]) {}
    fn check(&self) -> Result<()> {
        Ok(())
    }
    fn stop(&self, _cause: &PagerError) {}
}

fn id(no: u32) -> PageId {
    PageId::new(SpaceId::DATA, PageNo(no))
}

/// An in-place layout over a recorded device, and the model that it is compared with.
struct Rig {
    page_size: usize,
    hole_bytes: usize,
    device: Arc<Faulty>,
    record: Arc<RecordLog>,
    trim: Arc<TrimSetting>,
    protection: ProtectionKind,
    layout: InPlace,
    lsn: u64,
    /// The last written image of each page, or `None` if it is not known.
    pages: Vec<Option<Image>>,
}

fn open(
    device: &Arc<Faulty>,
    rig: (usize, ProtectionKind),
    trim: &Arc<TrimSetting>,
    is_new: bool,
) -> InPlace {
    let (page_size, kind) = rig;
    let file = SpaceFile::open(SpaceId::DATA, &**device, page_size, is_new).unwrap();
    let files = Arc::new(SpaceFiles::new(vec![file]));
    let mut config = PagerConfig::new(device.clone());
    (config.page_size, config.protection, config.background) = (page_size, kind, false);
    InPlace::new(InPlaceParts {
        protection: protection::open(&config.wanted_protection(None), 0, &files, None).unwrap(),
        files,
        ledger: Arc::new(Ledger::default()),
        log: Arc::new(Durable),
        compressions: Arc::new(Compressions::new(Compression::of(Algorithm::Lz4))),
        trim: trim.clone(),
        page_size,
        stored_lengths: StoredLengths::Multiples(SECTOR),
    })
}

impl Rig {
    fn new(page_size: usize, hole_bytes: usize, protection: ProtectionKind) -> Rig {
        let record = RecordLog::new();
        let memory = MemoryDirectory::with_holes(hole_bytes as u32);
        let device = Faulty::wrap(Recorder::wrap(memory, record.clone()));
        let trim = Arc::new(TrimSetting::default());
        let layout = open(&device, (page_size, protection), &trim, true);
        layout.resize(SpaceId::DATA, PAGES).unwrap();
        let pages = (0..PAGES).map(|_| None).collect();
        Rig { page_size, hole_bytes, device, record, trim, protection, layout, lsn: 1, pages }
    }

    fn restart(&mut self) {
        self.device.restart();
        self.layout = open(&self.device, (self.page_size, self.protection), &self.trim, false);
    }

    /// Returns a page in which `noise` bytes don't compress.
    fn image(&mut self, no: u32, noise: usize) -> Image {
        self.lsn += 1;
        let mut bytes = AlignedBuf::new(self.page_size);
        page::format(&mut bytes, id(no), page::FIRST_ENGINE_KIND, 40);
        page::set_page_lsn(&mut bytes, Lsn::new(self.lsn));
        let mut state = self.lsn << 8 | 1;
        let body = bytes[page::PAGE_HEADER_BYTES..].iter_mut().take(noise);
        body.for_each(|byte| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state as u8 | 1;
        });
        Image::of(id(no), &bytes, Access::Random)
    }

    fn write(&mut self, no: u32, noise: usize) -> Result<()> {
        let image = self.image(no, noise);
        let written = self.layout.write(&[&image], Cause::Evict, Need::Stable);
        self.pages[no as usize] = written.is_ok().then_some(image);
        written
    }

    /// Returns the number of blocks that the stored image needs.
    fn blocks_needed(&self, image: &Image) -> usize {
        let stored = Stored::of(image, Compression::of(Algorithm::Lz4), StoredLengths::Multiples(SECTOR));
        stored.bytes().len().div_ceil(self.hole_bytes)
    }

    /// Returns the allocated blocks of the file, according to the recorded requests.
    fn blocks(&self) -> BTreeSet<usize> {
        let recording = self.record.recording();
        let mut name = None;
        let (mut blocks, mut length) = (BTreeSet::new(), 0);
        let of = |bytes: u64| bytes as usize / self.hole_bytes;
        for event in recording.events.iter().filter(|event| event.completed != NEVER) {
            match &event.change {
                Change::Create { name: new, file } if new == "data.varve" => name = Some(*file),
                Change::Write { file, offset, bytes, .. } if name == Some(*file) && !bytes.is_empty() => {
                    blocks.extend(of(*offset)..(of(offset + bytes.len() as u64 - 1) + 1));
                }
                Change::Punch { file, offset, len_bytes } if name == Some(*file) => {
                    let whole = (*offset as usize).div_ceil(self.hole_bytes)..of(offset + len_bytes);
                    blocks.retain(|block| !whole.contains(block));
                }
                Change::SetLen { file, len_bytes } if name == Some(*file) => {
                    // When a file gets longer, all its new blocks are allocated (decision 0101).
                    blocks.extend(of(length)..of(*len_bytes));
                    blocks.retain(|block| *block < of(*len_bytes));
                    length = *len_bytes;
                }
                _ => {}
            }
        }
        blocks
    }

    /// Returns those of `blocks` that are in the page's place, counted from its start.
    fn within(&self, blocks: &BTreeSet<usize>, no: u32) -> BTreeSet<usize> {
        let each = self.page_size.div_ceil(self.hole_bytes);
        let first = no as usize * each;
        blocks.range(first..first + each).map(|block| block - first).collect()
    }

    fn blocks_of(&self, no: u32) -> BTreeSet<usize> {
        self.within(&self.blocks(), no)
    }

    /// Checks invariants 1 and 2 of the module.
    fn check(&self) {
        let (places, blocks) = (&self.layout.holes.spaces[0], self.blocks());
        for (no, image) in (0..self.layout.pages(SpaceId::DATA)).zip(&self.pages) {
            let has = self.within(&blocks, no);
            let hint = usize::from(places.has(id(no)));
            assert!(has.iter().all(|block| *block < hint), "page {no} has {has:?}, and the hint says {hint}");
            let Some(image) = image else { continue };
            let needs = self.blocks_needed(image);
            assert!((0..needs).all(|block| has.contains(&block)), "page {no} has {has:?} and needs {needs}");
            let mut frame = AlignedBuf::new(self.page_size);
            let want = &mut Want::Page { frame: &mut frame, got: None };
            self.layout.read(&mut [(id(no), want)]).unwrap();
            assert!(*frame == *image.bytes(), "another page {no} comes back");
        }
    }

    fn count(&self, name: &str) -> u64 {
        let counters = self.layout.counters().into_iter();
        counters.filter(|(counter, _)| *counter == name).map(|(_, count)| count).sum()
    }

    fn arm(&self, operation: Operation, fault: Fault) {
        let space = Some(Space::Data);
        self.device.arm(Rule { operation: Some(operation), space, when: When::From(1), fault });
    }
}

const NONE: ProtectionKind = ProtectionKind::None;
const TWICE: ProtectionKind = ProtectionKind::Doublewrite { batch_slots: 4, single_slots: 2 };

#[test]
fn a_page_that_stays_as_long_is_punched_once() {
    let mut rig = Rig::new(8192, 512, NONE);
    for _ in 0..10 {
        rig.write(2, 3000).unwrap();
    }
    assert_eq!(rig.count("trims"), 1, "its place had all its blocks");
    let steps = [(2000, 2), (3000, 2), (3000, 2), (2000, 3), (8000, 3), (100, 4), (100, 4)];
    for (noise, trims) in steps {
        rig.write(2, noise).unwrap();
        assert_eq!(rig.count("trims"), trims, "{noise} bytes");
        rig.check();
    }
    assert!(rig.count("trimmed_bytes") > 8192 && rig.count("trims_failed") == 0);
    rig.restart();
    (0..3).for_each(|_| rig.write(2, 100).unwrap());
    assert_eq!(rig.count("trims"), 1, "nothing is known after a start");
}

#[test]
fn plain_pages_are_not_punched_and_leave_no_hints() {
    let mut rig = Rig::new(4096, 512, NONE);
    (0..PAGES).for_each(|no| rig.write(no, 4096).unwrap());
    assert_eq!((rig.count("trims"), rig.layout.holes.spaces[0].hints.bytes()), (0, 0));
    rig.write(1, 10).unwrap();
    rig.write(1, 4096).unwrap();
    rig.check();
    assert_eq!(rig.blocks_of(1).len(), 8);
}

/// On most file systems a page of 4 KiB is one block, so no part of it can be a hole.
#[test]
fn blocks_as_long_as_pages_are_left_alone() {
    for (page_size, hole_bytes) in [(4096, 4096), (4096, 65536), (8192, 1 << 20)] {
        let mut rig = Rig::new(page_size, hole_bytes, NONE);
        rig.write(0, 10).unwrap();
        assert_eq!(rig.count("trims"), 0, "{page_size} and {hole_bytes}");
        let mut frame = AlignedBuf::new(page_size);
        rig.layout.read(&mut [(id(0), &mut Want::Page { frame: &mut frame, got: None })]).unwrap();
    }
    let mut rig = Rig::new(16384, 4096, NONE);
    rig.write(0, 5000).unwrap();
    rig.check();
    assert_eq!(rig.blocks_of(0), BTreeSet::from([0, 1]));
}

#[test]
fn a_device_that_cannot_punch_is_asked_once() {
    let mut rig = Rig::new(4096, 512, TWICE);
    rig.arm(Operation::Punch, Fault::Fails(ErrorKind::Unsupported));
    (0..PAGES).for_each(|no| rig.write(no, 100).unwrap());
    assert_eq!((rig.device.fired_count(), rig.count("trims"), rig.count("trims_failed")), (1, 0, 0));
    rig.check();
}

#[test]
fn what_could_not_be_punched_is_tried_with_the_next_write() {
    let mut rig = Rig::new(4096, 512, TWICE);
    rig.arm(Operation::Punch, Fault::Fails(ErrorKind::NoSpace));
    rig.write(0, 100).unwrap();
    rig.write(0, 100).unwrap();
    assert_eq!((rig.count("trims"), rig.count("trims_failed"), rig.blocks_of(0).len()), (0, 2, 8));
    rig.check();
    rig.device.disarm();
    rig.write(0, 100).unwrap();
    assert_eq!((rig.count("trims"), rig.blocks_of(0).len()), (1, 1));
    rig.check();
}

/// A full device writes half of a page, and then refuses.
#[test]
fn a_refused_write_leaves_no_hint() {
    for protection in [NONE, TWICE] {
        let mut rig = Rig::new(4096, 512, protection);
        rig.write(0, 100).unwrap();
        // With doublewrite, the first write makes the copies, and the second one writes to the place.
        let nth = if protection == NONE { 1 } else { 2 };
        let (operation, space) = (Some(Operation::Write), Some(Space::Data));
        rig.device.arm(Rule { operation, space, when: When::Nth(nth), fault: Fault::HalfFull });
        rig.write(0, 4096).unwrap_err();
        rig.device.disarm();
        assert_eq!(rig.blocks_of(0).len(), 4);
        rig.check();
        rig.write(0, 100).unwrap();
        assert_eq!((rig.count("trims"), rig.blocks_of(0).len()), (2, 1));
    }
}

/// If a place is cut off, and the file grows again, all blocks of the place are allocated.
#[test]
fn hints_go_with_their_places() {
    let mut rig = Rig::new(4096, 512, NONE);
    rig.write(5, 100).unwrap();
    rig.layout.resize(SpaceId::DATA, 3).unwrap();
    rig.layout.resize(SpaceId::DATA, PAGES).unwrap();
    rig.pages[5] = None;
    rig.check();
    rig.write(5, 100).unwrap();
    assert_eq!(rig.blocks_of(5).len(), 1);
}

#[derive(Debug, Clone)]
enum Step {
    Write {
        no: u32,
        noise: usize,
    },
    /// A full device takes half of the write, or nothing.
    Refused {
        no: u32,
        noise: usize,
        takes_half: bool,
    },
    PunchFails {
        no: u32,
        noise: usize,
    },
    Trim(Trim),
    Restart,
    Resize(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let page = || (0..PAGES, prop_oneof![0_usize..9000, Just(0), Just(20_000)]);
    prop_oneof![
        6 => page().prop_map(|(no, noise)| Step::Write { no, noise }),
        2 => (page(), any::<bool>()).prop_map(|((no, noise), takes_half)| Step::Refused { no, noise, takes_half }),
        1 => page().prop_map(|(no, noise)| Step::PunchFails { no, noise }),
        1 => prop_oneof![Just(Trim::Auto), Just(Trim::Off), Just(Trim::On)].prop_map(Step::Trim),
        1 => Just(Step::Restart),
        1 => (1..=PAGES).prop_map(Step::Resize),
    ]
}

fn take(rig: &mut Rig, step: &Step) {
    let pages = rig.layout.pages(SpaceId::DATA);
    match *step {
        Step::Write { no, noise } if no < pages => {
            rig.write(no, noise).unwrap();
            if !rig.trim.is_off() {
                let image = rig.pages[no as usize].as_ref();
                let needs = image.map(|image| rig.blocks_needed(image));
                assert_eq!(needs, Some(rig.blocks_of(no).len()), "page {no}");
            }
        }
        Step::Refused { no, noise, takes_half } if no < pages => {
            let fault = if takes_half { Fault::HalfFull } else { Fault::Fails(ErrorKind::NoSpace) };
            rig.arm(Operation::Write, fault);
            rig.write(no, noise).unwrap_err();
            rig.device.disarm();
        }
        Step::PunchFails { no, noise } if no < pages => {
            rig.arm(Operation::Punch, Fault::Fails(ErrorKind::NoSpace));
            rig.write(no, noise).unwrap();
            rig.device.disarm();
        }
        Step::Trim(trim) => rig.trim.set(trim),
        Step::Restart => rig.restart(),
        Step::Resize(pages) => {
            rig.layout.resize(SpaceId::DATA, pages).unwrap();
            rig.pages.iter_mut().skip(pages as usize).for_each(|page| *page = None);
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_block_behind_what_is_stored_is_a_hole_and_none_within(
        steps in proptest::collection::vec(step(), 1..40),
        of in prop_oneof![Just((4096, 512)), Just((8192, 512)), Just((8192, 4096)), Just((65536, 512)), Just((16384, 4096))],
        protection in prop_oneof![Just(NONE), Just(TWICE)],
    ) {
        let mut rig = Rig::new(of.0, of.1, protection);
        for step in &steps {
            take(&mut rig, step);
            rig.check();
        }
    }
}
