//! The models below the tests of the NVM page buffer. They are a region in memory, a map in place of the data
//! files, which can refuse pages or wait, and a log that is durable up to the LSN that the test sets.
//!
//! This module does not know pool, files, or what a test checks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use parking_lot::{Condvar, Mutex};
use varve_device::{
    AlignedBuf, DeviceError, Directory, ErrorKind, MemoryDirectory, Operation, Purpose, Region, RegionPart,
    Space,
};

use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageNo, PageRange, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::page;
use crate::level::{Cause, Got, Level, LevelReport, Need, Run, Step, Tier, Want};
use crate::log::WriteAhead;
use crate::nvm::NvmFlush;
use crate::nvm::area::{PageArea, SlotHeader};
use crate::nvm::buffer::NvmBuffer;

pub(in crate::nvm) const PAGE_BYTES: usize = 4096;
/// Offset of the pages in a region with at most 64 slots.
pub(in crate::nvm) const PAGES_AT: u64 = 4096;

/// A gate at which threads wait while it is closed.
#[derive(Default)]
pub(in crate::nvm) struct Gate {
    /// Whether the gate is closed, and how many threads wait at it.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    pub(in crate::nvm) fn close(&self) {
        self.state.lock().0 = true;
    }

    pub(in crate::nvm) fn open(&self) {
        self.state.lock().0 = false;
        self.changed.notify_all();
    }

    pub(in crate::nvm) fn pass(&self) {
        let mut state = self.state.lock();
        state.1 += 1;
        self.changed.notify_all();
        while state.0 {
            self.changed.wait(&mut state);
        }
        state.1 -= 1;
    }

    /// Waits until a thread is at the gate.
    pub(in crate::nvm) fn await_somebody(&self) {
        let mut state = self.state.lock();
        while state.1 == 0 {
            self.changed.wait(&mut state);
        }
    }
}

/// A model of the data files: pages by their number.
#[derive(Default)]
pub(in crate::nvm) struct TestHome {
    pub(in crate::nvm) pages: Mutex<BTreeMap<PageId, Vec<u8>>>,
    pub(in crate::nvm) batches: Mutex<Vec<Vec<PageId>>>,
    pub(in crate::nvm) is_full: AtomicBool,
    /// Pages for which there is no space.
    pub(in crate::nvm) roomless: Mutex<BTreeSet<PageId>>,
    pub(in crate::nvm) gate: Gate,
}

impl TestHome {
    fn has_room(&self, batch: &[Image]) -> bool {
        let roomless = self.roomless.lock();
        !self.is_full.load(SeqCst) && !batch.iter().any(|image| roomless.contains(&image.id()))
    }
}

impl Level for TestHome {
    fn read(&self, runs: &mut [Run<'_, '_>], _why: Access) -> Result<()> {
        for run in runs {
            for (at, want) in (0_u32..).zip(run.want.iter_mut()) {
                let (id, Want::Page { frame, got }) = (run.first.plus(at), want) else { continue };
                let pages = self.pages.lock();
                let page = pages.get(&id).ok_or(PagerError::NoSuchPage { id, pages: 0 })?;
                frame.copy_from_slice(page);
                *got = Some(Got { from: Tier::Home, lsn: page::page_lsn(page), taken: false });
            }
        }
        Ok(())
    }
    fn put(&self, batch: &[Image], _cause: Cause, need: Need) -> Result<()> {
        assert_eq!(need, Need::Stable);
        self.gate.pass();
        if !self.has_room(batch) {
            return Err(DeviceError::new("data", Operation::Write, ErrorKind::NoSpace).into());
        }
        let mut pages = self.pages.lock();
        for image in batch {
            let before = pages.insert(image.id(), image.bytes().to_vec());
            assert!(before.is_none_or(|old| page::page_lsn(&old) <= image.lsn()), "home goes back");
        }
        self.batches.lock().push(batch.iter().map(Image::id).collect());
        Ok(())
    }
    fn offer(&self, _id: PageId, _why: Access, _copy: &mut dyn FnMut() -> Image) {}
    fn changed(&self, _id: PageId) {}
    fn discard(&self, _ids: PageRange, _after: Lsn) -> Result<()> {
        Ok(())
    }
    fn checkpoint(&self, _step: Step) -> Result<()> {
        Ok(())
    }
    fn drain(&self) -> Result<()> {
        Ok(())
    }
    fn report(&self) -> Vec<LevelReport> {
        Vec::new()
    }
}

/// An action of a test in the middle of a call.
type Meanwhile = Box<dyn FnOnce() + Send>;

/// A log that is durable up to the LSN that the test sets.
#[derive(Default)]
pub(in crate::nvm) struct TestLog {
    pub(in crate::nvm) durable: AtomicU64,
    /// Runs at the next call of `durable_lsn`.
    pub(in crate::nvm) meanwhile: Mutex<Option<Meanwhile>>,
}

