//! Checks of rights: roles and their memberships, owners, and grants on objects.
//!
//! Invariants
//! 1. A superuser may do everything. A server may ask for no passwords and listen only on a loopback address.
//!    Then a session with an unknown role name acts as the first role (`session/identity.rs`).
//! 2. Each check reads the catalog of the running transaction. So GRANT and REVOKE take effect at once.
//! 3. An object without grants has PostgreSQL's defaults: all rights for its owner, and USAGE on the schema
//!    public for all roles.
//!
//! This module does not know sessions or which code makes a check (`session/authorize.rs`,
//! `exec/sequence.rs`).

use smallvec::SmallVec;
use varve_engine::{Catalog, DatabaseDef, Grant, ObjectId, Rights, RoleDef, SchemaDef, predefined};

use crate::error::{SqlError, SqlState};

/// A role. `None` stands for a name that is not a role.
pub type Who = Option<ObjectId>;

/// The kind of an object with rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A table.
    Table,
    /// A view.
    View,
    /// A sequence.
    Sequence,
    /// A schema.
    Schema,
    /// A database.
    Database,
    /// An index. It has only an owner, which is that of its table.
    Index,
}

impl Kind {
    /// Returns the word in error messages.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Table => "table",
            Kind::View => "view",
            Kind::Sequence => "sequence",
            Kind::Schema => "schema",
            Kind::Database => "database",
            Kind::Index => "index",
        }
    }

    /// Returns all rights on an object of this kind.
    pub fn all(self) -> Rights {
        match self {
            Kind::Table | Kind::View => Rights(0b111_1111),
            Kind::Sequence => Rights::SELECT.with(Rights::UPDATE).with(Rights::USAGE),
            Kind::Schema => Rights::USAGE.with(Rights::CREATE),
            Kind::Database => Rights::CREATE.with(Rights::TEMPORARY).with(Rights::CONNECT),
            Kind::Index => Rights::default(),
        }
    }
}

/// An object with rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The object's id.
    pub id: ObjectId,
    /// The kind.
    pub kind: Kind,
    /// The name, for errors.
    pub name: String,
}

impl Object {
    /// Returns an object.
    pub fn new(id: impl Into<ObjectId>, kind: Kind, name: &str) -> Object {
        Object { id: id.into(), kind, name: name.to_owned() }
    }

    /// Returns a schema.
    pub fn schema(def: &SchemaDef) -> Object {
        Object::new(def.id, Kind::Schema, &def.name)
    }

    /// Returns a database.
    pub fn database(def: &DatabaseDef) -> Object {
        Object::new(def.id, Kind::Database, &def.name)
    }

    /// Returns the rights on the object, including the default rights.
    pub fn grants(&self, catalog: &Catalog) -> Vec<Grant> {
        let owner = catalog.owner(self.id);
        let granted = catalog.about(self.id).and_then(|about| about.grants.clone());
        granted.unwrap_or_else(|| self.defaults(owner))
    }

    fn defaults(&self, owner: ObjectId) -> Vec<Grant> {
        let grant = |grantee, rights| Grant { grantee, grantor: owner, rights, grantable: Rights::default() };
        let mut grants = vec![grant(Some(owner), self.kind.all())];
        if self.kind == Kind::Schema && self.name == "public" {
            grants.push(grant(None, Rights::USAGE));
        }
        if self.kind == Kind::Database {
            grants.push(grant(None, Rights::TEMPORARY.with(Rights::CONNECT)));
        }
        grants
    }

    /// Returns the error 42501 for a missing right.
    pub fn denied(&self) -> SqlError {
        denied(format!("permission denied for {} {}", self.kind.word(), self.name))
    }

    /// Returns the error 42501 if the object belongs to another role.
    pub fn not_owned(&self) -> SqlError {
        denied(format!("must be owner of {} {}", self.kind.word(), self.name))
    }
}

