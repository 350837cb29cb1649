//! Settings of a session: SHOW, SET and RESET, and the settings that are reported to the client.
//!
//! Invariants
//! 1. A setting accepts only values that Varve obeys. Another value is refused (0A000) if it would change
//!    results. PostgreSQL's planner settings are accepted and shown, but have no effect (`foreign.rs`). The
//!    costs of operations only change what EXPLAIN shows. Of the memory settings, `work_mem` and
//!    `temp_file_limit` have an effect.
//! 2. A rollback undoes SET, also to a savepoint. COMMIT undoes SET LOCAL, unless a SET came after it.
//!
//! This module does not know transactions. The session calls `commit`, `rollback`, and at a savepoint `mark`.

mod foreign;
mod quantity;
mod shown;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::encoding::Encoding;
use crate::error::{Result, SqlError, SqlState};
use crate::join_method::JoinMethod;
use crate::moment;
use crate::path;
use crate::smart_mode::SmartMode;
use crate::table_method::{self, TableMethod};
use crate::time::{DateStyle, IntervalStyle, NoDateStyle, Reading, TimeForms, Zone};
use crate::utility::{Level, Modes};
use quantity::{Unit, count, kilobytes, millis, number, within};
pub use shown::DescribedSetting;
use shown::shown;

/// The longest time of a setting, in milliseconds.
const MILLIS_MAX: f64 = i32::MAX as f64;

/// The values that a setting can have.
#[derive(Clone, Copy)]
enum Kind {
    /// Any text.
    Free,
    /// on or off
    Bool,
    /// Only these words, in upper or lower case. The spelling in the list is stored.
    OneOf(&'static [&'static str]),
    /// Only the shown value, because any other value would change results.
    Fixed(&'static [&'static str]),
    /// A value that cannot be set.
    ReadOnly,
    /// A value from the server's configuration, unchanged until the next start.
    Configured,
    /// The same as `Configured` for a time, which is stored as milliseconds.
    ConfiguredTime,
    /// A role. The session checks it.
    Role,
    /// A time, in milliseconds unless it has a unit. It is stored as milliseconds.
    Duration,
    /// The same as `Duration`, but not 0.
    SomeTime,
    /// The same as `Duration`, or -1 for no time.
    DurationOrNone,
    /// A number in this unit, between two limits. It is stored without the unit.
    Number(Unit, f64, f64),
    /// A value that the server's configuration sets when a connection begins.
    AtConnection,
    /// A value of the server's configuration that ALTER SYSTEM changes for all sessions.
    OfServer,
    /// A whole number up to this one.
    Count(u32),
    /// A time in whole seconds up to a limit, shown as a number.
    Seconds(u32),
    /// Memory of at least this number of kilobytes. Kilobytes are the default unit, and their number is
    /// stored.
    Memory(u64),
    /// Memory or space in kilobytes, or -1 for no limit.
    Limit,
    /// An encoding of characters.
    Encoding,
    /// A time zone.
    Zone,
    /// The form of dates, and the order of their fields.
    DateStyle,
    /// A list of schemas.
    SearchPath,
    /// A moment that queries read, or nothing.
    Moment,
    /// A table access method.
    TableMethod,
    /// 1 to 3
    FloatDigits,
}

struct Setting {
    name: &'static str,
    default: &'static str,
    kind: Kind,
    /// Whether it is reported to the client by ParameterStatus.
    reported: bool,
}

const INTERVAL_STYLES: &[&str] = &["postgres", "postgres_verbose", "sql_standard", "iso_8601"];

const LEVELS: &[&str] = &["serializable", "repeatable read", "read committed", "read uncommitted"];

const LOG_LEVELS: &[&str] = &[
    "debug5", "debug4", "debug3", "debug2", "debug1", "info", "notice", "warning", "error", "log", "fatal",
    "panic",
];

/// The limits of Linux: MAX_TCP_KEEPIDLE and MAX_TCP_KEEPINTVL, MAX_TCP_KEEPCNT (include/net/tcp.h).
const PROBE_SECONDS_MAX: u32 = 32_767;
const PROBES_MAX: u32 = 127;

