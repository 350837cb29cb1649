//! Computes the search path of a session from its setting.
//!
//! Invariants
//! 1. If the setting or the role has changed, the path is computed again before a plan is looked up. If the
//!    catalog has changed, the path is computed again before a plan runs.
//!
//! This module does not know how names are looked up (`crate::path`).

use std::borrow::Cow;
use std::sync::Arc;

use varve_engine::{Catalog, Isolation};

use super::Session;
use crate::error::Result;
use crate::path::{self, Path};
use crate::utility::Utility;

/// What a path was made of.
#[derive(Default)]
pub(super) struct Made {
    /// The entries of `search_path`; none are read yet if the setting or the role has changed.
    pub(super) entries: Option<Vec<String>>,
    /// Version of the catalog.
    pub(super) version: u64,
}

impl Session {
    /// Makes the path by the catalog as it is.
    pub(super) fn find_path(&mut self) {
        let catalog = match &mut self.txn {
            Some(txn) => txn.catalog(),
            None => self.shared.engine.begin_in(self.facts.database_id, Isolation::ReadCommitted).catalog(),
        };
        self.follow_catalog(&catalog);
    }

    /// Makes the path by this catalog, unless it was.
    pub(super) fn follow_catalog(&mut self, catalog: &Catalog) {
        if self.path.entries.is_some() && self.path.version == catalog.version() {
            return;
        }
        let value = || self.settings.get("search_path").ok().and_then(|value| path::entries(&value));
        let entries = self.path.entries.take().or_else(value).unwrap_or_default();
        self.facts.path = Path::of(&entries, &self.facts.user, self.facts.who, catalog);
        self.path.entries = Some(entries);
        if let Some(database) = catalog.database_by_id(self.facts.database_id)
            && database.name != self.facts.database
        {
            self.facts.database.clone_from(&database.name);
        }
        self.path.version = catalog.version();
    }

    /// The catalog of the transaction, by which the path is made.
    pub(super) fn catalog_of_path(&mut self) -> Arc<Catalog> {
        let catalog = self.begin_engine().catalog();
        self.follow_catalog(&catalog);
        catalog
    }

    /// A command whose names have their schemas.
    pub(super) fn with_schemas<'s>(&mut self, command: &'s Utility) -> Result<Cow<'s, Utility>> {
        match command {
            Utility::Maintain(_) | Utility::Lock(_) | Utility::Copy(_) | Utility::Role(_) => {
                let catalog = self.catalog_of_path();
                self.facts.path.command(&catalog, command)
            }
            other => Ok(Cow::Borrowed(other)),
        }
    }
}
