//! VACUUM and ANALYZE.
//!
//! Does not know: what they do (`session::maintain`).

use sqlparser::ast;
use sqlparser::tokenizer::Token;

use super::{Cursor, Utility};
use crate::error::{Result, SqlError, SqlState};

/// VACUUM or ANALYZE.
#[derive(Debug, Clone)]
pub struct Maintain {
    /// VACUUM rather than ANALYZE.
    pub is_vacuum: bool,
    /// Rows are to be counted.
    pub analyzes: bool,
    /// FULL: tables are to be put into new trees.
    pub rewrites: bool,
    /// Tables, with columns if any were named; all if there are none.
    pub tables: Vec<(ast::ObjectName, Vec<ast::Ident>)>,
}

const FLAGS: &[&str] = &[
    "verbose",
    "skip_locked",
    "full",
    "freeze",
    "analyze",
    "disable_page_skipping",
    "process_toast",
    "truncate",
];
const FLAGS_OF_ANALYZE: usize = 2;
const PARALLEL_AND_FULL: &str = "VACUUM FULL cannot be performed in parallel";
const SKIPPING_AND_FULL: &str = "VACUUM option DISABLE_PAGE_SKIPPING cannot be used with FULL";

pub(super) fn read(c: &mut Cursor<'_>, is_vacuum: bool) -> Result<Utility> {
    let (mut analyzes, mut rewrites) = (!is_vacuum, false);
    let mut not_with_full = None;
    if c.eat_token(&Token::LParen) {
        loop {
            match option(c, is_vacuum)?.as_deref() {
                Some("analyze") => analyzes = true,
                Some("full") => rewrites = true,
                Some("parallel") => not_with_full = Some(PARALLEL_AND_FULL),
                Some("disable_page_skipping") => {
                    not_with_full = not_with_full.or(Some(SKIPPING_AND_FULL));
                }
                _ => {}
            }
            if !c.eat_token(&Token::Comma) {
                break;
            }
        }
        c.expect_token(&Token::RParen)?;
    } else {
        // In this order only, as in PostgreSQL.
        let words: &[&str] = if is_vacuum { &["full", "freeze", "verbose"] } else { &["verbose"] };
        words.iter().for_each(|word| rewrites |= c.eat(word) && *word == "full");
        analyzes |= is_vacuum && (c.eat("analyze") || c.eat("analyse"));
    }
    if let Some(message) = not_with_full.filter(|_| rewrites) {
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    let mut tables = Vec::new();
    while c.peek().is_some() {
        let name = c.object_name()?;
        let mut columns = Vec::new();
        if c.eat_token(&Token::LParen) {
            columns.push(c.ident()?);
            while c.eat_token(&Token::Comma) {
                columns.push(c.ident()?);
            }
            c.expect_token(&Token::RParen)?;
        }
        tables.push((name, columns));
        if !c.eat_token(&Token::Comma) {
            break;
        }
    }
    if tables.iter().any(|(_, columns)| !columns.is_empty()) && !analyzes {
        let message = "ANALYZE option must be specified when a column list is provided";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    Ok(Utility::Maintain(Box::new(Maintain { is_vacuum, analyzes, rewrites, tables })))
}

/// One option: its name if it is on. But for ANALYZE and FULL they say how PostgreSQL's vacuum goes about it.
fn option(c: &mut Cursor<'_>, is_vacuum: bool) -> Result<Option<String>> {
    let at = c.position();
    let name = c.name()?;
    let name = if name == "analyse" { "analyze".to_owned() } else { name };
    let known = if is_vacuum { FLAGS } else { &FLAGS[..FLAGS_OF_ANALYZE] };
    if known.contains(&name.as_str()) {
        return Ok(flag(c, &name)?.then_some(name));
    }
    match name.as_str() {
        "index_cleanup" if is_vacuum => {
            if !c.eat("auto") {
                flag(c, &name)?;
            }
            Ok(None)
        }
        "parallel" if is_vacuum => {
            let workers = number(c).filter(|n| *n <= 1024);
            workers.map(|workers| (workers > 0).then_some(name)).ok_or_else(|| {
                let message = "parallel option requires a value between 0 and 1024";
                SqlError::new(SqlState::SYNTAX_ERROR, message).at(at)
            })
        }
        _ => {
            let command = if is_vacuum { "VACUUM" } else { "ANALYZE" };
            let message = format!("unrecognized {command} option \"{name}\"");
            Err(SqlError::new(SqlState::SYNTAX_ERROR, message).at(at))
        }
    }
}

fn number(c: &mut Cursor<'_>) -> Option<u32> {
    let Some(Token::Number(digits, _)) = c.peek() else { return None };
    let number = digits.parse().ok()?;
    c.at += 1;
    Some(number)
}

fn flag(c: &mut Cursor<'_>, name: &str) -> Result<bool> {
    if matches!(c.peek(), Some(Token::Comma | Token::RParen)) {
        return Ok(true);
    }
    let value = match number(c) {
        Some(0) => Some(false),
        Some(1) => Some(true),
        Some(_) => None,
        None => match c.name()?.to_lowercase().as_str() {
            "true" | "on" => Some(true),
            "false" | "off" => Some(false),
            _ => None,
        },
    };
    let message = format!("{name} requires a Boolean value");
    value.ok_or_else(|| SqlError::new(SqlState::SYNTAX_ERROR, message))
}
