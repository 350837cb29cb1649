//! A workload that creates and drops tablespaces, and moves tables and indexes between them.
//!
//! Invariants
//! 1. A move changes no fact and no row of the model.

use varve_engine::{NewTablespace, ProtectionKind, SpaceId, StorageOptions};

use super::session::Session;
use super::{Done, SCHEMA, TABLES_MAX, Worker, text};
use crate::within::LOCATIONS;

impl Worker<'_> {
    /// Makes a tablespace, or drops one if nothing is in it.
    pub(super) fn change_tablespaces(&mut self) -> Done {
        let location = LOCATIONS[self.dice(LOCATIONS.len() as u64) as usize];
        let known = self.db.tablespaces().into_iter().find(|one| one.location == location);
        match known {
            None => {
                let new = NewTablespace {
                    name: location.into(),
                    location: location.into(),
                    protection: ProtectionKind::Doublewrite { batch_slots: 16, single_slots: 2 },
                    compression: None,
                    note: Vec::new(),
                };
                self.db.create_tablespace(&new).map(|_| ()).map_err(text)
            }
            Some(known) => self.db.drop_tablespace(known.id).map(|_is_dropped| ()).map_err(text),
        }
    }

    /// Returns a random tablespace, or `None`. If the run has no tablespaces, returns `None`.
    pub(super) fn some_tablespace(&mut self) -> Option<SpaceId> {
        if !self.places {
            return None;
        }
        let all = self.db.tablespaces();
        let at = self.dice(all.len() as u64 + 1) as usize;
        all.get(at).map(|one| one.id)
    }

    /// Moves a table or its index.
    pub(super) fn place_one(&mut self, session: &mut Session) -> Done {
        session.start(&self.committed);
        let name = format!("t{}", self.dice(TABLES_MAX));
        let Some(def) = session.txn.catalog().table(SCHEMA, &name) else { return Ok(()) };
        let tablespace = self.some_tablespace();
        match def.indexes.first() {
            Some(index) if self.dice(2) == 0 => {
                let moved = session.txn.set_index_tablespace(def.id, index.id, tablespace);
                moved.map(|_| ()).map_err(text)
            }
            _ => {
                let storage = StorageOptions { tablespace, ..def.storage };
                session.txn.set_storage(def.id, storage).map(|_| ()).map_err(text)
            }
        }
    }
}
