//! The table of compressions: for each owner, the algorithm and level with which its pages are compressed. An
//! owner is, for example, the tree of a table.
//!
//! Invariants
//! 1. The table is replaced as a whole, and never changed. So each writer uses one consistent table.
//! 2. The table decides how pages are written from now on. For reading it is not needed, because each stored
//!    page says how it was stored.
//! 3. Redo runs before the engine has set the table. Until then the table has, for each owner, the
//!    compression that the log recorded (`log/notes/stored_forms.rs`), or else the algorithm of its stored
//!    pages. The engine's table replaces these entries.
//!
//! This module does not know what an owner is.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use varve_device::reached;

use crate::base::compression::{Algorithm, Compression};
use crate::base::ids::SpaceId;
use crate::base::page;
use crate::log::notes::stored_forms::{Form, Forms};

/// The table in force.
#[derive(Default)]
pub(crate) struct Compressions {
    table: Mutex<Arc<Table>>,
    /// Whether the table learns the compression of owners from stored pages. It does so during redo.
    is_learning: AtomicBool,
    /// The pages written since the start, for each owner whose pages are to be compressed.
    written: Mutex<HashMap<Owner, StoredPages>>,
}

/// Counts of the written pages that should have been compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredPages {
    /// The number of pages. A page counts each time that it is written.
    pub pages: u64,
    /// The length of these pages without compression, in bytes.
    pub plain_bytes: u64,
    /// The length of these pages as written, in bytes.
    pub stored_bytes: u64,
}

/// The owner of a page: the space, and the number of the owner in this space. Tablespaces share the numbers
/// of owners with the data space, so the space of their owners is the data space here.
type Owner = (SpaceId, u32);

/// The compression of each owner.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    by_owner: HashMap<Owner, Compression>,
    /// Compressions according to the log. They are used until the engine has set `by_owner`.
    noted: Forms,
    /// Compressions of stored pages, for owners that the log does not name. They are used until the engine
    /// has set `by_owner`.
    learned: HashMap<Owner, Compression>,
    /// The compression of all other owners in a tablespace that has one of its own.
    by_tablespace: HashMap<SpaceId, Compression>,
    /// The compression of all other owners.
    default: Compression,
}

impl Compressions {
    /// Returns a table in which all owners have the default compression.
    pub(crate) fn new(default: Compression) -> Compressions {
        let table = Mutex::new(Arc::new(Table { default, ..Table::default() }));
        Compressions { table, is_learning: AtomicBool::new(false), written: Mutex::default() }
    }

    /// Sets whether the table learns from stored pages.
    pub(crate) fn set_learning(&self, is_learning: bool) {
        self.is_learning.store(is_learning, Relaxed);
    }

    /// Reports that a page with this algorithm was read.
    #[inline]
    pub(crate) fn was_stored(&self, page: &[u8], algorithm: Algorithm) {
        if self.is_learning.load(Relaxed) {
            self.learn(page, algorithm);
        }
    }

    #[cold]
    fn learn(&self, page: &[u8], algorithm: Algorithm) {
        let table = self.table();
        if table.of(page).algorithm != algorithm && !table.noted.contains_key(&owner_of(page)) {
            reached("compressions: learned from a page");
            self.change(|table| {
                table.learned.insert(owner_of(page), Compression::of(algorithm));
            });
        }
    }

    /// Sets the compressions that the log recorded. They are used until the engine has set the table.
    pub(crate) fn set_noted(&self, forms: Forms) {
        if !forms.is_empty() {
            self.change(|table| table.noted = forms);
        }
    }

    /// Returns the owners with a compression of their own: as the engine has set it, or else as the log
    /// recorded it.
    pub(crate) fn own(&self) -> Vec<Form> {
        let table = self.table();
        let told = table.by_owner.iter().map(|((space, owner), how)| (*space, *owner, Some(*how)));
        let noted =
            table.noted.iter().filter(|(owner, how)| how.is_some() && !table.by_owner.contains_key(owner));
        told.chain(noted.map(|((space, owner), how)| (*space, *owner, *how))).collect()
    }

    /// Returns the table in force.
    pub(crate) fn table(&self) -> Arc<Table> {
        self.table.lock().clone()
    }

