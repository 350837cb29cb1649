//! Admission: which pages enter the flash cache, and their writes to flash. The candidates are clean pages
//! that leave the pool, changed pages, and pages that were just read.
//!
//! Invariants
//! 1. Some designs keep a changed page on flash only, and write it to the data files later. Such a page gets
//!    its slot before the put returns. Until the page is written to its slot, it is read from the queue of
//!    writes. If the put is refused, none of its pages keeps a slot.
//! 2. If a changed page is also written to the data files, its slot is filled after the data files have the
//!    page.
//! 3. If the write of a dirty page to flash fails, the page is written to the data files, or stays in the
//!    queue.
//! 4. If far too many slots are dirty, a put (a write of pages to the cache) cleans as many pages as it adds.
//!    It does so inside the gate, so the design cannot change meanwhile (`policy/chosen.rs`).
//!
//! This module does not know which pages a design takes, or how the data files store pages.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use varve_device::{AlignedBuf, planted, reached};

use crate::base::error::Result;
use crate::base::ids::{Access, PageId};
use crate::base::image::Image;
use crate::flash::cache::{FlashCache, OLDER_STAY, add};
use crate::flash::io::writes::Write;
use crate::flash::table::{Admitted, Arrival, SlotNo};
use crate::level::{Cause, Need};

/// The largest number of pages that are written together.
const TOGETHER_MAX: usize = 32;

/// The longest time that a put waits for space in the queue.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// A slot that was reserved for a page of a put, and is filled after the put has ended.
struct Promised {
    /// Index of the page in the batch.
    at: usize,
    partition: usize,
    slot: SlotNo,
    is_dirty: bool,
}

/// The plan for the pages of a batch.
#[derive(Default)]
struct Plan {
    promised: Vec<Promised>,
    /// Indexes in the batch of the pages that are kept on flash only.
    kept: Vec<usize>,
}

impl FlashCache {
    /// Takes the pages that the design takes, and puts the others to the level below.
    pub(in crate::flash) fn put_some(&self, batch: &[Image], cause: Cause, need: Need) -> Result<()> {
        // A put for a checkpoint or a shutdown must reach the data files.
        let is_evicted = matches!(cause, Cause::Evict | Cause::EvictInline);
        let may_keep = need == Need::Held && (is_evicted || cause == Cause::Drain && self.stays_dirty());
        if may_keep && self.around.has_threads && self.keeps_back() {
            self.wait_for_room(batch.len())?;
            if is_evicted {
                self.hold_to_limit(batch.len())?;
            }
        }
        let plan = self.plan(batch, may_keep && self.keeps_back());
        let put = match plan.kept.len() {
            0 => self.put_below(batch, cause, need),
            all if all == batch.len() => Ok(()),
            _ => {
                let is_kept = |at: &usize| plan.kept.binary_search(at).is_ok();
                let rest: Vec<Image> =
                    (0..batch.len()).filter(|at| !is_kept(at)).map(|at| batch[at].clone()).collect();
                self.put_below(&rest, cause, need)
            }
        };
        if let Err(refused) = put {
            self.cancel(&plan.promised);
            return Err(refused);
        }
        for Promised { at, partition, slot, is_dirty } in plan.promised {
            add(&self.counters.admitted_dirty);
            if is_dirty && planted("flash: what is kept back counts as stable") {
                self.around.ledger.stable(batch[at].id(), batch[at].lsn());
            }
            self.push(Write { partition, slot, image: batch[at].clone(), is_dirty });
        }
        Ok(())
    }

    /// Puts pages to the level below. Any error except that of a full device stops the log at once. A page
    /// writer would stop it later anyway, but a slot that can't be read in the meantime would then be
    /// reported as the reason.
    pub(in crate::flash) fn put_below(&self, batch: &[Image], cause: Cause, need: Need) -> Result<()> {
        let put = self.around.below.put(batch, cause, need);
        if let Err(refused) = &put
            && !refused.is_no_space()
        {
            self.around.log.stop(refused);
        }
        put
    }

    /// Waits a while for space in the queue of writes. A put that finds no space writes its pages to the data
    /// files instead, which usually takes longer. If they recently answered faster than flash, the put does
    /// not wait.
    fn wait_for_room(&self, pages: usize) -> Result<()> {
        if !self.threads_run() {
            while !self.drive.writes.has_room(pages) && self.write_some(Duration::ZERO)? {}
            // Another thread may be writing pages that occupy the queue.
            self.drive.writes.wait_for_room(pages, ROOM_WAIT);
        } else if !self.drive.throttle.is_home_faster() && !self.drive.writes.has_room(pages) {
            reached("flash: a put waits for room");
            self.drive.writes.wait_for_room(pages, ROOM_WAIT);
        }
        Ok(())
    }

