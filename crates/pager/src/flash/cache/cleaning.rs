//! Cleaning: dirty pages are written from flash to the data files, in groups of neighbours (Do 2012, section
//! 3.3.5: lazy cleaning, group cleaning). This happens when too many slots are dirty, when the log must be
//! cut, before the cache's design changes, and at a shutdown.
//!
//! Invariants
//! 1. A page enters `transit.cleaning` before its slot is read, and leaves it when the data files have taken
//!    or refused the page. Meanwhile no newer version of the page is written anywhere, and its slot is not
//!    reused.
//! 2. If the page in the slot is not the one that the slot table says, it is not written to the data files.
//! 3. A slot becomes clean when the data files have its page. The data files report the page to the
//!    dirty-page table. If they have no space for one page, no other page is delayed.
//!
//! This module does not know threads, or the contents of the pool.

use std::sync::atomic::Ordering;
use std::time::Duration;

use varve_device::{AlignedBuf, planted, reached};

use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageNo};
use crate::base::image::Image;
use crate::flash::cache::{FlashCache, add};
use crate::flash::table::Cleaning;
use crate::level::{Cause, Need, summed};

/// The largest number of pages of a group, which are written to the data files together (section 3.3.5).
const GROUP_MAX: usize = 32;
/// The largest number of groups that are written at once. All groups together have at most `PAGES_MAX` pages,
/// because a put of a newer version of one page waits for all of them.
const GROUPS_MAX: usize = 16;
const PAGES_MAX: usize = 128;
/// The number of dirty slots beyond their limit at which puts begin to clean, too, in percent of all slots.
const MARGIN_PERCENT: u64 = 2;
/// The largest number of slots that are read together in order to clean them.
const READ_MAX: usize = 32;

/// A page whose write to the data files has begun.
struct Begun {
    id: PageId,
    partition: usize,
    cleaning: Cleaning,
    /// The image of the page, if the page is not in its slot yet.
    image: Option<Image>,
}

impl FlashCache {
    fn begin_clean(&self, id: PageId) -> Option<Begun> {
        let mut table = self.table_of(id);
        let partition = table.partition;
        let cleaning = table.begin_clean(id)?;
        let mut image = None;
        if !cleaning.is_written {
            let is_meant = |image: &Image| image.id() == id && image.lsn() == cleaning.lsn;
            image = self.drive.writes.only_here(partition, cleaning.slot).filter(is_meant);
            if image.is_none() {
                // The put of this page has not returned, so no thread knows that the page is here.
                table.end_clean(cleaning.slot, false);
                return None;
            }
        }
        self.transit.cleaning.begin(id);
        Some(Begun { id, partition, cleaning, image })
    }

    /// Begins to clean the page and the dirty pages directly before and after it.
    fn begin_group(&self, id: PageId) -> Vec<Begun> {
        let Some(one) = self.begin_clean(id) else { return Vec::new() };
        let mut group = vec![one];
        let near = |no: Option<u32>| no.and_then(|no| self.begin_clean(PageId::new(id.space(), PageNo(no))));
        let mut no = id.no().0;
        while group.len() < GROUP_MAX
            && let Some(before) = near(no.checked_sub(1))
        {
            group.push(before);
            no -= 1;
        }
        group.reverse();
        no = id.no().0;
        while group.len() < GROUP_MAX
            && let Some(behind) = near(no.checked_add(1))
        {
            group.push(behind);
            no += 1;
        }
        group
    }

    /// Cleans a group of pages of each partition with too many dirty slots. Returns the number of pages that
    /// were written to the data files. Other threads may do the same at the same time.
    pub(crate) fn clean_some(&self) -> Result<usize> {
        if self.is_lost() || self.is_redo_running() {
            return Ok(0);
        }
        if self.is_failing() {
            return self.leave();
        }
        let most = self.dirty_most();
        let over = self
            .tables()
            .filter_map(|table| if table.dirty_count() > most { table.next_to_clean() } else { None });
        let pages: Vec<PageId> = over.collect();
        self.bring_groups(&pages)
    }

