//! Converts CREATE, ALTER and DROP ROLE, GRANT and REVOKE from the tree of PostgreSQL's parser.
//!
//! This module does not know which roles or objects exist.

use crate::ast;
use crate::names::clipped;
use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterRoleStmt, CreateRoleStmt, DropBehavior, DropRoleStmt, GrantRoleStmt, GrantStmt, GrantTargetType,
    Node, ObjectType, RoleSpec, RoleSpecType, RoleStmtType,
};
use varve_engine::{Rights, Secret};

use super::node::{self, Opt, Source};
use super::{Utility, tag};
use crate::error::{Result, SqlError, SqlState};

/// A role as a command names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleName {
    /// A role by its name.
    Named(String),
    /// CURRENT_USER, CURRENT_ROLE
    Current,
    /// SESSION_USER
    Session,
    /// PUBLIC, which is everybody.
    Public,
}

/// An option of CREATE and ALTER ROLE.
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
    /// PASSWORD. `None` removes the password.
    Password(Option<Secret>),
    /// VALID UNTIL
    ValidUntil(String),
    /// IN ROLE
    MemberOf(Vec<RoleName>),
    /// ROLE (false) or ADMIN (true): the roles that become members of the new role.
    Members(Vec<RoleName>, bool),
}

/// The objects of GRANT and REVOKE.
#[derive(Debug, Clone)]
pub enum Objects {
    /// Tables and views. Sequences can be named in this way, too.
    Tables(Vec<ast::ObjectName>),
    /// Sequences.
    Sequences(Vec<ast::ObjectName>),
    /// Schemas.
    Schemas(Vec<String>),
    /// Databases.
    Databases(Vec<String>),
    /// All tables and views of schemas.
    AllTables(Vec<String>),
    /// All sequences of schemas.
    AllSequences(Vec<String>),
}

/// GRANT or REVOKE of rights on objects.
#[derive(Debug, Clone)]
pub struct GrantObjects {
    /// Whether the command is GRANT. Otherwise it is REVOKE.
    pub grants: bool,
    /// The rights. `None` means ALL.
    pub rights: Option<Rights>,
    /// The objects.
    pub objects: Objects,
    /// The roles that get or lose the rights.
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
    /// ALTER GROUP ... ADD USER, DROP USER
    Group {
        /// Whether the command is ADD. Otherwise it is DROP.
        adds: bool,
        /// The group.
        group: String,
        /// The roles that become members, or are members no longer.
        members: Vec<RoleName>,
    },
    /// DROP ROLE [IF EXISTS]
    Drop(Vec<RoleName>, bool),
    /// Rights on objects.
    Objects(Box<GrantObjects>),
    /// GRANT or REVOKE of membership in roles.
    Membership {
        /// Whether the command is GRANT. Otherwise it is REVOKE.
        grants: bool,
        /// The roles in which membership is granted or revoked.
        roles: Vec<String>,
        /// The members.
        members: Vec<RoleName>,
        /// WITH ADMIN OPTION, ADMIN OPTION FOR
        option: bool,
    },
}

impl RoleCommand {
    /// Returns the command's name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            RoleCommand::Create(..) => "CREATE ROLE",
            RoleCommand::Alter(..) | RoleCommand::Rename(..) | RoleCommand::Group { .. } => "ALTER ROLE",
            RoleCommand::Drop(..) => "DROP ROLE",
            RoleCommand::Objects(change) if change.grants => "GRANT",
            RoleCommand::Objects(_) => "REVOKE",
            RoleCommand::Membership { grants: true, .. } => "GRANT ROLE",
            RoleCommand::Membership { .. } => "REVOKE ROLE",
        }
    }
}

fn command(command: RoleCommand) -> Utility {
    Utility::Role(Box::new(command))
}

/// Converts CREATE ROLE, USER, GROUP.
pub(super) fn create(source: Source<'_>, c: &CreateRoleStmt) -> Result<Utility> {
    let name = new_name(&c.role)?;
    let mut options = role_options(source, &c.options)?;
    let is_user = c.stmt_type() == RoleStmtType::RolestmtUser;
    if is_user && !options.iter().any(|o| matches!(o, RoleOption::LogsIn(_))) {
        options.push(RoleOption::LogsIn(true));
    }
    Ok(command(RoleCommand::Create(name, options)))
}

