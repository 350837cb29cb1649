//! Opens the log of an existing database, and the region of persistent memory that it has or gets. The log is
//! read, or begins empty. This module also decides which changes of the configuration must wait for a clean
//! shutdown.
//!
//! Invariants
//! 1. Nothing is changed until the log was read. Then a region is made, if the database gets one (decision
//!    0308).
//! 2. The control file gets the log's new life, and everything that changes with it, in one write.
//! 3. Two changes of the configuration need a clean shutdown before: moving the log, and logging images of
//!    clean pages. Until then the old configuration stays in force.
//!
//! This module does not know what is in the spaces.

use varve_device::reached;

use super::{found, log_config};
use crate::base::error::Result;
use crate::config::PagerConfig;
use crate::control::{Attached, Control, InForce, State, Superblock, random_id};
use crate::home::protection::kind::ProtectionKind;
use crate::log::{Log, Observe, StoredLog};
use crate::nvm::{self, NvmRegion, RegionPlan};
use crate::recovery::{self, News, Plan, ReadLog};

/// The largest number of bytes of the log that are kept in memory until redo has ended. Half the size of the
/// pool is also a limit.
const KEPT_LOG_BYTES_MAX: usize = 256 << 20;

/// Decides whether full-page-log has to wait. It needs an image of every changed page in the log, and another
/// protection has logged none. So it can begin only when no page has changes. After a crash the database
/// continues with its old protection. Returns the protection that has to wait.
pub(super) fn postpone_images(config: &mut PagerConfig, stored: &Superblock) -> Option<ProtectionKind> {
    let begins = config.protection == ProtectionKind::FullPageLog
        && stored.protection != InForce::FullPageLog
        && !stored.packed;
    if !begins || stored.state == State::Clean {
        return None;
    }
    let now = match stored.protection {
        InForce::Nothing => ProtectionKind::None,
        InForce::AtomicWrite => ProtectionKind::AtomicWrite,
        InForce::Doublewrite => ProtectionKind::DOUBLEWRITE,
        // The region does not fit the configuration. Another check refuses it, with a message about the
        // region.
        InForce::FullPageLog | InForce::NvmDoublewrite | InForce::Nvm => return None,
    };
    reached("open: full-page-log has to wait");
    Some(std::mem::replace(&mut config.protection, now))
}

/// Returns whether the move of the log to a region has to wait. If so, the region is taken out of the
/// configuration. The log moves only if the old log is not needed any more, that is after a clean shutdown.
pub(super) fn postpone_region(config: &mut PagerConfig, stored: &Superblock) -> bool {
    let moves = config.nvm.as_ref().is_some_and(|nvm| nvm.log_bytes > 0) && stored.attached.is_none();
    if !moves || stored.state == State::Clean {
        return false;
    }
    reached("open: a region has to wait");
    config.nvm = None;
    if config.protection.needs_nvm() {
        config.protection = found::of_files(stored.protection, config.protection);
    }
    true
}

/// The region of persistent memory of a database that is being opened.
pub(super) enum RegionState {
    Nothing,
    /// The database has this region.
    Has(NvmRegion),
    /// The database gets a region.
    Gets(RegionPlan),
}

/// Finds the region that the database has, or space for the one that it gets. The log moves to a region only
/// when nothing of it is needed.
pub(super) fn find_region(config: &PagerConfig, stored: &Superblock) -> Result<RegionState> {
    if let Some(region) = nvm::find(&config.wanted_region(), stored)? {
        return Ok(RegionState::Has(region));
    }
    let Some(room) = RegionPlan::find(&config.wanted_region(), stored.database, stored.unneeded_region)?
    else {
        return Ok(RegionState::Nothing);
    };
    assert!(!room.has_log() || stored.state == State::Clean, "the log is needed where it is");
    Ok(RegionState::Gets(room))
}

/// Reads the log. `None` means that the log moves, or was left in a region, so the old log is not needed.
pub(super) fn read_log(
    config: &mut PagerConfig,
    stored: &Superblock,
    found: &RegionState,
    observers: &mut [&mut dyn Observe],
) -> Result<Option<ReadLog>> {
    if let RegionState::Has(region) = found {
        config.place_log(region);
    }
    let moves = matches!(found, RegionState::Gets(room) if room.has_log());
    if stored.log_begins_empty {
        StoredLog::refuse_begun(&*config.log, stored.database)?;
    }
    if stored.log_begins_empty || moves {
        return Ok(None);
    }
    let keeps_images = begins_images(config).is_some() || stored.protection == InForce::FullPageLog;
    let kept_bytes = (config.pool_bytes / 2).min(KEPT_LOG_BYTES_MAX);
    recovery::read_log(log_config(config), stored.clone(), keeps_images, kept_bytes, observers).map(Some)
}

/// Returns the protection that must be in the control file before the first log record: full-page-log. If it
/// were stored later, a start after a crash could not know whether the log has images of all changed pages.
fn begins_images(config: &PagerConfig) -> Option<InForce> {
    Some(config.protection.in_force()).filter(|protection| *protection == InForce::FullPageLog)
}

/// Opens the log that was read, or begins a new one if the log moves. All checks have passed, so a region is
/// made if the database gets one.
pub(super) fn begin_log(
    config: &mut PagerConfig,
    control: &Control,
    found: RegionState,
    read: Option<ReadLog>,
) -> Result<(Option<NvmRegion>, Log, Plan)> {
    let begins = begins_images(config);
    let (region, attached) = match found {
        RegionState::Nothing => (None, None),
        RegionState::Has(region) => (Some(region), None),
        RegionState::Gets(room) => {
            let (region, attached) = get_region(room, control)?;
            config.place_log(&region);
            (Some(region), Some(attached))
        }
    };
    let news = News { attached, protection: begins };
    let (log, plan) = match read {
        Some(read) => read.begin_life(&*config.control, control, news)?,
        None => recovery::begin_empty_log(log_config(config), &*config.control, control, news)?,
    };
    Ok((region, log, plan))
}

/// Makes a region in the space that was found. The control file has its id and calls it not needed, until the
/// log begins its life.
fn get_region(room: RegionPlan, control: &Control) -> Result<(NvmRegion, Attached)> {
    let id = random_id();
    let attached = room.attached(id);
    room.vacate()?;
    control.update(|superblock| superblock.unneeded_region = Some(id))?;
    let region = room.make(control.get().database, id)?;
    reached("nvm: region attached");
    Ok((region, attached))
}
