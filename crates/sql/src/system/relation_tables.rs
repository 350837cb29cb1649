//! The system tables about relations: `pg_class`, `pg_attribute`, `pg_index` and similar tables.
//!
//! This module does not know how the relations are collected (`relations`) or how definitions are printed
//! (`definitions`).

use std::collections::HashSet;

use varve_engine::{
    ColumnType, Compression, Datum, LeafLayout, PartitionMethod, Rights, SequenceDef, StorageOptions,
    TableId, Value,
};

use super::constraints::Demand;
use super::relations::{IndexKey, IndexOf, Relation, What, namespace, relations, sequence_type};
use super::{
    Fill, Rows, SystemContext, attnum, char1, constraints, definitions, ids, list, oid, show, tablespaces,
    text, type_row, vector,
};
use crate::nextval::draws_from;
use crate::partition;
use crate::rights::{self, Holder};
use crate::ty::{Ty, Typed};

/// Returns the code for the tables of this file.
pub fn fill(name: &str) -> Option<Fill> {
    Some(match name {
        "pg_class" => pg_class,
        "pg_attribute" => pg_attribute,
        "pg_attrdef" => pg_attrdef,
        "pg_index" => pg_index,
        "pg_indexes" => pg_indexes,
        "pg_inherits" => pg_inherits,
        "pg_partitioned_table" => pg_partitioned_table,
        "pg_sequence" => pg_sequence,
        "pg_sequences" => pg_sequences,
        "pg_tables" => pg_tables,
        "pg_views" => pg_views,
        "pg_rewrite" => pg_rewrite,
        "pg_depend" => pg_depend,
        _ => return None,
    })
}

fn pg_class(world: &SystemContext, rows: &mut Rows<'_>) {
    let catalog = &*world.catalog;
    let parents: HashSet<TableId> =
        catalog.tables().flat_map(|t| &t.foreign_keys).map(|key| key.parent).collect();
    for r in relations(catalog) {
        let kind = r.kind();
        let table = if let What::Table(t) = r.what { Some(t) } else { None };
        let has_index = table.is_some_and(|t| t.primary_key.is_some() || !t.indexes.is_empty());
        let unlogged = match r.what {
            What::Table(t) | What::Part(t, _) | What::Index(IndexOf { table: t, .. }) => t.is_unlogged,
            _ => false,
        };
        let method = match r.what {
            // As in PostgreSQL 15, a partitioned table with the default access method shows 0.
            What::Table(t) if t.partitions.is_some() && ids::table_method(&t.engine) == ids::HEAP => 0,
            What::Table(t) | What::Part(t, _) => ids::table_method(&t.engine),
            What::System(t) if !t.is_view => ids::HEAP,
            What::Index(_) => ids::BTREE,
            _ => 0,
        };
        let bound = match r.what {
            What::Part(_, part) => text(definitions::partition_bound(part)),
            _ => Value::Null,
        };
        let count = table.and_then(|t| world.watched.count(t.id));
        // -1 means that the rows were not counted.
        let tuples = count.map_or(-1.0, |c| c.rows as f32);
        let has_parents = parents.contains(&TableId(r.oid));
        rows.add([
            ("oid", oid(r.oid)),
            ("relname", text(r.name)),
            ("relnamespace", oid(namespace(catalog, r.schema))),
            ("relowner", oid(r.owner(catalog))),
            ("relam", oid(method)),
            ("relfilenode", oid(if matches!(kind, 'v' | 'p' | 'I') { 0 } else { r.oid })),
            ("reltablespace", tablespaces::oid_of(&r)),
            ("reltuples", Value::Float4(tuples)),
            ("relhasindex", Value::Bool(has_index)),
            ("relpersistence", char1(if unlogged { 'u' } else { 'p' })),
            ("relkind", char1(kind)),
            ("relnatts", Value::Int2(r.attributes().len() as i16)),
            ("relchecks", Value::Int2(table.map_or(0, |t| t.checks.len() as i16))),
            ("relhasrules", Value::Bool(kind == 'v')),
            ("relhastriggers", Value::Bool(has_parents || table.is_some_and(|t| !t.foreign_keys.is_empty()))),
            ("relhassubclass", Value::Bool(matches!(kind, 'p' | 'I'))),
            ("relispopulated", Value::Bool(true)),
            ("relreplident", char1(if matches!(kind, 'r' | 'p') { 'd' } else { 'n' })),
            ("relispartition", Value::Bool(matches!(r.what, What::Part(..)))),
            ("relacl", show::grants(catalog, &r)),
            ("reloptions", options(&r)),
            ("relpartbound", bound),
        ]);
    }
}

