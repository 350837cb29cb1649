//! Opens a database: makes a new one, or recovers an existing one.
//!
//! A new database is made in this order: control file (state creating), NVM region if one is configured,
//! empty log, space files and doublewrite file. Then the control file gets the state open. If a crash
//! interrupts this, the next start begins again, with another database id. It removes the log and the cache
//! file of the interrupted start.
//!
//! An existing database is opened in this order:
//! 1. control file
//! 2. headers of the files with the in-place layout
//! 3. analysis of the log
//! 4. headers of packed files
//! 5. a new life of the log (`open/begin.rs`)
//! 6. repair of torn pages
//! 7. redo
//! 8. allocation maps
//!
//! A log begins empty if it moves between files and a region, or if it was left in a region. The last
//! shutdown was clean then, so nothing has to be analysed or redone.
//!
//! Invariants
//! 1. Nothing is written before the files are known to fit together and to fit the configuration.
//! 2. The space files are flushed before redo reads them, because a killed process may have left page writes
//!    in caches.
//! 3. Analysis only reads. Repair and redo change the data files after the control file has the log's new
//!    life.
//! 4. Pages are repaired with the protection that was in force at the last run. The configured protection
//!    comes into force when every page is repaired and its files are ready. The control file records it
//!    before it writes its first page.
//!
//! This module does not know what records mean, or how pages are repaired.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use parking_lot::Mutex;
use varve_device::{Capabilities, Directory, planted, reached};

use crate::base::compression::Compression;
use crate::base::error::{PagerError, Result};
use crate::base::ids::{PageId, SpaceId};
use crate::base::lsn::Lsn;
use crate::config::PagerConfig;
use crate::control::tablespaces::TablespaceList;
use crate::control::{Control, InForce, Sealed, State, Superblock, random_id};
use crate::flash::{self, Earlier, FlashCache, FlashRestart, Noted};
use crate::home::compression::by_owner::Compressions;
use crate::home::compression::stored_page::StoredLengths;
use crate::home::files::{self, SpaceFile, SpaceFiles};
use crate::home::in_place::{InPlace, InPlaceParts};
use crate::home::kind::HomeLayout;
use crate::home::layouts::Layouts;
use crate::home::packed::config::PackedConfig;
use crate::home::packed::{self, PackedSpace};
use crate::home::protection::Mended;
use crate::home::protection::kind::ProtectionKind;
use crate::home::trim::TrimSetting;
use crate::home::{Home, protection};
use crate::level::Level;
use crate::level::ledger::Ledger;
use crate::log::notes::written::{self, NOTE_WRITTEN};
use crate::log::redo::RedoOps;
use crate::log::{Log, LogConfig, LogError, Observe, StoredLog};
use crate::nvm::{self, NvmRegion, RegionPlan};
use crate::pool::{Bell, Counters, Pool, PoolParts};
use crate::recovery::{self, CountedLog, News, Over, Plan, ReadLog, Recovery, RedoReport};
use crate::running::journal::CheckpointJournal;
use crate::running::restart_bound::RestartBound;
use crate::running::shared::{Postponed, Shared, StartOutcome};
use crate::running::workers::Workers;
use crate::space::Spaces;

mod begin;
mod copied;
mod found;
mod headers;
pub(crate) mod restored;
mod stack;
pub(crate) mod tablespaces;

use begin::{begin_log, find_region, postpone_images, postpone_region, read_log};
pub use found::{NvmFound, RegionFound};
use stack::{Stack, stack};
use tablespaces::{TablespaceParts, TablespacePlace};

/// The files, the levels and the pool of a database whose log is open.
struct Parts {
    ledger: Arc<Ledger>,
    counters: Arc<Counters>,
    stack: Stack,
    pool: Pool,
    spaces: Spaces,
    compressions: Arc<Compressions>,
    trim: Arc<TrimSetting>,
    fill: Arc<packed::Fill>,
    /// Pages that the protection has repaired.
    mended: Vec<Mended>,
    /// A warning of the protection about its opening.
    warning: Option<String>,
}

