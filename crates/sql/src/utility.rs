//! Commands about the session, transactions and maintenance, read from tokens.
//!
//! Invariants
//! 1. A command is recognised by its first words; from there on anything unexpected is a syntax error.
//!
//! Does not know: what the commands do (`session`).

pub mod alter;
mod copy;
pub mod cursor;
pub mod explain;
pub mod lock;
pub mod maintain;
pub mod role;
pub mod view;

use sqlparser::ast;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::copy::Copy;
use crate::error::{Result, SqlError};
use crate::parse;
use crate::system::names::quoted;

/// Isolation level as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// READ UNCOMMITTED or READ COMMITTED
    ReadCommitted,
    /// REPEATABLE READ
    RepeatableRead,
    /// SERIALIZABLE
    Serializable,
}

/// Transaction modes; `None` where not said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Modes {
    /// ISOLATION LEVEL
    pub level: Option<Level>,
    /// READ ONLY (true) or READ WRITE
    pub read_only: Option<bool>,
    /// DEFERRABLE: any snapshot will do for a transaction that only reads, so nothing is waited for.
    pub deferrable: Option<bool>,
}

/// A utility command.
#[derive(Debug, Clone)]
pub enum Utility {
    /// BEGIN, START TRANSACTION (true)
    Begin(Modes, bool),
    /// COMMIT, END
    Commit,
    /// ROLLBACK, ABORT
    Rollback,
    /// SAVEPOINT
    Savepoint(String),
    /// RELEASE
    Release(String),
    /// ROLLBACK TO
    RollbackTo(String),
    /// SET name = value; `None` is DEFAULT
    Set {
        /// Setting.
        name: String,
        /// Value.
        value: Option<String>,
        /// SET LOCAL
        local: bool,
    },
    /// SET TRANSACTION
    SetTransaction(Modes),
    /// SET SESSION CHARACTERISTICS
    SetCharacteristics(Modes),
    /// SET CONSTRAINTS: names, ALL is `None`; DEFERRED (true) or IMMEDIATE
    SetConstraints(Option<Vec<ast::ObjectName>>, bool),
    /// ALTER SYSTEM SET name = value; RESET name without a value, RESET ALL without both
    AlterSystem(Option<String>, Option<String>),
    /// SHOW name
    Show(String),
    /// RESET name, ALL is `None`
    Reset(Option<String>),
    /// DISCARD ALL (true) or parts of it
    Discard(bool),
    /// PREPARE name (types) AS text
    Prepare(String, Vec<ast::DataType>, String),
    /// EXECUTE name (arguments)
    Execute(String, Vec<ast::Expr>),
    /// DEALLOCATE name, ALL is `None`
    Deallocate(Option<String>),
    /// VACUUM and ANALYZE
    Maintain(Box<maintain::Maintain>),
    /// LOCK TABLE
    Lock(lock::LockTable),
    /// CHECKPOINT
    Checkpoint,
    /// EXPLAIN
    Explain(Box<explain::Explain>),
    /// DECLARE ... CURSOR
    Declare(Box<cursor::Declare>),
    /// FETCH, MOVE
    Fetch {
        /// The cursor.
        name: String,
        /// Which rows.
        direction: cursor::Direction,
        /// MOVE: the rows are not given.
        moves: bool,
    },
    /// CLOSE name, ALL is `None`
    Close(Option<String>),
    /// COPY
    Copy(Box<Copy>),
    /// CREATE ROLE, GRANT and their kin
    Role(Box<role::RoleCommand>),
    /// ALTER VIEW ... SET, RESET
    View(Box<view::ViewOptions>),
    /// ALTER SEQUENCE and its kin
    Alter(Box<alter::AlterCommand>),
    /// SET [LOCAL] ROLE, `None` is NONE; whether LOCAL
    SetRole(Option<String>, bool),
    /// SET [LOCAL] SESSION AUTHORIZATION, `None` is DEFAULT; whether LOCAL
    SetAuthorization(Option<String>, bool),
}

