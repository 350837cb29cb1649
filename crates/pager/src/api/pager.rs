//! The [`Pager`] is what the engine sees of pages, log and spaces.
//!
//! Invariants
//! 1. Pages are accessed through guards. Logged pages change only in mini-transactions.
//! 2. After a failed write or flush no mini-transaction begins, and no flush succeeds, but pages can still be
//!    read. If a full device refused the write, this applies only to writes of the log.
//! 3. Dropping a pager makes nothing durable. `shutdown` makes everything durable.
//!
//! This module does not know keys, rows or transactions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;
use varve_device::{planted, reached};

use crate::api::mark::mark;
use crate::api::mtr::Mtr;
use crate::api::stats::PagerStats;
use crate::base::compression::Compression;
use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageRange, SpaceId};
use crate::base::lsn::Lsn;
use crate::base::page::{self, kind};
use crate::base::times::Timing;
use crate::config::PagerConfig;
use crate::flash::{FlashConfig, FlashDesign, FlashSettings};
use crate::home::compression::by_owner::StoredPages;
use crate::home::files::file_name;
use crate::home::kind::HomeLayout;
use crate::home::packed::config::check_fill;
use crate::home::protection::kind::ProtectionKind;
use crate::home::trim::Trim;
use crate::log::Log;
use crate::log::panics::StopOnPanic;
use crate::log::redo::RedoOps;
use crate::nvm::{NvmFlush, NvmRegion};
use crate::open;
use crate::pool::{PageS, PageSx, PageX, held};
use crate::recovery::Recovery;
use crate::running::background;
use crate::running::journal::{CheckpointCause, CheckpointReport};
use crate::running::restart_bound::RestartEstimate;
use crate::running::shared::Shared;
use crate::space::{CheckReport, RESERVE_EXTENTS};

/// The least number of threads that write changed pages at a shutdown.
const LAST_WRITERS: usize = 4;

/// The file of the data space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFile {
    /// The name of the file in the directory of the data space.
    pub name: String,
    /// A number that no copy of the file has, or `None` if the file system does not have such a number.
    pub identity: Option<u64>,
}

/// An open set of spaces with their log.
pub struct Pager {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Pager {
    /// Creates a database, or opens it and recovers it by analysis and redo. The undo of losers is the
    /// engine's task.
    pub fn open(config: PagerConfig, ops: Arc<dyn RedoOps>) -> Result<Pager> {
        Pager::open_and(config, ops, Ok)
    }

    /// Opens a database and calls `begin` with the pager.
    ///
    /// After a shutdown that left changed pages on flash, the first start does no redo. If one of these pages
    /// can't be read from flash, the cache is lost, and the database stops. Then the database is opened a
    /// second time, with redo, which makes these pages again (decisions 0276, 0280, 0281).
    ///
    /// `begin` is called for each opening. Its result must be the only owner of the pager. Otherwise threads
    /// of the first pager would continue beside the second one. If the second start fails, its error is
    /// returned.
    pub fn open_and<T, E: From<PagerError>>(
        config: PagerConfig,
        ops: Arc<dyn RedoOps>,
        begin: impl Fn(Pager) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let shared = open::open(config.clone(), ops.clone())?;
        let sealed = shared.cache.clone().filter(|_| shared.started.is_behind_seal);
        let begun = Pager::opened(shared, None).map_err(E::from).and_then(&begin);
        // Another start only helps if the cache was the reason for the stop.
        let Some(cause) = sealed.as_ref().and_then(|cache| cache.why_stopped()).cloned() else {
            return begun;
        };
        drop((begun, sealed));
        reached("open: once more, behind what is read first");
        begin(Pager::opened(open::open(config, ops)?, Some(open::redone_after(&cause)))?)
    }

