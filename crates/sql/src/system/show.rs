//! Definitions and names as text, as PostgreSQL's `pg_get_...` functions write them.
//!
//! Does not know: system tables.

use std::sync::Arc;

use varve_engine::{
    About, Bound, Catalog, Check, ColumnType, Datum, Edge, Grant, ObjectId, Part, PartitionMethod, Rights,
    SchemaDef, TableDef, Value, ViewDef, predefined,
};

use super::constraints::{Constraint, Demand, action_words};
use super::names::quoted;
use super::relations::{IndexKey, IndexOf, Relation, What, object_of, relation};
use super::{conditions, deparse, ids, list, type_row};
use crate::eval::func::format::literal as quote_literal;
use crate::path::Path;
use crate::rights::Object;
use crate::ty::{Ty, Typed};

/// `CREATE [UNIQUE] INDEX ...`; with a path in few parentheses, and the table by its name on that.
pub fn index_definition(
    catalog: &Catalog,
    r: &Relation<'_>,
    index: &IndexOf<'_>,
    path: Option<&Path>,
) -> String {
    let unique = if index.unique { "UNIQUE " } else { "" };
    let only = if index.table.partitions.is_some() { "ONLY " } else { "" };
    let pretty = path.is_some();
    let table = match path {
        Some(path) => path.shown(catalog, &index.table.schema, &index.table.name),
        None => format!("{}.{}", quoted(&index.table.schema), quoted(&index.table.name)),
    };
    let keys: Vec<String> = index.keys().map(|key| index_key(catalog, index.table, key, pretty)).collect();
    let keys = keys.join(", ");
    let predicate = index.derived.and_then(|derived| derived.predicate.as_deref());
    let condition =
        predicate.map(|text| format!(" WHERE {}", index_text(catalog, index.table, text, pretty)));
    let condition = condition.unwrap_or_default();
    format!("CREATE {unique}INDEX {} ON {only}{table} USING btree ({keys}){condition}", quoted(r.name))
}

/// A part of an index's key.
pub fn index_key(catalog: &Catalog, table: &TableDef, key: IndexKey<'_>, pretty: bool) -> String {
    match key {
        IndexKey::Column(ordinal) => columns(table, &[ordinal]),
        IndexKey::Expression(text, _) if conditions::is_call(text) => {
            index_text(catalog, table, text, pretty)
        }
        IndexKey::Expression(text, _) => format!("({})", index_text(catalog, table, text, pretty)),
    }
}

/// An expression or condition of an index.
pub fn index_text(catalog: &Catalog, table: &TableDef, text: &str, pretty: bool) -> String {
    conditions::expression(catalog, table, text, pretty).unwrap_or_else(|| text.to_owned())
}

/// Names of columns with commas between them.
fn columns(table: &TableDef, ordinals: &[usize]) -> String {
    let names = ordinals.iter().filter_map(|c| table.columns.get(*c)).map(|c| quoted(&c.name));
    names.collect::<Vec<_>>().join(", ")
}

/// The text behind CONSTRAINT name.
pub fn constraint_definition(catalog: &Catalog, c: &Constraint<'_>, pretty: bool, path: &Path) -> String {
    demand(catalog, c, pretty, path) + if c.is_not_valid() { " NOT VALID" } else { "" }
}

/// The condition of CHECK, `pretty` or in all its parentheses.
pub fn check_condition(catalog: &Catalog, table: &TableDef, check: &Check, pretty: bool) -> String {
    let as_kept = || if pretty { check.text.clone() } else { format!("({})", check.text) };
    conditions::condition(catalog, table, check, pretty).unwrap_or_else(as_kept)
}

fn demand(catalog: &Catalog, c: &Constraint<'_>, pretty: bool, path: &Path) -> String {
    let own = columns(c.table, c.columns);
    match c.what {
        Demand::Key(_) => format!("PRIMARY KEY ({own})"),
        Demand::Unique(_) => format!("UNIQUE ({own})"),
        Demand::Check(check) => format!("CHECK ({})", check_condition(catalog, c.table, check, pretty)),
        Demand::Foreign(key) => {
            let (parent, parent_columns) = match catalog.table_by_id(key.parent) {
                Some(parent) => {
                    (path.shown(catalog, &parent.schema, &parent.name), columns(&parent, &key.parent_columns))
                }
                None => (key.parent.0.to_string(), String::new()),
            };
            let mut out = format!("FOREIGN KEY ({own}) REFERENCES {parent}({parent_columns})");
            out.push_str(if key.match_full { " MATCH FULL" } else { "" });
            for (event, action) in [("UPDATE", key.on_update), ("DELETE", key.on_delete)] {
                if !action_words(action).is_empty() {
                    out.push_str(&format!(" ON {event} {}", action_words(action)));
                }
            }
            out.push_str(if key.deferrable { " DEFERRABLE" } else { "" });
            out.push_str(if key.initially_deferred { " INITIALLY DEFERRED" } else { "" });
            out
        }
    }
}

