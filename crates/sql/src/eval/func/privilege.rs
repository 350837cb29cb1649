//! `has_table_privilege` and its relatives.
//!
//! Invariants
//! 1. They say what a statement of that role would be allowed, by the same rules (`crate::rights`).
//!
//! Does not know: columns' own rights and databases' rights, which there are none of: columns have their table's, everybody
//! may connect.

use varve_engine::{Datum, ObjectId, Rights};

use super::{Builtin, catalog, text};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Cx, reg};
use crate::exec::split_name;
use crate::rights::{Holder, Kind, Object, memberships};
use crate::system::{self, What, World};
use crate::ty::Reg;
use crate::ty::Ty::{Bool, Int2, Name, Oid, Text};

/// With and without a role, the object by name and by OID.
const fn rows(name: &'static str, run: super::Run) -> [Builtin; 4] {
    [
        catalog(name, &[Text, Text], Bool, run),
        catalog(name, &[Oid, Text], Bool, run),
        catalog(name, &[Name, Text, Text], Bool, run),
        catalog(name, &[Name, Oid, Text], Bool, run),
    ]
}

pub(super) static TABLES: [Builtin; 4] = rows("has_table_privilege", |a, cx| of_relation(a, &[], cx));
pub(super) static ANY_COLUMNS: [Builtin; 4] =
    rows("has_any_column_privilege", |a, cx| of_relation(a, &[], cx));
pub(super) static SEQUENCES: [Builtin; 4] = rows("has_sequence_privilege", |a, cx| of_relation(a, &[], cx));
pub(super) static SCHEMAS: [Builtin; 4] = rows("has_schema_privilege", of_schema);
pub(super) static DATABASES: [Builtin; 4] = rows("has_database_privilege", of_database);
pub(super) static ROLES: [Builtin; 4] = rows("pg_has_role", of_role);

pub(super) const COLUMNS: &[Builtin] = &[
    catalog("has_column_privilege", &[Text, Text, Text], Bool, |a, cx| of_relation(&[a[0], a[2]], a, cx)),
    catalog("has_column_privilege", &[Oid, Text, Text], Bool, |a, cx| of_relation(&[a[0], a[2]], a, cx)),
    catalog("has_column_privilege", &[Text, Int2, Text], Bool, |a, cx| of_relation(&[a[0], a[2]], a, cx)),
    catalog("has_column_privilege", &[Oid, Int2, Text], Bool, |a, cx| of_relation(&[a[0], a[2]], a, cx)),
];

/// The role that is asked about, the object, and the rights: with the role left out it is the session's.
fn parts<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<(Holder, Datum<'a>, &'a str)> {
    let world = cx.env.world()?;
    let [.., object, _] = a else { return Err(SqlError::internal("a privilege function without arguments")) };
    let who = match a {
        [Datum::Text(name), _, _] => {
            let role = world.catalog.role(name).ok_or_else(|| {
                SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
            })?;
            Some(role.id)
        }
        _ => world.who,
    };
    Ok((Holder::of(&world.catalog, who), *object, text(a, a.len() - 1)))
}

/// The words of rights; which of them there are hangs on the kind of the object.
const WORDS: [(&str, Rights); 12] = [
    ("SELECT", Rights::SELECT),
    ("INSERT", Rights::INSERT),
    ("UPDATE", Rights::UPDATE),
    ("DELETE", Rights::DELETE),
    ("TRUNCATE", Rights::TRUNCATE),
    ("REFERENCES", Rights::REFERENCES),
    ("TRIGGER", Rights::TRIGGER),
    ("USAGE", Rights::USAGE),
    ("CREATE", Rights::CREATE),
    ("CONNECT", Rights::CONNECT),
    ("TEMPORARY", Rights::TEMPORARY),
    ("TEMP", Rights::TEMPORARY),
];

