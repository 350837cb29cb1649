//! Text to syntax tree. Commands, queries and changes of rows are mapped from PostgreSQL's tree, definitions are read
//! by `sqlparser`.
//!
//! Invariants
//! 1. Syntax errors are 42601 in PostgreSQL's words with the position of the offending token.
//!
//! Does not know: names' meaning.

mod dialect;
mod literal;
pub mod options;
pub mod postgres;
mod rewrite;

use dialect::VarveDialect;
pub use rewrite::{LOCK_MARK, Overriding, bare_name, symmetric_bound};
use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Whitespace};

use crate::error::{Result, SqlError, SqlState};
use crate::utility::{self, Utility};

/// A statement that has been read.
#[derive(Debug, Clone)]
pub enum Parsed {
    /// Nothing but blanks and comments.
    Empty,
    /// A command about the session, transactions or maintenance.
    Utility(Utility),
    /// SQL proper.
    Sql(Box<ast::Statement>),
}

/// Nesting that the parser follows before it gives up.
const RECURSION_MAX: usize = 200;

/// Nesting from which an error of the parser is taken for its limit: it tries other readings before it reports it.
const NESTING_SUSPECT: usize = RECURSION_MAX / 4;

/// Texts longer than this get a stack of their own.
const PLAIN_STACK_TEXT_BYTES: usize = 2048;
/// Stack for each byte of text, for trees that lean all to one side.
const STACK_BYTES_PER_TEXT_BYTE: usize = 512;
/// Largest stack that is made.
const STACK_BYTES_MAX: usize = 1 << 30;

/// Runs `f`, which makes, walks or drops the syntax tree of `sql`, on a stack that fits it: trees nest as deep as their
/// text says, and a stack that overflows ends the whole process.
pub fn on_deep_stack<T>(sql: &str, f: impl FnOnce() -> T) -> T {
    if sql.len() <= PLAIN_STACK_TEXT_BYTES {
        return f();
    }
    stacker::grow((sql.len() * STACK_BYTES_PER_TEXT_BYTE).clamp(8 << 20, STACK_BYTES_MAX), f)
}

/// Reads one statement. A trailing semicolon is allowed.
pub fn statement(sql: &str) -> Result<Parsed> {
    postgres::with_room(sql, || {
        let Some(node) = postgres::raw(sql)? else { return Ok(Parsed::Empty) };
        if let Some(command) = utility::read(sql, &node)? {
            return Ok(Parsed::Utility(command));
        }
        match postgres::mapped(sql, &node) {
            Ok(Some(statement)) => Ok(Parsed::Sql(Box::new(statement))),
            Ok(None) => read(sql).map_err(|e| postgres::unread(&node, e)),
            Err(e) => Err(e),
        }
    })
}

/// Reads a statement that is PostgreSQL's.
fn read(sql: &str) -> Result<Parsed> {
    let mut tokens = tokenize(sql)?;
    while tokens.last().is_some_and(|t| is_blank(&t.token) || t.token == Token::SemiColon) {
        tokens.pop();
    }
    if tokens.iter().all(|t| is_blank(&t.token)) {
        return Ok(Parsed::Empty);
    }
    if let Some(utility) = utility::read_alter(sql, &tokens)? {
        return Ok(Parsed::Utility(utility));
    }
    let is_suspect = nesting_of(&tokens) > NESTING_SUSPECT;
    let mut parser = parser(rewrite::statement(tokens));
    let parsed = parser.parse_statement().map_err(|e| syntax_error(sql, &e)).and_then(|statement| {
        let rest = parser.peek_token();
        if rest.token == Token::EOF { Ok(statement) } else { Err(near(sql, &rest)) }
    });
    let statement = parsed.map_err(|e| if is_suspect { too_deep() } else { e })?;
    Ok(Parsed::Sql(Box::new(statement)))
}

/// Checks the syntax of one statement.
pub fn check(sql: &str) -> Result<()> {
    on_deep_stack(sql, || statement(sql).map(|_| ()))
}

/// Reads an expression, such as a column's default.
pub fn expression(text: &str) -> Result<ast::Expr> {
    let mut parser = parser(rewrite::expression(tokenize(text)?));
    let e = parser.parse_expr().map_err(|e| syntax_error(text, &e))?;
    let rest = parser.peek_token();
    if rest.token == Token::EOF { Ok(e) } else { Err(near(text, &rest)) }
}

/// The tokens of a text that was parsed before, blanks among them.
pub fn tokens(text: &str) -> Result<Vec<TokenWithSpan>> {
    tokenize(text)
}

/// Whether an INSERT says OVERRIDING SYSTEM VALUE or OVERRIDING USER VALUE, which the syntax tree has no room for.
pub fn overriding(sql: &str) -> Result<Option<Overriding>> {
    postgres::with_room(sql, || Ok(postgres::raw(sql)?.and_then(|node| postgres::overriding(&node))))
}