/// Returns the value of the column `reloptions`, for tables and views. Partitions and indexes have the
/// options of their table.
fn options(r: &Relation<'_>) -> Value {
    let listed = match r.what {
        What::Table(table) => storage_options(table.storage),
        What::View(view) => {
            view.security_invoker.iter().map(|is_set| format!("security_invoker={is_set}")).collect()
        }
        _ => return Value::Null,
    };
    match listed.is_empty() {
        true => Value::Null,
        false => list(ColumnType::Text, listed.iter().map(|option| Datum::Text(option))),
    }
}

fn pg_attribute(world: &SystemContext, rows: &mut Rows<'_>) {
    for r in relations(&world.catalog) {
        for (ordinal, a) in r.attributes().iter().enumerate() {
            let type_oid = a.t.ty.oid();
            let row = type_row(type_oid);
            let identity = match a.identity {
                Some(varve_engine::Identity::Always) => text("a"),
                Some(varve_engine::Identity::ByDefault) => text("d"),
                None => text(""),
            };
            rows.add([
                ("attrelid", oid(r.oid)),
                ("attname", text(a.name.as_ref())),
                ("atttypid", oid(type_oid)),
                ("attstattarget", Value::Int4(-1)),
                ("attlen", Value::Int2(row.map_or(-1, |t| t.len))),
                ("attnum", Value::Int2(attnum(ordinal))),
                ("attcacheoff", Value::Int4(-1)),
                ("atttypmod", Value::Int4(a.t.typmod)),
                ("attndims", Value::Int4(i32::from(matches!(a.t.ty, Ty::Array(_))))),
                ("attbyval", Value::Bool(row.is_some_and(|t| t.by_value))),
                ("attalign", char1(row.map_or('i', |t| t.align))),
                ("attstorage", char1(row.map_or('x', |t| t.storage))),
                ("attnotnull", Value::Bool(a.not_null)),
                ("atthasdef", Value::Bool(a.default.is_some())),
                ("attidentity", identity),
                ("attislocal", Value::Bool(!matches!(r.what, What::Part(..)))),
                ("attinhcount", Value::Int4(i32::from(matches!(r.what, What::Part(..))))),
                ("attcollation", oid(row.map_or(0, |t| t.collation))),
            ]);
        }
    }
}

fn pg_attrdef(world: &SystemContext, rows: &mut Rows<'_>) {
    for r in relations(&world.catalog) {
        let What::Table(table) = r.what else { continue };
        for (ordinal, a) in r.attributes().iter().enumerate() {
            let Some(default) = a.default else { continue };
            rows.add([
                ("oid", oid(ids::default(table.id, ordinal))),
                ("adrelid", oid(r.oid)),
                ("adnum", Value::Int2(attnum(ordinal))),
                ("adbin", text(default)),
            ]);
        }
    }
}

fn pg_index(world: &SystemContext, rows: &mut Rows<'_>) {
    let printing = world.printing(false);
    for r in relations(&world.catalog) {
        let What::Index(index) = r.what else { continue };
        let types: Vec<ColumnType> = index.keys().map(|key| index.key_type(key)).collect();
        let count = Value::Int2(types.len() as i16);
        let type_of = |t: &ColumnType| type_row(Typed::of_column(*t).ty.oid());
        let collations = types.iter().map(|t| Datum::Int8(type_of(t).map_or(0, |t| i64::from(t.collation))));
        let classes = types.iter().map(|t| Datum::Int8(i64::from(show::operator_class(*t))));
        // An expression has the column number 0.
        let numbers = index.keys().map(|key| match key {
            IndexKey::Column(ordinal) => Datum::Int2(attnum(ordinal)),
            IndexKey::Expression(..) => Datum::Int2(0),
        });
        let shown = |text: &str| printing.index_text(index.table, text);
        let expressions = index.derived.into_iter().flat_map(|derived| derived.expressions());
        let expressions: Vec<String> = expressions.map(|(expression, _)| shown(expression)).collect();
        let predicate = index.derived.and_then(|derived| derived.predicate.as_deref());
        rows.add([
            ("indexrelid", oid(r.oid)),
            ("indrelid", oid(index.table.id.0)),
            ("indnatts", count.clone()),
            ("indnkeyatts", count),
            ("indisunique", Value::Bool(index.unique)),
            ("indisprimary", Value::Bool(index.primary)),
            ("indimmediate", Value::Bool(true)),
            ("indisvalid", Value::Bool(true)),
            ("indisready", Value::Bool(true)),
            ("indislive", Value::Bool(true)),
            ("indkey", vector(ColumnType::Int2, numbers)),
            ("indcollation", vector(ColumnType::Int8, collations)),
            ("indclass", vector(ColumnType::Int8, classes)),
            ("indoption", vector(ColumnType::Int2, types.iter().map(|_| Datum::Int2(0)))),
            ("indexprs", if expressions.is_empty() { Value::Null } else { text(expressions.join(", ")) }),
            ("indpred", predicate.map_or(Value::Null, |predicate| text(shown(predicate)))),
        ]);
    }
}