/// Creates a database, or opens and recovers an existing one.
pub(crate) fn open(mut config: PagerConfig, ops: Arc<dyn RedoOps>) -> Result<Shared> {
    config.check()?;
    match Control::open(&*config.control)? {
        Some(control) if control.get().state == State::Restoring => Err(restored::unfinished(&config)),
        Some(control) if control.get().state != State::Creating => {
            let postponed = Postponed {
                protection: postpone_images(&mut config, &control.get()),
                region: postpone_region(&mut config, &control.get()),
            };
            fit(&mut config, &control.get())?;
            let was_clean = control.get().state == State::Clean;
            let accepted = copied::refuse_copy(&config, &control.get())?;
            let mut behind_seal = None;
            let recovered = recover(config.clone(), control, ops.clone(), &mut behind_seal);
            let lost = behind_seal.and_then(|cache| cache.why_stopped().cloned());
            let mut shared = match (recovered, lost) {
                (Err(_), Some(lost)) => open_without_seal(config, ops, &lost)?,
                (recovered, _) => recovered?,
            };
            shared.started.warnings.extend(accepted);
            shared.started.postponed = postponed;
            shared.started.was_clean = was_clean;
            Ok(shared)
        }
        unfinished => {
            if unfinished.is_none() {
                refuse_leftovers(&config)?;
            }
            let before = unfinished.map(|control| control.get());
            create(config, before, ops)
        }
    }
}

/// Opens the database a second time, with redo, after a start without redo has `lost` the cache. That start
/// has already removed the seal. Redo makes the pages that could not be read from flash.
fn open_without_seal(config: PagerConfig, ops: Arc<dyn RedoOps>, lost: &PagerError) -> Result<Shared> {
    let Some(control) = Control::open(&*config.control)? else { return Err(lost.clone()) };
    assert!(control.get().sealed.is_none(), "a start takes the seal away before it goes on with the cache");
    reached("open: once more, with redo");
    let mut shared = recover(config, control, ops, &mut None)?;
    shared.started.warnings.push(redone_after(lost));
    Ok(shared)
}

/// Returns the warning of a start that had to do redo in spite of a seal, because the cache was `lost`.
pub(crate) fn redone_after(lost: &PagerError) -> String {
    let why = match lost {
        PagerError::Stopped { cause } => cause.to_string(),
        other => other.to_string(),
    };
    format!(
        "a start with the flash cache as it was left was refused, and another one redid what only the cache had: {why}; check its drive"
    )
}

/// Replaces values of the configuration by those of the existing database: page size and layout are fixed at
/// creation, and the segment size when the log begins.
pub(crate) fn fit(config: &mut PagerConfig, stored: &Superblock) -> Result<()> {
    config.layout = match (stored.packed, config.layout) {
        (false, _) => HomeLayout::InPlace,
        (true, HomeLayout::InPlace) => HomeLayout::Packed(PackedConfig::DEFAULT),
        (true, packed) => packed,
    };
    config.protection = config.protection_needed();
    config.page_size = stored.page_size as usize;
    if !stored.log_begins_empty {
        config.log_segment_bytes = stored.log_segment_bytes;
    }
    config.check()
}

/// Returns an error if there are data files but no control file. A new database is not made there.
fn refuse_leftovers(config: &PagerConfig) -> Result<()> {
    for (space, directory) in durable_spaces(config) {
        let name = files::file_name(space);
        if directory.exists(&name)? {
            return Err(PagerError::Incompatible {
                what: format!(
                    "{} holds {name}, but {} holds no control file: restore it, or choose an empty directory",
                    directory.location(),
                    config.control.location()
                ),
            });
        }
    }
    if StoredLog::any(&*config.log)? {
        return Err(LogError::NoControl { location: config.log.location() }.into());
    }
    Ok(())
}

