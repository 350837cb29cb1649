//! Builds the levels between the buffer pool and the data files, as the configuration says: the flash cache,
//! and above it persistent memory.
//!
//! This module does not know how the data files are opened, or what the pool does.

use std::sync::Arc;

use crate::base::error::Result;
use crate::config::PagerConfig;
use crate::flash::{self, FlashCache, Opened, Owner, Surroundings};
use crate::level::Level;
use crate::level::ledger::Ledger;
use crate::log::Log;
use crate::nvm::{NvmBuffer, NvmRegion};

/// The levels below the pool.
pub(super) struct Stack {
    /// The topmost level.
    pub(super) level: Arc<dyn Level>,
    /// The NVM page buffer, if there is one.
    pub(super) buffer: Option<Arc<NvmBuffer>>,
    /// The flash cache, if there is one.
    pub(super) cache: Option<Arc<FlashCache>>,
    /// The reason why there is no flash cache although one is configured.
    pub(super) warning: Option<String>,
}

impl Stack {
    /// Returns whether there is a cache that keeps records for the next start.
    pub(super) fn keeps_records(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.keeps_records())
    }
}

/// Builds the levels above the data files. `database` is the id of the database.
pub(super) fn stack(
    config: &PagerConfig,
    database: u64,
    region: Option<&NvmRegion>,
    home: Arc<dyn Level>,
    ledger: &Arc<Ledger>,
    log: &Arc<Log>,
) -> Result<Stack> {
    let area = region.and_then(NvmRegion::page_area);
    let open_cache = |flash| {
        let owner = Owner { database, page_size: config.page_size, clock: flash::running() };
        let around = Surroundings {
            has_threads: config.background,
            is_below_nvm: area.is_some(),
            below: home.clone(),
            ledger: ledger.clone(),
            log: log.clone(),
        };
        FlashCache::open(flash, owner, around)
    };
    let Opened { cache, warning } = config.flash.as_ref().map(open_cache).unwrap_or_default();
    let below = cache.clone().map_or(home, |cache| cache as Arc<dyn Level>);
    let open_buffer = |area| {
        let times = config.times.clone();
        NvmBuffer::open(area, config.nvm_flush, below.clone(), ledger.clone(), log.clone(), times)
    };
    let buffer = area.map(open_buffer).transpose()?.map(Arc::new);
    let level = buffer.clone().map_or(below, |buffer| buffer as Arc<dyn Level>);
    Ok(Stack { level, buffer, cache, warning })
}
