//! `varve.auto.toml`: what ALTER SYSTEM has changed. It is read after varve.toml, so that it wins.
//!
//! Invariants
//! 1. The file is replaced whole: a crash leaves the old one or the new one.
//! 2. What it says was read as settings over those of varve.toml before it was written.
//! 3. Flags of the command line win over both, and are no reason to say that a restart is needed.
//! 4. What the next start of the open database would refuse is refused, too.
//!
//! What this file doesn't know: SQL; how settings are read.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use toml::{Table, Value};
use varve_engine::{Database, Error};
use varve_pager::NvmFlush;
use varve_sql::{SqlError, SqlState, SystemSetting, SystemSettings, TemporaryLimit};

use super::keys::{KEYS, Key, Kind};
use super::{ConfigError, Settings, nearest, parse_bytes};
use crate::error::OpenError;
use crate::home::{check_next, check_settings};

/// The file's name within a data directory.
pub const AUTO_FILE_NAME: &str = "varve.auto.toml";
/// Where the next one is written.
pub const AUTO_FILE_NEW: &str = "varve.auto.new";

/// The settings of a process and of the starts after it.
pub struct SystemFile {
    directory: PathBuf,
    /// What varve.toml says.
    base: Settings,
    /// What the process runs with.
    in_force: Settings,
    /// The same without flags of the command line.
    at_start: Settings,
    temporary: Arc<TemporaryLimit>,
    /// The database that the settings are of, once it is open.
    database: OnceLock<Arc<Database>>,
    now: Mutex<Now>,
}

/// What changes.
struct Now {
    /// What the file says.
    said: Table,
    /// The settings of the next start.
    next: Settings,
}

impl SystemFile {
    /// Reads the file of a directory, if there is one, over what varve.toml says.
    pub fn read(directory: &Path, base: Settings) -> Result<SystemFile, OpenError> {
        let path = directory.join(AUTO_FILE_NAME);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(OpenError::ConfigFile { path, error }),
        };
        let wrong = |error: ConfigError| {
            OpenError::Config(ConfigError { file: Some(path.display().to_string()), ..error })
        };
        let next = base.clone().overlaid(&text, directory).map_err(wrong)?;
        let said = text.parse().unwrap_or_default();
        Ok(SystemFile {
            directory: directory.to_owned(),
            base,
            in_force: next.clone(),
            at_start: next.clone(),
            temporary: Arc::new(TemporaryLimit::new(next.query.temporary_bytes)),
            database: OnceLock::new(),
            now: Mutex::new(Now { said, next }),
        })
    }

    /// The settings with what ALTER SYSTEM has changed.
    pub fn settings(&self) -> &Settings {
        &self.at_start
    }

    /// The same in a process whose flags say something else.
    pub fn in_force(self, in_force: &Settings) -> SystemFile {
        SystemFile { in_force: in_force.clone(), ..self }
    }

    /// The limit that `query_temporary` sets.
    pub fn temporary_limit(&self) -> &Arc<TemporaryLimit> {
        &self.temporary
    }

    /// The same with the database that was opened with these settings: changes are judged by what it is, and reach it.
    pub fn of(self, database: Arc<Database>) -> SystemFile {
        SystemFile { database: OnceLock::from(database), ..self }
    }

    /// Names of the settings that the file says.
    pub fn altered(&self) -> Vec<&'static str> {
        let now = self.now.lock();
        KEYS.iter().filter(|key| key.said_in(&now.said).is_some()).map(|key| key.name).collect()
    }

    /// Makes the file say this, if the next start would take it.
    fn replace(&self, now: &mut Now, said: Table) -> Result<(), SqlError> {
        let text = said.to_string();
        let next = self.base.clone().overlaid(&text, &self.directory);
        let refused = |problem: String| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, problem);
        let next = next.map_err(|error| refused(error.message))?;
        let pager = self.database.get().map(|database| database.pager());
        let checked = pager.map_or_else(|| check_settings(&next), |pager| check_next(&next, pager));
        checked.map_err(|error| refused(error.to_string()))?;
        self.write(&text).map_err(|error| {
            let path = self.directory.join(AUTO_FILE_NAME);
            SqlError::new(SqlState::IO_ERROR, format!("could not write file \"{}\": {error}", path.display()))
        })?;
        let applied = self.apply(&next);
        *now = Now { said, next };
        applied
    }

    /// Settings that change on line. The file says them already: what fails here is done by the next start.
    fn apply(&self, next: &Settings) -> Result<(), SqlError> {
        self.temporary.set(next.query.temporary_bytes);
        let Some(database) = self.database.get() else { return Ok(()) };
        let pager = database.pager();
        pager.set_trim(next.trim);
        let flush = next.nvm.as_ref().map_or(NvmFlush::DEFAULT, |nvm| nvm.flush);
        let applied =
            pager.set_default_compression(next.compression).and_then(|()| pager.set_nvm_flush(flush));
        applied.map_err(|error| SqlError::from(Error::from(error)))
    }

    fn write(&self, text: &str) -> std::io::Result<()> {
        let new = self.directory.join(AUTO_FILE_NEW);
        let mut file = File::create(&new)?;
        file.write_all(b"# Written by ALTER SYSTEM, read after varve.toml.\n")?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, self.directory.join(AUTO_FILE_NAME))?;
        File::open(&self.directory)?.sync_all()
    }

    fn setting(&self, key: &'static Key, next: &Settings) -> SystemSetting {
        let (next, before) = ((key.shown)(next), (key.shown)(&self.at_start));
        let value = if key.needs_restart { (key.shown)(&self.in_force) } else { next.clone() };
        SystemSetting {
            name: key.name,
            after_restart: if next == before { value.clone() } else { next },
            value,
            default: (key.shown)(&Settings::default()),
            description: key.description,
            needs_restart: key.needs_restart,
        }
    }
}