fn durable_spaces(config: &PagerConfig) -> [(SpaceId, &Arc<dyn Directory>); 2] {
    [(SpaceId::DATA, &config.data), (SpaceId::ROLLBACK, &config.rollback)]
}

fn log_config(config: &PagerConfig) -> LogConfig {
    LogConfig {
        directory: config.log.clone(),
        segment_bytes: config.log_segment_bytes,
        capacity_bytes: config.log_capacity_bytes,
    }
}

/// Creates a database. `before` is the control file that an unfinished creation has left.
fn create(mut config: PagerConfig, before: Option<Superblock>, ops: Arc<dyn RedoOps>) -> Result<Shared> {
    if let Some(log) = nvm::layout::Layout::of(&config.wanted_region())?.and_then(|layout| layout.log) {
        config.log_segment_bytes = log.segment_bytes;
        config.check()?;
    }
    config.protection = config.protection_needed();
    let database = random_id();
    let unneeded =
        before.as_ref().and_then(|before| before.attached.map(|it| it.region).or(before.unneeded_region));
    let room = RegionPlan::find(&config.wanted_region(), database, unneeded)?;
    if let Some(before) = before {
        StoredLog::remove_of(&*config.log, before.database)?;
        if let Some(cache) = &config.flash {
            flash::remove_of(&*cache.directory, before.database);
        }
    }
    room.as_ref().map_or(Ok(()), RegionPlan::vacate)?;
    let id = random_id();
    let mut first = Superblock::new(database, config.page_size as u32, config.log_segment_bytes);
    first.start = random_id();
    first.protection = config.protection.in_force();
    let attached = room.as_ref().map(|room| room.attached(id));
    first.attached = attached.filter(|_| !planted("nvm: the control file does not name the region"));
    first.packed = matches!(config.layout, HomeLayout::Packed(_));
    let control = Control::create(&*config.control, first)?;
    let region = room.map(|room| room.make(database, id)).transpose()?;
    if let Some(region) = &region {
        config.place_log(region);
    }
    let (log, _) = ReadLog::empty(log_config(&config), database)?.begin_life(
        &*config.control,
        &control,
        News::default(),
    )?;
    let log = begun(&config, log);
    let parts = assemble(&config, &control, region.as_ref(), &log, Start::Empty, &[])?;
    if let Some(cache) = &parts.stack.cache {
        // The control file has the number of the start already, and the new cache file has nothing that could
        // be taken for that of another start.
        cache.begin(control.get().start, None, |_| Ok(()))?;
    }
    let keeps_records = parts.stack.keeps_records();
    parts.spaces.create(database)?;
    config.data.sync()?;
    config.rollback.sync()?;
    let running = copied::running(&config)?;
    control.update(|superblock| {
        superblock.running = running;
        superblock.has_cache = keeps_records;
        superblock.state = State::Open;
    })?;
    let list = TablespaceList::read(&*config.control, &control)?;
    finish(config, control, list, region, parts, log, ops, None)
}

/// Returns the log of this start, before anything is appended to it.
fn begun(config: &PagerConfig, log: Log) -> Arc<Log> {
    if config.archives {
        log.serve_archive();
    }
    Arc::new(log)
}

