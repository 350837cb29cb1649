//! CREATE, ALTER and DROP ROLE, GRANT and REVOKE, read from tokens.
//!
//! Does not know: which roles and objects there are.

use sqlparser::ast;
use sqlparser::tokenizer::Token;
use varve_engine::{Rights, Secret};

use super::{Cursor, Utility};
use crate::error::{Result, SqlError, SqlState};

/// A role as a command names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleName {
    /// By its name.
    Named(String),
    /// CURRENT_USER, CURRENT_ROLE
    Current,
    /// SESSION_USER
    Session,
    /// PUBLIC, which is everybody.
    Public,
}

/// What CREATE and ALTER ROLE may say of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleOption {
    /// [NO]SUPERUSER
    Superuser(bool),
    /// [NO]CREATEDB
    MakesDatabases(bool),
    /// [NO]CREATEROLE
    MakesRoles(bool),
    /// [NO]INHERIT
    Inherits(bool),
    /// [NO]LOGIN
    LogsIn(bool),
    /// [NO]REPLICATION
    Replicates(bool),
    /// [NO]BYPASSRLS
    BypassesRowSecurity(bool),
    /// PASSWORD; `None` takes it away.
    Password(Option<Secret>),
    /// VALID UNTIL
    ValidUntil(String),
    /// IN ROLE
    MemberOf(Vec<RoleName>),
    /// ROLE (false), ADMIN (true): who becomes a member of it.
    Members(Vec<RoleName>, bool),
}

/// What GRANT and REVOKE are about.
#[derive(Debug, Clone)]
pub enum Objects {
    /// Tables and views; a sequence is found by this, too.
    Tables(Vec<ast::ObjectName>),
    /// Sequences.
    Sequences(Vec<ast::ObjectName>),
    /// Schemas.
    Schemas(Vec<String>),
    /// All tables and views of schemas.
    AllTables(Vec<String>),
    /// All sequences of schemas.
    AllSequences(Vec<String>),
}

/// GRANT or REVOKE of rights on objects.
#[derive(Debug, Clone)]
pub struct GrantObjects {
    /// GRANT rather than REVOKE.
    pub grants: bool,
    /// What may be done; `None` is ALL.
    pub rights: Option<Rights>,
    /// On what.
    pub objects: Objects,
    /// To or from whom.
    pub grantees: Vec<RoleName>,
    /// WITH GRANT OPTION, or GRANT OPTION FOR
    pub option: bool,
    /// CASCADE
    pub cascade: bool,
}

/// A command about roles.
#[derive(Debug, Clone)]
pub enum RoleCommand {
    /// CREATE ROLE, USER (which logs in), GROUP
    Create(String, Vec<RoleOption>),
    /// ALTER ROLE
    Alter(RoleName, Vec<RoleOption>),
    /// ALTER ROLE ... RENAME TO
    Rename(String, String),
    /// DROP ROLE [IF EXISTS]
    Drop(Vec<RoleName>, bool),
    /// Rights on objects.
    Objects(Box<GrantObjects>),
    /// Membership: roles, whom, whether granted, the admin option.
    Membership {
        /// GRANT rather than REVOKE.
        grants: bool,
        /// The roles to become a member of.
        roles: Vec<String>,
        /// Who becomes a member.
        members: Vec<RoleName>,
        /// WITH ADMIN OPTION, ADMIN OPTION FOR
        option: bool,
    },
}