const fn setting(name: &'static str, default: &'static str, kind: Kind) -> Setting {
    Setting { name, default, kind, reported: false }
}

const fn reported(name: &'static str, default: &'static str, kind: Kind) -> Setting {
    Setting { name, default, kind, reported: true }
}

/// The settings of Varve, by name in lower case.
const SETTINGS: &[Setting] = &[
    reported("application_name", "", Kind::Free),
    reported("client_encoding", "UTF8", Kind::Encoding),
    reported("datestyle", "ISO, MDY", Kind::DateStyle),
    reported("default_transaction_read_only", "off", Kind::Bool),
    reported("in_hot_standby", "off", Kind::ReadOnly),
    reported("integer_datetimes", "on", Kind::ReadOnly),
    reported("intervalstyle", "postgres", Kind::OneOf(INTERVAL_STYLES)),
    reported("is_superuser", "on", Kind::ReadOnly),
    reported("server_encoding", "UTF8", Kind::ReadOnly),
    reported("server_version", "15.0", Kind::ReadOnly),
    reported("session_authorization", "", Kind::Role),
    reported("standard_conforming_strings", "on", Kind::Fixed(&["on", "true", "yes", "1"])),
    reported("timezone", "UTC", Kind::Zone),
    setting("bytea_output", "hex", Kind::Fixed(&["hex"])),
    setting(
        "client_min_messages",
        "notice",
        Kind::OneOf(&["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"]),
    ),
    setting("default_transaction_deferrable", "off", Kind::Bool),
    setting("default_transaction_isolation", "read committed", Kind::OneOf(LEVELS)),
    setting("extra_float_digits", "1", Kind::FloatDigits),
    setting("idle_in_transaction_session_timeout", "0", Kind::Duration),
    setting("idle_session_timeout", "0", Kind::Duration),
    setting("tcp_keepalives_count", "0", Kind::Count(PROBES_MAX)),
    setting("tcp_keepalives_idle", "0", Kind::Seconds(PROBE_SECONDS_MAX)),
    setting("tcp_keepalives_interval", "0", Kind::Seconds(PROBE_SECONDS_MAX)),
    setting("tcp_user_timeout", "0", Kind::Duration),
    setting("authentication_timeout", "1min", Kind::ConfiguredTime),
    setting("max_connections", "100", Kind::Configured),
    setting("log_connections", "off", Kind::AtConnection),
    setting("log_disconnections", "off", Kind::AtConnection),
    setting("lc_collate", "C", Kind::ReadOnly),
    setting("lc_ctype", "C.UTF-8", Kind::ReadOnly),
    setting("lc_messages", "C", Kind::Free),
    setting("lc_monetary", "C", Kind::Free),
    setting("lc_numeric", "C", Kind::Free),
    setting("lc_time", "C", Kind::Free),
    setting("deadlock_timeout", "1s", Kind::SomeTime),
    setting("join_method", "auto", Kind::OneOf(JoinMethod::NAMES)),
    setting("lock_timeout", "0", Kind::Duration),
    setting("max_identifier_length", "63", Kind::ReadOnly),
    setting("max_index_keys", "32", Kind::ReadOnly),
    setting("search_path", "\"$user\", public", Kind::SearchPath),
    setting("server_version_num", "150000", Kind::ReadOnly),
    setting("smart_scan", "auto", Kind::OneOf(SmartMode::NAMES)),
    setting("statement_timeout", "0", Kind::Duration),
    setting("transaction_deferrable", "off", Kind::ReadOnly),
    setting("transaction_isolation", "read committed", Kind::ReadOnly),
    setting("transaction_read_only", "off", Kind::ReadOnly),
    setting(table_method::SETTING, "heap", Kind::TableMethod),
    setting(moment::SETTING, "", Kind::Moment),
    setting("default_tablespace", "", Kind::Free),
    setting("role", "none", Kind::Role),
    setting("row_security", "on", Kind::Bool),
    setting("backslash_quote", "safe_encoding", Kind::Free),
    setting("check_function_bodies", "on", Kind::Bool),
    setting("escape_string_warning", "on", Kind::Bool),
    setting("fsync", "on", Kind::ReadOnly),
    setting("full_page_writes", "on", Kind::ReadOnly),
    setting("log_checkpoints", "off", Kind::OfServer),
    setting("log_lock_waits", "off", Kind::Bool),
    setting("log_min_duration_statement", "-1", Kind::DurationOrNone),
    setting("log_min_error_statement", "error", Kind::OneOf(LOG_LEVELS)),
    setting("log_min_messages", "warning", Kind::OneOf(LOG_LEVELS)),
    setting("log_temp_files", "-1", Kind::Limit),
    setting("log_statement", "none", Kind::OneOf(&["none", "ddl", "mod", "all"])),
    setting("maintenance_work_mem", "64MB", Kind::Memory(1024)),
    setting("quote_all_identifiers", "off", Kind::Bool),
    setting("synchronize_seqscans", "on", Kind::Bool),
    // Costs that EXPLAIN shows. They do not change plans.
    setting("cpu_index_tuple_cost", "0.005", Kind::Number(Unit::Real, 0.0, f64::MAX)),
    setting("cpu_operator_cost", "0.0025", Kind::Number(Unit::Real, 0.0, f64::MAX)),
    setting("cpu_tuple_cost", "0.01", Kind::Number(Unit::Real, 0.0, f64::MAX)),
    setting("random_page_cost", "4", Kind::Number(Unit::Real, 0.0, f64::MAX)),
    setting("seq_page_cost", "1", Kind::Number(Unit::Real, 0.0, f64::MAX)),
    setting("temp_file_limit", "-1", Kind::Limit),
    setting("work_mem", "4MB", Kind::Memory(64)),
    setting("xmloption", "content", Kind::Free),
];