/// Opens and recovers an existing database. If this start continues with a sealed cache, `behind_seal` gets
/// the cache.
fn recover(
    mut config: PagerConfig,
    control: Control,
    ops: Arc<dyn RedoOps>,
    behind_seal: &mut Option<Arc<FlashCache>>,
) -> Result<Shared> {
    let began = Instant::now();
    let list = TablespaceList::read(&*config.control, &control)?;
    let tablespaces = tablespaces::find(&config, &list, &control.get())?;
    let log_files = config.log.clone();
    headers::refuse_other(&config, &control.get(), &tablespaces)?;
    let found = find_region(&config, &control.get())?;
    let mut packed = find_packed(&config, &control.get())?;
    keep_extents(&mut config, &packed);
    let mut noted = (config.flash_restart() == Some(FlashRestart::LogBased)).then(Noted::default);
    let mut observers: Vec<&mut dyn Observe> =
        packed.iter_mut().map(|(_, found)| &mut found.replay as &mut dyn Observe).collect();
    observers.extend(noted.as_mut().map(|noted| noted as &mut dyn Observe));
    let stored = control.get();
    let progress = config.progress.clone();
    let mut counted = CountedLog { progress: &progress, from: stored.redo };
    observers.push(&mut counted);
    let (read, sealed) = read_log_or_seal(&mut config, &stored, &found, &mut observers)?;
    let until = read.as_ref().map_or_else(|| control.get().log_end(), ReadLog::until);
    headers::refuse_other_packed(&packed, until, &config, &control.get())?;
    let (region, log, mut plan) = begin_log(&mut config, &control, found, read)?;
    plan.set_tablespaces(tablespaces.iter().map(|one| one.listed.id).collect());
    remove_left_log(region.as_ref(), &*log_files, control.get().database)?;
    let log = begun(&config, log);
    let analysed = Instant::now();
    let redo = if sealed.is_some() { stored.redo_start() } else { plan.stable() };
    let start = Start::Found { redo, written: sealed.is_none().then(|| &plan.history().written), packed };
    let parts = assemble(&config, &control, region.as_ref(), &log, start, &tablespaces)?;
    let cache = parts.stack.cache.as_deref();
    // A repaired page may be as old as its copy. So redo is needed if any page was repaired.
    let has_seal = |sealed: Sealed| cache.is_some_and(|cache| cache.has_seal(sealed.seal, stored.start));
    let is_sealed = parts.mended.is_empty() && sealed.is_some_and(has_seal);
    if sealed.is_some() && !is_sealed {
        reached("open: redo behind a seal");
        plan = plan.begun_at(&log, &stored)?;
    }
    plan.note_mended(&parts.mended);
    if let Some(buffer) =
        parts.stack.buffer.as_ref().filter(|_| !planted("redo: what slots hold is begun anew"))
    {
        plan.note_held(buffer.held());
    }
    parts.compressions.set_noted(plan.take_forms());
    parts.compressions.set_learning(true);
    let life = Beginning { stored: &stored, is_sealed, running: copied::running(&config)? };
    let is_found = begin_cache(&parts, &control, &life, &plan, noted.as_ref())?;
    *behind_seal = parts.stack.cache.clone().filter(|_| is_sealed && is_found);
    if is_sealed && !is_found {
        // The cache begins empty, so redo is needed.
        plan = plan.begun_at(&log, &stored)?;
        parts.compressions.set_noted(plan.take_forms());
    }
    let opened = Instant::now();
    let redo = redo_all(&parts, &config, &log, &*ops, &plan)?;
    let recovery = Recovery {
        redo,
        analysis_time: analysed - began,
        levels_time: opened - analysed,
        redo_time: opened.elapsed(),
    };
    let recovered = Some((plan.from()..plan.until(), recovery));
    let shared = finish(config, control, list, region, parts, log, ops, recovered)?;
    Ok(Shared { started: StartOutcome { is_behind_seal: behind_seal.is_some(), ..shared.started }, ..shared })
}

/// Repeats the changes that the pages lack. The log that was kept in memory for this is released.
fn redo_all(
    parts: &Parts,
    config: &PagerConfig,
    log: &Log,
    ops: &dyn RedoOps,
    plan: &Plan,
) -> Result<RedoReport> {
    let over = Over {
        pool: &parts.pool,
        ledger: &parts.ledger,
        cache: parts.stack.cache.as_deref(),
        has_threads: config.background,
        progress: &config.progress,
    };
    let report = recovery::redo(over, log, ops, plan)?;
    log.forget_read();
    parts.compressions.set_learning(false);
    Ok(report)
}

