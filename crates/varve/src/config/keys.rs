//! The settings that ALTER SYSTEM can change: their names, descriptions, and how their values are shown.
//!
//! Invariants
//! 1. The name of a setting is made of its section and its key in `varve.toml`.

use std::sync::LazyLock;

use toml::Table;
use varve_pager::{Algorithm, FlashSettings, NvmFlush, PackedConfig, Replacement, Setting, Trim};

use super::declared::SettingKind;
use super::units::show_or_none;
use super::{
    AUTHENTICATION_SECONDS_MAX, ArchiveSettings, CONNECTIONS_MAX, CheckpointSettings, Settings,
    SmartSettings, TablesSettings, TraceSettings, UndoSettings, declared, show_bytes,
};
use crate::memory::{default_pool_bytes, default_query_bytes};
use crate::messages::MessageFormat;

/// One setting.
pub struct Key {
    /// The name in SQL.
    pub name: &'static str,
    /// The section in the file.
    pub section: &'static str,
    /// The key in the section.
    pub key: &'static str,
    /// The form of the value in the file.
    pub kind: SettingKind,
    /// A description of the setting.
    pub description: &'static str,
    /// Whether a change takes effect only at the next start.
    pub needs_restart: bool,
    /// Returns the value as SHOW prints it.
    pub shown: Shown,
    /// The words that the setting can have.
    pub choices: Vec<&'static str>,
    /// The unit of the setting's number, as in pg_settings.
    pub unit: Option<&'static str>,
    /// The least and the greatest value of the setting's number.
    pub bounds: Option<(u64, u64)>,
}

/// Shows a setting.
type Shown = Box<dyn Fn(&Settings) -> String + Send + Sync>;

impl Key {
    /// Returns the value of the setting in a file.
    pub fn said_in<'f>(&self, file: &'f Table) -> Option<&'f toml::Value> {
        file.get(self.section)?.get(self.key)
    }

    /// Returns whether the valid values depend on other settings in varve.toml.
    pub fn leans(&self) -> bool {
        let on_others = ["home_compression_level", "log_capacity", "protection_kind"];
        ["flash", "nvm"].contains(&self.section) || on_others.contains(&self.name)
    }
}