/// Reads a command about roles; `None` (and nothing read) if the words after the verb say that it is none.
pub(super) fn read(c: &mut Cursor<'_>, verb: &str) -> Result<Option<Utility>> {
    let start = c.at;
    let command = match verb {
        "grant" => grant(c)?,
        "revoke" => revoke(c)?,
        "create" | "alter" | "drop" => {
            let Some(kind @ ("role" | "user" | "group")) = c.word().as_deref().map(kind_of) else {
                c.at = start;
                return Ok(None);
            };
            match verb {
                "create" => create(c, kind == "user")?,
                "alter" => alter(c)?,
                _ => drop_roles(c)?,
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(Utility::Role(Box::new(command))))
}

fn kind_of(word: &str) -> &'static str {
    match word {
        "role" => "role",
        "user" => "user",
        "group" => "group",
        _ => "",
    }
}

/// SET ROLE: `None` is NONE.
pub(super) fn role_or_none(c: &mut Cursor<'_>, none: &str) -> Result<Option<String>> {
    if c.eat(none) {
        return Ok(None);
    }
    match c.peek() {
        Some(Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_)) => {
            let name = c.string()?;
            Ok((name != none).then_some(name))
        }
        _ => c.name().map(Some),
    }
}

fn create(c: &mut Cursor<'_>, logs_in: bool) -> Result<RoleCommand> {
    let name = new_name(c)?;
    c.eat("with");
    let mut options = options(c, true)?;
    if logs_in && !options.iter().any(|o| matches!(o, RoleOption::LogsIn(_))) {
        options.push(RoleOption::LogsIn(true));
    }
    Ok(RoleCommand::Create(name, options))
}

/// A name that a role may get.
fn new_name(c: &mut Cursor<'_>) -> Result<String> {
    let name = match role_name(c)? {
        RoleName::Named(name) => name,
        other => return Err(reserved(&other)),
    };
    if name.starts_with("pg_") {
        let message = format!("role name \"{name}\" is reserved");
        return Err(SqlError::new(SqlState::RESERVED_NAME, message)
            .with_detail("Role names starting with \"pg_\" are reserved."));
    }
    Ok(name)
}

fn reserved(name: &RoleName) -> SqlError {
    let message = match name {
        RoleName::Public => "role name \"public\" is reserved",
        RoleName::Session => "SESSION_USER cannot be used as a role name here",
        _ => "CURRENT_USER cannot be used as a role name here",
    };
    SqlError::new(SqlState::RESERVED_NAME, message)
}

fn alter(c: &mut Cursor<'_>) -> Result<RoleCommand> {
    let role = role_name(c)?;
    if c.eat("rename") {
        c.expect("to")?;
        let RoleName::Named(from) = role else { return Err(reserved(&role)) };
        return Ok(RoleCommand::Rename(from, new_name(c)?));
    }
    if c.eat("set") || c.eat("reset") || c.eat("in") {
        return Err(SqlError::unsupported("ALTER ROLE ... SET"));
    }
    c.eat("with");
    Ok(RoleCommand::Alter(role, options(c, false)?))
}

fn drop_roles(c: &mut Cursor<'_>) -> Result<RoleCommand> {
    let if_exists = c.eat("if");
    if if_exists {
        c.expect("exists")?;
    }
    Ok(RoleCommand::Drop(role_names(c)?, if_exists))
}

fn options(c: &mut Cursor<'_>, creates: bool) -> Result<Vec<RoleOption>> {
    let mut options: Vec<RoleOption> = Vec::new();
    while c.peek().is_some() {
        let Some(option) = option(c, creates)? else { continue };
        if options.iter().any(|o| std::mem::discriminant(o) == std::mem::discriminant(&option)) {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options"));
        }
        options.push(option);
    }
    Ok(options)
}

