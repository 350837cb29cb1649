//! Whose pages are compressed how.
//!
//! Invariants
//! 1. Writers see a table as a whole: it is replaced, never changed.
//! 2. It decides about pages that are written from now on; how a page was stored is said by the page.
//!
//! What it does not know: what an owner is.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::compression::Compression;
use crate::ids::SpaceId;
use crate::page;

/// The table in force.
#[derive(Default)]
pub(crate) struct Compressions {
    table: Mutex<Arc<Table>>,
}

/// Compression by owner.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    by_owner: HashMap<(SpaceId, u32), Compression>,
    /// Of owners that are not named.
    default: Compression,
}

impl Compressions {
    /// Nobody is named.
    pub(crate) fn new(default: Compression) -> Compressions {
        Compressions { table: Mutex::new(Arc::new(Table { default, ..Table::default() })) }
    }

    /// What is in force now.
    pub(crate) fn table(&self) -> Arc<Table> {
        self.table.lock().clone()
    }

    fn change(&self, change: impl FnOnce(&mut Table)) {
        let mut table = self.table.lock();
        let mut next = Table::clone(&table);
        change(&mut next);
        *table = Arc::new(next);
    }

    /// How pages of owners that are not named are stored.
    pub(crate) fn set_default(&self, how: Compression) {
        self.change(|table| table.default = how);
    }

    /// How pages of this owner are stored; `None`: as those of others.
    pub(crate) fn set(&self, space: SpaceId, owner: u32, how: Option<Compression>) {
        self.change(|table| {
            match how {
                Some(how) => table.by_owner.insert((space, owner), how),
                None => table.by_owner.remove(&(space, owner)),
            };
        });
    }
}

impl Table {
    /// Whether no page is compressed.
    pub(crate) fn is_idle(&self) -> bool {
        self.default.is_none() && self.by_owner.values().all(|how| how.is_none())
    }

    /// How this page is stored.
    pub(crate) fn of(&self, page: &[u8]) -> Compression {
        let owner = (page::page_identity(page).space(), page::page_owner(page));
        self.by_owner.get(&owner).copied().unwrap_or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::Algorithm;
    use crate::ids::{PageId, PageNo};

    #[test]
    fn owners_go_by_their_own_or_by_the_default() {
        let page = |owner| {
            let mut bytes = vec![0; 4096];
            page::format(&mut bytes, PageId::new(SpaceId::DATA, PageNo(9)), 16, owner);
            bytes
        };
        let (lz4, zstd) = (Compression::of(Algorithm::Lz4), Compression::of(Algorithm::Zstd));
        let all = Compressions::new(Compression::NONE);
        assert!(all.table().is_idle());
        let before = all.table();
        all.set(SpaceId::DATA, 20, Some(zstd));
        assert!(!all.table().is_idle() && before.is_idle(), "who writes goes by what was in force");
        assert_eq!([20, 21].map(|owner| all.table().of(&page(owner))), [zstd, Compression::NONE]);
        all.set_default(lz4);
        assert_eq!([20, 21].map(|owner| all.table().of(&page(owner))), [zstd, lz4]);
        all.set(SpaceId::DATA, 20, Some(Compression::NONE));
        assert_eq!(all.table().of(&page(20)), Compression::NONE);
        all.set(SpaceId::DATA, 20, None);
        assert_eq!(all.table().of(&page(20)), lz4);
        all.set(SpaceId::ROLLBACK, 20, Some(zstd));
        assert_eq!(all.table().of(&page(20)), lz4, "an owner of another space");
    }
}