/// The values that the beginning of a start uses.
struct Beginning<'s> {
    /// The previous contents of the control file.
    stored: &'s Superblock,
    /// Whether there is a valid seal of the flash cache.
    is_sealed: bool,
    /// The identities of the files.
    running: [u64; 3],
}

/// Begins a start with a new number, whether or not there is a flash cache. This happens before any change
/// that a cache would have to know. Returns whether there is a cache that continues with its old pages.
fn begin_cache(
    parts: &Parts,
    control: &Control,
    &Beginning { stored, is_sealed, running }: &Beginning<'_>,
    plan: &Plan,
    noted: Option<&Noted>,
) -> Result<bool> {
    let note = |start| {
        control.update(|superblock| {
            superblock.has_cache = parts.stack.keeps_records();
            superblock.start = start;
            superblock.running = running;
        })
    };
    let start = random_id();
    let Some(cache) = &parts.stack.cache else { return note(start).map(|()| false) };
    let sealed = is_sealed.then(|| stored.redo_start());
    let history = plan.history();
    let earlier = Earlier { start: stored.start, has_cache: stored.has_cache, history, noted, sealed };
    let is_found = cache.begin(start, Some(earlier), note)?;
    // No report is needed if the user has chosen another design or restart scheme.
    if is_found && !is_sealed && stored.sealed.is_some() && cache.may_be_sealed() {
        cache.tell_redone(!parts.mended.is_empty());
    }
    Ok(is_found)
}

/// Reads the log from the redo position, or from its end if pages on flash are sealed.
fn read_log_or_seal(
    config: &mut PagerConfig,
    stored: &Superblock,
    found: &begin::RegionState,
    observers: &mut [&mut dyn Observe],
) -> Result<(Option<ReadLog>, Option<Sealed>)> {
    let Some(sealed) = sealed(config, stored) else {
        return Ok((read_log(config, stored, found, observers)?, None));
    };
    let read = read_log(config, &stored.clone().behind(sealed), found, observers)?;
    read.as_ref().map_or(Ok(()), |read| read.require_from(stored.redo))?;
    Ok((read, Some(sealed)))
}

/// Returns the pages that a shutdown left on flash, if this configuration can use them. Otherwise the log is
/// read from the redo position, before anything changes. If the cache is missing and the log refuses redo,
/// the start leaves the seal as it is.
fn sealed(config: &PagerConfig, stored: &Superblock) -> Option<Sealed> {
    let flash =
        config.flash.as_ref().filter(|flash| flash.settings.restart == FlashRestart::LazyVerification)?;
    let is_plain = !stored.packed && stored.attached.is_none() && stored.protection != InForce::FullPageLog;
    let has_it = |sealed: &Sealed| flash::is_sealed(&*flash.directory, stored.database, sealed.seal);
    stored.sealed.filter(|sealed| config.nvm.is_none() && is_plain && has_it(sealed))
}

/// If the region has the log, removes log files from the time before the log moved there. They are not needed
/// any more.
fn remove_left_log(region: Option<&NvmRegion>, files: &dyn Directory, database: u64) -> Result<()> {
    if !region.is_some_and(NvmRegion::has_log) || !StoredLog::any(files)? {
        return Ok(());
    }
    Ok(StoredLog::remove_own(files, database)?)
}

/// The state from which the spaces are opened.
enum Start<'a> {
    /// A new database: the files are made.
    Empty,
    /// An existing database.
    Found {
        /// Where redo will start.
        redo: Lsn,
        /// The page LSNs that the data files have according to the log, or `None` if the log was not read.
        written: Option<&'a HashMap<PageId, Lsn>>,
        packed: Vec<(SpaceId, packed::SpaceFiles)>,
    },
}

