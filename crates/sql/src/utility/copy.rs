//! Converts COPY from the tree of PostgreSQL's parser. Options may have the old syntax (`CSV HEADER`) or the
//! new one (`(FORMAT csv, HEADER)`).
//!
//! Invariants
//! 1. Options that would make the data ambiguous are refused before any data is read or written.
//!
//! This module does not know how the data is split or formatted (`crate::copy`).

use pg_query::NodeEnum;
use pg_query::protobuf::CopyStmt;

use super::Utility;
use super::node::{self, Opt, Source, behind_parenthesis};
use crate::copy::{Chosen, Copy, CopyEnd, CopyWhat, Format, Header, Kind};
use crate::encoding::Encoding;
use crate::error::{Result, SqlError, SqlState};
use crate::parse::postgres;

/// Converts COPY.
pub(super) fn copy(source: Source<'_>, c: &CopyStmt) -> Result<Utility> {
    let what = match &c.relation {
        Some(name) => CopyWhat::Table(node::relation(name), node::columns(&c.attlist)?),
        None => query(source)?,
    };
    let mut options = Options::default();
    for given in node::options(&c.options)? {
        options.take(source, given)?;
    }
    let place = match (c.is_program, c.filename.is_empty()) {
        (true, _) => CopyEnd::Program,
        (false, true) => CopyEnd::Client,
        (false, false) => CopyEnd::File(c.filename.clone()),
    };
    let filter =
        c.where_clause.as_ref().map(|node| postgres::expressions(source.sql, std::slice::from_ref(&**node)));
    let filter = filter.transpose()?.and_then(|mut all| all.pop()).map(Box::new);
    let format = options.format(c.is_from)?;
    Ok(Utility::Copy(Box::new(Copy {
        what,
        is_from: c.is_from,
        place,
        format,
        filter,
        sql: source.sql.into(),
    })))
}

/// Returns the text of a query in parentheses. It is parsed when the statement runs.
fn query(source: Source<'_>) -> Result<CopyWhat> {
    let tokens = source.tokens()?;
    let end = behind_parenthesis(&tokens, 1);
    match (tokens.get(2), tokens.get(end.saturating_sub(2))) {
        (Some(first), Some(last)) => {
            source.piece(first, last).map(|(text, before)| CopyWhat::Query(text.into(), before))
        }
        _ => Err(SqlError::internal("COPY without its query")),
    }
}

/// The options as written. An absent option has the format's default.
#[derive(Default)]
struct Options {
    kind: Option<Kind>,
    header: Option<Header>,
    freeze: Option<bool>,
    encoding: Option<Encoding>,
    delimiter: Option<String>,
    null: Option<String>,
    quote: Option<String>,
    escape: Option<String>,
    force_quote: Option<Chosen>,
    force_not_null: Option<Chosen>,
    force_null: Option<Chosen>,
}

impl Options {
    /// Stores an option. Fails with 42601 if it was given before.
    fn take(&mut self, source: Source<'_>, given: Opt<'_>) -> Result<()> {
        let at = given.position(source);
        let is_new = match given.name() {
            "format" => once(&mut self.kind, || kind(&given.needed_text()?, at)),
            "freeze" => once(&mut self.freeze, || given.flag()),
            "header" => once(&mut self.header, || header(given)),
            "delimiter" => once(&mut self.delimiter, || given.needed_text()),
            "null" => once(&mut self.null, || given.needed_text()),
            "quote" => once(&mut self.quote, || given.needed_text()),
            "escape" => once(&mut self.escape, || given.needed_text()),
            "encoding" => once(&mut self.encoding, || encoding(&given.needed_text()?, at)),
            "force_quote" => once(&mut self.force_quote, || chosen(given, at)),
            "force_not_null" => once(&mut self.force_not_null, || these(given, at)),
            "force_null" => once(&mut self.force_null, || these(given, at)),
            name => Err(node::syntax(format!("option \"{name}\" not recognized")).at(at)),
        };
        if is_new? { Ok(()) } else { Err(node::redundant(at)) }
    }

    /// Makes the format of the options. They are checked in PostgreSQL's order.
    fn format(self, is_from: bool) -> Result<Format> {
        let kind = self.kind.unwrap_or_default();
        if kind == Kind::Binary {
            self.refuse_for_binary()?;
        }
        let header = self.header.unwrap_or_default();
        if header == Header::Match && !is_from {
            return Err(unavailable("cannot use \"match\" with HEADER in COPY TO"));
        }
        let plain = Format::plain(kind);
        let delimiter = one_byte(self.delimiter, plain.delimiter, "delimiter")?;
        let null = self.null.unwrap_or(plain.null);
        check_delimiter(delimiter, &null, kind)?;
        if kind == Kind::Binary && header != Header::None {
            return Err(unavailable("cannot specify HEADER in BINARY mode"));
        }
        only_csv(kind, self.quote.is_some(), "quote")?;
        let quote = one_byte(self.quote, plain.quote, "quote")?;
        if kind == Kind::Csv && delimiter == quote {
            return Err(invalid("COPY delimiter and quote must be different"));
        }
        only_csv(kind, self.escape.is_some(), "escape")?;
        let escape = one_byte(self.escape, quote, "escape")?;
        only_csv(kind, self.force_quote.is_some(), "force quote")?;
        only_direction(is_from && self.force_quote.is_some(), "force quote", "TO")?;
        only_csv(kind, self.force_not_null.is_some(), "force not null")?;
        only_direction(!is_from && self.force_not_null.is_some(), "force not null", "FROM")?;
        only_csv(kind, self.force_null.is_some(), "force null")?;
        only_direction(!is_from && self.force_null.is_some(), "force null", "FROM")?;
        check_null(&null, delimiter, quote, kind)?;
        Ok(Format {
            kind,
            freeze: is_from && self.freeze.unwrap_or_default(),
            encoding: self.encoding,
            header,
            delimiter,
            null,
            quote,
            escape,
            force_quote: self.force_quote.unwrap_or_default(),
            force_not_null: self.force_not_null.unwrap_or_default(),
            force_null: self.force_null.unwrap_or_default(),
        })
    }

