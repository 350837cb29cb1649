//! Bringing dirty pages home: below the limit of dirty frames, for the log, before another design takes over, and at the end
//! (Do 2012, section 3.3.5: lazy cleaning, group cleaning).
//!
//! Invariants
//! 1. A page is in `Underway` from before its frame is looked at until home has it or refused it. No newer version of it goes anywhere,
//!    and its place isn't used for anything else, as long as an older one is there.
//! 2. What is not as the table says is not brought home.
//! 3. A frame is clean when home holds its page; the ledger hears of that from home.
//!
//! Not known here: threads, what the pool has.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashSet;
use varve_device::{AlignedBuf, planted, reached};

use super::cache::{FlashCache, add};
use super::table::Cleaning;
use crate::error::{PagerError, Result};
use crate::ids::{Access, PageId, PageNo};
use crate::level::{Cause, Image, Need};

/// Pages brought home together (section 3.3.5).
const GROUP_MAX: usize = 32;

/// Pages that are being brought home.
#[derive(Default)]
pub(super) struct Underway {
    pages: Mutex<FxHashSet<PageId>>,
    /// How many, for those who find none.
    count: AtomicUsize,
    ended: Condvar,
    bell: Condvar,
}

impl Underway {
    /// Under the lock of the page's partition.
    fn begin(&self, id: PageId) {
        let mut pages = self.pages.lock();
        pages.insert(id);
        self.count.store(pages.len(), Ordering::Release);
    }

    /// As `begin`.
    fn end(&self, id: PageId) {
        let mut pages = self.pages.lock();
        pages.remove(&id);
        self.count.store(pages.len(), Ordering::Release);
        drop(pages);
        self.ended.notify_all();
    }

    /// Whether the page is, under the lock of its partition.
    pub(super) fn has(&self, id: PageId) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.pages.lock().contains(&id)
    }

    /// Waits until none of these is. The caller has seen to it, under the lock of the page's partition, that it does not begin.
    pub(super) fn wait_for(&self, is_meant: impl Fn(PageId) -> bool) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut pages = self.pages.lock();
        while pages.iter().any(|id| is_meant(*id)) {
            reached("flash: waited for a page on its way home");
            self.ended.wait(&mut pages);
        }
    }
}

/// A page whose way home has begun.
struct Begun {
    id: PageId,
    partition: usize,
    cleaning: Cleaning,
    /// Where it is not in its frame yet.
    image: Option<Image>,
}

impl FlashCache {
    fn begin_clean(&self, id: PageId) -> Option<Begun> {
        let partition = self.partition_of(id);
        let mut table = self.table(partition);
        let cleaning = table.begin_clean(id)?;
        let mut image = None;
        if !cleaning.is_written {
            let is_meant = |image: &Image| image.id() == id && image.lsn() == cleaning.lsn;
            image = self.writes.only_here(partition, cleaning.frame).filter(is_meant);
            if image.is_none() {
                // Its put isn't over: nobody has been told that it is here.
                table.end_clean(cleaning.frame, false);
                return None;
            }
        }
        self.underway.begin(id);
        Some(Begun { id, partition, cleaning, image })
    }

    /// The page, and dirty ones before and behind it, without a gap.
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

    /// Cleans a group if more frames are dirty than may be; gives the pages brought home. Other threads may do the same.
    pub(crate) fn clean_some(&self) -> Result<usize> {
        if self.is_lost.load(Ordering::Relaxed) || self.is_redo_running() {
            return Ok(0);
        }
        if self.is_failing() {
            return self.leave();
        }
        let most = u64::from(self.partition_frames) * u64::from(self.dirty_percent()) / 100;
        let over = self
            .tables()
            .filter_map(|table| if table.dirty_count() > most { table.next_to_clean() } else { None });
        let pages: Vec<PageId> = over.collect();
        pages.into_iter().try_fold(0, |sum, id| Ok(sum + self.bring_home(self.begin_group(id))?))
    }

    /// Cleans until no more frames are dirty than may be. That home has no room is nothing that those who put would have to know.
    pub(super) fn clean_to_limit(&self) -> Result<()> {
        loop {
            match self.clean_some() {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(cause) if cause.is_no_space() => return Ok(()),
                Err(cause) => return Err(cause),
            }
        }
    }

    /// Waits for something to clean.
    pub(crate) fn wait_for_dirty(&self, longest: Duration) {
        self.underway.bell.wait_for(&mut self.underway.pages.lock(), longest);
    }

