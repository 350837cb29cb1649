//! The identity of a session: the role that logged in, the session user (SET SESSION AUTHORIZATION), and the
//! current role (SET ROLE).
//!
//! Invariants
//! 1. A role name is resolved when it is set. After that the session knows the role by its id, even if it is
//!    renamed.
//! 2. The settings `session_authorization` and `role` store the identity. So a rollback, also to a savepoint,
//!    undoes the commands that change them.
//!
//! This module does not know what a role may do (`crate::rights`).

use varve_engine::{BOOTSTRAP_ROLE, Catalog, ObjectId};

use super::Session;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::func::clock_us;
use crate::rights::{Holder, Who, denied, memberships, no_such_value};
use crate::scram::Verifier;

/// The role that has logged in.
pub(super) struct Identity {
    /// The name of the role at the login.
    name: String,
    who: Who,
}

impl Identity {
    /// Returns the role of a log-in. The error is 28000 if the role may not log in. If the server asks for no
    /// password, a client whose name is no role gets the first role. If the client has proved a password, the
    /// role must still have this password, because the client may take any time for the proof.
    pub(super) fn of_login(catalog: &Catalog, name: &str, proved: Option<&Verifier>) -> Result<Identity> {
        if proved.is_some() && verifier(catalog, name).as_ref() != proved {
            let message = format!("password authentication failed for user \"{name}\"");
            return Err(SqlError::new(SqlState::INVALID_PASSWORD, message).with_detail(
                "The role was dropped, renamed or given another password while the client logged in.",
            ));
        }
        let Some(role) = catalog.role(name) else {
            let first = catalog.role_by_id(BOOTSTRAP_ROLE).map_or(name, |role| role.name.as_str());
            return Ok(Identity { name: first.to_owned(), who: Some(BOOTSTRAP_ROLE) });
        };
        if !role.may_log_in {
            let message = format!("role \"{name}\" is not permitted to log in");
            return Err(SqlError::new(SqlState::INVALID_AUTHORIZATION, message));
        }
        Ok(Identity { name: name.to_owned(), who: Some(role.id) })
    }

    /// Returns the name of the role that logged in.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the role of the login.
    pub(super) fn who(&self) -> Who {
        self.who
    }
}

/// Returns the current password verifier of a role. Returns `None` if there is no such role, or if it has no
/// valid password.
pub(super) fn verifier(catalog: &Catalog, name: &str) -> Option<Verifier> {
    let role = catalog.role(name)?;
    let is_valid = role.valid_until_us.is_none_or(|until| clock_us() < until);
    Verifier::parse(role.password.as_deref().filter(|_| is_valid)?)
}

impl Session {
    /// Updates the roles in `facts` from the settings.
    pub(super) fn follow_identity(&mut self) {
        let session = self.settings.get("session_authorization").unwrap_or_default();
        let role = self.settings.get("role").unwrap_or_default();
        let number = |setting| self.settings.role_number(setting).map(ObjectId);
        // A setting without a role number means the role of the login, because every other value was set by a
        // role.
        self.facts.session_who = number("session_authorization").or(self.identity.who);
        (self.facts.user, self.facts.who) = match number("role") {
            None => (session.clone(), self.facts.session_who),
            set => (role, set),
        };
        self.facts.session_user = session;
    }

    /// Runs SET ROLE. `None` means NONE.
    pub(super) fn set_role(&mut self, name: Option<&str>, local: bool) -> Result<&'static str> {
        let mut number = None;
        if let Some(name) = name {
            let catalog = self.current_catalog();
            let role = catalog.role(name).ok_or_else(|| no_such_value(name))?.id;
            let allowed = match self.facts.session_who {
                None => true,
                Some(who) => {
                    Holder::of(&catalog, Some(who)).is_superuser()
                        || memberships(&catalog, who, &|_| true).contains(&role)
                }
            };
            if !allowed {
                return Err(denied(format!("permission denied to set role \"{name}\"")));
            }
            number = Some(role.0);
        }
        self.settings.set_role("role", name.unwrap_or("none"), number, local)?;
        self.after_settings();
        Ok("SET")
    }

    /// Runs SET SESSION AUTHORIZATION, which also ends SET ROLE. `None` means DEFAULT.
    pub(super) fn set_session_authorization(
        &mut self,
        name: Option<&str>,
        local: bool,
    ) -> Result<&'static str> {
        let authenticated = self.identity.name.clone();
        let mut number = None;
        if let Some(name) = name.filter(|n| *n != authenticated) {
            let catalog = self.current_catalog();
            let role = catalog.role(name).ok_or_else(|| no_such_value(name))?.id;
            if !Holder::of(&catalog, self.identity.who).is_superuser() {
                return Err(denied("permission denied to set session authorization"));
            }
            number = Some(role.0);
        }
        let name = name.unwrap_or(&authenticated).to_owned();
        self.settings.set_role("session_authorization", &name, number, local)?;
        self.settings.set_role("role", "none", None, local)?;
        self.after_settings();
        Ok("SET")
    }
}
