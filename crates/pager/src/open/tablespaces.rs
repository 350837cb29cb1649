//! Opens and makes tablespaces, the further spaces for tables and indexes (decision 0212).
//!
//! A tablespace has a directory of its own with a file of pages, which are in place, and the files of its own
//! protection.
//!
//! Invariants
//! 1. A start opens all tablespaces in use or none. Before it changes anything, it refuses a directory or
//!    file that is missing, and a file of another moment.
//! 2. A tablespace is made only in a directory without files of Varve. So the removal of its files removes no
//!    other file.
//!
//! This module does not know when tablespaces are made or dropped.

use std::sync::Arc;

use varve_device::{AlignedBuf, Directory, OpenHow, Purpose, reached};

use crate::base::error::{BadLocation, LocationFlaw, PagerError, Result};
use crate::base::ids::SpaceId;
use crate::base::lsn::Lsn;
use crate::base::space_format;
use crate::config::{PagerConfig, writes_whole};
use crate::control::tablespaces::{Listed, TablespaceList, TablespaceState};
use crate::control::{InForce, Superblock};
use crate::home::compression::by_owner::Compressions;
use crate::home::files::{self, SpaceFile, SpaceFiles};
use crate::home::in_place::{InPlace, InPlaceParts};
use crate::home::layouts::Layouts;
use crate::home::protection::kind::ProtectionKind;
use crate::home::protection::{self, Announce, Mended};
use crate::home::trim::TrimSetting;
use crate::level::ledger::Ledger;
use crate::log::Log;

/// A tablespace in use, and its directory.
pub(crate) struct TablespacePlace {
    pub(crate) listed: Listed,
    pub(crate) directory: Arc<dyn Directory>,
}

/// The parts of the pager that a tablespace uses.
pub(crate) struct TablespaceParts<'a> {
    pub(crate) config: &'a PagerConfig,
    pub(crate) database: u64,
    pub(crate) ledger: &'a Arc<Ledger>,
    pub(crate) log: &'a Arc<Log>,
    pub(crate) compressions: &'a Arc<Compressions>,
    pub(crate) trim: &'a Arc<TrimSetting>,
}

/// Finds the directories of all tablespaces in use. The repair of torn pages may need copies of pages. This
/// function also checks that these copies exist, for the data space and for each tablespace.
pub(super) fn find(
    config: &PagerConfig,
    list: &TablespaceList,
    stored: &Superblock,
) -> Result<Vec<TablespacePlace>> {
    protection::check_copies(SpaceId::DATA, &*config.data, stored.protection, stored)?;
    let found: Vec<TablespacePlace> =
        list.in_use().map(|listed| TablespacePlace::of(config, listed.clone())).collect::<Result<_>>()?;
    for TablespacePlace { listed, directory } in &found {
        protection::check_copies(listed.id, &**directory, listed.protection, stored)?;
    }
    Ok(found)
}

/// Opens the tablespaces of an existing database. `redo` is where redo will start, and `announce` is called
/// with each page before it is repaired. Returns these pages.
pub(super) fn open(
    all: &[TablespacePlace],
    parts: &TablespaceParts<'_>,
    layouts: &Layouts,
    redo: Option<Lsn>,
    announce: Announce<'_>,
) -> Result<Vec<Mended>> {
    let mut mended = Vec::new();
    for one in all {
        mended.extend(one.open(parts, layouts, redo.unwrap_or(Lsn::ZERO), announce)?);
    }
    Ok(mended)
}

impl TablespacePlace {
    /// Finds the directory of a tablespace that is in use.
    pub(crate) fn of(config: &PagerConfig, listed: Listed) -> Result<TablespacePlace> {
        match config.locations.open(&listed.location) {
            Ok(directory) => Ok(TablespacePlace { listed, directory }),
            Err(why) => {
                reached("open: a tablespace is not there");
                let Listed { name, location, .. } = &listed;
                let what = format!(
                    "tablespace \"{name}\" is at {location}, which cannot be used: {why}. Nothing was changed: make the location \
                     available again, and start again"
                );
                Err(PagerError::Incompatible { what })
            }
        }
    }

    /// Opens the tablespace of an existing database: repairs torn pages, and adds its layout. Returns the
    /// repaired pages.
    fn open(
        &self,
        parts: &TablespaceParts<'_>,
        layouts: &Layouts,
        redo: Lsn,
        announce: Announce<'_>,
    ) -> Result<Vec<Mended>> {
        let Listed { id, protection, .. } = self.listed;
        let file = SpaceFile::open(id, &*self.directory, parts.config.page_size, false)?;
        let files = Arc::new(SpaceFiles::new(vec![file]));
        // A killed process may have left writes in caches of the system, which redo treats as stable.
        files.flush_all()?;
        let wanted = parts.config.protection_in(kind_of(protection, parts.config)?, &*self.directory);
        let mended = protection::repair(protection, &wanted, &files, redo, announce)?;
        self.add(parts, layouts, files, Some(protection))?;
        Ok(mended)
    }

    /// Makes the files of a new tablespace, except the contents of its file of pages, and adds its layout.
    pub(crate) fn make(&self, parts: &TablespaceParts<'_>, layouts: &Layouts) -> Result<()> {
        let file = SpaceFile::open(self.listed.id, &*self.directory, parts.config.page_size, true)?;
        self.add(parts, layouts, Arc::new(SpaceFiles::new(vec![file])), None)?;
        Ok(self.directory.sync()?)
    }

