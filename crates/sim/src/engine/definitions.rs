//! A workload of DDL: sessions create and drop tables, indexes and a sequence.
//!
//! Invariants
//! 1. A transaction with DDL starts only when the transactions of all other sessions have ended.
//!
//! The workload inserts rows only to fill a new table.

use varve_engine::{Algorithm, Compression, NewIndex, NewSequence, NewTable, StorageOptions, TableDef};

use super::session::{Session, data, new_table, primary_key};
use super::{Done, Load, NUMBERED, NUMBERS, SCHEMA, SESSIONS, TABLES_MAX, Worker, text};
use crate::model::Effect;

impl Worker<'_> {
    /// Makes the table whose keys come from a sequence.
    pub(super) fn make_numbered(&mut self) -> Done {
        let mut session = self.begin();
        session.start(&self.committed);
        session.txn.create_sequence(NewSequence::ascending(SCHEMA, NUMBERS)).map_err(text)?;
        session.txn.create_table(new_table(NUMBERED, Some(primary_key(NUMBERED)))).map_err(text)?;
        session.effects.push(Effect::CreateTable(NUMBERED.into()));
        self.commit(session)
    }

    /// Runs a transaction with DDL. The transactions of all sessions end before.
    pub(super) fn define(&mut self) -> Done {
        for slot in 0..SESSIONS {
            if let Some(session) = self.sessions[slot].take() {
                self.commit(session)?;
            }
        }
        let mut session = self.begin();
        if self.places && self.dice(2) == 0 {
            self.change_tablespaces()?;
        }
        for _ in 0..1 + self.dice(2) {
            if self.places && self.dice(2) == 0 {
                self.place_one(&mut session)?;
                continue;
            }
            if self.stores && self.dice(3) > 0 {
                self.store_one(&mut session)?;
                continue;
            }
            match self.load == Load::Catalog && self.dice(3) > 0 {
                true => self.describe_one(&mut session)?,
                false => self.define_one(&mut session)?,
            }
        }
        if self.dice(4) == 0 {
            return session.txn.rollback().map_err(text);
        }
        self.commit(session)
    }

    fn define_one(&mut self, session: &mut Session) -> Done {
        session.start(&self.committed);
        let name = format!("t{}", self.dice(TABLES_MAX));
        let Some(def) = session.txn.catalog().table(SCHEMA, &name) else {
            return self.create_table(session, name);
        };
        match (def.indexes.first(), self.dice(8)) {
            (None, 0..=4) => self.create_index(session, &def),
            (Some(index), 0..=2) => {
                session.txn.drop_index(def.id, index.id).map_err(text)?;
                session.effects.push(Effect::DropIndex(name, index.name.clone()));
                Ok(())
            }
            (_, 5 | 6) => {
                session.txn.truncate(def.id).map_err(text)?;
                session.effects.push(Effect::Truncate(name));
                Ok(())
            }
            (_, 7) => {
                self.drop_views_of(session, &def)?;
                session.txn.drop_table(def.id).map_err(text)?;
                session.effects.push(Effect::DropTable(name));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Creates a table with its primary key, or a table that gets the key when it already has rows.
    fn create_table(&mut self, session: &mut Session, name: String) -> Done {
        let late = self.dice(3) == 0;
        let key = (!late).then(|| primary_key(&name));
        let new = new_table(&name, key);
        let storage = if self.stores { self.some_storage(new.storage) } else { new.storage };
        let storage = StorageOptions { tablespace: self.some_tablespace(), ..storage };
        let new = NewTable { storage, ..new };
        let def = session.txn.create_table(new).map_err(text)?;
        session.effects.push(Effect::CreateTable(name.clone()));
        session.effects.push(Effect::Fact(format!("{name}/storage"), stored_as(storage)));
        if !late {
            return Ok(());
        }
        let table = session.txn.table(&def).map_err(text)?;
        for _ in 0..self.dice(40) {
            let slot = self.dice(SESSIONS as u64) as usize;
            let (id, row) = (self.some_key(slot, true), self.some_row());
            session.txn.insert(&table, &data(id, &row)).map_err(text)?;
            session.effects.push(Effect::Put(name.clone(), id, row));
        }
        session.txn.add_primary_key(def.id, primary_key(&name)).map(|_| ()).map_err(text)
    }

    /// Sets or resets the compression of a table, and sometimes runs VACUUM FULL.
    fn store_one(&mut self, session: &mut Session) -> Done {
        session.start(&self.committed);
        let name = format!("t{}", self.dice(TABLES_MAX));
        let Some(def) = session.txn.catalog().table(SCHEMA, &name) else {
            return self.create_table(session, name);
        };
        if self.dice(4) == 0 {
            return session.txn.rewrite(def.id).map(|_| ()).map_err(text);
        }
        let storage = self.some_storage(def.storage);
        session.txn.set_storage(def.id, storage).map_err(text)?;
        session.effects.push(Effect::Fact(format!("{name}/storage"), stored_as(storage)));
        Ok(())
    }

    /// Returns a random fast algorithm, so that the tests take less time.
    fn some_storage(&mut self, now: StorageOptions) -> StorageOptions {
        let quick = [Algorithm::None, Algorithm::Lz4, Algorithm::Snappy, Algorithm::Zlib, Algorithm::Zstd];
        let algorithm = quick.get(self.dice(quick.len() as u64 + 1) as usize);
        StorageOptions { compression: algorithm.map(|algorithm| Compression::of(*algorithm)), ..now }
    }

    fn create_index(&mut self, session: &mut Session, def: &TableDef) -> Done {
        let unique = self.dice(2) == 0;
        let index = format!("{}_by_group{}", def.name, if unique { "_and_id" } else { "" });
        let new = NewIndex {
            table: def.id,
            name: index.clone(),
            columns: if unique { vec![1, 0] } else { vec![1] },
            unique,
            constraint: false,
            tablespace: self.some_tablespace(),
        };
        session.txn.create_index(new).map_err(text)?;
        session.effects.push(Effect::CreateIndex(def.name.clone(), index));
        Ok(())
    }
}

/// Returns the text of the expected fact about a table's storage.
pub(super) fn stored_as(storage: StorageOptions) -> Option<String> {
    storage.compression.map(|how| format!("{} {}", how.algorithm, how.level))
}