/// The query of a view.
pub fn view_definition(catalog: &Catalog, view: &ViewDef, path: &Path) -> String {
    let laid_out = deparse::view_query(catalog, view, path);
    let query = laid_out.unwrap_or_else(|| format!(" {}", view.text.trim().trim_end_matches(';')));
    format!("{query};")
}

/// `FOR VALUES WITH (modulus m, remainder r)` and the like
pub fn partition_bound(part: &Part) -> String {
    match &part.bound {
        Bound::Hash { modulus, remainder } => {
            format!("FOR VALUES WITH (modulus {modulus}, remainder {remainder})")
        }
        Bound::Range { from, to } => format!("FOR VALUES FROM {} TO {}", edges(from), edges(to)),
        Bound::Default => "DEFAULT".to_owned(),
    }
}

/// One end of a range part.
pub fn edges(edges: &[Edge]) -> String {
    let shown: Vec<String> = edges.iter().map(edge).collect();
    format!("({})", shown.join(", "))
}

fn edge(edge: &Edge) -> String {
    let value = match edge {
        Edge::Least => return "MINVALUE".to_owned(),
        Edge::Greatest => return "MAXVALUE".to_owned(),
        Edge::At(value) => value,
    };
    let mut text = Vec::new();
    crate::text::write_text(value.as_datum(), &mut text);
    let text = String::from_utf8_lossy(&text);
    match value {
        Value::Bool(b) => b.to_string(),
        Value::Int4(n) if *n >= 0 => text.into_owned(),
        Value::Numeric(_) if text.contains('.') && !text.starts_with('-') => text.into_owned(),
        _ => quote_literal(&text),
    }
}

/// What `pg_get_partkeydef` says.
pub fn partition_key(table: &TableDef) -> Option<String> {
    let partitions = table.partitions.as_ref()?;
    let method = match partitions.method {
        PartitionMethod::Hash => "HASH",
        PartitionMethod::Range => "RANGE",
    };
    Some(format!("{method} ({})", columns(table, &partitions.columns)))
}

/// The role that stands for the database's owner.
pub const DATABASE_OWNER: &str = "pg_database_owner";

/// A role by OID, as `pg_get_userbyid` names it.
pub fn role_name(catalog: &Catalog, oid: u32) -> String {
    if oid == ids::DATABASE_OWNER {
        return DATABASE_OWNER.to_owned();
    }
    let role = catalog.role_by_id(ObjectId(oid));
    role.map_or_else(|| format!("unknown (OID={oid})"), |role| role.name.clone())
}

/// A relation as regclass shows it.
pub fn relation_name(catalog: &Catalog, oid: u32, path: &Path) -> Option<String> {
    let r = relation(catalog, oid)?;
    Some(path.shown(catalog, r.schema, r.name))
}

/// A schema's name.
pub fn namespace_name(catalog: &Catalog, oid: u32) -> Option<String> {
    Some(match oid {
        ids::PG_CATALOG => "pg_catalog".to_owned(),
        ids::PUBLIC => "public".to_owned(),
        ids::INFORMATION_SCHEMA => "information_schema".to_owned(),
        other => catalog.schemas().find(|s| s.id.0 == other)?.name.clone(),
    })
}

/// A type with its modifier, as `format_type` writes it; `???` for what is no type.
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
        // A char without length is not what the word `character` alone means.
        _ if ty == Ty::Char && typmod < 0 => "bpchar".to_owned(),
        _ => ty.name().to_owned(),
    }
}

/// `timestamp(3) without time zone`: the digits stand behind the first word.
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

/// The B-tree operator class that an index on this type has.
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

/// The comment on a relation or one of its columns.
pub fn relation_comment(catalog: &Catalog, oid: u32, column: Option<usize>) -> Option<String> {
    let r = relation(catalog, oid)?;
    catalog.about(object_of(&r)?)?.comment(column).map(str::to_owned)
}

/// `relacl`: NULL as long as nobody granted anything.
pub fn grants(catalog: &Catalog, r: &Relation<'_>) -> Value {
    match r.what {
        What::Index(_) | What::System(_) => Value::Null,
        _ => object_of(r).map_or(Value::Null, |object| acl(catalog, object)),
    }
}

/// The access list of an object.
pub fn acl(catalog: &Catalog, object: ObjectId) -> Value {
    let Some(grants) = catalog.about(object).and_then(|about: &Arc<About>| about.grants.as_ref()) else {
        return Value::Null;
    };
    let shown: Vec<String> = grants.iter().map(|grant| acl_item(catalog, grant)).collect();
    list(ColumnType::Text, shown.iter().map(|item| Datum::Text(item)))
}

/// The access list of a schema. That of `public` is never NULL, and shows the role that stands for the database's owner.
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

    /// Answers of PostgreSQL 15.
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
