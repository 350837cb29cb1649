//! Makes the empty database that a restore fills with the pages of a backup (decision 0262).
//!
//! Invariants
//! 1. Until the restore has ended with a clean shutdown, the control file says `Restoring`, and no start
//!    opens the database.
//! 2. The database gets an id of its own. So its log, and later backups of it, are never mixed with those of
//!    the database from which the backup was taken.
//! 3. The log begins after all LSNs of the backup.
//!
//! This module does not know the format of backups.

use std::sync::Arc;

use super::{Start, assemble, copied, finish, log_config, refuse_leftovers};
use crate::base::error::{PagerError, Result};
use crate::base::lsn::Lsn;
use crate::config::PagerConfig;
use crate::control::tablespaces::TablespaceList;
use crate::control::{CONTROL_FILE, Control, State, Superblock, random_id};
use crate::home::kind::HomeLayout;
use crate::log::redo::RedoOps;
use crate::nvm::{self, RegionPlan};
use crate::recovery::{self, News};
use crate::running::shared::Shared;

/// Returns the error of a start that finds an unfinished restore.
pub(super) fn unfinished(config: &PagerConfig) -> PagerError {
    let what = format!(
        "{}/{CONTROL_FILE} says that a restore of this database was interrupted: remove the files of the database, and restore \
         it again",
        config.control.location()
    );
    PagerError::Incompatible { what }
}

/// Refuses a place that has a database, or a part of one.
pub(crate) fn refuse_existing(config: &PagerConfig) -> Result<()> {
    if config.control.exists(CONTROL_FILE)? {
        let what = format!(
            "{} holds a database already: restore into an empty directory",
            config.control.location()
        );
        return Err(PagerError::Incompatible { what });
    }
    refuse_leftovers(config)
}

/// Makes an empty database. Its log begins after `end`.
pub(crate) fn create(mut config: PagerConfig, end: Lsn, ops: Arc<dyn RedoOps>) -> Result<Shared> {
    config.check()?;
    refuse_existing(&config)?;
    if let Some(log) = nvm::layout::Layout::of(&config.wanted_region())?.and_then(|layout| layout.log) {
        config.log_segment_bytes = log.segment_bytes;
        config.check()?;
    }
    config.protection = config.protection_needed();
    let (database, id) = (random_id(), random_id());
    let room = RegionPlan::find(&config.wanted_region(), database, None)?;
    room.as_ref().map_or(Ok(()), RegionPlan::vacate)?;
    let mut first = Superblock::new(database, config.page_size as u32, config.log_segment_bytes);
    first.state = State::Restoring;
    first.durable = end;
    first.start = random_id();
    first.protection = config.protection.in_force();
    first.attached = room.as_ref().map(|room| room.attached(id));
    first.packed = matches!(config.layout, HomeLayout::Packed(_));
    let control = Control::create(&*config.control, first)?;
    let region = room.map(|room| room.make(database, id)).transpose()?;
    if let Some(region) = &region {
        config.place_log(region);
    }
    let (log, _) =
        recovery::begin_empty_log(log_config(&config), &*config.control, &control, News::default())?;
    let log = Arc::new(log);
    let parts = assemble(&config, &control, region.as_ref(), &log, Start::Empty, &[])?;
    if let Some(cache) = &parts.stack.cache {
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
    })?;
    let list = TablespaceList::read(&*config.control, &control)?;
    finish(config, control, list, region, parts, log, ops, None)
}
