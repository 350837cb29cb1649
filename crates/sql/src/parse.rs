//! Text to syntax tree. Utility commands are read here by hand, everything else by `sqlparser`.
//!
//! Invariants
//! 1. Syntax errors are 42601 in PostgreSQL's words with the position of the offending token.
//!
//! Does not know: names' meaning.

use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
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
    let mut tokens = tokenize(sql)?;
    while tokens.last().is_some_and(|t| is_blank(&t.token) || t.token == Token::SemiColon) {
        tokens.pop();
    }
    if tokens.iter().all(|t| is_blank(&t.token)) {
        return Ok(Parsed::Empty);
    }
    if let Some(utility) = utility::read(sql, &tokens)? {
        return Ok(Parsed::Utility(utility));
    }
    let tokens = with_trimmed_blank(without_storage_clause(tokens));
    let tokens = with_written_out_table(with_ordered_options(tokens));
    let tokens = with_plain_locks(tokens);
    let mut parser = parser(tokens);
    let statement = parser.parse_statement().map_err(|e| syntax_error(sql, &e))?;
    let rest = parser.peek_token();
    if rest.token != Token::EOF {
        return Err(near(sql, &rest));
    }
    Ok(Parsed::Sql(Box::new(statement)))
}

/// Checks the syntax of one statement.
pub fn check(sql: &str) -> Result<()> {
    on_deep_stack(sql, || statement(sql).map(|_| ()))
}

/// Reads an expression, such as a column's default.
pub fn expression(text: &str) -> Result<ast::Expr> {
    let mut parser = parser(tokenize(text)?);
    let e = parser.parse_expr().map_err(|e| syntax_error(text, &e))?;
    let rest = parser.peek_token();
    if rest.token == Token::EOF { Ok(e) } else { Err(near(text, &rest)) }
}

fn parser(tokens: Vec<TokenWithSpan>) -> Parser<'static> {
    static DIALECT: PostgreSqlDialect = PostgreSqlDialect {};
    Parser::new(&DIALECT).with_recursion_limit(RECURSION_MAX).with_tokens_with_locations(tokens)
}

/// A parser over tokens that were read before, for arguments of utility commands.
pub fn parser_over(tokens: &[TokenWithSpan]) -> Parser<'static> {
    parser(tokens.to_vec())
}

/// Whether a token is blank or a comment.
pub fn is_blank(token: &Token) -> bool {
    matches!(token, Token::Whitespace(_))
}