/// Reads a utility command; `None` if the first word belongs to none.
pub fn read(sql: &str, tokens: &[TokenWithSpan]) -> Result<Option<Utility>> {
    let tokens: Vec<TokenWithSpan> = tokens.iter().filter(|t| !parse::is_blank(&t.token)).cloned().collect();
    let mut c = Cursor { sql, tokens, at: 0 };
    let Some(verb) = c.word() else { return Ok(None) };
    let command = match verb.as_str() {
        "begin" => begin(&mut c, false)?,
        "start" => {
            c.expect("transaction")?;
            begin(&mut c, true)?
        }
        "commit" | "end" => end(&mut c, Utility::Commit)?,
        "abort" => end(&mut c, Utility::Rollback)?,
        "rollback" => rollback(&mut c)?,
        "savepoint" => Utility::Savepoint(c.name()?),
        "release" => {
            c.eat("savepoint");
            Utility::Release(c.name()?)
        }
        "set" => set(&mut c)?,
        "show" => Utility::Show(setting_name(&mut c)?),
        "reset" => Utility::Reset(if c.eat("all") { None } else { Some(setting_name(&mut c)?) }),
        "discard" => discard(&mut c)?,
        "prepare" => prepare(&mut c)?,
        "execute" => execute(&mut c)?,
        "deallocate" => {
            c.eat("prepare");
            Utility::Deallocate(if c.eat("all") { None } else { Some(c.name()?) })
        }
        "vacuum" => maintain::read(&mut c, true)?,
        "analyze" | "analyse" => maintain::read(&mut c, false)?,
        "checkpoint" => Utility::Checkpoint,
        "lock" => lock::read(&mut c)?,
        "explain" => explain::read(&mut c)?,
        "copy" => copy::read(&mut c)?,
        "declare" => cursor::declare(&mut c)?,
        "fetch" => cursor::fetch(&mut c, false)?,
        "move" => cursor::fetch(&mut c, true)?,
        "close" => cursor::close(&mut c)?,
        "alter" if c.eat("system") => alter_system(&mut c)?,
        "alter" if c.eat("view") => {
            return Ok(view::read(sql)?.map(|options| Utility::View(Box::new(options))));
        }
        "alter" if let Some(command) = alter::read(&mut c)? => Utility::Alter(Box::new(command)),
        verb => match role::read(&mut c, verb)? {
            Some(command) => command,
            None => return Ok(None),
        },
    };
    c.end()?;
    Ok(Some(command))
}

struct Cursor<'s> {
    sql: &'s str,
    tokens: Vec<TokenWithSpan>,
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|t| &t.token)
    }

    /// The next word in lower case; a quoted one does not count.
    fn word(&mut self) -> Option<String> {
        let Some(Token::Word(w)) = self.peek() else { return None };
        if w.quote_style.is_some() {
            return None;
        }
        let word = w.value.to_lowercase();
        self.at += 1;
        Some(word)
    }

    fn eat(&mut self, wanted: &str) -> bool {
        let start = self.at;
        if self.word().as_deref() == Some(wanted) {
            return true;
        }
        self.at = start;
        false
    }

    fn eat_token(&mut self, wanted: &Token) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, wanted: &str) -> Result<()> {
        if self.eat(wanted) { Ok(()) } else { Err(self.error()) }
    }

    fn expect_token(&mut self, wanted: &Token) -> Result<()> {
        if self.eat_token(wanted) { Ok(()) } else { Err(self.error()) }
    }

    /// The next identifier, folded.
    fn name(&mut self) -> Result<String> {
        let Some(Token::Word(w)) = self.peek() else { return Err(self.error()) };
        let name = if w.quote_style.is_some() { w.value.clone() } else { w.value.to_lowercase() };
        self.at += 1;
        Ok(name)
    }

    fn string(&mut self) -> Result<String> {
        let text = match self.peek() {
            Some(Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s)) => s.clone(),
            Some(Token::DollarQuotedString(s)) => s.value.clone(),
            _ => return Err(self.error()),
        };
        self.at += 1;
        Ok(text)
    }

    fn object_name(&mut self) -> Result<ast::ObjectName> {
        let mut parts = Vec::new();
        loop {
            parts.push(self.ident()?);
            if !self.eat_token(&Token::Period) {
                return Ok(ast::ObjectName::from(parts));
            }
        }
    }

    fn ident(&mut self) -> Result<ast::Ident> {
        let Some(TokenWithSpan { token: Token::Word(w), span }) = self.tokens.get(self.at) else {
            return Err(self.error());
        };
        let ident = w.clone().into_ident(*span);
        self.at += 1;
        Ok(ident)
    }

    /// Where the next token is.
    fn position(&self) -> Option<u32> {
        self.tokens.get(self.at).map(|t| parse::offset(self.sql, t.span.start))
    }

    /// 42601 at the next token.
    fn error(&self) -> SqlError {
        match self.tokens.get(self.at) {
            Some(token) => parse::near(self.sql, token),
            None => parse::at_end(self.sql),
        }
    }

    fn end(&self) -> Result<()> {
        if self.at == self.tokens.len() { Ok(()) } else { Err(self.error()) }
    }

    /// The text from the next token to the end.
    fn rest(&mut self) -> Result<String> {
        let Some(token) = self.tokens.get(self.at) else { return Err(self.error()) };
        let start = parse::offset(self.sql, token.span.start) as usize - 1;
        self.at = self.tokens.len();
        Ok(self.sql.chars().skip(start).collect())
    }
}

