//! From PostgreSQL's bytes to lines and columns, and its names to identifiers.
//!
//! Does not know: nodes.

use pg_query::NodeEnum;
use pg_query::protobuf::Node;
use sqlparser::ast::{Ident, ObjectName};
use sqlparser::tokenizer::{Location, Span};

use crate::error::{Result, SqlError};

/// A text and where its lines begin.
pub(super) struct Reader<'s> {
    sql: &'s str,
    /// Byte at which each line begins, and characters before it.
    lines: Vec<(usize, usize)>,
    /// Characters before each step of bytes; empty where each byte is one.
    steps: Vec<usize>,
}

/// Bytes between two counts of characters.
const STEP: usize = 256;

impl<'s> Reader<'s> {
    pub(super) fn new(sql: &'s str) -> Self {
        let mut reader = Reader { sql, lines: Vec::new(), steps: Vec::new() };
        if !sql.is_ascii() {
            let mut count = 0;
            for chunk in sql.as_bytes().chunks(STEP) {
                reader.steps.push(count);
                count += chunk.iter().filter(|b| begins_character(**b)).count();
            }
        }
        let starts = std::iter::once(0).chain(memchr::memchr_iter(b'\n', sql.as_bytes()).map(|at| at + 1));
        reader.lines = starts.map(|at| (at, reader.characters(at))).collect();
        reader
    }

    /// The text.
    pub(super) fn text(&self) -> &'s str {
        self.sql
    }

    /// Characters before a byte.
    fn characters(&self, at: usize) -> usize {
        let Some(before) = self.steps.get(at / STEP) else { return at };
        let from = at / STEP * STEP;
        before + self.sql.as_bytes()[from..at].iter().filter(|b| begins_character(**b)).count()
    }

    /// The span that begins at a byte of PostgreSQL's; empty if it is unknown.
    pub(super) fn span(&self, at: i32) -> Span {
        let Ok(at) = usize::try_from(at) else { return Span::empty() };
        let at = at.min(self.sql.len());
        let line = self.lines.partition_point(|(start, _)| *start <= at).max(1);
        let column = self.characters(at) - self.lines[line - 1].1 + 1;
        let start = Location::new(line as u64, column as u64);
        Span::new(start, start)
    }

    /// An identifier that means exactly this name.
    pub(super) fn ident(&self, name: &str, at: i32) -> Ident {
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let quote_style = (!name.bytes().all(is_plain) || SPECIAL.contains(&name)).then_some('"');
        Ident { value: name.to_owned(), quote_style, span: self.span(at) }
    }

    /// A name of several parts.
    pub(super) fn object_name<'n>(&self, parts: impl IntoIterator<Item = &'n str>, at: i32) -> ObjectName {
        ObjectName::from(parts.into_iter().map(|part| self.ident(part, at)).collect::<Vec<_>>())
    }

    /// A list of names as one.
    pub(super) fn name_of(&self, list: &[Node], at: i32) -> Result<ObjectName> {
        Ok(self.object_name(strings(list)?, at))
    }
}

fn begins_character(b: u8) -> bool {
    b & 0xC0 != 0x80
}

/// Names that mean something else where they are not quoted.
const SPECIAL: [&str; 12] = [
    "array",
    "cube",
    "current_catalog",
    "current_role",
    "current_schema",
    "current_user",
    "default",
    "rollup",
    "row",
    "session_user",
    "symmetric",
    "user",
];

/// The words of a list.
pub(super) fn strings(list: &[Node]) -> Result<Vec<&str>> {
    let words = list.iter().map(|node| match &node.node {
        Some(NodeEnum::String(s)) => Ok(s.sval.as_str()),
        _ => Err(SqlError::unsupported("this form of a name")),
    });
    words.collect()
}

/// What a node is.
pub(super) fn kind(node: Option<&Node>) -> Result<&NodeEnum> {
    node.and_then(|n| n.node.as_ref())
        .ok_or_else(|| SqlError::internal("a node of the parser's tree is missing"))
}