/// Returns columns as a vector of their numbers.
fn numbers(columns: &[usize]) -> Value {
    vector(ColumnType::Int2, columns.iter().map(|c| Datum::Int2(attnum(*c))))
}

fn pg_indexes(world: &SystemContext, rows: &mut Rows<'_>) {
    for r in relations(&world.catalog) {
        let What::Index(index) = r.what else { continue };
        rows.add([
            ("schemaname", text(r.schema)),
            ("tablename", text(&index.table.name)),
            ("indexname", text(r.name)),
            ("tablespace", tablespaces::name_of(world, &r)),
            ("indexdef", text(world.printing(false).index(&r, &index))),
        ]);
    }
}

fn pg_inherits(world: &SystemContext, rows: &mut Rows<'_>) {
    for r in relations(&world.catalog) {
        let What::Part(table, _) = r.what else { continue };
        rows.add([("inhrelid", oid(r.oid)), ("inhparent", oid(table.id.0)), ("inhseqno", Value::Int4(1))]);
    }
}

fn pg_partitioned_table(world: &SystemContext, rows: &mut Rows<'_>) {
    for table in world.catalog.tables() {
        let Some(partitions) = &table.partitions else { continue };
        let strategy = match partitions.method {
            PartitionMethod::Hash => 'h',
            PartitionMethod::Range => 'r',
        };
        rows.add([
            ("partrelid", oid(table.id.0)),
            ("partstrat", char1(strategy)),
            ("partnatts", Value::Int2(partitions.columns.len() as i16)),
            ("partdefid", oid(partition::default(partitions).map_or(0, |part| part.id.0))),
            ("partattrs", numbers(&partitions.columns)),
        ]);
    }
}

fn pg_sequence(world: &SystemContext, rows: &mut Rows<'_>) {
    let mut sequences: Vec<_> = world.catalog.sequences().collect();
    sequences.sort_by_key(|s| s.id);
    for s in sequences {
        rows.add([
            ("seqrelid", oid(s.id.0)),
            ("seqtypid", oid(sequence_type(s).oid())),
            ("seqstart", Value::Int8(s.start)),
            ("seqincrement", Value::Int8(s.increment)),
            ("seqmax", Value::Int8(s.max)),
            ("seqmin", Value::Int8(s.min)),
            ("seqcache", Value::Int8(s.cache)),
            ("seqcycle", Value::Bool(s.cycle)),
        ]);
    }
}

fn pg_sequences(world: &SystemContext, rows: &mut Rows<'_>) {
    for r in relations(&world.catalog) {
        let What::Sequence(s) = r.what else { continue };
        rows.add([
            ("schemaname", text(r.schema)),
            ("sequencename", text(r.name)),
            ("sequenceowner", text(show::role_name(&world.catalog, r.owner(&world.catalog)))),
            ("data_type", oid(sequence_type(s).oid())),
            ("start_value", Value::Int8(s.start)),
            ("min_value", Value::Int8(s.min)),
            ("max_value", Value::Int8(s.max)),
            ("increment_by", Value::Int8(s.increment)),
            ("cycle", Value::Bool(s.cycle)),
            ("cache_size", Value::Int8(s.cache)),
            ("last_value", last_value(world, s)),
        ]);
    }
}

/// Returns the last value of a sequence. The result is NULL if there is none, or if the role has no right on
/// the sequence.
fn last_value(world: &SystemContext, s: &SequenceDef) -> Value {
    let holder = Holder::of(&world.catalog, world.who);
    let object = rights::Object::new(s.id, rights::Kind::Sequence, &s.name);
    if !holder.may_any(&world.catalog, &object, &[Rights::SELECT, Rights::USAGE]) {
        return Value::Null;
    }
    match world.engine.sequence_state(s) {
        Ok(state) if state.is_called => Value::Int8(state.last_value),
        _ => Value::Null,
    }
}

fn pg_tables(world: &SystemContext, rows: &mut Rows<'_>) {
    for r in relations(&world.catalog) {
        if !matches!(r.kind(), 'r' | 'p') {
            continue;
        }
        let has_index = matches!(r.what, What::Table(t) if t.primary_key.is_some() || !t.indexes.is_empty());
        rows.add([
            ("schemaname", text(r.schema)),
            ("tablename", text(r.name)),
            ("tableowner", text(show::role_name(&world.catalog, r.owner(&world.catalog)))),
            ("tablespace", tablespaces::name_of(world, &r)),
            ("hasindexes", Value::Bool(has_index)),
            ("hasrules", Value::Bool(false)),
            ("hastriggers", Value::Bool(matches!(r.what, What::Table(t) if !t.foreign_keys.is_empty()))),
            ("rowsecurity", Value::Bool(false)),
        ]);
    }
}

