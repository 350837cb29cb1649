//! COPY and its options, old style (`CSV HEADER`) and new (`(FORMAT csv, HEADER)`).
//!
//! Invariants
//! 1. Options that would make the data ambiguous are refused before any of it is read or written.
//!
//! Does not know: how the data is taken apart or put together (`crate::copy`).

use sqlparser::ast;
use sqlparser::tokenizer::Token;

use super::{Cursor, Utility, consumed};
use crate::copy::{Chosen, Copy, CopyWhat, Format, Header, Kind, Place};
use crate::error::{Result, SqlError, SqlState};
use crate::parse;

/// Reads what follows COPY.
pub(super) fn read(c: &mut Cursor<'_>) -> Result<Utility> {
    let mut options = Options::default();
    let what = match c.peek() {
        Some(Token::LParen) => query(c)?,
        _ => {
            options.is_binary_before = binary_before(c);
            CopyWhat::Table(c.object_name()?, columns(c)?)
        }
    };
    let is_query = matches!(what, CopyWhat::Query(..));
    let is_from = !is_query && c.eat("from");
    if !is_from {
        c.expect("to")?;
    }
    let place = place(c)?;
    if c.eat("using") {
        c.expect("delimiters")?;
        options.delimiter = Some(c.string()?);
    }
    c.eat("with");
    if c.peek() == Some(&Token::LParen) {
        options.listed(c)?
    } else {
        options.old_style(c)?
    }
    let at = c.position();
    let filter = if c.eat("where") { Some(Box::new(condition(c)?)) } else { None };
    if filter.is_some() && !is_from {
        let message = "WHERE clause not allowed with COPY TO";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).at(at));
    }
    let format = options.format(is_from)?;
    Ok(Utility::Copy(Box::new(Copy { what, is_from, place, format, filter, sql: c.sql.into() })))
}

/// The word BINARY before the table's name.
fn binary_before(c: &mut Cursor<'_>) -> bool {
    let is_name = |t: Option<&Token>| matches!(t, Some(Token::Word(w)) if !matches!(w.value.to_lowercase().as_str(), "to" | "from"));
    is_name(c.tokens.get(c.at + 1).map(|t| &t.token)) && c.eat("binary")
}

/// A query in parentheses, as text: it is read when the statement runs.
fn query(c: &mut Cursor<'_>) -> Result<CopyWhat> {
    let first = c.tokens.get(c.at + 1).ok_or_else(|| parse::at_end(c.sql))?;
    let verb = match &first.token {
        Token::Word(w) => w.value.to_lowercase(),
        Token::LParen => "select".into(),
        _ => return Err(parse::near(c.sql, first)),
    };
    if !matches!(verb.as_str(), "select" | "values" | "with" | "table" | "insert" | "update" | "delete") {
        return Err(parse::near(c.sql, first));
    }
    let start = parse::offset(c.sql, first.span.start) - 1;
    let mut depth = 0;
    loop {
        let token = c.tokens.get(c.at).ok_or_else(|| parse::at_end(c.sql))?;
        c.at += 1;
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 1 => {
                let end = parse::offset(c.sql, token.span.start) - 1;
                let text: String = c.sql.chars().skip(start as usize).take((end - start) as usize).collect();
                return Ok(CopyWhat::Query(text.into(), start));
            }
            Token::RParen => depth -= 1,
            _ => {}
        }
    }
}

fn columns(c: &mut Cursor<'_>) -> Result<Vec<ast::Ident>> {
    let mut columns = Vec::new();
    if c.eat_token(&Token::LParen) {
        columns = idents(c)?;
        c.expect_token(&Token::RParen)?;
    }
    Ok(columns)
}

fn idents(c: &mut Cursor<'_>) -> Result<Vec<ast::Ident>> {
    let mut list = vec![c.ident()?];
    while c.eat_token(&Token::Comma) {
        list.push(c.ident()?);
    }
    Ok(list)
}

fn place(c: &mut Cursor<'_>) -> Result<Place> {
    if c.eat("stdin") || c.eat("stdout") {
        return Ok(Place::Client);
    }
    if c.eat("program") {
        c.string()?;
        return Ok(Place::Program);
    }
    Ok(Place::File(c.string()?))
}

