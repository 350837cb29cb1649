//! The views of information_schema: the catalog under the names of the SQL standard. They do not list system
//! tables.
//!
//! Invariants
//! 1. A role sees the objects that it owns or has a right on, by PostgreSQL's rule for each view (`Seen`).
//!
//! Views about rights themselves are in `privileges.rs`.

use std::sync::Arc;

use varve_engine::{Catalog, ColumnDef, Rights, SequenceDef, TableDef, Value, ViewDef};

use super::constraints::{self, Constraint, Demand};
use super::relations::{Attribute, Relation, What, namespace, relations, sequence_type};
use super::{Fill, Rows, SystemContext, attnum, show, text, type_row, yes};
use crate::nextval::draws_from;
use crate::rights::{Holder, Kind, Object};
use crate::ty::{Ty, Typed};

/// Returns the code for the tables of this file.
pub fn fill(name: &str) -> Option<Fill> {
    Some(match name {
        "schemata" => schemata,
        "tables" => tables,
        "columns" => columns,
        "views" => views,
        "view_table_usage" => view_table_usage,
        "view_column_usage" => view_column_usage,
        "sequences" => sequences,
        "table_constraints" => table_constraints,
        "key_column_usage" => key_column_usage,
        "constraint_column_usage" => constraint_column_usage,
        "referential_constraints" => referential_constraints,
        "check_constraints" => check_constraints,
        "information_schema_catalog_name" => |world, rows| {
            rows.add([("catalog_name", text(&world.database))]);
        },
        "character_sets" => character_sets,
        "collations" => collations,
        "element_types" => element_types,
        _ => return None,
    })
}

/// Any right on a table.
const ANY: Rights = Rights(0b111_1111);
/// The rights that can be on columns.
const ON_COLUMNS: Rights = Rights::SELECT.with(Rights::INSERT).with(Rights::UPDATE).with(Rights::REFERENCES);
/// The rights to change a table or to refer to it.
const CHANGES: Rights = ANY.without(Rights::SELECT);

/// Decides what the session's role may see.
pub(super) struct Seen<'w> {
    catalog: &'w Catalog,
    pub(super) holder: Holder,
}

impl<'w> Seen<'w> {
    pub(super) fn by(world: &'w SystemContext) -> Seen<'w> {
        Seen { catalog: &world.catalog, holder: Holder::of(&world.catalog, world.who) }
    }

    /// Returns whether the role owns the object, or has one of these rights on it.
    fn has(&self, object: &Object, any: Rights) -> bool {
        let each: Vec<Rights> = (0..16).map(|bit| Rights(1 << bit)).filter(|right| any.has(*right)).collect();
        self.holder.owns(self.catalog, object) || self.holder.may_any(self.catalog, object, &each)
    }

    fn table(&self, table: &TableDef, any: Rights) -> bool {
        self.has(&Object::new(table.id, Kind::Table, &table.name), any)
    }

    fn owns(&self, table: &TableDef) -> bool {
        self.holder.is(self.catalog.owner(table.id))
    }
}

/// Returns the tables, partitions and views on which the role has one of these rights.
fn shown(world: &SystemContext, any: Rights) -> impl Iterator<Item = Relation<'_>> {
    let seen = Seen::by(world);
    let is_shown = move |r: &Relation<'_>| match r.what {
        What::Table(table) | What::Part(table, _) => seen.table(table, any),
        What::View(view) => seen.has(&Object::new(view.id, Kind::View, &view.name), any),
        _ => false,
    };
    relations(&world.catalog).into_iter().filter(is_shown)
}

fn schemata(world: &SystemContext, rows: &mut Rows<'_>) {
    let seen = Seen::by(world);
    let names = world.catalog.schemas().map(|s| s.name.as_str());
    for name in names.chain(["pg_catalog", "information_schema"]) {
        let schema = world.catalog.schemas().find(|s| s.name == name);
        if schema.is_some_and(|s| !seen.has(&Object::schema(s), Kind::Schema.all())) {
            continue;
        }
        let owner = schema.map_or(varve_engine::BOOTSTRAP_ROLE, |s| world.catalog.owner(s.id));
        rows.add([
            ("catalog_name", text(&world.database)),
            ("schema_name", text(name)),
            ("schema_owner", text(show::role_name(&world.catalog, owner.0))),
        ]);
    }
}

