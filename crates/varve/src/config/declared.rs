//! Settings that another crate declares in a table ([`Setting`](varve_pager::Setting)): how their values are
//! shown. `SectionReader::declared` reads them.
//!
//! Invariants
//! 1. The row of a setting in its table is enough to show and change the setting. No setting is named in this
//!    file.

use varve_pager::{Form, Unit};

use super::units::show_bytes;

/// The form of a value in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingKind {
    /// A size, as text.
    Bytes,
    /// A whole number.
    Count,
    /// A whole number or `auto`.
    CountOrAuto,
    /// True or false.
    Flag,
    /// A time in milliseconds, or -1.
    MillisOrNone,
    /// A size in kilobytes, or -1.
    KilobytesOrNone,
    /// A word, as text.
    Word,
}

/// Returns the value of a setting, as SHOW prints it.
pub fn show<S>(form: &Form<S>, from: &S) -> String {
    match form {
        Form::Bytes { get, .. } => show_bytes(get(from)),
        Form::Limit { get, .. } => get(from).map_or_else(|| "unlimited".to_owned(), show_bytes),
        Form::Count { get, .. } => get(from).to_string(),
        Form::Flag { get, .. } => if get(from) { "on" } else { "off" }.to_owned(),
        Form::Word { get, .. } => get(from).to_owned(),
    }
}

/// Returns the form of a setting's value in the file.
pub fn kind<S>(form: &Form<S>) -> SettingKind {
    match form {
        Form::Bytes { .. } | Form::Limit { .. } => SettingKind::Bytes,
        Form::Count { .. } => SettingKind::Count,
        Form::Flag { .. } => SettingKind::Flag,
        Form::Word { .. } => SettingKind::Word,
    }
}

/// Returns the words that a setting can have.
pub fn choices<S>(form: &Form<S>) -> Vec<&'static str> {
    match form {
        Form::Word { words, .. } => words(),
        Form::Bytes { .. } | Form::Limit { .. } | Form::Count { .. } | Form::Flag { .. } => Vec::new(),
    }
}

/// Returns the unit of a setting's number, as in pg_settings.
pub fn unit<S>(form: &Form<S>) -> Option<&'static str> {
    match form {
        Form::Count { unit: Unit::Seconds, .. } => Some("s"),
        _ => None,
    }
}

/// Returns the least and the greatest value of a setting's number. Sizes are text with a unit, and have none.
pub fn bounds<S>(form: &Form<S>) -> Option<(u64, u64)> {
    match form {
        Form::Count { bounds, .. } => Some((*bounds.start() as u64, *bounds.end() as u64)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use varve_pager::{FlashSettings, Form, NvmFlush, Setting, Unit};

    use crate::config::{
        ArchiveSettings, CheckpointSettings, SmartSettings, TablesSettings, TraceSettings, UndoSettings,
        show_bytes,
    };

    const DOCUMENTED: &str = include_str!("../../../../docs/settings.md");
    const COMMENTED: &str = include_str!("settings.toml");

    /// Returns a description of the values that a setting can have.
    fn values<S>(form: &Form<S>) -> String {
        match form {
            Form::Bytes { bounds, .. } | Form::Limit { bounds, .. } => {
                format!("{} to {}", show_bytes(*bounds.start()), show_bytes(*bounds.end()))
            }
            Form::Count { unit, bounds, .. } => {
                let unit = match unit {
                    Unit::None => "",
                    Unit::Percent => " percent",
                    Unit::Seconds => " seconds",
                };
                format!("{} to {}{unit}", bounds.start(), bounds.end())
            }
            Form::Flag { .. } => "on, off".to_owned(),
            Form::Word { words, .. } => words().join(", "),
        }
    }

    /// Returns the lines of the documentation about a table.
    fn documentation<S>(section: &str, table: &[Setting<S>], default: &S) -> String {
        let lines = |setting: &Setting<S>| {
            let when = if setting.is_online { "while the server runs" } else { "at the next start" };
            let default = match &setting.form {
                Form::Bytes { .. } => "none".to_owned(),
                form => super::show(form, default),
            };
            format!(
                "- `{section}_{}`\n  - {}\n  - Values: {}.\n  - Default: {default}. A change takes effect {when}.\n",
                setting.key,
                setting.help,
                values(&setting.form)
            )
        };
        table.iter().map(lines).collect()
    }

    #[test]
    fn the_documentation_has_what_is_declared() {
        let checkpoint = documentation("checkpoint", CheckpointSettings::TABLE, &CheckpointSettings::DEFAULT);
        let archive = documentation("archive", ArchiveSettings::TABLE, &ArchiveSettings::DEFAULT);
        let flash = documentation("flash", FlashSettings::TABLE, &FlashSettings::DEFAULT);
        let tables = documentation("nvm", TablesSettings::TABLE, &TablesSettings::DEFAULT);
        let nvm = documentation("nvm", NvmFlush::TABLE, &NvmFlush::DEFAULT);
        let undo = documentation("undo", UndoSettings::TABLE, &UndoSettings::DEFAULT);
        let trace = documentation("trace", TraceSettings::TABLE, &TraceSettings::DEFAULT);
        let smart = documentation("smart", SmartSettings::TABLE, &SmartSettings::DEFAULT);
        let (_, lines) = DOCUMENTED.split_once("\n\n- ").expect("it has a list");
        assert_eq!(
            format!("- {lines}"),
            [checkpoint, archive, undo, trace, flash, tables, nvm, smart].concat()
        );
    }

    /// Compares the defaults in a section of the commented file with those of a table.
    fn compare_defaults<S>(section: &str, table: &[Setting<S>], default: &S) {
        let (_, rest) = COMMENTED.split_once(&format!("[{section}]\n")).expect("the section is there");
        for Setting { key, form, .. } in table {
            let mut lines = rest.lines().map(|line| line.trim_start_matches('#'));
            let value = lines.find_map(|line| line.strip_prefix(&format!("{key} = ")));
            let value = value.unwrap_or_else(|| panic!("settings.toml has no line for {section}.{key}"));
            let shown = super::show(form, default);
            match form {
                // A size has an example there, and not its default.
                Form::Bytes { .. } | Form::Limit { .. } => {}
                Form::Flag { get, .. } => assert_eq!(value, get(default).to_string(), "{section}.{key}"),
                Form::Count { .. } => assert_eq!(value, shown, "{section}.{key}"),
                Form::Word { .. } => assert_eq!(value, format!("\"{shown}\""), "{section}.{key}"),
            }
        }
    }

    #[test]
    fn the_commented_file_has_the_declared_defaults() {
        compare_defaults("checkpoint", CheckpointSettings::TABLE, &CheckpointSettings::DEFAULT);
        compare_defaults("archive", ArchiveSettings::TABLE, &ArchiveSettings::DEFAULT);
        compare_defaults("undo", UndoSettings::TABLE, &UndoSettings::DEFAULT);
        compare_defaults("trace", TraceSettings::TABLE, &TraceSettings::DEFAULT);
        compare_defaults("smart", SmartSettings::TABLE, &SmartSettings::DEFAULT);
        compare_defaults("flash", FlashSettings::TABLE, &FlashSettings::DEFAULT);
        compare_defaults("nvm", TablesSettings::TABLE, &TablesSettings::DEFAULT);
        compare_defaults("nvm", NvmFlush::TABLE, &NvmFlush::DEFAULT);
    }
}