/// Returns the spelling of a name, if it is not lower case.
fn display_name(name: &'static str) -> &'static str {
    match name {
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        "timezone" => "TimeZone",
        other => other,
    }
}

type Values = BTreeMap<String, String>;

/// The settings of one session.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The values that differ from the defaults.
    values: Values,
    /// The values for RESET, which were set at the start of the session.
    initial: Values,
    /// The sources of the initial values. Facts that clients cannot set have none.
    sources: BTreeMap<String, InitialSource>,
    /// The values that SET has replaced in this transaction, in order.
    replaced: Vec<Replaced>,
    /// Length of `replaced` at the newest savepoint that may still be used.
    marked: usize,
    /// The values that SET LOCAL has replaced. They are restored at the commit.
    hidden: BTreeMap<String, Option<String>>,
    /// The values that were reported to the client.
    told: Values,
    /// Whether a value may have changed since the session last read the settings.
    changed: bool,
}

/// The source of an initial value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialSource {
    /// varve.toml or ALTER SYSTEM
    File,
    /// ALTER DATABASE ... SET
    Database,
    /// The client's start-up packet.
    Client,
}

/// A setting before a SET.
#[derive(Debug, Clone)]
struct Replaced {
    name: String,
    value: Option<String>,
    hidden: Option<Option<String>>,
}

/// Returns all settings.
fn every() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().chain(foreign::WITHOUT_EFFECT).chain(foreign::FIXED)
}

fn find(name: &str) -> Option<&'static Setting> {
    every().find(|s| s.name == name)
}

