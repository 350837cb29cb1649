//! LOCK TABLE, read from tokens.
//!
//! Does not know: how tables are locked (`session::lock`).

use sqlparser::ast;
use sqlparser::tokenizer::Token;

use super::{Cursor, Utility};
use crate::error::Result;

/// PostgreSQL's table locks, from the weakest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    /// ACCESS SHARE
    AccessShare,
    /// ROW SHARE
    RowShare,
    /// ROW EXCLUSIVE
    RowExclusive,
    /// SHARE UPDATE EXCLUSIVE
    ShareUpdateExclusive,
    /// SHARE
    Share,
    /// SHARE ROW EXCLUSIVE
    ShareRowExclusive,
    /// EXCLUSIVE
    Exclusive,
    /// ACCESS EXCLUSIVE
    AccessExclusive,
}

/// LOCK TABLE.
#[derive(Debug, Clone)]
pub struct LockTable {
    /// Tables.
    pub tables: Vec<ast::ObjectName>,
    /// Mode.
    pub mode: LockMode,
    /// NOWAIT
    pub at_once: bool,
}

pub(super) fn read(c: &mut Cursor<'_>) -> Result<Utility> {
    c.eat("table");
    let mut tables = Vec::new();
    loop {
        c.eat("only");
        tables.push(c.object_name()?);
        c.eat_token(&Token::Mul);
        if !c.eat_token(&Token::Comma) {
            break;
        }
    }
    let mode = if c.eat("in") { mode(c)? } else { LockMode::AccessExclusive };
    let at_once = c.eat("nowait");
    Ok(Utility::Lock(LockTable { tables, mode, at_once }))
}

fn mode(c: &mut Cursor<'_>) -> Result<LockMode> {
    let mode = if c.eat("access") {
        if c.eat("share") {
            LockMode::AccessShare
        } else {
            c.expect("exclusive")?;
            LockMode::AccessExclusive
        }
    } else if c.eat("row") {
        if c.eat("share") {
            LockMode::RowShare
        } else {
            c.expect("exclusive")?;
            LockMode::RowExclusive
        }
    } else if c.eat("share") {
        shared(c)?
    } else {
        c.expect("exclusive")?;
        LockMode::Exclusive
    };
    c.expect("mode")?;
    Ok(mode)
}

fn shared(c: &mut Cursor<'_>) -> Result<LockMode> {
    if c.eat("update") {
        c.expect("exclusive")?;
        return Ok(LockMode::ShareUpdateExclusive);
    }
    if c.eat("row") {
        c.expect("exclusive")?;
        return Ok(LockMode::ShareRowExclusive);
    }
    Ok(LockMode::Share)
}
