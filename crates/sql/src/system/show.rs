//! Shows names of OIDs, and access control lists, as text.
//!
//! This module does not know definitions (`definitions`) or system tables.

use std::sync::Arc;

use varve_engine::{
    About, Catalog, ColumnType, Datum, Grant, ObjectId, Rights, SchemaDef, Value, predefined,
};

use super::names::quoted;
use super::relations::{Relation, What, object_of, relation};
use super::{ids, list, type_row};
use crate::path::Path;
use crate::rights::Object;
use crate::ty::{Ty, Typed};

/// The role that means the owner of the database.
pub const DATABASE_OWNER: &str = "pg_database_owner";

/// Returns the name of a role by its OID, as `pg_get_userbyid` returns it.
pub fn role_name(catalog: &Catalog, oid: u32) -> String {
    if oid == ids::DATABASE_OWNER {
        return DATABASE_OWNER.to_owned();
    }
    let role = catalog.role_by_id(ObjectId(oid));
    role.map_or_else(|| format!("unknown (OID={oid})"), |role| role.name.clone())
}

/// Returns the name of a relation, as regclass shows it.
pub fn relation_name(catalog: &Catalog, oid: u32, path: &Path) -> Option<String> {
    let r = relation(catalog, oid)?;
    Some(path.shown(catalog, r.schema, r.name))
}

/// Returns a schema's name.
pub fn namespace_name(catalog: &Catalog, oid: u32) -> Option<String> {
    Some(match oid {
        ids::PG_CATALOG => "pg_catalog".to_owned(),
        ids::PUBLIC => "public".to_owned(),
        ids::INFORMATION_SCHEMA => "information_schema".to_owned(),
        other => catalog.schemas().find(|s| s.id.0 == other)?.name.clone(),
    })
}

/// Returns the name of a type with its modifier, as `format_type` writes it, or `???` if there is no such
/// type.
pub fn type_name(oid: u32, typmod: i32) -> String {
    if oid == 0 {
        return "-".to_owned();
    }
    let Some(ty) = Ty::of_oid(oid).filter(|ty| *ty != Ty::Unknown) else {
        return match type_row(oid) {
            Some(row) if row.name.starts_with('_') => format!("{}[]", type_name(row.element, typmod)),
            Some(row) => row.name.to_owned(),
            None => "???".to_owned(),
        };
    };
    if let (Ty::Array(_), Some(element)) = (ty, ty.element()) {
        return format!("{}[]", type_name(element.oid(), typmod));
    }
    let t = Typed { ty, typmod };
    match (t.length(), t.precision()) {
        (Some(length), _) => format!("{}({length})", ty.name()),
        (_, Some((precision, scale))) => format!("{}({precision},{scale})", ty.name()),
        _ if t.digits().is_some() => with_digits(t),
        // The word `character` alone means char(1), so a char without a length needs another name.
        _ if ty == Ty::Char && typmod < 0 => "bpchar".to_owned(),
        _ => ty.name().to_owned(),
    }
}

/// Returns the name of a type with digits, such as `timestamp(3) without time zone`. The digits follow the
/// first word.
fn with_digits(t: Typed) -> String {
    if let Some(fields) = t.fields() {
        let name = fields.name();
        let blank = if name.starts_with('(') || name.is_empty() { "" } else { " " };
        return format!("{}{blank}{name}", t.ty.name());
    }
    let digits = t.digits().map_or(0, |(_, digits)| digits);
    match t.ty.name().split_once(' ') {
        Some((word, rest)) => format!("{word}({digits}) {rest}"),
        None => format!("{}({digits})", t.ty.name()),
    }
}

/// Returns the B-tree operator class that an index on this type has.
pub fn operator_class(t: ColumnType) -> u32 {
    OPERATOR_CLASSES.iter().find(|(_, ty, ..)| *ty == class_type(t)).map_or(0, |(oid, ..)| *oid)
}

fn class_type(t: ColumnType) -> Ty {
    match Typed::of_column(t).ty {
        Ty::Varchar => Ty::Text,
        ty => ty,
    }
}

/// B-tree operator classes that are defaults: OID, type, name, OID of their family.
pub const OPERATOR_CLASSES: [(u32, Ty, &str, u32); 17] = [
    (10_004, Ty::Char, "bpchar_ops", 426),
    (10_006, Ty::Bytea, "bytea_ops", 428),
    (10_003, Ty::Bool, "bool_ops", 424),
    (3128, Ty::Timestamp, "timestamp_ops", 434),
    (3122, Ty::Date, "date_ops", 434),
    (10_012, Ty::Float4, "float4_ops", 1970),
    (3123, Ty::Float8, "float8_ops", 1970),
    (1979, Ty::Int2, "int2_ops", 1976),
    (1978, Ty::Int4, "int4_ops", 1976),
    (3124, Ty::Int8, "int8_ops", 1976),
    (10_022, Ty::Interval, "interval_ops", 1982),
    (3125, Ty::Numeric, "numeric_ops", 1988),
    (3126, Ty::Text, "text_ops", 1994),
    (10_038, Ty::Time, "time_ops", 1996),
    (3127, Ty::TimestampTz, "timestamptz_ops", 434),
    (10_065, Ty::Uuid, "uuid_ops", 2968),
    (1981, Ty::Oid, "oid_ops", 1989),
];

