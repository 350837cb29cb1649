//! System tables about schemas, roles, types, access methods and comments.
//!
//! This module does not know relations or their columns.

use varve_engine::{BOOTSTRAP_ROLE, ColumnType, DatabaseDef, Datum, Interval, RoleDef, Value, predefined};

use super::constraints::Constraint;
use super::relations::{object_of, relations};
use super::{Fill, Rows, SystemContext, char1, constraints, ids, list, oid, show, tablespaces, text, types};
use crate::eval::func::clock_us;
use crate::time::{self, Zone};

/// `pg_encoding_to_char(6)` is UTF8.
const UTF8: i32 = 6;

/// Returns the code for the tables of this file.
pub fn fill(name: &str) -> Option<Fill> {
    Some(match name {
        "pg_namespace" => pg_namespace,
        "pg_database" => pg_database,
        "pg_db_role_setting" => pg_db_role_setting,
        "pg_tablespace" => tablespaces::pg_tablespace,
        "pg_am" => pg_am,
        "pg_opclass" => pg_opclass,
        "pg_collation" => pg_collation,
        "pg_type" => pg_type,
        "pg_language" => pg_language,
        "pg_authid" => pg_authid,
        "pg_roles" => pg_roles,
        "pg_user" => pg_user,
        "pg_shadow" => pg_shadow,
        "pg_group" => pg_group,
        "pg_auth_members" => pg_auth_members,
        "pg_get_keywords" => keywords,
        "pg_timezone_names" => zones,
        "pg_timezone_abbrevs" => zone_abbreviations,
        "pg_description" => pg_description,
        "pg_shdescription" => pg_shdescription,
        _ => return None,
    })
}

fn owner() -> Value {
    oid(BOOTSTRAP_ROLE.0)
}

fn pg_namespace(world: &SystemContext, rows: &mut Rows<'_>) {
    let mut add = |id: u32, name: &str, owner: Value, acl: Value| {
        rows.add([("oid", oid(id)), ("nspname", text(name)), ("nspowner", owner), ("nspacl", acl)]);
    };
    add(ids::PG_CATALOG, "pg_catalog", owner(), Value::Null);
    add(ids::INFORMATION_SCHEMA, "information_schema", owner(), Value::Null);
    for schema in world.catalog.schemas() {
        let id = if schema.name == "public" { ids::PUBLIC } else { schema.id.0 };
        let owner = match world.catalog.owner(schema.id) {
            BOOTSTRAP_ROLE if id == ids::PUBLIC => predefined::DATABASE_OWNER,
            other => other,
        };
        add(id, &schema.name, oid(owner.0), show::schema_acl(&world.catalog, schema, owner));
    }
}

/// Returns all databases, the oldest first.
pub fn databases(world: &SystemContext) -> Vec<&DatabaseDef> {
    let mut all: Vec<&DatabaseDef> = world.catalog.databases().map(AsRef::as_ref).collect();
    all.sort_unstable_by_key(|database| database.id);
    all
}

/// Lists the settings of ALTER DATABASE ... SET.
fn pg_db_role_setting(world: &SystemContext, rows: &mut Rows<'_>) {
    for database in databases(world).into_iter().filter(|database| !database.settings.is_empty()) {
        let set: Vec<String> =
            database.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        rows.add([
            ("setdatabase", oid(database.id.0)),
            ("setrole", oid(0)),
            ("setconfig", list(ColumnType::Text, set.iter().map(|set| Datum::Text(set)))),
        ]);
    }
}

fn pg_database(world: &SystemContext, rows: &mut Rows<'_>) {
    for database in databases(world) {
        rows.add([
            ("oid", oid(database.id.0)),
            ("datname", text(&database.name)),
            ("datdba", oid(world.catalog.owner(database.id).0)),
            ("encoding", Value::Int4(UTF8)),
            ("datlocprovider", char1('c')),
            ("datistemplate", Value::Bool(database.is_template)),
            ("datallowconn", Value::Bool(database.allows_connections)),
            ("datconnlimit", Value::Int4(database.connection_limit)),
            ("dattablespace", oid(ids::DEFAULT_TABLESPACE)),
            ("datcollate", text("C")),
            ("datctype", text("C.UTF-8")),
            ("datacl", show::acl(&world.catalog, database.id)),
        ]);
    }
}

