//! Binds storage parameters: the options of WITH, SET and RESET of a table. `compression` names the codec of
//! the table's pages, and `compression_level` is the level of this codec. `layout` says whether the rows of a
//! leaf lie by columns.
//!
//! Invariants
//! 1. Errors have the same text as in PostgreSQL for options of the same type.
//!
//! This module does not know the layout of pages or the syntax of the options.

use varve_engine::{Algorithm, Compression, LeafLayout, StorageOptions};

use crate::ast::StorageOption;
use crate::error::{Result, SqlError, SqlState};

/// PostgreSQL's storage parameters of tables that are accepted and have no effect in Varve. Also accepted,
/// but not in this list, are `fillfactor` and `autovacuum_...`.
const WITHOUT_MEANING: [&str; 7] = [
    "log_autovacuum_min_duration",
    "parallel_workers",
    "toast_tuple_target",
    "user_catalog_table",
    "vacuum_index_cleanup",
    "vacuum_truncate",
    "oids",
];

/// The values of Varve's own options in a list of options.
#[derive(Default)]
struct Said {
    algorithm: Option<Algorithm>,
    level: Option<String>,
    resets_algorithm: bool,
    resets_level: bool,
    layout: Option<LeafLayout>,
}

/// Reads the options of CREATE TABLE.
pub fn of_new_table(options: &[StorageOption]) -> Result<StorageOptions> {
    changed(StorageOptions::default(), options)
}

/// Returns the options of the table after SET of these options.
pub(super) fn changed(now: StorageOptions, options: &[StorageOption]) -> Result<StorageOptions> {
    let (mut said, mut names) = (Said::default(), Vec::new());
    for option in options {
        let (name, value) = (option.name.as_str(), option.value.as_deref().unwrap_or("true"));
        if names.contains(&name) {
            return Err(twice(name));
        }
        check_name(name, value)?;
        names.push(name);
        match name {
            "compression" => said.algorithm = Some(algorithm(value)?),
            "compression_level" => said.level = Some(value.to_owned()),
            "layout" => said.layout = Some(layout(value)?),
            _ => {}
        }
    }
    let layout = said.layout.unwrap_or(now.layout);
    Ok(StorageOptions { compression: compression(now.compression, &said)?, layout, ..now })
}

/// Returns the options of the table after RESET of these options. As in PostgreSQL, unknown names are no
/// error.
pub(super) fn reset(now: StorageOptions, options: &[StorageOption]) -> Result<StorageOptions> {
    check_reset(options)?;
    let is_reset = |name: &str| options.iter().any(|option| option.name == name);
    let said = Said {
        resets_algorithm: is_reset("compression"),
        resets_level: is_reset("compression_level"),
        ..Said::default()
    };
    let layout = if is_reset("layout") { LeafLayout::default() } else { now.layout };
    Ok(StorageOptions { compression: compression(now.compression, &said)?, layout, ..now })
}

fn invalid(message: String) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// Returns whether the option is one of Varve's own, which PostgreSQL does not have.
pub(super) fn is_own(name: &str) -> bool {
    matches!(name, "compression" | "compression_level" | "layout")
}

/// Refuses an option that neither PostgreSQL nor Varve has.
fn check_name(name: &str, value: &str) -> Result<()> {
    let bare = match name.split_once('.') {
        None => name,
        Some(("toast", bare)) => bare,
        Some((namespace, _)) => {
            return Err(invalid(format!("unrecognized parameter namespace \"{namespace}\"")));
        }
    };
    match bare {
        "fillfactor" if bare == name => integer(name, value, 10, 100).map(|_| ()),
        "oids" if matches!(value, "true" | "on" | "1") => {
            let message = "tables declared WITH OIDS are not supported";
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
        }
        "autovacuum_enabled" | "user_catalog_table" | "vacuum_truncate" => boolean(bare, value),
        _ if is_own(name) || bare.starts_with("autovacuum_") || WITHOUT_MEANING.contains(&bare) => Ok(()),
        _ => Err(invalid(format!("unrecognized parameter \"{bare}\""))),
    }
}

/// Accepts PostgreSQL's words for a boolean, and each beginning of such a word except `o`, which is
/// ambiguous.
fn boolean(name: &str, value: &str) -> Result<()> {
    let lower = value.to_ascii_lowercase();
    let begins = |word: &&str| !lower.is_empty() && lower != "o" && word.starts_with(&lower);
    match ["true", "false", "yes", "no", "on", "off", "1", "0"].iter().any(begins) {
        true => Ok(()),
        false => Err(invalid(format!("invalid value for boolean option \"{name}\": {value}"))),
    }
}

