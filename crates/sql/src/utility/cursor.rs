//! Converts DECLARE, FETCH, MOVE and CLOSE from the tree of PostgreSQL's parser.
//!
//! This module does not know rows or positions (`session::cursor`).

use pg_query::protobuf::{ClosePortalStmt, DeclareCursorStmt, FetchDirection, FetchStmt, Token};

use super::Utility;
use super::node::Source;
use crate::error::{Result, SqlError, SqlState};

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
    /// The text of the query.
    pub query: Box<str>,
    /// The number of characters before the query.
    pub before: u32,
}

/// The rows of a cursor that FETCH or MOVE names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// This number of rows from the current position, backward if negative. ALL is `i64::MAX`.
    Forward(i64),
    /// The row with this number. A negative number counts from the end.
    Absolute(i64),
    /// The row at this distance from the current position.
    Relative(i64),
}

/// Bits of `DeclareCursorStmt.options` (PostgreSQL's nodes/parsenodes.h).
const BINARY: i32 = 0x01;
const SCROLL: i32 = 0x02;
const NO_SCROLL: i32 = 0x04;
const INSENSITIVE: i32 = 0x08;
const ASENSITIVE: i32 = 0x10;
const HOLD: i32 = 0x20;

/// Converts DECLARE.
pub(super) fn declare(source: Source<'_>, d: &DeclareCursorStmt) -> Result<Utility> {
    let has = |bits| d.options & bits == bits;
    if has(SCROLL | NO_SCROLL) {
        return Err(contradiction("cannot specify both SCROLL and NO SCROLL"));
    }
    if has(ASENSITIVE | INSENSITIVE) {
        return Err(contradiction("cannot specify both ASENSITIVE and INSENSITIVE"));
    }
    // A name cannot be the word FOR without quotes, so the first FOR begins the query.
    let tokens = source.tokens()?;
    let link = tokens.iter().position(|t| t.token() == Token::For);
    let (query, before) = source.rest(&tokens, link.map_or(tokens.len(), |n| n + 1))?;
    let scroll = if has(SCROLL) { Some(true) } else { has(NO_SCROLL).then_some(false) };
    Ok(Utility::Declare(Box::new(Declare {
        name: d.portalname.clone(),
        is_binary: has(BINARY),
        scroll,
        is_insensitive: has(INSENSITIVE),
        holds: has(HOLD),
        query: query.into(),
        before,
    })))
}

/// Returns the error 42P11: the options of a cursor contradict each other.
fn contradiction(message: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR_DEFINITION, message)
}

/// Converts FETCH and MOVE.
pub(super) fn fetch(f: &FetchStmt) -> Result<Utility> {
    // The tree has ALL as the largest number of rows.
    let count = f.how_many.max(-i64::MAX);
    let direction = match f.direction() {
        FetchDirection::FetchForward => Direction::Forward(count),
        FetchDirection::FetchBackward => Direction::Forward(-count),
        FetchDirection::FetchAbsolute => Direction::Absolute(count),
        FetchDirection::FetchRelative => Direction::Relative(count),
        FetchDirection::Undefined => return Err(SqlError::internal("FETCH in no direction")),
    };
    Ok(Utility::Fetch { name: f.portalname.clone(), direction, moves: f.ismove })
}

/// Converts CLOSE. CLOSE ALL has no name.
pub(super) fn close(c: &ClosePortalStmt) -> Utility {
    Utility::Close((!c.portalname.is_empty()).then(|| c.portalname.clone()))
}
