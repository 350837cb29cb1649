//! Runs CREATE, ALTER and DROP ROLE, GRANT and REVOKE.
//!
//! Invariants
//! 1. A command checks everything that it names before it changes anything.
//! 2. A password is converted to a verifier here and is not stored.
//!
//! This module does not know how roles are stored (`engine`) or how a client proves its password
//! (`varve-server`).

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_engine::{
    About, BOOTSTRAP_ROLE, Catalog, Grant, Membership, ObjectId, Rights, RoleDef, Secret, Transaction, Value,
    predefined,
};

use super::Session;
use super::authorize::grantable;
use crate::error::{Result, SqlError, SqlState};
use crate::exec::notice::Failed;
use crate::rights::{Holder, Kind, Object, denied, grant, is_circular, memberships, no_role, revoke};
use crate::scram::Verifier;
use crate::sink::Severity;
use crate::system::tablespaces::owner_of;
use crate::utility::role::{GrantObjects, Objects, RoleCommand, RoleName, RoleOption};

/// The result of a command about roles. `Failed::Stale` means that the command must be run again.
pub(super) type Done<T> = Result<T, Failed>;

impl Session {
    /// Runs a command about roles. If another transaction has changed the same objects, the command is run
    /// again from its start.
    pub(super) fn role_command(&mut self, command: &RoleCommand) -> Result<&'static str> {
        self.in_turns(command.name(), &mut |session| session.changed_roles(command))
    }

    /// Runs a change of the catalog. If another transaction has changed the same objects, the change is run
    /// again from its start. `name` is the command's name in messages.
    pub(super) fn in_turns(
        &mut self,
        name: &str,
        change: &mut dyn FnMut(&mut Session) -> Done<&'static str>,
    ) -> Result<&'static str> {
        if self.read_only {
            return Err(SqlError::read_only(name));
        }
        self.begin_engine();
        let noticed = self.notices.len();
        loop {
            self.facts.check_cancel()?;
            let start = {
                let txn = self.transaction()?;
                txn.start_statement();
                txn.savepoint()
            };
            self.catalog = None;
            let done = change(self);
            self.catalog = None;
            let txn = self.transaction()?;
            if matches!(done, Err(Failed::Stale)) {
                txn.rollback_to(start)?;
            }
            txn.release(start)?;
            match done {
                Ok(tag) => return Ok(tag),
                Err(Failed::Error(e)) => return Err(e),
                Err(Failed::Stale) => self.notices.truncate(noticed),
            }
        }
    }

    fn changed_roles(&mut self, command: &RoleCommand) -> Done<&'static str> {
        match command {
            RoleCommand::Create(name, options) => self.create_role(name, options),
            RoleCommand::Alter(role, options) => self.alter_role(role, options),
            RoleCommand::Rename(from, to) => self.rename_role(from, to),
            RoleCommand::Group { adds, group, members } => {
                self.change_members(*adds, std::slice::from_ref(group), members, false)?;
                Ok("ALTER ROLE")
            }
            RoleCommand::Drop(names, if_exists) => self.drop_roles(names, *if_exists),
            RoleCommand::Objects(grant) => self.grant_objects(grant),
            RoleCommand::Membership { grants, roles, members, option } => {
                self.change_members(*grants, roles, members, *option)
            }
        }
    }

    pub(super) fn rights(&mut self) -> Result<(Arc<Catalog>, Holder)> {
        let catalog = self.transaction()?.catalog();
        let holder = Holder::of(&catalog, self.facts.who);
        Ok((catalog, holder))
    }

    /// Keeps a role from being dropped until the transaction ends.
    pub(super) fn hold_role(&mut self, role: ObjectId) -> Result<()> {
        Ok(self.transaction()?.hold_role(role)?)
    }

    pub(super) fn transaction(&mut self) -> Result<&mut Transaction> {
        self.txn.as_mut().ok_or_else(|| SqlError::internal("no transaction"))
    }

    /// Returns whether the session's role may create and change roles that are not superusers.
    fn makes_roles(&self, catalog: &Catalog, holder: &Holder) -> bool {
        let own = self.facts.who.and_then(|id| catalog.role_by_id(id));
        holder.is_superuser() || own.is_some_and(|role| role.makes_roles)
    }

    fn create_role(&mut self, name: &str, options: &[RoleOption]) -> Done<&'static str> {
        let (catalog, holder) = self.rights()?;
        if !self.makes_roles(&catalog, &holder) {
            return Err(denied("permission denied to create role").into());
        }
        if !holder.is_superuser()
            && let Some(what) = options.iter().find_map(superusers_only)
        {
            return Err(denied(format!("must be superuser to create {what}")).into());
        }
        check_not_reserved(name)?;
        if catalog.role(name).is_some() {
            let message = format!("role \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message).into());
        }
        self.check_groups(&catalog, &holder, options)?;
        let mut role = RoleDef::new(name);
        self.apply_options(&mut role, options)?;
        let id = self.transaction()?.create_role(role)?;
        for option in options {
            match option {
                RoleOption::MemberOf(groups) => {
                    let groups = self.roles_named(groups)?;
                    self.join(&groups, &[id], false)?;
                }
                RoleOption::Members(members, admin) => {
                    let members = self.roles_named(members)?;
                    self.join(&[id], &members, *admin)?;
                }
                _ => {}
            }
        }
        Ok("CREATE ROLE")
    }

    /// Checks the rights for IN ROLE, which makes the new role a member. So it needs the same rights as
    /// GRANT.
    fn check_groups(&mut self, catalog: &Catalog, holder: &Holder, options: &[RoleOption]) -> Result<()> {
        for option in options {
            let RoleOption::MemberOf(groups) = option else { continue };
            for group in self.roles_named(groups)? {
                self.check_admin(catalog, holder, role_of(catalog, group)?)?;
            }
        }
        Ok(())
    }

    fn alter_role(&mut self, role: &RoleName, options: &[RoleOption]) -> Done<&'static str> {
        let id = self.role_named(role)?;
        let (catalog, holder) = self.rights()?;
        let old = role_of(&catalog, id)?;
        if old.is_predefined() {
            return Err(reserved(&old.name, "Cannot alter reserved roles.").into());
        }
        if id == BOOTSTRAP_ROLE && options.iter().any(|o| matches!(o, RoleOption::Superuser(false))) {
            return Err(denied("permission denied to alter role")
                .with_detail("The bootstrap user must have the SUPERUSER attribute.")
                .into());
        }
        if !holder.is_superuser() {
            if old.is_superuser || options.iter().any(|o| matches!(o, RoleOption::Superuser(_))) {
                return Err(denied(
                    "must be superuser to alter superuser roles or change superuser attribute",
                )
                .into());
            }
            if let Some(what) = options.iter().find_map(superusers_only) {
                return Err(denied(format!("must be superuser to alter {what}")).into());
            }
            let own_password = matches!(options, [RoleOption::Password(_)]) && self.facts.who == Some(id);
            if !own_password && !self.makes_roles(&catalog, &holder) {
                return Err(denied("permission denied").into());
            }
        }
        let mut new = RoleDef::clone(old);
        self.apply_options(&mut new, options)?;
        self.transaction()?.alter_role(id, |role| *role = new)?;
        Ok("ALTER ROLE")
    }

    fn rename_role(&mut self, from: &str, to: &str) -> Done<&'static str> {
        let (catalog, holder) = self.rights()?;
        let role = catalog.role(from).ok_or_else(|| no_role(from))?;
        if role.is_predefined() {
            return Err(reserved(from, STARTS_WITH_PG).into());
        }
        check_not_reserved(to)?;
        if Some(role.id) == self.facts.session_who {
            return Err(SqlError::unsupported("renaming the session user").into());
        }
        if role.is_superuser && !holder.is_superuser() {
            return Err(denied("must be superuser to rename superusers").into());
        }
        if !self.makes_roles(&catalog, &holder) {
            return Err(denied("permission denied to rename role").into());
        }
        if catalog.role(to).is_some() {
            let message = format!("role \"{to}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message).into());
        }
        let id = role.id;
        self.transaction()?.alter_role(id, |role| role.name = to.to_owned())?;
        Ok("ALTER ROLE")
    }

    fn drop_roles(&mut self, names: &[RoleName], if_exists: bool) -> Done<&'static str> {
        let (catalog, holder) = self.rights()?;
        if !self.makes_roles(&catalog, &holder) {
            return Err(denied("permission denied to drop role").into());
        }
        let mut gone = Vec::new();
        for name in names {
            let RoleName::Named(name) = name else {
                let message = "cannot use special role specifier in DROP ROLE";
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into());
            };
            let left = catalog.role(name).filter(|role| !gone.iter().any(|g: &Arc<RoleDef>| g.id == role.id));
            match left {
                Some(role) => gone.push(role.clone()),
                None if if_exists => {
                    let message = format!("role \"{name}\" does not exist, skipping");
                    self.notices.push((Severity::Notice, SqlError::new(SqlState("00000"), message)));
                }
                None => return Err(no_role(name).into()),
            }
        }
        // This waits for transactions that create an object for one of the roles, or grant something to it.
        gone.iter().try_for_each(|role| self.transaction()?.lock_role(role.id).map_err(Failed::from))?;
        let (catalog, holder) = self.rights()?;
        for role in &gone {
            self.check_drop(&catalog, &holder, role, &gone)?;
        }
        for role in gone {
            // The role's members may have been dropped just now, so the catalog is read again.
            let (catalog, _) = self.rights()?;
            self.leave_all(&catalog, role.id)?;
            self.transaction()?.drop_role(role.id)?;
        }
        Ok("DROP ROLE")
    }

    fn check_drop(
        &self,
        catalog: &Catalog,
        holder: &Holder,
        role: &RoleDef,
        gone: &[Arc<RoleDef>],
    ) -> Result<()> {
        let in_use =
            |what: &str| SqlError::new(SqlState::OBJECT_IN_USE, format!("{what} user cannot be dropped"));
        if Some(role.id) == self.facts.who {
            return Err(in_use("current"));
        }
        if Some(role.id) == self.facts.session_who {
            return Err(in_use("session"));
        }
        if role.is_superuser && !holder.is_superuser() {
            return Err(denied("must be superuser to drop superusers"));
        }
        if role.id == BOOTSTRAP_ROLE || role.is_predefined() {
            let message =
                format!("cannot drop role {} because it is required by the database system", role.name);
            return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message));
        }
        let mut details = dependents(catalog, role.id, &|id| gone.iter().any(|r| r.id == id));
        let owned = self.shared.engine.tablespaces().into_iter().filter(|one| owner_of(one) == role.id);
        details.extend(owned.map(|one| format!("owner of tablespace {}", one.name)));
        if details.is_empty() {
            return Ok(());
        }
        let message = format!("role \"{}\" cannot be dropped because some objects depend on it", role.name);
        Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).with_detail(details.join("\n")))
    }

    /// Ends all memberships in a role that is dropped.
    fn leave_all(&mut self, catalog: &Catalog, gone: ObjectId) -> Done<()> {
        let is_in = |role: &&Arc<RoleDef>| role.member_of.iter().any(|m| m.role == gone);
        for member in catalog.roles().filter(is_in) {
            self.transaction()?.alter_role(member.id, |role| role.member_of.retain(|m| m.role != gone))?;
        }
        Ok(())
    }

    fn apply_options(&mut self, role: &mut RoleDef, options: &[RoleOption]) -> Result<()> {
        for option in options {
            match option {
                RoleOption::Superuser(on) => role.is_superuser = *on,
                RoleOption::MakesDatabases(on) => role.makes_databases = *on,
                RoleOption::MakesRoles(on) => role.makes_roles = *on,
                RoleOption::Inherits(on) => role.inherits = *on,
                RoleOption::LogsIn(on) => role.may_log_in = *on,
                RoleOption::Replicates(on) => role.replicates = *on,
                RoleOption::BypassesRowSecurity(on) => role.bypasses_row_security = *on,
                RoleOption::Password(password) => role.password = self.verifier(password.as_deref())?,
                RoleOption::ValidUntil(text) => role.valid_until_us = self.valid_until(text)?,
                RoleOption::MemberOf(_) | RoleOption::Members(..) => {}
            }
        }
        Ok(())
    }

    /// Returns the verifier that is stored for a password. If the password is a verifier already, as in the
    /// output of pg_dumpall, it is stored unchanged.
    fn verifier(&mut self, password: Option<&str>) -> Result<Option<Secret>> {
        let Some(password) = password else { return Ok(None) };
        if password.is_empty() {
            let message = "empty string is not a valid password, clearing password";
            self.notices.push((Severity::Notice, SqlError::new(SqlState("00000"), message)));
            return Ok(None);
        }
        if Verifier::parse(password).is_some() {
            return Ok(Some(password.to_owned().into()));
        }
        let is_md5 = password
            .strip_prefix("md5")
            .is_some_and(|hash| hash.len() == 32 && hash.bytes().all(|b| b.is_ascii_hexdigit()));
        if is_md5 {
            return Err(SqlError::unsupported("an MD5 password")
                .with_hint("Give the password itself, or its SCRAM-SHA-256 verifier."));
        }
        Ok(Some(Verifier::of_password(password)?.to_text().into()))
    }

    /// Returns the time of VALID UNTIL in microseconds, or `None` for infinity.
    fn valid_until(&self, text: &str) -> Result<Option<i64>> {
        if text.trim().eq_ignore_ascii_case("infinity") {
            return Ok(None);
        }
        match crate::text::parse_with(text, &varve_engine::ColumnType::TimestampTz, &self.facts.reading())? {
            Value::TimestampTz(us) => Ok(Some(us)),
            _ => Err(SqlError::internal("a time that is none")),
        }
    }

    pub(super) fn role_named(&mut self, name: &RoleName) -> Result<ObjectId> {
        let (catalog, _) = self.rights()?;
        match name {
            RoleName::Named(name) => catalog.role(name).map(|r| r.id).ok_or_else(|| no_role(name)),
            RoleName::Current => self.facts.who.ok_or_else(|| no_role(&self.facts.user)),
            RoleName::Session => self.facts.session_who.ok_or_else(|| no_role(&self.facts.session_user)),
            RoleName::Public => Err(no_role("public")),
        }
    }

    fn roles_named(&mut self, names: &[RoleName]) -> Result<Vec<ObjectId>> {
        names.iter().map(|name| self.role_named(name)).collect()
    }

    /// Runs GRANT and REVOKE of roles.
    fn change_members(
        &mut self,
        grants: bool,
        roles: &[String],
        members: &[RoleName],
        option: bool,
    ) -> Done<&'static str> {
        let (catalog, holder) = self.rights()?;
        let mut groups = Vec::new();
        for name in roles {
            let role = catalog.role(name).ok_or_else(|| no_role(name))?;
            self.check_admin(&catalog, &holder, role)?;
            groups.push(role.id);
        }
        let members = self.roles_named(members)?;
        if grants {
            self.join(&groups, &members, option)?;
            return Ok("GRANT ROLE");
        }
        for member in members {
            for group in &groups {
                self.leave(*group, member, option)?;
            }
        }
        Ok("REVOKE ROLE")
    }

    fn check_admin(&self, catalog: &Catalog, holder: &Holder, role: &RoleDef) -> Result<()> {
        if role.is_superuser && !holder.is_superuser() {
            return Err(denied("must be superuser to alter superusers"));
        }
        let own = self.facts.who.into_iter().flat_map(|id| memberships(catalog, id, &|_| true));
        let is_admin = own
            .filter_map(|id| catalog.role_by_id(id))
            .any(|held| held.member_of.iter().any(|m| m.role == role.id && m.is_admin));
        if is_admin || self.makes_roles(catalog, holder) {
            return Ok(());
        }
        Err(denied(format!("must have admin option on role \"{}\"", role.name)))
    }

    fn join(&mut self, groups: &[ObjectId], members: &[ObjectId], is_admin: bool) -> Done<()> {
        for (group, member) in groups.iter().flat_map(|g| members.iter().map(move |m| (*g, *m))) {
            self.hold_role(group)?;
            self.hold_role(member)?;
            let (catalog, _) = self.rights()?;
            let (group_def, member_def) = (role_of(&catalog, group)?, role_of(&catalog, member)?);
            if group == predefined::DATABASE_OWNER {
                let message = format!("role \"{}\" cannot have explicit members", group_def.name);
                return Err(SqlError::new(SqlState::INVALID_GRANT_OPERATION, message).into());
            }
            if member_def.is_predefined() {
                let what = format!("membership of \"{}\" in another role", member_def.name);
                return Err(SqlError::unsupported(what).into());
            }
            if memberships(&catalog, group, &|_| true).contains(&member) {
                let message =
                    format!("role \"{}\" is a member of role \"{}\"", group_def.name, member_def.name);
                return Err(SqlError::new(SqlState::INVALID_GRANT_OPERATION, message).into());
            }
            let there = member_def.member_of.iter().find(|m| m.role == group);
            if there.is_some_and(|m| m.is_admin || !is_admin) {
                let message = format!(
                    "role \"{}\" is already a member of role \"{}\"",
                    member_def.name, group_def.name
                );
                self.notices.push((Severity::Notice, SqlError::new(SqlState("00000"), message)));
                continue;
            }
            self.transaction()?.alter_role(member, |role| {
                role.member_of.retain(|m| m.role != group);
                role.member_of.push(Membership { role: group, is_admin });
            })?;
        }
        Ok(())
    }

    fn leave(&mut self, group: ObjectId, member: ObjectId, only_admin: bool) -> Done<()> {
        let (catalog, _) = self.rights()?;
        let (group_def, member_def) = (role_of(&catalog, group)?, role_of(&catalog, member)?);
        if !member_def.member_of.iter().any(|m| m.role == group) {
            let message =
                format!("role \"{}\" is not a member of role \"{}\"", member_def.name, group_def.name);
            self.warn(SqlState::WARNING, &message);
            return Ok(());
        }
        self.transaction()?.alter_role(member, |role| match only_admin {
            true => role.member_of.iter_mut().filter(|m| m.role == group).for_each(|m| m.is_admin = false),
            false => role.member_of.retain(|m| m.role != group),
        })?;
        Ok(())
    }

    /// Runs GRANT and REVOKE of rights on objects.
    fn grant_objects(&mut self, command: &GrantObjects) -> Done<&'static str> {
        let (catalog, holder) = self.rights()?;
        let mut grantees = Vec::new();
        for name in &command.grantees {
            grantees.push(match name {
                RoleName::Public if command.option && command.grants => {
                    let message = "grant options can only be granted to roles";
                    return Err(SqlError::new(SqlState::INVALID_GRANT_OPERATION, message).into());
                }
                RoleName::Public => None,
                name => Some(self.role_named(name)?),
            });
        }
        if command.grants {
            grantees.iter().flatten().try_for_each(|role| self.hold_role(*role))?;
        }
        let mut changes = Vec::new();
        for object in objects(&catalog, &holder, &command.objects)? {
            let grants = self.changed_grants(&catalog, &holder, command, &object, &grantees)?;
            changes.push((object, grants));
        }
        for (object, grants) in changes {
            self.transaction()?.set_about(object.id, |about| about.grants = Some(grants))?;
        }
        Ok(if command.grants { "GRANT" } else { "REVOKE" })
    }

    /// Returns the rights on an object after the command.
    fn changed_grants(
        &mut self,
        catalog: &Catalog,
        holder: &Holder,
        command: &GrantObjects,
        object: &Object,
        grantees: &[Option<ObjectId>],
    ) -> Result<Vec<Grant>> {
        let wanted = command.rights.unwrap_or(object.kind.all());
        check_fits(object, wanted)?;
        let (grantor, rights) = holder.grantable(catalog, object, wanted);
        if rights == Rights::default() && !holder.may_any(catalog, object, &each(object.kind.all())) {
            return Err(object.denied());
        }
        self.warn_of_missing(command, object, wanted, rights);
        if !command.grants && !holder.owns(catalog, object) {
            check_columns(catalog, holder, object, wanted)?;
        }
        self.hold_role(grantor)?;
        let mut grants = object.grants(catalog);
        for grantee in grantees.iter().copied() {
            let grantable = if command.option || !command.grants { rights } else { Rights::default() };
            let only_option = command.option && !command.grants;
            let rights = if only_option { Rights::default() } else { rights };
            let entry = Grant { grantee, grantor, rights, grantable };
            if command.grants {
                if is_circular(&grants, &entry, catalog.owner(object.id)) {
                    let message = "grant options cannot be granted back to your own grantor";
                    return Err(SqlError::new(SqlState::INVALID_GRANT_OPERATION, message));
                }
                grant(&mut grants, entry);
            } else if !revoke(&mut grants, entry, command.cascade) {
                return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, "dependent privileges exist")
                    .with_hint("Use CASCADE to revoke them too."));
            }
        }
        Ok(grants)
    }

    fn warn_of_missing(&mut self, command: &GrantObjects, object: &Object, wanted: Rights, rights: Rights) {
        if rights == wanted || (command.rights.is_none() && rights != Rights::default()) {
            return;
        }
        let amount = if rights == Rights::default() { "no" } else { "not all" };
        let name = &object.name;
        let (state, message) = match command.grants {
            true => ("01007", format!("{amount} privileges were granted for \"{name}\"")),
            false => ("01006", format!("{amount} privileges could be revoked for \"{name}\"")),
        };
        self.warn(SqlState(state), &message);
    }
}