fn pg_views(world: &SystemContext, rows: &mut Rows<'_>) {
    for r in relations(&world.catalog) {
        let What::View(view) = r.what else { continue };
        rows.add([
            ("schemaname", text(r.schema)),
            ("viewname", text(r.name)),
            ("viewowner", text(show::role_name(&world.catalog, r.owner(&world.catalog)))),
            ("definition", text(world.printing(false).view(view))),
        ]);
    }
}

/// Lists a rule for each view, because in PostgreSQL a view is a rule.
fn pg_rewrite(world: &SystemContext, rows: &mut Rows<'_>) {
    for view in world.catalog.views() {
        rows.add([
            ("oid", oid(ids::constraint_of_index(view.id.0))),
            ("rulename", text("_RETURN")),
            ("ev_class", oid(view.id.0)),
            ("ev_type", char1('1')),
            ("ev_enabled", char1('O')),
            ("is_instead", Value::Bool(true)),
        ]);
    }
}

/// Lists dependencies between objects: of sequences on their columns, and of indexes on the constraints that
/// they implement.
fn pg_depend(world: &SystemContext, rows: &mut Rows<'_>) {
    const CLASS: u32 = 1259;
    const CONSTRAINT: u32 = 2606;
    const DEFAULT: u32 = 2604;
    let mut add = |object: (u32, u32), on: (u32, u32, i16), kind| {
        rows.add([
            ("classid", oid(object.0)),
            ("objid", oid(object.1)),
            ("refclassid", oid(on.0)),
            ("refobjid", oid(on.1)),
            ("refobjsubid", Value::Int4(i32::from(on.2))),
            ("deptype", char1(kind)),
        ]);
    };
    for r in relations(&world.catalog) {
        match r.what {
            What::Sequence(s) => {
                let Some((table, column)) = s.owned_by else { continue };
                let column_def = world.catalog.table_by_id(table);
                let identity =
                    column_def.is_some_and(|t| t.columns.get(column).is_some_and(|c| c.identity.is_some()));
                let kind = if identity { 'i' } else { 'a' };
                add((CLASS, r.oid), (CLASS, table.0, attnum(column)), kind);
            }
            What::Index(index) if index.constraint => {
                add((CLASS, r.oid), (CONSTRAINT, ids::constraint_of_index(r.oid), 0), 'i');
            }
            What::Index(index) => {
                let columns = index.columns.iter();
                columns.for_each(|c| add((CLASS, r.oid), (CLASS, index.table.id.0, attnum(*c)), 'a'));
            }
            _ => {}
        }
    }
    for table in world.catalog.tables() {
        for (ordinal, column) in table.columns.iter().enumerate() {
            let Some(default) = column.default.as_deref().filter(|_| column.identity.is_none()) else {
                continue;
            };
            let object = (DEFAULT, ids::default(table.id, ordinal));
            add(object, (CLASS, table.id.0, attnum(ordinal)), 'a');
            let drawn = world.catalog.sequences().filter(|s| draws_from(default, s));
            drawn.for_each(|s| add(object, (CLASS, s.id.0, 0), 'n'));
        }
    }
    for constraint in constraints::all(&world.catalog) {
        let columns = constraint.columns.iter();
        columns.for_each(|c| {
            add((CONSTRAINT, constraint.oid), (CLASS, constraint.table.id.0, attnum(*c)), 'a');
        });
        let Demand::Foreign(key) = constraint.what else { continue };
        let referred = key.parent_columns.iter().map(|c| (key.parent.0, attnum(*c)));
        let index = (constraints::parent_index(&world.catalog, key), 0);
        let on = referred.chain([index]);
        on.for_each(|(of, column)| add((CONSTRAINT, constraint.oid), (CLASS, of, column), 'n'));
    }
}

/// Returns the storage parameters for `pg_class.reloptions`. The list is empty if none are set.
fn storage_options(storage: StorageOptions) -> Vec<String> {
    let compression = storage.compression.into_iter().flat_map(|Compression { algorithm, level }| {
        let level = (level != 0).then(|| format!("compression_level={level}"));
        [format!("compression={algorithm}")].into_iter().chain(level)
    });
    let layout = (storage.layout == LeafLayout::ByColumns).then(|| "layout=pax".to_owned());
    compression.chain(layout).collect()
}
