//! Definitions of databases: which databases exist, and their properties.
//!
//! Invariants
//! 1. A definition is immutable. A change makes a new definition with the same id.
//! 2. A new installation has three databases. Their definitions are not stored until they are changed. So a
//!    directory of an older version of Varve, which had one database, has the same three.
//!
//! This module does not know what is in a database. Each definition of a schema, table, view or sequence
//! names its database.

use crate::object_ids::ObjectId;

/// The database that exists from the start, with PostgreSQL's number.
pub const POSTGRES: ObjectId = ObjectId(5);
/// The name of this database, unless it is renamed.
pub const POSTGRES_NAME: &str = "postgres";
/// The template that new databases are made from unless they name another one.
pub const TEMPLATE1: ObjectId = ObjectId(1);
/// The template to which no client connects.
pub const TEMPLATE0: ObjectId = ObjectId(4);

/// A database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseDef {
    /// Identity. In a request of CREATE DATABASE it is 0, and the engine assigns it.
    pub id: ObjectId,
    /// Name.
    pub name: String,
    /// CONNECTION LIMIT; -1 for none.
    pub connection_limit: i32,
    /// ALLOW_CONNECTIONS
    pub allows_connections: bool,
    /// IS_TEMPLATE
    pub is_template: bool,
    /// ALTER DATABASE ... SET: names and values, which the SQL layer understands.
    pub settings: Vec<(String, String)>,
}

impl DatabaseDef {
    /// `CREATE DATABASE name`
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            id: ObjectId(0),
            name: name.into(),
            connection_limit: -1,
            allows_connections: true,
            is_template: false,
            settings: Vec::new(),
        }
    }

    /// Returns the databases that exist from the start.
    pub(crate) fn predefined() -> [DatabaseDef; 3] {
        let template = |id, name| DatabaseDef { id, is_template: true, ..DatabaseDef::new(name) };
        [
            DatabaseDef { id: POSTGRES, ..DatabaseDef::new(POSTGRES_NAME) },
            template(TEMPLATE1, "template1"),
            DatabaseDef { allows_connections: false, ..template(TEMPLATE0, "template0") },
        ]
    }

    /// Returns whether the database exists from the start.
    pub fn is_predefined(&self) -> bool {
        matches!(self.id, POSTGRES | TEMPLATE1 | TEMPLATE0)
    }
}
