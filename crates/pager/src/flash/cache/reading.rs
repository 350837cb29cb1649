//! Reads of the flash cache: from slots on flash, from the queue of writes, and from the data files. A slot
//! is the space for one page on flash.
//!
//! Invariants
//! 1. A page read from a slot is valid if its identity, page LSN and checksum are those of the slot table.
//!    Otherwise the page is read from the data files. If the data files may lack the page, the cache is lost,
//!    and the read returns an error.
//! 2. A page that the data files may lack is never read from them, not even together with its neighbours. The
//!    reason is that another thread may be writing the page there.
//! 3. If the read of one page fails, the reads of all other pages are ended before the error is returned.
//!
//! This module does not know which code asks for a page.

use varve_device::{AlignedBuf, reached};

use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::page;
use crate::flash::cache::{FlashCache, add};
use crate::flash::table::{ReadFrom, Reading, Saw, SlotNo};
use crate::level::{Got, Run, Tier, Want};

use std::sync::atomic::Ordering::Relaxed;

/// A slot that is being read, with its entry in the slot table.
#[derive(Clone, Copy)]
pub(in crate::flash) struct Pin {
    id: PageId,
    partition: usize,
    slot: SlotNo,
    lsn: Lsn,
    /// The data files may lack the page. If it can't be read from the slot, only redo can make it, and only
    /// while redo still runs.
    is_dirty: bool,
    is_unverified: bool,
}

impl Pin {
    /// Checks that the read succeeded, and that the slot has the expected page with the expected LSN.
    fn look(&self, slot: &[u8], read: Result<()>) -> Result<()> {
        read?;
        if page::verify(slot, self.id).is_ok() && page::page_lsn(slot) == self.lsn {
            return Ok(());
        }
        Err(PagerError::Corrupt { what: format!("page {} is not in its slot on flash", self.id) })
    }
}

/// Where the cache has a page.
enum Source {
    Slot(Pin),
    /// The page is still in the queue of writes.
    Image(Image),
}

/// A cached page, and the request that it will fill.
type Cached<'r, 'a> = (Source, PageId, &'r mut Want<'a>);

fn is_wanted(want: &Want<'_>) -> bool {
    matches!(want, Want::Page { .. })
}

impl FlashCache {
    fn begin_read(&self, id: PageId) -> Option<Source> {
        if !id.space().is_logged() {
            return None;
        }
        loop {
            let mut table = self.table_of(id);
            let partition = table.partition;
            let found = table.begin_read(id, self.slots.tick())?;
            drop(table);
            match found {
                ReadFrom::Slot(reading) => {
                    let Reading { slot, lsn, is_dirty, is_unverified } = reading;
                    return Some(Source::Slot(Pin { id, partition, slot, lsn, is_dirty, is_unverified }));
                }
                ReadFrom::OnItsWay(slot) => {
                    if let Some(image) =
                        self.drive.writes.only_here(partition, slot).filter(|image| image.id() == id)
                    {
                        reached("flash: read on its way");
                        return Some(Source::Image(image));
                    }
                    // The page has just been written to its slot, or will be queued in a moment.
                    std::thread::yield_now();
                }
            }
        }
    }

    fn note(&self, read: &Result<()>) {
        match read {
            Ok(()) => self.note_success(),
            Err(cause) => self.note_error(cause),
        }
    }

    fn end_read(&self, pin: Pin, saw: Saw) {
        if self.table(pin.partition).end_read(pin.slot, saw) {
            reached("flash: a slot is not what it should be");
            let counters = &self.counters;
            add(if pin.is_unverified { &counters.restored_wrong } else { &counters.damaged });
        }
    }

    fn hit(&self, want: &mut Want<'_>, lsn: Lsn, is_dirty: bool) {
        add(&self.counters.hits);
        if is_dirty {
            add(&self.counters.dirty_hits);
        }
        if let Want::Page { got, .. } = want {
            *got = Some(Got { from: Tier::Flash, lsn, taken: false });
        }
    }

    fn hand_up(&self, image: &Image, want: &mut Want<'_>) {
        if let Want::Page { frame, .. } = want {
            frame.copy_from_slice(image.bytes());
        }
        self.hit(want, image.lsn(), true);
    }

    /// Ends the read of a slot, alone or together with others. Returns whether the page is in `want`. The
    /// result is `Err` if only redo can make the page.
    fn end(&self, pin: Pin, want: &mut Want<'_>, read: Result<()>, is_alone: bool) -> Result<bool> {
        let Want::Page { frame, .. } = want else { return Ok(false) };
        let is_needed = pin.is_dirty && !pin.is_unverified;
        // The error may come from another slot of the same request, unless the drive has been given up. For a
        // page that is nowhere else, one more try is worth it.
        let may_be_there = read.is_err() && !is_alone && !self.is_failing();
        let mut found = pin.look(frame, read);
        if found.is_err() && (is_needed || may_be_there) {
            let read = self.drive.store.read_one(self.slots.stored(pin.partition, pin.slot), frame);
            self.note(&read);
            found = pin.look(frame, read);
        }
        // A page that the data files lack stays in its slot. A page that redo has not reached yet is not
        // reported to redo.
        self.end_read(pin, if found.is_ok() { Saw::Page } else { Saw::Other });
        match found {
            Ok(()) => {
                self.hit(want, pin.lsn, pin.is_dirty);
                Ok(true)
            }
            Err(cause) if is_needed => self.lose_page(pin.id, cause).map(|()| false),
            Err(_) => Ok(false),
        }
    }

