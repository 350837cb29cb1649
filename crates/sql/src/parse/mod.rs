//! Parses text to a syntax tree. PostgreSQL's own parser reads the text, and its tree is converted to that of
//! `crate::ast`.
//!
//! Invariants
//! 1. A syntax error has code 42601, PostgreSQL's message, and the position of the wrong token.
//! 2. Everything that PostgreSQL's grammar accepts is either in the tree or refused by its name (0A000).
//!
//! This module does not know what names mean.

mod as_of;
pub mod postgres;
mod token;
pub mod view_option;

pub use as_of::statement_as_of;
use postgres::NodeEnum;
pub use token::{Token, cut_names, tokens};

use crate::ast::{Definition, Expr, Statement, Value};
use crate::error::{Result, SqlError};
use crate::utility::{self, Utility, tag};

/// A parsed statement.
#[derive(Debug, Clone)]
pub enum Parsed {
    /// The text has only blanks and comments.
    Empty,
    /// A command about the session, transactions or maintenance.
    Utility(Utility),
    /// A definition, such as CREATE TABLE.
    Definition(Box<Definition>),
    /// A query, or a statement that changes rows.
    Sql(Box<Statement>),
}

/// A text longer than this gets a stack of its own.
const PLAIN_STACK_TEXT_BYTES: usize = 2048;
/// The stack size for each byte of text. It is enough for trees in which every node is nested in the one
/// before.
const STACK_BYTES_PER_TEXT_BYTE: usize = 512;
/// The largest size of such a stack.
const STACK_BYTES_MAX: usize = 1 << 30;

/// Runs `f`, which makes, walks or drops the syntax tree of `sql`, on a stack that is large enough. The text
/// decides how deep the tree is nested, and an overflow of the stack would end the whole process.
pub fn on_deep_stack<T>(sql: &str, f: impl FnOnce() -> T) -> T {
    if sql.len() <= PLAIN_STACK_TEXT_BYTES {
        return f();
    }
    stacker::grow((sql.len() * STACK_BYTES_PER_TEXT_BYTE).clamp(8 << 20, STACK_BYTES_MAX), f)
}

/// Reads one statement. A trailing semicolon is allowed.
pub fn statement(sql: &str) -> Result<Parsed> {
    statement_in(sql, None)
}

/// Does the same as `statement` for a statement in this database. Fails with 0A000 if the statement names a
/// relation of another database.
pub fn statement_in(sql: &str, database: Option<&str>) -> Result<Parsed> {
    if let Some(command) = utility::base_backup::read(sql)? {
        return Ok(Parsed::Utility(command));
    }
    postgres::with_room(sql, || {
        let Some(node) = postgres::raw(sql)? else { return Ok(Parsed::Empty) };
        if let Some(database) = database {
            postgres::elsewhere::check(sql, &node, database)?;
        }
        if let Some(command) = utility::read(sql, &node)? {
            return Ok(Parsed::Utility(command));
        }
        if let Some(definition) = postgres::definition(sql, &node)? {
            return Ok(Parsed::Definition(Box::new(definition)));
        }
        match postgres::mapped(sql, &node)? {
            Some(statement) => Ok(Parsed::Sql(Box::new(statement))),
            None => Err(tag::unsupported(&node)),
        }
    })
}

/// Checks the syntax of one statement.
pub fn check(sql: &str) -> Result<()> {
    on_deep_stack(sql, || statement_as_of(sql, None).map(|_| ()))
}

/// Reads an expression, such as a column's default.
pub fn expression(text: &str) -> Result<Expr> {
    postgres::expression(text)
}

/// Returns whether an alias in a query names columns, as `t AS x (p)` does.
pub fn names_columns(query: &str) -> Result<bool> {
    postgres::with_room(query, || {
        // No other node has lists with these names. If a string in the query looks like such a list, the
        // result is true, which is the safe result.
        const LISTS: [&str; 2] = ["colnames: [Node", "coldeflist: [Node"];
        let shown = format!("{:?}", postgres::raw(query)?);
        Ok(LISTS.iter().any(|list| shown.contains(list)))
    })
}

/// Returns the query with these names for its outputs. Returns `None` if its select list does not have one
/// item for each name.
pub fn named_outputs(query: &str, names: &[&str]) -> Result<Option<String>> {
    postgres::with_room(query, || match postgres::raw(query)? {
        Some(NodeEnum::SelectStmt(select)) => postgres::written::with_outputs(*select, names),
        _ => Ok(None),
    })
}

/// Reads the name of a type as in a cast.
pub fn type_name(text: &str) -> Option<crate::ty::Typed> {
    let Expr::Cast { expr, data_type } = expression(&format!("NULL::{text}")).ok()? else {
        return None;
    };
    let is_null = matches!(&*expr, Expr::Value(constant) if constant.value == Value::Null);
    crate::ty::of_ast(&data_type).ok().filter(|_| is_null)
}

/// Returns the error 42601: the text is more than an expression.
fn no_expression(text: &str) -> SqlError {
    SqlError::new(crate::error::SqlState::SYNTAX_ERROR, format!("not an expression: {text}"))
}