fn begin(c: &mut Cursor<'_>, start: bool) -> Result<Utility> {
    if !start && !c.eat("transaction") {
        c.eat("work");
    }
    Ok(Utility::Begin(modes(c)?, start))
}

fn modes(c: &mut Cursor<'_>) -> Result<Modes> {
    let mut modes = Modes::default();
    while c.peek().is_some() {
        if c.eat("isolation") {
            c.expect("level")?;
            modes.level = Some(level(c)?);
        } else if c.eat("read") {
            modes.read_only = Some(if c.eat("only") {
                true
            } else {
                c.expect("write")?;
                false
            });
        } else {
            let is_not = c.eat("not");
            c.expect("deferrable")?;
            modes.deferrable = Some(!is_not);
        }
        if c.eat_token(&Token::Comma) && c.peek().is_none() {
            return Err(c.error());
        }
    }
    Ok(modes)
}

fn level(c: &mut Cursor<'_>) -> Result<Level> {
    if c.eat("serializable") {
        return Ok(Level::Serializable);
    }
    if c.eat("repeatable") {
        c.expect("read")?;
        return Ok(Level::RepeatableRead);
    }
    c.expect("read")?;
    if c.eat("committed") || c.eat("uncommitted") { Ok(Level::ReadCommitted) } else { Err(c.error()) }
}

fn end(c: &mut Cursor<'_>, command: Utility) -> Result<Utility> {
    if !c.eat("transaction") {
        c.eat("work");
    }
    if c.eat("and") {
        let no = c.eat("no");
        c.expect("chain")?;
        if !no {
            return Err(SqlError::unsupported("AND CHAIN"));
        }
    }
    Ok(command)
}

fn rollback(c: &mut Cursor<'_>) -> Result<Utility> {
    if !c.eat("transaction") {
        c.eat("work");
    }
    if c.eat("to") {
        c.eat("savepoint");
        return Ok(Utility::RollbackTo(c.name()?));
    }
    end(c, Utility::Rollback)
}

/// A setting's name; the few that are several words.
fn setting_name(c: &mut Cursor<'_>) -> Result<String> {
    let first = c.name()?;
    match first.as_str() {
        "time" if c.eat("zone") => return Ok("timezone".into()),
        "transaction" if c.eat("isolation") => {
            c.expect("level")?;
            return Ok("transaction_isolation".into());
        }
        "session" if c.eat("authorization") => return Ok("session_authorization".into()),
        _ => {}
    }
    if c.eat_token(&Token::Period) {
        return Ok(format!("{first}.{}", c.name()?));
    }
    Ok(first)
}

fn set(c: &mut Cursor<'_>) -> Result<Utility> {
    let local = c.eat("local");
    if !local && c.eat("session") {
        if c.eat("characteristics") {
            c.expect("as")?;
            c.expect("transaction")?;
            return Ok(Utility::SetCharacteristics(modes(c)?));
        }
        if c.eat("authorization") {
            return Ok(Utility::SetAuthorization(role::role_or_none(c, "default")?, false));
        }
    }
    if local && c.eat("session") {
        c.expect("authorization")?;
        return Ok(Utility::SetAuthorization(role::role_or_none(c, "default")?, true));
    }
    if c.eat("role") {
        if !c.eat_token(&Token::Eq) {
            c.eat("to");
        }
        return Ok(Utility::SetRole(role::role_or_none(c, "none")?, local));
    }
    if c.eat("constraints") {
        return set_constraints(c);
    }
    if c.eat("transaction") {
        return Ok(Utility::SetTransaction(modes(c)?));
    }
    let name = if c.eat("names") {
        let value = if c.eat("default") { None } else { Some(c.string()?) };
        return Ok(Utility::Set { name: "client_encoding".into(), value, local });
    } else {
        setting_name(c)?
    };
    let zone = name == "timezone" && !matches!(c.peek(), Some(Token::Eq)) && !c.eat("to");
    if !zone
        && !c.eat_token(&Token::Eq)
        && !matches!(c.tokens.get(c.at.wrapping_sub(1)), Some(t) if is_to(t))
        && !c.eat("to")
    {
        return Err(c.error());
    }
    if c.eat("default") || (zone && c.eat("local")) {
        return Ok(Utility::Set { name, value: None, local });
    }
    let is_list = name == "search_path";
    let mut values = vec![set_value(c, is_list)?];
    while c.eat_token(&Token::Comma) {
        values.push(set_value(c, is_list)?);
    }
    Ok(Utility::Set { name, value: Some(values.join(", ")), local })
}