fn condition(c: &mut Cursor<'_>) -> Result<ast::Expr> {
    let (e, taken) = {
        let rest = &c.tokens[c.at..];
        let mut parser = parse::parser_over(rest);
        let e = parser.parse_expr().map_err(|e| parse::syntax_error(c.sql, &e))?;
        (e, consumed(rest, &parser))
    };
    c.at += taken;
    Ok(e)
}

/// Options as written; what is absent takes the format's default.
#[derive(Default)]
struct Options {
    kind: Option<Kind>,
    header: Option<Header>,
    freeze: bool,
    encoding: bool,
    delimiter: Option<String>,
    null: Option<String>,
    quote: Option<String>,
    escape: Option<String>,
    force_quote: Option<Chosen>,
    force_not_null: Option<Chosen>,
    force_null: Option<Chosen>,
    is_binary_before: bool,
}

/// Keeps an option; 42601 if it was given before.
fn once<T>(slot: &mut Option<T>, value: T, at: Option<u32>) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(SqlError::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options").at(at)),
    }
}

fn once_flag(slot: &mut bool, at: Option<u32>) -> Result<()> {
    let mut given = slot.then_some(());
    *slot = true;
    once(&mut given, (), at)
}

impl Options {
    /// `(name value, ...)`
    fn listed(&mut self, c: &mut Cursor<'_>) -> Result<()> {
        c.expect_token(&Token::LParen)?;
        loop {
            let at = c.position();
            let name = c.name()?;
            self.listed_one(c, &name, at)?;
            if !c.eat_token(&Token::Comma) {
                return c.expect_token(&Token::RParen);
            }
        }
    }

    fn listed_one(&mut self, c: &mut Cursor<'_>, name: &str, at: Option<u32>) -> Result<()> {
        match name {
            "format" => once(&mut self.kind, kind(&value(c, name)?, at)?, at),
            "freeze" => {
                boolean(c, name)?;
                once_flag(&mut self.freeze, at)
            }
            "header" => once(&mut self.header, header(c)?, at),
            "delimiter" => once(&mut self.delimiter, value(c, name)?, at),
            "null" => once(&mut self.null, value(c, name)?, at),
            "quote" => once(&mut self.quote, value(c, name)?, at),
            "escape" => once(&mut self.escape, value(c, name)?, at),
            "encoding" => {
                check_encoding(&value(c, name)?, at)?;
                once_flag(&mut self.encoding, at)
            }
            "force_quote" if c.eat_token(&Token::Mul) => once(&mut self.force_quote, Chosen::All, at),
            "force_quote" => once(&mut self.force_quote, chosen(c, name, at)?, at),
            "force_not_null" => once(&mut self.force_not_null, chosen(c, name, at)?, at),
            "force_null" => once(&mut self.force_null, chosen(c, name, at)?, at),
            _ => {
                let message = format!("option \"{name}\" not recognized");
                Err(SqlError::new(SqlState::SYNTAX_ERROR, message).at(at))
            }
        }
    }

    /// `CSV HEADER NULL AS 'x' FORCE QUOTE a, b`
    fn old_style(&mut self, c: &mut Cursor<'_>) -> Result<()> {
        while c.peek().is_some() {
            let (start, at) = (c.at, c.position());
            let name = c.name()?;
            match name.as_str() {
                "csv" => once(&mut self.kind, Kind::Csv, at)?,
                "binary" => once(&mut self.kind, Kind::Binary, at)?,
                "freeze" => once_flag(&mut self.freeze, at)?,
                "header" => once(&mut self.header, Header::Line, at)?,
                "delimiter" | "delimiters" => once(&mut self.delimiter, string_as(c)?, at)?,
                "null" => once(&mut self.null, string_as(c)?, at)?,
                "quote" => once(&mut self.quote, string_as(c)?, at)?,
                "escape" => once(&mut self.escape, string_as(c)?, at)?,
                "encoding" => {
                    check_encoding(&c.string()?, at)?;
                    once_flag(&mut self.encoding, at)?;
                }
                "force" => self.force(c, at)?,
                _ => {
                    c.at = start;
                    return if name == "where" { Ok(()) } else { Err(c.error()) };
                }
            }
        }
        Ok(())
    }

