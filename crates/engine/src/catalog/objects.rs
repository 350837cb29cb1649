//! Definitions of constraints, partitions, views and roles, and the facts about any object (owner, grants,
//! comment).
//!
//! Invariants
//! 1. A definition is immutable. A change makes a new definition with the same id.
//! 2. Expressions and queries are stored as text for the SQL layer. The engine never parses them.
//!
//! This module does not know rights, what a constraint means, or how definitions are stored (`records.rs`).

use std::mem::discriminant;

use super::databases::{POSTGRES, TEMPLATE0, TEMPLATE1};
use crate::object_ids::{ObjectId, TableId};
use crate::types::Value;

/// The role that exists from the start. It owns every object for which no other owner is stored.
pub const BOOTSTRAP_ROLE: ObjectId = ObjectId(10);
/// Name of [`BOOTSTRAP_ROLE`] in a new database.
pub const BOOTSTRAP_NAME: &str = "postgres";
/// Its name in databases that were made by earlier versions.
pub const BOOTSTRAP_NAME_BEFORE: &str = "varve";

/// The role whose only member is the owner of the present database.
pub const DATABASE_OWNER: ObjectId = ObjectId(6171);
/// Its members read all tables, views and sequences.
pub const READ_ALL_DATA: ObjectId = ObjectId(6181);
/// Its members write all tables, views and sequences.
pub const WRITE_ALL_DATA: ObjectId = ObjectId(6182);
/// A member of the roles whose members see the state of the server.
pub const MONITOR: ObjectId = ObjectId(3373);
/// Its members see all settings.
pub const READ_ALL_SETTINGS: ObjectId = ObjectId(3374);
/// Its members see what all sessions do.
pub const READ_ALL_STATS: ObjectId = ObjectId(3375);
/// Its members may run functions that lock the objects that they examine.
pub const STAT_SCAN_TABLES: ObjectId = ObjectId(3377);
/// Its members end statements and sessions of others.
pub const SIGNAL_BACKEND: ObjectId = ObjectId(4200);
/// Its members run CHECKPOINT.
pub const CHECKPOINT: ObjectId = ObjectId(4544);
/// Its members read files of the server.
pub const READ_SERVER_FILES: ObjectId = ObjectId(4569);
/// Its members write files of the server.
pub const WRITE_SERVER_FILES: ObjectId = ObjectId(4570);

/// Its members may run programs on the server. Varve has no such function.
pub const EXECUTE_SERVER_PROGRAM: ObjectId = ObjectId(4571);

/// The roles that every database has, by PostgreSQL's names and OIDs. They are not stored and do not change.
/// No client can log in as one of them.
const PREDEFINED: [(ObjectId, &str, &[ObjectId]); 12] = [
    (DATABASE_OWNER, "pg_database_owner", &[]),
    (READ_ALL_DATA, "pg_read_all_data", &[]),
    (WRITE_ALL_DATA, "pg_write_all_data", &[]),
    (MONITOR, "pg_monitor", &[READ_ALL_SETTINGS, READ_ALL_STATS, STAT_SCAN_TABLES]),
    (READ_ALL_SETTINGS, "pg_read_all_settings", &[]),
    (READ_ALL_STATS, "pg_read_all_stats", &[]),
    (STAT_SCAN_TABLES, "pg_stat_scan_tables", &[]),
    (SIGNAL_BACKEND, "pg_signal_backend", &[]),
    (CHECKPOINT, "pg_checkpoint", &[]),
    (READ_SERVER_FILES, "pg_read_server_files", &[]),
    (WRITE_SERVER_FILES, "pg_write_server_files", &[]),
    (EXECUTE_SERVER_PROGRAM, "pg_execute_server_program", &[]),
];

/// CHECK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Identity.
    pub id: ObjectId,
    /// Name, unique among the table's constraints.
    pub name: String,
    /// The condition.
    pub text: String,
    /// Ordinals of the columns that it names.
    pub columns: Vec<usize>,
}

