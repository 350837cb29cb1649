//! How many bytes tables, indexes and the database occupy: `pg_table_size` and similar functions.
//!
//! Invariants
//! 1. The index of a primary key is the table itself, so its size is 0 bytes. Views, sequences and system
//!    tables have the size 0, too.
//! 2. The size of a partition is NULL, because its rows are stored among those of the whole table.
//!
//! This module does not know pages (`varve_engine::Sizes`).

use varve_engine::{Catalog, Datum, IndexDef, ObjectId, POSTGRES, Sizes, SpaceId, TableDef};

use super::objects::{of_relation, oid};
use super::{Builtin, catalog, int, strict, text};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::system::{Relation, What, ids, tablespaces};
use crate::ty::Reg;
use crate::ty::Ty::{self, Int8, Name, Numeric, Oid, Text};

const CLASS: Ty = Ty::Reg(Reg::Class);

pub(super) const TABLE: &[Builtin] = &[
    catalog("pg_table_size", &[CLASS], Int8, |a, cx| of(a, cx, rows)),
    catalog("pg_relation_size", &[CLASS], Int8, |a, cx| of(a, cx, rows)),
    catalog("pg_relation_size", &[CLASS, Text], Int8, |a, cx| match text(a, 1) {
        "main" => of(a, cx, rows),
        "fsm" | "vm" | "init" => of(a, cx, |_, _| Some(0)),
        _ => Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "invalid fork name")
            .with_hint("Valid fork names are \"main\", \"fsm\", \"vm\", and \"init\".")),
    }),
    catalog("pg_indexes_size", &[CLASS], Int8, |a, cx| of(a, cx, indexes)),
    catalog("pg_total_relation_size", &[CLASS], Int8, |a, cx| {
        of(a, cx, |sizes, relation| Some(rows(sizes, relation)? + indexes(sizes, relation)?))
    }),
    catalog("pg_database_size", &[Name], Int8, |a, cx| {
        let catalog = &cx.env.world()?.catalog;
        match catalog.database_named(text(a, 0)) {
            Some(database) => of_database(cx, &catalog.of_database(database.id)),
            None => {
                let message = format!("database \"{}\" does not exist", text(a, 0));
                Err(SqlError::new(SqlState::UNDEFINED_DATABASE, message))
            }
        }
    }),
    catalog("pg_database_size", &[Oid], Int8, |a, cx| {
        let catalog = &cx.env.world()?.catalog;
        match catalog.database_by_id(ObjectId(oid(a, 0))) {
            Some(database) => of_database(cx, &catalog.of_database(database.id)),
            None => Ok(Datum::Null),
        }
    }),
    catalog("pg_tablespace_size", &[Name], Int8, |a, cx| match text(a, 0) {
        "pg_default" => in_default(cx),
        "pg_global" => Ok(Datum::Int8(0)),
        other => match tablespaces::named(cx.env.world()?, other) {
            Some(one) => in_tablespace(cx, one.id),
            None => {
                let message = format!("tablespace \"{other}\" does not exist");
                Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message))
            }
        },
    }),
    catalog("pg_tablespace_size", &[Oid], Int8, |a, cx| match oid(a, 0) {
        ids::DEFAULT_TABLESPACE => in_default(cx),
        ids::GLOBAL_TABLESPACE => Ok(Datum::Int8(0)),
        other => match tablespaces::with_oid(cx.env.world()?, other) {
            Some(one) => in_tablespace(cx, one.id),
            None => Ok(Datum::Null),
        },
    }),
    strict("pg_size_pretty", &[Int8], Text, |a, cx| Ok(cx.text(&pretty(int(a, 0))))),
    strict("pg_size_pretty", &[Numeric], Text, |a, cx| match a[0] {
        Datum::Numeric(n) if n.as_special().is_some() => Ok(cx.text(&format!("{n} PB"))),
        Datum::Numeric(n) => Ok(n.to_i64().map_or(Datum::Null, |bytes| cx.text(&pretty(bytes)))),
        other => Ok(other),
    }),
];

fn bytes(count: u64) -> Datum<'static> {
    Datum::Int8(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Returns a size of the relation with the OID in the first argument. The result is NULL if there is no such
/// relation.
fn of<'a>(a: &[Datum<'a>], cx: &Cx<'a>, size: fn(&Sizes, &Relation<'_>) -> Option<u64>) -> Result<Datum<'a>> {
    let Some(relation) = of_relation(a, cx)? else { return Ok(Datum::Null) };
    Ok(size(cx.env.world()?.sizes()?, &relation).map_or(Datum::Null, bytes))
}

