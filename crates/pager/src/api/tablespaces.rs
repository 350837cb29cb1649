//! Making and dropping tablespaces, the further spaces for tables and indexes (decision 0212).
//!
//! Invariants
//! 1. A tablespace exists from the write of the list that puts it in use to the write that drops it. A crash
//!    before the first write or after the second one can leave files, which the next start removes.
//! 2. Only an empty tablespace is dropped. From then on nothing can be allocated in it.
//!
//! This module does not know which roles may make or drop tablespaces.

use std::sync::Arc;

use varve_device::{Directory, planted, reached};

use crate::api::pager::Pager;
use crate::base::compression::Compression;
use crate::base::error::{BadLocation, LocationFlaw, PagerError, Result};
use crate::base::ids::{PageId, PageNo, PageRange, SpaceId};
use crate::base::lsn::Lsn;
use crate::base::space_format::Geometry;
use crate::control::tablespaces::{Listed, NOTE_TABLESPACES, TablespaceList, TablespaceState};
use crate::home::protection::kind::ProtectionKind;
use crate::log::notes::time::Timed;
use crate::open::tablespaces::{TablespaceParts, TablespacePlace};

/// The properties of a tablespace that will be made.
#[derive(Clone, Debug)]
pub struct NewTablespace {
    /// The name of the tablespace. The pager only stores it, for messages and for its caller.
    pub name: String,
    /// Where its files will be.
    pub location: String,
    /// The protection of its page writes: doublewrite, atomic writes, or none.
    pub protection: ProtectionKind,
    /// The compression of pages whose owner has none of its own. `None` means the default of the server.
    pub compression: Option<Compression>,
    /// Bytes that the pager stores for its caller.
    pub note: Vec<u8>,
}

/// A tablespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tablespace {
    /// The space with its pages.
    pub id: SpaceId,
    /// Its name.
    pub name: String,
    /// Where its files are.
    pub location: String,
    /// The name of its protection.
    pub protection: &'static str,
    /// The compression of pages whose owner has none of its own.
    pub compression: Option<Compression>,
    /// Bytes that the pager stores for its caller.
    pub note: Vec<u8>,
}

impl Pager {
    /// Returns all tablespaces.
    pub fn tablespaces(&self) -> Vec<Tablespace> {
        self.shared.tablespaces.lock().in_use().map(told).collect()
    }

    /// The tablespace with this number.
    pub fn tablespace(&self, id: SpaceId) -> Option<Tablespace> {
        self.shared.tablespaces.lock().of(id).ok().map(told)
    }

    /// The tablespace with this name.
    pub fn tablespace_named(&self, name: &str) -> Option<Tablespace> {
        self.shared.tablespaces.lock().in_use().find(|one| one.name == name).map(told)
    }

    /// The directories of all tablespaces.
    pub fn tablespace_directories(&self) -> Vec<(SpaceId, Arc<dyn Directory>)> {
        let (list, layouts) = (self.shared.tablespaces.lock(), self.shared.spaces.layouts());
        list.in_use().filter_map(|one| Some((one.id, layouts.directory(one.id)?))).collect()
    }

    /// Makes a tablespace, durably.
    pub fn create_tablespace(&self, new: &NewTablespace) -> Result<SpaceId> {
        let _watch = self.stop_on_panic();
        let shared = &*self.shared;
        let protection = new.protection.in_force();
        if ProtectionKind::of_tablespace(protection).is_none() {
            let [first, second, third] = ProtectionKind::OF_TABLESPACES.map(ProtectionKind::name);
            let what = format!(
                "a tablespace cannot have protection {}: give it {first}, {second} or {third}",
                protection.name()
            );
            return Err(PagerError::Incompatible { what });
        }
        let mut list = shared.tablespaces.lock();
        if let Some(other) = list.all.iter().find(|one| one.location == new.location) {
            let what = format!("tablespace \"{}\" is at {} already", other.name, other.location);
            return Err(BadLocation::new(LocationFlaw::InUse, what).into());
        }
        refuse_name(&list, &new.name, None)?;
        let directory = shared.config.locations.open(&new.location)?;
        let listed = Listed {
            id: SpaceId::FIRST_TABLESPACE,
            state: TablespaceState::BeingMade,
            protection,
            compression: new.compression,
            name: new.name.clone(),
            location: new.location.clone(),
            note: new.note.clone(),
        };
        let mut found = TablespacePlace { listed, directory };
        self.make(&mut list, &mut found)
    }

    /// Makes a tablespace in its directory. The number of `found` is set.
    fn make(&self, list: &mut TablespaceList, found: &mut TablespacePlace) -> Result<SpaceId> {
        let shared = &*self.shared;
        found.refuse_unfit(self.page_size())?;
        found.listed.compression.map_or(Ok(()), |how| self.prepare_compression(how))?;
        let id = self.update(list, |list| {
            let id = list.take_number()?;
            found.listed.id = id;
            list.all.push(found.listed.clone());
            Some(id)
        })?;
        let Some(id) = id else {
            let what = "this database has used all numbers of tablespaces: make a new one".into();
            return Err(PagerError::Incompatible { what });
        };
        reached("tablespace: listed");
        let made = self
            .make_files(found)
            .and_then(|()| self.update(list, |list| list.set_state(id, TablespaceState::InUse)))
            .and_then(|()| self.note_list(list))
            .and_then(|()| shared.spaces.add_made(id, &shared.pool));
        if let Err(error) = made {
            shared.spaces.remove(id);
            // If the removal fails, too, the next start removes the files.
            let _removed = self
                .update(list, |list| list.set_state(id, TablespaceState::Dropped))
                .and_then(|()| self.remove_files(list, found));
            return Err(error);
        }
        Ok(id)
    }

