//! ALTER SEQUENCE, ALTER INDEX ... RENAME, and what ALTER TABLE says of identity columns and of the table's schema, read from
//! tokens: the parser of SQL proper knows none of these.
//!
//! Does not know: what the commands do (`exec::alter_command`).

use sqlparser::ast::ObjectName;
use sqlparser::tokenizer::Token;
use varve_engine::{ColumnType, Identity};

use super::words::Cursor;
use crate::bind::sequence::{SequenceOptions, once, owned_by};
use crate::error::{Result, SqlError, SqlState};
use crate::exec::SequenceChange;
use crate::parse;
use crate::ty::Typed;

/// A command that alters something.
#[derive(Debug, Clone)]
pub struct AlterCommand {
    /// What is altered.
    pub name: ObjectName,
    /// IF EXISTS
    pub if_exists: bool,
    /// How.
    pub change: Change,
}

/// What an ALTER command asks for.
#[derive(Debug, Clone)]
pub enum Change {
    /// ALTER SEQUENCE
    Sequence(SequenceChange),
    /// ALTER INDEX ... RENAME TO
    RenameIndex(String),
    /// ALTER TABLE ... SET SCHEMA
    SetSchema(String),
    /// ALTER TABLE ... ALTER COLUMN, of an identity column
    Identity(String, IdentityChange),
}

/// What becomes of an identity column.
#[derive(Debug, Clone)]
pub enum IdentityChange {
    /// ADD GENERATED ... AS IDENTITY
    Add(Identity, SequenceOptions),
    /// SET GENERATED, SET options of its sequence, RESTART
    Set(Option<Identity>, SequenceOptions),
    /// DROP IDENTITY, IF EXISTS
    Drop(bool),
}

/// Reads a command behind ALTER; `None`, and nothing read, if it is another one.
pub(super) fn read(c: &mut Cursor<'_>) -> Result<Option<AlterCommand>> {
    let start = c.at;
    let read = match c.word().as_deref() {
        Some("sequence") => sequence(c)?,
        Some("index") => index(c)?,
        Some("table") => table(c)?,
        _ => None,
    };
    if read.is_none() {
        c.at = start;
    }
    Ok(read)
}

fn if_exists(c: &mut Cursor<'_>) -> Result<bool> {
    if !c.eat("if") {
        return Ok(false);
    }
    c.expect("exists")?;
    Ok(true)
}

fn sequence(c: &mut Cursor<'_>) -> Result<Option<AlterCommand>> {
    let if_exists = if_exists(c)?;
    let name = c.object_name()?;
    let start = c.at;
    let change = if c.eat("rename") {
        c.expect("to")?;
        SequenceChange::Rename(c.name()?)
    } else if c.eat("set") {
        if !c.eat("schema") {
            return Err(SqlError::unsupported("this form of ALTER SEQUENCE ... SET"));
        }
        SequenceChange::SetSchema(c.name()?)
    } else {
        if c.eat("owner") {
            return Ok(None);
        }
        let mut options = SequenceOptions::default();
        while option(c, &mut options)? {}
        if c.at == start {
            return Err(c.error());
        }
        SequenceChange::Options(options)
    };
    Ok(Some(AlterCommand { name, if_exists, change: Change::Sequence(change) }))
}

fn index(c: &mut Cursor<'_>) -> Result<Option<AlterCommand>> {
    let if_exists = if_exists(c)?;
    let name = c.object_name()?;
    if !c.eat("rename") {
        return Ok(None);
    }
    c.expect("to")?;
    let to = c.name()?;
    Ok(Some(AlterCommand { name, if_exists, change: Change::RenameIndex(to) }))
}

fn table(c: &mut Cursor<'_>) -> Result<Option<AlterCommand>> {
    let if_exists = if_exists(c)?;
    c.eat("only");
    let Ok(name) = c.object_name() else { return Ok(None) };
    if c.eat("set") {
        if !c.eat("schema") {
            return Ok(None);
        }
        let change = Change::SetSchema(c.name()?);
        return Ok(Some(AlterCommand { name, if_exists, change }));
    }
    if !c.eat("alter") {
        return Ok(None);
    }
    c.eat("column");
    let Ok(column) = c.name() else { return Ok(None) };
    let Some(change) = identity(c)? else { return Ok(None) };
    if c.peek().is_some() {
        return Ok(None);
    }
    Ok(Some(AlterCommand { name, if_exists, change: Change::Identity(column, change) }))
}