impl WriteAhead for TestLog {
    fn durable_lsn(&self) -> Lsn {
        let meanwhile = self.meanwhile.lock().take();
        meanwhile.into_iter().for_each(|act| act());
        Lsn::new(self.durable.load(SeqCst))
    }
    fn flush(&self, upto: Lsn) -> Result<()> {
        self.durable.fetch_max(upto.get(), SeqCst);
        Ok(())
    }
    fn note_written(&self, _images: &[&Image]) {}
    fn check(&self) -> Result<()> {
        Ok(())
    }
    fn stop(&self, _cause: &PagerError) {}
}

/// The parts from which a level is made.
pub(in crate::nvm) struct Rig {
    pub(in crate::nvm) region: Arc<dyn Region>,
    pub(in crate::nvm) home: Arc<TestHome>,
    pub(in crate::nvm) log: Arc<TestLog>,
    pub(in crate::nvm) slots: u32,
}

impl Rig {
    pub(in crate::nvm) fn over(directory: &dyn Directory, slots: u32) -> Rig {
        let len_bytes = pages_at(slots) + u64::from(slots) * PAGE_BYTES as u64;
        let region = directory.map("nvm", len_bytes).unwrap();
        let log = TestLog { durable: AtomicU64::new(1000), ..TestLog::default() };
        Rig { region, home: Arc::default(), log: Arc::new(log), slots }
    }

    pub(in crate::nvm) fn new(slots: u32) -> Rig {
        Rig::over(&*MemoryDirectory::new(), slots)
    }

    pub(in crate::nvm) fn area(&self) -> PageArea {
        let part = |range, why| {
            RegionPart::new(self.region.clone(), range, Space::Nvm, why, Arc::default()) as Arc<dyn Region>
        };
        let pages = pages_at(self.slots);
        PageArea {
            headers: part(0..pages, Purpose::NvmMeta),
            pages: part(pages..self.region.len_bytes(), Purpose::NvmPage),
            region: 77,
            page_size: PAGE_BYTES as u32,
            slots: self.slots,
            location: "nvm".into(),
        }
    }

    /// Opens the level as a start does.
    pub(in crate::nvm) fn try_open(&self) -> Result<NvmBuffer> {
        let (home, log) = (self.home.clone(), self.log.clone());
        NvmBuffer::open(self.area(), NvmFlush::DEFAULT, home, Arc::default(), log, Arc::default())
    }

    pub(in crate::nvm) fn open(&self) -> NvmBuffer {
        self.try_open().unwrap()
    }

    /// Publishes an image in a slot directly, without the level.
    pub(in crate::nvm) fn publish(&self, slot: u32, sequence: u64, image: &Image) {
        let (area, header) = (self.area(), SlotHeader::of(image, sequence));
        area.begin_fill(slot, &header, image.bytes());
        area.begin_publish(slot, &header);
        area.fence();
    }
}

fn pages_at(slots: u32) -> u64 {
    (u64::from(slots) * 64).next_multiple_of(PAGES_AT)
}

pub(in crate::nvm) fn id(no: u32) -> PageId {
    PageId::new(SpaceId::DATA, PageNo(no))
}

pub(in crate::nvm) fn range(first: u32, count: u32) -> PageRange {
    PageRange { first: id(first), count }
}

pub(in crate::nvm) fn image(no: u32, lsn: u64) -> Image {
    let mut bytes = vec![lsn as u8; PAGE_BYTES];
    page::set_page_lsn(&mut bytes, Lsn::new(lsn));
    page::format(&mut bytes, id(no), 16, 0);
    bytes[100..].fill(lsn as u8);
    Image::of(id(no), &bytes, Access::Random)
}

pub(in crate::nvm) fn put(level: &NvmBuffer, pages: &[u32], lsn: u64) -> Result<()> {
    put_for(level, pages, lsn, Cause::Evict)
}

pub(in crate::nvm) fn put_for(level: &NvmBuffer, pages: &[u32], lsn: u64, cause: Cause) -> Result<()> {
    let images: Vec<Image> = pages.iter().map(|no| image(*no, lsn)).collect();
    level.put(&images, cause, Need::Held)
}

/// Reads a page. Returns its LSN, and the level that it came from.
pub(in crate::nvm) fn read(level: &NvmBuffer, no: u32) -> Result<(u64, Tier)> {
    let mut frame = AlignedBuf::new(PAGE_BYTES);
    let mut want = [Want::Page { frame: &mut frame, got: None }];
    level.read(&mut [Run { first: id(no), want: &mut want }], Access::Random)?;
    let [Want::Page { frame, got }] = want else { unreachable!() };
    let got = got.unwrap();
    page::verify(frame, id(no)).unwrap();
    assert_eq!(page::page_lsn(frame), got.lsn);
    Ok((got.lsn.get(), got.from))
}

pub(in crate::nvm) fn counter(level: &NvmBuffer, name: &str) -> u64 {
    level.report()[0].counters.iter().find(|(found, _)| *found == name).unwrap().1
}

/// Returns the findings of a check.
pub(in crate::nvm) fn damages(level: &NvmBuffer) -> Vec<String> {
    let mut damages = Vec::new();
    level.check(&mut damages).unwrap();
    damages
}