/// What happens to rows that refer to a row that is deleted or gets another key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Refused when the constraint is checked.
    #[default]
    NoAction,
    /// Refused at once.
    Restrict,
    /// They are deleted, too, or get the new key.
    Cascade,
    /// Their columns become NULL.
    SetNull,
    /// Their columns take their defaults.
    SetDefault,
}

/// FOREIGN KEY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKey {
    /// Identity.
    pub id: ObjectId,
    /// Name, unique among the table's constraints.
    pub name: String,
    /// Ordinals of the columns that refer.
    pub columns: Vec<usize>,
    /// The table referred to.
    pub parent: TableId,
    /// Ordinals of the columns of that table, in the order of `columns`. They are the columns of its primary
    /// key or of a unique index, in any order.
    pub parent_columns: Vec<usize>,
    /// ON DELETE
    pub on_delete: Action,
    /// ON UPDATE
    pub on_update: Action,
    /// SET CONSTRAINTS may put the check off until COMMIT.
    pub deferrable: bool,
    /// The check is put off from the start.
    pub initially_deferred: bool,
    /// MATCH FULL: either all columns are NULL or none is.
    pub match_full: bool,
}

/// How a table is divided into partitions: PARTITION BY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partitions {
    /// What decides between the parts.
    pub method: PartitionMethod,
    /// Ordinals of the partition key.
    pub columns: Vec<usize>,
    /// Its parts, in the order they were made.
    pub parts: Vec<Part>,
}

/// What decides which part a row is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionMethod {
    /// The hash of the key.
    Hash,
    /// Where the key is in the order of its values.
    Range,
}

/// A partition: a name for the rows of a table whose key is within its bound. The tree of the table has the
/// rows of all partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Identity.
    pub id: ObjectId,
    /// Name of its schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// Which keys it takes.
    pub bound: Bound,
}

/// Which keys a part takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The keys whose hash, divided by the modulus, leaves the remainder.
    Hash {
        /// MODULUS
        modulus: u32,
        /// REMAINDER
        remainder: u32,
    },
    /// The keys from `from` on and below `to`. Both have an edge for each column of the key.
    Range {
        /// FROM
        from: Vec<Edge>,
        /// TO
        to: Vec<Edge>,
    },
    /// The keys that no other partition takes.
    Default,
}

/// The bound of a range in one column.
#[derive(Clone, Debug)]
pub enum Edge {
    /// MINVALUE: below all values.
    Least,
    /// A value of the column's type.
    At(Value),
    /// MAXVALUE: above all values.
    Greatest,
}

impl PartialEq for Edge {
    fn eq(&self, other: &Edge) -> bool {
        match (self, other) {
            (Edge::Least, Edge::Least) | (Edge::Greatest, Edge::Greatest) => true,
            (Edge::At(a), Edge::At(b)) => {
                discriminant(a) == discriminant(b) && a.as_datum().order(&b.as_datum()).is_eq()
            }
            _ => false,
        }
    }
}

impl Eq for Edge {}

/// Whether an identity column takes values from INSERT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// GENERATED ALWAYS: only with OVERRIDING SYSTEM VALUE.
    Always,
    /// GENERATED BY DEFAULT
    ByDefault,
}

/// A view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewDef {
    /// Identity.
    pub id: ObjectId,
    /// The database that it is in.
    pub database: ObjectId,
    /// Name of its schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// Its columns.
    pub columns: Vec<ViewColumn>,
    /// The query, its stars written out.
    pub text: String,
    /// Tables and views that the query names.
    pub uses: Vec<Use>,
    /// `security_invoker`, if it was set. Rights on the tables below are then checked for the reader, not for
    /// the view's owner.
    pub security_invoker: Option<bool>,
}

/// A column of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewColumn {
    /// Name.
    pub name: String,
    /// Type, as the SQL layer numbers them.
    pub type_id: u32,
    /// Type modifier, as the SQL layer packs it; -1 for none.
    pub modifier: i32,
}

/// The columns of an object that a view uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// A table or a view.
    pub object: ObjectId,
    /// Ordinals of the columns that are named.
    pub columns: Vec<usize>,
}

