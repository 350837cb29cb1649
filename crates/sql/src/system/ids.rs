//! OIDs for items that have no id in the catalog, such as the index of a primary key.
//!
//! Invariants
//! 1. The catalog's own ids begin at 16384 and are far below `KEY_INDEX`. Derived OIDs are above `KEY_INDEX`
//!    and do not collide.
//!
//! This module does not know names.

use varve_engine::{EngineKind, SpaceId, TableId};

/// `pg_catalog`
pub const PG_CATALOG: u32 = 11;
/// `public`
pub const PUBLIC: u32 = 2200;
/// `information_schema`
pub const INFORMATION_SCHEMA: u32 = 13_000;
/// The role `pg_database_owner`.
pub const DATABASE_OWNER: u32 = 6171;
/// The tablespace `pg_default`.
pub const DEFAULT_TABLESPACE: u32 = 1663;
/// `pg_global`
pub const GLOBAL_TABLESPACE: u32 = 1664;
/// The number that is added to the number of a tablespace.
const TABLESPACES: u32 = 16_384;
/// The access method of tables.
pub const HEAP: u32 = 2;
/// The access method of indexes.
pub const BTREE: u32 = 403;
/// The first OID for access methods of the memory-oriented table engines. The number of an engine is added to
/// it.
const MEMORY_ENGINES: u32 = 13_900;

/// Returns the OID of a tablespace that CREATE TABLESPACE has made.
pub fn tablespace(id: SpaceId) -> u32 {
    TABLESPACES + u32::from(id.0)
}

/// The tablespace of this OID, which may not exist.
pub fn tablespace_of(oid: u32) -> Option<SpaceId> {
    let number = u16::try_from(oid.checked_sub(TABLESPACES)?).ok()?;
    Some(SpaceId(number)).filter(|id| id.is_tablespace())
}

/// The access method of a table engine.
pub fn table_method(engine: &str) -> u32 {
    let found = table_engines().find(|(_, name)| *name == engine);
    found.map_or(HEAP, |(id, _)| id)
}

/// Returns the access methods of the memory-oriented table engines, with their names.
pub fn table_engines() -> impl Iterator<Item = (u32, &'static str)> {
    EngineKind::ALL.into_iter().map(|kind| (MEMORY_ENGINES + u32::from(kind.number()), kind.name()))
}

/// The collation `default`.
pub const DEFAULT_COLLATION: u32 = 100;
/// The collation `C`, which names have.
pub const C_COLLATION: u32 = 950;

const KEY_INDEX: u32 = 1 << 29;
const CONSTRAINT: u32 = 1 << 30;
const DEFAULT: u32 = 1 << 31;

/// Returns the index of a table's primary key.
pub fn key_index(table: TableId) -> u32 {
    KEY_INDEX | table.0
}

/// Returns the table whose primary key has this index.
pub fn table_of_key_index(index: u32) -> Option<TableId> {
    (index & !(KEY_INDEX - 1) == KEY_INDEX).then_some(TableId(index & (KEY_INDEX - 1)))
}

/// Returns the OID of the constraint (PRIMARY KEY or UNIQUE) that an index implements.
pub fn constraint_of_index(index: u32) -> u32 {
    CONSTRAINT | index
}

/// Returns the OID of the default of a table's column. It has 31 bits for the table and the column, so for
/// very large ids two defaults may have the same OID.
pub fn default(table: TableId, ordinal: usize) -> u32 {
    DEFAULT | (table.0.wrapping_mul(2048).wrapping_add(ordinal as u32) & !DEFAULT)
}