    /// Brings these home, as far as they are here only, with their neighbours. Gives how many.
    pub(super) fn clean_pages(&self, ids: &[PageId]) -> Result<usize> {
        let mut outcome = Ok(0);
        if self.is_redo_running() {
            return outcome;
        }
        for id in ids {
            if !self.table(self.partition_of(*id)).is_dirty(*id) {
                continue;
            }
            match (self.bring_home(self.begin_group(*id)), &mut outcome) {
                (Ok(count), Ok(sum)) => *sum += count,
                (Ok(_), Err(_)) => {}
                // Others may have their places.
                (Err(cause), outcome) if cause.is_no_space() => *outcome = Err(cause),
                (Err(cause), _) => return Err(cause),
            }
            // Somebody else may be about it.
            self.underway.wait_for(|other| other == *id);
        }
        outcome
    }

    /// Brings everything home; nobody puts anything that is kept back meanwhile.
    pub(super) fn clean_all(&self) -> Result<()> {
        loop {
            let each = self.tables().flat_map(|table| table.dirty_pages());
            let mut pages: Vec<PageId> = each.collect();
            if pages.is_empty() {
                // Some of them have changed above while they were on their way.
                self.underway.wait_for(|_| true);
                return Ok(());
            }
            pages.sort_unstable();
            self.clean_pages(&pages)?;
        }
    }

    fn bring_home(&self, group: Vec<Begun>) -> Result<usize> {
        if group.is_empty() {
            return Ok(0);
        }
        let put = match self.images_of(&group) {
            Ok(Some(images)) => self.put_home(&images).map(|()| images.len()),
            Ok(None) => Ok(0),
            Err(cause) => Err(cause),
        };
        let is_home = matches!(put, Ok(1..));
        for begun in &group {
            // Both at once: who begins with the page in between would have its mark taken away here.
            let mut table = self.table(begun.partition);
            table.end_clean(begun.cleaning.frame, is_home);
            self.underway.end(begun.id);
        }
        if is_home {
            add(&self.counters.clean_batches);
            self.counters.cleaned.fetch_add(group.len() as u64, Ordering::Relaxed);
        }
        put
    }

    fn put_home(&self, images: &[Image]) -> Result<()> {
        if planted("flash: what is cleaned does not go home") {
            images.iter().for_each(|image| self.ledger.stable(image.id(), image.lsn()));
            return Ok(());
        }
        images
            .chunks(self.below.put_pages_max())
            .try_for_each(|part| self.below.put(part, Cause::Evict, Need::Held))
    }

    /// What is to be brought home, verified. `None`: what can't be had nobody needs any more.
    fn images_of(&self, group: &[Begun]) -> Result<Option<Vec<Image>>> {
        let in_frames: Vec<&Begun> = group.iter().filter(|begun| begun.image.is_none()).collect();
        let mut buffers: Vec<AlignedBuf> = in_frames.iter().map(|_| self.store.buffer()).collect();
        let frames = in_frames.iter().zip(&mut buffers);
        let read = self.store.read(
            frames.map(|(begun, buf)| (self.stored(begun.partition, begun.cleaning.frame), &mut buf[..])),
        );
        if let Err(cause) = read {
            self.note_error(&cause);
            return self.give_up(&in_frames, cause);
        }
        let mut read = in_frames.iter().zip(buffers);
        let mut images = Vec::with_capacity(group.len());
        for begun in group {
            let image = match &begun.image {
                Some(image) => Ok(image.clone()),
                None => {
                    let Some((_, bytes)) = read.next() else { break };
                    Image::of_sealed(begun.id, bytes, Access::Random)
                }
            };
            match image {
                Ok(image) if image.lsn() == begun.cleaning.lsn => images.push(image),
                _ => {
                    let what = format!("the changed page {} is not in its frame on flash", begun.id);
                    return self.give_up(&[begun], PagerError::Corrupt { what });
                }
            }
        }
        Ok(Some(images))
    }

    /// Dirty frames can't be read: unless their pages have changed above meanwhile, only redo has them.
    #[cold]
    fn give_up(&self, begun: &[&Begun], cause: PagerError) -> Result<Option<Vec<Image>>> {
        let is_needed = |begun: &&Begun| self.table(begun.partition).lacks(begun.cleaning.frame, begun.id);
        if !begun.iter().any(is_needed) {
            return Ok(None);
        }
        self.lose(&cause);
        Err(cause)
    }
}
