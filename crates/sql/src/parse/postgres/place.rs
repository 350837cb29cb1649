//! Converts PostgreSQL's byte positions to character positions, and its names to identifiers.

use pg_query::NodeEnum;
use pg_query::protobuf::Node;

use crate::ast::{Ident, ObjectName, TextPosition};
use crate::error::{Result, SqlError};

/// A text, with counts to convert byte offsets to characters.
pub(super) struct Reader<'s> {
    sql: &'s str,
    /// The number of characters before each step of `STEP` bytes. The list is empty if each byte is one
    /// character.
    steps: Vec<usize>,
}

/// The number of bytes between two counts of characters.
const STEP: usize = 256;

impl<'s> Reader<'s> {
    pub(super) fn new(sql: &'s str) -> Self {
        let mut reader = Reader { sql, steps: Vec::new() };
        if !sql.is_ascii() {
            let mut count = 0;
            for chunk in sql.as_bytes().chunks(STEP) {
                reader.steps.push(count);
                count += chunk.iter().filter(|b| begins_character(**b)).count();
            }
        }
        reader
    }

    /// Returns the text.
    pub(super) fn text(&self) -> &'s str {
        self.sql
    }

    /// Returns the number of characters before a byte.
    fn characters(&self, at: usize) -> usize {
        let Some(before) = self.steps.get(at / STEP) else { return at };
        let from = at / STEP * STEP;
        before + self.sql.as_bytes()[from..at].iter().filter(|b| begins_character(**b)).count()
    }

    /// Converts PostgreSQL's byte offset to a position. Returns `NONE` if the offset is unknown.
    pub(super) fn place(&self, at: i32) -> TextPosition {
        let Ok(at) = usize::try_from(at) else { return TextPosition::NONE };
        let before = self.characters(at.min(self.sql.len()));
        u32::try_from(before + 1).map_or(TextPosition::NONE, TextPosition::at)
    }

    /// Makes an identifier.
    pub(super) fn ident(&self, name: &str, at: i32) -> Ident {
        Ident { value: name.to_owned(), at: self.place(at) }
    }

    /// Makes a name of several parts.
    pub(super) fn object_name<'n>(&self, parts: impl IntoIterator<Item = &'n str>, at: i32) -> ObjectName {
        ObjectName(parts.into_iter().map(|part| self.ident(part, at)).collect())
    }

    /// Makes a qualified name from a list of its parts.
    pub(super) fn name_of(&self, list: &[Node], at: i32) -> Result<ObjectName> {
        Ok(self.object_name(strings(list)?, at))
    }
}

fn begins_character(b: u8) -> bool {
    b & 0xC0 != 0x80
}

/// Returns the strings in a list.
pub(super) fn strings(list: &[Node]) -> Result<Vec<&str>> {
    let words = list.iter().map(|node| match &node.node {
        Some(NodeEnum::String(s)) => Ok(s.sval.as_str()),
        _ => Err(SqlError::unsupported("this form of a name")),
    });
    words.collect()
}

/// Returns the content of a node.
pub(super) fn kind(node: Option<&Node>) -> Result<&NodeEnum> {
    node.and_then(|n| n.node.as_ref())
        .ok_or_else(|| SqlError::internal("a node of the parser's tree is missing"))
}