/// Reads the name of a type, as a cast would have it.
pub fn type_name(text: &str) -> Option<crate::ty::Typed> {
    let mut parser = parser(tokenize(text).ok()?);
    let name = parser.parse_data_type().ok()?;
    let is_whole = parser.peek_token().token == Token::EOF;
    crate::ty::of_ast(&name).ok().filter(|_| is_whole)
}

fn parser(tokens: Vec<TokenWithSpan>) -> Parser<'static> {
    Parser::new(&VarveDialect).with_recursion_limit(RECURSION_MAX).with_tokens_with_locations(tokens)
}

/// Whether a token is blank or a comment.
pub fn is_blank(token: &Token) -> bool {
    matches!(token, Token::Whitespace(_))
}

fn tokenize(sql: &str) -> Result<Vec<TokenWithSpan>> {
    let masked = literal::mask(sql)?;
    let tokens = Tokenizer::new(&VarveDialect, &masked.text).tokenize_with_location();
    let mut tokens = tokens.map_err(|e| {
        let at = offset(sql, e.location);
        let start: String = sql.chars().skip(at.saturating_sub(1) as usize).take(60).collect();
        let what = if e.message.contains("string literal") {
            "unterminated quoted string"
        } else if e.message.contains("comment") {
            "unterminated /* comment"
        } else if e.message.contains("identifier") || e.message.contains("close delimiter") {
            "unterminated quoted identifier"
        } else {
            "syntax error"
        };
        SqlError::new(SqlState::SYNTAX_ERROR, format!("{what} at or near \"{start}\"")).at(Some(at))
    })?;
    masked.unmask(&mut tokens);
    if let Some(bad) = tokens.iter().find(|t| matches!(&t.token, Token::Word(w) if w.value.is_empty())) {
        let message = "zero-length delimited identifier at or near \"\"\"\"";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).at(Some(offset(sql, bad.span.start))));
    }
    if let Some(bad) = tokens.iter().find(|t| matches!(t.token, Token::Whitespace(Whitespace::SingleLineComment { ref prefix, .. }) if prefix == "#"))
    {
        return Err(near(sql, bad));
    }
    Ok(rewrite::with_signs_apart(tokens))
}

/// Character position of a location, from 1.
pub fn offset(sql: &str, at: Location) -> u32 {
    let before: usize =
        sql.split_inclusive('\n').take((at.line as usize).saturating_sub(1)).map(|l| l.chars().count()).sum();
    (before as u64 + at.column) as u32
}

/// 42601 at a token.
pub fn near(sql: &str, token: &TokenWithSpan) -> SqlError {
    if token.token == Token::EOF {
        return at_end(sql);
    }
    let message = format!("syntax error at or near \"{}\"", token.token);
    SqlError::new(SqlState::SYNTAX_ERROR, message).at(Some(offset(sql, token.span.start)))
}

/// 42601 behind the last token.
pub fn at_end(sql: &str) -> SqlError {
    let end = sql.trim_end().trim_end_matches(';').chars().count() as u32 + 1;
    SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at end of input").at(Some(end))
}

/// 54001
fn too_deep() -> SqlError {
    SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
        .with_hint(format!("Statements may nest {RECURSION_MAX} deep."))
}

/// How deep parentheses, CASE and signs before an operand stand in each other.
fn nesting_of(tokens: &[TokenWithSpan]) -> usize {
    let (mut depth, mut signs, mut most) = (0usize, 0, 0);
    for t in tokens.iter().filter(|t| !is_blank(&t.token)) {
        let keyword = match &t.token {
            Token::Word(w) if w.quote_style.is_none() => w.keyword,
            _ => Keyword::NoKeyword,
        };
        match (&t.token, keyword) {
            (Token::LParen, _) | (_, Keyword::CASE) => depth += 1,
            (Token::RParen, _) | (_, Keyword::END) => depth = depth.saturating_sub(1),
            (Token::Minus | Token::Plus, _) | (_, Keyword::NOT) => signs += 2,
            _ => {}
        }
        signs = usize::saturating_sub(signs, 1);
        most = most.max(depth + signs);
    }
    most
}

/// Puts the parser's message into PostgreSQL's words.
pub fn syntax_error(sql: &str, e: &ParserError) -> SqlError {
    let text = match e {
        ParserError::RecursionLimitExceeded => return too_deep(),
        ParserError::ParserError(text) | ParserError::TokenizerError(text) => text,
    };
    let (found, location) = match text.rsplit_once(" at Line: ") {
        Some((head, tail)) => (head.rsplit_once("found: ").map(|(_, f)| f), parse_location(tail)),
        None => (text.rsplit_once("found: ").map(|(_, f)| f), None),
    };
    let position = location.map(|l| offset(sql, l));
    match found {
        Some("EOF") => at_end(sql),
        Some(token) => {
            SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{token}\"")).at(position)
        }
        None => SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error: {text}")).at(position),
    }
}

fn parse_location(text: &str) -> Option<Location> {
    let (line, column) = text.split_once(", Column: ")?;
    Some(Location { line: line.trim().parse().ok()?, column: column.trim().parse().ok()? })
}