/// Returns the comment on a relation or one of its columns.
pub fn relation_comment(catalog: &Catalog, oid: u32, column: Option<usize>) -> Option<String> {
    let r = relation(catalog, oid)?;
    catalog.about(object_of(&r)?)?.comment(column).map(str::to_owned)
}

/// Returns the value of the column `relacl`. It is NULL if nothing was granted.
pub fn grants(catalog: &Catalog, r: &Relation<'_>) -> Value {
    match r.what {
        What::Index(_) | What::System(_) => Value::Null,
        _ => object_of(r).map_or(Value::Null, |object| acl(catalog, object)),
    }
}

/// Returns the access list of an object.
pub fn acl(catalog: &Catalog, object: ObjectId) -> Value {
    let Some(grants) = catalog.about(object).and_then(|about: &Arc<About>| about.grants.as_ref()) else {
        return Value::Null;
    };
    let shown: Vec<String> = grants.iter().map(|grant| acl_item(catalog, grant)).collect();
    list(ColumnType::Text, shown.iter().map(|item| Datum::Text(item)))
}

/// Returns the access list of a schema. For the schema `public` it is never NULL, and shows the role that
/// means the owner of the database.
pub fn schema_acl(catalog: &Catalog, schema: &SchemaDef, owner: ObjectId) -> Value {
    if owner != predefined::DATABASE_OWNER {
        return acl(catalog, schema.id);
    }
    let shown_as = |role: ObjectId| if role == catalog.owner(schema.id) { owner } else { role };
    let grants = Object::schema(schema).grants(catalog).into_iter().map(|grant| Grant {
        grantee: grant.grantee.map(shown_as),
        grantor: shown_as(grant.grantor),
        ..grant
    });
    let shown: Vec<String> = grants.map(|grant| acl_item(catalog, &grant)).collect();
    list(ColumnType::Text, shown.iter().map(|item| Datum::Text(item)))
}

/// The letters of rights, in PostgreSQL's order.
const LETTERS: [(Rights, char); 12] = [
    (Rights::INSERT, 'a'),
    (Rights::SELECT, 'r'),
    (Rights::UPDATE, 'w'),
    (Rights::DELETE, 'd'),
    (Rights::TRUNCATE, 'D'),
    (Rights::REFERENCES, 'x'),
    (Rights::TRIGGER, 't'),
    (Rights::EXECUTE, 'X'),
    (Rights::USAGE, 'U'),
    (Rights::CREATE, 'C'),
    (Rights::TEMPORARY, 'T'),
    (Rights::CONNECT, 'c'),
];

fn acl_item(catalog: &Catalog, grant: &Grant) -> String {
    let grantee = grant.grantee.map(|role| quoted(&role_name(catalog, role.0))).unwrap_or_default();
    let mut rights = String::new();
    for (right, letter) in LETTERS.iter().filter(|(right, _)| grant.rights.has(*right)) {
        rights.push(*letter);
        if grant.grantable.has(*right) {
            rights.push('*');
        }
    }
    format!("{grantee}={rights}/{}", quoted(&role_name(catalog, grant.grantor.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oid;

    /// The expected names are those of PostgreSQL 15.
    #[test]
    fn types_are_named_as_format_type_does() {
        for (type_oid, typmod, expected) in [
            (oid::INT4, -1, "integer"),
            (oid::VARCHAR, 14, "character varying(10)"),
            (oid::VARCHAR, -1, "character varying"),
            (oid::BPCHAR, 7, "character(3)"),
            (oid::BPCHAR, -1, "bpchar"),
            (oid::NUMERIC, 655_366, "numeric(10,2)"),
            (1015, 14, "character varying(10)[]"),
            (1007, -1, "integer[]"),
            (oid::CHAR, -1, "\"char\""),
            (oid::INT2VECTOR, -1, "int2vector"),
            (oid::TIMESTAMPTZ, -1, "timestamp with time zone"),
            (2205, -1, "regclass"),
            (0, -1, "-"),
            (99_999, -1, "???"),
        ] {
            assert_eq!(type_name(type_oid, typmod), expected);
        }
    }
}