/// Reads the value of an integer option.
pub(crate) fn integer(name: &str, value: &str, least: i64, greatest: i64) -> Result<i64> {
    let number = value.parse::<i32>().map(i64::from);
    let number =
        number.map_err(|_| invalid(format!("invalid value for integer option \"{name}\": {value}")))?;
    if (least..=greatest).contains(&number) {
        return Ok(number);
    }
    Err(invalid(format!("value {value} out of bounds for option \"{name}\""))
        .with_detail(format!("Valid values are between \"{least}\" and \"{greatest}\".")))
}

/// Reads the value of a floating point option that is not negative.
pub(crate) fn not_negative(name: &str, value: &str) -> Result<f64> {
    let number = value.parse::<f64>().ok().filter(|number| !number.is_nan());
    let wrong = || invalid(format!("invalid value for floating point option \"{name}\": {value}"));
    let number = number.ok_or_else(wrong)?;
    if (0.0..=f64::MAX).contains(&number) {
        return Ok(number);
    }
    let detail = format!("Valid values are between \"{:.6}\" and \"{:.6}\".", 0.0, f64::MAX);
    Err(invalid(format!("value {value} out of bounds for option \"{name}\"")).with_detail(detail))
}

/// An error if RESET has values.
pub(crate) fn check_reset(options: &[StorageOption]) -> Result<()> {
    if options.iter().all(|option| option.value.is_none()) {
        return Ok(());
    }
    let message = "RESET must not include values for parameters";
    Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
}

/// The error for an option that is given twice.
pub(crate) fn twice(name: &str) -> SqlError {
    invalid(format!("parameter \"{name}\" specified more than once"))
}

fn layout(value: &str) -> Result<LeafLayout> {
    match value.to_ascii_lowercase().as_str() {
        "row" => Ok(LeafLayout::ByRows),
        "pax" => Ok(LeafLayout::ByColumns),
        _ => Err(invalid(format!("invalid value for enum option \"layout\": {value}"))
            .with_detail("Valid values are \"row\" and \"pax\".")),
    }
}

fn algorithm(value: &str) -> Result<Algorithm> {
    Algorithm::named(&value.to_ascii_lowercase()).ok_or_else(|| {
        let names = Algorithm::ALL.map(|algorithm| format!("\"{algorithm}\""));
        let [first @ .., last] = &names;
        let detail = format!("Valid values are {}, and {last}.", first.join(", "));
        invalid(format!("invalid value for enum option \"compression\": {value}")).with_detail(detail)
    })
}

/// Computes the new compression. The level belongs to the codec: if the codec changes, the level of the old
/// codec is dropped.
fn compression(now: Option<Compression>, said: &Said) -> Result<Option<Compression>> {
    let now = if said.resets_algorithm { None } else { now };
    let next = match (said.algorithm, now) {
        (Some(algorithm), Some(now)) if now.algorithm == algorithm => Some(now),
        (Some(algorithm), _) => Some(Compression::of(algorithm)),
        (None, now) => now,
    };
    let next = next.map(|how| if said.resets_level { Compression::of(how.algorithm) } else { how });
    match (&said.level, next) {
        (None, next) => Ok(next),
        (Some(_), None) => {
            let message = "parameter \"compression_level\" needs \"compression\"".to_owned();
            let hint = "Say both, such as: compression = 'zstd', compression_level = 3.";
            Err(invalid(message).with_hint(hint))
        }
        (Some(level), Some(how)) => {
            let greatest = if how.is_none() { 0 } else { i64::from(*how.algorithm.levels().end()) };
            if greatest == 1 && level.parse::<i32>().is_ok_and(|level| !(0..=1).contains(&level)) {
                let message = format!("value {level} out of bounds for option \"compression_level\"");
                let detail = format!(
                    "{} has no levels to choose; zlib and lzma have 1 to 9, zstd 1 to 19.",
                    how.algorithm
                );
                return Err(invalid(message).with_detail(detail));
            }
            let level = integer("compression_level", level, 0, greatest)?;
            Ok(Some(Compression { level: level as u8, ..how }))
        }
    }
}