impl<'a> Start<'a> {
    /// Returns the page LSNs that the data files have according to the log.
    fn written(&self) -> Option<&'a HashMap<PageId, Lsn>> {
        match self {
            Start::Empty => None,
            Start::Found { written, .. } => *written,
        }
    }

    /// Where redo will start.
    fn redo(&self) -> Option<Lsn> {
        match self {
            Start::Empty => None,
            Start::Found { redo, .. } => Some(*redo),
        }
    }
}

/// Opens the files of the packed spaces.
fn find_packed(config: &PagerConfig, stored: &Superblock) -> Result<Vec<(SpaceId, packed::SpaceFiles)>> {
    if !stored.packed {
        return Ok(Vec::new());
    }
    let spaces = durable_spaces(config).into_iter().zip(stored.map_checkpoints);
    let found = spaces.map(|((space, directory), checkpoint)| {
        let who = packed::Identity { space, database: stored.database, page_size: config.page_size };
        Ok((space, packed::SpaceFiles::open(&**directory, &who, checkpoint)?))
    });
    found.collect()
}

/// Sets the configured extent length to that of the existing files, which cannot change.
fn keep_extents(config: &mut PagerConfig, found: &[(SpaceId, packed::SpaceFiles)]) {
    if let (HomeLayout::Packed(packed), Some((_, found))) = (&mut config.layout, found.first()) {
        packed.extent_bytes = found.extent_bytes();
    }
}

/// Opens the packed spaces, or makes empty ones.
fn open_packed(
    config: &PagerConfig,
    control: &Control,
    parts_of: impl Fn(PackedConfig) -> packed::PackedParts,
    start: Start<'_>,
) -> Result<Vec<(SpaceId, PackedSpace)>> {
    let HomeLayout::Packed(packed) = config.layout else { return Ok(Vec::new()) };
    let stored = control.get();
    let around = || parts_of(packed);
    match start {
        Start::Empty => {
            let made = durable_spaces(config).map(|(space, directory)| {
                let (database, page_size) = (stored.database, config.page_size);
                let who = packed::Identity { space, database, page_size };
                Ok((space, PackedSpace::create(&**directory, &who, around())?))
            });
            made.into_iter().collect()
        }
        Start::Found { packed, .. } => {
            packed.into_iter().map(|(space, found)| Ok((space, found.into_space(around())?))).collect()
        }
    }
}

/// Opens the files of the spaces with the in-place layout.
fn open_in_place(config: &PagerConfig, is_new: bool) -> Result<SpaceFiles> {
    let open = |space, directory: &Arc<dyn Directory>, create| {
        SpaceFile::open(space, &**directory, config.page_size, create)
    };
    let mut files = vec![open(SpaceId::TEMPORARY, &config.temporary, true)?];
    if config.layout == HomeLayout::InPlace {
        for (space, directory) in durable_spaces(config) {
            files.push(open(space, directory, is_new)?);
        }
    }
    Ok(SpaceFiles::new(files))
}

fn trim_setting(config: &PagerConfig, control: &Control) -> Arc<TrimSetting> {
    let trim = TrimSetting::new(config.trim);
    if control.get().has_compressed_pages {
        trim.note_compressed();
    }
    Arc::new(trim)
}

/// Stores log records of repaired pages whose copy is older than the version that the data files have
/// according to the log. The log gets a record of the copy's version before the copy is written. If this
/// start crashes, the next one finds no damage in the page, and would skip changes of it.
fn store_older(log: &Log, written: Option<&HashMap<PageId, Lsn>>, page: &Mended) -> Result<()> {
    let is_newer = |written: &HashMap<PageId, Lsn>| written.get(&page.id).is_none_or(|lsn| *lsn <= page.lsn);
    if written.is_some_and(is_newer) {
        return Ok(());
    }
    reached("recovery: a page is mended with an older version than the log says");
    Ok(log.store_note(NOTE_WRITTEN, &written::encode_page(page.id, page.lsn))?)
}

