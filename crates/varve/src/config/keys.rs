//! The settings that ALTER SYSTEM changes: names, what they are for, how they are shown.
//!
//! Invariants
//! 1. A name is its section and key of varve.toml.
//!
//! What this file doesn't know: how a value is read.

use toml::Table;
use varve_pager::Replacement;

use super::{Settings, show_bytes};
use crate::memory::{default_pool_bytes, default_query_bytes};

/// How a value is written in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A size: text.
    Bytes,
    /// A whole number.
    Count,
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
    pub kind: Kind,
    /// What it is for.
    pub description: &'static str,
    /// Whether a change waits for the next start.
    pub needs_restart: bool,
    /// Its value, as SHOW prints it.
    pub shown: fn(&Settings) -> String,
}

impl Key {
    /// What a file says of it.
    pub fn said_in<'f>(&self, file: &'f Table) -> Option<&'f toml::Value> {
        file.get(self.section)?.get(self.key)
    }
}

const fn key(
    [name, section, key]: [&'static str; 3],
    kind: Kind,
    description: &'static str,
    shown: fn(&Settings) -> String,
) -> Key {
    Key { name, section, key, kind, description, needs_restart: true, shown }
}

/// All of them, by name.
pub const KEYS: &[Key] = &[
    key(["log_capacity", "log", "capacity"], Kind::Bytes, "Bytes of all files of the log together.", |s| {
        show_bytes(s.log.capacity_bytes)
    }),
    key(["log_segment", "log", "segment"], Kind::Bytes, "Bytes of one file of the log.", |s| {
        show_bytes(s.log.segment_bytes)
    }),
    key(["pool_page_writers", "pool", "page_writers"], Kind::Count, "Threads that write dirty pages.", |s| {
        s.pool.page_writers.to_string()
    }),
    key(["pool_replacement", "pool", "replacement"], Kind::Word, "Which page leaves the pool first.", |s| {
        match s.pool.replacement {
            Replacement::Clock => "clock".to_owned(),
            Replacement::Lru2 => "lru2".to_owned(),
        }
    }),
    key(["pool_size", "pool", "size"], Kind::Bytes, "Bytes of memory for pages.", |s| {
        show_bytes(s.pool.size_bytes.unwrap_or_else(default_pool_bytes))
    }),
    key(
        ["protection_kind", "protection", "kind"],
        Kind::Word,
        "What mends pages that a crash has torn.",
        |s| s.protection.name().to_owned(),
    ),
    key(
        ["query_memory", "query", "memory"],
        Kind::Bytes,
        "Bytes of memory for all general queries together.",
        |s| show_bytes(s.query.memory_bytes.unwrap_or_else(default_query_bytes)),
    ),
    Key {
        needs_restart: false,
        ..key(
            ["query_temporary", "query", "temporary"],
            Kind::Bytes,
            "Bytes of temporary files of one session; those that have begun keep theirs.",
            |s| s.query.temporary_bytes.map_or_else(|| "unlimited".to_owned(), show_bytes),
        )
    },
    key(
        ["server_authentication_timeout", "server", "authentication_timeout"],
        Kind::Count,
        "Seconds until a client must be let in.",
        |s| s.server.authentication_timeout.as_secs().to_string(),
    ),
    key(
        ["server_max_connections", "server", "max_connections"],
        Kind::Count,
        "How many sessions there may be.",
        |s| s.server.max_connections.to_string(),
    ),
];