/// The detail of the error for role names that begin with "pg_".
const STARTS_WITH_PG: &str = "Role names starting with \"pg_\" are reserved.";

/// Returns the error 42939: the role name is reserved.
fn reserved(name: &str, detail: &str) -> SqlError {
    let message = format!("role name \"{name}\" is reserved");
    SqlError::new(SqlState::RESERVED_NAME, message).with_detail(detail)
}

fn check_not_reserved(name: &str) -> Result<()> {
    if name.starts_with("pg_") { Err(reserved(name, STARTS_WITH_PG)) } else { Ok(()) }
}

/// Returns the word for roles with an option that only a superuser may give, or `None` for other options.
fn superusers_only(option: &RoleOption) -> Option<&'static str> {
    match option {
        RoleOption::Superuser(true) => Some("superusers"),
        RoleOption::Replicates(true) => Some("replication users"),
        RoleOption::BypassesRowSecurity(true) => Some("bypassrls users"),
        _ => None,
    }
}

fn role_of(catalog: &Catalog, id: ObjectId) -> Result<&Arc<RoleDef>> {
    catalog.role_by_id(id).ok_or_else(|| SqlError::internal("a role that is gone"))
}

/// Fails with 0LP01 for a right that objects of this kind do not have.
fn check_fits(object: &Object, rights: Rights) -> Result<()> {
    let wrong = rights.without(object.kind.all());
    let names = [
        (Rights::SELECT, "SELECT"),
        (Rights::INSERT, "INSERT"),
        (Rights::UPDATE, "UPDATE"),
        (Rights::DELETE, "DELETE"),
        (Rights::TRUNCATE, "TRUNCATE"),
        (Rights::REFERENCES, "REFERENCES"),
        (Rights::TRIGGER, "TRIGGER"),
        (Rights::USAGE, "USAGE"),
        (Rights::CREATE, "CREATE"),
        (Rights::CONNECT, "CONNECT"),
        (Rights::TEMPORARY, "TEMPORARY"),
    ];
    match names.iter().find(|(right, _)| wrong.0 & right.0 != 0) {
        None => Ok(()),
        Some((_, name)) => {
            let kind = if object.kind == Kind::View { Kind::Table } else { object.kind };
            let message = format!("invalid privilege type {name} for {}", kind.word());
            Err(SqlError::new(SqlState::INVALID_GRANT_OPERATION, message))
        }
    }
}

