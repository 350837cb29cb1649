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

/// The input from which a search path was made.
#[derive(Default)]
pub(super) struct Made {
    /// The entries of `search_path`. `None` if the setting or the role has changed since then.
    pub(super) entries: Option<Vec<String>>,
    /// The version of the catalog.
    pub(super) version: u64,
}

impl Session {
    /// Makes the path with the current catalog.
    pub(super) fn find_path(&mut self) {
        let catalog = match &mut self.txn {
            Some(txn) => txn.catalog(),
            None => self.shared.engine.begin_in(self.facts.database_id, Isolation::ReadCommitted).catalog(),
        };
        self.follow_catalog(&catalog);
    }

    /// Makes the path with this catalog, unless the path was already made with it.
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

    /// Returns the catalog of the transaction, after the path was made with it.
    pub(super) fn catalog_of_path(&mut self) -> Arc<Catalog> {
        let catalog = self.begin_engine().catalog();
        self.follow_catalog(&catalog);
        catalog
    }

    /// Returns the command with a schema before each name.
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