fn tables(world: &SystemContext, rows: &mut Rows<'_>) {
    for r in shown(world, ANY) {
        let is_view = matches!(r.what, What::View(_));
        rows.add([
            ("table_catalog", text(&world.database)),
            ("table_schema", text(r.schema)),
            ("table_name", text(r.name)),
            ("table_type", text(if is_view { "VIEW" } else { "BASE TABLE" })),
            ("is_insertable_into", yes(!is_view)),
            ("is_typed", yes(false)),
        ]);
    }
}

/// Returns the precision of a numeric type: the number of digits, their base, and the number of digits after
/// the point.
fn number(t: Typed) -> Option<(Option<i32>, i32, Option<i32>)> {
    Some(match t.ty {
        Ty::Int2 => (Some(16), 2, Some(0)),
        Ty::Int4 => (Some(32), 2, Some(0)),
        Ty::Int8 => (Some(64), 2, Some(0)),
        Ty::Float4 => (Some(24), 2, None),
        Ty::Float8 => (Some(53), 2, None),
        Ty::Numeric => match t.precision() {
            Some((precision, scale)) => (Some(i32::from(precision)), 10, Some(i32::from(scale))),
            None => (None, 10, None),
        },
        _ => return None,
    })
}

fn character_sets(world: &SystemContext, rows: &mut Rows<'_>) {
    rows.add([
        ("character_set_name", text("UTF8")),
        ("character_repertoire", text("UCS")),
        ("form_of_use", text("UTF8")),
        ("default_collate_catalog", text(&world.database)),
    ]);
}

fn collations(world: &SystemContext, rows: &mut Rows<'_>) {
    for name in ["default", "C"] {
        rows.add([
            ("collation_catalog", text(&world.database)),
            ("collation_schema", text("pg_catalog")),
            ("collation_name", text(name)),
            ("pad_attribute", text("NO PAD")),
        ]);
    }
}

/// Adds the element types of columns that are arrays.
fn element_types(world: &SystemContext, rows: &mut Rows<'_>) {
    for r in shown(world, ON_COLUMNS) {
        for (ordinal, a) in r.attributes().iter().enumerate() {
            let Some(element) = a.t.ty.element().filter(|_| matches!(a.t.ty, Ty::Array(_))) else { continue };
            rows.add([
                ("object_catalog", text(&world.database)),
                ("object_schema", text(r.schema)),
                ("object_name", text(r.name)),
                ("object_type", text(if matches!(r.what, What::View(_)) { "VIEW" } else { "TABLE" })),
                ("collection_type_identifier", text((ordinal + 1).to_string())),
                ("data_type", text(element.name())),
                ("udt_catalog", text(&world.database)),
                ("udt_schema", text("pg_catalog")),
                ("udt_name", type_row(element.oid()).map_or(Value::Null, |t| text(t.name))),
                ("dtd_identifier", text(format!("a{}", ordinal + 1))),
            ]);
        }
    }
}

fn columns(world: &SystemContext, rows: &mut Rows<'_>) {
    for r in shown(world, ON_COLUMNS) {
        for (ordinal, a) in r.attributes().iter().enumerate() {
            let mut row = vec![
                ("table_catalog", text(&world.database)),
                ("table_schema", text(r.schema)),
                ("table_name", text(r.name)),
                ("column_name", text(a.name.as_ref())),
                ("ordinal_position", Value::Int4(i32::from(attnum(ordinal)))),
                ("column_default", a.default.map_or(Value::Null, text)),
                ("is_nullable", yes(!a.not_null)),
                ("is_self_referencing", yes(false)),
                ("is_generated", text("NEVER")),
                ("is_updatable", yes(!matches!(r.what, What::View(_)))),
                ("dtd_identifier", text((ordinal + 1).to_string())),
            ];
            row.extend(type_cells(world, a.t));
            row.extend(identity_cells(world, &r, ordinal, a));
            rows.add(row);
        }
    }
}

