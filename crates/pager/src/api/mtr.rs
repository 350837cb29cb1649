//! Mini-transactions: changes of a few pages that are in the log together or not at all.
//!
//! Invariants
//! 1. `apply` makes a change with the same function that recovery uses, and records the function's arguments.
//! 2. Everything that can fail comes before the first change: latching, reading, allocating, waiting for log
//!    space. Debug builds assert this. Changes and the commit can't fail.
//! 3. In the append section of the commit the page LSNs are set to the end of the group, clean pages enter
//!    the dirty-page table, and the caller's function runs. Latches are released after the append section.
//! 4. Under full-page-log the first change of a clean page is preceded by an image of the page in the log.
//!    Redo uses the image if a crash tears a write of the page. An image is logged at every change from clean
//!    to dirty, and not only once per checkpoint. The reason is that the redo position may move past the last
//!    image while the page is clean. (Redo itself logs no images: `running/checkpoint.rs`, 1.)
//! 5. If a mini-transaction is dropped after a change, without commit, the pager stops, because the pages
//!    differ from the log. A panic during a mini-transaction also stops the pager, because the engine was in
//!    the middle of a step.
//!
//! A mini-transaction allocates no memory: its records are collected in a buffer of the thread. The design
//! follows Mohan et al., ARIES (1992). Nested top actions are reduced to groups of pages, as in InnoDB.
//!
//! This module does not know the order in which pages are latched. The callers decide it.

use std::cell::RefCell;

use smallvec::SmallVec;
use varve_device::planted;

use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageRange, SpaceId};
use crate::base::lsn::Lsn;
use crate::base::page::PAGE_HEADER_BYTES;
use crate::home::protection::kind::ProtectionKind;
use crate::log::notes::time::{NOTE_TIME, TIME_BYTES, Timed};
use crate::log::redo::{self, FIRST_ENGINE_OP};
use crate::log::{Appended, record};
use crate::pool::{PageS, PageSx, PageX};
use crate::running::shared::Shared;
use crate::space::Pending;

/// The handle of a page within its mini-transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct H(pub(crate) u16);

const INLINE_PAGES: usize = 6;
/// A thread keeps its buffers for the next mini-transaction, unless they are larger than this.
const BUFFER_KEEP_BYTES: usize = 256 << 10;

