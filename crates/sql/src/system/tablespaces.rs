//! The facts about tablespaces that system tables and functions show.
//!
//! This module does not know which roles may make tablespaces.

use varve_engine::{BOOTSTRAP_ROLE, ColumnType, Compression, Datum, ObjectId, SpaceId, Tablespace, Value};

use super::relations::{Relation, What};
use super::{Rows, SystemContext, ids, list, oid, text};

/// The two tablespaces that each server has, with their OIDs.
pub const KNOWN: [(u32, &str); 2] =
    [(ids::DEFAULT_TABLESPACE, "pg_default"), (ids::GLOBAL_TABLESPACE, "pg_global")];

/// The note that the storage engine stores with a tablespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Its owner.
    pub owner: ObjectId,
    /// The options of PostgreSQL that it has, which have no effect: names and values.
    pub options: Vec<(String, String)>,
}

impl Note {
    /// The note of a tablespace.
    pub fn of(tablespace: &Tablespace) -> Note {
        let (owner, rest) = match tablespace.note.split_first_chunk::<4>() {
            Some((owner, rest)) => (ObjectId(u32::from_le_bytes(*owner)), rest),
            None => (BOOTSTRAP_ROLE, &[][..]),
        };
        let lines = std::str::from_utf8(rest).unwrap_or_default().lines();
        let options = lines.filter_map(|line| line.split_once('='));
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Note { owner, options }
    }

    /// The note as bytes: the owner as 4 bytes, little endian. Then a line `name=value` for each option.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.owner.0.to_le_bytes().to_vec();
        for (name, value) in &self.options {
            bytes.extend_from_slice(format!("{name}={value}\n").as_bytes());
        }
        bytes
    }
}

/// Returns the owner of a tablespace.
pub fn owner_of(tablespace: &Tablespace) -> ObjectId {
    Note::of(tablespace).owner
}

/// Returns the tablespace with this OID, if CREATE TABLESPACE has made it.
pub fn with_oid(world: &SystemContext, number: u32) -> Option<Tablespace> {
    world.engine.tablespace(ids::tablespace_of(number)?)
}

/// Returns the tablespace of this name, if CREATE TABLESPACE has made it.
pub fn named(world: &SystemContext, name: &str) -> Option<Tablespace> {
    world.engine.tablespace_named(name)
}

/// Returns the tablespace of a relation. `None` means `pg_default`. The index of a primary key is in the
/// tablespace of the rows.
fn of(relation: &Relation<'_>) -> Option<SpaceId> {
    match relation.what {
        What::Table(table) | What::Part(table, _) => table.storage.tablespace,
        What::Index(index) if index.primary => index.table.storage.tablespace,
        What::Index(index) => {
            let found = index.table.indexes.iter().find(|one| one.id.0 == relation.oid);
            found.and_then(|one| one.tablespace())
        }
        What::Sequence(_) | What::View(_) | What::System(_) => None,
    }
}

/// Returns the value of the column `reltablespace`. 0 means the tablespace of the database.
pub(super) fn oid_of(relation: &Relation<'_>) -> Value {
    oid(of(relation).map_or(0, ids::tablespace))
}

/// Returns the name of the tablespace of a relation. NULL means the tablespace of the database.
pub(super) fn name_of(world: &SystemContext, relation: &Relation<'_>) -> Value {
    let found = of(relation).and_then(|id| world.engine.tablespace(id));
    found.map_or(Value::Null, |one| text(one.name))
}

pub(super) fn pg_tablespace(world: &SystemContext, rows: &mut Rows<'_>) {
    for (id, name) in KNOWN {
        rows.add([("oid", oid(id)), ("spcname", text(name)), ("spcowner", oid(BOOTSTRAP_ROLE.0))]);
    }
    for one in world.engine.tablespaces() {
        rows.add([
            ("oid", oid(ids::tablespace(one.id))),
            ("spcname", text(&one.name)),
            ("spcowner", oid(owner_of(&one).0)),
            ("spcoptions", options(&one)),
        ]);
    }
}

fn options(one: &Tablespace) -> Value {
    let protection = (one.protection != "doublewrite").then(|| format!("protection={}", one.protection));
    let compression = one.compression.into_iter().flat_map(|Compression { algorithm, level }| {
        let level = (level != 0).then(|| format!("compression_level={level}"));
        [format!("compression={algorithm}")].into_iter().chain(level)
    });
    let others = Note::of(one).options.into_iter().map(|(name, value)| format!("{name}={value}"));
    let all: Vec<String> = protection.into_iter().chain(compression).chain(others).collect();
    match all.is_empty() {
        true => Value::Null,
        false => list(ColumnType::Text, all.iter().map(|option| Datum::Text(option))),
    }
}