    fn force(&mut self, c: &mut Cursor<'_>, at: Option<u32>) -> Result<()> {
        if c.eat("quote") {
            let columns = if c.eat_token(&Token::Mul) { Chosen::All } else { Chosen::These(idents(c)?) };
            return once(&mut self.force_quote, columns, at);
        }
        if c.eat("not") {
            c.expect("null")?;
            return once(&mut self.force_not_null, Chosen::These(idents(c)?), at);
        }
        c.expect("null")?;
        once(&mut self.force_null, Chosen::These(idents(c)?), at)
    }

    /// The format that they make; checked in PostgreSQL's order.
    fn format(mut self, is_from: bool) -> Result<Format> {
        if self.is_binary_before {
            once(&mut self.kind, Kind::Binary, None)?;
        }
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

/// The value of an option: a string, a word or a number.
fn value(c: &mut Cursor<'_>, name: &str) -> Result<String> {
    let value = match c.peek() {
        Some(Token::Comma | Token::RParen) => {
            let message = format!("{name} requires a parameter");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        Some(Token::Word(_)) => return c.name(),
        Some(Token::Number(n, _)) => n.clone(),
        _ => return c.string(),
    };
    c.at += 1;
    Ok(value)
}

fn string_as(c: &mut Cursor<'_>) -> Result<String> {
    c.eat("as");
    c.string()
}

fn kind(name: &str, at: Option<u32>) -> Result<Kind> {
    match name {
        "text" => Ok(Kind::Text),
        "csv" => Ok(Kind::Csv),
        "binary" => Ok(Kind::Binary),
        other => Err(invalid(&format!("COPY format \"{other}\" not recognized")).at(at)),
    }
}

fn header(c: &mut Cursor<'_>) -> Result<Header> {
    let wrong = || SqlError::new(SqlState::SYNTAX_ERROR, "header requires a Boolean value or \"match\"");
    if matches!(c.peek(), Some(Token::Comma | Token::RParen)) {
        return Ok(Header::Line);
    }
    let word = value(c, "header")?.to_lowercase();
    if word == "match" {
        return Ok(Header::Match);
    }
    let is_on = truth(&word).ok_or_else(wrong)?;
    Ok(if is_on { Header::Line } else { Header::None })
}

/// An optional boolean after an option's name; true if left out.
fn boolean(c: &mut Cursor<'_>, name: &str) -> Result<bool> {
    if matches!(c.peek(), Some(Token::Comma | Token::RParen)) {
        return Ok(true);
    }
    let wrong = || SqlError::new(SqlState::SYNTAX_ERROR, format!("{name} requires a Boolean value"));
    truth(&value(c, name)?.to_lowercase()).ok_or_else(wrong)
}

fn truth(word: &str) -> Option<bool> {
    match word {
        "true" | "on" | "1" => Some(true),
        "false" | "off" | "0" => Some(false),
        _ => None,
    }
}

fn chosen(c: &mut Cursor<'_>, name: &str, at: Option<u32>) -> Result<Chosen> {
    if !c.eat_token(&Token::LParen) {
        let message = format!("argument to option \"{name}\" must be a list of column names");
        return Err(invalid(&message).at(at));
    }
    let list = idents(c)?;
    c.expect_token(&Token::RParen)?;
    Ok(Chosen::These(list))
}

/// Text is UTF-8 here; names of it, and of its part ASCII, are taken.
fn check_encoding(name: &str, at: Option<u32>) -> Result<()> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    match plain.as_str() {
        "utf8" | "unicode" => Ok(()),
        "sqlascii" | "latin1" | "iso88591" | "win1252" | "latin9" | "iso885915" | "eucjp" | "sjis"
        | "big5" | "gbk" | "koi8r" | "win1251" => {
            Err(SqlError::unsupported(format!("COPY in the encoding {name}")).with_hint("Use UTF8."))
        }
        _ => Err(invalid("argument to option \"encoding\" must be a valid encoding name").at(at)),
    }
}