fn pg_am(_: &SystemContext, rows: &mut Rows<'_>) {
    let predefined = [(ids::HEAP, "heap", 't'), (ids::BTREE, "btree", 'i')];
    let engines = ids::table_engines().map(|(id, name)| (id, name, 't'));
    for (id, name, kind) in predefined.into_iter().chain(engines) {
        rows.add([("oid", oid(id)), ("amname", text(name)), ("amtype", char1(kind))]);
    }
}

fn pg_opclass(_: &SystemContext, rows: &mut Rows<'_>) {
    for (id, ty, name, family) in show::OPERATOR_CLASSES {
        rows.add([
            ("oid", oid(id)),
            ("opcmethod", oid(ids::BTREE)),
            ("opcname", text(name)),
            ("opcnamespace", oid(ids::PG_CATALOG)),
            ("opcowner", owner()),
            ("opcfamily", oid(family)),
            ("opcintype", oid(ty.oid())),
            ("opcdefault", Value::Bool(true)),
        ]);
    }
}

fn pg_collation(_: &SystemContext, rows: &mut Rows<'_>) {
    for (id, name, provider) in [(ids::DEFAULT_COLLATION, "default", 'd'), (ids::C_COLLATION, "C", 'c')] {
        let locale = if provider == 'c' { text(name) } else { Value::Null };
        rows.add([
            ("oid", oid(id)),
            ("collname", text(name)),
            ("collnamespace", oid(ids::PG_CATALOG)),
            ("collowner", owner()),
            ("collprovider", char1(provider)),
            ("collisdeterministic", Value::Bool(true)),
            ("collencoding", Value::Int4(-1)),
            ("collcollate", locale.clone()),
            ("collctype", locale),
        ]);
    }
}

fn pg_type(_: &SystemContext, rows: &mut Rows<'_>) {
    for t in types() {
        let [input, output, receive, send] = t.functions.map(|(id, _)| oid(id));
        rows.add([
            ("oid", oid(t.oid)),
            ("typname", text(t.name)),
            ("typnamespace", oid(ids::PG_CATALOG)),
            ("typowner", owner()),
            ("typlen", Value::Int2(t.len)),
            ("typbyval", Value::Bool(t.by_value)),
            ("typtype", char1(t.kind)),
            ("typcategory", char1(t.category)),
            ("typispreferred", Value::Bool(t.is_preferred)),
            ("typisdefined", Value::Bool(true)),
            ("typdelim", char1(',')),
            ("typelem", oid(t.element)),
            ("typarray", oid(t.array)),
            ("typinput", input),
            ("typoutput", output),
            ("typreceive", receive),
            ("typsend", send),
            ("typalign", char1(t.align)),
            ("typstorage", char1(t.storage)),
            ("typtypmod", Value::Int4(-1)),
            ("typcollation", oid(t.collation)),
        ]);
    }
}

/// The languages, by OID.
pub const LANGUAGES: [(u32, &str); 2] = [(12, "internal"), (14, "sql")];

fn pg_language(_: &SystemContext, rows: &mut Rows<'_>) {
    for (id, name) in LANGUAGES {
        rows.add([("oid", oid(id)), ("lanname", text(name)), ("lanowner", owner())]);
    }
}

/// Returns the roles, sorted by OID.
fn roles(world: &SystemContext) -> Vec<&RoleDef> {
    let mut roles: Vec<&RoleDef> = world.catalog.roles().map(|role| &**role).collect();
    roles.sort_by_key(|role| role.id);
    roles
}

fn until(role: &RoleDef) -> Value {
    role.valid_until_us.map_or(Value::Null, Value::TimestampTz)
}