/// Fails with 42501 if a REVOKE is also about rights on columns, and the role has no such right on any
/// column.
fn check_columns(catalog: &Catalog, holder: &Holder, object: &Object, wanted: Rights) -> Result<()> {
    let of_columns = Rights::SELECT.with(Rights::INSERT).with(Rights::UPDATE).with(Rights::REFERENCES);
    let is_asked = wanted.0 & of_columns.0 != 0 && !matches!(object.kind, Kind::Schema | Kind::Database);
    if !is_asked || holder.may_any(catalog, object, &each(of_columns)) {
        return Ok(());
    }
    // As in PostgreSQL, the message names the first column. For a table this is a system column. For a view
    // it is the first column of its own, because views have no system columns.
    let first = catalog.view_by_id(object.id).and_then(|view| Some(view.columns.first()?.name.clone()));
    let first = first.unwrap_or_else(|| "tableoid".to_owned());
    Err(denied(format!("permission denied for column \"{first}\" of relation \"{}\"", object.name)))
}

/// Returns the rights of a set, one by one.
fn each(rights: Rights) -> Vec<Rights> {
    (0..16).map(|bit| Rights(1 << bit)).filter(|right| rights.has(*right)).collect()
}

/// Returns the objects that a command names.
fn objects(catalog: &Catalog, holder: &Holder, named: &Objects) -> Result<Vec<Object>> {
    match named {
        Objects::Tables(names) => names.iter().map(|n| grantable(catalog, holder, n)).collect(),
        Objects::Sequences(names) => names.iter().map(|n| sequence(catalog, holder, n)).collect(),
        Objects::Databases(names) => {
            let named = |name: &String| super::database::named(catalog, name);
            names.iter().map(|name| named(name).map(|database| Object::database(&database))).collect()
        }
        Objects::Schemas(names) => names.iter().map(|n| schema(catalog, n)).collect(),
        Objects::AllTables(schemas) => {
            check_schemas(catalog, schemas)?;
            let tables = catalog.tables().filter(|t| schemas.contains(&t.schema));
            let views = catalog.views().filter(|v| schemas.contains(&v.schema));
            let tables = tables.map(|t| Object::new(t.id, Kind::Table, &t.name));
            Ok(tables.chain(views.map(|v| Object::new(v.id, Kind::View, &v.name))).collect())
        }
        Objects::AllSequences(schemas) => {
            check_schemas(catalog, schemas)?;
            let sequences = catalog.sequences().filter(|s| schemas.contains(&s.schema));
            Ok(sequences.map(|s| Object::new(s.id, Kind::Sequence, &s.name)).collect())
        }
    }
}