/// One option; `None` for one that has no effect.
fn option(c: &mut Cursor<'_>, creates: bool) -> Result<Option<RoleOption>> {
    let start = c.at;
    let Some(word) = c.word() else { return Err(c.error()) };
    let (bare, on) = match word.strip_prefix("no") {
        Some(bare) => (bare, false),
        None => (word.as_str(), true),
    };
    Ok(Some(match bare {
        "superuser" => RoleOption::Superuser(on),
        "createdb" => RoleOption::MakesDatabases(on),
        "createrole" => RoleOption::MakesRoles(on),
        "inherit" => RoleOption::Inherits(on),
        "login" => RoleOption::LogsIn(on),
        "replication" => RoleOption::Replicates(on),
        "bypassrls" => RoleOption::BypassesRowSecurity(on),
        "encrypted" if on => {
            c.expect("password")?;
            RoleOption::Password(Some(c.string()?.into()))
        }
        "password" if on => RoleOption::Password(if c.eat("null") { None } else { Some(c.string()?.into()) }),
        "valid" if on => {
            c.expect("until")?;
            RoleOption::ValidUntil(c.string()?)
        }
        "connection" if on => {
            c.expect("limit")?;
            no_limit(c)?;
            return Ok(None);
        }
        "sysid" if creates && on => {
            number(c)?;
            return Ok(None);
        }
        "in" if creates && on && (c.eat("role") || c.eat("group")) => RoleOption::MemberOf(role_names(c)?),
        "role" | "user" if creates && on => RoleOption::Members(role_names(c)?, false),
        "admin" if creates && on => RoleOption::Members(role_names(c)?, true),
        _ => {
            c.at = start;
            let message = format!("unrecognized role option \"{word}\"");
            return Err(SqlError { message: message.into(), ..c.error() });
        }
    }))
}

/// CONNECTION LIMIT -1, which is none; others are not kept.
fn no_limit(c: &mut Cursor<'_>) -> Result<()> {
    let minus = c.eat_token(&Token::Minus);
    if number(c)? == "1" && minus {
        return Ok(());
    }
    Err(SqlError::unsupported("CONNECTION LIMIT"))
}

fn number(c: &mut Cursor<'_>) -> Result<String> {
    let Some(Token::Number(number, _)) = c.peek().cloned() else { return Err(c.error()) };
    c.at += 1;
    Ok(number)
}

fn role_names(c: &mut Cursor<'_>) -> Result<Vec<RoleName>> {
    let mut names = vec![role_name(c)?];
    while c.eat_token(&Token::Comma) {
        names.push(role_name(c)?);
    }
    Ok(names)
}

fn role_name(c: &mut Cursor<'_>) -> Result<RoleName> {
    for (word, name) in [
        ("current_user", RoleName::Current),
        ("current_role", RoleName::Current),
        ("session_user", RoleName::Session),
        ("public", RoleName::Public),
    ] {
        if c.eat(word) {
            return Ok(name);
        }
    }
    let name = c.name()?;
    match name.as_str() {
        "public" => Ok(RoleName::Public),
        "none" => Err(SqlError::new(SqlState::RESERVED_NAME, "role name \"none\" is reserved")),
        _ => Ok(RoleName::Named(crate::bind::clipped(name))),
    }
}

fn grant(c: &mut Cursor<'_>) -> Result<RoleCommand> {
    let what = what(c)?;
    if !c.eat("on") {
        c.expect("to")?;
        let members = role_names(c)?;
        let option = with_option(c, "admin")?;
        return Ok(RoleCommand::Membership { grants: true, roles: what.roles()?, members, option });
    }
    let objects = objects(c)?;
    c.expect("to")?;
    let grantees = grantees(c)?;
    let option = with_option(c, "grant")?;
    let rights = what.rights()?;
    let grant = GrantObjects { grants: true, rights, objects, grantees, option, cascade: false };
    Ok(RoleCommand::Objects(Box::new(grant)))
}

fn with_option(c: &mut Cursor<'_>, kind: &str) -> Result<bool> {
    let with = c.eat("with");
    if with {
        c.expect(kind)?;
        c.expect("option")?;
    }
    granted_by(c)?;
    Ok(with)
}

/// GRANTED BY CURRENT_USER, the only grantor that PostgreSQL takes.
fn granted_by(c: &mut Cursor<'_>) -> Result<()> {
    if !c.eat("granted") {
        return Ok(());
    }
    c.expect("by")?;
    match role_name(c)? {
        RoleName::Current => Ok(()),
        _ => Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "grantor must be current user")),
    }
}

