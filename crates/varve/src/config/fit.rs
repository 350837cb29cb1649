//! Divides the settings of `varve.auto.toml` into two groups: settings that are possible together with
//! `varve.toml`, and settings that are not. The caller decides whether an impossible setting is an error.

use std::path::Path;

use toml::{Table, Value};

use super::keys::{KEYS, Key};
use super::{ConfigError, Settings};

/// The settings, the entries of the file that were used, and those that were not.
pub struct Fit {
    /// The settings of varve.toml, changed by the settings that are used.
    pub next: Settings,
    /// The entries that are possible with varve.toml.
    pub kept: Table,
    /// The other entries, and the reasons.
    pub left: Vec<(&'static Key, ConfigError)>,
}

impl Fit {
    /// Makes a result for the case that all entries are possible with varve.toml. `next` are the resulting
    /// settings.
    pub fn whole(next: Settings, said: &Table) -> Fit {
        Fit { next, kept: said.clone(), left: Vec::new() }
    }

    /// Uses the settings that are possible with `base`.
    pub fn of(base: &Settings, directory: &Path, said: &Table) -> Fit {
        let mut pending: Vec<&'static Key> = KEYS.iter().filter(|key| key.said_in(said).is_some()).collect();
        let mut fit = Fit { next: base.clone(), kept: Table::new(), left: Vec::new() };
        // Some settings depend on each other. So each time a setting was used, the remaining ones are tried
        // again.
        loop {
            fit.left.clear();
            for key in &pending {
                let with = with(&fit.kept, key, said);
                match base.clone().overlaid(&with.to_string(), directory) {
                    Ok(next) => (fit.kept, fit.next) = (with, next),
                    Err(error) => fit.left.push((*key, error)),
                }
            }
            if fit.left.is_empty() || fit.left.len() == pending.len() {
                return fit;
            }
            pending = fit.left.iter().map(|(key, _)| *key).collect();
        }
    }

    /// Returns whether a setting is ignored.
    pub fn leaves_out(&self, key: &Key) -> bool {
        self.left.iter().any(|(left, _)| left.name == key.name)
    }

    /// Returns whether all ignored settings could be possible with another varve.toml.
    pub fn all_left_lean(&self) -> bool {
        self.left.iter().all(|(key, _)| key.leans())
    }
}

/// Returns names in the file that are not settings of ALTER SYSTEM.
pub fn unknown_of(said: &Table) -> Vec<String> {
    let mut unknown = Vec::new();
    for (section, value) in said {
        let Value::Table(table) = value else {
            unknown.push(section.clone());
            continue;
        };
        let is_known = |key: &str| KEYS.iter().any(|one| one.section == section && one.key == key);
        unknown.extend(table.keys().filter(|key| !is_known(key)).map(|key| format!("{section}.{key}")));
    }
    unknown
}

/// Returns a copy of `kept` with one more key, which comes from `said`.
fn with(kept: &Table, key: &Key, said: &Table) -> Table {
    let mut with = kept.clone();
    let section = with.entry(key.section).or_insert_with(|| Value::Table(Table::new()));
    if let (Value::Table(section), Some(value)) = (section, key.said_in(said)) {
        section.insert(key.key.to_owned(), value.clone());
    }
    with
}