    /// Writes these pages and their neighbours to the data files, all groups together. The reason is that the
    /// data files may be on many disks, and one group uses only one of them. Returns the number of pages.
    fn bring_groups(&self, ids: &[PageId]) -> Result<usize> {
        let mut together: Vec<Vec<Begun>> = Vec::new();
        for id in ids {
            if together.iter().map(Vec::len).sum::<usize>() >= PAGES_MAX {
                break;
            }
            let group = self.begin_group(*id);
            if group.is_empty() {
                continue;
            }
            let takes = |others: &&mut Vec<Begun>| {
                let spaces =
                    others.first().zip(group.first()).map(|(other, one)| (other.id.space(), one.id.space()));
                spaces.is_some_and(|(other, one)| self.around.below.takes_together(other, one))
            };
            match together.iter_mut().find(takes) {
                Some(others) => others.extend(group),
                None => together.push(group),
            }
        }
        // If the device has no space for one group, the other groups are written all the same.
        summed(together.into_iter().map(|group| self.bring_home(group)))
    }

    /// Cleans until the number of dirty slots is within its limit. It is no error if the data files are full,
    /// because a put need not fail for that.
    pub(in crate::flash) fn clean_to_limit(&self) -> Result<()> {
        loop {
            match self.clean_some() {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(cause) if cause.is_no_space() => return Ok(()),
                Err(cause) => return Err(cause),
            }
        }
    }

    /// Returns whether the number of dirty slots exceeds the limit by more than `MARGIN_PERCENT` of all
    /// slots. This shows that the cleaning threads are too slow.
    pub(in crate::flash) fn is_far_over_limit(&self) -> bool {
        let most = u64::from(self.slots()) * (u64::from(self.dirty_percent()) + MARGIN_PERCENT) / 100;
        self.tables().map(|table| table.dirty_count()).sum::<u64>() > most
    }

    /// Waits until there is a page to clean, but at most `longest`.
    pub(crate) fn wait_for_dirty(&self, longest: Duration) {
        self.transit.cleaning.bell.wait_for(&mut self.transit.cleaning.pages.lock(), longest);
    }

    /// Writes those of these pages that the data files lack, with their neighbours. Returns the number of
    /// pages.
    pub(in crate::flash) fn clean_pages(&self, ids: &[PageId]) -> Result<usize> {
        let mut outcome = Ok(0);
        if self.is_redo_running() {
            return outcome;
        }
        for some in ids.chunks(GROUPS_MAX) {
            let is_dirty = |id: &PageId| self.table_of(*id).is_dirty(*id);
            let dirty: Vec<PageId> = some.iter().copied().filter(is_dirty).collect();
            match (self.bring_groups(&dirty), &mut outcome) {
                (Ok(count), Ok(sum)) => *sum += count,
                (Ok(_), Err(_)) => {}
                // Other pages may need no new space.
                (Err(cause), outcome) if cause.is_no_space() => *outcome = Err(cause),
                (Err(cause), _) => return Err(cause),
            }
            // Another thread may be cleaning some of these pages.
            self.transit.cleaning.wait_for(|other| dirty.contains(&other));
        }
        outcome
    }

    /// Writes all dirty pages to the data files. The caller prevents puts that add dirty pages meanwhile.
    pub(in crate::flash) fn clean_all(&self) -> Result<()> {
        loop {
            let each = self.tables().flat_map(|table| table.dirty_pages());
            let mut pages: Vec<PageId> = each.collect();
            if pages.is_empty() {
                // Some pages have changed in the pool while they were being written. Waits until these writes
                // end.
                self.transit.cleaning.wait_for(|_| true);
                return Ok(());
            }
            pages.sort_unstable();
            self.clean_pages(&pages)?;
        }
    }

    /// Writes a group to the data files. The result is `Err` if some of its pages are not written, because a
    /// device is full or a page can't be read.
    fn bring_home(&self, group: Vec<Begun>) -> Result<usize> {
        if group.is_empty() {
            return Ok(0);
        }
        let mut is_home = vec![false; group.len()];
        let put = self.images_of(&group).and_then(|images| self.put_home(&images, &mut is_home));
        let is_refused = put.as_ref().is_err_and(PagerError::is_no_space);
        for (begun, is_home) in group.iter().zip(&is_home) {
            // Both steps are under one lock. A thread that begins with the page in between would lose its
            // entry in the set here.
            let mut table = self.table(begun.partition);
            table.end_clean(begun.cleaning.slot, *is_home);
            if is_refused && !is_home {
                table.pass_over(begun.cleaning.slot);
            }
            self.transit.cleaning.end(begun.id);
        }
        let count = is_home.iter().filter(|is_home| **is_home).count();
        if count > 0 {
            add(&self.counters.clean_batches);
            self.counters.cleaned.fetch_add(count as u64, Ordering::Relaxed);
        }
        put.map(|()| count)
    }

