//! Reads BASE_BACKUP, which is not in PostgreSQL's grammar for SQL. In PostgreSQL it is a command of the
//! replication protocol, with the same form:
//!
//! ```text
//! BASE_BACKUP [ ( option [, ...] ) ] [;]
//! option: COMPRESSION 'lz4' | MAX_RATE kibibytes_per_second | EARLIER 'id of the earlier backup'
//! ```
//!
//! The id of an earlier backup is the text of a `BackupBase`: six numbers in hexadecimal digits. `varve
//! backup` takes them from the manifest of that backup.
//!
//! This module does not know how a backup is made (`session::base_backup`).

use varve_engine::{Algorithm, BackupBase, BackupOptions, Compression};

use super::Utility;
use crate::error::{Result, SqlError, SqlState};
use crate::parse::{Token, tokens};

const NAME: &str = "base_backup";

/// The options of BASE_BACKUP.
#[derive(Debug, Clone, Copy, Default)]
pub struct BaseBackup {
    /// COMPRESSION and EARLIER.
    pub options: BackupOptions,
    /// MAX_RATE, in bytes per second.
    pub max_rate: Option<u64>,
}

/// Reads a statement that begins with BASE_BACKUP. Returns `None` for any other statement.
pub(crate) fn read(sql: &str) -> Result<Option<Utility>> {
    let text = sql.trim_start();
    let is_it = text.get(..NAME.len()).is_some_and(|word| word.eq_ignore_ascii_case(NAME));
    if !is_it {
        return Ok(None);
    }
    let tokens = tokens(sql).map_err(|_| misread("it has a token that is not complete"))?;
    match tokens.split_first() {
        Some((word, rest)) if word.is_word(NAME) => {
            options(rest).map(|found| Some(Utility::BaseBackup(Box::new(found))))
        }
        _ => Ok(None),
    }
}

fn options(tokens: &[Token<'_>]) -> Result<BaseBackup> {
    let tokens = match tokens {
        [tokens @ .., last] if last.is(";") => tokens,
        tokens => tokens,
    };
    let mut found = BaseBackup::default();
    let inner = match tokens {
        [] => return Ok(found),
        [open, inner @ .., close] if open.is("(") && close.is(")") => inner,
        _ => return Err(misread("expected options in parentheses")),
    };
    for option in inner.split(|token| token.is(",")) {
        let [name, value] = option else {
            return Err(misread("an option is a name and a value"));
        };
        let text = value.string();
        match (name.name().as_deref(), text) {
            (Some("compression"), Some(text)) => found.options.compression = compression(&text)?,
            (Some("earlier"), Some(text)) => found.options.base = Some(earlier(&text)?),
            (Some("max_rate"), _) => found.max_rate = Some(rate(value)?),
            (name, _) => {
                return Err(misread(&format!(
                    "unrecognized option or value of option \"{}\"",
                    name.unwrap_or_default()
                )));
            }
        }
    }
    Ok(found)
}

fn misread(what: &str) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error in BASE_BACKUP: {what}"))
        .with_hint("BASE_BACKUP (COMPRESSION 'lz4', MAX_RATE 10240, EARLIER 'id of the earlier backup')")
}

fn invalid(what: String) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, what)
}

fn compression(name: &str) -> Result<Compression> {
    let known = Algorithm::named(&name.to_ascii_lowercase());
    known.map(Compression::of).ok_or_else(|| invalid(format!("unknown compression \"{name}\" of a backup")))
}

fn rate(value: &Token<'_>) -> Result<u64> {
    let text = value.string().unwrap_or_else(|| value.written().to_owned());
    let kib = text.parse::<u64>().ok().filter(|kib| (32..=1 << 30).contains(kib));
    let bytes = kib.map(|kib| kib * 1024);
    bytes.ok_or_else(|| {
        invalid(format!("MAX_RATE {text}: it must be from 32 to {} (KiB per second)", 1 << 30))
    })
}

fn earlier(text: &str) -> Result<BackupBase> {
    BackupBase::parse(text).ok_or_else(|| invalid(format!("\"{text}\" is not the id of an earlier backup")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn found(sql: &str) -> Option<BaseBackup> {
        match read(sql).unwrap() {
            Some(Utility::BaseBackup(found)) => Some(*found),
            _ => None,
        }
    }

    #[test]
    fn options_are_read() {
        assert!(found(" base_backup ;").unwrap().options.base.is_none());
        let all =
            found("BASE_BACKUP (COMPRESSION 'zstd', max_rate 1024, EARLIER 'a/b/1000/c/0/1800')").unwrap();
        assert_eq!(all.options.compression.algorithm, Algorithm::Zstd);
        assert_eq!(all.max_rate, Some(1 << 20));
        assert_eq!(all.options.base, BackupBase::parse("a/b/1000/c/0/1800"));
        assert!(all.options.base.is_some());
        assert!(found("SELECT base_backup").is_none() && found("base_backups").is_none());
    }

    #[test]
    fn other_options_are_refused() {
        for sql in ["(COMPRESSION)", "(COMPRESSION 'x')", "(MAX_RATE 1)", "(EARLIER 'a')", "(LABEL 'x')", "x"]
        {
            assert!(read(&format!("BASE_BACKUP {sql}")).is_err(), "{sql}");
        }
    }
}
