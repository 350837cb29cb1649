//! A command taken apart word by word, for definitions that have no reader of PostgreSQL's tree yet.
//!
//! Does not know: commands.

use sqlparser::ast;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{Result, SqlError};
use crate::parse;

/// Where the reading of a command is.
pub(super) struct Cursor<'s> {
    sql: &'s str,
    tokens: Vec<TokenWithSpan>,
    pub(super) at: usize,
}

impl<'s> Cursor<'s> {
    pub(super) fn new(sql: &'s str, tokens: &[TokenWithSpan]) -> Cursor<'s> {
        let tokens = tokens.iter().filter(|t| !parse::is_blank(&t.token)).cloned().collect();
        Cursor { sql, tokens, at: 0 }
    }

    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|t| &t.token)
    }

    /// The next word in lower case; a quoted one does not count.
    pub(super) fn word(&mut self) -> Option<String> {
        let Some(Token::Word(w)) = self.peek() else { return None };
        if w.quote_style.is_some() {
            return None;
        }
        let word = w.value.to_lowercase();
        self.at += 1;
        Some(word)
    }

    pub(super) fn eat(&mut self, wanted: &str) -> bool {
        let start = self.at;
        if self.word().as_deref() == Some(wanted) {
            return true;
        }
        self.at = start;
        false
    }

    pub(super) fn eat_token(&mut self, wanted: &Token) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, wanted: &str) -> Result<()> {
        if self.eat(wanted) { Ok(()) } else { Err(self.error()) }
    }

    pub(super) fn expect_token(&mut self, wanted: &Token) -> Result<()> {
        if self.eat_token(wanted) { Ok(()) } else { Err(self.error()) }
    }

    /// The next identifier, folded.
    pub(super) fn name(&mut self) -> Result<String> {
        let Some(Token::Word(w)) = self.peek() else { return Err(self.error()) };
        let name = if w.quote_style.is_some() { w.value.clone() } else { w.value.to_lowercase() };
        self.at += 1;
        Ok(name)
    }

    pub(super) fn object_name(&mut self) -> Result<ast::ObjectName> {
        let mut parts = Vec::new();
        loop {
            parts.push(self.ident()?);
            if !self.eat_token(&Token::Period) {
                return Ok(ast::ObjectName::from(parts));
            }
        }
    }

    pub(super) fn ident(&mut self) -> Result<ast::Ident> {
        let Some(TokenWithSpan { token: Token::Word(w), span }) = self.tokens.get(self.at) else {
            return Err(self.error());
        };
        let ident = w.clone().into_ident(*span);
        self.at += 1;
        Ok(ident)
    }

    /// 42601 at the next token.
    pub(super) fn error(&self) -> SqlError {
        match self.tokens.get(self.at) {
            Some(token) => parse::near(self.sql, token),
            None => parse::at_end(self.sql),
        }
    }

    pub(super) fn end(&self) -> Result<()> {
        if self.at == self.tokens.len() { Ok(()) } else { Err(self.error()) }
    }
}