fn type_cells(world: &SystemContext, t: Typed) -> Vec<(&'static str, Value)> {
    let int = |n: Option<i32>| n.map_or(Value::Null, Value::Int4);
    let is_array = t.ty.element().is_some() && matches!(t.ty, Ty::Array(_));
    let octets = match t.ty {
        Ty::Text | Ty::Varchar | Ty::Char => Some(t.length().map_or(1 << 30, |n| n as i32 * 4)),
        _ => None,
    };
    let digits = match t.ty {
        Ty::Date => Some(0),
        Ty::Timestamp | Ty::TimestampTz | Ty::Time | Ty::Interval => {
            let of_interval = t.fields().map(|fields| fields.digits().unwrap_or(6));
            let digits = of_interval.or(t.digits().map(|(_, digits)| digits));
            Some(i32::from(digits.unwrap_or(6)))
        }
        _ => None,
    };
    let (precision, radix, scale) = number(t).map_or((None, None, None), |(p, r, s)| (p, Some(r), s));
    vec![
        ("data_type", text(if is_array { "ARRAY" } else { t.ty.name() })),
        ("character_maximum_length", int(t.length().map(|n| n as i32))),
        ("character_octet_length", int(octets)),
        ("numeric_precision", int(precision)),
        ("numeric_precision_radix", int(radix)),
        ("numeric_scale", int(scale)),
        ("datetime_precision", int(digits)),
        ("udt_catalog", text(&world.database)),
        ("udt_schema", text("pg_catalog")),
        ("udt_name", text(type_row(t.ty.oid()).map_or("", |row| row.name))),
    ]
}

fn identity_cells(
    world: &SystemContext,
    r: &Relation<'_>,
    ordinal: usize,
    a: &Attribute<'_>,
) -> Vec<(&'static str, Value)> {
    let (What::Table(table), Some(identity)) = (r.what, a.identity) else {
        return vec![("is_identity", yes(false)), ("identity_cycle", yes(false))];
    };
    let always = identity == varve_engine::Identity::Always;
    let mut row = vec![
        ("is_identity", yes(true)),
        ("identity_generation", text(if always { "ALWAYS" } else { "BY DEFAULT" })),
    ];
    // The column may also own a sequence from the time when it was a serial column.
    let default = table.columns[ordinal].default.as_deref().unwrap_or_default();
    let is_its = |s: &SequenceDef| s.owned_by == Some((table.id, ordinal)) && draws_from(default, s);
    let sequence = world.catalog.sequences().find(|s| is_its(s));
    if let Some(s) = sequence {
        row.extend([
            ("identity_start", text(s.start.to_string())),
            ("identity_increment", text(s.increment.to_string())),
            ("identity_maximum", text(s.max.to_string())),
            ("identity_minimum", text(s.min.to_string())),
            ("identity_cycle", yes(s.cycle)),
        ]);
    }
    row
}

fn views(world: &SystemContext, rows: &mut Rows<'_>) {
    let seen = Seen::by(world);
    for r in shown(world, ANY) {
        let What::View(view) = r.what else { continue };
        let is_own = seen.holder.is(world.catalog.owner(view.id));
        let text_of = || text(world.printing(false).view(view));
        rows.add([
            ("table_catalog", text(&world.database)),
            ("table_schema", text(r.schema)),
            ("table_name", text(r.name)),
            ("view_definition", if is_own { text_of() } else { Value::Null }),
            ("check_option", text("NONE")),
            ("is_updatable", yes(false)),
            ("is_insertable_into", yes(false)),
            ("is_trigger_updatable", yes(false)),
            ("is_trigger_deletable", yes(false)),
            ("is_trigger_insertable_into", yes(false)),
        ]);
    }
}

/// Returns each view with each relation that it reads and that the role owns, and with the ordinals of the
/// columns that it reads.
fn read_by_views(world: &SystemContext) -> Vec<(&Arc<ViewDef>, Relation<'_>, &[usize])> {
    let catalog = &world.catalog;
    let seen = Seen::by(world);
    let mut read = Vec::new();
    let all = relations(catalog);
    let views = all.into_iter().filter_map(|r| if let What::View(view) = r.what { Some(view) } else { None });
    for (view, used) in views.flat_map(|view| view.uses.iter().map(move |used| (view, used))) {
        let owned = seen.holder.is(catalog.owner(used.object));
        let relation = relations(catalog).into_iter().find(|r| r.oid == used.object.0).filter(|_| owned);
        read.extend(relation.map(|relation| (view, relation, used.columns.as_slice())));
    }
    read
}

fn view_cells(world: &SystemContext, view: &ViewDef, read: &Relation<'_>) -> [(&'static str, Value); 6] {
    [
        ("view_catalog", text(&world.database)),
        ("view_schema", text(&view.schema)),
        ("view_name", text(&view.name)),
        ("table_catalog", text(&world.database)),
        ("table_schema", text(read.schema)),
        ("table_name", text(read.name)),
    ]
}