/// Opens the spaces and builds the pool over them.
fn assemble(
    config: &PagerConfig,
    control: &Control,
    region: Option<&NvmRegion>,
    log: &Arc<Log>,
    start: Start<'_>,
    tablespaces: &[TablespacePlace],
) -> Result<Parts> {
    let redo_start = start.redo();
    let is_new = redo_start.is_none();
    let page_size = config.page_size;
    let files = Arc::new(open_in_place(config, is_new)?);
    let copies = region.and_then(NvmRegion::copies);
    let copies = copies.as_deref().map(|copies| copies as &dyn Directory);
    let was = control.get().protection;
    let wanted = config.wanted_protection(copies);
    let mut mended = Vec::new();
    let written = start.written();
    let mut announce = |page: &Mended| store_older(log, written, page);
    if let Some(redo) = redo_start {
        // A killed process may have left writes in caches of the system. They must be durable, because redo
        // treats these pages as stable.
        files.flush_all()?;
        mended = protection::repair(was, &wanted, &files, redo, &mut announce)?;
    }
    let protection = protection::open(&wanted, control.get().database, &files, (!is_new).then_some(was))?;
    let warning = protection.warning();
    note_protection(config, control).and_then(|()| note_compression(control, config.compression))?;
    let ledger = Arc::<Ledger>::default();
    let counters = Arc::new(Counters { times: config.times.clone(), ..Counters::default() });
    let compressions = Arc::new(Compressions::new(config.compression));
    let trim = trim_setting(config, control);
    let fill =
        Arc::new(packed::Fill::new(config.layout.packed().unwrap_or(PackedConfig::DEFAULT).fill_percent));
    let in_place = InPlace::new(InPlaceParts {
        files,
        protection,
        ledger: ledger.clone(),
        log: log.clone(),
        compressions: compressions.clone(),
        trim: trim.clone(),
        page_size,
        stored_lengths: stored_lengths(config),
    });
    let packed_parts = |config| packed::PackedParts {
        log: log.clone(),
        ledger: ledger.clone(),
        compressions: compressions.clone(),
        trim: trim.clone(),
        fill: fill.clone(),
        config,
        redo: control.get().redo,
    };
    let packed = open_packed(config, control, packed_parts, start)?;
    let layouts = Arc::new(Layouts::new(in_place, packed));
    let database = control.get().database;
    let parts =
        TablespaceParts { config, database, ledger: &ledger, log, compressions: &compressions, trim: &trim };
    mended.extend(tablespaces::open(tablespaces, &parts, &layouts, redo_start, &mut announce)?);
    let home: Arc<dyn Level> = Arc::new(Home::new(layouts.clone(), log.clone()));
    let stack = stack(config, control.get().database, region, home, &ledger, log)?;
    let (level, log) = (stack.level.clone(), log.clone());
    let parts = PoolParts { level, ledger: ledger.clone(), log, counters: counters.clone() };
    let pool = Pool::new(config.pool_bytes / page_size, page_size, config.replacement, parts)?;
    let spaces = Spaces::new(layouts, page_size, config.growth_extents);
    tablespaces.iter().for_each(|one| spaces.add(one.listed.id, page_size));
    Ok(Parts { ledger, counters, stack, pool, spaces, compressions, trim, fill, mended, warning })
}

/// Records the configured protection in the control file. From now on it repairs pages after a crash.
fn note_protection(config: &PagerConfig, control: &Control) -> Result<()> {
    let now = config.protection.in_force();
    if control.get().protection == now {
        return Ok(());
    }
    reached("open: another protection");
    control.update(|superblock| superblock.protection = now)
}

/// Records in the control file that pages will be compressed, before the first page is. The reason is that a
/// program without this feature would report a compressed page as damaged.
pub(crate) fn note_compression(control: &Control, how: Compression) -> Result<()> {
    if how.is_none() || control.get().has_compressed_pages {
        return Ok(());
    }
    reached("open: pages are compressed from now on");
    control.update(|superblock| superblock.has_compressed_pages = true)
}