/// A setting that no table declares.
struct Plain {
    names: [&'static str; 3],
    kind: SettingKind,
    description: &'static str,
    needs_restart: bool,
    shown: fn(&Settings) -> String,
}

const fn key(
    names: [&'static str; 3],
    kind: SettingKind,
    description: &'static str,
    shown: fn(&Settings) -> String,
) -> Plain {
    Plain { names, kind, description, needs_restart: true, shown }
}

/// Does the same as `key`, for a setting that can change while the database runs.
const fn on_line(
    names: [&'static str; 3],
    kind: SettingKind,
    description: &'static str,
    shown: fn(&Settings) -> String,
) -> Plain {
    Plain { needs_restart: false, ..key(names, kind, description, shown) }
}

impl Plain {
    fn key(&self) -> Key {
        let [name, section, key] = self.names;
        Key {
            name,
            section,
            key,
            kind: self.kind,
            description: self.description,
            needs_restart: self.needs_restart,
            shown: Box::new(self.shown),
            choices: choices(name),
            unit: unit(name),
            bounds: bounds(name),
        }
    }
}

fn on_off(is_on: bool) -> String {
    if is_on { "on" } else { "off" }.to_owned()
}

/// Returns the unit of the number of a setting that no table declares.
fn unit(name: &str) -> Option<&'static str> {
    match name {
        "server_authentication_timeout" => Some("s"),
        "server_log_min_duration_statement" => Some("ms"),
        "server_log_temp_files" => Some("kB"),
        _ => None,
    }
}

/// Returns the least and the greatest number of a setting that no table declares.
fn bounds(name: &str) -> Option<(u64, u64)> {
    let range = match name {
        "home_compression_level" => {
            0..=Algorithm::ALL.map(|algorithm| usize::from(*algorithm.levels().end())).into_iter().max()?
        }
        "packed_fill" => {
            let fills = PackedConfig::FILL_PERCENT;
            usize::from(*fills.start())..=usize::from(*fills.end())
        }
        "server_authentication_timeout" => 1..=AUTHENTICATION_SECONDS_MAX,
        "server_max_connections" => 1..=CONNECTIONS_MAX,
        _ => return None,
    };
    Some((*range.start() as u64, *range.end() as u64))
}

/// Returns the words of a setting that no table declares.
fn choices(name: &str) -> Vec<&'static str> {
    match name {
        "home_compression" => Algorithm::ALL.map(Algorithm::name).to_vec(),
        "home_trim" => Trim::ALL.map(Trim::name).to_vec(),
        "pool_replacement" => vec!["clock", "lru2"],
        "server_log_format" => MessageFormat::ALL.map(MessageFormat::name).to_vec(),
        "protection_kind" => vec!["doublewrite", "nvm-dwb", "nvm", "full-page-log", "atomic-write", "none"],
        _ => Vec::new(),
    }
}

/// Returns the settings of a section that a table declares. `of` returns the section's settings.
fn declared<S: Sync>(
    section: &'static str,
    table: &'static [Setting<S>],
    of: fn(&Settings) -> &S,
) -> impl Iterator<Item = Key> {
    table.iter().map(move |setting| Key {
        // The memory of the name is never freed. It stays small, because there is one name for each setting.
        name: String::leak(format!("{section}_{}", setting.key)),
        section,
        key: setting.key,
        kind: declared::kind(&setting.form),
        description: setting.help,
        needs_restart: !setting.is_online,
        shown: Box::new(move |settings| declared::show(&setting.form, of(settings))),
        choices: declared::choices(&setting.form),
        unit: declared::unit(&setting.form),
        bounds: declared::bounds(&setting.form),
    })
}

/// Returns the settings of the flash cache, or the values that are shown if there is no flash cache.
fn flash(settings: &Settings) -> &FlashSettings {
    settings.flash.as_ref().map_or(&FlashSettings::NO_CACHE, |flash| &flash.settings)
}

/// Returns the settings that say when pages are written from persistent memory to the data files. If there is
/// no persistent memory, returns the defaults.
fn flush(settings: &Settings) -> &NvmFlush {
    settings.nvm.as_ref().map_or(&NvmFlush::DEFAULT, |nvm| &nvm.flush)
}

/// Returns the settings of the region for tables in persistent memory. If there is no region, returns the
/// defaults.
fn tables(settings: &Settings) -> &TablesSettings {
    settings.nvm.as_ref().map_or(&TablesSettings::DEFAULT, |nvm| &nvm.tables)
}

/// All settings, by name.
pub static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let mut keys: Vec<Key> = PLAIN.iter().map(Plain::key).collect();
    keys.extend(declared("archive", ArchiveSettings::TABLE, |settings| &settings.archive));
    keys.extend(declared("checkpoint", CheckpointSettings::TABLE, |settings| &settings.checkpoint));
    keys.extend(declared("flash", FlashSettings::TABLE, flash));
    keys.extend(declared("nvm", TablesSettings::TABLE, tables));
    keys.extend(declared("nvm", NvmFlush::TABLE, flush));
    keys.extend(declared("smart", SmartSettings::TABLE, |settings| &settings.smart));
    keys.extend(declared("trace", TraceSettings::TABLE, |settings| &settings.trace));
    keys.extend(declared("undo", UndoSettings::TABLE, |settings| &settings.undo));
    keys.sort_by_key(|key| key.name);
    keys
});