fn view_table_usage(world: &SystemContext, rows: &mut Rows<'_>) {
    for (view, relation, _) in read_by_views(world) {
        rows.add(view_cells(world, view, &relation));
    }
}

fn view_column_usage(world: &SystemContext, rows: &mut Rows<'_>) {
    for (view, relation, columns) in read_by_views(world) {
        let attributes = relation.attributes();
        for attribute in columns.iter().filter_map(|ordinal| attributes.get(*ordinal)) {
            let own = [("column_name", text(attribute.name.as_ref()))];
            rows.add(view_cells(world, view, &relation).into_iter().chain(own));
        }
    }
}

/// Returns whether a sequence belongs to an identity column. Such a sequence is not listed.
fn is_of_identity(world: &SystemContext, s: &SequenceDef) -> bool {
    let Some((table, column)) = s.owned_by else { return false };
    let table = world.catalog.table_by_id(table);
    table.is_some_and(|t| t.columns.get(column).is_some_and(|c| c.identity.is_some()))
}

fn sequences(world: &SystemContext, rows: &mut Rows<'_>) {
    let seen = Seen::by(world);
    for r in relations(&world.catalog) {
        let What::Sequence(s) = r.what else { continue };
        let is_seen = seen.has(&Object::new(s.id, Kind::Sequence, &s.name), Kind::Sequence.all());
        if !is_seen || is_of_identity(world, s) {
            continue;
        }
        let ty = sequence_type(s);
        let bits = number(Typed::plain(ty)).and_then(|(bits, ..)| bits);
        rows.add([
            ("sequence_catalog", text(&world.database)),
            ("sequence_schema", text(r.schema)),
            ("sequence_name", text(r.name)),
            ("data_type", text(ty.name())),
            ("numeric_precision", bits.map_or(Value::Null, Value::Int4)),
            ("numeric_precision_radix", Value::Int4(2)),
            ("numeric_scale", Value::Int4(0)),
            ("start_value", text(s.start.to_string())),
            ("minimum_value", text(s.min.to_string())),
            ("maximum_value", text(s.max.to_string())),
            ("increment", text(s.increment.to_string())),
            ("cycle_option", yes(s.cycle)),
        ]);
    }
}

/// Returns the three cells that name a constraint.
fn constraint_cells(world: &SystemContext, c: &Constraint<'_>) -> [(&'static str, Value); 3] {
    [
        ("constraint_catalog", text(&world.database)),
        ("constraint_schema", text(&c.table.schema)),
        ("constraint_name", text(c.name)),
    ]
}

/// Returns the three cells that name a table.
fn table_cells(world: &SystemContext, table: &Arc<TableDef>) -> [(&'static str, Value); 3] {
    [
        ("table_catalog", text(&world.database)),
        ("table_schema", text(&table.schema)),
        ("table_name", text(&table.name)),
    ]
}

fn table_constraints(world: &SystemContext, rows: &mut Rows<'_>) {
    let seen = Seen::by(world);
    for c in constraints::all(&world.catalog).into_iter().filter(|c| seen.table(c.table, CHANGES)) {
        let (deferrable, deferred) = match c.what {
            Demand::Foreign(key) => (key.deferrable, key.initially_deferred),
            _ => (false, false),
        };
        let nulls = if matches!(c.what, Demand::Unique(_)) { text("YES") } else { Value::Null };
        let own = [
            ("constraint_type", text(constraints::kind_words(c.what))),
            ("is_deferrable", yes(deferrable)),
            ("initially_deferred", yes(deferred)),
            ("enforced", yes(true)),
            ("nulls_distinct", nulls),
        ];
        rows.add(constraint_cells(world, &c).into_iter().chain(table_cells(world, c.table)).chain(own));
    }
    for not_null in not_nulls(world).filter(|not_null| seen.table(not_null.table, CHANGES)) {
        let own = [
            ("constraint_type", text("CHECK")),
            ("is_deferrable", yes(false)),
            ("initially_deferred", yes(false)),
            ("enforced", yes(true)),
        ];
        rows.add(not_null.cells(world).into_iter().chain(table_cells(world, not_null.table)).chain(own));
    }
}

/// A column that is NOT NULL, which the standard calls a constraint.
struct NotNull<'c> {
    table: &'c Arc<TableDef>,
    column: &'c ColumnDef,
    number: i16,
}

