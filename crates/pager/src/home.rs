//! Home: the lowest level, where every page has its place in the file of its space.
//!
//! Invariants
//! 1. Page `n` of a space lies at byte `n * page_size` of the space's file.
//! 2. A page is handed up only if its checksum and identity are right and its LSN is not beyond the log.
//! 3. A put returns only when the pages are stable: written as the protection demands and flushed; then the ledger is
//!    told. Pages of the temporary space are only written.
//! 4. Two puts of one page never overlap, and an older image never lands after a newer one that was in flight.
//!
//! What it does not know: frames, what is in a page, how the protection works.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex};
use varve_device::{ReadOp, planted};

use crate::error::{PagerError, Result};
use crate::files::SpaceFiles;
use crate::ids::{Access, PageId, PageRange};
use crate::ledger::Ledger;
use crate::level::{Cause, Got, Image, Level, LevelReport, Need, Run, Step, Tier, Want};
use crate::lsn::Lsn;
use crate::page::{self, PageDamage};
use crate::pool::WriteAhead;
use crate::protection::Protection;

/// The level of the space files.
pub(crate) struct Home {
    files: Arc<SpaceFiles>,
    protection: Box<dyn Protection>,
    ledger: Arc<Ledger>,
    log: Arc<dyn WriteAhead>,
    flights: Flights,
    /// At a checkpoint: pages with a held copy that nobody needs any more, once the log is durable.
    unneeded: Mutex<Vec<(PageId, u32)>>,
    pages_read: AtomicU64,
    pages_written: AtomicU64,
}

impl Home {
    pub(crate) fn new(
        files: Arc<SpaceFiles>,
        protection: Box<dyn Protection>,
        ledger: Arc<Ledger>,
        log: Arc<dyn WriteAhead>,
    ) -> Home {
        Home {
            files,
            protection,
            ledger,
            log,
            flights: Flights::default(),
            unneeded: Mutex::default(),
            pages_read: AtomicU64::new(0),
            pages_written: AtomicU64::new(0),
        }
    }

    fn read_one(&self, id: PageId, frame: &mut [u8]) -> Result<()> {
        let file = self.files.of(id)?;
        file.file().read_at(file.offset(id)?, frame, file.purpose())?;
        Ok(())
    }