/// The settings that no table declares.
const PLAIN: &[Plain] = &[
    on_line(
        ["home_compression", "home", "compression"],
        SettingKind::Word,
        "How pages are compressed when they are written.",
        |s| s.compression.algorithm.name().to_owned(),
    ),
    on_line(
        ["home_compression_level", "home", "compression_level"],
        SettingKind::Count,
        "Compression level; 0 is the default of the algorithm.",
        |s| s.compression.level.to_string(),
    ),
    on_line(
        ["home_trim", "home", "trim"],
        SettingKind::Word,
        "Whether unused parts of files are returned to the devices, as holes.",
        |s| s.trim.name().to_owned(),
    ),
    key(
        ["log_capacity", "log", "capacity"],
        SettingKind::Bytes,
        "Bytes of all files of the log together.",
        |s| show_bytes(s.log.capacity_bytes),
    ),
    key(["log_segment", "log", "segment"], SettingKind::Bytes, "Bytes of one file of the log.", |s| {
        show_bytes(s.log.segment_bytes)
    }),
    on_line(
        ["packed_fill", "packed", "fill"],
        SettingKind::Count,
        "Percentage of a packed file that may hold pages before it grows.",
        |s| s.packed.fill_percent.to_string(),
    ),
    key(
        ["pool_page_writers", "pool", "page_writers"],
        SettingKind::CountOrAuto,
        "Threads that write dirty pages; auto: one, or as many as compression needs.",
        |s| s.pool.page_writers.map_or_else(|| "auto".to_owned(), |writers| writers.to_string()),
    ),
    key(
        ["pool_replacement", "pool", "replacement"],
        SettingKind::Word,
        "Which page leaves the pool first.",
        |s| match s.pool.replacement {
            Replacement::Clock => "clock".to_owned(),
            Replacement::Lru2 => "lru2".to_owned(),
        },
    ),
    key(["pool_size", "pool", "size"], SettingKind::Bytes, "Bytes of memory for pages.", |s| {
        show_bytes(s.pool.size_bytes.unwrap_or_else(default_pool_bytes))
    }),
    key(
        ["protection_kind", "protection", "kind"],
        SettingKind::Word,
        "What mends pages that a crash has torn.",
        |s| s.protection.name().to_owned(),
    ),
    key(
        ["query_memory", "query", "memory"],
        SettingKind::Bytes,
        "Memory for all general queries together.",
        |s| show_bytes(s.query.memory_bytes.unwrap_or_else(default_query_bytes)),
    ),
    on_line(
        ["query_temporary", "query", "temporary"],
        SettingKind::Bytes,
        "The size of the temporary files of a session; sessions that exist keep their limit.",
        |s| s.query.temporary_bytes.map_or_else(|| "unlimited".to_owned(), show_bytes),
    ),
    key(
        ["query_threads", "query", "threads"],
        SettingKind::Count,
        "Threads of one general query over large tables.",
        |s| s.query.threads.to_string(),
    ),
    key(
        ["query_threads_rows", "query", "threads_rows"],
        SettingKind::Count,
        "Rows from which on several threads read a table.",
        |s| s.query.threads_rows.to_string(),
    ),
    key(
        ["server_authentication_timeout", "server", "authentication_timeout"],
        SettingKind::Count,
        "Seconds until a client must be let in.",
        |s| s.server.authentication_timeout.as_secs().to_string(),
    ),
    on_line(
        ["server_log_checkpoints", "server", "log_checkpoints"],
        SettingKind::Flag,
        "Whether checkpoints are logged.",
        |s| on_off(s.server.messages.checkpoints),
    ),
    on_line(
        ["server_log_connections", "server", "log_connections"],
        SettingKind::Flag,
        "Whether connections are logged.",
        |s| on_off(s.server.messages.connections),
    ),
    on_line(
        ["server_log_disconnections", "server", "log_disconnections"],
        SettingKind::Flag,
        "Whether the ends of connections are logged, with their duration.",
        |s| on_off(s.server.messages.disconnections),
    ),
    on_line(
        ["server_log_format", "server", "log_format"],
        SettingKind::Word,
        "The format of the server's messages.",
        |s| s.server.messages.format.name().to_owned(),
    ),
    on_line(
        ["server_log_lock_waits", "server", "log_lock_waits"],
        SettingKind::Flag,
        "Whether new sessions log waits for locks that are longer than deadlock_timeout.",
        |s| on_off(s.server.messages.lock_waits),
    ),
    on_line(
        ["server_log_min_duration_statement", "server", "log_min_duration_statement"],
        SettingKind::MillisOrNone,
        "Milliseconds from which on new sessions log a statement; -1: never.",
        |s| show_or_none(s.server.messages.min_duration_ms),
    ),
    on_line(
        ["server_log_temp_files", "server", "log_temp_files"],
        SettingKind::KilobytesOrNone,
        "Kilobytes of temporary files from which on new sessions log a statement; -1: never.",
        |s| show_or_none(s.server.messages.temp_files_kb),
    ),
    on_line(
        ["statements_max", "statements", "max"],
        SettingKind::CountOrAuto,
        "The most statements that pg_stat_statements keeps; 0: none; auto: 1000 with the endpoint of metrics.",
        |s| s.statements_max.map_or_else(|| "auto".to_owned(), |max| max.to_string()),
    ),
    key(
        ["server_max_connections", "server", "max_connections"],
        SettingKind::Count,
        "How many sessions there may be.",
        |s| s.server.max_connections.to_string(),
    ),
];