fn not_nulls(world: &SystemContext) -> impl Iterator<Item = NotNull<'_>> {
    world.catalog.tables().flat_map(|table| {
        let columns = table.columns.iter().zip(0..).filter(|(column, _)| column.not_null);
        columns.map(move |(column, ordinal)| NotNull { table, column, number: attnum(ordinal) })
    })
}

impl NotNull<'_> {
    /// Returns the three cells that name the constraint. PostgreSQL makes its name from OIDs.
    fn cells(&self, world: &SystemContext) -> [(&'static str, Value); 3] {
        let schema = namespace(&world.catalog, &self.table.schema);
        [
            ("constraint_catalog", text(&world.database)),
            ("constraint_schema", text(&self.table.schema)),
            ("constraint_name", text(format!("{schema}_{}_{}_not_null", self.table.id.0, self.number))),
        ]
    }
}

fn column_name(table: &TableDef, ordinal: usize) -> Value {
    table.columns.get(ordinal).map_or(Value::Null, |c| text(&c.name))
}

fn key_column_usage(world: &SystemContext, rows: &mut Rows<'_>) {
    let seen = Seen::by(world);
    for c in constraints::all(&world.catalog).into_iter().filter(|c| seen.table(c.table, ON_COLUMNS)) {
        if matches!(c.what, Demand::Check(_)) {
            continue;
        }
        for (n, ordinal) in c.columns.iter().enumerate() {
            let place = match c.what {
                Demand::Foreign(key) => constraints::referred(&world.catalog, key).and_then(|parent| {
                    parent.columns.iter().position(|p| Some(p) == key.parent_columns.get(n))
                }),
                _ => None,
            };
            let own = [
                ("column_name", column_name(c.table, *ordinal)),
                ("ordinal_position", Value::Int4(n as i32 + 1)),
                ("position_in_unique_constraint", place.map_or(Value::Null, |p| Value::Int4(p as i32 + 1))),
            ];
            rows.add(constraint_cells(world, &c).into_iter().chain(table_cells(world, c.table)).chain(own));
        }
    }
}

fn constraint_column_usage(world: &SystemContext, rows: &mut Rows<'_>) {
    let seen = Seen::by(world);
    for c in constraints::all(&world.catalog) {
        let (table, columns) = match c.what {
            Demand::Foreign(key) => match world.catalog.table_by_id(key.parent) {
                Some(parent) => (parent, key.parent_columns.as_slice()),
                None => continue,
            },
            _ => (c.table.clone(), c.columns),
        };
        if !seen.owns(&table) {
            continue;
        }
        for ordinal in columns {
            let own = [("column_name", column_name(&table, *ordinal))];
            rows.add(table_cells(world, &table).into_iter().chain(own).chain(constraint_cells(world, &c)));
        }
    }
}

fn referential_constraints(world: &SystemContext, rows: &mut Rows<'_>) {
    let seen = Seen::by(world);
    for c in constraints::all(&world.catalog).into_iter().filter(|c| seen.table(c.table, CHANGES)) {
        let Demand::Foreign(key) = c.what else { continue };
        let mut row = constraint_cells(world, &c).to_vec();
        if let Some(parent) = constraints::referred(&world.catalog, key) {
            row.extend([
                ("unique_constraint_catalog", text(&world.database)),
                ("unique_constraint_schema", text(&parent.table.schema)),
                ("unique_constraint_name", text(parent.name)),
            ]);
        }
        row.extend([
            ("match_option", text(if key.match_full { "FULL" } else { "NONE" })),
            ("update_rule", text(constraints::rule(key.on_update))),
            ("delete_rule", text(constraints::rule(key.on_delete))),
        ]);
        rows.add(row);
    }
}

fn check_constraints(world: &SystemContext, rows: &mut Rows<'_>) {
    let seen = Seen::by(world);
    for c in constraints::all(&world.catalog).into_iter().filter(|c| seen.owns(c.table)) {
        let Demand::Check(check) = c.what else { continue };
        let condition = world.printing(false).check(c.table, check);
        let own = [("check_clause", text(format!("({condition})")))];
        rows.add(constraint_cells(world, &c).into_iter().chain(own));
    }
    for not_null in not_nulls(world).filter(|not_null| seen.owns(not_null.table)) {
        let own = [("check_clause", text(format!("{} IS NOT NULL", not_null.column.name)))];
        rows.add(not_null.cells(world).into_iter().chain(own));
    }
}
