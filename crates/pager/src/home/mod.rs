//! The data files are the lowest level of the page hierarchy. Names in the code call this level *home*. Each
//! space (a set of pages) has one file. The layout of the space says where in the file a page is stored.
//!
//! Invariants
//! 1. A page that was read is returned only if its checksum and its identity are right, and its LSN is not
//!    beyond the end of the log.
//! 2. A page is written only after the log is durable up to the page's LSN. An assertion checks this.
//! 3. Two writes of one page never overlap. If a newer image of a page is being written, no older image of
//!    this page is written after it.
//!
//! This module does not know frames, what is in a page, or where in a file pages are stored (`layout.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use varve_device::planted;

use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageNo, PageRange, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::page::{self, PageDamage};
use crate::home::flights::Flights;
use crate::home::layout::Layout;
use crate::home::layouts::{LayoutInUse, Layouts};
use crate::level::{Cause, DiscardHold, Got, Level, LevelReport, Need, Run, Step, Tier, Want, summed};
use crate::log::WriteAhead;

pub(crate) mod compression;
pub(crate) mod files;
pub(crate) mod flights;
pub(crate) mod in_place;
pub(crate) mod kind;
pub(crate) mod layout;
pub(crate) mod layouts;
pub(crate) mod pace;
pub(crate) mod packed;
pub(crate) mod protection;
pub(crate) mod punch;
pub(crate) mod trim;

/// The lowest level: the data files.
pub(crate) struct Home {
    layouts: Arc<Layouts>,
    log: Arc<dyn WriteAhead>,
    flights: Flights,
    pages_read: AtomicU64,
    pages_written: AtomicU64,
}

impl Home {
    pub(crate) fn new(layouts: Arc<Layouts>, log: Arc<dyn WriteAhead>) -> Home {
        Home {
            layouts,
            log,
            flights: Flights::default(),
            pages_read: AtomicU64::new(0),
            pages_written: AtomicU64::new(0),
        }
    }

    fn accept(&self, id: PageId, want: &mut Want<'_>) -> Result<()> {
        let Want::Page { frame, got } = want else { return Ok(()) };
        let lsn = page::page_lsn(frame);
        let durable = self.log.durable_lsn();
        if id.space().is_logged() && lsn > durable {
            return Err(PagerError::DamagedPage { id, damage: PageDamage::BeyondLog { lsn, durable } });
        }
        *got = Some(Got { from: Tier::Home, lsn, taken: false });
        self.pages_read.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Calls `ask` for every layout, even if the device refused space to one of them. The error is returned
    /// after all calls.
    fn all(&self, ask: impl Fn(&dyn Layout) -> Result<()>) -> Result<()> {
        summed(self.layouts.each().map(|layout| ask(&*layout).map(|()| 0))).map(drop)
    }

    fn put_logged(&self, images: &[&Image], cause: Cause, need: Need) -> Result<()> {
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
        let result = self.layouts.write(&landing, cause, need);
        self.flights.land(&landing);
        result
    }
}

impl Level for Home {
    fn read(&self, runs: &mut [Run<'_, '_>], _why: Access) -> Result<()> {
        if let [Run { first, want: [want @ Want::Page { .. }] }] = runs {
            self.layouts.of(*first)?.read(&mut [(*first, &mut *want)])?;
            return self.accept(*first, want);
        }
        let mut wants: Vec<(PageId, &mut Want<'_>)> = Vec::new();
        for run in runs.iter_mut() {
            let ids = (0_u32..).map(|at| run.first.plus(at));
            wants.extend(ids.zip(run.want.iter_mut()).filter(|(_, want)| matches!(want, Want::Page { .. })));
        }
        self.layouts.read(&mut wants)?;
        wants.iter_mut().try_for_each(|(id, want)| self.accept(*id, want))
    }

    fn put(&self, batch: &[Image], cause: Cause, need: Need) -> Result<()> {
        let (logged, temporary): (Vec<&Image>, Vec<&Image>) =
            batch.iter().partition(|image| image.id().space().is_logged());
        self.layouts.write(&temporary, cause, need)?;
        if !logged.is_empty() {
            self.put_logged(&logged, cause, need)?;
        }
        self.pages_written.fetch_add(batch.len() as u64, Relaxed);
        Ok(())
    }

    fn offer(&self, _id: PageId, _why: Access, _copy: &mut dyn FnMut() -> Image) {}

    fn changed(&self, _id: PageId) {}

    fn discard(&self, ids: PageRange, after: Lsn) -> Result<()> {
        match self.layouts.of(ids.first) {
            Ok(layout) => layout.discard(ids, after),
            // The tablespace was dropped with all its pages.
            Err(_) if ids.first.space().is_tablespace() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn discarding(&self, space: SpaceId) -> Option<DiscardHold<'_>> {
        match self.layouts.of(PageId::new(space, PageNo(0))).ok()? {
            LayoutInUse::Own(layout) => layout.discarding(),
            // Only a page map needs the hold, and a tablespace has none.
            LayoutInUse::OfTablespace(_) => None,
        }
    }

    fn settle(&self) -> Result<()> {
        self.all(|layout| layout.settle())
    }

    fn takes_together(&self, one: SpaceId, other: SpaceId) -> bool {
        self.layouts.is_one(one, other)
    }

    fn needs_log_from(&self) -> Option<Lsn> {
        self.layouts.each().filter_map(|layout| layout.needs_log_from()).min()
    }

    fn checkpoint(&self, step: Step) -> Result<()> {
        self.all(|layout| layout.checkpoint(step))
    }

    fn drain(&self) -> Result<()> {
        self.all(|layout| layout.drain())
    }

    fn check(&self, damages: &mut Vec<String>) -> Result<()> {
        self.layouts.each().try_for_each(|layout| layout.check(damages))
    }

    fn report(&self) -> Vec<LevelReport> {
        let counters = vec![
            ("pages_read", self.pages_read.load(Relaxed)),
            ("pages_written", self.pages_written.load(Relaxed)),
        ];
        let mut reports = vec![LevelReport { name: "home", part: None, counters }];
        let of = |layout: &dyn Layout| LevelReport {
            name: "home",
            part: Some(layout.part()),
            counters: layout.counters(),
        };
        reports.extend(self.layouts.each().map(|layout| of(&*layout)));
        reports
    }
}
