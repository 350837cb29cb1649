//! DECLARE, FETCH, MOVE and CLOSE.
//!
//! Does not know: rows and positions (`session::cursor`).

use sqlparser::tokenizer::Token;

use super::{Cursor, Utility};
use crate::error::{Result, SqlError, SqlState};
use crate::parse;

/// DECLARE ... CURSOR.
#[derive(Debug, Clone)]
pub struct Declare {
    /// The cursor's name.
    pub name: String,
    /// BINARY
    pub is_binary: bool,
    /// SCROLL (true) or NO SCROLL
    pub scroll: Option<bool>,
    /// INSENSITIVE
    pub is_insensitive: bool,
    /// WITH HOLD
    pub holds: bool,
    /// The query, and how many characters come before it.
    pub query: Box<str>,
    /// Characters before the query.
    pub before: u32,
}

/// Which rows of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// So many rows from here, backward if negative; ALL is `i64::MAX`.
    Forward(i64),
    /// The row of this number, from the end if negative.
    Absolute(i64),
    /// The row so many from here.
    Relative(i64),
}

pub(super) fn declare(c: &mut Cursor<'_>) -> Result<Utility> {
    let name = c.name()?;
    let (mut is_binary, mut scroll, mut is_insensitive, mut is_asensitive) = (false, None, false, false);
    while !c.eat("cursor") {
        let known = scroll;
        if c.eat("binary") {
            is_binary = true;
        } else if c.eat("insensitive") {
            is_insensitive = true;
        } else if c.eat("asensitive") {
            is_asensitive = true;
        } else if c.eat("scroll") {
            scroll = Some(true);
        } else {
            c.expect("no")?;
            c.expect("scroll")?;
            scroll = Some(false);
        }
        if known.is_some() && scroll != known {
            return Err(contradiction("cannot specify both SCROLL and NO SCROLL"));
        }
    }
    if is_insensitive && is_asensitive {
        return Err(contradiction("cannot specify both ASENSITIVE and INSENSITIVE"));
    }
    let mut holds = false;
    if c.eat("with") {
        c.expect("hold")?;
        holds = true;
    } else if c.eat("without") {
        c.expect("hold")?;
    }
    c.expect("for")?;
    let is_query = match c.peek() {
        Some(Token::LParen) => true,
        Some(Token::Word(w)) => {
            matches!(w.value.to_lowercase().as_str(), "select" | "values" | "with" | "table")
        }
        _ => false,
    };
    if !is_query {
        return Err(c.error());
    }
    let before = c.position().map_or(0, |p| p - 1);
    let query = c.rest()?.trim_end().trim_end_matches(';').into();
    Ok(Utility::Declare(Box::new(Declare { name, is_binary, scroll, is_insensitive, holds, query, before })))
}

/// 42P11
fn contradiction(message: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR_DEFINITION, message)
}

pub(super) fn fetch(c: &mut Cursor<'_>, moves: bool) -> Result<Utility> {
    let mut direction = Direction::Forward(1);
    // A single word is the cursor's name, whatever it is.
    if c.tokens.len() > c.at + 1 && !matches!(c.peek(), Some(Token::Word(w)) if is_link(&w.value)) {
        direction = direction_of(c)?;
    }
    if !c.eat("from") {
        c.eat("in");
    }
    Ok(Utility::Fetch { name: c.name()?, direction, moves })
}

fn is_link(word: &str) -> bool {
    word.eq_ignore_ascii_case("from") || word.eq_ignore_ascii_case("in")
}

fn direction_of(c: &mut Cursor<'_>) -> Result<Direction> {
    if let Some(count) = count(c)? {
        return Ok(Direction::Forward(count));
    }
    let start = c.at;
    let word = c.word().unwrap_or_default();
    Ok(match word.as_str() {
        "next" => Direction::Forward(1),
        "prior" => Direction::Forward(-1),
        "first" => Direction::Absolute(1),
        "last" => Direction::Absolute(-1),
        "all" => Direction::Forward(i64::MAX),
        "absolute" => Direction::Absolute(count(c)?.ok_or_else(|| c.error())?),
        "relative" => Direction::Relative(count(c)?.ok_or_else(|| c.error())?),
        "forward" if c.eat("all") => Direction::Forward(i64::MAX),
        "backward" if c.eat("all") => Direction::Forward(-i64::MAX),
        "forward" => Direction::Forward(count(c)?.unwrap_or(1)),
        "backward" => Direction::Forward(-count(c)?.unwrap_or(1)),
        // A name, and something behind it.
        _ => {
            c.at = start + 1;
            return Err(c.error());
        }
    })
}

/// A number with its sign, if there is one: an integer, as PostgreSQL's grammar has it.
fn count(c: &mut Cursor<'_>) -> Result<Option<i64>> {
    let start = c.at;
    let minus = c.eat_token(&Token::Minus);
    if !minus {
        c.eat_token(&Token::Plus);
    }
    let Some(Token::Number(digits, _)) = c.peek() else {
        c.at = start;
        return Ok(None);
    };
    let number: i32 = digits.parse().map_err(|_| parse::near(c.sql, &c.tokens[c.at]))?;
    c.at += 1;
    Ok(Some(if minus { -i64::from(number) } else { i64::from(number) }))
}

pub(super) fn close(c: &mut Cursor<'_>) -> Result<Utility> {
    Ok(Utility::Close(if c.eat("all") { None } else { Some(c.name()?) }))
}
