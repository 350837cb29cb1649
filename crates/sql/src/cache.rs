//! The plan cache. The key of an entry is the statement's text, the declared parameter types, and the search
//! path.
//!
//! Invariants
//! 1. An entry is found only by equal text, equal types and the same path. An equal hash is not enough.
//! 2. The number of entries is limited. When the cache is full, it is cleared, and each statement is parsed
//!    once more.
//! 3. An entry may be out of date. The session that opens a plan's table notices this, and replaces the
//!    entry.
//!
//! This module does not know catalogs or sessions.

use std::hash::Hasher;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};

use crate::oid::Oid;
use crate::prepared::Prepared;

/// The longest text that is stored.
const TEXT_BYTES_MAX: usize = 32 << 10;

/// A bounded cache.
pub struct PlanCache {
    entries: FxHashMap<u64, Arc<Prepared>>,
    capacity: usize,
}

impl PlanCache {
    /// Returns a cache for this number of statements.
    pub fn new(capacity: usize) -> PlanCache {
        PlanCache { entries: FxHashMap::default(), capacity }
    }

    /// Returns the statement, if the cache has it.
    pub fn find(&self, hash: u64, sql: &str, types: &[Oid], path: u32) -> Option<&Arc<Prepared>> {
        self.entries.get(&hash).filter(|p| p.is_for(sql, types, path))
    }

    /// Stores a statement. It replaces an older one with the same hash.
    pub fn put(&mut self, hash: u64, prepared: Arc<Prepared>) {
        if prepared.sql.len() > TEXT_BYTES_MAX {
            return;
        }
        if self.entries.len() >= self.capacity {
            self.entries.clear();
        }
        self.entries.insert(hash, prepared);
    }

    /// Removes all statements.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

/// Returns the hash of a statement under the search path of this number.
pub fn hash(sql: &str, types: &[Oid], path: u32) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(sql.as_bytes());
    for t in types {
        hasher.write_u32(*t);
    }
    hasher.write_u32(path);
    hasher.finish()
}