fn identity(c: &mut Cursor<'_>) -> Result<Option<IdentityChange>> {
    if c.eat("add") {
        if !c.eat("generated") {
            return Ok(None);
        }
        let kind = generated(c)?;
        c.expect("as")?;
        c.expect("identity")?;
        let mut options = SequenceOptions::default();
        if c.eat_token(&Token::LParen) {
            while option(c, &mut options)? {}
            c.expect_token(&Token::RParen)?;
        }
        return Ok(Some(IdentityChange::Add(kind, options)));
    }
    if c.eat("drop") {
        if !c.eat("identity") {
            return Ok(None);
        }
        return Ok(Some(IdentityChange::Drop(if_exists(c)?)));
    }
    let (mut kind, mut options, start) = (None, SequenceOptions::default(), c.at);
    loop {
        let before = c.at;
        if c.eat("restart") {
            once(&mut options.restart, restart(c)?)?;
        } else if !c.eat("set") {
            break;
        } else if c.eat("generated") {
            once(&mut kind, generated(c)?)?;
        } else if !option(c, &mut options)? {
            // SET DEFAULT, SET NOT NULL and the like.
            c.at = before;
            break;
        }
    }
    Ok((c.at > start).then_some(IdentityChange::Set(kind, options)))
}

fn generated(c: &mut Cursor<'_>) -> Result<Identity> {
    if c.eat("always") {
        return Ok(Identity::Always);
    }
    c.expect("by")?;
    c.expect("default")?;
    Ok(Identity::ByDefault)
}

/// The next option of a sequence; false if there is none.
fn option(c: &mut Cursor<'_>, options: &mut SequenceOptions) -> Result<bool> {
    let start = c.at;
    match c.word().as_deref() {
        Some("as") => once(&mut options.data_type, data_type(c)?)?,
        Some("increment") => {
            c.eat("by");
            once(&mut options.increment, integer(c)?)?;
        }
        Some("minvalue") => once(&mut options.min, Some(integer(c)?))?,
        Some("maxvalue") => once(&mut options.max, Some(integer(c)?))?,
        Some("start") => {
            c.eat("with");
            once(&mut options.start, integer(c)?)?;
        }
        Some("restart") => once(&mut options.restart, restart(c)?)?,
        Some("cache") => once(&mut options.cache, integer(c)?)?,
        Some("cycle") => once(&mut options.cycle, true)?,
        Some("no") if c.eat("minvalue") => once(&mut options.min, None)?,
        Some("no") if c.eat("maxvalue") => once(&mut options.max, None)?,
        Some("no") => {
            c.expect("cycle")?;
            once(&mut options.cycle, false)?;
        }
        Some("owned") => {
            c.expect("by")?;
            once(&mut options.owned_by, owned_by(names(c)?)?)?;
        }
        Some("sequence") => {
            c.expect("name")?;
            let mut names = names(c)?;
            let name = names.pop().unwrap_or_default();
            once(&mut options.name, (names.pop(), name))?;
        }
        _ => {
            c.at = start;
            return Ok(false);
        }
    }
    Ok(true)
}

fn restart(c: &mut Cursor<'_>) -> Result<Option<i64>> {
    let says = c.eat("with") || matches!(c.peek(), Some(Token::Number(..) | Token::Minus | Token::Plus));
    if says { integer(c).map(Some) } else { Ok(None) }
}

fn names(c: &mut Cursor<'_>) -> Result<Vec<String>> {
    let mut names = vec![c.name()?];
    while c.eat_token(&Token::Period) {
        names.push(c.name()?);
    }
    Ok(names)
}

fn integer(c: &mut Cursor<'_>) -> Result<i64> {
    let is_negative = c.eat_token(&Token::Minus);
    if !is_negative {
        c.eat_token(&Token::Plus);
    }
    let Some(Token::Number(digits, _)) = c.peek() else { return Err(c.error()) };
    let text = if is_negative { format!("-{digits}") } else { digits.clone() };
    let value = text.parse().map_err(|_| {
        let message = format!("value \"{text}\" is out of range for type bigint");
        SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message)
    })?;
    c.at += 1;
    Ok(value)
}

fn data_type(c: &mut Cursor<'_>) -> Result<ColumnType> {
    let name = c.name()?;
    let Some(found) = parse::type_name(&name) else {
        let message = format!("type \"{name}\" does not exist");
        return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
    };
    match Typed::storage(found) {
        Ok(t @ (ColumnType::Int2 | ColumnType::Int4 | ColumnType::Int8)) => Ok(t),
        _ => {
            let message = "sequence type must be smallint, integer, or bigint";
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    }
}