fn revoke(c: &mut Cursor<'_>) -> Result<RoleCommand> {
    let start = c.at;
    let option = (c.eat("grant") || c.eat("admin")) && c.eat("option") && c.eat("for");
    if !option {
        c.at = start;
    }
    let what = what(c)?;
    if !c.eat("on") {
        c.expect("from")?;
        let members = role_names(c)?;
        granted_by(c)?;
        behaviour(c);
        return Ok(RoleCommand::Membership { grants: false, roles: what.roles()?, members, option });
    }
    let objects = objects(c)?;
    c.expect("from")?;
    let grantees = grantees(c)?;
    granted_by(c)?;
    let cascade = behaviour(c);
    let rights = what.rights()?;
    Ok(RoleCommand::Objects(Box::new(GrantObjects {
        grants: false,
        rights,
        objects,
        grantees,
        option,
        cascade,
    })))
}

/// CASCADE, or RESTRICT, which is the default.
fn behaviour(c: &mut Cursor<'_>) -> bool {
    let cascade = c.eat("cascade");
    if !cascade {
        c.eat("restrict");
    }
    cascade
}

fn grantees(c: &mut Cursor<'_>) -> Result<Vec<RoleName>> {
    let mut names = Vec::new();
    loop {
        c.eat("group");
        names.push(role_name(c)?);
        if !c.eat_token(&Token::Comma) {
            return Ok(names);
        }
    }
}

/// The words before ON or TO: rights, or roles.
struct What(Vec<String>);

fn what(c: &mut Cursor<'_>) -> Result<What> {
    let mut words = Vec::new();
    loop {
        let word = c.name()?;
        if word == "all" {
            c.eat("privileges");
        }
        words.push(word);
        if c.peek() == Some(&Token::LParen) {
            return Err(SqlError::unsupported("rights on columns"));
        }
        if !c.eat_token(&Token::Comma) {
            return Ok(What(words));
        }
    }
}

impl What {
    fn rights(self) -> Result<Option<Rights>> {
        if self.0 == ["all"] {
            return Ok(None);
        }
        let mut rights = Rights::default();
        for word in self.0 {
            rights = rights.with(match word.as_str() {
                "select" => Rights::SELECT,
                "insert" => Rights::INSERT,
                "update" => Rights::UPDATE,
                "delete" => Rights::DELETE,
                "truncate" => Rights::TRUNCATE,
                "references" => Rights::REFERENCES,
                "trigger" => Rights::TRIGGER,
                "usage" => Rights::USAGE,
                "create" => Rights::CREATE,
                other => {
                    let message = format!("unrecognized privilege type \"{other}\"");
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
            });
        }
        Ok(Some(rights))
    }

    fn roles(self) -> Result<Vec<String>> {
        Ok(self.0)
    }
}

fn objects(c: &mut Cursor<'_>) -> Result<Objects> {
    if c.eat("all") {
        let tables = c.eat("tables");
        if !tables {
            c.expect("sequences")?;
        }
        c.expect("in")?;
        c.expect("schema")?;
        let schemas = names(c)?;
        return Ok(if tables { Objects::AllTables(schemas) } else { Objects::AllSequences(schemas) });
    }
    if c.eat("schema") {
        return names(c).map(Objects::Schemas);
    }
    if c.eat("sequence") {
        return object_names(c).map(Objects::Sequences);
    }
    for kind in ["database", "function", "procedure", "routine", "language", "type", "domain", "tablespace"] {
        if c.eat(kind) {
            return Err(SqlError::unsupported(format!("GRANT or REVOKE ON {}", kind.to_uppercase())));
        }
    }
    c.eat("table");
    object_names(c).map(Objects::Tables)
}

fn names(c: &mut Cursor<'_>) -> Result<Vec<String>> {
    let mut names = vec![c.name()?];
    while c.eat_token(&Token::Comma) {
        names.push(c.name()?);
    }
    Ok(names)
}

fn object_names(c: &mut Cursor<'_>) -> Result<Vec<ast::ObjectName>> {
    let mut names = vec![c.object_name()?];
    while c.eat_token(&Token::Comma) {
        names.push(c.object_name()?);
    }
    Ok(names)
}