fn pg_authid(world: &SystemContext, rows: &mut Rows<'_>) {
    for role in roles(world) {
        rows.add(
            attributes(role)
                .into_iter()
                .chain([("rolpassword", role.password.as_deref().map_or(Value::Null, text))]),
        );
    }
}

fn pg_roles(world: &SystemContext, rows: &mut Rows<'_>) {
    for role in roles(world) {
        rows.add(attributes(role).into_iter().chain([("rolpassword", text("********"))]));
    }
}

fn attributes(role: &RoleDef) -> [(&'static str, Value); 11] {
    [
        ("oid", oid(role.id.0)),
        ("rolname", text(&role.name)),
        ("rolsuper", Value::Bool(role.is_superuser)),
        ("rolinherit", Value::Bool(role.inherits)),
        ("rolcreaterole", Value::Bool(role.makes_roles)),
        ("rolcreatedb", Value::Bool(role.makes_databases)),
        ("rolcanlogin", Value::Bool(role.may_log_in)),
        ("rolreplication", Value::Bool(role.replicates)),
        ("rolbypassrls", Value::Bool(role.bypasses_row_security)),
        ("rolconnlimit", Value::Int4(role.connection_limit)),
        ("rolvaliduntil", until(role)),
    ]
}

fn pg_user(world: &SystemContext, rows: &mut Rows<'_>) {
    for role in roles(world).into_iter().filter(|role| role.may_log_in) {
        rows.add([
            ("usename", text(&role.name)),
            ("usesysid", oid(role.id.0)),
            ("usecreatedb", Value::Bool(role.makes_databases)),
            ("usesuper", Value::Bool(role.is_superuser)),
            ("userepl", Value::Bool(role.replicates)),
            ("usebypassrls", Value::Bool(role.bypasses_row_security)),
            ("passwd", text("********")),
            ("valuntil", until(role)),
        ]);
    }
}

fn pg_shadow(world: &SystemContext, rows: &mut Rows<'_>) {
    for role in roles(world).into_iter().filter(|role| role.may_log_in) {
        rows.add([
            ("usename", text(&role.name)),
            ("usesysid", oid(role.id.0)),
            ("usecreatedb", Value::Bool(role.makes_databases)),
            ("usesuper", Value::Bool(role.is_superuser)),
            ("userepl", Value::Bool(role.replicates)),
            ("usebypassrls", Value::Bool(role.bypasses_row_security)),
            ("passwd", role.password.as_deref().map_or(Value::Null, text)),
            ("valuntil", until(role)),
        ]);
    }
}

/// Lists roles that may not log in, with their members.
fn pg_group(world: &SystemContext, rows: &mut Rows<'_>) {
    for group in roles(world).into_iter().filter(|role| !role.may_log_in) {
        let is_in = |role: &&&RoleDef| role.member_of.iter().any(|membership| membership.role == group.id);
        let all = roles(world);
        let members = all.iter().filter(is_in).map(|role| Datum::Int8(i64::from(role.id.0)));
        rows.add([
            ("groname", text(&group.name)),
            ("grosysid", oid(group.id.0)),
            ("grolist", list(ColumnType::Int8, members)),
        ]);
    }
}

/// Lists PostgreSQL's keywords. `keywords.txt` has a line for each, with its category, and whether it can be
/// a column's name without AS.
fn keywords(_: &SystemContext, rows: &mut Rows<'_>) {
    for line in include_str!("keywords.txt").lines() {
        let mut fields = line.split(' ');
        let (Some(word), Some(category), Some(bare)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let described = match category {
            "U" => "unreserved",
            "C" => "unreserved (cannot be function or type name)",
            "T" => "reserved (can be function or type name)",
            _ => "reserved",
        };
        let is_bare = bare == "t";
        rows.add([
            ("word", text(word)),
            ("catcode", text(category)),
            ("barelabel", Value::Bool(is_bare)),
            ("catdesc", text(described)),
            ("baredesc", text(if is_bare { "can be bare label" } else { "requires AS" })),
        ]);
    }
}

fn seconds(offset: i32) -> Value {
    Value::Interval(Interval { months: 0, days: 0, micros: i64::from(offset) * 1_000_000 })
}

/// Lists the names that the setting TimeZone accepts, with their current offset and abbreviation.
fn zones(_: &SystemContext, rows: &mut Rows<'_>) {
    let now = clock_us();
    for (name, zone) in Zone::all() {
        rows.add([
            ("name", text(name)),
            ("abbrev", text(zone.abbreviation_at(now))),
            ("utc_offset", seconds(zone.offset_at(now))),
            ("is_dst", Value::Bool(zone.saves_daylight_at(now))),
        ]);
    }
}

fn zone_abbreviations(_: &SystemContext, rows: &mut Rows<'_>) {
    let now = clock_us();
    for name in time::zone_abbreviations() {
        let Some(zone) = Zone::of_abbreviation(name) else { continue };
        rows.add([
            ("abbrev", text(name.to_uppercase())),
            ("utc_offset", seconds(zone.offset_at(now))),
            ("is_dst", Value::Bool(is_of_summer(name, &zone, now))),
        ]);
    }
}

/// Returns whether an abbreviation means daylight saving time. For an abbreviation with a fixed offset, its
/// name shows this.
fn is_of_summer(abbreviation: &str, zone: &Zone, now_us: i64) -> bool {
    match zone {
        Zone::Fixed(_) => abbreviation.ends_with("dt") || abbreviation.ends_with("dst"),
        zone => zone.saves_daylight_at(now_us),
    }
}

fn pg_auth_members(world: &SystemContext, rows: &mut Rows<'_>) {
    for role in roles(world) {
        for membership in &role.member_of {
            rows.add([
                ("roleid", oid(membership.role.0)),
                ("member", oid(role.id.0)),
                ("grantor", owner()),
                ("admin_option", Value::Bool(membership.is_admin)),
            ]);
        }
    }
}

/// Lists the comments on objects that all databases share.
fn pg_shdescription(world: &SystemContext, rows: &mut Rows<'_>) {
    const AUTHID: u32 = 1260;
    const DATABASE: u32 = 1262;
    let catalog = &*world.catalog;
    let databases = databases(world).into_iter().map(|database| (database.id, DATABASE));
    for (object, class) in databases.chain(catalog.roles().map(|role| (role.id, AUTHID))) {
        let comment = catalog.about(object).and_then(|about| about.comment(None));
        let Some(comment) = comment else { continue };
        rows.add([("objoid", oid(object.0)), ("classoid", oid(class)), ("description", text(comment))]);
    }
}

fn pg_description(world: &SystemContext, rows: &mut Rows<'_>) {
    const CLASS: u32 = 1259;
    const CONSTRAINT: u32 = 2606;
    const NAMESPACE: u32 = 2615;
    let catalog = &*world.catalog;
    let mut add = |object: u32, class: u32, column: Option<usize>, comment: &str| {
        let number = column.map_or(0, |c| c as i32 + 1);
        rows.add([
            ("objoid", oid(object)),
            ("classoid", oid(class)),
            ("objsubid", Value::Int4(number)),
            ("description", text(comment)),
        ]);
    };
    for r in relations(catalog) {
        let about = object_of(&r).and_then(|object| catalog.about(object));
        let comments = about.iter().flat_map(|about| &about.comments);
        comments.for_each(|c| add(r.oid, CLASS, c.column, &c.text));
    }
    for Constraint { oid, .. } in constraints::all(catalog) {
        let about = catalog.about(varve_engine::ObjectId(oid));
        about.iter().flat_map(|about| &about.comments).for_each(|c| add(oid, CONSTRAINT, None, &c.text));
    }
    for schema in catalog.schemas() {
        let id = if schema.name == "public" { ids::PUBLIC } else { schema.id.0 };
        let about = catalog.about(schema.id);
        about.iter().flat_map(|about| &about.comments).for_each(|c| add(id, NAMESPACE, None, &c.text));
    }
}