    /// Is called if a dirty slot can't be read. Returns `Ok` if the data files have its page by now.
    #[cold]
    fn lose_page(&self, id: PageId, cause: PagerError) -> Result<()> {
        self.transit.cleaning.wait_for_page(id);
        if self.table_of(id).is_dirty(id) {
            return Err(self.lose_for(cause));
        }
        reached("flash: a slot that can't be read is home meanwhile");
        Ok(())
    }

    /// Reads one page from its slot, unless the data files answer sooner. Returns whether there was a slot
    /// with a good page.
    fn read_one(&self, id: PageId, want: &mut Want<'_>, may_bypass: bool) -> Result<bool> {
        let pin = match self.begin_read(id) {
            None => return Ok(false),
            Some(Source::Image(image)) => {
                self.hand_up(&image, want);
                return Ok(true);
            }
            Some(Source::Slot(pin)) => pin,
        };
        let Want::Page { frame, .. } = want else { return Ok(false) };
        if may_bypass && !pin.is_dirty && self.drive.throttle.is_home_sooner() {
            self.end_read(pin, Saw::Nothing);
            add(&self.counters.bypassed);
            return Ok(false);
        }
        let stored = self.slots.stored(pin.partition, pin.slot);
        let read = self.drive.throttle.read_here(|| self.drive.store.read_one(stored, frame));
        self.note(&read);
        self.end(pin, want, read, true)
    }

    /// Reads pages from their slots, all together. Returns the pages that must be read elsewhere.
    fn read_cached<'r, 'a>(&self, cached: Vec<Cached<'r, 'a>>) -> Result<Vec<(PageId, &'r mut Want<'a>)>> {
        let mut pinned: Vec<(Pin, &'r mut Want<'a>)> = Vec::with_capacity(cached.len());
        for (source, _, want) in cached {
            match source {
                Source::Slot(pin) => pinned.push((pin, want)),
                Source::Image(image) => self.hand_up(&image, want),
            }
        }
        if pinned.is_empty() {
            return Ok(Vec::new());
        }
        let count = pinned.len();
        let slots = pinned.iter_mut().filter_map(|(pin, want)| match want {
            Want::Page { frame, .. } => Some((self.slots.stored(pin.partition, pin.slot), &mut **frame)),
            Want::Hole => None,
        });
        let in_flight = self.drive.throttle.begin(count);
        let read = self.drive.store.read(slots);
        drop(in_flight);
        self.note(&read);
        let (mut failed, mut lost) = (Vec::new(), None);
        for (pin, want) in pinned {
            match self.end(pin, want, read.clone(), false) {
                Ok(true) => {}
                Ok(false) => failed.push((pin.id, want)),
                // The reads of the other slots must be ended, too.
                Err(cause) => lost = Some(cause),
            }
        }
        lost.map_or(Ok(failed), Err)
    }