    fn read_many(&self, wants: &mut [(PageId, &mut Want<'_>)]) -> Result<()> {
        for group in wants.chunk_by_mut(|a, b| a.0.space() == b.0.space()) {
            let file = self.files.of(group[0].0)?;
            let mut ops = Vec::with_capacity(group.len());
            for (id, want) in group {
                if let Want::Page { frame, .. } = want {
                    ops.push(ReadOp { offset: file.offset(*id)?, buf: frame, why: file.purpose() });
                }
            }
            file.file().read_batch(&mut ops)?;
        }
        Ok(())
    }

    fn accept(&self, id: PageId, want: &mut Want<'_>) -> Result<()> {
        let Want::Page { frame, got } = want else { return Ok(()) };
        page::verify(frame, id).map_err(|damage| PagerError::DamagedPage { id, damage })?;
        let lsn = page::page_lsn(frame);
        let durable = self.log.durable_lsn();
        if id.space().is_logged() && lsn > durable {
            return Err(PagerError::DamagedPage { id, damage: PageDamage::BeyondLog { lsn, durable } });
        }
        *got = Some(Got { from: Tier::Home, lsn, taken: false });
        self.pages_read.fetch_add(1, Relaxed);
        Ok(())
    }

    fn put_logged(&self, images: &[&Image], cause: Cause) -> Result<()> {
        let durable = self.log.durable_lsn();
        for image in images {
            let unchecked = planted("pages: written before their log");
            assert!(
                unchecked || image.lsn() <= durable,
                "page {} at {} goes out before its log",
                image.id(),
                image.lsn()
            );
        }
        let landing = self.flights.take_off(images);
        let result = self.protection.write(&landing, cause);
        if result.is_ok() {
            self.log.note_written(&landing);
            landing.iter().for_each(|image| self.ledger.stable(image.id(), image.lsn()));
        }
        self.flights.land(&landing);
        result
    }
}

impl Level for Home {
    fn read(&self, runs: &mut [Run<'_, '_>], _why: Access) -> Result<()> {
        if let [Run { first, want }] = runs
            && let [want @ Want::Page { .. }] = want
        {
            if let Want::Page { frame, .. } = want {
                self.read_one(*first, frame)?;
            }
            return self.accept(*first, want);
        }
        let mut wants: Vec<(PageId, &mut Want<'_>)> = Vec::new();
        for run in runs.iter_mut() {
            let ids = (0_u32..).map(|at| run.first.plus(at));
            wants.extend(ids.zip(run.want.iter_mut()).filter(|(_, want)| matches!(want, Want::Page { .. })));
        }
        self.read_many(&mut wants)?;
        wants.iter_mut().try_for_each(|(id, want)| self.accept(*id, want))
    }

    fn put(&self, batch: &[Image], cause: Cause, _need: Need) -> Result<()> {
        let (logged, temporary): (Vec<&Image>, Vec<&Image>) =
            batch.iter().partition(|image| image.id().space().is_logged());
        if !temporary.is_empty() {
            self.files.write(&temporary)?;
        }
        if !logged.is_empty() {
            self.put_logged(&logged, cause)?;
        }
        self.pages_written.fetch_add(batch.len() as u64, Relaxed);
        Ok(())
    }

    fn offer(&self, _id: PageId, _why: Access, _copy: &mut dyn FnMut() -> Image) {}

    fn changed(&self, _id: PageId) {}

    fn discard(&self, _ids: PageRange, _after: Lsn) -> Result<()> {
        Ok(())
    }

    /// A half-written page that was discarded will never be put again: its copy goes once the discard is durable.
    fn checkpoint(&self, step: Step) -> Result<()> {
        let mut unneeded = self.unneeded.lock();
        match step {
            Step::Begin => {
                *unneeded = self.protection.held();
                unneeded.retain(|(id, _)| !self.ledger.has(*id));
            }
            Step::BeforeEnd => {}
            Step::End => {
                // One that was made anew meanwhile may be half written again, in the same slot.
                unneeded.retain(|(id, _)| !self.ledger.has(*id));
                self.protection.forget(&std::mem::take(&mut *unneeded));
            }
        }
        Ok(())
    }

    fn drain(&self) -> Result<()> {
        self.files.flush_all()
    }

    fn report(&self) -> Vec<LevelReport> {
        let mut counters = vec![
            ("pages_read", self.pages_read.load(Relaxed)),
            ("pages_written", self.pages_written.load(Relaxed)),
        ];
        counters.extend(self.protection.counters());
        vec![LevelReport { name: "home", counters }]
    }
}

/// Pages whose write is in flight, with the LSN of the newest image asked for.
#[derive(Default)]
struct Flights {
    table: Mutex<HashMap<PageId, Lsn>>,
    landed: Condvar,
}

impl Flights {
    /// Enters the images as soon as no other write of their pages is in flight. Leaves out those that a newer image
    /// overtook meanwhile; duplicates within the batch are a programmer's error.
    fn take_off<'i>(&self, images: &[&'i Image]) -> Vec<&'i Image> {
        let mut table = self.table.lock();
        let mut overtaken: Vec<PageId> = Vec::new();
        while let Some(lsn) = images.iter().find_map(|image| table.get(&image.id()).map(|lsn| (*image, *lsn)))
        {
            if lsn.1 >= lsn.0.lsn() {
                overtaken.push(lsn.0.id());
            }
            self.landed.wait(&mut table);
        }
        let landing: Vec<&Image> =
            images.iter().copied().filter(|image| !overtaken.contains(&image.id())).collect();
        for image in &landing {
            let before = table.insert(image.id(), image.lsn());
            assert!(before.is_none(), "page {} is twice in one batch", image.id());
        }
        landing
    }

    fn land(&self, images: &[&Image]) {
        let mut table = self.table.lock();
        images.iter().for_each(|image| {
            table.remove(&image.id());
        });
        drop(table);
        self.landed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(no: u32, lsn: u64) -> Image {
        let id = PageId::new(crate::SpaceId::DATA, crate::PageNo(no));
        let mut bytes = vec![0; 4096];
        page::format(&mut bytes, id, 16, 0);
        page::set_page_lsn(&mut bytes, Lsn::new(lsn));
        Image::of(id, &bytes, Access::Random)
    }

    #[test]
    fn an_older_image_waits_and_is_left_out() {
        let flights = Flights::default();
        let (old, new, other) = (image(7, 10), image(7, 20), image(8, 5));
        let flying = flights.take_off(&[&new]);
        std::thread::scope(|scope| {
            let late =
                scope.spawn(|| flights.take_off(&[&old, &other]).iter().map(|i| i.id()).collect::<Vec<_>>());
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!late.is_finished(), "must wait for the write in flight");
            flights.land(&flying);
            assert_eq!(late.join().unwrap(), [other.id()]);
        });
    }
}