/// What CREATE VIEW asks for.
#[derive(Clone, Debug)]
pub struct NewView {
    /// Name of the schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// Its columns.
    pub columns: Vec<ViewColumn>,
    /// The query, its stars written out.
    pub text: String,
    /// Tables and views that the query names.
    pub uses: Vec<Use>,
    /// `security_invoker`, if it was set.
    pub security_invoker: Option<bool>,
}

/// A text that no log shows: a password, or its verifier.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret(text)
    }
}

impl std::ops::Deref for Secret {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// A role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleDef {
    /// Identity. In a request of CREATE ROLE it is 0, and the engine assigns it.
    pub id: ObjectId,
    /// Name.
    pub name: String,
    /// SUPERUSER
    pub is_superuser: bool,
    /// INHERIT
    pub inherits: bool,
    /// CREATEROLE
    pub makes_roles: bool,
    /// CREATEDB
    pub makes_databases: bool,
    /// LOGIN
    pub may_log_in: bool,
    /// REPLICATION
    pub replicates: bool,
    /// BYPASSRLS
    pub bypasses_row_security: bool,
    /// CONNECTION LIMIT; -1 for none.
    pub connection_limit: i32,
    /// The verifier of the password, in PostgreSQL's form (`SCRAM-SHA-256$...`).
    pub password: Option<Secret>,
    /// VALID UNTIL, microseconds since 2000-01-01 UTC.
    pub valid_until_us: Option<i64>,
    /// Roles that it is a member of.
    pub member_of: Vec<Membership>,
}

/// A membership in a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The role.
    pub role: ObjectId,
    /// WITH ADMIN OPTION
    pub is_admin: bool,
}

impl RoleDef {
    /// `CREATE ROLE name`
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            id: ObjectId(0),
            name: name.into(),
            is_superuser: false,
            inherits: true,
            makes_roles: false,
            makes_databases: false,
            may_log_in: false,
            replicates: false,
            bypasses_row_security: false,
            connection_limit: -1,
            password: None,
            valid_until_us: None,
            member_of: Vec::new(),
        }
    }

    /// Returns the roles that every database has from the start.
    pub(crate) fn predefined() -> impl Iterator<Item = RoleDef> {
        PREDEFINED.into_iter().map(|(id, name, groups)| RoleDef {
            id,
            member_of: groups.iter().map(|role| Membership { role: *role, is_admin: false }).collect(),
            ..RoleDef::new(name)
        })
    }

    /// Returns whether it is one of the roles that every database has, which do not change.
    pub fn is_predefined(&self) -> bool {
        PREDEFINED.iter().any(|(id, ..)| *id == self.id)
    }

    /// Returns the role that exists from the start.
    pub(crate) fn bootstrap() -> Self {
        Self {
            id: BOOTSTRAP_ROLE,
            is_superuser: true,
            makes_roles: true,
            makes_databases: true,
            may_log_in: true,
            replicates: true,
            bypasses_row_security: true,
            ..Self::new(BOOTSTRAP_NAME)
        }
    }
}

/// A set of rights on an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(pub u16);

impl Rights {
    /// INSERT
    pub const INSERT: Rights = Rights(1);
    /// SELECT
    pub const SELECT: Rights = Rights(1 << 1);
    /// UPDATE
    pub const UPDATE: Rights = Rights(1 << 2);
    /// DELETE
    pub const DELETE: Rights = Rights(1 << 3);
    /// TRUNCATE
    pub const TRUNCATE: Rights = Rights(1 << 4);
    /// REFERENCES
    pub const REFERENCES: Rights = Rights(1 << 5);
    /// TRIGGER
    pub const TRIGGER: Rights = Rights(1 << 6);
    /// EXECUTE
    pub const EXECUTE: Rights = Rights(1 << 7);
    /// USAGE
    pub const USAGE: Rights = Rights(1 << 8);
    /// CREATE
    pub const CREATE: Rights = Rights(1 << 9);
    /// TEMPORARY
    pub const TEMPORARY: Rights = Rights(1 << 10);
    /// CONNECT
    pub const CONNECT: Rights = Rights(1 << 11);

