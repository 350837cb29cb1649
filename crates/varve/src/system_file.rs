//! The file `varve.auto.toml`: the settings that ALTER SYSTEM has changed. It is read after `varve.toml` and
//! overrides it.
//!
//! Invariants
//! 1. The file is always replaced as a whole, so a crash leaves either the old file or the new one.
//! 2. Before the file is written, its settings are read and checked together with those of `varve.toml`.
//! 3. Flags of the command line override both files. A setting that a flag overrides is not reported as
//!    waiting for a restart.
//! 4. ALTER SYSTEM refuses a setting that the next start of this database would refuse.
//! 5. A setting may need a section that was later removed from `varve.toml`, such as `[nvm]`. It is then
//!    ignored with a warning. Other mistakes in the file are errors, but `varve nvm drain` works even then.
//! 6. An ignored setting stays in the file when ALTER SYSTEM changes another setting. A later start can use
//!    it again.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use toml::{Table, Value};
use varve_engine::{Database, Error};
use varve_pager::NvmFlush;
use varve_sql::{SqlError, SqlState, StatementStats, SystemSetting, SystemSettings, TemporaryLimit, log};

use crate::config::declared::SettingKind;
use crate::config::fit::{Fit, unknown_of};
use crate::config::keys::{KEYS, Key};
use crate::config::units::{parse_kilobytes, parse_millis};
use crate::config::{
    AUTO_FILE_NAME, AUTO_FILE_NEW, ConfigError, Settings, nearest, parse_bytes, show_bytes, tell, text_of,
};
use crate::data_directory::{check_next, check_settings, page_writers};
use crate::error::OpenError;
use crate::messages;

/// The settings of a process and of the starts after it.
pub struct SystemFile {
    directory: PathBuf,
    /// The settings of varve.toml.
    base: Settings,
    /// The settings of this process.
    in_force: Settings,
    /// The settings of this process without flags of the command line.
    at_start: Settings,
    temporary: Arc<TemporaryLimit>,
    statements: Arc<StatementStats>,
    /// The database with these settings, once it is open.
    database: OnceLock<Arc<Database>>,
    /// Descriptions of the ignored settings.
    left_out: Vec<String>,
    now: Mutex<Now>,
}

/// How to treat a setting that is impossible with varve.toml.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misfit {
    /// The setting is ignored if it depends on other settings. Otherwise it is an error.
    Told,
    /// The setting is ignored.
    LeftOut,
}

/// The part of the state that ALTER SYSTEM changes.
struct Now {
    /// The contents of the file.
    said: Table,
    /// The part of the file that the next start can use.
    fit: Fit,
}