/// Returns the error 42704.
fn unknown(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

/// Returns the error 55P02 for a setting of the server.
fn not_now(name: &str) -> SqlError {
    let message = format!("parameter \"{name}\" cannot be changed now");
    let refused = SqlError::new(SqlState::CANT_CHANGE_RUNTIME_PARAM, message);
    refused.with_hint("ALTER SYSTEM SET changes it.")
}

fn invalid(name: &str, value: &str) -> SqlError {
    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

impl Settings {
    /// Returns the value, as SHOW prints it.
    pub fn get(&self, name: &str) -> Result<String> {
        let lower = name.to_ascii_lowercase();
        if let Some(value) = self.values.get(&lower) {
            return Ok(shown(&lower, value));
        }
        find(&lower).map(|s| shown(s.name, s.default)).ok_or_else(|| unknown(name))
    }

    /// Sets a value from outside a transaction.
    pub fn set_initial(&mut self, name: &str, value: &str, source: InitialSource) -> Result<()> {
        let (name, value) = checked(name, value, self.date_styles())?;
        self.sources.insert(name.clone(), source);
        self.initial.insert(name.clone(), value.clone());
        self.values.insert(name, value);
        Ok(())
    }

    /// Sets a value that clients cannot change.
    pub fn set_fact(&mut self, name: &str, value: &str) {
        self.initial.insert(name.to_owned(), value.to_owned());
        self.values.insert(name.to_owned(), value.to_owned());
    }

    /// Runs SET, or RESET (`None`).
    pub fn set(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<()> {
        let (name, value) = match value {
            Some(value) => {
                let (name, value) = checked(name, value, self.date_styles())?;
                (name, Some(value))
            }
            None => {
                let lower = name.to_ascii_lowercase();
                if find(&lower).is_none() && !self.values.contains_key(&lower) {
                    return Err(unknown(name));
                }
                let initial = self.initial.get(&lower).cloned();
                (lower, initial)
            }
        };
        self.replace(name, value, local);
        Ok(())
    }

    /// Runs SET ROLE or SET SESSION AUTHORIZATION. The name is stored together with the role's number, so
    /// that both are undone together.
    pub fn set_role(&mut self, name: &str, value: &str, id: Option<u32>, local: bool) -> Result<()> {
        self.set(name, Some(value), local)?;
        self.replace(number_of(name), id.map(|id| id.to_string()), local);
        Ok(())
    }

    /// Returns the number that was stored with a role's name.
    pub fn role_number(&self, name: &str) -> Option<u32> {
        self.values.get(&number_of(name))?.parse().ok()
    }

    /// Sets a value, and records the value that it replaces.
    fn replace(&mut self, name: String, value: Option<String>, local: bool) {
        self.changed = true;
        let old = self.values.get(&name).cloned();
        // A rollback goes to a savepoint or to the beginning, so between two of these the first record is
        // enough.
        if !self.replaced[self.marked..].iter().any(|r| r.name == name) {
            let hidden = self.hidden.get(&name).cloned();
            self.replaced.push(Replaced { name: name.clone(), value: old.clone(), hidden });
        }
        match local {
            true => _ = self.hidden.entry(name.clone()).or_insert(old),
            false => _ = self.hidden.remove(&name),
        }
        put_back(&mut self.values, name, value);
    }

    /// Runs RESET ALL.
    pub fn reset_all(&mut self) {
        let names = self.values.keys().chain(self.initial.keys());
        // The role of the session stays unchanged.
        let names = names.filter(|name| !is_role(name.trim_end_matches(NUMBER)));
        for name in names.cloned().collect::<BTreeSet<_>>() {
            let initial = self.initial.get(&name).cloned();
            self.replace(name, initial, false);
        }
    }

    /// Records a savepoint. Returns the position for `rollback_to`.
    pub fn mark(&mut self) -> usize {
        self.marked = self.replaced.len();
        self.marked
    }

    /// Undoes every SET since the savepoint.
    pub fn rollback_to(&mut self, mark: usize) {
        for Replaced { name, value, hidden } in self.replaced.drain(mark..).rev() {
            self.changed = true;
            put(&mut self.hidden, name.clone(), hidden);
            put_back(&mut self.values, name, value);
        }
        self.marked = mark;
    }

    /// Ends SET LOCAL, because the transaction commits.
    pub fn commit(&mut self) {
        if self.hidden.is_empty() && self.replaced.is_empty() {
            self.marked = 0;
            return;
        }
        for (name, value) in std::mem::take(&mut self.hidden) {
            put_back(&mut self.values, name, value);
            self.changed = true;
        }
        self.replaced.clear();
        self.marked = 0;
    }

    /// Undoes every SET of the transaction, because it is rolled back.
    pub fn rollback(&mut self) {
        self.rollback_to(0);
    }

    /// Returns whether a value has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Returns the settings that must be reported to the client, because they have changed.
    pub fn reports(&mut self) -> Vec<(&'static str, String)> {
        let mut out = Vec::new();
        for s in SETTINGS.iter().filter(|s| s.reported) {
            let value = self.values.get(s.name).map_or_else(|| s.default.to_owned(), |v| shown(s.name, v));
            if self.told.get(s.name) != Some(&value) {
                self.told.insert(s.name.to_owned(), value.clone());
                out.push((display_name(s.name), value));
            }
        }
        out
    }

    /// Returns the time zone.
    pub fn zone(&self) -> Zone {
        let known = self.values.get("timezone").and_then(|value| Zone::of_setting(value).ok().flatten());
        known.map_or(Zone::UTC, |(zone, _)| zone)
    }

    /// Returns the present DateStyle, and the one after RESET. SET keeps the parts that it does not name.
    fn date_styles(&self) -> [DateStyle; 2] {
        [&self.values, &self.initial].map(|values| {
            let set = values.get("datestyle").map(|value| date_style(value, DateStyle::ISO, DateStyle::ISO));
            set.and_then(Result::ok).unwrap_or(DateStyle::ISO)
        })
    }

    /// Returns the formats of times.
    pub fn forms(&self) -> TimeForms {
        let of = |name: &str| self.values.get(name).map(String::as_str).unwrap_or_default();
        let [dates, _] = self.date_styles();
        TimeForms {
            zone: self.zone(),
            dates,
            intervals: IntervalStyle::of_setting(of("intervalstyle")).unwrap_or(IntervalStyle::Postgres),
        }
    }

    /// Returns the encoding of the client.
    pub fn encoding(&self) -> Encoding {
        self.values.get("client_encoding").and_then(|name| Encoding::named(name)).unwrap_or_default()
    }

    /// Returns how general queries join tables by equality.
    pub fn join_method(&self) -> JoinMethod {
        self.values.get("join_method").map(|name| JoinMethod::named(name)).unwrap_or_default()
    }

    /// Returns whether general queries use a smart device for scans.
    pub fn smart_scan(&self) -> SmartMode {
        self.values.get("smart_scan").map(|name| SmartMode::named(name)).unwrap_or_default()
    }

    /// Returns the access method of new tables without USING.
    pub fn table_method(&self) -> TableMethod {
        let name = self.values.get(table_method::SETTING);
        name.and_then(|name| TableMethod::named(name).ok().flatten()).unwrap_or_default()
    }

    /// Returns the milliseconds of a duration setting.
    pub fn millis(&self, name: &str) -> u64 {
        self.values.get(name).and_then(|v| v.parse().ok()).unwrap_or(0)
    }

    /// Returns the time of a setting, or `None` if it has none.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        self.values.get(name)?.parse().ok().map(Duration::from_millis)
    }

    /// Returns the bytes of memory of a setting, or `None` if it is not set.
    pub fn bytes(&self, name: &str) -> Option<u64> {
        self.values.get(name)?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
    }

    /// Returns the value of a setting that is a number.
    pub fn real(&self, name: &str) -> f64 {
        let own = self.values.get(name).map(String::as_str);
        let value = own.or_else(|| find(name).map(|setting| setting.default));
        value.and_then(|value| value.parse().ok()).unwrap_or_default()
    }

    /// Returns whether a setting was set to this value, which is not its default.
    pub fn is(&self, name: &str, value: &str) -> bool {
        self.values.get(name).is_some_and(|v| v == value)
    }

    /// Returns whether a boolean setting is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name).is_ok_and(|v| v == "on")
    }
}

/// Restores a value. A setting with a prefix, which is not declared, becomes empty after it was set.
fn put_back(values: &mut Values, name: String, value: Option<String>) {
    let value = value.or_else(|| name.contains('.').then(String::new));
    put(values, name, value);
}

fn put<V>(map: &mut BTreeMap<String, V>, name: String, value: Option<V>) {
    match value {
        Some(value) => map.insert(name, value),
        None => map.remove(&name),
    };
}

/// Returns the error 42501 for a setting that only superusers may change.
pub fn check_for_all(name: &str) -> Result<()> {
    const CONTEXT: usize = 4;
    if crate::system::described(name).is_none_or(|known| known[CONTEXT] != "superuser") {
        return Ok(());
    }
    let message = format!("permission denied to set parameter \"{name}\"");
    Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message))
}

