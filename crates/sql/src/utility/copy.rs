//! COPY FROM STDIN and its options, old style (`CSV HEADER`) and new (`(FORMAT csv, HEADER)`).
//!
//! Invariants
//! 1. Options that would make the data ambiguous are refused before any of it is read.
//!
//! Does not know: how the data is taken apart (`exec::copy`).

use sqlparser::ast;
use sqlparser::tokenizer::Token;

use super::{CopyFrom, Cursor, Utility};
use crate::error::{Result, SqlError, SqlState};

/// Reads what follows COPY.
pub(super) fn read(c: &mut Cursor<'_>) -> Result<Utility> {
    if c.peek() == Some(&Token::LParen) {
        return Err(SqlError::unsupported("COPY of a query"));
    }
    let table = c.object_name()?;
    let mut columns = Vec::new();
    if c.eat_token(&Token::LParen) {
        loop {
            columns.push(c.ident()?);
            if !c.eat_token(&Token::Comma) {
                break;
            }
        }
        c.expect_token(&Token::RParen)?;
    }
    if c.eat("to") {
        return Err(SqlError::unsupported("COPY TO"));
    }
    c.expect("from")?;
    if !c.eat("stdin") {
        return Err(SqlError::unsupported("COPY from a file or program").with_hint("Use COPY FROM STDIN."));
    }
    let options = copy_options(c)?;
    finish_copy(table, columns, options).map(|copy| Utility::Copy(Box::new(copy)))
}

/// Options as written; what is absent takes the format's default.
#[derive(Default)]
struct CopyOptions {
    csv: bool,
    header: bool,
    delimiter: Option<String>,
    null: Option<String>,
    quote: Option<String>,
    escape: Option<String>,
}

fn copy_options(c: &mut Cursor<'_>) -> Result<CopyOptions> {
    let mut options = CopyOptions::default();
    c.eat("with");
    let listed = c.eat_token(&Token::LParen);
    while c.peek().is_some() && c.peek() != Some(&Token::RParen) {
        let name = c.name()?;
        match name.as_str() {
            "format" => options.csv = copy_format(&c.name()?)?,
            "csv" => options.csv = true,
            "binary" => return Err(SqlError::unsupported("COPY in binary format")),
            "freeze" => {
                boolean(c)?;
            }
            "header" => options.header = boolean(c)?,
            "delimiter" | "null" | "quote" | "escape" | "encoding" => {
                c.eat("as");
                let value = Some(c.string()?);
                match name.as_str() {
                    "delimiter" => options.delimiter = value,
                    "null" => options.null = value,
                    "quote" => options.quote = value,
                    "escape" => options.escape = value,
                    _ => check_encoding(value.as_deref())?,
                }
            }
            _ => {
                let message = format!("option \"{name}\" not recognized");
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
        }
        if listed && !c.eat_token(&Token::Comma) {
            break;
        }
    }
    if listed {
        c.expect_token(&Token::RParen)?;
    }
    Ok(options)
}

fn check_encoding(name: Option<&str>) -> Result<()> {
    match name {
        Some(n) if n.eq_ignore_ascii_case("utf8") || n.eq_ignore_ascii_case("utf-8") => Ok(()),
        _ => Err(SqlError::unsupported("an encoding other than UTF8")),
    }
}

fn copy_format(name: &str) -> Result<bool> {
    match name {
        "text" => Ok(false),
        "csv" => Ok(true),
        "binary" => Err(SqlError::unsupported("COPY in binary format")),
        other => Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("COPY format \"{other}\" not recognized"),
        )),
    }
}

/// An optional boolean after an option's name; true if left out.
fn boolean(c: &mut Cursor<'_>) -> Result<bool> {
    for (word, value) in [("true", true), ("on", true), ("false", false), ("off", false)] {
        if c.eat(word) {
            return Ok(value);
        }
    }
    if c.eat("match") {
        return Err(SqlError::unsupported("HEADER MATCH"));
    }
    Ok(true)
}

fn finish_copy(table: ast::ObjectName, columns: Vec<ast::Ident>, o: CopyOptions) -> Result<CopyFrom> {
    if !o.csv && (o.quote.is_some() || o.escape.is_some()) {
        let what = if o.quote.is_some() { "quote" } else { "escape" };
        return Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("COPY {what} available only in CSV mode"),
        ));
    }
    let quote = one_byte(o.quote, b'"', "quote")?;
    let copy = CopyFrom {
        table,
        columns,
        csv: o.csv,
        header: o.header,
        delimiter: one_byte(o.delimiter, if o.csv { b',' } else { b'\t' }, "delimiter")?,
        null: o.null.unwrap_or_else(|| if o.csv { String::new() } else { "\\N".into() }),
        quote,
        escape: one_byte(o.escape, quote, "escape")?,
    };
    match conflict(&copy) {
        Some(message) => Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)),
        None => Ok(copy),
    }
}

fn one_byte(value: Option<String>, default: u8, what: &str) -> Result<u8> {
    match value.as_deref().map(str::as_bytes) {
        None => Ok(default),
        Some([b]) => Ok(*b),
        Some(_) => Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("COPY {what} must be a single one-byte character"),
        )),
    }
}

/// Options that would make the data ambiguous.
fn conflict(copy: &CopyFrom) -> Option<String> {
    let in_null = |b: u8| copy.null.as_bytes().contains(&b);
    let ambiguous = |b: u8| matches!(b, b'\\' | b'.' | b'a'..=b'z' | b'0'..=b'9');
    match copy.delimiter {
        b'\n' | b'\r' => Some("COPY delimiter cannot be newline or carriage return".into()),
        b if !copy.csv && ambiguous(b) => Some(format!("COPY delimiter cannot be \"{}\"", char::from(b))),
        b if copy.csv && b == copy.quote => Some("COPY delimiter and quote must be different".into()),
        b if in_null(b) => Some("COPY delimiter must not appear in the NULL specification".into()),
        _ if in_null(b'\n') || in_null(b'\r') => {
            Some("COPY null representation cannot use newline or carriage return".into())
        }
        _ if copy.csv && in_null(copy.quote) => {
            Some("CSV quote character must not appear in the NULL specification".into())
        }
        _ => None,
    }
}
