//! The settings that ALTER SYSTEM can change: names, descriptions, and how their values are shown.
//!
//! Invariants
//! 1. The name of a setting is made of its section and key in varve.toml.
//!
//! What this file doesn't know: how a value is read.

use toml::Table;
use varve_pager::{CleanOrder, FlashConfig, FlashDesign, NvmFlush, Replacement};

use super::{Settings, show_bytes};
use crate::memory::{default_pool_bytes, default_query_bytes};

/// How a value is written in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingKind {
    /// A size: text.
    Bytes,
    /// A whole number.
    Count,
    /// A whole number or `auto`.
    CountOrAuto,
    /// True or false.
    Flag,
    /// A word: text.
    Word,
}

/// One setting.
pub struct Key {
    /// Its name in SQL.
    pub name: &'static str,
    /// Its section of the file.
    pub section: &'static str,
    /// Its key there.
    pub key: &'static str,
    /// How it is written.
    pub kind: SettingKind,
    /// A description of the setting.
    pub description: &'static str,
    /// Whether a change waits for the next start.
    pub needs_restart: bool,
    /// Its value, as SHOW prints it.
    pub shown: fn(&Settings) -> String,
}

impl Key {
    /// The value of the setting in a file.
    pub fn said_in<'f>(&self, file: &'f Table) -> Option<&'f toml::Value> {
        file.get(self.section)?.get(self.key)
    }

    /// Whether the valid values depend on other settings in varve.toml.
    pub fn leans(&self) -> bool {
        let on_others = ["home_compression_level", "log_capacity", "protection_kind"];
        ["flash", "nvm"].contains(&self.section) || on_others.contains(&self.name)
    }
}

const fn key(
    [name, section, key]: [&'static str; 3],
    kind: SettingKind,
    description: &'static str,
    shown: fn(&Settings) -> String,
) -> Key {
    Key { name, section, key, kind, description, needs_restart: true, shown }
}

/// The same for a setting that can change while the database runs.
const fn on_line(
    names: [&'static str; 3],
    kind: SettingKind,
    description: &'static str,
    shown: fn(&Settings) -> String,
) -> Key {
    Key { needs_restart: false, ..key(names, kind, description, shown) }
}

/// When pages are written home from persistent memory. The defaults if there is none.
fn flush(settings: &Settings) -> NvmFlush {
    settings.nvm.as_ref().map_or(NvmFlush::DEFAULT, |nvm| nvm.flush)
}

/// All of them, by name.
pub const KEYS: &[Key] = &[
    key(
        ["checkpoint_interval", "checkpoint", "interval"],
        SettingKind::Count,
        "The longest time between two checkpoints, in seconds.",
        |s| s.checkpoint.interval_seconds.to_string(),
    ),
    key(
        ["checkpoint_kind", "checkpoint", "kind"],
        SettingKind::Word,
        "Which changed pages a checkpoint has written before it is recorded.",
        |s| s.checkpoint.kind.name().to_owned(),
    ),
    key(
        ["flash_clean_order", "flash", "clean_order"],
        SettingKind::Word,
        "Which changed pages of the flash cache are written to the data files first.",
        |s| s.flash.as_ref().map_or(CleanOrder::LastUse, |flash| flash.clean_order).name().to_owned(),
    ),
    on_line(
        ["flash_daily_writes", "flash", "daily_writes"],
        SettingKind::Bytes,
        "The most bytes that the flash cache may write per day.",
        |s| {
            let daily = s.flash.as_ref().and_then(|flash| flash.daily_write_bytes);
            daily.map_or_else(|| "unlimited".to_owned(), show_bytes)
        },
    ),
    on_line(
        ["flash_design", "flash", "design"],
        SettingKind::Word,
        "Which pages the cache on flash takes.",
        |s| s.flash.as_ref().map_or(FlashDesign::Off, |flash| flash.design).name().to_owned(),
    ),
    on_line(
        ["flash_dirty_limit", "flash", "dirty_limit"],
        SettingKind::Count,
        "The share of the flash cache, in percent, for changed pages that the data files lack.",
        |s| s.flash.as_ref().map_or(FlashConfig::DIRTY_PERCENT, |flash| flash.dirty_percent).to_string(),
    ),
    key(["flash_fill", "flash", "fill"], SettingKind::Word, "How the flash cache is filled.", |s| {
        s.flash.as_ref().map_or(FlashConfig::FILL, |flash| flash.fill).name().to_owned()
    }),
    key(
        ["flash_restart", "flash", "restart"],
        SettingKind::Word,
        "How a start reuses the pages of the flash cache.",
        |s| s.flash.as_ref().map_or(FlashConfig::RESTART, |flash| flash.restart).name().to_owned(),
    ),
    key(
        ["flash_scans", "flash", "scans"],
        SettingKind::Word,
        "How the flash cache recognizes pages of scans.",
        |s| s.flash.as_ref().map_or(FlashConfig::SCANS, |flash| flash.scans).name().to_owned(),
    ),
    on_line(["flash_size", "flash", "size"], SettingKind::Bytes, "The size of the flash cache.", |s| {
        show_bytes(s.flash.as_ref().map_or(0, |flash| flash.size_bytes))
    }),
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
    key(
        ["nvm_flush_workers", "nvm", "flush_workers"],
        SettingKind::Count,
        "Number of threads that write pages from persistent memory to the data files.",
        |s| flush(s).workers.to_string(),
    ),
    on_line(
        ["nvm_high_water", "nvm", "high_water"],
        SettingKind::Count,
        "Percentage of slots with changed pages at which threads begin to write them to the data files.",
        |s| flush(s).high_water.to_string(),
    ),
    on_line(
        ["nvm_idle_flush", "nvm", "idle_flush"],
        SettingKind::Flag,
        "Whether an idle server writes all pages from persistent memory to the data files.",
        |s| if flush(s).when_idle { "on" } else { "off" }.to_owned(),
    ),
    on_line(
        ["nvm_low_water", "nvm", "low_water"],
        SettingKind::Count,
        "Percentage at which they end.",
        |s| flush(s).low_water.to_string(),
    ),
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
        ["server_authentication_timeout", "server", "authentication_timeout"],
        SettingKind::Count,
        "Seconds until a client must be let in.",
        |s| s.server.authentication_timeout.as_secs().to_string(),
    ),
    on_line(
        ["server_log_connections", "server", "log_connections"],
        SettingKind::Flag,
        "Whether connections are logged.",
        |s| if s.server.logs_connections { "on" } else { "off" }.to_owned(),
    ),
    on_line(
        ["server_log_disconnections", "server", "log_disconnections"],
        SettingKind::Flag,
        "Whether the ends of connections are logged, with their duration.",
        |s| if s.server.logs_disconnections { "on" } else { "off" }.to_owned(),
    ),
    key(
        ["server_max_connections", "server", "max_connections"],
        SettingKind::Count,
        "How many sessions there may be.",
        |s| s.server.max_connections.to_string(),
    ),
];