/// Returns the size of the tables and indexes in a tablespace.
fn in_tablespace<'a>(cx: &Cx<'a>, id: SpaceId) -> Result<Datum<'a>> {
    Ok(bytes(placed(cx, |tablespace| tablespace == Some(id))?))
}

/// Returns the size of everything that is in no tablespace.
fn in_default<'a>(cx: &Cx<'a>) -> Result<Datum<'a>> {
    let all = cx.env.world()?.sizes()?.database_bytes();
    Ok(bytes(all.saturating_sub(placed(cx, |tablespace| tablespace.is_some())?)))
}

/// Returns the size of the tables and indexes in those tablespaces.
fn placed(cx: &Cx<'_>, is_there: impl Fn(Option<SpaceId>) -> bool) -> Result<u64> {
    let world = cx.env.world()?;
    let sizes = world.sizes()?;
    let of_table = |table: &TableDef| {
        let rows = if is_there(table.storage.tablespace) { sizes.table_bytes(table) } else { 0 };
        let here = table.indexes.iter().filter(|index| is_there(index.tablespace()));
        rows + here.map(|index| sizes.index_bytes(index)).sum::<u64>()
    };
    Ok(world.catalog.all_tables().map(|table| of_table(table)).sum())
}

/// Returns the size of a database. Objects that all databases share count for the first one.
fn of_database<'a>(cx: &Cx<'a>, catalog: &Catalog) -> Result<Datum<'a>> {
    let sizes = cx.env.world()?.sizes()?;
    let of_table = |table: &TableDef| {
        sizes.table_bytes(table) + table.indexes.iter().map(|index| sizes.index_bytes(index)).sum::<u64>()
    };
    if catalog.database() != POSTGRES {
        return Ok(bytes(catalog.tables().map(|table| of_table(table)).sum()));
    }
    let others = catalog.all_tables().filter(|table| table.database != POSTGRES);
    Ok(bytes(sizes.database_bytes().saturating_sub(others.map(|table| of_table(table)).sum())))
}

/// Returns the size of the relation without its secondary indexes.
fn rows(sizes: &Sizes, relation: &Relation<'_>) -> Option<u64> {
    match relation.what {
        What::Table(table) => Some(sizes.table_bytes(table)),
        What::Part(..) => None,
        What::Index(index) => {
            let is_it = |def: &&IndexDef| def.id.0 == relation.oid;
            let own = index.table.indexes.iter().map(AsRef::as_ref).find(is_it);
            Some(own.map_or(0, |own| sizes.index_bytes(own)))
        }
        What::Sequence(_) | What::View(_) | What::System(_) => Some(0),
    }
}

/// Returns the size of its secondary indexes.
fn indexes(sizes: &Sizes, relation: &Relation<'_>) -> Option<u64> {
    let of_table = |table: &TableDef| table.indexes.iter().map(|index| sizes.index_bytes(index)).sum();
    match relation.what {
        What::Table(table) => Some(of_table(table)),
        What::Part(..) => None,
        _ => Some(0),
    }
}

/// Returns a number of bytes, rounded, in the largest unit in which it is at least 10.
fn pretty(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let mut size = i128::from(bytes);
    // Half units are kept until the last step, so that only this step rounds.
    let mut halved = false;
    for unit in UNITS {
        let limit = if halved { 20 * 1024 - 1 } else { 10 * 1024 };
        if size.abs() < limit || unit == "PB" {
            let rounded = if halved { (size + if size < 0 { -1 } else { 1 }) / 2 } else { size };
            return format!("{rounded} {unit}");
        }
        size >>= if halved { 10 } else { 9 };
        halved = true;
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::pretty;

    /// The expected texts are those of PostgreSQL 15.
    #[test]
    fn sizes_are_rounded_as_in_postgresql() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (10_752, "11 kB"),
            (10_485_247, "10239 kB"),
            (10_485_248, "10 MB"),
            (1 << 40, "1024 GB"),
            (-20_480, "-20 kB"),
        ] {
            assert_eq!(pretty(bytes), expected, "{bytes}");
        }
    }
}