fn alter_system(c: &mut Cursor<'_>) -> Result<Utility> {
    if c.eat("reset") {
        let name = if c.eat("all") { None } else { Some(setting_name(c)?) };
        return Ok(Utility::AlterSystem(name, None));
    }
    c.expect("set")?;
    let name = setting_name(c)?;
    if !c.eat_token(&Token::Eq) && !c.eat("to") {
        return Err(c.error());
    }
    if c.eat("default") {
        return Ok(Utility::AlterSystem(Some(name), None));
    }
    let mut values = vec![set_value(c, false)?];
    while c.eat_token(&Token::Comma) {
        values.push(set_value(c, false)?);
    }
    Ok(Utility::AlterSystem(Some(name), Some(values.join(", "))))
}

fn set_constraints(c: &mut Cursor<'_>) -> Result<Utility> {
    let mut names = None;
    if !c.eat("all") {
        let mut list = vec![c.object_name()?];
        while c.eat_token(&Token::Comma) {
            list.push(c.object_name()?);
        }
        names = Some(list);
    }
    if c.eat("deferred") {
        return Ok(Utility::SetConstraints(names, true));
    }
    c.expect("immediate")?;
    Ok(Utility::SetConstraints(names, false))
}

fn is_to(t: &TokenWithSpan) -> bool {
    matches!(&t.token, Token::Word(w) if w.value.eq_ignore_ascii_case("to"))
}

/// A value; one of a list of names is written as a name.
fn set_value(c: &mut Cursor<'_>, in_list: bool) -> Result<String> {
    let minus = c.eat_token(&Token::Minus);
    let text = match c.peek() {
        Some(Token::Word(w)) if in_list && w.quote_style.is_none() => quoted(&w.value.to_lowercase()),
        Some(Token::Word(w)) if in_list => quoted(&w.value),
        Some(Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s)) if in_list => quoted(s),
        Some(Token::Word(w)) => w.value.clone(),
        Some(Token::Number(n, _)) => n.clone(),
        Some(Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s)) => s.clone(),
        _ => return Err(c.error()),
    };
    c.at += 1;
    Ok(if minus { format!("-{text}") } else { text })
}

fn discard(c: &mut Cursor<'_>) -> Result<Utility> {
    if c.eat("all") {
        return Ok(Utility::Discard(true));
    }
    if ["plans", "sequences", "temp", "temporary"].iter().any(|w| c.eat(w)) {
        return Ok(Utility::Discard(false));
    }
    Err(c.error())
}

fn prepare(c: &mut Cursor<'_>) -> Result<Utility> {
    let name = c.name()?;
    let mut types = Vec::new();
    if c.eat_token(&Token::LParen) {
        let mut parser = parse::parser_over(&c.tokens[c.at..]);
        let before = c.at;
        let list = parser.parse_comma_separated(sqlparser::parser::Parser::parse_data_type);
        types = list.map_err(|_| c.error())?;
        c.at = before + consumed(&c.tokens[before..], &parser);
        c.expect_token(&Token::RParen)?;
    }
    c.expect("as")?;
    Ok(Utility::Prepare(name, types, c.rest()?))
}

/// How many tokens a parser over `tokens` has taken.
fn consumed(tokens: &[TokenWithSpan], parser: &sqlparser::parser::Parser<'_>) -> usize {
    let next = parser.peek_token_ref();
    tokens.iter().position(|t| t.span == next.span && t.token == next.token).unwrap_or(tokens.len())
}

fn execute(c: &mut Cursor<'_>) -> Result<Utility> {
    let name = c.name()?;
    let mut arguments = Vec::new();
    if c.eat_token(&Token::LParen) && !c.eat_token(&Token::RParen) {
        let mut parser = parse::parser_over(&c.tokens[c.at..]);
        let list = parser.parse_comma_separated(sqlparser::parser::Parser::parse_expr);
        arguments = list.map_err(|_| c.error())?;
        c.at += consumed(&c.tokens[c.at..], &parser);
        c.expect_token(&Token::RParen)?;
    }
    Ok(Utility::Execute(name, arguments))
}