thread_local! {
    static BUFFERS: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

enum Latched<'p> {
    S(PageS<'p>),
    Sx(PageSx<'p>),
    X(PageX<'p>),
    Released,
}

struct Slot<'p> {
    page: Latched<'p>,
    changed: bool,
}

/// A mini-transaction: its page changes are in the log together or not at all.
pub struct Mtr<'p> {
    shared: &'p Shared,
    pending: Pending<'p>,
    slots: SmallVec<[Slot<'p>; INLINE_PAGES]>,
    records: Vec<u8>,
    scratch: Vec<u8>,
    /// The page of the last record. A record names its page only if the record before it has another page.
    named: Option<PageId>,
    /// A page has been changed, so only the commit may follow.
    changed: bool,
    /// The mini-transaction was begun by a destructor during a panic, so it did not cause the panic.
    is_in_panic: bool,
    /// Before a clean page changes, its image is logged (`full-page-log`).
    keeps_images: bool,
    /// The position in `records` of a time, which is known only in the append section.
    time_at: Option<usize>,
}

impl<'p> Mtr<'p> {
    pub(crate) fn new(shared: &'p Shared) -> Mtr<'p> {
        let (records, scratch) = BUFFERS.with(RefCell::take);
        Mtr {
            shared,
            pending: Pending::new(&shared.spaces, &shared.pool),
            slots: SmallVec::new(),
            records,
            scratch,
            named: None,
            changed: false,
            is_in_panic: std::thread::panicking(),
            keeps_images: shared.config.protection == ProtectionKind::FullPageLog,
            time_at: None,
        }
    }

    fn hold(&mut self, page: Latched<'p>) -> H {
        let handle = u16::try_from(self.slots.len()).expect("a mini-transaction holds few pages");
        self.slots.push(Slot { page, changed: false });
        H(handle)
    }

    fn may_fail(&self) {
        debug_assert!(!self.changed, "a step that can fail after the first change of a mini-transaction");
    }

    /// Latches a page shared.
    pub fn s(&mut self, id: PageId) -> Result<H> {
        self.may_fail();
        let page = self.shared.pool.fix(id, Access::Random)?;
        Ok(self.hold(Latched::S(page)))
    }

    /// Latches a page shared-exclusive.
    pub fn sx(&mut self, id: PageId) -> Result<H> {
        self.may_fail();
        let page = self.shared.pool.fix(id, Access::Random)?;
        Ok(self.hold(Latched::Sx(page)))
    }

    /// Latches a page exclusive.
    pub fn x(&mut self, id: PageId) -> Result<H> {
        self.may_fail();
        let page = self.shared.pool.fix(id, Access::Random)?;
        Ok(self.hold(Latched::X(page)))
    }

    /// Latches a page exclusively, unless another thread holds its latch. Never waits for the latch.
    pub fn try_x(&mut self, id: PageId) -> Result<Option<H>> {
        self.may_fail();
        let page = self.shared.pool.try_fix(id, Access::Random)?;
        Ok(page.map(|page| self.hold(Latched::X(page))))
    }

    /// Turns a shared-exclusive latch into an exclusive one. Waits until no reader holds the latch.
    pub fn upgrade(&mut self, h: H) {
        let page = &mut self.slots[usize::from(h.0)].page;
        *page = match std::mem::replace(page, Latched::Released) {
            Latched::Sx(held) => Latched::X(held.upgrade()),
            held => held,
        };
    }

    /// Takes over an exclusively latched page.
    pub fn adopt(&mut self, g: PageX<'p>) -> H {
        self.hold(Latched::X(g))
    }

    /// Takes over a page latched shared-exclusive.
    pub fn adopt_sx(&mut self, g: PageSx<'p>) -> H {
        self.hold(Latched::Sx(g))
    }

    /// Makes a fresh page, exclusively latched and formatted. Its old content is not read. Pages are created
    /// one after the other, before the first change.
    pub fn create(&mut self, id: PageId, kind: u8, owner: u32) -> Result<H> {
        self.may_fail();
        let page = self.shared.pool.create(id)?;
        let h = self.hold(Latched::X(page));
        let mut payload = std::mem::take(&mut self.scratch);
        payload.clear();
        redo::put_format(&mut payload, kind, owner);
        self.change(h, redo::OP_FORMAT, &payload);
        self.scratch = payload;
        Ok(h)
    }

    /// Returns the bytes of a page.
    pub fn page(&self, h: H) -> &[u8] {
        match &self.slots[usize::from(h.0)].page {
            Latched::S(page) => page,
            Latched::Sx(page) => page,
            Latched::X(page) => page,
            Latched::Released => panic!("page handle {} was released", h.0),
        }
    }

    /// Returns the id of the page with this handle.
    pub fn id(&self, h: H) -> PageId {
        match &self.slots[usize::from(h.0)].page {
            Latched::S(page) => page.id(),
            Latched::Sx(page) => page.id(),
            Latched::X(page) => page.id(),
            Latched::Released => panic!("page handle {} was released", h.0),
        }
    }

    /// Returns the handle of a page that this mini-transaction has latched already.
    pub fn find(&self, id: PageId) -> Option<H> {
        let held = |slot: &Slot<'_>| match &slot.page {
            Latched::S(page) => page.id() == id,
            Latched::Sx(page) => page.id() == id,
            Latched::X(page) => page.id() == id,
            Latched::Released => false,
        };
        self.slots.iter().position(held).map(|at| H(at as u16))
    }

    /// Applies an engine operation (`op >= 16`) now and records it.
    ///
    /// Panics when the page is not exclusively latched or the operation refuses the payload.
    pub fn apply(&mut self, h: H, op: u8, payload: &[u8]) {
        assert!(op >= FIRST_ENGINE_OP, "operation {op} is the pager's own");
        self.changed = true;
        self.change(h, op, payload);
    }

    /// Overwrites bytes of the body and records it.
    pub fn write(&mut self, h: H, offset: usize, bytes: &[u8]) {
        self.changed = true;
        let mut payload = std::mem::take(&mut self.scratch);
        payload.clear();
        record::put_varint(&mut payload, offset as u64);
        payload.extend_from_slice(bytes);
        self.change(h, redo::OP_WRITE, &payload);
        self.scratch = payload;
    }

    /// Replaces the whole body (`bytes` begins where the page header ends) and records it.
    pub fn image(&mut self, h: H, bytes: &[u8]) {
        self.changed = true;
        let page = self.exclusive(h);
        let id = page.id();
        page.bytes_mut()[PAGE_HEADER_BYTES..].copy_from_slice(bytes);
        self.slots[usize::from(h.0)].changed = true;
        let mut payload = std::mem::take(&mut self.scratch);
        payload.clear();
        redo::put_image(&mut payload, self.page(h));
        self.record(id, redo::OP_IMAGE, &payload);
        self.scratch = payload;
    }

    fn exclusive(&mut self, h: H) -> &mut PageX<'p> {
        match &mut self.slots[usize::from(h.0)].page {
            Latched::X(page) => page,
            _ => panic!("page handle {} is not exclusively latched", h.0),
        }
    }

    fn change(&mut self, h: H, op: u8, payload: &[u8]) {
        if self.keeps_images && !redo::is_whole_page(op) {
            self.keep_image(h);
        }
        let ops = &*self.shared.ops;
        let page = self.exclusive(h);
        let id = page.id();
        assert!(id.space().is_logged(), "page {id} is not logged");
        let done = redo::apply(ops, id, page.bytes_mut(), op, payload);
        if let Err(why) = done {
            self.changed = true;
            panic!("operation {op} on page {id}: {why}");
        }
        self.slots[usize::from(h.0)].changed = true;
        self.record(id, op, payload);
    }

    /// If the page is clean, records its image. This is called before the page changes.
    fn keep_image(&mut self, h: H) {
        let is_changed = self.slots[usize::from(h.0)].changed;
        let page = self.exclusive(h);
        if is_changed || !page.is_clean() {
            return;
        }
        let (id, lsn) = (page.id(), page.lsn());
        let mut payload = Vec::with_capacity(page.len());
        redo::put_image(&mut payload, page);
        if planted("full-page-log: one image a checkpoint") && lsn >= self.shared.control.get().redo_start() {
            return;
        }
        self.record(id, redo::OP_IMAGE, &payload);
    }

    fn record(&mut self, id: PageId, op: u8, payload: &[u8]) {
        if self.named != Some(id) {
            record::put_page(&mut self.records, id);
            self.named = Some(id);
        }
        record::put_change(&mut self.records, op, payload);
    }

    /// Releases an unmodified page.
    pub fn release(&mut self, h: H) {
        let slot = &mut self.slots[usize::from(h.0)];
        assert!(!slot.changed, "a changed page stays latched until the commit");
        slot.page = Latched::Released;
    }

    /// Reserves a free page for `owner`, near the page `near` if that belongs to the owner. The descriptor
    /// page changes at the commit. The call fails if the space has no reserved pages left. A caller that
    /// needs many pages calls `Pager::reserve` first.
    pub fn allocate(&mut self, space: SpaceId, owner: u32, near: Option<PageId>) -> Result<PageId> {
        self.may_fail();
        self.pending.allocate(space, owner, near)
    }

    /// Reserves all pages of a free extent.
    pub fn allocate_extent(&mut self, space: SpaceId, owner: u32) -> Result<PageRange> {
        self.may_fail();
        self.pending.allocate_extent(space, owner)
    }

    /// Frees a page at commit. Threads that hold the page can read its bytes until the page is created again.
    pub fn free(&mut self, id: PageId) -> Result<()> {
        self.may_fail();
        self.pending.free(id)
    }

    /// Adds a note record, which belongs to no page.
    pub fn note(&mut self, kind: u8, payload: &[u8]) {
        record::put_note(&mut self.records, kind, payload);
    }

    /// Says that this mini-transaction commits a transaction. If the log is archived, it gets the time of the
    /// commit.
    pub fn note_commit(&mut self) {
        if self.shared.log.has_times() {
            record::put_note(&mut self.records, NOTE_TIME, &Timed::Commit.payload(0));
            self.time_at = Some(self.records.len() - TIME_BYTES);
        }
    }

    /// Appends the records to the log. Returns the LSN of the changes, or `Lsn::ZERO` if there were none.
    pub fn commit(self) -> Lsn {
        if self.records.is_empty() && self.pending.is_empty() { Lsn::ZERO } else { self.commit_with(|_| ()) }
    }

    /// Does the same as `commit`. In addition, `f` runs inside the log's append section. It gets the LSN of
    /// the changes, or the log's end if there were no changes. `f` must be short, and take no latch.
    pub fn commit_with(mut self, f: impl FnOnce(Lsn)) -> Lsn {
        let mut pending =
            std::mem::replace(&mut self.pending, Pending::new(&self.shared.spaces, &self.shared.pool));
        self.apply_pending(&mut pending);
        let log = &*self.shared.log;
        let lsn = if self.records.is_empty() {
            log.append_nothing(|end| {
                f(end);
                end
            })
        } else {
            self.changed_pages().filter(|page| page.is_clean()).for_each(|page| page.announce());
            let mut records = std::mem::take(&mut self.records);
            let time_at = self.time_at;
            let inside = |at: Appended| {
                self.changed_pages().for_each(|page| page.stamp(&at));
                f(at.end);
                at.end
            };
            let end = match time_at {
                Some(time_at) => log.append_timed(&mut records, time_at, inside),
                None => log.append(&records, inside),
            };
            self.records = records;
            end
        };
        self.changed = false;
        pending.committed();
        lsn
    }

    /// Changes the descriptor pages of the extents in which pages were allocated or freed.
    fn apply_pending(&mut self, pending: &mut Pending<'p>) {
        for of_descriptor in pending.by_descriptor() {
            let page = self.adopt(of_descriptor.lock());
            for change in of_descriptor.changes() {
                let (offset, entry) = change.entry(self.page(page));
                self.write(page, offset, &entry);
            }
        }
    }

    fn changed_pages(&mut self) -> impl Iterator<Item = &mut PageX<'p>> {
        self.slots.iter_mut().filter(|slot| slot.changed).filter_map(|slot| match &mut slot.page {
            Latched::X(page) => Some(page),
            _ => None,
        })
    }
}

impl Drop for Mtr<'_> {
    fn drop(&mut self) {
        let is_in_panic = std::thread::panicking();
        if is_in_panic && !self.is_in_panic {
            self.shared.log.panicked();
        } else if self.changed {
            let cause = "a mini-transaction was abandoned half-way".into();
            self.shared.log.poison(&PagerError::Stopped { cause }.to_string());
        }
        self.slots.clear();
        self.records.clear();
        if self.records.capacity() <= BUFFER_KEEP_BYTES {
            BUFFERS.set((std::mem::take(&mut self.records), std::mem::take(&mut self.scratch)));
        }
        assert!(!self.changed || is_in_panic, "a mini-transaction was dropped after a change");
    }
}