    fn opened(mut shared: Shared, warning: Option<String>) -> Result<Pager> {
        shared.started.warnings.extend(warning);
        let tidied =
            open::tablespaces::tidy(&shared.config, &mut shared.tablespaces.lock(), &shared.control)?;
        shared.started.warnings.extend(tidied);
        let shared = Arc::new(shared);
        if shared.control.get().wants_checkpoint() {
            let shortened = shared.clean_all().and_then(|()| shared.checkpoint(CheckpointCause::Start));
            // A full device must not keep the database from being opened: later openings and checkpoints try
            // again.
            shortened.or_else(|cause| if cause.is_no_space() { Ok(()) } else { Err(cause) })?;
        }
        let pager = Pager { shared, threads: Mutex::default() };
        mark(&pager.shared)?;
        background::start(&pager.shared, &mut pager.threads.lock())?;
        Ok(pager)
    }

    /// Returns the pager of a database that a restore has made, so that it can be shut down.
    pub(crate) fn restored(shared: Arc<Shared>) -> Pager {
        Pager { shared, threads: Mutex::default() }
    }

    /// Returns whether `open` made a new database.
    pub fn is_new(&self) -> bool {
        self.shared.started.is_new
    }

    /// Returns whether the database was shut down cleanly before `open` opened it.
    pub fn was_clean(&self) -> bool {
        self.shared.started.was_clean
    }

    /// Returns what the start did before the database was open, or `None` for a new one.
    pub fn recovery(&self) -> Option<Recovery> {
        self.shared.started.recovery
    }

    /// Returns what a start after a crash would have to do now, or `None` without a `recovery_target`.
    pub fn restart_estimate(&self) -> Option<RestartEstimate> {
        self.shared.restart_estimate()
    }

    /// Returns the warnings for the user at a start, for example if durability depends on the settings of a
    /// device.
    pub fn warnings(&self) -> Vec<String> {
        let config = &self.shared.config;
        let devices = [&config.control, &config.data, &config.log, &config.rollback, &config.temporary];
        let mut warnings: Vec<String> = Vec::new();
        let tablespaces = self.tablespace_directories();
        for device in devices.into_iter().chain(tablespaces.iter().map(|(_, directory)| directory)) {
            let found = device.capabilities().warnings.iter();
            warnings.extend(found.map(|warning| format!("{}: {warning}", device.location())));
        }
        warnings.extend(self.shared.started.warnings.iter().cloned());
        warnings.extend(self.shared.region.as_ref().and_then(NvmRegion::warning));
        if self.shared.started.postponed.region {
            let now = config.protection.name();
            warnings.push(format!(
                "the log moves into persistent memory behind a shutdown that leaves nothing to redo, and the last one was none: until then it is \
                 in files, and nothing is in an NVM region (protection {now}); stop it once more, and start again"
            ));
        }
        warnings.extend(self.shared.started.postponed.protection.map(|wanted| {
            let now = config.protection.name();
            format!(
                "protection {} begins behind a shutdown that leaves nothing to redo, and the last one was none: until then it is {now}; \
                 stop it once more, and start again",
                wanted.name()
            )
        }));
        if config.protection == ProtectionKind::None && config.layout == HomeLayout::InPlace {
            warnings.push("page protection is off: a crash may tear pages; for measuring only".into());
        }
        warnings.extend(self.saves_nothing().filter(|_| !config.compression.is_none()));
        warnings.sort();
        warnings.dedup();
        warnings
    }

    /// If compression saves no space, returns the reason. In place, pages are written in whole sectors, and a
    /// sector may be as long as a page.
    pub fn saves_nothing(&self) -> Option<String> {
        let config = &self.shared.config;
        let (page, lengths) = (config.page_size, open::stored_lengths(config));
        let is_so = config.layout == HomeLayout::InPlace && lengths.below(page).is_none();
        is_so.then(|| {
            format!(
                "compression saves nothing: a page of {page} bytes is written in place in {lengths}, so it takes one \
                 whatever is in it; choose a larger page size, or the layout packed, for a new database"
            )
        })
    }

    /// Sets the compression of pages whose owner has no compression of its own. It applies to later page
    /// writes.
    pub fn set_default_compression(&self, how: Compression) -> Result<()> {
        let _watch = self.stop_on_panic();
        self.prepare_compression(how)?;
        self.shared.compressions.set_default(how);
        Ok(())
    }