impl SystemSettings for SystemFile {
    fn all(&self) -> Vec<SystemSetting> {
        let now = self.now.lock();
        KEYS.iter().map(|key| self.setting(key, &now.next)).collect()
    }

    fn alter(&self, name: &str, value: Option<&str>) -> Result<(), SqlError> {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else { return Err(unknown(name)) };
        let mut now = self.now.lock();
        let mut said = now.said.clone();
        let section = said.entry(key.section).or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(section) = section else { return Err(SqlError::internal("a section that is none")) };
        match value {
            Some(value) => section.insert(key.key.to_owned(), written(key, value)?),
            None => section.remove(key.key),
        };
        if section.is_empty() {
            said.remove(key.section);
        }
        self.replace(&mut now, said)
    }

    fn reset_all(&self) -> Result<(), SqlError> {
        let mut now = self.now.lock();
        self.replace(&mut now, Table::new())
    }
}

/// A value as the file has it.
fn written(key: &Key, value: &str) -> Result<Value, SqlError> {
    let invalid = |problem: &str| {
        let message = format!("invalid value for parameter \"{}\": \"{value}\"", key.name);
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).with_detail(format!("It {problem}."))
    };
    match key.kind {
        Kind::Bytes => parse_bytes(value).map(|_| Value::String(value.to_owned())).map_err(|e| invalid(&e)),
        Kind::Count => count(value).map_err(|_| invalid("is no whole number")),
        Kind::CountOrAuto if value.trim() == "auto" => Ok(Value::String("auto".to_owned())),
        Kind::CountOrAuto => count(value).map_err(|_| invalid("is no whole number, nor auto")),
        Kind::Flag => flag(value).map(Value::Boolean).ok_or_else(|| invalid("is neither on nor off")),
        Kind::Word => Ok(Value::String(value.to_owned())),
    }
}

fn count(value: &str) -> Result<Value, std::num::ParseIntError> {
    value.trim().parse().map(Value::Integer)
}

fn flag(value: &str) -> Option<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// 42704; settings of varve.toml that are no matter of ALTER SYSTEM are told apart.
fn unknown(name: &str) -> SqlError {
    let message = format!("unrecognized configuration parameter \"{name}\"");
    let error = SqlError::new(SqlState::UNDEFINED_OBJECT, message);
    let sections = ["devices_", "spaces_", "server_", "pool_page_size", "home_layout"];
    if sections.iter().any(|section| name.starts_with(section)) {
        return error.with_hint(
            "Devices, spaces, page size and layout, addresses and who is let in are changed in varve.toml.",
        );
    }
    let known: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
    match nearest(name, &known) {
        Some(near) => error.with_hint(format!("Perhaps you meant \"{near}\".")),
        None => error,
    }
}