impl SystemFile {
    /// Reads the `varve.auto.toml` of a directory, if there is one. Its settings override those of
    /// varve.toml.
    pub fn read(directory: &Path, base: Settings, misfit: Misfit) -> Result<SystemFile, OpenError> {
        let path = directory.join(AUTO_FILE_NAME);
        let wrong = |error: ConfigError| ConfigError { file: Some(path.display().to_string()), ..error };
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(OpenError::NotDirectory { path: directory.to_owned() });
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(OpenError::ConfigFile { path, error });
            }
            read => read.unwrap_or_default(),
        };
        let (text, garbled) = match text_of(bytes) {
            Ok(text) => (text, None),
            Err(error) => (String::new(), Some(wrong(error))),
        };
        let said: Table = text.parse().unwrap_or_default();
        let next = garbled.map_or_else(|| base.clone().overlaid(&text, directory).map_err(wrong), Err);
        let (fit, left_out) = match next {
            Ok(next) => (Fit::whole(next, &said), Vec::new()),
            Err(error) => {
                let fit = Fit::of(&base, directory, &said);
                let is_right_elsewhere = fit.all_left_lean() && unknown_of(&said).is_empty();
                // The file can't be read, but no single setting is wrong. Either it is not valid TOML, or a
                // section is empty. The next ALTER SYSTEM would write over it.
                if misfit == Misfit::Told && (!is_right_elsewhere || fit.left.is_empty()) {
                    return Err(OpenError::Config(error));
                }
                let left_out = told(&fit, &said, &error);
                (fit, left_out)
            }
        };
        Ok(SystemFile {
            directory: directory.to_owned(),
            base,
            in_force: fit.next.clone(),
            at_start: fit.next.clone(),
            temporary: Arc::new(TemporaryLimit::new(fit.next.query.temporary_bytes)),
            statements: Arc::default(),
            database: OnceLock::new(),
            left_out,
            now: Mutex::new(Now { said, fit }),
        })
    }

    /// Returns the settings, including the changes of ALTER SYSTEM.
    pub fn settings(&self) -> &Settings {
        &self.at_start
    }

    /// Returns the same file for a process in which flags of the command line override settings. `in_force`
    /// are the settings with these flags.
    pub fn in_force(self, in_force: &Settings) -> SystemFile {
        SystemFile { in_force: in_force.clone(), ..self }
    }

    /// Returns the limit that `query_temporary` sets.
    pub fn temporary_limit(&self) -> &Arc<TemporaryLimit> {
        &self.temporary
    }

    /// Returns the statistics of statements, whose limit `statements_max` sets.
    pub fn statements(&self) -> &Arc<StatementStats> {
        &self.statements
    }

    /// Returns the same file with the database that was opened with these settings. The database checks and
    /// applies changes of settings.
    pub fn of(self, database: Arc<Database>) -> SystemFile {
        SystemFile { database: OnceLock::from(database), ..self }
    }

    /// Returns names of the settings in the file, without the ignored ones.
    pub fn altered(&self) -> Vec<&'static str> {
        let now = self.now.lock();
        KEYS.iter().filter(|key| key.said_in(&now.fit.kept).is_some()).map(|key| key.name).collect()
    }

    /// Returns descriptions of the settings in the file that are impossible with the present varve.toml.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Refuses to change the length of log segments if the log has segments, because the change would have no
    /// effect, even after a restart.
    fn check_segment(&self, key: &Key, value: Option<&str>) -> Result<(), SqlError> {
        let Some(database) = self.database.get().filter(|_| key.name == tell::SEGMENT) else { return Ok(()) };
        let pager = database.pager();
        let is_in_region = pager.nvm().is_some_and(|nvm| nvm.log_bytes > 0);
        let has = pager.config().log_segment_bytes;
        if is_in_region || value.is_none_or(|value| parse_bytes(value).is_ok_and(|bytes| bytes == has)) {
            return Ok(());
        }
        let message = format!("parameter \"{}\" cannot be changed", tell::SEGMENT);
        Err(SqlError::new(SqlState::CANT_CHANGE_RUNTIME_PARAM, message)
            .with_detail(format!("The log of this database has segments of {}.", show_bytes(has)))
            .with_hint(
                "Only a new log has the length given in varve.toml, such as the log after varve nvm drain.",
            ))
    }

    /// Writes these settings to the file, if the next start would accept them. `altered` is the new setting
    /// among them.
    fn replace(&self, now: &mut Now, said: Table, altered: Option<&Key>) -> Result<(), SqlError> {
        let refused = |problem: String| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, problem);
        let fit = self.fit(now, &said, altered).map_err(|error| refused(error.message))?;
        let database = self.database.get();
        let checked = database.map_or_else(|| check_settings(&fit.next), |open| check_next(&fit.next, open));
        checked.map_err(|error| refused(error.to_string()))?;
        // The cache is resized before the file is written. If there is not enough space, the file does not
        // get the new size, because each later change of a setting would try to resize again.
        if altered.is_some_and(|key| key.name == "flash_size") {
            self.resize(&fit.next)?;
        }
        let durable = self.write(&said.to_string()).map_err(|error| {
            // Restores the old size of the cache. If there is not enough space for it any more, the next
            // start has this size, or runs without the cache.
            let _as_it_was = self.resize(&now.fit.next);
            let path = self.directory.join(AUTO_FILE_NAME);
            SqlError::new(SqlState::IO_ERROR, format!("could not write file \"{}\": {error}", path.display()))
        })?;
        // The file has its new name, which may not be durable yet. From here on, the settings in force must
        // be those in the file.
        let applied = self.apply(&fit.next);
        *now = Now { said, fit };
        let applied = applied
            .map_err(|error| error.with_detail("The setting is stored, and takes effect at the next start."));
        applied.and(durable.map_err(|error| {
            let message = format!("could not flush directory \"{}\": {error}", self.directory.display());
            SqlError::new(SqlState::IO_ERROR, message)
                .with_detail("The setting is changed, but a power failure may undo the change.")
        }))
    }

    /// Returns the part of these settings that the next start would use. Settings that do not fit varve.toml,
    /// and that the last start has therefore ignored, may stay ignored. The setting that ALTER SYSTEM changes
    /// now, and all others, must fit.
    fn fit(&self, now: &Now, said: &Table, altered: Option<&Key>) -> Result<Fit, ConfigError> {
        let error = match self.base.clone().overlaid(&said.to_string(), &self.directory) {
            Ok(next) => return Ok(Fit::whole(next, said)),
            Err(error) => error,
        };
        if now.fit.left.is_empty() || !unknown_of(said).is_empty() {
            return Err(error);
        }
        let fit = Fit::of(&self.base, &self.directory, said);
        let name = altered.map(|key| key.name);
        let stays = |key: &Key| Some(key.name) != name && now.fit.leaves_out(key);
        match fit.left.iter().find(|(key, _)| !stays(key)) {
            Some((_, why)) => Err(why.clone()),
            None => Ok(fit),
        }
    }

    /// Applies settings that can change while the database runs. The file has them already. If one fails
    /// here, the next start applies it.
    fn apply(&self, next: &Settings) -> Result<(), SqlError> {
        self.temporary.set(next.query.temporary_bytes);
        let wanted = &next.server.messages;
        log::keep_connections(wanted.connections, wanted.disconnections);
        log::keep_checkpoints(wanted.checkpoints);
        messages::set_format(wanted.format);
        // The endpoint of metrics is opened at a start, so the settings of the start say whether it is there.
        let limited = Settings { metrics_listen: self.in_force.metrics_listen, ..next.clone() };
        self.statements.set_max(limited.statements_limit());
        let Some(database) = self.database.get() else { return Ok(()) };
        database.set_undo_retention(next.undo.retention());
        database.set_io_trace(next.trace.entries);
        database.set_io_latencies(next.trace.latencies);
        let pager = database.pager();
        pager.set_trim(next.trim);
        let flush = next.nvm.as_ref().map_or(NvmFlush::DEFAULT, |nvm| nvm.flush);
        let applied =
            pager.set_default_compression(next.compression).and_then(|()| pager.set_nvm_flush(flush));
        let applied = applied.and_then(|()| pager.set_packed_fill(next.packed.fill_percent));
        // If there is no cache now, the next start makes one.
        if let (Some(flash), Some(_)) = (&next.flash, pager.flash_design()) {
            let changed = pager.set_flash_settings(&flash.settings);
            changed.map_err(|error| SqlError::from(Error::from(error)))?;
        }
        let applied = applied.and_then(|()| match [&self.in_force, next].map(|one| one.pool.page_writers) {
            // The next start would set the same number.
            [None, None] => pager.set_page_writers(page_writers(next, pager.has_compressed_pages())),
            _ => Ok(()),
        });
        // The size is changed last, so that a lack of space does not prevent other changes.
        applied.map_err(|error| SqlError::from(Error::from(error))).and(self.resize(next))
    }

    /// Resizes the flash cache to the configured size, if there is a cache.
    fn resize(&self, next: &Settings) -> Result<(), SqlError> {
        let pager = self.database.get().map(|database| database.pager());
        let resized = match (&next.flash, pager.filter(|pager| pager.flash_design().is_some())) {
            (Some(flash), Some(pager)) => pager.set_flash_size(flash.settings.size_bytes),
            _ => Ok(()),
        };
        resized.map_err(|error| SqlError::from(Error::from(error)))
    }

    /// Writes the file. The inner result says whether the new file's name is durable.
    fn write(&self, text: &str) -> io::Result<io::Result<()>> {
        let new = self.directory.join(AUTO_FILE_NEW);
        let directory = File::open(&self.directory)?;
        // Only the owner of the database may read this file, as is the case for all files of a database.
        let mut how = OpenOptions::new();
        let mut file = how.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(b"# Written by ALTER SYSTEM, read after varve.toml.\n")?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, self.directory.join(AUTO_FILE_NAME))?;
        Ok(directory.sync_all())
    }

    fn setting(&self, key: &'static Key, next: &Settings) -> SystemSetting {
        let pager = self.database.get().map(|database| database.pager());
        let warning = pager.and_then(|pager| tell::warning(key.name, next, pager));
        let decided = pager.and_then(|pager| tell::decided(key.name, next, pager.config()));
        let (wished, before, flagged) =
            ((key.shown)(next), (key.shown)(&self.at_start), (key.shown)(&self.in_force));
        let default = (key.shown)(&Settings::default());
        let is_flag = key.needs_restart && flagged != before;
        let (value, after_restart) = match decided {
            Some(decided) => decided,
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
            unit: key.unit,
            bounds: key.bounds,
            choices: key.choices.clone(),
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
        KEYS.iter().map(|key| self.setting(key, &now.fit.next)).collect()
    }

    fn one(&self, name: &str) -> Option<SystemSetting> {
        let key = KEYS.iter().find(|key| key.name.eq_ignore_ascii_case(name))?;
        Some(self.setting(key, &self.now.lock().fit.next))
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
        self.replace(&mut now, said, Some(key))
    }

    fn reset_all(&self) -> Result<(), SqlError> {
        let mut now = self.now.lock();
        self.replace(&mut now, Table::new(), None)
    }
}