/// Returns the lengths that the stored form of a page in place may have. They are the same for the data and
/// the rollback space, so a page and its copy in the doublewrite file have the same bytes.
pub(crate) fn stored_lengths(config: &PagerConfig) -> StoredLengths {
    lengths_on(&[&*config.data, &*config.rollback], config.protection)
}

/// Returns the lengths that the stored form of a page may have on these devices.
fn lengths_on(devices: &[&dyn Directory], protection: ProtectionKind) -> StoredLengths {
    let devices: Vec<&Capabilities> = devices.iter().map(|device| device.capabilities()).collect();
    let greatest = |of: fn(&Capabilities) -> u32| devices.iter().map(|found| of(found)).max().unwrap_or(0);
    let sector_bytes = greatest(Capabilities::sector_bytes);
    if protection != ProtectionKind::AtomicWrite {
        return StoredLengths::Multiples(sector_bytes as usize);
    }
    let least = greatest(|found| found.atomic_write_min_bytes).max(sector_bytes);
    StoredLengths::PowersOfTwo(least.next_power_of_two() as usize)
}

/// Finishes the opening after redo: reads the allocation maps, and puts the parts together.
#[expect(clippy::too_many_arguments, reason = "each is a part of the database that is put together")]
fn finish(
    config: PagerConfig,
    control: Control,
    tablespaces: TablespaceList,
    region: Option<NvmRegion>,
    parts: Parts,
    log: Arc<Log>,
    ops: Arc<dyn RedoOps>,
    recovered: Option<(Range<Lsn>, Recovery)>,
) -> Result<Shared> {
    let Parts { ledger, counters, stack, pool, spaces, compressions, trim, fill, warning, .. } = parts;
    let Stack { level, buffer, cache, warning: no_cache } = stack;
    let of_cache = cache.iter().flat_map(|cache| cache.take_notices());
    let warnings =
        warning.into_iter().chain(control.starts_warning()).chain(no_cache).chain(of_cache).collect();
    let Superblock { database, has_hollow_extents, .. } = control.get();
    let keeps_images = config.protection == ProtectionKind::FullPageLog;
    spaces.load(&pool, database, has_hollow_extents)?;
    if let Some(cache) = &cache {
        cache.redone(|id| spaces.has_place(id));
    }
    if let Some(buffer) = &buffer {
        // Pages within the file keep their slots even if they are not allocated. After another crash, redo
        // may process changes from before a page was freed.
        buffer.keep_placed(|id| spaces.has_place(id));
    }
    if let Some(cache) = &cache {
        cache.count_kinds(ops.clone());
    }
    let workers = Workers::new(config.workers())?;
    let recovery = recovered.as_ref().map(|(_, recovery)| *recovery);
    Ok(Shared {
        restart_bound: RestartBound::new(&config.checkpoint, recovery, ledger.pages_count() as u64),
        pool,
        log,
        ledger,
        level,
        spaces,
        compressions,
        trim,
        fill,
        control,
        tablespaces: Mutex::new(tablespaces),
        region,
        buffer,
        cache,
        counters,
        ops,
        config,
        started: StartOutcome {
            is_new: recovered.is_none(),
            was_clean: false,
            is_behind_seal: false,
            recovery,
            redone: recovered.map(|(redone, _)| redone).filter(|_| keeps_images),
            database,
            postponed: Postponed::default(),
            warnings,
        },
        checkpointing: Mutex::default(),
        journal: CheckpointJournal::default(),
        is_stopping: AtomicBool::new(false),
        cleans_until: AtomicU64::new(0),
        leaves_region: AtomicBool::new(false),
        workers,
        forms_noted: Mutex::default(),
        refused: Mutex::default(),
        trimmer: Bell::default(),
    })
}