    /// Returns whether all of `wanted` are among them.
    pub const fn has(self, wanted: Rights) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Returns the rights of both sets.
    pub const fn with(self, more: Rights) -> Rights {
        Rights(self.0 | more.0)
    }

    /// Returns the rights that are not in `less`.
    pub const fn without(self, less: Rights) -> Rights {
        Rights(self.0 & !less.0)
    }
}

/// Rights that a role has on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The role that has the rights; `None` means everybody (PUBLIC).
    pub grantee: Option<ObjectId>,
    /// The role that granted them.
    pub grantor: ObjectId,
    /// The rights.
    pub rights: Rights,
    /// The rights that the grantee may grant to others (WITH GRANT OPTION).
    pub grantable: Rights,
}

/// Owner, grants and comments of an object. An object without one belongs to [`BOOTSTRAP_ROLE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    pub(crate) id: ObjectId,
    /// The object: a table, a view, an index, a constraint, a sequence, a schema, a role.
    pub object: ObjectId,
    /// The owner.
    pub owner: ObjectId,
    /// Rights that were granted; `None` as long as GRANT and REVOKE have not touched it (PostgreSQL's null
    /// `relacl`).
    pub grants: Option<Vec<Grant>>,
    /// Comments on it and its columns.
    pub comments: Vec<Comment>,
}

/// COMMENT ON
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    /// Ordinal of the column; `None` for the object itself.
    pub column: Option<usize>,
    /// What it says.
    pub text: String,
}

impl About {
    /// Returns the comments and grants of PostgreSQL's first databases. They are not stored until they are
    /// changed, so their id is 0.
    pub(crate) fn predefined() -> [About; 3] {
        let commented = |database, text: &str| {
            let mut about = About::new(ObjectId(0), database);
            about.set_comment(None, Some(text.to_owned()));
            about
        };
        let grant = |grantee, rights| Grant {
            grantee,
            grantor: BOOTSTRAP_ROLE,
            rights,
            grantable: Rights::default(),
        };
        let owners = Rights::CREATE.with(Rights::TEMPORARY).with(Rights::CONNECT);
        let grants = || Some(vec![grant(None, Rights::CONNECT), grant(Some(BOOTSTRAP_ROLE), owners)]);
        [
            commented(POSTGRES, "default administrative connection database"),
            About { grants: grants(), ..commented(TEMPLATE1, "default template for new databases") },
            About { grants: grants(), ..commented(TEMPLATE0, "unmodifiable empty database") },
        ]
    }

    /// Returns whether it is stored in the system tables.
    pub(crate) fn is_stored(&self) -> bool {
        self.id != ObjectId(0)
    }

    /// Returns an entry without grants and comments.
    pub(crate) fn new(id: ObjectId, object: ObjectId) -> Self {
        Self { id, object, owner: BOOTSTRAP_ROLE, grants: None, comments: Vec::new() }
    }

    /// Returns the roles that own the object, have rights on it, or have granted rights on it. A role may be
    /// in the list more than once.
    pub(crate) fn roles(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let grants = self.grants.iter().flatten();
        std::iter::once(self.owner).chain(grants.flat_map(|g| g.grantee.into_iter().chain([g.grantor])))
    }

    /// Replaces a role by another one.
    pub(crate) fn change_role(&mut self, from: ObjectId, to: ObjectId) {
        let change = |role: &mut ObjectId| *role = if *role == from { to } else { *role };
        change(&mut self.owner);
        for grant in self.grants.iter_mut().flatten() {
            grant.grantee.iter_mut().for_each(change);
            change(&mut grant.grantor);
        }
    }

    /// Returns the comment on the object or one of its columns.
    pub fn comment(&self, column: Option<usize>) -> Option<&str> {
        self.comments.iter().find(|c| c.column == column).map(|c| c.text.as_str())
    }

    /// Sets or (`None`) removes a comment.
    pub fn set_comment(&mut self, column: Option<usize>, text: Option<String>) {
        self.comments.retain(|c| c.column != column);
        self.comments.extend(text.map(|text| Comment { column, text }));
    }
}