/// Reads a value of DateStyle. The error is 22023.
fn date_style(value: &str, before: DateStyle, reset: DateStyle) -> Result<DateStyle> {
    DateStyle::of_setting(value, before, reset).map_err(|none| {
        let refused = invalid("DateStyle", value);
        match none {
            NoDateStyle::Unknown(word) => refused.with_detail(format!("Unrecognized key word: \"{word}\".")),
            NoDateStyle::Conflict => refused.with_detail("Conflicting \"datestyle\" specifications."),
        }
    })
}

/// Returns the name of a setting that can be set but has no effect.
pub fn without_effect(name: &str) -> Option<&'static str> {
    foreign::WITHOUT_EFFECT.iter().map(|s| s.name).find(|known| known.eq_ignore_ascii_case(name))
}

/// Returns whether a setting is the role of the session.
pub fn is_role(name: &str) -> bool {
    matches!(find(name).map(|s| s.kind), Some(Kind::Role))
}

/// The suffix for the number of a role among the values. No setting has such a name.
const NUMBER: &str = " number";

fn number_of(name: &str) -> String {
    format!("{name}{NUMBER}")
}

/// Checks a value. Returns the name in lower case, and the value in its stored form.
fn checked(name: &str, value: &str, [before, reset]: [DateStyle; 2]) -> Result<(String, String)> {
    let lower = name.to_ascii_lowercase();
    let Some(s) = find(&lower) else {
        if lower.contains('.') {
            return Ok((lower, value.to_owned()));
        }
        return Err(unknown(name));
    };
    let kept = match s.kind {
        Kind::Free | Kind::Role => value.to_owned(),
        Kind::DateStyle => date_style(value, before, reset)?.name().to_owned(),
        Kind::Bool => boolean(value).ok_or_else(|| not_boolean(name))?.to_owned(),
        Kind::OneOf(allowed) => one_of(s, allowed, value)?,
        Kind::Fixed(allowed) if allowed.iter().any(|a| a.eq_ignore_ascii_case(value.trim())) => {
            s.default.to_owned()
        }
        Kind::Fixed(_) => return Err(SqlError::unsupported(format!("{} = {value}", display_name(s.name)))),
        Kind::ReadOnly => {
            let message = format!("parameter \"{name}\" cannot be changed");
            return Err(SqlError::new(SqlState::CANT_CHANGE_RUNTIME_PARAM, message));
        }
        Kind::DurationOrNone => number(name, value, Unit::Millis, -1.0..=MILLIS_MAX)?,
        Kind::Duration => number(name, value, Unit::Millis, 0.0..=MILLIS_MAX)?,
        Kind::SomeTime => number(name, value, Unit::Millis, 1.0..=MILLIS_MAX)?,
        Kind::Number(unit, least, greatest) => number(name, value, unit, least..=greatest)?,
        Kind::AtConnection => {
            let message = format!("parameter \"{name}\" cannot be set after connection start");
            return Err(SqlError::new(SqlState::CANT_CHANGE_RUNTIME_PARAM, message));
        }
        Kind::OfServer => return Err(not_now(name)),
        Kind::Configured | Kind::ConfiguredTime => {
            let message = format!("parameter \"{name}\" cannot be changed without restarting the server");
            return Err(SqlError::new(SqlState::CANT_CHANGE_RUNTIME_PARAM, message));
        }
        Kind::Memory(least) => kilobytes(name, value, least)?.to_string(),
        Kind::Limit if value.trim() == "-1" => "-1".to_owned(),
        Kind::Limit => kilobytes(name, value, 0)?.to_string(),
        Kind::Count(max) => within(name, count(value).ok_or_else(|| invalid(name, value))?, "", max)?,
        Kind::Seconds(max) => {
            let seconds = count(value).or_else(|| Some((millis(value)? / 1000) as u32));
            within(name, seconds.ok_or_else(|| invalid(name, value))?, " s", max)?
        }
        Kind::Encoding => encoding(name, value)?,
        Kind::Zone => match Zone::of_setting(value)? {
            Some((_, spelled)) => spelled,
            None => return Err(invalid(display_name(s.name), value)),
        },
        Kind::SearchPath => match path::entries(value) {
            Some(_) => value.to_owned(),
            None => return Err(invalid(s.name, value).with_detail("List syntax is invalid.")),
        },
        Kind::Moment => {
            if let Some(as_of) = moment::of_setting(value) {
                moment::moment(&as_of, &Reading::of(&TimeForms::of_zone(Zone::UTC)))?;
            }
            value.to_owned()
        }
        Kind::TableMethod => match table_method::fault_of_setting(value)? {
            None => value.to_owned(),
            Some(fault) => return Err(invalid(s.name, value).with_detail(fault)),
        },
        Kind::FloatDigits => match value.trim().parse::<i32>() {
            Ok(1..=3) => value.trim().to_owned(),
            Ok(-15..=0) => return Err(SqlError::unsupported("extra_float_digits below 1")),
            _ => return Err(invalid(name, value)),
        },
    };
    Ok((lower, kept))
}

