//! `varve.auto.toml`: what ALTER SYSTEM has changed. It is read after varve.toml, so that it wins.
//!
//! Invariants
//! 1. The file is replaced whole: a crash leaves the old one or the new one.
//! 2. What it says was read as settings over those of varve.toml before it was written.
//! 3. Flags of the command line win over both, and are no reason to say that a restart is needed.
//! 4. What the next start of the open database would refuse is refused, too.
//! 5. What leans on varve.toml (persistent memory, above all) and has nothing to lean on any more, since that was changed afterwards, is
//!    left out, and said. Other mistakes are errors; but those who bring a database out of persistent memory can't wait for that.
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
use super::{ConfigError, Settings, nearest, parse_bytes, show_bytes, tell};
use crate::error::OpenError;
use crate::home::{check_next, check_settings, page_writers};

/// The file's name within a data directory.
pub const AUTO_FILE_NAME: &str = "varve.auto.toml";
/// Where the next one is written.
pub const AUTO_FILE_NEW: &str = "varve.auto.new";

const LOG_SEGMENT: &str = "log_segment";

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
    /// What was left out, for people.
    left_out: Vec<String>,
    now: Mutex<Now>,
}

/// What becomes of a setting that doesn't go with varve.toml.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misfit {
    /// It is left out if it leans on others, else an error.
    Told,
    /// It is left out.
    LeftOut,
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
    pub fn read(directory: &Path, base: Settings, misfit: Misfit) -> Result<SystemFile, OpenError> {
        let path = directory.join(AUTO_FILE_NAME);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(OpenError::ConfigFile { path, error }),
        };
        let wrong = |error: ConfigError| {
            OpenError::Config(ConfigError { file: Some(path.display().to_string()), ..error })
        };
        let said: Table = text.parse().unwrap_or_default();
        let (next, said, left_out) = match base.clone().overlaid(&text, directory) {
            Ok(next) => (next, said, Vec::new()),
            Err(error) => {
                let error = wrong(error);
                let Some((next, kept, mut why)) = fitting(&base, directory, &said, misfit) else {
                    return Err(error);
                };
                // Nothing to blame, and yet it isn't read: it doesn't parse, or a section is empty. The next ALTER SYSTEM would write over it.
                if why.is_empty() && misfit == Misfit::Told {
                    return Err(error);
                }
                if why.is_empty() {
                    why.push(format!("what can't be read is left out: {error}"));
                }
                (next, kept, why)
            }
        };
        Ok(SystemFile {
            directory: directory.to_owned(),
            base,
            in_force: next.clone(),
            at_start: next.clone(),
            temporary: Arc::new(TemporaryLimit::new(next.query.temporary_bytes)),
            database: OnceLock::new(),
            left_out,
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

    /// What the file says that no longer goes with varve.toml, for people.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Refuses another length of the log's segments while there is a log: nothing would come of it, after a restart either.
    fn check_segment(&self, key: &Key, value: Option<&str>) -> Result<(), SqlError> {
        let Some(database) = self.database.get().filter(|_| key.name == LOG_SEGMENT) else { return Ok(()) };
        let pager = database.pager();
        let is_in_region = pager.nvm().is_some_and(|nvm| nvm.log_bytes > 0);
        let has = pager.config().log_segment_bytes;
        if is_in_region || value.is_none_or(|value| parse_bytes(value).is_ok_and(|bytes| bytes == has)) {
            return Ok(());
        }
        let message = format!("parameter \"{LOG_SEGMENT}\" cannot be changed");
        Err(SqlError::new(SqlState::CANT_CHANGE_RUNTIME_PARAM, message)
            .with_detail(format!("The log of this database has segments of {}.", show_bytes(has)))
            .with_hint("A log that begins anew has the length that varve.toml says: when it leaves an NVM region (varve nvm drain)."))
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
        let applied = applied.and_then(|()| pager.set_packed_fill(next.packed.fill_percent));
        let applied = applied.and_then(|()| match [&self.in_force, next].map(|one| one.pool.page_writers) {
            // As many as the next start would have.
            [None, None] => pager.set_page_writers(page_writers(next, pager.has_compressed_pages())),
            _ => Ok(()),
        });
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
        let pager = self.database.get().map(|database| database.pager());
        let warning = pager.and_then(|pager| tell::warning(key.name, next, pager));
        let protection = pager.filter(|_| key.name == tell::PROTECTION);
        let protection = protection.map(|pager| tell::protection(pager.config(), next.protection));
        let (wished, before, flagged) =
            ((key.shown)(next), (key.shown)(&self.at_start), (key.shown)(&self.in_force));
        let default = (key.shown)(&Settings::default());
        let is_flag = key.needs_restart && flagged != before;
        let (value, after_restart) = match protection {
            Some(protection) => protection,
            None if is_flag => (flagged.clone(), flagged.clone()),
            None if key.needs_restart => (flagged, wished.clone()),
            None => (wished.clone(), wished.clone()),
        };
        SystemSetting {
            name: key.name,
            source: match is_flag {
                true => "command line",
                false if value == default => "default",
                false => "configuration file",
            },
            kind: tell::kind(key.kind),
            unit: tell::unit(key.name),
            choices: tell::choices(key.name),
            hidden: (is_flag && wished != value).then_some(wished),
            warning,
            value,
            after_restart,
            default,
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
        self.check_segment(key, value)?;
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

/// Settings with that part of the file that goes with them, that part, and what is left out, in words. `None` if something is wrong
/// that is not left out.
fn fitting(
    base: &Settings,
    directory: &Path,
    said: &Table,
    misfit: Misfit,
) -> Option<(Settings, Table, Vec<String>)> {
    let mut pending: Vec<&Key> = KEYS.iter().filter(|key| key.said_in(said).is_some()).collect();
    let sections = said.values().map(|section| section.as_table().map_or(1, Table::len));
    let is_known = sections.sum::<usize>() == pending.len();
    let (mut kept, mut next, mut why) = (Table::new(), base.clone(), Vec::new());
    // Some lean on each other: as long as any is taken, the others are tried again.
    loop {
        let tried = std::mem::take(&mut pending);
        why.clear();
        for key in tried.iter().copied() {
            let with = with(&kept, key, said);
            match base.clone().overlaid(&with.to_string(), directory) {
                Ok(settings) => (kept, next) = (with, settings),
                Err(error) => {
                    why.push(format!("{} is left out: {}", key.name, error.message));
                    pending.push(key);
                }
            }
        }
        if pending.is_empty() || pending.len() == tried.len() {
            break;
        }
    }
    let may_go = misfit == Misfit::LeftOut || is_known && pending.iter().all(|key| key.leans());
    may_go.then_some((next, kept, why))
}

/// A part of the file, and this key of it.
fn with(kept: &Table, key: &Key, said: &Table) -> Table {
    let mut with = kept.clone();
    let section = with.entry(key.section).or_insert_with(|| Value::Table(Table::new()));
    if let (Value::Table(section), Some(value)) = (section, key.said_in(said)) {
        section.insert(key.key.to_owned(), value.clone());
    }
    with
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
    let sections = ["devices_", "spaces_", "server_", "pool_page_size", "home_layout", "packed_extent"];
    if sections.iter().any(|section| name.starts_with(section)) {
        return error.with_hint(
            "Devices, spaces, page size, layout and extents, addresses and who is let in are changed in varve.toml.",
        );
    }
    let known: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
    match nearest(name, &known) {
        Some(near) => error.with_hint(format!("Perhaps you meant \"{near}\".")),
        None => error,
    }
}