/// A relation that a statement reads in FROM, and the role that needs the right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The relation.
    pub what: Needed,
    /// The view that reads it, whose owner needs the right. `None` means the role that runs the statement.
    pub through: Option<ObjectId>,
}

/// A relation that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needed {
    /// A table or view of this schema.
    Relation {
        /// The table or view. Rights on a partition are those of its table.
        object: Object,
        /// Its schema.
        schema: String,
    },
    /// A system table.
    System(&'static str),
}

/// Returns the error 42501.
pub fn denied(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
}

/// Returns the error 42704.
pub fn no_role(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
}

/// Returns the error 22023, if the role is the value of a setting.
pub fn no_such_value(name: &str) -> SqlError {
    SqlError { sqlstate: SqlState::INVALID_PARAMETER_VALUE, ..no_role(name) }
}

/// A role, with all roles as which it may act.
pub struct Holder {
    roles: SmallVec<[ObjectId; 4]>,
    is_superuser: bool,
}

impl Holder {
    /// Returns the role with its memberships in the catalog. A dropped role has none.
    pub fn of(catalog: &Catalog, who: Who) -> Holder {
        let Some(id) = who else { return Holder { roles: SmallVec::new(), is_superuser: true } };
        let is_superuser = catalog.role_by_id(id).is_some_and(|role| role.is_superuser);
        let mut roles = memberships(catalog, id, &|role| role.inherits);
        // The owner of the database is a member of `pg_database_owner`.
        if roles.contains(&catalog.owner(catalog.database())) {
            roles.push(predefined::DATABASE_OWNER);
        }
        Holder { roles, is_superuser }
    }

    /// Returns whether the role has all rights.
    pub fn is_superuser(&self) -> bool {
        self.is_superuser
    }

    /// Returns whether it may act as this role.
    pub fn is(&self, role: ObjectId) -> bool {
        self.is_superuser || self.roles.contains(&role)
    }

    /// Returns whether it owns the object.
    pub fn owns(&self, catalog: &Catalog, object: &Object) -> bool {
        self.is(catalog.owner(object.id))
    }

    /// Returns whether it has any of these rights.
    pub fn may_any(&self, catalog: &Catalog, object: &Object, rights: &[Rights]) -> bool {
        self.is_superuser || {
            let held = self.rights_on(catalog, object);
            rights.iter().any(|r| held.has(*r))
        }
    }

    fn rights_on(&self, catalog: &Catalog, object: &Object) -> Rights {
        let mine = |g: &Grant| g.grantee.is_none_or(|grantee| self.roles.contains(&grantee));
        let grants = object.grants(catalog);
        grants.iter().filter(|g| mine(g)).fold(self.rights_on_all(object.kind), |all, g| all.with(g.rights))
    }

    /// Returns the rights that the role has as a member of `pg_read_all_data` and `pg_write_all_data`.
    fn rights_on_all(&self, kind: Kind) -> Rights {
        let (mut rights, is_schema) = (Rights::default(), kind == Kind::Schema);
        if kind == Kind::Database {
            return rights;
        }
        if self.roles.contains(&predefined::READ_ALL_DATA) {
            rights = rights.with(if is_schema { Rights::USAGE } else { Rights::SELECT });
        }
        if self.roles.contains(&predefined::WRITE_ALL_DATA) {
            let writes = Rights::INSERT.with(Rights::UPDATE).with(Rights::DELETE);
            rights = rights.with(if is_schema { Rights::USAGE } else { writes });
        }
        rights
    }

    /// Returns whether it may grant this right.
    pub fn may_grant(&self, catalog: &Catalog, object: &Object, right: Rights) -> bool {
        let mine = |g: &Grant| g.grantee.is_some_and(|grantee| self.roles.contains(&grantee));
        self.owns(catalog, object) || object.grants(catalog).iter().any(|g| mine(g) && g.grantable.has(right))
    }

