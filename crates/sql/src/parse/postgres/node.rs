//! Helpers to read PostgreSQL's nodes: names, positions, parts of the text, and options.
//!
//! Invariants
//! 1. An option is read as PostgreSQL's `defGetString`, `defGetBoolean` and similar functions read it, with
//!    the same errors.
//!
//! This module does not know what a statement means.

use pg_query::NodeEnum;
use pg_query::protobuf::{AConst, DefElem, Node, RangeVar, ScanToken, Token, a_const::Val};

use crate::ast::{Ident, ObjectName, StorageOption};
use crate::error::{Result, SqlError, SqlState};

/// The text of a statement. Finds parts of it by the positions that nodes have.
#[derive(Clone, Copy)]
pub(crate) struct Source<'s> {
    pub(crate) sql: &'s str,
}

impl<'s> Source<'s> {
    /// Converts a byte offset to a position in characters, from 1. A negative offset means that the position
    /// is unknown.
    pub(crate) fn position(self, location: i32) -> Option<u32> {
        let before = self.sql.get(..usize::try_from(location).ok()?)?;
        Some(before.chars().count() as u32 + 1)
    }

    /// Returns the tokens of the statement, without comments and without the closing semicolon.
    pub(crate) fn tokens(self) -> Result<Vec<ScanToken>> {
        let scanned = pg_query::scan_tokens(self.sql);
        let mut tokens = scanned.map_err(|e| SqlError::internal(format!("a text that was parsed: {e}")))?;
        tokens.retain(|t| !matches!(t.token(), Token::SqlComment | Token::CComment));
        while tokens.last().is_some_and(|t| t.token() == Token::Ascii59) {
            tokens.pop();
        }
        Ok(tokens)
    }

    /// Returns the text from one token to another one, and the number of characters before it.
    pub(crate) fn piece(self, first: &ScanToken, last: &ScanToken) -> Result<(&'s str, u32)> {
        let lost = || SqlError::internal("a statement is not where its tokens are");
        let (start, end) = (first.start as usize, last.end as usize);
        let before = self.sql.get(..start).ok_or_else(lost)?.chars().count() as u32;
        Ok((self.sql.get(start..end).ok_or_else(lost)?, before))
    }

    /// Returns the text from the token with this number to the end.
    pub(crate) fn rest(self, tokens: &[ScanToken], from: usize) -> Result<(&'s str, u32)> {
        match (tokens.get(from), tokens.last()) {
            (Some(first), Some(last)) => self.piece(first, last),
            _ => Err(SqlError::internal("a statement without its inner one")),
        }
    }
}

/// Returns the index of the token after the parenthesis that closes the one at index `open`.
pub(crate) fn behind_parenthesis(tokens: &[ScanToken], open: usize) -> usize {
    let mut depth = 0_usize;
    for (n, token) in tokens.iter().enumerate().skip(open) {
        match token.token() {
            Token::Ascii40 => depth += 1,
            Token::Ascii41 if depth <= 1 => return n + 1,
            Token::Ascii41 => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Makes an identifier from a name of the grammar, which is already in the right case.
pub(crate) fn ident(name: &str) -> Ident {
    Ident::new(name)
}

/// Converts the name of a relation.
pub(crate) fn relation(name: &RangeVar) -> ObjectName {
    let parts = [&name.catalogname, &name.schemaname, &name.relname];
    ObjectName(parts.into_iter().filter(|part| !part.is_empty()).map(|part| ident(part)).collect())
}

/// Returns the names of relations in a list.
pub(crate) fn relations(list: &[Node]) -> Result<Vec<ObjectName>> {
    let one = |node: &Node| match &node.node {
        Some(NodeEnum::RangeVar(name)) => Ok(relation(name)),
        other => Err(unexpected("a relation", other.as_ref())),
    };
    list.iter().map(one).collect()
}

/// Returns the strings in a list.
pub(crate) fn strings(list: &[Node]) -> Result<Vec<String>> {
    let one = |node: &Node| match &node.node {
        Some(NodeEnum::String(s)) => Ok(s.sval.clone()),
        other => Err(unexpected("a string", other.as_ref())),
    };
    list.iter().map(one).collect()
}

/// Returns the names in a list, as columns.
pub(crate) fn columns(list: &[Node]) -> Result<Vec<Ident>> {
    Ok(strings(list)?.iter().map(|name| ident(name)).collect())
}

/// Returns the error XX000: PostgreSQL's grammar cannot make such a tree.
pub(crate) fn unexpected(wanted: &str, found: Option<&NodeEnum>) -> SqlError {
    SqlError::internal(format!("{wanted} in the place of {found:?}"))
}

/// Returns the options in a list.
pub(crate) fn options(list: &[Node]) -> Result<Vec<Opt<'_>>> {
    list.iter().map(Opt::of).collect()
}

/// Returns the options of WITH, SET or RESET.
pub(crate) fn storage_options(list: &[Node]) -> Result<Vec<StorageOption>> {
    let one = |option: Opt<'_>| StorageOption {
        name: match option.namespace() {
            "" => option.name().to_owned(),
            namespace => format!("{namespace}.{}", option.name()),
        },
        value: option.value().map(|_| option.text().unwrap_or_default()),
    };
    Ok(options(list)?.into_iter().map(one).collect())
}

/// An option: a name, and mostly a value.
#[derive(Clone, Copy)]
pub(crate) struct Opt<'n>(pub(crate) &'n DefElem);