    fn change(&self, change: impl FnOnce(&mut Table)) {
        let mut table = self.table.lock();
        let mut next = Table::clone(&table);
        change(&mut next);
        *table = Arc::new(next);
    }

    /// Sets the compression of owners that have none of their own.
    pub(crate) fn set_default(&self, how: Compression) {
        self.change(|table| table.default = how);
    }

    /// Sets the compression of owners in a tablespace that have none of their own.
    pub(crate) fn set_default_in(&self, space: SpaceId, how: Compression) {
        self.change(|table| {
            table.by_tablespace.insert(space, how);
        });
    }

    /// Sets the compression of these owners. `None` means the default. Returns whether this changes anything.
    pub(crate) fn set(&self, space: SpaceId, owners: &[(u32, Option<Compression>)]) -> bool {
        let now = self.table();
        if owners.iter().all(|(owner, how)| now.by_owner.get(&(space, *owner)).copied() == *how) {
            return false;
        }
        self.change(|table| {
            for (owner, how) in owners {
                match how {
                    Some(how) => table.by_owner.insert((space, *owner), *how),
                    None => table.by_owner.remove(&(space, *owner)),
                };
            }
        });
        true
    }

    /// Removes the counts of an owner that is about to be dropped.
    pub(crate) fn forget_written(&self, space: SpaceId, owner: u32) {
        self.written.lock().remove(&(space, owner));
    }

    /// Counts a written page that should have been compressed. `stored_bytes` is its length as written.
    pub(crate) fn wrote(&self, page: &[u8], stored_bytes: u64) {
        let mut written = self.written.lock();
        let sum = written.entry(owner_of(page)).or_default();
        sum.pages += 1;
        sum.plain_bytes += page.len() as u64;
        sum.stored_bytes += stored_bytes;
    }

    /// Returns the counts of pages written since the start, for each owner.
    pub(crate) fn written(&self, space: SpaceId) -> HashMap<u32, StoredPages> {
        let written = self.written.lock();
        let of_space = written.iter().filter(|((of, _), _)| *of == space);
        of_space.map(|((_, owner), sum)| (*owner, *sum)).collect()
    }

    /// Sets the compression of all owners that have one of their own. The compressions that the log recorded,
    /// and those that were learned from pages, are dropped.
    pub(crate) fn tell(&self, space: SpaceId, owners: &[(u32, Compression)]) {
        self.change(|table| {
            table.noted.clear();
            table.learned.clear();
            table.by_owner = owners.iter().map(|(owner, how)| ((space, *owner), *how)).collect();
        });
    }
}

fn owner_of(page: &[u8]) -> Owner {
    let space = page::page_identity(page).space();
    let space = if space.is_tablespace() { SpaceId::DATA } else { space };
    (space, page::page_owner(page))
}

impl Table {
    /// Returns whether no page is compressed.
    pub(crate) fn is_idle(&self) -> bool {
        let is_none = |how: &Compression| how.is_none();
        let noted_is_none = |how: &Option<Compression>| how.is_none_or(Compression::is_none);
        self.default.is_none()
            && self.learned.is_empty()
            && self.by_owner.values().all(is_none)
            && self.by_tablespace.values().all(is_none)
            && self.noted.values().all(noted_is_none)
    }

    /// Returns the compression of owners that have none of their own.
    pub(crate) fn of_others(&self) -> Compression {
        self.default
    }

    /// Returns the compression for this page.
    pub(crate) fn of(&self, page: &[u8]) -> Compression {
        let owner = owner_of(page);
        if let Some(told) = self.by_owner.get(&owner) {
            return *told;
        }
        if let Some(noted) = self.noted.get(&owner) {
            return noted.unwrap_or_else(|| self.default_of(page));
        }
        self.learned.get(&owner).copied().unwrap_or_else(|| self.default_of(page))
    }

    fn default_of(&self, page: &[u8]) -> Compression {
        let space = page::page_identity(page).space();
        self.by_tablespace.get(&space).copied().unwrap_or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::compression::Algorithm;
    use crate::base::ids::{PageId, PageNo};

    fn page(space: SpaceId, owner: u32) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        page::format(&mut bytes, PageId::new(space, PageNo(9)), 16, owner);
        bytes
    }