/// Returns descriptions of the ignored settings.
fn told(fit: &Fit, said: &Table, error: &ConfigError) -> Vec<String> {
    let misfits = fit.left.iter().map(|(key, why)| format!("{} is left out: {}", key.name, why.message));
    let unknown = unknown_of(said)
        .into_iter()
        .map(|name| format!("{name} is left out: ALTER SYSTEM has no such setting"));
    let told: Vec<String> = misfits.chain(unknown).collect();
    match told.is_empty() {
        true => vec![format!("what can't be read is left out: {error}")],
        false => told,
    }
}

/// Returns a value in the form of the file.
fn written(key: &Key, value: &str) -> Result<Value, SqlError> {
    let invalid = |problem: &str| {
        let message = format!("invalid value for parameter \"{}\": \"{value}\"", key.name);
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).with_detail(format!("It {problem}."))
    };
    match key.kind {
        SettingKind::Bytes => {
            parse_bytes(value).map(|_| Value::String(value.to_owned())).map_err(|e| invalid(&e))
        }
        SettingKind::Count if key.unit == Some("s") => {
            seconds(value).map(Value::Integer).ok_or_else(|| invalid("is no time in whole seconds"))
        }
        SettingKind::Count => count(value).map_err(|_| invalid("is no whole number")),
        SettingKind::CountOrAuto if value.trim() == "auto" => Ok(Value::String("auto".to_owned())),
        SettingKind::CountOrAuto => count(value).map_err(|_| invalid("is no whole number, nor auto")),
        SettingKind::Flag => flag(value).map(Value::Boolean).ok_or_else(|| invalid("is neither on nor off")),
        SettingKind::MillisOrNone => number_or_none(parse_millis(value), value)
            .ok_or_else(|| invalid("is no time in milliseconds, nor -1")),
        SettingKind::KilobytesOrNone => number_or_none(parse_kilobytes(value), value)
            .ok_or_else(|| invalid("is no size in kilobytes, nor -1")),
        SettingKind::Word => Ok(Value::String(value.to_owned())),
    }
}

fn count(value: &str) -> Result<Value, std::num::ParseIntError> {
    value.trim().parse().map(Value::Integer)
}

/// Returns the whole seconds of a time such as `120`, `2min` or `1.5h`, rounded as PostgreSQL rounds them.
fn seconds(value: &str) -> Option<i64> {
    let value = value.trim();
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    let unit_s = match unit.trim() {
        "" | "s" => 1.0,
        "us" => 1e-6,
        "ms" => 1e-3,
        "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let seconds = (number.parse::<f64>().ok()? * unit_s).round_ties_even();
    (seconds <= f64::from(i32::MAX)).then_some(seconds as i64)
}

/// Returns a parsed number, or -1 if the text is -1.
fn number_or_none(parsed: Option<u64>, text: &str) -> Option<Value> {
    let number = parsed.and_then(|number| i64::try_from(number).ok());
    number.or((text.trim() == "-1").then_some(-1)).map(Value::Integer)
}

fn flag(value: &str) -> Option<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// Returns an error with the code 42704. The message for a setting of varve.toml that ALTER SYSTEM cannot
/// change differs from the message for an unknown name.
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