/// Returns the name of an encoding as it is shown. The error is 22023 for an unknown encoding, and 0A000 for
/// one that is not converted here.
fn encoding(name: &str, value: &str) -> Result<String> {
    let encoding = Encoding::named(value).ok_or_else(|| invalid(name, value))?;
    if !encoding.is_available() {
        let detail = format!("Conversion between {} and UTF8 is not supported.", encoding.name());
        let refused = invalid(name, value).with_detail(detail);
        return Err(SqlError { sqlstate: SqlState::FEATURE_NOT_SUPPORTED, ..refused });
    }
    // Old JDBC drivers expect the value that they have set, as PostgreSQL's source explains.
    Ok(if value == "UNICODE" { value } else { encoding.name() }.to_owned())
}

fn one_of(s: &Setting, allowed: &[&str], value: &str) -> Result<String> {
    if let Some(found) = allowed.iter().find(|a| a.eq_ignore_ascii_case(value.trim())) {
        return Ok((*found).to_owned());
    }
    if let Some(flag) = boolean(value).filter(|flag| allowed.contains(flag)) {
        return Ok(flag.to_owned());
    }
    Err(not_one_of(s.name, value, allowed))
}

/// Returns the error 22023 for a value of a setting that has a list of values. The hint has the list.
fn not_one_of(name: &str, value: &str, allowed: &[&str]) -> SqlError {
    invalid(name, value).with_hint(format!("Available values: {}.", allowed.join(", ")))
}

