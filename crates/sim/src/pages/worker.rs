//! One run of the workload on raw pages, step by step.
//!
//! Invariants
//! 1. A commit is added to the model when its mini-transaction ends. So the model has the commit order.

use varve_pager::{Lsn, PageId, Pager, SpaceId};

use super::known::{Known, Model};
use super::{Done, KIND, Load, PAGES_MAX, page_id, text, word_offset};
use crate::relief::Steps;
use crate::search::{WRONG, Workbench};

/// The number of pages whose allocation one descriptor page describes, with pages of 4 KiB.
const GROUP_PAGES: u32 = 8192;
/// The number of pages in the load [`Load::Hoarding`].
const HOARD: usize = 56;

/// One run of the workload.
pub(super) struct Worker<'a> {
    pager: &'a Pager,
    bench: &'a mut Workbench,
    pub(super) model: Model,
    /// Entries of the root page; 0 means none.
    pages: Vec<u64>,
    owner: u32,
    load: Load,
    /// The number of words of a page.
    words: u64,
    /// Whether pages are sometimes filled with random bytes, which cannot be compressed.
    pub(super) fills: bool,
    /// Whether free space is returned to the device. Then there is more free space, and extents become free
    /// page by page.
    pub(super) trims: bool,
    /// Whether the pager may be shut down at the end of the workload. Otherwise the worker that continues
    /// with another part shuts it down.
    pub(super) is_last: bool,
    /// Whether all pages of [`Load::Hoarding`] were created.
    hoards: bool,
    /// Pages of the segment that will be dropped as a whole, and its owner.
    burst: Option<(u32, Vec<usize>)>,
    /// The last commit and the end of its log.
    last: Option<(usize, Lsn)>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(pager: &'a Pager, bench: &'a mut Workbench, known: Known, words: u64) -> Worker<'a> {
        let Known { model, mut pages, owner, load, burst } = known;
        pages.resize(PAGES_MAX, 0);
        let load = load.unwrap_or(Load::Even);
        Worker {
            pager,
            bench,
            model,
            pages,
            owner,
            load,
            words,
            fills: false,
            trims: false,
            is_last: true,
            hoards: false,
            burst,
            last: None,
        }
    }

    pub(super) fn known(self) -> Known {
        let Worker { model, pages, owner, load, burst, .. } = self;
        Known { model, pages, owner, load: Some(load), burst }
    }

    fn one(&mut self) -> Done {
        if self.fills && self.bench.rng.one_in(10) {
            return self.fill();
        }
        if self.pager.flash_design().is_some() && self.bench.rng.one_in(200) {
            return self.resize_cache();
        }
        if self.trims && self.load != Load::Hoarding && self.bench.rng.one_in(120) {
            return if self.bench.rng.one_in(4) { self.swell() } else { self.room_for_later() };
        }
        match self.load {
            Load::Fleeting if self.burst.is_none() && self.bench.rng.one_in(8) => return self.fleet(),
            Load::Cleaning if self.bench.rng.one_in(6) => return self.clean(),
            Load::Hoarding => return self.hoard(),
            Load::Receding if self.bench.rng.one_in(400) => return self.recede(),
            Load::Receding if self.bench.rng.one_in(20) => return self.pager.checkpoint().map_err(text),
            _ => {}
        }
        match self.bench.rng.below(20) {
            0 => self.write_some(),
            1 if self.bench.rng.one_in(if self.load == Load::Cleaning { 20 } else { 3 }) => {
                self.pager.checkpoint().map_err(text)
            }
            2..=4 => self.acknowledge(),
            5 | 6 => self.allocate(self.owner).map(|_| ()),
            7 => self.free(),
            8 if self.bench.rng.one_in(8) => self.burst(),
            8 if self.bench.rng.one_in(40) => self.room_for_later(),
            _ => self.change(),
        }
    }

    /// Changes the size of the flash cache, or sets it to the size at the next start.
    fn resize_cache(&mut self) -> Done {
        let configured = self.pager.config().flash.as_ref().map_or(0, |flash| flash.settings.size_bytes);
        let bytes = match self.bench.rng.below(4) {
            0 => configured / 2,
            1 => configured * 3,
            _ => configured,
        };
        match self.pager.set_flash_size(bytes) {
            // The cache is unchanged.
            Err(full) if full.is_no_space() => Ok(()),
            done => done.map_err(text),
        }
    }

    /// Writes pages from the pool, and sometimes from persistent memory to the data files.
    fn write_some(&mut self) -> Done {
        let pages = 1 + self.bench.rng.below(20) as usize;
        self.pager.tick_write(pages).map_err(text)?;
        if pages.is_multiple_of(4) {
            self.pager.tick_nvm(pages).map_err(text)?;
        }
        Ok(())
    }

    pub(super) fn acknowledge(&mut self) -> Done {
        if let Some((number, lsn)) = self.last {
            self.pager.flush_log(lsn).map_err(text)?;
            self.bench.history.acknowledge(number);
            self.last = None;
        }
        Ok(())
    }

    /// Returns a random entry: of a listed page that is not in the burst, or an empty one.
    fn pick(&mut self, listed: bool) -> Option<usize> {
        let of_burst = |at: &usize| self.burst.as_ref().is_some_and(|(_, entries)| entries.contains(at));
        let fits = |at: &usize| (self.pages[*at] != 0) == listed && !of_burst(at);
        let fitting: Vec<usize> = (0..self.pages.len()).filter(fits).collect();
        (!fitting.is_empty()).then(|| fitting[self.bench.rng.below(fitting.len() as u64) as usize])
    }

    /// Makes a segment of several pages, or drops it as a whole.
    fn burst(&mut self) -> Done {
        match self.burst.take() {
            Some((owner, entries)) => self.drop_burst(owner, entries),
            None => {
                let pages = 1 + self.bench.rng.below(80);
                self.burst = Some(self.make_burst(pages)?);
                Ok(())
            }
        }
    }

    /// Makes and drops a segment, in one of two situations. In the first situation, some pages of the segment
    /// are dirty, and no other page has older changes. Just before a checkpoint, these pages no longer hold
    /// the redo position back, although nothing of the drop is durable yet. In the second situation, the
    /// whole segment is stable, and the log no longer has its changes. If a crash undoes the drop, the pages
    /// must still be where they were written.
    fn fleet(&mut self) -> Done {
        self.pager.tick_write(1000).map_err(text)?;
        let pages = 3 + self.bench.rng.below(6);
        let (owner, entries) = self.make_burst(pages)?;
        if self.bench.rng.one_in(2) {
            self.pager.tick_write(1000).map_err(text)?;
            self.pager.checkpoint().map_err(text)?;
            return self.drop_burst(owner, entries);
        }
        self.pager.tick_write(2 + self.bench.rng.below(4) as usize).map_err(text)?;
        self.drop_burst(owner, entries)?;
        if self.bench.rng.one_in(4) { Ok(()) } else { self.pager.checkpoint().map_err(text) }
    }

    /// Makes the file so long that its allocation needs one more descriptor page. Checkpoints shorten the
    /// file again when the log has advanced.
    fn recede(&mut self) -> Done {
        self.pager.reserve(SpaceId::DATA, GROUP_PAGES).map_err(text)?;
        self.pager.checkpoint().map_err(text)
    }

    /// Lists pages until there are many, and changes them. Sometimes all are written. Crashes are tried when
    /// all pages exist.
    fn hoard(&mut self) -> Done {
        let listed = self.pages.iter().filter(|number| **number != 0).count();
        if listed == HOARD && !self.hoards {
            self.hoards = true;
            self.bench.history.crash_from_here();
        }
        match self.bench.rng.below(400) {
            0 => self.pager.tick_write(1000).map(|_| ()).map_err(text),
            1 => self.pager.checkpoint().map_err(text),
            2..40 => self.acknowledge(),
            40..360 if listed < HOARD => self.allocate(self.owner).map(|_| ()),
            40..44 => self.free(),
            _ => self.change(),
        }
    }

    /// Writes many pages or few.
    fn clean(&mut self) -> Done {
        let pages = if self.bench.rng.one_in(4) { 40 } else { 1 + self.bench.rng.below(6) };
        self.pager.tick_write(pages as usize).map(|_| ()).map_err(text)
    }

    fn make_burst(&mut self, pages: u64) -> Result<(u32, Vec<usize>), String> {
        let owner = self.pager.create_segment(SpaceId::DATA).map_err(text)?;
        let mut entries = Vec::new();
        for _ in 0..pages {
            entries.extend(self.allocate(owner)?);
        }
        Ok((owner, entries))
    }

    fn drop_burst(&mut self, owner: u32, entries: Vec<usize>) -> Done {
        if self.trims && self.bench.rng.one_in(2) {
            return self.dissolve(entries);
        }
        let mut mtr = self.pager.begin().map_err(text)?;
        let root = mtr.x(PageId::ROOT).map_err(text)?;
        for entry in entries {
            let number = std::mem::take(&mut self.pages[entry]);
            mtr.write(root, word_offset(entry as u64), &[0; 8]);
            self.model.clear(number);
            self.model.set(0, entry as u64, 0);
        }
        self.commit(mtr)?;
        self.pager.drop_segment(SpaceId::DATA, owner).map_err(text)
    }

    /// Frees the pages of a burst one by one, without a log record for the segment. It changes them first, so
    /// that redo reads them.
    fn dissolve(&mut self, entries: Vec<usize>) -> Done {
        for entry in entries {
            if self.bench.rng.one_in(4) {
                self.change_page(self.pages[entry])?;
            }
            self.free_entry(entry)?;
        }
        Ok(())
    }

    /// Makes the file longer than needed. Checkpoints shorten it again.
    fn room_for_later(&mut self) -> Done {
        let pages = 800 + self.bench.rng.below(800) as u32;
        self.pager.reserve(SpaceId::DATA, pages).map_err(text)?;
        self.pager.checkpoint().map_err(text)
    }

    /// Allocates many pages that are in no list, and others after them. Then frees them, with their segment
    /// or one by one.
    fn swell(&mut self) -> Done {
        let owner = self.pager.create_segment(SpaceId::DATA).map_err(text)?;
        let mut ids = Vec::new();
        for _ in 0..300 + self.bench.rng.below(200) {
            self.pager.reserve(SpaceId::DATA, 1).map_err(text)?;
            let mut mtr = self.pager.begin().map_err(text)?;
            let id = mtr.allocate(SpaceId::DATA, owner, None).map_err(text)?;
            mtr.create(id, KIND, owner).map_err(text)?;
            mtr.commit();
            ids.push(id);
        }
        self.pager.tick_write(1000).map_err(text)?;
        let changes = [20, 200][self.bench.rng.below(2) as usize];
        for _ in 0..changes {
            self.change()?;
        }
        self.pager.tick_write(1000).map_err(text)?;
        if self.bench.rng.one_in(2) {
            self.pager.drop_segment(SpaceId::DATA, owner).map_err(text)?;
        } else {
            self.shrink(&ids)?;
        }
        self.pager.checkpoint().map_err(text)?;
        self.pager.tick_write(1000).map_err(text)?;
        self.pager.checkpoint().map_err(text)
    }

    /// Changes some of these pages, which are not listed, and frees all of them one by one.
    fn shrink(&mut self, ids: &[PageId]) -> Done {
        self.pager.checkpoint().map_err(text)?;
        for id in ids {
            if self.bench.rng.one_in(4) {
                self.pager.reserve(SpaceId::DATA, 1).map_err(text)?;
                let mut mtr = self.pager.begin().map_err(text)?;
                let page = mtr.x(*id).map_err(text)?;
                mtr.write(page, word_offset(0), &[1; 8]);
                mtr.commit();
            }
        }
        self.pager.tick_write(1000).map_err(text)?;
        for some in ids.chunks(8) {
            let mut mtr = self.pager.begin().map_err(text)?;
            some.iter().try_for_each(|id| mtr.free(*id)).map_err(text)?;
            mtr.commit();
        }
        Ok(())
    }

    /// Lists a new page with one word in it. Returns its entry.
    fn allocate(&mut self, owner: u32) -> Result<Option<usize>, String> {
        let Some(entry) = self.pick(false) else { return Ok(None) };
        let value = self.bench.rng.draw() | 1;
        self.pager.reserve(SpaceId::DATA, 1).map_err(text)?;
        let mut mtr = self.pager.begin().map_err(text)?;
        let root = mtr.x(PageId::ROOT).map_err(text)?;
        let id = mtr.allocate(SpaceId::DATA, owner, None).map_err(text)?;
        let page = mtr.create(id, KIND, owner).map_err(text)?;
        let number = u64::from(id.no().0);
        mtr.write(page, word_offset(0), &value.to_le_bytes());
        mtr.write(root, word_offset(entry as u64), &number.to_le_bytes());
        self.pages[entry] = number;
        self.model.set(number, 0, value);
        self.model.set(0, entry as u64, number);
        self.commit(mtr).map(|()| Some(entry))
    }

    /// Removes a page from the list, and frees it.
    fn free(&mut self) -> Done {
        let Some(entry) = self.pick(true) else { return Ok(()) };
        self.free_entry(entry)
    }

    fn free_entry(&mut self, entry: usize) -> Done {
        let number = self.pages[entry];
        let mut mtr = self.pager.begin().map_err(text)?;
        let root = mtr.x(PageId::ROOT).map_err(text)?;
        mtr.free(page_id(number)).map_err(text)?;
        self.pages[entry] = 0;
        mtr.write(root, word_offset(entry as u64), &[0; 8]);
        self.model.clear(number);
        self.model.set(0, entry as u64, 0);
        self.commit(mtr)
    }

    /// Changes words of one to three pages.
    fn change(&mut self) -> Done {
        let mut pages = Vec::new();
        for _ in 0..1 + self.bench.rng.below(3) {
            pages.extend(self.pick(true).map(|entry| self.pages[entry]));
        }
        pages.sort_unstable();
        pages.dedup();
        let mut mtr = self.pager.begin().map_err(text)?;
        let mut held = Vec::new();
        for number in &pages {
            held.push((*number, mtr.x(page_id(*number)).map_err(text)?));
        }
        for (number, page) in held {
            for _ in 0..1 + self.bench.rng.below(4) {
                let (word, value) = (self.bench.rng.below(self.words), self.bench.rng.draw());
                mtr.write(page, word_offset(word), &value.to_le_bytes());
                self.model.set(number, word, value);
            }
        }
        self.commit(mtr)
    }

    /// Changes a word of a page.
    fn change_page(&mut self, number: u64) -> Done {
        let (word, value) = (self.bench.rng.below(self.words), self.bench.rng.draw());
        let mut mtr = self.pager.begin().map_err(text)?;
        let page = mtr.x(page_id(number)).map_err(text)?;
        mtr.write(page, word_offset(word), &value.to_le_bytes());
        self.model.set(number, word, value);
        self.commit(mtr)
    }

    /// Fills a page, or the beginning of a page, with random bytes.
    fn fill(&mut self) -> Done {
        let Some(entry) = self.pick(true) else { return Ok(()) };
        let number = self.pages[entry];
        let words = if self.bench.rng.one_in(2) { self.words } else { 1 + self.bench.rng.below(self.words) };
        let values: Vec<u64> = (0..words).map(|_| self.bench.rng.draw()).collect();
        let mut mtr = self.pager.begin().map_err(text)?;
        let page = mtr.x(page_id(number)).map_err(text)?;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        mtr.write(page, word_offset(0), &bytes);
        (0..).zip(values).for_each(|(word, value)| self.model.set(number, word, value));
        self.commit(mtr)
    }

    fn commit(&mut self, mtr: varve_pager::Mtr<'_>) -> Done {
        let number = self.bench.history.begin(self.model.digest);
        let before = self.last.map_or(Lsn::ZERO, |(_, lsn)| lsn);
        self.last = Some((number, mtr.commit().max(before)));
        Ok(())
    }
}

impl Steps for Worker<'_> {
    fn bench(&mut self) -> &mut Workbench {
        self.bench
    }

    fn step(&mut self) -> Done {
        self.one()
    }

    fn is_sure(&self) -> bool {
        true
    }

    fn settle(&mut self) -> Done {
        self.acknowledge()
    }

    fn finish(&mut self, shuts_down: bool) -> Done {
        self.acknowledge()?;
        self.pager.checkpoint().map_err(text)?;
        if let Some(damage) = self.pager.check().map_err(text)?.damages.first() {
            return Err(format!("{WRONG}: the check finds {damage}"));
        }
        if shuts_down && self.is_last { self.pager.shutdown().map_err(text) } else { Ok(()) }
    }
}
