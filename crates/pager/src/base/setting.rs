//! The declaration of a setting. Everything else about the setting is derived from the declaration.
//!
//! The declaration is a row of a table beside the struct that holds the value, such as
//! [`FlashSettings::TABLE`](crate::FlashSettings::TABLE). These rows are used by the reader of `varve.toml`,
//! by SHOW, pg_settings and ALTER SYSTEM, and for the table in `docs/settings.md` (decision 0709).
//!
//! Invariants
//! 1. A row has no default. The default of a setting is its value in the default of the struct.
//! 2. Bounds that don't depend on other settings are in the row. The struct's `check` checks all others.
//!
//! This module does not know files, SQL, or the sections of `varve.toml`.

use std::ops::RangeInclusive;

/// A setting: a field of `S`.
pub struct Setting<S: 'static> {
    /// The key of the setting in `varve.toml`. Its name in SQL begins with the section:
    pub key: &'static str,
    /// The form of the value, its bounds, and access to the field.
    pub form: Form<S>,
    /// Whether a change takes effect while the server runs. Otherwise it waits for the next start.
    pub is_online: bool,
    /// The purpose of the setting in one sentence, for pg_settings and the documentation.
    pub help: &'static str,
}

/// The unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// The number counts things. The help says which.
    None,
    /// Percent.
    Percent,
    /// Seconds.
    Seconds,
}

/// The form of a setting's value, with functions that read and write the field.
pub enum Form<S: 'static> {
    /// A size in bytes.
    Bytes {
        /// The least and the greatest value.
        bounds: RangeInclusive<u64>,
        /// Reads the field.
        get: fn(&S) -> u64,
        /// Writes the field.
        set: fn(&mut S, u64),
    },
    /// A size in bytes. Without a value there is no limit, which is shown as `unlimited`.
    Limit {
        /// The least and the greatest value.
        bounds: RangeInclusive<u64>,
        /// Reads the field.
        get: fn(&S) -> Option<u64>,
        /// Writes the field.
        set: fn(&mut S, Option<u64>),
    },
    /// A whole number.
    Count {
        /// Its unit.
        unit: Unit,
        /// The least and the greatest value.
        bounds: RangeInclusive<usize>,
        /// Reads the field.
        get: fn(&S) -> usize,
        /// Writes the field.
        set: fn(&mut S, usize),
    },
    /// On or off.
    Flag {
        /// Reads the field.
        get: fn(&S) -> bool,
        /// Writes the field.
        set: fn(&mut S, bool),
    },
    /// One of a few words.
    Word {
        /// All of them.
        words: fn() -> Vec<&'static str>,
        /// Reads the field.
        get: fn(&S) -> &'static str,
        /// Writes the field, with one of the words.
        set: fn(&mut S, &str),
    },
}