/// Returns the transaction modes of a SET, if it sets a transaction's settings.
pub fn transaction_modes(name: &str, value: &str) -> Result<Option<Modes>> {
    let flag = || {
        let message = || format!("parameter \"{name}\" requires a Boolean value");
        let flag = boolean(value).map(|v| v == "on");
        flag.ok_or_else(|| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message()))
    };
    Ok(Some(match name {
        "transaction_isolation" => {
            let level = level_named(&value.trim().to_ascii_lowercase());
            Modes { level: Some(level.ok_or_else(|| not_one_of(name, value, LEVELS))?), ..Modes::default() }
        }
        "transaction_read_only" => Modes { read_only: Some(flag()?), ..Modes::default() },
        "transaction_deferrable" => Modes { deferrable: Some(flag()?), ..Modes::default() },
        _ => return Ok(None),
    }))
}

/// Returns an isolation level by its name.
pub fn level_named(name: &str) -> Option<Level> {
    Some(match name {
        "serializable" => Level::Serializable,
        "repeatable read" => Level::RepeatableRead,
        "read committed" | "read uncommitted" => Level::ReadCommitted,
        _ => return None,
    })
}

fn boolean(value: &str) -> Option<&'static str> {
    match value.trim().to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" | "t" | "y" => Some("on"),
        "off" | "false" | "no" | "0" | "f" | "n" => Some("off"),
        _ => None,
    }
}