fn check_schemas(catalog: &Catalog, names: &[String]) -> Result<()> {
    names.iter().try_for_each(|name| schema(catalog, name).map(|_| ()))
}

fn schema(catalog: &Catalog, name: &str) -> Result<Object> {
    let found = catalog.schemas().find(|s| s.name == name);
    found
        .map(|s| Object::schema(s))
        .ok_or_else(|| SqlError::new(SqlState::INVALID_SCHEMA, format!("schema \"{name}\" does not exist")))
}

fn sequence(catalog: &Catalog, holder: &Holder, name: &crate::ast::ObjectName) -> Result<Object> {
    let object = grantable(catalog, holder, name)?;
    if object.kind == Kind::Sequence {
        return Ok(object);
    }
    let message = format!("\"{}\" is not a sequence", object.name);
    Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message))
}

/// Descriptions of the objects that a role owns or has rights on, as in PostgreSQL's messages.
fn dependents(catalog: &Catalog, role: ObjectId, gone: &dyn Fn(ObjectId) -> bool) -> Vec<String> {
    let mut objects = Vec::new();
    objects.extend(catalog.tables().map(|t| Object::new(t.id, Kind::Table, &t.name)));
    objects.extend(catalog.views().map(|v| Object::new(v.id, Kind::View, &v.name)));
    objects.extend(catalog.sequences().map(|s| Object::new(s.id, Kind::Sequence, &s.name)));
    objects.extend(catalog.schemas().map(|s| Object::schema(s)));
    objects.extend(catalog.databases().map(|database| Object::database(database)));
    objects.sort_by_key(|o| o.id.0);
    let mut lines = Vec::new();
    for object in objects.iter().filter(|o| !gone(o.id)) {
        let Some(about) = catalog.about(object.id) else { continue };
        let named = format!("{} {}", object.kind.word(), object.name);
        let granted = |g: &Grant| g.grantee == Some(role) || g.grantor == role;
        if about.owner == role {
            lines.push(format!("owner of {named}"));
        } else if about.grants.iter().flatten().any(granted) {
            lines.push(format!("privileges for {named}"));
        }
    }
    lines.extend(dependents_elsewhere(catalog, role));
    lines
}

/// Returns the numbers of objects in other databases that a role owns or has rights on, as in PostgreSQL's
/// messages.
fn dependents_elsewhere(catalog: &Catalog, role: ObjectId) -> Vec<String> {
    let mut counts: BTreeMap<ObjectId, usize> = BTreeMap::new();
    let is_its = |about: &About| {
        let granted = |g: &Grant| g.grantee == Some(role) || g.grantor == role;
        about.owner == role || about.grants.iter().flatten().any(granted)
    };
    for about in catalog.abouts().filter(|about| is_its(about)) {
        let elsewhere = catalog.database_of(about.object).filter(|database| *database != catalog.database());
        elsewhere.into_iter().for_each(|database| *counts.entry(database).or_default() += 1);
    }
    let named = counts.into_iter().filter_map(|(id, count)| Some((catalog.database_by_id(id)?, count)));
    named
        .map(|(database, count)| {
            let objects = if count == 1 { "object" } else { "objects" };
            format!("{count} {objects} in database {}", database.name)
        })
        .collect()
}