impl<'n> Opt<'n> {
    fn of(node: &'n Node) -> Result<Opt<'n>> {
        match &node.node {
            Some(NodeEnum::DefElem(element)) => Ok(Opt(element)),
            other => Err(unexpected("an option", other.as_ref())),
        }
    }

    pub(crate) fn name(self) -> &'n str {
        &self.0.defname
    }

    /// Returns the word before the period in the option's name. The result is empty if there is none.
    pub(crate) fn namespace(self) -> &'n str {
        &self.0.defnamespace
    }

    /// Returns the position of the option in the text.
    pub(crate) fn position(self, source: Source<'_>) -> Option<u32> {
        source.position(self.0.location)
    }

    pub(crate) fn value(self) -> Option<&'n NodeEnum> {
        self.0.arg.as_ref()?.node.as_ref()
    }

    /// Returns the option's value as text, if it has one.
    pub(crate) fn text(self) -> Option<String> {
        match self.value()? {
            NodeEnum::Integer(n) => Some(n.ival.to_string()),
            NodeEnum::Float(n) => Some(n.fval.clone()),
            NodeEnum::Boolean(b) => Some(b.boolval.to_string()),
            NodeEnum::String(s) => Some(s.sval.clone()),
            NodeEnum::AConst(c) => constant(c),
            NodeEnum::AStar(_) => Some("*".to_owned()),
            NodeEnum::List(list) => strings(&list.items).ok().map(|parts| parts.join(".")),
            NodeEnum::TypeName(name) => strings(&name.names).ok().map(|parts| parts.join(".")),
            _ => None,
        }
    }

    /// Returns the option's value as text. Fails with 42601 if it has none.
    pub(crate) fn needed_text(self) -> Result<String> {
        self.text().ok_or_else(|| syntax(format!("{} requires a parameter", self.name())))
    }

    /// Returns whether the option is on. An option without a value is on.
    pub(crate) fn flag(self) -> Result<bool> {
        self.truth().ok_or_else(|| syntax(format!("{} requires a Boolean value", self.name())))
    }

    /// Returns whether the option is on, or `None` if its value is neither on nor off.
    pub(crate) fn truth(self) -> Option<bool> {
        let Some(text) = self.text() else { return self.value().is_none().then_some(true) };
        match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "on" => Some(true),
            "0" | "false" | "off" => Some(false),
            _ => None,
        }
    }

    /// Returns the option's value as an integer.
    pub(crate) fn number(self) -> Option<i32> {
        match self.value()? {
            NodeEnum::Integer(n) => Some(n.ival),
            _ => None,
        }
    }
}

/// Returns a constant as text, or `None` for NULL.
pub(crate) fn constant(c: &AConst) -> Option<String> {
    match c.val.as_ref()? {
        Val::Ival(n) => Some(n.ival.to_string()),
        Val::Fval(n) => Some(n.fval.clone()),
        Val::Boolval(b) => Some(b.boolval.to_string()),
        Val::Sval(s) => Some(s.sval.clone()),
        Val::Bsval(s) => Some(s.bsval.clone()),
    }
}

/// Returns the error 42601 with this message.
pub(crate) fn syntax(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, message.into())
}

/// Returns the error 42601: the option was given before.
pub(crate) fn redundant(position: Option<u32>) -> SqlError {
    syntax("conflicting or redundant options").at(position)
}