    /// Returns the grantor and the rights that the role may grant. An owner grants as itself, another role as
    /// the role that has the grant option.
    pub fn grantable(&self, catalog: &Catalog, object: &Object, wanted: Rights) -> (ObjectId, Rights) {
        let owner = catalog.owner(object.id);
        if self.is(owner) {
            return (owner, wanted);
        }
        let grants = object.grants(catalog);
        let mine = |g: &&Grant| g.grantee.is_some_and(|grantee| self.roles.contains(&grantee));
        let offered = |g: &Grant| Rights(g.grantable.0 & wanted.0);
        let best = grants.iter().filter(mine).max_by_key(|g| offered(g).0.count_ones());
        best.map_or((owner, Rights::default()), |g| (g.grantee.unwrap_or(owner), offered(g)))
    }
}

/// Returns the role and all roles of which it is a member. `through` says whether the memberships of a role
/// count.
pub fn memberships(
    catalog: &Catalog,
    role: ObjectId,
    through: &dyn Fn(&RoleDef) -> bool,
) -> SmallVec<[ObjectId; 4]> {
    let mut roles: SmallVec<[ObjectId; 4]> = smallvec::smallvec![role];
    let mut next = 0;
    while let Some(id) = roles.get(next).copied() {
        next += 1;
        let Some(def) = catalog.role_by_id(id).filter(|def| through(def)) else { continue };
        for membership in &def.member_of {
            if !roles.contains(&membership.role) {
                roles.push(membership.role);
            }
        }
    }
    roles
}

/// Adds rights to those that the grantor has already granted.
pub fn grant(grants: &mut Vec<Grant>, new: Grant) {
    let same = |g: &&mut Grant| g.grantee == new.grantee && g.grantor == new.grantor;
    match grants.iter_mut().find(same) {
        Some(old) => {
            old.rights = old.rights.with(new.rights);
            old.grantable = old.grantable.with(new.grantable);
        }
        None => grants.push(new),
    }
}

/// Returns whether a grant option would be circular, because the grantor has it only as long as the grantee
/// has it.
pub fn is_circular(grants: &[Grant], new: &Grant, owner: ObjectId) -> bool {
    let Some(grantee) = new.grantee.filter(|_| new.grantable != Rights::default()) else { return false };
    if new.grantor == owner {
        return false;
    }
    let mut without = grants.to_vec();
    while let Some(gone) = without.iter().find(|g| g.grantee == Some(grantee)).copied() {
        let all = Grant { grantable: gone.rights.with(gone.grantable), ..gone };
        revoke(&mut without, all, true);
    }
    let mine = without.iter().filter(|g| g.grantee == Some(new.grantor));
    let left = mine.fold(Rights::default(), |all, g| all.with(g.grantable));
    new.grantable.without(left) != Rights::default()
}

/// Revokes the rights and the grant options that `gone` lists. If the grantee has granted such rights to
/// other roles, these are revoked, too, provided that `cascade` is set. Otherwise the result is false.
pub fn revoke(grants: &mut Vec<Grant>, gone: Grant, cascade: bool) -> bool {
    let Some(at) = grants.iter().position(|g| g.grantee == gone.grantee && g.grantor == gone.grantor) else {
        return true;
    };
    grants[at].rights = grants[at].rights.without(gone.rights);
    grants[at].grantable = grants[at].grantable.without(gone.grantable);
    grants.retain(|g| g.rights != Rights::default());
    let Some(grantee) = gone.grantee else { return true };
    let still = grants.iter().filter(|g| g.grantee == Some(grantee));
    let lost = still.fold(gone.grantable, |lost, g| lost.without(g.grantable));
    let handed_on =
        |g: &&Grant| g.grantor == grantee && g.rights.0 & lost.0 != 0 && g.grantee != gone.grantee;
    while let Some(dependent) = grants.iter().find(handed_on).copied() {
        if !cascade {
            return false;
        }
        revoke(grants, Grant { rights: lost, grantable: lost, ..dependent }, true);
    }
    true
}
