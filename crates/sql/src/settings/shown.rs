//! Settings as SHOW and pg_settings have them.
//!
//! This module does not know how values are read (`super`, `quantity`).

use super::quantity::{Unit, kilobytes, millis, show_kilobytes, show_millis};
use super::{InitialSource, Kind, Setting, Settings, display_name, every, find};

/// The settings that EXPLAIN (SETTINGS) shows in addition to `enable_...` and `..._cost`. PostgreSQL marks
/// them with `GUC_EXPLAIN`.
const OF_PLANNING: &[&str] = &[
    "constraint_exclusion",
    "cursor_tuple_fraction",
    "effective_cache_size",
    "effective_io_concurrency",
    "force_parallel_mode",
    "from_collapse_limit",
    "geqo",
    "geqo_effort",
    "geqo_generations",
    "geqo_pool_size",
    "geqo_seed",
    "geqo_selection_bias",
    "geqo_threshold",
    "hash_mem_multiplier",
    "jit",
    "join_collapse_limit",
    "join_method",
    "maintenance_io_concurrency",
    "max_parallel_workers",
    "max_parallel_workers_per_gather",
    "min_parallel_index_scan_size",
    "min_parallel_table_scan_size",
    "parallel_leader_participation",
    "plan_cache_mode",
    "recursive_worktable_factor",
    "search_path",
    "smart_scan",
    "temp_buffers",
    "work_mem",
];

/// A row of pg_settings. Numbers are in the setting's unit, and are written without it.
pub struct DescribedSetting {
    /// The name in the spelling that SHOW prints.
    pub name: &'static str,
    /// The current value.
    pub value: String,
    /// The value of a session in which nothing was set.
    pub boot: String,
    /// The value after RESET.
    pub reset: String,
    /// The source of the current value.
    pub source: &'static str,
    /// The possible values, if there are only a few.
    pub choices: &'static [&'static str],
}

impl Settings {
    /// Returns all names and values, for SHOW ALL. As in PostgreSQL, the settings with the session's roles
    /// are not listed.
    pub fn all(&self) -> Vec<(String, String)> {
        let value = |s: &Setting| shown(s.name, self.values.get(s.name).map_or(s.default, String::as_str));
        listed().map(|s| (display_name(s.name).to_owned(), value(s))).collect()
    }

    /// Returns all settings with the columns of pg_settings.
    pub fn described(&self) -> Vec<DescribedSetting> {
        listed().map(|s| self.describe(s)).collect()
    }

    /// Settings of the planner that differ from the default: their names, and their values as SHOW prints
    /// them.
    pub fn of_planning(&self) -> Vec<(&'static str, String)> {
        let is_of_planning = |s: &&Setting| {
            s.name.starts_with("enable_") || s.name.ends_with("_cost") || OF_PLANNING.contains(&s.name)
        };
        let changed = |s: &'static Setting| {
            let described = self.describe(s);
            let is_changed = described.source != "default" && described.value != described.boot;
            let value = self.values.get(s.name).filter(|_| is_changed)?;
            Some((described.name, shown(s.name, value)))
        };
        listed().filter(is_of_planning).filter_map(changed).collect()
    }

    fn describe(&self, s: &'static Setting) -> DescribedSetting {
        let (now, initial) = (self.values.get(s.name), self.initial.get(s.name));
        let or_default = |value: Option<&String>| in_unit(s, value.map_or(s.default, String::as_str));
        DescribedSetting {
            name: display_name(s.name),
            value: or_default(now),
            boot: in_unit(s, s.default),
            reset: or_default(initial),
            source: match (now == initial, self.sources.get(s.name)) {
                (false, _) => "session",
                (true, Some(InitialSource::Client)) => "client",
                (true, Some(InitialSource::Database)) => "database",
                (true, Some(InitialSource::File)) => "configuration file",
                (true, None) => "default",
            },
            choices: match s.kind {
                Kind::OneOf(words) | Kind::Fixed(words) => words,
                _ => &[],
            },
        }
    }
}

/// Returns the settings that lists show, sorted by name.
fn listed() -> impl Iterator<Item = &'static Setting> {
    let mut listed: Vec<_> =
        every().filter(|s| !matches!(s.kind, Kind::Role) && s.name != "is_superuser").collect();
    listed.sort_by_key(|s| s.name);
    listed.into_iter()
}

/// Returns a number in the setting's unit. Other values stay as they are.
fn in_unit(s: &Setting, value: &str) -> String {
    let number = match s.kind {
        Kind::ConfiguredTime => value.parse().ok().or_else(|| millis(value)).map(|millis| millis / 1000),
        _ if value.parse::<f64>().is_ok() => None,
        Kind::Duration | Kind::DurationOrNone | Kind::SomeTime => millis(value),
        Kind::Memory(_) | Kind::Limit => kilobytes(s.name, value, 0).ok(),
        _ => None,
    };
    number.map_or_else(|| value.to_owned(), |number| number.to_string())
}

/// Returns the value as SHOW prints it.
pub(super) fn shown(name: &str, value: &str) -> String {
    let kind = find(name).map(|s| s.kind);
    match (value.parse::<u64>(), kind) {
        (Err(_), Some(Kind::Number(Unit::RealMillis, ..))) => match value.parse::<f64>() {
            Ok(millis) => format!("{}us", millis * 1000.0),
            Err(_) => value.to_owned(),
        },
        (Ok(millis), Some(Kind::Duration | Kind::DurationOrNone | Kind::SomeTime | Kind::ConfiguredTime)) => {
            show_millis(millis)
        }
        (Ok(kilobytes), Some(Kind::Memory(_) | Kind::Limit | Kind::Number(Unit::Kilobytes, ..))) => {
            show_kilobytes(kilobytes)
        }
        (Ok(0), Some(Kind::Number(..))) => value.to_owned(),
        (Ok(pages), Some(Kind::Number(Unit::Pages, ..))) => show_kilobytes(pages * 8),
        (Ok(millis), Some(Kind::Number(Unit::Millis | Unit::RealMillis, ..))) => show_millis(millis),
        _ => value.to_owned(),
    }
}