/// Checks that a role may get this name.
fn new_name(name: &str) -> Result<String> {
    if name.starts_with("pg_") {
        let message = format!("role name \"{name}\" is reserved");
        return Err(SqlError::new(SqlState::RESERVED_NAME, message)
            .with_detail("Role names starting with \"pg_\" are reserved."));
    }
    Ok(clipped(name.to_owned()))
}

/// Converts ALTER ROLE, ALTER GROUP.
pub(super) fn alter(source: Source<'_>, a: &AlterRoleStmt) -> Result<Utility> {
    let role = role_name(a.role.as_ref())?;
    let options = role_options(source, &a.options)?;
    // ALTER GROUP ... ADD USER, DROP USER
    if let [RoleOption::Members(members, _)] = &options[..] {
        let RoleName::Named(group) = role else {
            return Err(SqlError::unsupported("ALTER GROUP CURRENT_USER"));
        };
        return Ok(command(RoleCommand::Group { adds: a.action > 0, group, members: members.clone() }));
    }
    Ok(command(RoleCommand::Alter(role, options)))
}

/// Converts ALTER ROLE ... RENAME TO.
pub(super) fn rename(from: &str, to: &str) -> Result<Utility> {
    Ok(command(RoleCommand::Rename(clipped(from.to_owned()), new_name(to)?)))
}

/// Converts DROP ROLE, USER, GROUP.
pub(super) fn drop(d: &DropRoleStmt) -> Result<Utility> {
    Ok(command(RoleCommand::Drop(role_names(&d.roles)?, d.missing_ok)))
}

fn role_options(source: Source<'_>, list: &[Node]) -> Result<Vec<RoleOption>> {
    let mut options: Vec<RoleOption> = Vec::new();
    for given in node::options(list)? {
        let Some(option) = option(given)? else { continue };
        if options.iter().any(|o| is_same(o, &option)) {
            return Err(node::redundant(given.position(source)));
        }
        options.push(option);
    }
    Ok(options)
}

fn is_same(one: &RoleOption, other: &RoleOption) -> bool {
    match (one, other) {
        (RoleOption::Members(_, one), RoleOption::Members(_, other)) => one == other,
        _ => std::mem::discriminant(one) == std::mem::discriminant(other),
    }
}

/// Converts one option. Returns `None` if it has no effect.
fn option(given: Opt<'_>) -> Result<Option<RoleOption>> {
    let members = || match given.value() {
        Some(NodeEnum::List(list)) => role_names(&list.items),
        other => Err(node::unexpected("roles", other)),
    };
    Ok(Some(match given.name() {
        "superuser" => RoleOption::Superuser(given.flag()?),
        "createdb" => RoleOption::MakesDatabases(given.flag()?),
        "createrole" => RoleOption::MakesRoles(given.flag()?),
        "inherit" => RoleOption::Inherits(given.flag()?),
        "canlogin" => RoleOption::LogsIn(given.flag()?),
        "isreplication" => RoleOption::Replicates(given.flag()?),
        "bypassrls" => RoleOption::BypassesRowSecurity(given.flag()?),
        "password" => RoleOption::Password(given.text().map(Into::into)),
        "validUntil" => RoleOption::ValidUntil(given.needed_text()?),
        // -1 means no limit. Varve does not support other values.
        "connectionlimit" if given.number() == Some(-1) => return Ok(None),
        "connectionlimit" => return Err(SqlError::unsupported("CONNECTION LIMIT")),
        "sysid" => return Ok(None),
        "addroleto" => RoleOption::MemberOf(members()?),
        "rolemembers" => RoleOption::Members(members()?, false),
        "adminmembers" => RoleOption::Members(members()?, true),
        other => return Err(SqlError::internal(format!("a role's option {other}"))),
    }))
}

fn role_names(list: &[Node]) -> Result<Vec<RoleName>> {
    let one = |node: &Node| match &node.node {
        Some(NodeEnum::RoleSpec(role)) => role_name(Some(role)),
        other => Err(node::unexpected("a role", other.as_ref())),
    };
    list.iter().map(one).collect()
}