    fn refuse_for_binary(&self) -> Result<()> {
        let given = [(self.delimiter.is_some(), "DELIMITER"), (self.null.is_some(), "NULL")];
        match given.iter().find(|(given, _)| *given) {
            Some((_, what)) => {
                let message = format!("cannot specify {what} in BINARY mode");
                Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
            }
            None => Ok(()),
        }
    }
}

fn invalid(message: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn unavailable(message: &str) -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

fn only_csv(kind: Kind, given: bool, what: &str) -> Result<()> {
    match given && kind != Kind::Csv {
        true => Err(unavailable(&format!("COPY {what} available only in CSV mode"))),
        false => Ok(()),
    }
}

fn only_direction(wrong: bool, what: &str, direction: &str) -> Result<()> {
    match wrong {
        true => Err(unavailable(&format!("COPY {what} only available using COPY {direction}"))),
        false => Ok(()),
    }
}

fn one_byte(value: Option<String>, default: u8, what: &str) -> Result<u8> {
    match value.as_deref().map(str::as_bytes) {
        None => Ok(default),
        Some([b]) => Ok(*b),
        Some(_) => Err(unavailable(&format!("COPY {what} must be a single one-byte character"))),
    }
}

fn check_delimiter(delimiter: u8, null: &str, kind: Kind) -> Result<()> {
    let is_ambiguous = matches!(delimiter, b'\\' | b'.' | b'a'..=b'z' | b'0'..=b'9');
    if matches!(delimiter, b'\n' | b'\r') {
        return Err(invalid("COPY delimiter cannot be newline or carriage return"));
    }
    if null.contains(['\n', '\r']) {
        return Err(invalid("COPY null representation cannot use newline or carriage return"));
    }
    if kind != Kind::Csv && is_ambiguous {
        return Err(invalid(&format!("COPY delimiter cannot be \"{}\"", char::from(delimiter))));
    }
    Ok(())
}

fn check_null(null: &str, delimiter: u8, quote: u8, kind: Kind) -> Result<()> {
    if null.as_bytes().contains(&delimiter) {
        return Err(unavailable("COPY delimiter must not appear in the NULL specification"));
    }
    if kind == Kind::Csv && null.as_bytes().contains(&quote) {
        return Err(unavailable("CSV quote character must not appear in the NULL specification"));
    }
    Ok(())
}

/// Stores an option in its slot. Returns whether the slot was empty.
fn once<T>(slot: &mut Option<T>, value: impl FnOnce() -> Result<T>) -> Result<bool> {
    if slot.is_some() {
        return Ok(false);
    }
    *slot = Some(value()?);
    Ok(true)
}

fn kind(name: &str, at: Option<u32>) -> Result<Kind> {
    match name {
        "text" => Ok(Kind::Text),
        "csv" => Ok(Kind::Csv),
        "binary" => Ok(Kind::Binary),
        other => Err(invalid(&format!("COPY format \"{other}\" not recognized")).at(at)),
    }
}

fn header(given: Opt<'_>) -> Result<Header> {
    if given.text().is_some_and(|text| text.eq_ignore_ascii_case("match")) {
        return Ok(Header::Match);
    }
    match given.truth() {
        Some(true) => Ok(Header::Line),
        Some(false) => Ok(Header::None),
        None => Err(node::syntax("header requires a Boolean value or \"match\"")),
    }
}

fn chosen(given: Opt<'_>, at: Option<u32>) -> Result<Chosen> {
    match given.value() {
        Some(NodeEnum::AStar(_)) => Ok(Chosen::All),
        _ => these(given, at),
    }
}

fn these(given: Opt<'_>, at: Option<u32>) -> Result<Chosen> {
    match given.value() {
        Some(NodeEnum::List(list)) => node::columns(&list.items).map(Chosen::These),
        _ => {
            let message = format!("argument to option \"{}\" must be a list of column names", given.name());
            Err(invalid(&message).at(at))
        }
    }
}

/// Finds the encoding of this name. Fails with 22023 if there is none, and with 0A000 if Varve cannot convert
/// it.
fn encoding(name: &str, at: Option<u32>) -> Result<Encoding> {
    let wrong = || invalid("argument to option \"encoding\" must be a valid encoding name").at(at);
    let encoding = Encoding::named(name).ok_or_else(wrong)?;
    match encoding.is_available() {
        true => Ok(encoding),
        false => Err(SqlError::unsupported(format!("COPY in the encoding {}", encoding.name()))),
    }
}