    /// Removes the files of a tablespace that was dropped, and takes it off the list.
    fn remove_files(&self, list: &mut TablespaceList, place: &TablespacePlace) -> Result<()> {
        place.remove_files(self.shared.started.database, self.page_size())?;
        self.update(list, |list| list.all.retain(|one| one.id != place.listed.id))
    }

    /// Changes the name and the note of a tablespace, durably.
    pub fn change_tablespace(&self, id: SpaceId, name: &str, note: &[u8]) -> Result<()> {
        let _watch = self.stop_on_panic();
        let shared = &*self.shared;
        let mut list = shared.tablespaces.lock();
        list.of(id)?;
        refuse_name(&list, name, Some(id))?;
        self.update(&mut list, |list| {
            for one in list.all.iter_mut().filter(|one| one.id == id) {
                one.name = name.to_owned();
                one.note = note.to_vec();
            }
        })?;
        self.note_list(&list)
    }

    /// Logs the tablespaces in use, if the log is archived. The record of a new tablespace comes before its
    /// first change.
    fn note_list(&self, list: &TablespaceList) -> Result<()> {
        let log = &self.shared.log;
        if !log.has_times() {
            return Ok(());
        }
        log.store_note(NOTE_TABLESPACES, &list.listed_in_use().encode())?;
        let at = log.append_time(Timed::Tick);
        Ok(log.flush(at.end)?)
    }

    /// Logs that an archive begins, or goes on: from here on each commit has its time, and each change of the
    /// tablespaces is logged.
    pub(crate) fn note_archive_begins(&self) -> Result<()> {
        let list = self.shared.tablespaces.lock();
        self.note_list(&list)?;
        self.shared.log.append_time(Timed::Begin);
        Ok(self.shared.log.flush(self.shared.log.end())?)
    }

    /// Changes the list durably. If it is not known which list a start would find, the pager stops.
    fn update<T>(
        &self,
        list: &mut TablespaceList,
        change: impl FnOnce(&mut TablespaceList) -> T,
    ) -> Result<T> {
        let shared = &*self.shared;
        // After a failure, a start may find either list. So neither may be replaced.
        shared.log.check()?;
        let updated = list.update(&*shared.config.control, &shared.control, change);
        updated.inspect_err(|error| {
            if let PagerError::Stopped { cause } = error {
                shared.log.poison(cause);
            }
        })
    }

    fn make_files(&self, found: &TablespacePlace) -> Result<()> {
        let shared = &*self.shared;
        let parts = TablespaceParts {
            config: &shared.config,
            database: shared.started.database,
            ledger: &shared.ledger,
            log: &shared.log,
            compressions: &shared.compressions,
            trim: &shared.trim,
        };
        found.make(&parts, shared.spaces.layouts())?;
        let geometry = Geometry::of(found.listed.id, self.page_size());
        let stored = shared.control.get();
        let mark = if stored.mark == 0 { stored.next_mark } else { stored.mark };
        shared.spaces.make_tablespace(geometry, stored.database, mark)?;
        reached("tablespace: files made");
        Ok(())
    }

    /// Drops a tablespace, durably. Returns false, and changes nothing, if an owner has pages in it.
    pub fn drop_tablespace(&self, id: SpaceId) -> Result<bool> {
        let _watch = self.stop_on_panic();
        let shared = &*self.shared;
        let mut list = shared.tablespaces.lock();
        let listed = list.of(id)?.clone();
        if !shared.spaces.close(id)? {
            return Ok(false);
        }
        if !planted("tablespace: a drop is not listed") {
            self.update(&mut list, |list| list.set_state(id, TablespaceState::Dropped))
                .inspect_err(|_| shared.spaces.reopen(id))?;
        }
        reached("tablespace: dropped");
        // Without the record, a database that is restored to a later moment has an empty tablespace more.
        let _noted = self.note_list(&list);
        let first = PageId::new(id, PageNo(0));
        let count = shared.spaces.layouts().of(first)?.pages(id);
        shared.pool.discard(PageRange { first, count }, Lsn::ZERO)?;
        let directory = shared.spaces.layouts().directory(id);
        shared.spaces.remove(id);
        // From here on the tablespace is dropped, even if a step fails. The next start removes files that are
        // left.
        let removed =
            directory.map(|directory| self.remove_files(&mut list, &TablespacePlace { listed, directory }));
        if !matches!(removed, Some(Ok(()))) {
            reached("tablespace: files are left");
        }
        Ok(true)
    }
}

/// An error if another tablespace than `own` has the name.
fn refuse_name(list: &TablespaceList, name: &str, own: Option<SpaceId>) -> Result<()> {
    match list.all.iter().find(|one| Some(one.id) != own && one.name == name) {
        None => Ok(()),
        Some(other) => {
            let what = format!("tablespace \"{name}\" is at {} already: choose another name", other.location);
            Err(PagerError::Incompatible { what })
        }
    }
}

fn told(listed: &Listed) -> Tablespace {
    Tablespace {
        id: listed.id,
        name: listed.name.clone(),
        location: listed.location.clone(),
        protection: listed.protection.name(),
        compression: listed.compression,
        note: listed.note.clone(),
    }
}