fn not_boolean(name: &str) -> SqlError {
    let message = format!("parameter \"{name}\" requires a Boolean value");
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollback_undoes_set_and_a_commit_ends_set_local() {
        let mut s = Settings::default();
        s.set("application_name", Some("a"), false).unwrap();
        s.commit();
        s.set("application_name", Some("b"), false).unwrap();
        s.rollback();
        assert_eq!(s.get("application_name").unwrap(), "a");
        s.set("lock_timeout", Some("5s"), true).unwrap();
        assert_eq!(s.get("lock_timeout").unwrap(), "5s");
        s.commit();
        assert_eq!(s.get("lock_timeout").unwrap(), "0");
    }

    #[test]
    fn times_are_shown_in_their_largest_unit() {
        let mut s = Settings::default();
        for (name, value, expect) in [
            ("idle_session_timeout", "90000", "90s"),
            ("idle_session_timeout", "2h", "2h"),
            ("idle_in_transaction_session_timeout", "1500ms", "1500ms"),
            ("statement_timeout", "1d", "1d"),
            ("tcp_keepalives_idle", "2min", "120"),
            ("tcp_keepalives_interval", "7", "7"),
            ("tcp_user_timeout", "3000", "3s"),
        ] {
            s.set(name, Some(value), false).unwrap();
            assert_eq!(s.get(name).unwrap(), expect, "{name} = {value}");
        }
    }

    #[test]
    fn memory_is_taken_and_shown_as_postgresql_does() {
        let mut s = Settings::default();
        assert_eq!(s.get("work_mem").unwrap(), "4MB");
        for (value, expect) in [
            ("3MB", "3MB"),
            ("1024", "1MB"),
            ("1500kB", "1500kB"),
            ("1 GB", "1GB"),
            ("100000B", "98kB"),
            ("1.5MB", "1536kB"),
        ] {
            s.set("work_mem", Some(value), false).unwrap();
            assert_eq!(s.get("work_mem").unwrap(), expect, "{value}");
        }
        let range = "is outside the valid range for parameter \"work_mem\" (64 .. 2147483647)";
        for (value, expect) in [
            ("lots", "invalid value for parameter \"work_mem\": \"lots\"".to_owned()),
            ("10 foo", "invalid value for parameter \"work_mem\": \"10 foo\"".to_owned()),
            ("3TB", "invalid value for parameter \"work_mem\": \"3TB\"".to_owned()),
            ("1mb", "invalid value for parameter \"work_mem\": \"1mb\"".to_owned()),
            ("32kB", format!("32 kB {range}")),
            ("-1", format!("-1 kB {range}")),
        ] {
            let e = s.set("work_mem", Some(value), false).unwrap_err();
            assert_eq!((e.sqlstate.0, &*e.message), ("22023", &*expect));
        }
    }

    #[test]
    fn what_would_change_results_is_refused() {
        let mut s = Settings::default();
        for (name, value, state) in [
            ("client_encoding", "latin11", "22023"),
            ("client_encoding", "sjis", "0A000"),
            ("timezone", "Europe/Nowhere", "22023"),
            ("nonsense", "1", "42704"),
            ("server_version", "9", "55P02"),
            ("default_transaction_isolation", "chaos", "22023"),
            ("row_security", "maybe", "22023"),
            ("max_connections", "5", "55P02"),
            ("tcp_keepalives_count", "-1", "22023"),
            // In an earlier version, this module did not read the settings of ALTER SYSTEM, so a setting was
            // shown but was not in force.
            ("tcp_keepalives_count", "128", "22023"),
            ("tcp_keepalives_idle", "32768", "22023"),
            ("tcp_keepalives_interval", "2d", "22023"),
            ("authentication_timeout", "5", "55P02"),
        ] {
            assert_eq!(s.set(name, Some(value), false).unwrap_err().sqlstate.0, state, "{name}");
        }
        s.set("timezone", Some("+02"), false).unwrap();
        assert_eq!(s.zone(), Zone::Fixed(7200));
        s.set("timezone", Some("europe/berlin"), false).unwrap();
        assert_eq!(s.get("TimeZone").unwrap(), "Europe/Berlin");
    }
}