    /// Records durably that pages may be compressed. This must be done before the first owner gets a
    /// compression.
    pub fn prepare_compression(&self, how: Compression) -> Result<()> {
        let _watch = self.stop_on_panic();
        open::note_compression(&self.shared.control, how)?;
        if self.shared.control.get().has_compressed_pages {
            self.shared.trim.note_compressed();
        }
        Ok(())
    }

    /// Returns whether some pages may be compressed, because compression was configured at some time.
    pub fn has_compressed_pages(&self) -> bool {
        self.shared.control.get().has_compressed_pages
    }

    /// Sets the compression of pages of these owners from now on. `None` means the default. The setting is
    /// not stored: after every opening the caller sets it again with
    /// [`tell_compression`](Self::tell_compression).
    pub fn set_compression(&self, space: SpaceId, owners: &[(u32, Option<Compression>)]) {
        let is_noted = self.shared.control.get().has_compressed_pages;
        let is_plain = |how: Option<Compression>| how.is_none_or(Compression::is_none);
        assert!(is_noted || owners.iter().all(|(_, how)| is_plain(*how)), "compression before it is noted");
        self.shared.change_forms(space, owners);
    }

    /// After recovery, sets the compression of all owners that have one of their own. Until then the pager
    /// uses the compression that the log recorded, or that of the pages that it has read.
    pub fn tell_compression(&self, space: SpaceId, owners: &[(u32, Compression)]) -> Result<()> {
        let _watch = self.stop_on_panic();
        owners.iter().try_for_each(|(_, how)| self.prepare_compression(*how))?;
        self.shared.compressions.tell(space, owners);
        *self.shared.forms_noted.lock() = None;
        self.shared.keep_forms(self.shared.log.end());
        Ok(())
    }

    /// Removes the compression of an owner that is about to be dropped, so that a later owner with the same
    /// number does not inherit it.
    pub fn forget_compression(&self, space: SpaceId, owner: u32) {
        self.shared.change_forms(space, &[(owner, None)]);
        self.shared.compressions.forget_written(space, owner);
    }

    /// Returns, for each owner whose pages should be compressed, the pages that were written since the start,
    /// and their sizes.
    pub fn stored_pages(&self, space: SpaceId) -> HashMap<u32, StoredPages> {
        self.shared.compressions.written(space)
    }

    /// Returns the compression of pages whose owner has no compression of its own.
    pub fn default_compression(&self) -> Compression {
        self.shared.compressions.table().of_others()
    }

    /// Sets which free space inside files goes back to the devices from now on.
    pub fn set_trim(&self, trim: Trim) {
        self.shared.trim.set(trim);
    }

    /// Sets the fill limit of packed files, in percent. If more than this part of a file holds pages, the
    /// file grows. Otherwise reclamation frees space in it. Spaces with the in-place layout have no such
    /// limit.
    pub fn set_packed_fill(&self, percent: u8) -> Result<()> {
        let _watch = self.stop_on_panic();
        check_fill(percent)?;
        self.shared.fill.set(percent);
        Ok(())
    }

    /// Returns, for each owner (tree or rollback segment), the bytes that its pages take in the file of the
    /// space. Returns `None` for the in-place layout.
    pub fn home_bytes(&self, space: SpaceId) -> Result<Option<BTreeMap<u32, u64>>> {
        self.shared.spaces.home_bytes(space)
    }

    /// Returns, for each of these pages of the data space, whether the data file may lack changes that were
    /// appended to the log before this call. Another process can read the other pages from the file. Returns
    /// `None` if it can read no page, because pages are not in place, or may be compressed, or because
    /// persistent memory has pages that the file lacks.
    pub fn newer_than_home(&self, ids: &[PageId]) -> Option<Vec<bool>> {
        let shared = &self.shared;
        let is_readable = shared.config.layout == HomeLayout::InPlace
            && ids.iter().all(|id| id.space() == SpaceId::DATA)
            && shared.buffer.is_none()
            && !self.has_compressed_pages();
        is_readable.then(|| shared.ledger.has_each(ids))
    }