fn tokenize(sql: &str) -> Result<Vec<TokenWithSpan>> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize_with_location();
    let tokens = tokens.map_err(|e| {
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
    if let Some(bad) = tokens.iter().find(|t| matches!(t.token, Token::Whitespace(Whitespace::SingleLineComment { ref prefix, .. }) if prefix == "#"))
    {
        return Err(near(sql, bad));
    }
    Ok(with_signs_apart(tokens))
}

/// `a>-5`: the tokenizer takes `>-` for one operator. PostgreSQL's rule (manual, 4.1.3): an operator of several characters
/// ends in `+` or `-` only if it has one of ``~ ! @ # % ^ & | ` ?`` in it.
fn with_signs_apart(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut out = Vec::with_capacity(tokens.len());
    for t in tokens {
        match &t.token {
            Token::CustomBinaryOperator(op)
                if !op.contains(['~', '!', '@', '#', '%', '^', '&', '|', '`', '?']) =>
            {
                let bare = op.trim_end_matches(['+', '-']);
                match plain_operator(bare) {
                    Some(token) => {
                        out.push(TokenWithSpan { token, span: t.span });
                        let sign = |c| if c == '-' { Token::Minus } else { Token::Plus };
                        out.extend(
                            op[bare.len()..].chars().map(|c| TokenWithSpan { token: sign(c), span: t.span }),
                        );
                    }
                    None => out.push(t),
                }
            }
            _ => out.push(t),
        }
    }
    out
}

fn plain_operator(text: &str) -> Option<Token> {
    Some(match text {
        "=" => Token::Eq,
        "<" => Token::Lt,
        ">" => Token::Gt,
        "<=" => Token::LtEq,
        ">=" => Token::GtEq,
        "<>" => Token::Neq,
        "*" => Token::Mul,
        "/" => Token::Div,
        _ => return None,
    })
}

/// `USING paged` of CREATE TABLE, which the parser does not know: recognised and taken out (it is the only engine).
fn without_storage_clause(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let word = lower_word;
    let words: Vec<usize> = (0..tokens.len()).filter(|i| !is_blank(&tokens[*i].token)).collect();
    let creates_table = words.len() > 3
        && word(&tokens[words[0]]) == "create"
        && words.iter().take(4).any(|i| word(&tokens[*i]) == "table");
    if !creates_table {
        return tokens;
    }
    let found = words
        .windows(2)
        .find(|w| word(&tokens[w[0]]) == "using" && matches!(word(&tokens[w[1]]).as_str(), "paged" | "heap"));
    if let Some(&[using, engine]) = found.map(|w| [w[0], w[1]]).as_ref() {
        tokens.drain(using..=engine);
    }
    tokens
}

fn lower_word(t: &TokenWithSpan) -> String {
    match &t.token {
        Token::Word(w) if w.quote_style.is_none() => w.value.to_lowercase(),
        _ => String::new(),
    }
}

/// `TRIM(LEADING FROM x)` for the parser: `TRIM(LEADING ' ' FROM x)`.
fn with_trimmed_blank(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words: Vec<usize> = (0..tokens.len()).filter(|i| !is_blank(&tokens[*i].token)).collect();
    let short = |w: &&[usize]| {
        matches!(lower_word(&tokens[w[0]]).as_str(), "leading" | "trailing" | "both")
            && lower_word(&tokens[w[1]]) == "from"
    };
    let places: Vec<usize> = words.windows(2).filter(short).map(|w| w[1]).collect();
    for place in places.into_iter().rev() {
        let span = tokens[place].span;
        tokens.insert(place, TokenWithSpan { token: Token::SingleQuotedString(" ".into()), span });
    }
    tokens
}

/// `TABLE t` is `SELECT * FROM t`.
fn with_written_out_table(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let first = tokens.iter().position(|t| !is_blank(&t.token));
    if let Some(first) = first.filter(|i| lower_word(&tokens[*i]) == "table") {
        let span = tokens[first].span;
        let word = |w: &str| Token::make_word(w, None);
        let blank = Token::Whitespace(Whitespace::Space);
        let written = [word("SELECT"), blank.clone(), Token::Mul, blank, word("FROM")];
        tokens.splice(first..=first, written.map(|token| TokenWithSpan { token, span }));
    }
    tokens
}

/// `FOR NO KEY UPDATE` and `FOR KEY SHARE`, which the parser does not know, as the stronger `FOR UPDATE` and `FOR SHARE`.
fn with_plain_locks(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words: Vec<usize> = (0..tokens.len()).filter(|i| !is_blank(&tokens[*i].token)).collect();
    let at = |n: usize| words.get(n).map(|i| lower_word(&tokens[*i])).unwrap_or_default();
    let mut dropped = Vec::new();
    let locks = (0..words.len()).filter(|n| is_for(&tokens[words[*n]].token));
    for n in locks {
        let following = [at(n), at(n + 1), at(n + 2), at(n + 3)];
        match following.each_ref().map(String::as_str) {
            ["for", "no", "key", "update"] => dropped.extend([words[n + 1], words[n + 2]]),
            ["for", "key", "share", _] => dropped.push(words[n + 1]),
            _ => {}
        }
    }
    dropped.into_iter().rev().for_each(|i| drop(tokens.remove(i)));
    tokens
}

fn is_for(token: &Token) -> bool {
    matches!(token, Token::Word(w) if w.keyword == Keyword::FOR && w.quote_style.is_none())
}

/// The parser wants the options of CREATE SEQUENCE in one order; PostgreSQL takes any.
fn with_ordered_options(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    const ORDER: [&str; 7] = ["increment", "minvalue", "maxvalue", "start", "cache", "cycle", "owned"];
    let words: Vec<usize> = (0..tokens.len()).filter(|i| !is_blank(&tokens[*i].token)).collect();
    let is = |n: usize, word: &str| words.get(n).is_some_and(|i| lower_word(&tokens[*i]) == word);
    if !is(0, "create") || !is(1, "sequence") {
        return tokens;
    }
    let rank = |n: usize| {
        ORDER
            .iter()
            .position(|o| is(n, o))
            .or_else(|| is(n, "no").then(|| ORDER.iter().position(|o| is(n + 1, o)))?)
    };
    let mut starts: Vec<(usize, usize)> = Vec::new();
    let mut n = 3;
    while n < words.len() {
        if let Some(rank) = rank(n) {
            starts.push((rank, n));
            n += usize::from(is(n, "no"));
        }
        n += 1;
    }
    let Some((_, first)) = starts.first().copied() else { return tokens };
    let end_of = |k: usize| starts.get(k + 1).map_or(tokens.len(), |(_, n)| words[*n]);
    let mut parts: Vec<(usize, &[TokenWithSpan])> =
        starts.iter().enumerate().map(|(k, (rank, n))| (*rank, &tokens[words[*n]..end_of(k)])).collect();
    parts.sort_by_key(|(rank, _)| *rank);
    let mut out = tokens[..words[first]].to_vec();
    for (_, part) in parts {
        out.extend_from_slice(part);
        out.push(TokenWithSpan::wrap(Token::Whitespace(Whitespace::Space)));
    }
    out
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

/// Puts the parser's message into PostgreSQL's words.
fn syntax_error(sql: &str, e: &ParserError) -> SqlError {
    let text = match e {
        ParserError::RecursionLimitExceeded => {
            return SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
                .with_hint(format!("Statements may nest {RECURSION_MAX} deep."));
        }
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
