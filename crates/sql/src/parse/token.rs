//! The tokens of a text, from PostgreSQL's scanner. The text has been parsed before.
//!
//! Invariants
//! 1. There are only blanks and comments between two tokens.
//!
//! This module does not know the grammar.

use pg_query::protobuf::{KeywordKind, Token as Scanned};

use crate::error::{Result, SqlError};
use crate::names::{NAME_BYTES_MAX, clipped};

/// A token and its position.
#[derive(Debug, Clone, Copy)]
pub struct Token<'t> {
    kind: TokenKind,
    /// The token as it is written.
    text: &'t str,
    /// The offset of its first byte.
    pub start: usize,
    /// The offset after its last byte.
    pub end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    /// A name or a keyword.
    Word,
    /// A name in double quotes.
    Quoted,
    /// A string.
    Text,
    /// Any other token.
    Symbol,
}

impl Token<'_> {
    /// Returns the name that a word or a quoted name means, in the form in which names are compared.
    pub fn name(&self) -> Option<String> {
        self.written_name().map(clipped)
    }

    /// Returns the same name, not shortened to the length of names.
    fn written_name(&self) -> Option<String> {
        match self.kind {
            TokenKind::Word => Some(self.text.to_ascii_lowercase()),
            TokenKind::Quoted => {
                let inner = self.text.strip_prefix('"')?.strip_suffix('"')?;
                Some(inner.replace("\"\"", "\""))
            }
            TokenKind::Text | TokenKind::Symbol => None,
        }
    }

    /// Returns the token as it is written.
    pub fn written(&self) -> &str {
        self.text
    }

    /// Returns whether the token is this operator or punctuation mark.
    pub fn is(&self, symbol: &str) -> bool {
        self.kind == TokenKind::Symbol && self.text == symbol
    }

    /// Returns whether the token is this keyword, which is given in lower case.
    pub fn is_word(&self, word: &str) -> bool {
        self.kind == TokenKind::Word && self.text.eq_ignore_ascii_case(word)
    }

    /// Returns the text of a string without escapes.
    pub fn string(&self) -> Option<String> {
        if self.kind != TokenKind::Text {
            return None;
        }
        let inner = self.text.strip_prefix('\'')?.strip_suffix('\'')?;
        Some(inner.replace("''", "'"))
    }
}

/// Returns the tokens of a text, without its comments.
pub fn tokens(text: &str) -> Result<Vec<Token<'_>>> {
    let scanned = pg_query::scan_tokens(text);
    let scanned = scanned.map_err(|e| SqlError::internal(format!("a text that was parsed: {e}")))?;
    let mut tokens = Vec::with_capacity(scanned.len());
    for token in scanned {
        let (start, end) = (token.start as usize, token.end as usize);
        let lost = || SqlError::internal("a token that is not in its text");
        let written = text.get(start..end).ok_or_else(lost)?;
        let kind = match token.token() {
            Scanned::SqlComment | Scanned::CComment => continue,
            Scanned::Ident if written.starts_with('"') => TokenKind::Quoted,
            Scanned::Ident => TokenKind::Word,
            Scanned::Sconst | Scanned::Usconst => TokenKind::Text,
            _ if token.keyword_kind() != KeywordKind::NoKeyword => TokenKind::Word,
            _ => TokenKind::Symbol,
        };
        tokens.push(Token { kind, text: written, start, end });
    }
    Ok(tokens)
}

/// Returns the names in a text that are too long, each with its shortened form. For a text without long
/// words, one pass over its bytes is enough.
pub fn cut_names(text: &str) -> Vec<(String, String)> {
    if !has_long_word(text.as_bytes()) {
        return Vec::new();
    }
    let tokens = tokens(text).unwrap_or_default();
    let names = tokens.iter().filter_map(Token::written_name);
    names.map(|name| (name.clone(), clipped(name))).filter(|(name, kept)| kept.len() < name.len()).collect()
}

/// Returns whether a text may have a name that is too long: a long word, or a long text between double
/// quotes.
fn has_long_word(text: &[u8]) -> bool {
    let is_of_word = |b: &u8| b.is_ascii_alphanumeric() || !b.is_ascii() || matches!(b, b'_' | b'$');
    let is_long = |part: &[u8]| part.len() > NAME_BYTES_MAX;
    text.len() > NAME_BYTES_MAX
        && (text.split(|b| !is_of_word(b)).any(is_long) || text.split(|b| *b == b'"').skip(1).any(is_long))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn tokens_say_what_they_are() {
        let tokens = tokens("nextval('a''b'::Text) /* c */ + \"T\"\"x\".é -- end").unwrap();
        let names: Vec<_> = tokens.iter().filter_map(Token::name).collect();
        assert_eq!(names, ["nextval", "text", "T\"x", "é"]);
        assert_eq!(tokens[2].string().as_deref(), Some("a'b"));
        assert!(tokens[1].is("(") && tokens[3].is("::") && tokens[4].is_word("text"));
    }
}
