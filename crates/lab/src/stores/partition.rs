//! A partition: a region, an allocator in it, and the store of an engine.
//!
//! This module does not know loads.

use std::sync::Arc;

use varve_bench::Result;
use varve_device::{CacheShape, CachedRegion, Region};
use varve_memory::{Allocator, Owner, Store, TABLE_OWNER_MIN};

use super::engines::{Engine, StoreSettings};
use super::load::refused;

/// The number of the database to which the region belongs, as the region stores it.
const DATABASE: u64 = 1;
/// The owner number of the first table.
const FIRST_TABLE_OWNER: u16 = TABLE_OWNER_MIN;

/// An open partition.
pub struct Partition {
    /// The store, which has the tables.
    pub store: Box<dyn Store>,
    allocator: Arc<Allocator>,
    cache: Option<Arc<CachedRegion>>,
}

impl Partition {
    /// Makes an empty partition in a region. Earlier contents of the region are lost. If a shape is given, a
    /// modelled cache of this shape is put in front of the region.
    ///
    /// Errors: the region is too small.
    pub fn create(
        engine: &Engine,
        region: Arc<dyn Region>,
        cache: Option<CacheShape>,
        settings: StoreSettings,
    ) -> Result<Self> {
        let cache = cache.map(|shape| CachedRegion::wrap(Arc::clone(&region), shape));
        let seen = cache.as_ref().map_or(region, |cache| Arc::clone(cache) as Arc<dyn Region>);
        let allocator = Arc::new(Allocator::format(seen, DATABASE).map_err(refused)?);
        let store = engine.open(Arc::clone(&allocator), settings)?;
        Ok(Self { store, allocator, cache })
    }

    /// Opens the partition in a region, for example after its process was killed.
    ///
    /// Errors: the region has no partition, or the partition is damaged.
    pub fn open(engine: &Engine, region: Arc<dyn Region>, settings: StoreSettings) -> Result<Self> {
        let allocator = Arc::new(Allocator::open(region, DATABASE).map_err(refused)?);
        let store = engine.open(Arc::clone(&allocator), settings)?;
        Ok(Self { store, allocator, cache: None })
    }

    /// Returns the allocator of the partition's region.
    pub fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    /// Returns the modelled cache, if the partition has one.
    pub fn cache(&self) -> Option<&CachedRegion> {
        self.cache.as_deref()
    }
}

/// Returns the allocated bytes of the region.
pub fn used_bytes(allocator: &Allocator) -> u64 {
    allocator.capacity_bytes().saturating_sub(allocator.free_bytes())
}

/// Returns the owner of a table's tuples and index nodes.
pub(super) fn table_owner(table: u16) -> Result<Owner> {
    Owner::new(FIRST_TABLE_OWNER + table).ok_or_else(|| refused("a store has too many tables"))
}