    /// If far more slots than the limit are dirty, a put that adds dirty pages also cleans. The reason is
    /// that the data files are the bottleneck, and cleaning threads can't write to them faster than a put
    /// can. A put cleans as many pages as it adds, so that no put waits for the pages of others.
    fn hold_to_limit(&self, brought: usize) -> Result<()> {
        let mut owed = brought;
        while owed > 0 && self.is_far_over_limit() {
            reached("flash: a put cleans");
            match self.clean_some() {
                // Other threads are cleaning the remaining pages, or no page can be cleaned now.
                Ok(0) => return Ok(()),
                Err(cause) if cause.is_no_space() => return Ok(()),
                cleaned => owed = owed.saturating_sub(cleaned?),
            }
        }
        Ok(())
    }

    /// Frees the slot of an older version, so that it is neither read nor written to the data files. If it is
    /// being written there now, that write ends before the newer version is written.
    pub(in crate::flash) fn give_up_older(&self, newer: &Image) {
        let id = newer.id();
        let mut table = self.table_of(id);
        self.transit.read_along.overtake(id);
        if !planted(OLDER_STAY) && table.remove_older(id, newer.lsn()) {
            add(&self.counters.invalidated);
        }
        drop(table);
        self.transit.cleaning.wait_for_page(id);
    }

    /// Reserves slots for those changed pages of a batch that the design takes and the queue has space for.
    fn plan(&self, batch: &[Image], keeps_back: bool) -> Plan {
        let (design, most) = (self.policy.design(), self.dirty_most());
        let (mut plan, mut is_over) = (Plan::default(), false);
        for (at, image) in batch.iter().enumerate().filter(|(_, image)| image.id().space().is_logged()) {
            let (id, lsn) = (image.id(), image.lsn());
            self.give_up_older(image);
            let mut table = self.table_of(id);
            let partition = table.partition;
            if self.is_failing()
                || !design.takes_dirty(
                    self.policy.scans.access(id, image.access()),
                    self.is_filling(&table),
                    table.has_invalid(id),
                )
            {
                continue;
            }
            if !self.promise() {
                continue;
            }
            let since = || self.around.ledger.since(id).unwrap_or(lsn);
            let new = Arrival { id, lsn, lacks: keeps_back.then(since), now: self.slots.tick(), heat: None };
            match table.admit(new, |id| self.policy.heat.of(id)) {
                Admitted::Slot(slot) => {
                    plan.promised.push(Promised { at, partition, slot, is_dirty: keeps_back });
                    plan.kept.extend(keeps_back.then_some(at));
                    is_over |= keeps_back && table.dirty_count() > most;
                }
                admitted => {
                    self.take_no(admitted);
                    let is_here = admitted == Admitted::Has { is_dirty: true };
                    plan.kept.extend((keeps_back && is_here).then_some(at));
                }
            }
        }
        if is_over {
            self.transit.cleaning.ring();
        }
        plan
    }

    /// Returns whether a page may be added. If so, a place in the queue is reserved, which must be used or
    /// released.
    pub(in crate::flash) fn promise(&self) -> bool {
        let refused = match self.drive.store.budget.allows() {
            false => &self.counters.budget,
            true if self.drive.writes.promise() => return true,
            true => &self.counters.throttled,
        };
        add(refused);
        false
    }

    fn take_no(&self, admitted: Admitted) {
        self.drive.writes.give_back(1);
        match admitted {
            Admitted::Busy => add(&self.counters.busy),
            Admitted::Colder => add(&self.counters.colder),
            Admitted::Slot(_) | Admitted::Has { .. } => {}
        }
    }

    fn cancel(&self, promised: &[Promised]) {
        for Promised { partition, slot, .. } in promised {
            self.table(*partition).written(*slot, false);
        }
        self.drive.writes.give_back(promised.len());
    }

    /// Admits a clean page that leaves the pool, if the design takes it.
    pub(in crate::flash) fn take_clean(&self, id: PageId, why: Access, copy: &mut dyn FnMut() -> Image) {
        if self.is_failing() {
            return;
        }
        let mut table = self.table_of(id);
        if table.touch(id, self.slots.tick()) || self.policy.design().takes_read() {
            return;
        }
        if !self.policy.design().takes_clean(why, self.is_filling(&table)) {
            return add(&self.counters.sequential);
        }
        drop(table);
        self.take(id, None, copy);
    }

    /// Admits a page that was read from the data files, if the design takes it.
    pub(in crate::flash) fn take_read(&self, id: PageId, why: Access, bytes: &[u8]) {
        let Some(_gate) = self.policy.gate.try_read().filter(|_| !self.is_failing()) else { return };
        let heat = self.policy.design().goes_by_heat().then(|| self.policy.heat.of(id));
        if let Ok(image) = Image::of_sealed(id, AlignedBuf::copy_of(bytes), why) {
            self.take(id, heat, &mut || image.clone());
        }
    }