    /// Returns the name of the data space's file, and a number that no copy of the file has, if the file
    /// system knows one.
    pub fn data_file(&self) -> Result<DataFile> {
        let name = file_name(SpaceId::DATA);
        let identity = self.shared.config.data.identity(&name)?;
        Ok(DataFile { name, identity })
    }

    /// Returns the identity of the database.
    pub fn database_id(&self) -> u64 {
        self.shared.started.database
    }

    /// Returns the page size in bytes.
    pub fn page_size(&self) -> usize {
        self.shared.pool.page_size()
    }

    /// Returns the page, latched in shared mode.
    #[inline]
    pub fn fix_s(&self, id: PageId, access: Access) -> Result<PageS<'_>> {
        self.shared.pool.fix(id, access)
    }

    /// Returns the page, latched in shared-exclusive mode.
    #[inline]
    pub fn fix_sx(&self, id: PageId, access: Access) -> Result<PageSx<'_>> {
        self.shared.pool.fix(id, access)
    }

    /// Returns the page, latched in exclusive mode.
    #[inline]
    pub fn fix_x(&self, id: PageId, access: Access) -> Result<PageX<'_>> {
        self.shared.pool.fix(id, access)
    }

    /// Does the same as `fix_s`, but returns `None` instead of waiting for the latch. It may still wait until
    /// the page is read from a device.
    pub fn try_fix_s(&self, id: PageId, access: Access) -> Result<Option<PageS<'_>>> {
        self.shared.pool.try_fix(id, access)
    }

    /// Does the same as `fix_x`, but returns `None` instead of waiting for the latch. It may still wait until
    /// the page is read from a device.
    pub fn try_fix_x(&self, id: PageId, access: Access) -> Result<Option<PageX<'_>>> {
        self.shared.pool.try_fix(id, access)
    }

    /// Returns the page, latched in shared mode, if it is in the pool. No read is started. A descent of a
    /// tree that holds a latch uses this. If the page is not in the pool, the descent releases its latch
    /// before it reads the page.
    #[inline]
    pub fn fix_s_resident(&self, id: PageId, access: Access) -> Option<PageS<'_>> {
        self.shared.pool.fix_resident(id, access)
    }

    /// Does the same as `fix_s_resident`, for a page whose first `ahead` bytes will be searched. These bytes
    /// are fetched into the processor's cache together, while the page is latched.
    #[inline]
    pub fn fix_s_resident_ahead(&self, id: PageId, access: Access, ahead: usize) -> Option<PageS<'_>> {
        self.shared.pool.fix_resident_ahead(id, access, ahead)
    }

    /// Does the same as `fix_s_resident`, but latches the page in exclusive mode.
    #[inline]
    pub fn fix_x_resident(&self, id: PageId, access: Access) -> Option<PageX<'_>> {
        self.shared.pool.fix_resident(id, access)
    }

    /// Returns the number of these pages that are in the pool. The caller must not rely on it, because pages
    /// come and go.
    pub fn resident_count(&self, ids: &[PageId]) -> usize {
        ids.iter().filter(|id| self.shared.pool.is_resident(**id)).count()
    }

    /// Starts to read those pages that are not in the pool, all together, with sequential access. This is a
    /// hint: an error shows only when the page is fixed.
    pub fn prefetch(&self, ids: &[PageId]) {
        self.shared.pool.prefetch(ids);
    }

    /// Begins a mini-transaction. The call may wait for log space, or make a file grow. So the caller must
    /// hold no latch.
    pub fn begin(&self) -> Result<Mtr<'_>> {
        let _watch = self.stop_on_panic();
        held::assert_none();
        self.shared.admit()?;
        self.shared.pool.keep_free()?;
        let has_writers = self.shared.has_writers();
        self.shared
            .spaces
            .keep_free(RESERVE_EXTENTS, has_writers)
            .map_err(|cause| self.growth_failed(cause))?;
        Ok(Mtr::new(&self.shared))
    }

    /// Begins a mini-transaction that ends a transaction. It changes one or two pages, allocates none, and
    /// frees more space than it takes. So it waits for log space only.
    pub fn begin_end(&self) -> Result<Mtr<'_>> {
        let _watch = self.stop_on_panic();
        held::assert_none();
        self.shared.admit_to_log()?;
        self.shared.pool.keep_free()?;
        Ok(Mtr::new(&self.shared))
    }

    /// Returns a guard for a step of the engine that changes state which threads share. A panic that unwinds
    /// through the guard stops the database. Mini-transactions and the pager's own steps have such guards
    /// already.
    #[inline]
    pub fn stop_on_panic(&self) -> StopOnPanic<'_> {
        StopOnPanic::of(&*self.shared.log)
    }

    /// Returns whether the state in memory can be trusted: no panic has passed through the pager, a
    /// mini-transaction, or a guarded step. If one has, the database takes no more changes, and reads may
    /// return wrong data. The next start recovers. After any other panic this is still `true`, and the panic
    /// is an error of its statement only.
    #[inline]
    pub fn is_sound(&self) -> bool {
        !self.shared.log.has_panicked()
    }

    /// Stops the database: no change is accepted, and no page is written any more.
    pub(crate) fn stop(&self, cause: PagerError) {
        self.shared.log.poison(&cause.to_string());
    }

    /// Returns the log.
    pub fn log(&self) -> &Log {
        &self.shared.log
    }

    /// Makes the log durable up to `upto`.
    pub fn flush_log(&self, upto: Lsn) -> Result<()> {
        let _watch = self.stop_on_panic();
        if planted("log: a commit's flush is dropped") {
            return Ok(());
        }
        let log = &self.shared.log;
        if upto <= log.durable() {
            return Ok(());
        }
        Ok(self.shared.config.times.of(Timing::LogWait, || log.flush(upto))?)
    }

    /// Returns the end of the durable log.
    #[inline]
    pub fn durable_lsn(&self) -> Lsn {
        self.shared.log.durable()
    }

    /// Ensures that `pages` pages are free in whole extents, and grows the file if necessary. The caller
    /// holds no latch. Other threads may take the pages first, so an allocation can still fail. The caller
    /// then reserves again.
    pub fn reserve(&self, space: SpaceId, pages: u32) -> Result<()> {
        let _watch = self.stop_on_panic();
        let reserved = match self.shared.spaces.reserve(space, pages) {
            Err(error) if error.is_no_space() => {
                // The thread that makes log segments may have taken the last space for a while, and returned
                // it.
                self.shared.log.await_segment();
                self.shared.spaces.reserve(space, pages)
            }
            reserved => reserved,
        };
        reserved.map_err(|cause| self.growth_failed(cause))
    }

    /// Returns the error of a file that could not grow. If the device is full, the file is unchanged, and the
    /// database continues. After any other failure the state of the file is unknown, so the database stops.
    #[cold]
    fn growth_failed(&self, cause: PagerError) -> PagerError {
        let is_harmless = cause.is_no_space() || matches!(cause, PagerError::NoSuchTablespace { .. });
        if !is_harmless {
            self.stop(cause.clone());
        }
        cause
    }

    /// Makes a new owner of pages. It is durable after the next flush of the log.
    pub fn create_segment(&self, space: SpaceId) -> Result<u32> {
        let _watch = self.stop_on_panic();
        self.new_segment(space)
    }

    /// Frees all pages of an owner. No thread may use them any more. After a crash the call can be repeated.
    pub fn drop_segment(&self, space: SpaceId, owner: u32) -> Result<()> {
        let _watch = self.stop_on_panic();
        self.drop_pages_of(space, owner)
    }

    /// Returns the owners of a space, with the number of allocated pages of each.
    pub fn owners(&self, space: SpaceId) -> Result<BTreeMap<u32, u64>> {
        self.shared.spaces.owners(space)
    }

    /// Returns the owner of the extent that contains the page. `None` means that the extent is free or
    /// belongs to the pager. No page is read.
    pub fn owner_of(&self, id: PageId) -> Option<u32> {
        self.shared.spaces.owner_of(id)
    }

    /// Returns the space in which this owner of a table or an index has pages. If it has none, it is the data
    /// space.
    pub fn space_of_owner(&self, owner: u32) -> SpaceId {
        self.shared.spaces.space_of_owner(owner)
    }

    /// Returns the data space and the tablespaces.
    pub fn spaces_of_tables(&self) -> Vec<SpaceId> {
        self.shared.spaces.of_tables()
    }

    /// Returns the pages that are allocated to an owner, in the order of their numbers.
    pub fn pages_of_owner(&self, space: SpaceId, owner: u32) -> Result<Vec<PageId>> {
        self.shared.spaces.pages_of_owner(space, owner)
    }

    /// Allocates an extent of the temporary space. Its pages are not logged, and a restart drops them.
    pub fn take_temporary(&self) -> Result<PageRange> {
        let _watch = self.stop_on_panic();
        self.shared.spaces.take_temporary()
    }

    /// Frees an extent of the temporary space.
    pub fn give_temporary(&self, pages: PageRange) -> Result<()> {
        let _watch = self.stop_on_panic();
        self.shared.pool.discard(pages, Lsn::ZERO)?;
        self.shared.spaces.give_temporary(pages)
    }

    /// Makes an empty page in an extent from [`Pager::take_temporary`]. The caller fills it through
    /// [`PageX::temporary_mut`].
    pub fn create_temporary(&self, id: PageId) -> Result<PageX<'_>> {
        let _watch = self.stop_on_panic();
        let mut new = self.shared.pool.create(id)?;
        page::format(new.bytes_mut(), id, kind::TEMPORARY, 0);
        new.temporary_mut();
        Ok(new)
    }

    /// Takes a checkpoint of the configured kind. The pages that this kind needs in the data files are
    /// written first.
    pub fn checkpoint(&self) -> Result<()> {
        let _watch = self.stop_on_panic();
        self.shared.checkpoint_of_kind(CheckpointCause::Request)
    }

    /// Makes every dirty page stable, and then stores a checkpoint, as SQL's CHECKPOINT does. Pages that are
    /// changed meanwhile may have to wait for the next checkpoint. If pages are kept in persistent memory,
    /// they are stable there, and need not be in the data files.
    pub fn checkpoint_all(&self) -> Result<()> {
        let _watch = self.stop_on_panic();
        self.shared.clean_until(self.shared.log.end())?;
        self.shared.checkpoint(CheckpointCause::Request)
    }

    /// Writes up to `pages` dirty pages, oldest change first, and returns the number of written pages. It is
    /// used if `background` is false.
    pub fn tick_write(&self, pages: usize) -> Result<usize> {
        let _watch = self.stop_on_panic();
        self.shared.clean_oldest(pages)
    }

    /// Writes up to `pages` pages from persistent memory to the data files, oldest first. Returns the number
    /// of writes that began.
    pub fn tick_nvm(&self, pages: usize) -> Result<usize> {
        let _watch = self.stop_on_panic();
        self.shared.buffer.as_ref().map_or(Ok(0), |buffer| buffer.flush_some(pages))
    }

    /// Writes all dirty pages, stores a clean checkpoint, and stops the threads. Nothing can be changed
    /// afterwards. No mini-transaction may be running. If a device is full, nothing is lost, and `shutdown`
    /// can be called again.
    pub fn shutdown(&self) -> Result<()> {
        let _watch = self.stop_on_panic();
        self.stop_threads();
        if !self.shared.has_left_region() {
            self.store_all().inspect_err(|_| {
                if let Some(cache) = &self.shared.cache {
                    cache.stay_no_more();
                }
            })?;
            self.shared.log.poison("it was shut down");
        }
        match self.shared.region.as_ref().filter(|_| self.shared.leaves_region()) {
            Some(region) => region.remove(),
            None => Ok(()),
        }
    }

    /// Makes everything durable that the next start needs.
    fn store_all(&self) -> Result<()> {
        let stays_dirty = self.shared.leaves_pages_on_flash();
        if self.shared.config.background {
            // The threads have no other work now, and one batch leaves some of home's disks idle at its end.
            let workers = &self.shared.workers;
            let _fewer_do = workers.resize(workers.count().max(LAST_WRITERS) - 1);
        }
        self.shared.bring_all_home()?;
        let is_clean = !stays_dirty || self.shared.ledger.oldest().is_none();
        self.shared.checkpoint(CheckpointCause::Shutdown { is_clean })?;
        self.shared.cache.as_ref().map_or(Ok(()), |cache| self.shared.harden_all(cache, stays_dirty))?;
        // If pages stay on flash, the shutdown is clean all the same. So the identities of the running server
        // are cleared.
        match self.shared.control.get().running {
            [0, 0, 0] => Ok(()),
            _ => self.shared.control.update(|superblock| superblock.running = [0; 3]),
        }
    }

    /// Makes `shutdown` leave the region of persistent memory, if there is one. All pages are written to the
    /// data files, a log in the region ends, and the region's file is removed. The next start begins an empty
    /// log, in files or in a new region.
    pub fn leave_region_at_shutdown(&self) {
        self.shared.leaves_region.store(true, Ordering::Relaxed);
    }

    /// Sets the marks at which pages are written from persistent memory to the data files, and whether this
    /// also happens when the database is idle. The number of threads does not change.
    pub fn set_nvm_flush(&self, flush: NvmFlush) -> Result<()> {
        let _watch = self.stop_on_panic();
        PagerConfig { nvm_flush: flush, ..self.shared.config.clone() }.check()?;
        if let Some(buffer) = &self.shared.buffer {
            buffer.set_flush(flush);
        }
        Ok(())
    }

    /// Changes the design of the flash cache. If the old design kept changed pages on flash only, this waits
    /// until the data files have them. The result is `Err` if there is no flash cache, or if the data files
    /// have no space for these pages.
    pub fn set_flash_design(&self, design: FlashDesign) -> Result<()> {
        let _watch = self.stop_on_panic();
        let Some(cache) = &self.shared.cache else {
            let what =
                "there is no flash cache whose design could be changed: configure [flash], and start again";
            return Err(PagerError::Incompatible { what: what.into() });
        };
        cache.set_design(design)
    }

    /// Sets the limit of dirty slots of the flash cache, in percent of all slots. The limit applies to
    /// designs that keep changed pages on flash only.
    pub fn set_flash_dirty_limit(&self, percent: u8) -> Result<()> {
        let _watch = self.stop_on_panic();
        FlashConfig::check_dirty_percent(percent)?;
        if let Some(cache) = &self.shared.cache {
            cache.set_dirty_percent(percent);
        }
        Ok(())
    }

    /// Sets how many bytes a day may be written to the device of the flash cache. `None` means no limit.
    pub fn set_flash_daily_writes(&self, bytes: Option<u64>) -> Result<()> {
        let _watch = self.stop_on_panic();
        FlashConfig::check_daily_writes(bytes)?;
        if let Some(cache) = &self.shared.cache {
            cache.set_daily_writes(bytes);
        }
        Ok(())
    }

    /// Applies those settings of the flash cache that can change while the database is open. The size is set
    /// by [`set_flash_size`](Self::set_flash_size). The limit of dirty pages is applied before the design,
    /// because the new design uses it at once.
    pub fn set_flash_settings(&self, next: &FlashSettings) -> Result<()> {
        self.set_flash_dirty_limit(next.dirty_percent)?;
        self.set_flash_daily_writes(next.daily_write_bytes)?;
        self.set_flash_design(next.design)
    }

    /// Changes the length of the flash cache's file. The cache is empty afterwards. This waits until the data
    /// files have all changed pages of the cache. The result is `Err` if there is no cache, or no space. Then
    /// nothing has changed.
    pub fn set_flash_size(&self, bytes: u64) -> Result<()> {
        let _watch = self.stop_on_panic();
        let config = &self.shared.config;
        let (Some(cache), Some(flash)) = (&self.shared.cache, &config.flash) else {
            let what =
                "there is no flash cache that could have another size: configure [flash], and start again";
            return Err(PagerError::Incompatible { what: what.into() });
        };
        let settings = FlashSettings { size_bytes: bytes, ..flash.settings };
        let next = FlashConfig { settings, ..flash.clone() };
        next.check(config.page_size, config.log_bytes())?;
        cache.resize(next.slots(config.page_size))
    }

    /// Returns the events since the last call that were no error of a call, but must be reported. The only
    /// such event is the loss of the flash cache. It is rare, and the server calls this from time to time.
    pub fn take_notices(&self) -> Vec<String> {
        self.shared.cache.as_ref().map(|cache| cache.take_notices()).unwrap_or_default()
    }

    /// Returns whether a stop of the pager has begun.
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Takes the checkpoints since the last call, oldest first. Only the newest 256 are kept.
    pub fn take_checkpoints(&self) -> Vec<CheckpointReport> {
        self.shared.journal.take()
    }

    /// Returns the last time at which a device had no space for the work of the background threads, and the
    /// error, which names the device.
    pub fn refused_for_space(&self) -> Option<(Instant, String)> {
        self.shared.refused.lock().as_ref().map(|(when, cause)| (*when, cause.to_string()))
    }

    /// Returns whether there is a flash cache, and it is not lost.
    pub fn has_flash(&self) -> bool {
        self.shared.cache.as_ref().is_some_and(|cache| !cache.is_lost())
    }

    /// Returns the design of the flash cache in force, or `None` if there is no cache.
    pub fn flash_design(&self) -> Option<FlashDesign> {
        self.shared.cache.as_ref().map(|cache| cache.design())
    }

    /// Returns the configuration with which the database was opened. Later changes of settings are not in it.
    pub fn config(&self) -> &PagerConfig {
        &self.shared.config
    }

    /// Checks whether the next start would accept this configuration, after a clean shutdown.
    pub fn check_next(&self, next: &PagerConfig) -> Result<()> {
        let mut next = PagerConfig { page_size: self.page_size(), ..next.clone() };
        if let Some(region) = &self.shared.region {
            region.fits(&next.wanted_region())?;
        }
        open::fit(&mut next, &self.shared.control.get())
    }

    /// Sets the number of threads that write pages, at least one. The doublewrite file keeps its areas until
    /// the next start. Without `background` there are no such threads, whatever the number is.
    pub fn set_page_writers(&self, writers: usize) -> Result<()> {
        let _watch = self.stop_on_panic();
        let config = PagerConfig { page_writers: writers, ..self.shared.config.clone() };
        self.shared.workers.resize(config.workers())
    }

    fn stop_threads(&self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.pool.ring();
        self.shared.trimmer.ring();
        for thread in self.threads.lock().drain(..) {
            let _a_panic_was_printed = thread.join();
        }
    }

    /// Counters.
    pub fn stats(&self) -> PagerStats {
        let (pool, counters) = (&self.shared.pool, &self.shared.counters);
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        PagerStats {
            frames: pool.frame_count() as u64,
            free_frames: pool.free_count() as u64,
            dirty_frames: pool.dirty_count() as u64,
            fixes: pool.fix_count(),
            misses: read(&counters.misses),
            prefetched: read(&counters.prefetched),
            evictions: read(&counters.evictions),
            evict_writes: read(&counters.evict_writes),
            inline_writes: read(&counters.inline_writes),
            checkpoint_writes: read(&counters.checkpoint_writes),
            checkpoints: read(&counters.checkpoints),
            requested_checkpoints: self.shared.journal.totals().0,
            checkpoint_micros: self.shared.journal.totals().1,
            data_pages: self
                .spaces_of_tables()
                .iter()
                .map(|space| self.shared.spaces.used_pages(*space))
                .sum(),
            rollback_pages: self.shared.spaces.used_pages(SpaceId::ROLLBACK),
            levels: self.shared.level.report(),
        }
    }

    /// Reads and verifies every allocated page, and compares the allocation on the device with the allocation
    /// in memory. No mini-transaction may be in progress.
    pub fn check(&self) -> Result<CheckReport> {
        let mut report = self.shared.spaces.check(&self.shared.pool, self.shared.started.database)?;
        self.shared.level.check(&mut report.damages)?;
        Ok(report)
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        self.stop_threads();
    }
}
