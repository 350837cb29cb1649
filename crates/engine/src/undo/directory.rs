//! The directory of all rollback segments, and the pool of idle segments.
//!
//! Invariants
//! 1. The mini-transaction that makes a segment's pages also lists it in the directory, so no segment is
//!    lost.
//! 2. A segment is either in the pool or used by one transaction.
//!
//! This module does not know transactions or the content of undo records.

use parking_lot::Mutex;
use varve_pager::{Access, PageId, Pager, SpaceId};

use super::Mark;
use super::page::{self, HeaderPage, KIND_DIRECTORY, KIND_HEADER, KIND_UNDO};
use super::segment::{Segment, not_undo};
use crate::error::{Error, Result};
use crate::ids::TxnId;

/// The segments that no transaction uses.
pub(crate) struct SegmentPool {
    directory: PageId,
    idle: Mutex<Vec<Segment>>,
    /// Only one segment is made at a time.
    making: Mutex<()>,
}

/// A rollback segment as `open` found it after a restart.
pub(crate) struct RestoredSegment {
    pub(crate) header: PageId,
    /// The beginning of its undo.
    pub(crate) head: PageId,
    /// The end of the undo of committed transactions.
    pub(crate) committed_end: Mark,
    /// The loser: a transaction that was neither committed nor undone completely.
    pub(crate) loser: Option<(TxnId, Segment)>,
}

impl SegmentPool {
    /// Makes an empty directory page in an empty segment, and returns its id.
    pub(crate) fn create(pager: &Pager, owner: u32) -> Result<PageId> {
        pager.reserve(SpaceId::ROLLBACK, 1)?;
        let mut mtr = pager.begin()?;
        let id = mtr.allocate(SpaceId::ROLLBACK, owner, None)?;
        mtr.create(id, KIND_DIRECTORY, owner)?;
        mtr.commit();
        Ok(id)
    }

    /// Reads all segments. Idle segments are added to the pool, and segments with losers are returned.
    pub(crate) fn open(pager: &Pager, directory: PageId) -> Result<(Self, Vec<RestoredSegment>)> {
        let pool = Self { directory, idle: Mutex::default(), making: Mutex::default() };
        let headers = {
            let page = pager.fix_s(directory, Access::Random)?;
            if varve_pager::page::page_kind(&page) != KIND_DIRECTORY {
                return Err(not_undo(directory));
            }
            page::listed(&page).ok_or_else(|| not_undo(directory))?
        };
        // The pages are spread over the whole data file. On disks, reading them one by one would take most of
        // the time of a start.
        pager.prefetch(&headers);
        let tail = |header: &PageId| {
            let page = pager.fix_s(*header, Access::Random)?;
            HeaderPage::new(&page).map(|read| read.tail()).ok_or_else(|| not_undo(*header))
        };
        let tails = headers.iter().map(tail).collect::<Result<Vec<PageId>>>()?;
        pager.prefetch(&tails);
        let found = headers.into_iter().map(|header| pool.find(pager, header)).collect::<Result<_>>()?;
        Ok((pool, found))
    }

    fn find(&self, pager: &Pager, header: PageId) -> Result<RestoredSegment> {
        let segment = Segment::open(pager, header)?;
        let (head, txn) = {
            let page = pager.fix_s(header, Access::Random)?;
            let read = HeaderPage::new(&page).ok_or_else(|| not_undo(header))?;
            (read.head(), TxnId::read(read.txn()).ok_or_else(|| not_undo(header))?)
        };
        let committed_end = segment.start().unwrap_or(segment.top());
        let mut found = RestoredSegment { header, head, committed_end, loser: None };
        match segment.start() {
            Some(_) => found.loser = Some((txn, segment)),
            None => self.idle.lock().push(segment),
        }
        Ok(found)
    }

    /// Takes an idle segment, or makes one if there is none. The caller holds no latch.
    pub(crate) fn take(&self, pager: &Pager) -> Result<Segment> {
        if let Some(segment) = self.idle.lock().pop() {
            return Ok(segment);
        }
        self.make(pager)
    }

    /// Returns the owners of the segments in a directory page.
    pub(crate) fn owners(pager: &Pager, directory: u32) -> Result<Vec<u32>> {
        let directory = page::undo_page(directory);
        let headers = page::listed(&pager.fix_s(directory, Access::Random)?);
        let headers = headers.ok_or_else(|| not_undo(directory))?;
        let owner =
            |header| pager.fix_s(header, Access::Random).map(|page| varve_pager::page::page_owner(&page));
        Ok(headers.into_iter().map(owner).collect::<std::result::Result<_, _>>()?)
    }

    /// Returns an idle segment to the pool, if there is one.
    pub(crate) fn put_back_from(&self, segment: &mut Option<Segment>) {
        if let Some(segment) = segment.take() {
            self.put_back(segment);
        }
    }

    /// Returns an idle segment to the pool.
    pub(crate) fn put_back(&self, segment: Segment) {
        assert!(segment.start().is_none(), "a segment in use goes back to the pool");
        self.idle.lock().push(segment);
    }

    #[cold]
    fn make(&self, pager: &Pager) -> Result<Segment> {
        let _one = self.making.lock();
        let owner = pager.create_segment(SpaceId::ROLLBACK)?;
        pager.reserve(SpaceId::ROLLBACK, 2)?;
        let mut mtr = pager.begin()?;
        let directory = mtr.x(self.directory)?;
        let headers = page::listed(mtr.page(directory)).ok_or_else(|| not_undo(self.directory))?;
        if headers.len() >= page::listed_max(pager.page_size()) {
            return Err(Error::Unsupported { what: "this number of transactions that write at once".into() });
        }
        let header = mtr.allocate(SpaceId::ROLLBACK, owner, None)?;
        let first = mtr.allocate(SpaceId::ROLLBACK, owner, Some(header))?;
        let made = mtr.create(header, KIND_HEADER, owner)?;
        mtr.create(first, KIND_UNDO, owner)?;
        page::set_ends(&mut mtr, made, first, first);
        page::list(&mut mtr, directory, header);
        mtr.commit();
        Segment::open(pager, header)
    }
}