    fn take(&self, id: PageId, heat: Option<u64>, copy: &mut dyn FnMut() -> Image) {
        if !self.promise() {
            return;
        }
        let image = copy();
        let new = Arrival { id, lsn: image.lsn(), lacks: None, now: self.slots.tick(), heat };
        let mut table = self.table_of(id);
        let (partition, admitted) = (table.partition, table.admit(new, |id| self.policy.heat.of(id)));
        drop(table);
        match admitted {
            Admitted::Slot(slot) => {
                add(&self.counters.admitted_clean);
                self.push(Write { partition, slot, image, is_dirty: false });
            }
            admitted => self.take_no(admitted),
        }
    }

    pub(in crate::flash) fn push(&self, write: Write) {
        self.drive.writes.push(write);
        let is_asked = !self.threads_run() && self.drive.writes.pending() >= TOGETHER_MAX;
        if !self.around.has_threads || is_asked {
            // After an error the pages stay in the queue, or are written to the data files later.
            let _tried_again = self.write_some(Duration::ZERO);
        }
    }

    /// Writes some of the queued pages, and waits at most `longest` for pages. Returns whether there were
    /// such pages. The result is an error if a dirty page could be written neither to flash nor to the data
    /// files.
    pub(crate) fn write_some(&self, longest: Duration) -> Result<bool> {
        // Redo and a shutdown wait for these writes, and small parts would take longer. In redo the drive is
        // busy with reads.
        let most = if self.threads_run() { self.drive.throttle.room() } else { TOGETHER_MAX };
        let writes = self.drive.writes.take(most.min(TOGETHER_MAX), longest);
        if writes.is_empty() {
            return Ok(false);
        }
        let is_unwanted = |one: &Write| self.table(one.partition).is_unwanted(one.slot);
        let (unwanted, writes): (Vec<Write>, Vec<Write>) = writes.into_iter().partition(is_unwanted);
        unwanted.iter().for_each(|one| self.wrote(one, true));
        self.drive.writes.give_back(unwanted.len());
        if writes.is_empty() {
            return Ok(true);
        }
        let slots = writes.iter().map(|one| (self.slots.stored(one.partition, one.slot), one.image.bytes()));
        add(&self.counters.write_batches);
        let in_flight = self.drive.throttle.begin(writes.len());
        let written = match self.is_lost() || self.is_failing() {
            true => None,
            false => Some(self.drive.store.write(slots)),
        };
        drop(in_flight);
        if let Some(Ok(())) = written {
            self.note_success();
            self.counters.written.fetch_add(writes.len() as u64, Relaxed);
            writes.iter().for_each(|one| self.wrote(one, true));
            self.drive.writes.give_back(writes.len());
            return Ok(true);
        }
        let rescued = self.rescue(writes);
        if let Some(Err(cause)) = written {
            self.note_error(&cause);
        }
        rescued.map(|()| true)
    }

    /// Writes all queued pages at a shutdown, when there are no threads any more. Unless changed pages stay
    /// on flash, also writes all dirty pages to the data files.
    pub(in crate::flash) fn write_all(&self) -> Result<()> {
        while self.drive.writes.pending() > 0 && self.write_some(Duration::ZERO)? {}
        if self.stays_dirty() { Ok(()) } else { self.clean_all() }
    }

    fn wrote(&self, one: &Write, is_good: bool) {
        // Both steps are under one lock. Otherwise the next page of a slot that becomes free could be found,
        // or removed, in place of this page.
        let mut table = self.table(one.partition);
        table.written(one.slot, is_good);
        self.drive.writes.done(one);
    }

    /// Is called after flash refused the pages. Pages that the data files lack are written there, or return
    /// to the queue. The slots of the others are freed.
    #[cold]
    fn rescue(&self, writes: Vec<Write>) -> Result<()> {
        let (dirty, clean): (Vec<Write>, Vec<Write>) = writes.into_iter().partition(|one| one.is_dirty);
        clean.iter().for_each(|one| self.wrote(one, false));
        self.drive.writes.give_back(clean.len());
        let ids: Vec<PageId> = dirty.iter().map(|one| one.image.id()).collect();
        let cleaned = self.clean_pages(&ids);
        for one in dirty {
            let is_needed = self.table(one.partition).lacks(one.slot, one.image.id());
            if is_needed {
                reached("flash: a page that nobody takes stays in the queue");
                self.drive.writes.push(one);
            } else {
                self.wrote(&one, false);
                self.drive.writes.give_back(1);
            }
        }
        cleaned.map(drop)
    }
}