    /// In an earlier version, redo wrote pages of compressed tables without compression, because it did not
    /// know their compression.
    #[test]
    fn stored_pages_teach_until_their_owners_are_told() {
        let all = Compressions::new(Compression::of(Algorithm::Lz4));
        let of = |owner| all.table().of(&page(SpaceId::DATA, owner)).algorithm;
        all.was_stored(&page(SpaceId::DATA, 20), Algorithm::Zstd);
        assert_eq!(of(20), Algorithm::Lz4, "it does not learn");
        all.set_learning(true);
        all.was_stored(&page(SpaceId::DATA, 20), Algorithm::Zstd);
        all.was_stored(&page(SpaceId::DATA, 21), Algorithm::Lz4);
        all.set_learning(false);
        assert_eq!([20, 21].map(of), [Algorithm::Zstd, Algorithm::Lz4]);
        assert_eq!(all.table().learned.len(), 1, "what the default says need not be learned");
        all.set(SpaceId::DATA, &[(20, Some(Compression::NONE))]);
        assert_eq!(of(20), Algorithm::None, "who was told goes by that");
        all.tell(SpaceId::DATA, &[(22, Compression::of(Algorithm::Zlib))]);
        assert_eq!([20, 21, 22].map(of), [Algorithm::Lz4, Algorithm::Lz4, Algorithm::Zlib]);
    }

    #[test]
    fn what_the_log_notes_is_not_learned_otherwise() {
        let (lz4, zstd) = (Compression::of(Algorithm::Lz4), Compression::of(Algorithm::Zstd));
        let all = Compressions::new(lz4);
        let of = |owner| all.table().of(&page(SpaceId::DATA, owner));
        let noted = [(20, Some(Compression::NONE)), (21, Some(zstd)), (22, None)];
        all.set_noted(noted.into_iter().map(|(owner, how)| ((SpaceId::DATA, owner), how)).collect());
        all.set_learning(true);
        for owner in 20..24 {
            all.was_stored(&page(SpaceId::DATA, owner), Algorithm::Zlib);
        }
        assert_eq!([20, 21, 22].map(of), [Compression::NONE, zstd, lz4]);
        assert_eq!(of(23).algorithm, Algorithm::Zlib, "the log says nothing of it");
        all.set(SpaceId::DATA, &[(21, Some(lz4))]);
        let mut own = all.own();
        own.sort_by_key(|(_, owner, _)| *owner);
        assert_eq!(own, [(SpaceId::DATA, 20, Some(Compression::NONE)), (SpaceId::DATA, 21, Some(lz4))]);
        all.tell(SpaceId::DATA, &[]);
        assert_eq!(([20, 21, 22].map(of), all.own()), ([lz4; 3], vec![]));
    }

    #[test]
    fn owners_go_by_their_own_or_by_the_default() {
        let page = |owner| page(SpaceId::DATA, owner);
        let (lz4, zstd) = (Compression::of(Algorithm::Lz4), Compression::of(Algorithm::Zstd));
        let all = Compressions::new(Compression::NONE);
        assert!(all.table().is_idle());
        let before = all.table();
        all.set(SpaceId::DATA, &[(20, Some(zstd))]);
        assert!(!all.table().is_idle() && before.is_idle(), "who writes goes by what was in force");
        assert_eq!([20, 21].map(|owner| all.table().of(&page(owner))), [zstd, Compression::NONE]);
        all.set_default(lz4);
        assert_eq!([20, 21].map(|owner| all.table().of(&page(owner))), [zstd, lz4]);
        all.set(SpaceId::DATA, &[(20, Some(Compression::NONE))]);
        assert_eq!(all.table().of(&page(20)), Compression::NONE);
        all.set(SpaceId::DATA, &[(20, None)]);
        assert_eq!(all.table().of(&page(20)), lz4);
        all.set(SpaceId::ROLLBACK, &[(20, Some(zstd))]);
        assert_eq!(all.table().of(&page(20)), lz4, "an owner of another space");
    }
}