/// Converts the name of a role.
pub(super) fn role_name(role: Option<&RoleSpec>) -> Result<RoleName> {
    let Some(role) = role else { return Err(SqlError::internal("a command without its role")) };
    Ok(match role.roletype() {
        RoleSpecType::RolespecCstring => RoleName::Named(clipped(role.rolename.clone())),
        RoleSpecType::RolespecSessionUser => RoleName::Session,
        RoleSpecType::RolespecPublic => RoleName::Public,
        _ => RoleName::Current,
    })
}

/// Converts GRANT and REVOKE of membership.
pub(super) fn membership(g: &GrantRoleStmt) -> Result<Utility> {
    let mut option = false;
    for given in node::options(&g.opt)? {
        match given.name() {
            "admin" => option = given.flag()?,
            other => return Err(SqlError::unsupported(format!("GRANT ... WITH {}", other.to_uppercase()))),
        }
    }
    granted_by(g.grantor.as_ref())?;
    let roles = privileges(&g.granted_roles)?.into_iter().map(clipped).collect();
    let members = role_names(&g.grantee_roles)?;
    Ok(command(RoleCommand::Membership { grants: g.is_grant, roles, members, option }))
}

/// Checks GRANTED BY. As in PostgreSQL, only CURRENT_USER is allowed.
fn granted_by(grantor: Option<&RoleSpec>) -> Result<()> {
    match grantor.map(|role| role_name(Some(role))).transpose()? {
        None | Some(RoleName::Current) => Ok(()),
        Some(_) => Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "grantor must be current user")),
    }
}

/// Converts GRANT and REVOKE of rights on objects.
pub(super) fn grant(g: &GrantStmt) -> Result<Utility> {
    let objects = objects(g)?;
    let grantees = role_names(&g.grantees)?;
    granted_by(g.grantor.as_ref())?;
    Ok(command(RoleCommand::Objects(Box::new(GrantObjects {
        grants: g.is_grant,
        rights: rights(&g.privileges)?,
        objects,
        grantees,
        option: g.grant_option,
        cascade: g.behavior() == DropBehavior::DropCascade,
    }))))
}

/// Returns the words before ON or TO.
fn privileges(list: &[Node]) -> Result<Vec<String>> {
    let one = |node: &Node| match &node.node {
        Some(NodeEnum::AccessPriv(access)) if access.cols.is_empty() => Ok(access.priv_name.clone()),
        Some(NodeEnum::AccessPriv(_)) => Err(SqlError::unsupported("rights on columns")),
        other => Err(node::unexpected("a right", other.as_ref())),
    };
    list.iter().map(one).collect()
}

/// Returns the rights in a list of words. `None` means ALL.
fn rights(list: &[Node]) -> Result<Option<Rights>> {
    if list.is_empty() {
        return Ok(None);
    }
    let mut rights = Rights::default();
    for word in privileges(list)? {
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
            "connect" => Rights::CONNECT,
            "temporary" | "temp" => Rights::TEMPORARY,
            other => return Err(node::syntax(format!("unrecognized privilege type \"{other}\""))),
        });
    }
    Ok(Some(rights))
}

fn objects(g: &GrantStmt) -> Result<Objects> {
    let is_all = g.targtype() == GrantTargetType::AclTargetAllInSchema;
    Ok(match (g.objtype(), is_all) {
        (ObjectType::ObjectTable, true) => Objects::AllTables(node::strings(&g.objects)?),
        (ObjectType::ObjectSequence, true) => Objects::AllSequences(node::strings(&g.objects)?),
        (ObjectType::ObjectTable, false) => Objects::Tables(node::relations(&g.objects)?),
        (ObjectType::ObjectSequence, false) => Objects::Sequences(node::relations(&g.objects)?),
        (ObjectType::ObjectDatabase, _) => Objects::Databases(node::strings(&g.objects)?),
        (ObjectType::ObjectSchema, _) => Objects::Schemas(node::strings(&g.objects)?),
        (other, _) => {
            return Err(SqlError::unsupported(format!("GRANT or REVOKE ON {}", tag::kind(other))));
        }
    })
}