/// The rights in a list such as `SELECT, INSERT`, any of which will do.
fn wanted(list: &str, possible: Rights) -> Result<Vec<Rights>> {
    let word = |written: &str| {
        let upper = written.trim().to_ascii_uppercase();
        let plain = upper.strip_suffix(" WITH GRANT OPTION").unwrap_or(&upper);
        let found = WORDS.iter().find(|(word, right)| *word == plain && possible.has(*right));
        found.map(|(_, right)| *right).ok_or_else(|| {
            let message = format!("unrecognized privilege type: \"{}\"", written.trim());
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
        })
    };
    list.split(',').map(word).collect()
}

fn by_name(object: Datum<'_>, kind: Reg, world: &World) -> Result<Option<u32>> {
    match object {
        Datum::Text(name) => reg::find(kind, name, &world.catalog, &world.path).map(Some),
        number => Ok(number.as_integer().and_then(|n| u32::try_from(n).ok())),
    }
}

/// Rights on a table, view or sequence; of a column of it, if `column` has its name or number in the second place.
fn of_relation<'a>(a: &[Datum<'a>], column: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (holder, object, list) = parts(a, cx)?;
    let world = cx.env.world()?;
    let catalog = &world.catalog;
    let Some(oid) = by_name(object, Reg::Class, world)? else { return Ok(Datum::Null) };
    let Some(r) = system::relation(catalog, oid) else { return Ok(Datum::Null) };
    if let Some(Datum::Text(name)) = column.get(1)
        && !r.attributes().iter().any(|column| column.name == **name)
    {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", r.name);
        return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
    }
    let kind = match r.what {
        What::Sequence(_) => Kind::Sequence,
        What::View(_) => Kind::View,
        _ => Kind::Table,
    };
    let wanted = wanted(list, kind.all())?;
    let id = match r.what {
        What::Part(table, _) => ObjectId::from(table.id),
        What::Index(_) => return Ok(Datum::Bool(holder.is_superuser())),
        What::System(_) => {
            let reads = wanted.contains(&Rights::SELECT) && r.name != "pg_authid";
            return Ok(Datum::Bool(reads || holder.is_superuser()));
        }
        _ => ObjectId(oid),
    };
    Ok(Datum::Bool(holder.may_any(catalog, &Object::new(id, kind, r.name), &wanted)))
}

fn of_schema<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (holder, object, list) = parts(a, cx)?;
    let catalog = &cx.env.world()?.catalog;
    let Some(oid) = by_name(object, Reg::Namespace, cx.env.world()?)? else { return Ok(Datum::Null) };
    let wanted = wanted(list, Kind::Schema.all())?;
    let Some(name) = system::show::namespace_name(catalog, oid) else { return Ok(Datum::Null) };
    match catalog.schemas().iter().find(|schema| schema.name == name) {
        Some(schema) => Ok(Datum::Bool(holder.may_any(catalog, &Object::schema(schema), &wanted))),
        None => Ok(Datum::Bool(wanted.contains(&Rights::USAGE) || holder.is_superuser())),
    }
}

fn of_database<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (holder, object, list) = parts(a, cx)?;
    if let Datum::Text(name) = object
        && name != cx.env.database
    {
        let message = format!("database \"{name}\" does not exist");
        return Err(SqlError::new(SqlState("3D000"), message));
    }
    let wanted = wanted(list, Rights::CONNECT.with(Rights::TEMPORARY).with(Rights::CREATE))?;
    Ok(Datum::Bool(wanted.contains(&Rights::CONNECT) || holder.is_superuser()))
}

/// Whether one role is (a member of) another.
fn of_role<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (holder, object, _) = parts(a, cx)?;
    let world = cx.env.world()?;
    let Some(oid) = by_name(object, Reg::Role, world)? else { return Ok(Datum::Null) };
    let asked = match a {
        [Datum::Text(name), _, _] => world.catalog.role(&split_name(name).1).map(|role| role.id),
        _ => world.who,
    };
    let member =
        asked.is_some_and(|role| memberships(&world.catalog, role, &|_| true).contains(&ObjectId(oid)));
    Ok(Datum::Bool(member || holder.is_superuser()))
}