    fn add(
        &self,
        parts: &TablespaceParts<'_>,
        layouts: &Layouts,
        files: Arc<SpaceFiles>,
        was: Option<InForce>,
    ) -> Result<()> {
        let Listed { id, protection, compression, .. } = self.listed;
        let kind = kind_of(protection, parts.config)?;
        let wanted = parts.config.protection_in(kind, &*self.directory);
        let protection = protection::open(&wanted, parts.database, &files, was)?;
        if let Some(how) = compression {
            parts.compressions.set_default_in(id, how);
        }
        let layout = InPlace::new(InPlaceParts {
            files,
            protection,
            ledger: parts.ledger.clone(),
            log: parts.log.clone(),
            compressions: parts.compressions.clone(),
            trim: parts.trim.clone(),
            page_size: parts.config.page_size,
            stored_lengths: super::lengths_on(&[&*self.directory], kind),
        });
        layouts.add(id, layout, self.directory.clone());
        Ok(())
    }

    /// Returns an error if the directory has files of Varve already, or its device cannot do what the
    /// protection needs.
    pub(crate) fn refuse_unfit(&self, page_size: usize) -> Result<()> {
        let is_ours = |name: &String| {
            let (has_end, is_log) = (name.ends_with(".varve"), name.starts_with("log."));
            has_end || is_log || name == crate::control::CONTROL_FILE
        };
        if let Some(name) = self.directory.list()?.into_iter().find(is_ours) {
            let what = format!(
                "{}/{name} belongs to a database or to another tablespace: choose an empty directory",
                self.directory.location()
            );
            return Err(BadLocation::new(LocationFlaw::InUse, what).into());
        }
        match self.listed.protection {
            InForce::AtomicWrite => writes_whole(&*self.directory, page_size),
            _ => Ok(()),
        }
    }

    /// Removes the files of a tablespace that was dropped, or whose making was not finished.
    ///
    /// Errors: the files belong to another database. It may have made a tablespace in this directory after
    /// these files were removed.
    pub(crate) fn remove_files(&self, database: u64, page_size: usize) -> Result<()> {
        if self.is_foreign(database, page_size)? {
            let what = format!("{} has a tablespace of another database now", self.directory.location());
            return Err(PagerError::Incompatible { what });
        }
        let mut names = protection::COPY_FILES.map(str::to_owned).to_vec();
        names.push(files::file_name(self.listed.id));
        for name in names {
            if self.directory.exists(&name)? {
                // A thread may still have the file open. So the device gets the space back now.
                let (kind, _) = files::device_space(self.listed.id);
                self.directory.open(&name, OpenHow::existing(kind))?.set_len(0)?;
                self.directory.remove(&name)?;
            }
        }
        Ok(self.directory.sync()?)
    }
}

impl TablespacePlace {
    /// Returns whether the files in the directory name another database. Files without a readable header name
    /// none.
    fn is_foreign(&self, database: u64, page_size: usize) -> Result<bool> {
        if protection::has_foreign_copies(&*self.directory, database)? {
            return Ok(true);
        }
        let (id, name) = (self.listed.id, files::file_name(self.listed.id));
        if !self.directory.exists(&name)? {
            return Ok(false);
        }
        let file = files::open_existing(id, &*self.directory, &name)?;
        let mut header = AlignedBuf::new(page_size);
        if file.len_bytes()? < header.len() as u64 {
            return Ok(false);
        }
        file.read_at(0, &mut header, Purpose::DataPage)?;
        Ok(space_format::database_of(&header).is_some_and(|found| found != database))
    }
}

/// Removes the files of tablespaces that were dropped, or whose making was not finished, and then takes them
/// off the list. Returns warnings about files that could not be removed.
pub(crate) fn tidy(
    config: &PagerConfig,
    list: &mut TablespaceList,
    control: &crate::control::Control,
) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    let left: Vec<Listed> =
        list.all.iter().filter(|one| one.state != TablespaceState::InUse).cloned().collect();
    if left.is_empty() {
        return Ok(warnings);
    }
    reached("open: files of a tablespace are removed");
    for listed in left {
        let (name, location) = (listed.name.clone(), listed.location.clone());
        let removed = TablespacePlace::of(config, listed)
            .and_then(|found| found.remove_files(control.get().database, config.page_size));
        if let Err(why) = removed {
            warnings.push(format!(
                "tablespace \"{name}\" was dropped, and its files at {location} could not be removed: {why}"
            ));
        }
    }
    list.update(&*config.control, control, |list| {
        list.all.retain(|one| one.state == TablespaceState::InUse);
    })?;
    Ok(warnings)
}

/// The protection of a tablespace. Its doublewrite has as many slots as that of the database.
fn kind_of(protection: InForce, config: &PagerConfig) -> Result<ProtectionKind> {
    match (ProtectionKind::of_tablespace(protection), config.protection.slots()) {
        (Some(ProtectionKind::Doublewrite { .. }), Some((batch_slots, single_slots))) => {
            Ok(ProtectionKind::Doublewrite { batch_slots, single_slots })
        }
        (Some(kind), _) => Ok(kind),
        (None, _) => Err(PagerError::Corrupt {
            what: "the list of tablespaces names a protection that none can have: restore it from a backup"
                .into(),
        }),
    }
}