    /// Splits a run of pages into requests. Cached pages at both ends are read from flash. All pages from the
    /// first to the last that is not cached are read in one request from the data files. Cached pages between
    /// them are read from there, too, unless the data files may lack them (Do 2012, section 3.3.3:
    /// "trimming").
    fn split<'r, 'a>(
        &self,
        first: PageId,
        want: &'r mut [Want<'a>],
        cached: &mut Vec<Cached<'r, 'a>>,
        misses: &mut Vec<Run<'r, 'a>>,
    ) {
        let mut sources: Vec<Option<Source>> = (0_u32..)
            .zip(want.iter())
            .map(|(at, want)| if is_wanted(want) { self.begin_read(first.plus(at)) } else { None })
            .collect();
        let is_miss = |at: &usize| is_wanted(&want[*at]) && sources[*at].is_none();
        let begin = (0..want.len()).find(is_miss).unwrap_or(want.len());
        let end = (0..want.len()).rev().find(is_miss).map_or(begin, |last| last + 1);
        for source in &mut sources[begin..end] {
            if let Some(Source::Slot(pin @ Pin { is_dirty: false, .. })) = source {
                self.end_read(*pin, Saw::Nothing);
                add(&self.counters.trimmed);
                *source = None;
            }
        }
        let is_home = |at: &usize| (begin..end).contains(at) && sources[*at].is_none();
        let from_home: Vec<bool> = (0..want.len()).map(|at| is_home(&at)).collect();
        let missed = from_home.iter().zip(want.iter()).filter(|(is_home, want)| **is_home && is_wanted(want));
        self.counters.misses.fetch_add(missed.count() as u64, Relaxed);
        let (mut rest, mut at) = (want, 0_usize);
        for group in from_home.chunk_by(|one, next| one == next) {
            let (part, behind) = rest.split_at_mut(group.len());
            rest = behind;
            let id = first.plus(at as u32);
            if group[0] {
                misses.push(Run { first: id, want: part });
            } else {
                let found = (0_u32..).zip(part).zip(&mut sources[at..]);
                cached.extend(
                    found.filter_map(|((no, want), source)| Some((source.take()?, id.plus(no), want))),
                );
            }
            at += group.len();
        }
    }

    /// Reads all requested pages, from flash or from the data files.
    pub(in crate::flash) fn read_runs(&self, runs: &mut [Run<'_, '_>], why: Access) -> Result<()> {
        if let [Run { first, want: [want @ Want::Page { .. }] }] = runs {
            if self.read_one(*first, want, true)? {
                return Ok(());
            }
            add(&self.counters.misses);
            if self.read_widened(*first, want, why) {
                return Ok(());
            }
            let mut run = [Run { first: *first, want: std::slice::from_mut(want) }];
            return self.drive.throttle.read_home(|| self.around.below.read(&mut run, why));
        }
        let (mut cached, mut misses) = (Vec::new(), Vec::new());
        for run in runs.iter_mut() {
            self.split(run.first, &mut *run.want, &mut cached, &mut misses);
        }
        let failed = self.read_cached(cached)?;
        misses
            .extend(failed.into_iter().map(|(first, want)| Run { first, want: std::slice::from_mut(want) }));
        if misses.is_empty() {
            return Ok(());
        }
        let wanted = |run: &Run<'_, '_>| run.want.iter().filter(|want| is_wanted(want)).count();
        let pages = misses.iter().map(wanted).sum();
        let mut read = || self.around.below.read(&mut misses, why);
        if why == Access::Random {
            return read();
        }
        self.drive.throttle.read_home_run(pages, read)
    }

    /// Is called after a read. Reports which pages a scan reads, and offers pages that came from the data
    /// files to the cache. If the design requires it, frees the slots of pages that came from flash.
    pub(in crate::flash) fn look_at_what_was_read(&self, runs: &mut [Run<'_, '_>], why: Access) {
        let design = self.policy.design();
        let is_of_interest = design.takes_read() || design.gives_up_what_is_read();
        if !is_of_interest && !self.policy.scans.is_told() {
            // The usual case.
            return;
        }
        for run in runs {
            for (at, want) in (0_u32..).zip(run.want.iter_mut()) {
                let id = run.first.plus(at);
                let Want::Page { frame, got: Some(got) } = want else { continue };
                if !id.space().is_logged() {
                    continue;
                }
                if got.from == Tier::Home {
                    self.policy.scans.note(id);
                }
                if design.takes_read() {
                    self.policy.heat.note(id, self.drive.throttle.saved_ns(why));
                }
                match got.from {
                    Tier::Home if design.takes_read() => self.take_read(id, why, frame),
                    // While redo runs, the dirty-page table does not yet know every page that the data files
                    // lack.
                    Tier::Flash if design.gives_up_what_is_read() && !self.is_redo_running() => {
                        let taken = self.table_of(id).take(id);
                        got.taken = taken.unwrap_or(false);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Compares a cached page with the data files. If the page is put in the meantime, the difference is not
    /// reported as damage.
    pub(in crate::flash) fn compare(
        &self,
        id: PageId,
        buffers: &mut [AlignedBuf; 2],
    ) -> Result<Option<String>> {
        let version = || self.table_of(id).version(id);
        let Some(before @ (lsn, is_dirty)) = version() else { return Ok(None) };
        let damage = self.difference(id, lsn, is_dirty, buffers)?;
        Ok(damage.filter(|_| version() == Some(before)))
    }

    fn difference(
        &self,
        id: PageId,
        lsn: Lsn,
        is_dirty: bool,
        [flash, home]: &mut [AlignedBuf; 2],
    ) -> Result<Option<String>> {
        let mut cached = [Want::Page { frame: flash, got: None }];
        if !self.read_one(id, &mut cached[0], false)? {
            return Ok(None);
        }
        let may_lack = self.around.is_below_nvm || is_dirty;
        let mut at_home = [Want::Page { frame: home, got: None }];
        match self.around.below.read(&mut [Run { first: id, want: &mut at_home }], Access::Sequential) {
            // The page never was in the data files, or a crash tore its write. A slot in persistent memory or
            // on flash has the page, or else a later read reports the damage.
            Err(PagerError::DamagedPage { .. }) if may_lack => return Ok(None),
            Err(damage @ PagerError::DamagedPage { .. }) => return Ok(Some(damage.to_string())),
            read => read?,
        }
        let there = page::page_lsn(home);
        let is_right = lsn > there && may_lack || lsn == there && flash[..] == home[..];
        Ok((!is_right).then(|| format!("page {id} on flash is of LSN {lsn}, and at home of {there}")))
    }
}