    /// Puts images of pages of a group, and enters in `is_home` which of them the data files have.
    fn put_home(&self, images: &[(usize, Image)], is_home: &mut [bool]) -> Result<()> {
        if planted("flash: what is cleaned does not go home") {
            images.iter().for_each(|(_, image)| self.around.ledger.stable(image.id(), image.lsn()));
            images.iter().for_each(|(at, _)| is_home[*at] = true);
            return Ok(());
        }
        self.put_parts(images, self.around.below.put_pages_max(), is_home)
    }

    fn put_parts(&self, images: &[(usize, Image)], most: usize, is_home: &mut [bool]) -> Result<()> {
        let mut outcome = Ok(());
        for part in images.chunks(most) {
            let pages: Vec<Image> = part.iter().map(|(_, image)| image.clone()).collect();
            match self.put_below(&pages, Cause::Evict, Need::Held) {
                Ok(()) => part.iter().for_each(|(at, _)| is_home[*at] = true),
                Err(cause) if !cause.is_no_space() => return Err(cause),
                // The whole batch was refused. But perhaps only one page needs new space, so the pages are
                // written one by one.
                Err(_) if part.len() > 1 => {
                    reached("flash: pages go home one by one");
                    match self.put_parts(part, 1, is_home) {
                        Err(cause) if !cause.is_no_space() => return Err(cause),
                        put => outcome = outcome.and(put),
                    }
                }
                refused => outcome = outcome.and(refused),
            }
        }
        outcome
    }

    /// Returns the verified images of a group's pages, each with its index in the group. A page that can't be
    /// read is left out if no thread needs it any more.
    fn images_of(&self, group: &[Begun]) -> Result<Vec<(usize, Image)>> {
        let in_slots: Vec<&Begun> = group.iter().filter(|begun| begun.image.is_none()).collect();
        let mut buffers: Vec<AlignedBuf> = in_slots.iter().map(|_| self.drive.store.buffer()).collect();
        let parts = in_slots.chunks(READ_MAX).zip(buffers.chunks_mut(READ_MAX));
        let read: Vec<Result<()>> = parts.map(|(begun, buffers)| self.read_slots(begun, buffers)).collect();
        let each = in_slots
            .chunks(READ_MAX)
            .zip(read)
            .flat_map(|(part, read)| part.iter().map(move |_| read.clone()));
        let mut read = each.zip(buffers);
        let mut images = Vec::with_capacity(group.len());
        for (at, begun) in group.iter().enumerate() {
            let image = match &begun.image {
                Some(image) => Some(image.clone()),
                None => {
                    let Some((read, bytes)) = read.next() else { break };
                    self.image_in(begun, read.map(|()| bytes))?
                }
            };
            images.extend(image.map(|image| (at, image)));
        }
        Ok(images)
    }

    fn read_slots(&self, begun: &[&Begun], buffers: &mut [AlignedBuf]) -> Result<()> {
        let slots = begun.iter().zip(buffers);
        let slots =
            slots.map(|(begun, buf)| (self.slots.stored(begun.partition, begun.cleaning.slot), &mut buf[..]));
        let in_flight = self.drive.throttle.begin(begun.len());
        let read = self.drive.store.read(slots);
        drop(in_flight);
        read.inspect_err(|cause| self.note_error(cause))
    }

    /// Returns the page in a slot that was `read` together with others. If the slot does not have the page,
    /// it is read once more, alone. The result is `None` if the page has changed in the pool meanwhile,
    /// because this version is not needed then. Otherwise only redo can make the page.
    fn image_in(&self, begun: &Begun, read: Result<AlignedBuf>) -> Result<Option<Image>> {
        let found = |read: Result<AlignedBuf>| {
            let image = Image::of_sealed(begun.id, read?, Access::Random);
            image.ok().filter(|image| image.lsn() == begun.cleaning.lsn).ok_or_else(|| {
                let what = format!("the changed page {} is not in its slot on flash", begun.id);
                PagerError::Corrupt { what }
            })
        };
        let again = |_| {
            let mut bytes = self.drive.store.buffer();
            let read = self
                .drive
                .store
                .read_one(self.slots.stored(begun.partition, begun.cleaning.slot), &mut bytes);
            found(read.map(|()| bytes)).inspect(|_| self.note_success())
        };
        match found(read).or_else(again) {
            Ok(image) => Ok(Some(image)),
            Err(cause) if self.table(begun.partition).lacks(begun.cleaning.slot, begun.id) => {
                Err(self.lose_for(cause))
            }
            Err(_) => Ok(None),
        }
    }
}
