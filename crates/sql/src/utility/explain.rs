//! EXPLAIN and its options.
//!
//! Does not know: plans.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{Cursor, Utility};
use crate::error::{Result, SqlError, SqlState};

/// How a plan is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// Lines.
    #[default]
    Text,
    /// One value of type json.
    Json,
}

/// What EXPLAIN is asked for.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The statement runs, and what each step has done is shown.
    pub analyze: bool,
    /// More about each step.
    pub verbose: bool,
    /// Pages that were used.
    pub buffers: bool,
    /// FORMAT
    pub format: Format,
    /// TIMING, if written.
    timing: Option<bool>,
    /// SUMMARY, if written.
    summary: Option<bool>,
}

impl Options {
    /// Whether the time of each step is taken.
    pub fn shows_timing(&self) -> bool {
        self.timing.unwrap_or(self.analyze)
    }

    /// Whether planning and execution time are shown.
    pub fn shows_summary(&self) -> bool {
        self.summary.unwrap_or(self.analyze)
    }
}

/// EXPLAIN of a statement.
#[derive(Debug, Clone)]
pub struct Explain {
    /// What is asked for.
    pub options: Options,
    /// The statement.
    pub text: String,
    /// Characters before it.
    pub before: u32,
}

pub(super) fn read(c: &mut Cursor<'_>) -> Result<Utility> {
    let mut options = Options::default();
    if c.peek() == Some(&Token::LParen) && !is_query(c) {
        c.at += 1;
        loop {
            option(c, &mut options)?;
            if !c.eat_token(&Token::Comma) {
                break;
            }
        }
        c.expect_token(&Token::RParen)?;
    } else {
        options.analyze = c.eat("analyze") || c.eat("analyse");
        options.verbose = c.eat("verbose");
    }
    if options.timing == Some(true) && !options.analyze {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "EXPLAIN option TIMING requires ANALYZE",
        ));
    }
    let before = c.position().unwrap_or(1) - 1;
    Ok(Utility::Explain(Box::new(Explain { options, text: c.rest()?, before })))
}

/// Whether the bracket opens a query, not a list of options.
fn is_query(c: &Cursor<'_>) -> bool {
    let starts = |token: &TokenWithSpan| match &token.token {
        Token::LParen => true,
        Token::Word(w) => matches!(w.value.to_lowercase().as_str(), "select" | "values" | "with" | "table"),
        _ => false,
    };
    c.tokens.get(c.at + 1).is_some_and(starts)
}

fn option(c: &mut Cursor<'_>, options: &mut Options) -> Result<()> {
    let position = c.position();
    let name = c.name()?;
    match name.as_str() {
        "analyze" | "analyse" => options.analyze = flag(c, "analyze")?,
        "verbose" => options.verbose = flag(c, &name)?,
        "buffers" => options.buffers = flag(c, &name)?,
        "timing" => options.timing = Some(flag(c, &name)?),
        "summary" => options.summary = Some(flag(c, &name)?),
        // There are no costs to show, nor settings that planning hangs on.
        "costs" | "settings" => _ = flag(c, &name)?,
        "wal" if flag(c, &name)? => return Err(SqlError::unsupported("EXPLAIN (WAL)")),
        "wal" => {}
        "format" => options.format = format(c, position)?,
        _ => {
            let message = format!("unrecognized EXPLAIN option \"{name}\"");
            return Err(at(position, SqlError::new(SqlState::SYNTAX_ERROR, message)));
        }
    }
    Ok(())
}

fn format(c: &mut Cursor<'_>, position: Option<u32>) -> Result<Format> {
    let Some(value) = value(c)? else {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "format requires a parameter"));
    };
    match value.as_str() {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        "xml" | "yaml" => Err(SqlError::unsupported(format!("EXPLAIN (FORMAT {})", value.to_uppercase()))),
        _ => {
            let message = format!("unrecognized value for EXPLAIN option \"format\": \"{value}\"");
            Err(at(position, SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)))
        }
    }
}

/// An option that is on or off; on if nothing is said.
fn flag(c: &mut Cursor<'_>, name: &str) -> Result<bool> {
    match value(c)?.as_deref() {
        None | Some("1" | "on" | "true") => Ok(true),
        Some("0" | "off" | "false") => Ok(false),
        Some(_) => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{name} requires a Boolean value"))),
    }
}

/// The value of an option, if one is written.
fn value(c: &mut Cursor<'_>) -> Result<Option<String>> {
    let value = match c.peek() {
        None | Some(Token::Comma | Token::RParen) => return Ok(None),
        Some(Token::Number(digits, _)) => digits.clone(),
        Some(Token::SingleQuotedString(text)) => text.to_lowercase(),
        Some(Token::Word(_)) => return c.name().map(Some),
        Some(_) => return Err(c.error()),
    };
    c.at += 1;
    Ok(Some(value))
}

fn at(position: Option<u32>, e: SqlError) -> SqlError {
    SqlError { position, ..e }
}

/// Positions in the statement are told as they are in the whole text.
pub fn shifted(e: SqlError, before: u32) -> SqlError {
    SqlError { position: e.position.map(|p| p + before), ..e }
}
