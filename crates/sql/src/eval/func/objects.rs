//! Functions about catalog objects: definitions as text, names of OIDs, visibility, rights, comments,
//! settings.
//!
//! Invariants
//! 1. For an OID without an object the result is NULL, as in PostgreSQL. For a name without an object it is
//!    an error.
//!
//! This module does not know how definitions are written (`system::definitions`).

use varve_engine::{Datum, Rights, SequenceId, SequenceState, TableId};

use super::{Builtin, catalog, int, loose, strict, text, volatile};
use crate::encoding::Encoding;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Cx, reg};
use crate::rights::{Holder, Kind, Object};
use crate::system::{self, Relation, constraints, definitions, ids, names, show};
use crate::ty::Reg;
use crate::ty::Ty::{self, Bool, Int2, Int4, Int8, Name, Oid, Text};

const CLASS: Ty = Ty::Reg(Reg::Class);

pub(super) const TABLE: &[Builtin] = &[
    loose("format_type", &[Oid, Int4], Text, format_type),
    strict("pg_get_expr", &[Text, Oid], Text, |a, _| Ok(a[0])),
    strict("pg_get_expr", &[Text, Oid, Bool], Text, |a, _| Ok(a[0])),
    catalog("pg_get_indexdef", &[Oid], Text, |a, cx| index_definition(a, 0, cx)),
    catalog("pg_get_indexdef", &[Oid, Int4, Bool], Text, |a, cx| index_definition(a, int(a, 1), cx)),
    catalog("pg_get_constraintdef", &[Oid], Text, constraint_definition),
    catalog("pg_get_constraintdef", &[Oid, Bool], Text, constraint_definition),
    catalog("pg_get_viewdef", &[Text], Text, view_definition),
    catalog("pg_get_viewdef", &[Text, Bool], Text, view_definition),
    catalog("pg_get_viewdef", &[Oid], Text, view_definition),
    catalog("pg_get_viewdef", &[Oid, Bool], Text, view_definition),
    catalog("pg_get_viewdef", &[Oid, Int4], Text, view_definition),
    catalog("pg_get_partkeydef", &[Oid], Text, |a, cx| {
        let table = cx.env.world()?.catalog.table_by_id(TableId(oid(a, 0)));
        Ok(optional(table.and_then(|t| definitions::partition_key(&t)), cx))
    }),
    catalog("pg_get_userbyid", &[Oid], Name, |a, cx| {
        Ok(cx.text(&show::role_name(&cx.env.world()?.catalog, oid(a, 0))))
    }),
    catalog("pg_get_serial_sequence", &[Text, Text], Text, serial_sequence),
    catalog("pg_table_is_visible", &[Oid], Bool, |a, cx| {
        let world = cx.env.world()?;
        let sees = |r: Relation<'_>| Datum::Bool(world.path.sees(&world.catalog, r.schema, r.name));
        Ok(of_relation(a, cx)?.map_or(Datum::Null, sees))
    }),
    strict("pg_type_is_visible", &[Oid], Bool, |a, _| {
        Ok(system::type_row(oid(a, 0)).map_or(Datum::Null, |_| Datum::Bool(true)))
    }),
    strict("pg_function_is_visible", &[Oid], Bool, VISIBLE),
    strict("pg_opclass_is_visible", &[Oid], Bool, VISIBLE),
    strict("pg_opfamily_is_visible", &[Oid], Bool, VISIBLE),
    strict("pg_operator_is_visible", &[Oid], Bool, VISIBLE),
    strict("pg_collation_is_visible", &[Oid], Bool, VISIBLE),
    strict("pg_conversion_is_visible", &[Oid], Bool, VISIBLE),
    strict("pg_statistics_obj_is_visible", &[Oid], Bool, VISIBLE),
    strict("pg_ts_config_is_visible", &[Oid], Bool, VISIBLE),
    strict("pg_ts_dict_is_visible", &[Oid], Bool, VISIBLE),
    strict("pg_ts_parser_is_visible", &[Oid], Bool, VISIBLE),
    strict("pg_ts_template_is_visible", &[Oid], Bool, VISIBLE),
    strict("pg_encoding_to_char", &[Int4], Name, |a, _| {
        let encoding = i32::try_from(int(a, 0)).ok().and_then(Encoding::numbered);
        Ok(Datum::Text(encoding.map_or("", Encoding::name)))
    }),
    strict("pg_char_to_encoding", &[Name], Int4, |a, _| {
        Ok(Datum::Int4(Encoding::named(text(a, 0)).map_or(-1, Encoding::number)))
    }),
    strict("getdatabaseencoding", &[], Name, |_, _| Ok(Datum::Text("UTF8"))),
    catalog("obj_description", &[Oid], Text, |a, cx| {
        // Without a class, the comment of any object with this OID is returned, as in PostgreSQL.
        let all = ["pg_class", "pg_namespace", "pg_constraint"].map(|class| described(a, class, cx));
        Ok(all
            .into_iter()
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .find(|c| !c.is_null())
            .unwrap_or(Datum::Null))
    }),
    catalog("obj_description", &[Oid, Name], Text, |a, cx| described(a, text(a, 1), cx)),
    catalog("col_description", &[Oid, Int4], Text, |a, cx| match usize::try_from(int(a, 1) - 1) {
        Ok(column) => comment(a, Some(column), cx),
        Err(_) => Ok(Datum::Null),
    }),
    catalog("shobj_description", &[Oid, Name], Text, shared_description),
    strict("pg_get_function_result", &[Oid], Text, UNKNOWN),
    strict("pg_get_function_arguments", &[Oid], Text, UNKNOWN),
    strict("pg_get_function_identity_arguments", &[Oid], Text, UNKNOWN),
    strict("pg_get_functiondef", &[Oid], Text, UNKNOWN),
    strict("pg_get_ruledef", &[Oid], Text, UNKNOWN),
    strict("pg_get_ruledef", &[Oid, Bool], Text, UNKNOWN),
    strict("pg_get_triggerdef", &[Oid], Text, UNKNOWN),
    strict("pg_get_triggerdef", &[Oid, Bool], Text, UNKNOWN),
    strict("pg_get_statisticsobjdef", &[Oid], Text, UNKNOWN),
    strict("pg_get_statisticsobjdef_columns", &[Oid], Text, UNKNOWN),
    strict("pg_get_partition_constraintdef", &[Oid], Text, UNKNOWN),
    catalog("pg_tablespace_location", &[Oid], Text, |a, cx| {
        let found = u32::try_from(int(a, 0)).ok();
        let found =
            found.and_then(|number| Some(system::tablespaces::with_oid(cx.env.world().ok()?, number)));
        Ok(cx.text(&found.flatten().map(|one| one.location).unwrap_or_default()))
    }),
    strict("pg_relation_is_publishable", &[CLASS], Bool, |_, _| Ok(Datum::Bool(false))),
    catalog("pg_relation_is_updatable", &[CLASS, Bool], Int4, |a, cx| {
        // The bits of UPDATE, INSERT and DELETE. Views cannot be changed.
        let takes_changes = |r: &Relation<'_>| matches!(r.kind(), 'r' | 'p');
        Ok(Datum::Int4(of_relation(a, cx)?.filter(takes_changes).map_or(0, |_| 28)))
    }),
    strict("pg_my_temp_schema", &[], Oid, |_, _| Ok(Datum::Int8(0))),
    strict("pg_is_other_temp_schema", &[Oid], Bool, |_, _| Ok(Datum::Bool(false))),
    catalog("to_regclass", &[Text], CLASS, |a, cx| named(Reg::Class, a, cx)),
    catalog("to_regtype", &[Text], Ty::Reg(Reg::Type), |a, cx| named(Reg::Type, a, cx)),
    catalog("to_regproc", &[Text], Ty::Reg(Reg::Proc), |a, cx| named(Reg::Proc, a, cx)),
    catalog("to_regnamespace", &[Text], Ty::Reg(Reg::Namespace), |a, cx| named(Reg::Namespace, a, cx)),
    catalog("to_regrole", &[Text], Ty::Reg(Reg::Role), |a, cx| named(Reg::Role, a, cx)),
    catalog("current_setting", &[Text], Text, |a, cx| setting(a, false, cx)),
    catalog("current_setting", &[Text, Bool], Text, |a, cx| {
        setting(a, matches!(a[1], Datum::Bool(true)), cx)
    }),
    Builtin { strict: false, world: true, ..volatile("set_config", &[Text, Text, Bool], Text, set_config) },
    Builtin { world: true, ..volatile("pg_sequence_last_value", &[CLASS], Int8, last_of_sequence) },
    // The functions from which a sequence in FROM is made.
    Builtin {
        world: true,
        ..volatile("varve_sequence_value", &[Oid], Int8, |a, cx| {
            Ok(Datum::Int8(read_sequence(a, cx)?.last_value))
        })
    },
    Builtin {
        world: true,
        ..volatile("varve_sequence_log_count", &[Oid], Int8, |a, cx| {
            Ok(Datum::Int8(read_sequence(a, cx)?.log_count))
        })
    },
    Builtin {
        world: true,
        ..volatile("varve_sequence_is_called", &[Oid], Bool, |a, cx| {
            Ok(Datum::Bool(read_sequence(a, cx)?.is_called))
        })
    },
    catalog("pg_column_is_updatable", &[CLASS, Int2, Bool], Bool, |a, cx| {
        Ok(of_relation(a, cx)?.map_or(Datum::Null, |r| Datum::Bool(r.kind() != 'v')))
    }),
];

/// Returns true for kinds of objects that exist only in pg_catalog. These are always visible.
const VISIBLE: super::Run = |_, _| Ok(Datum::Bool(true));

/// Returns NULL for facts that Varve does not store, or that no object of Varve has.
const UNKNOWN: super::Run = |_, _| Ok(Datum::Null);

/// Returns the OID of argument `n`.
pub(super) fn oid(arguments: &[Datum<'_>], n: usize) -> u32 {
    u32::try_from(int(arguments, n)).unwrap_or(0)
}

fn optional<'a>(made: Option<String>, cx: &Cx<'a>) -> Datum<'a> {
    made.map_or(Datum::Null, |made| cx.text(&made))
}

/// Returns the relation with the OID in the first argument.
pub(super) fn of_relation<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Option<Relation<'a>>> {
    Ok(system::relation(&cx.env.world()?.catalog, oid(a, 0)))
}

fn format_type<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    if a[0].is_null() {
        return Ok(Datum::Null);
    }
    let name = match a[1].as_integer() {
        Some(typmod) => show::type_name(oid(a, 0), typmod as i32),
        // Without a modifier, the result is the plain word `character`.
        None if oid(a, 0) == crate::oid::BPCHAR => "character".to_owned(),
        None => show::type_name(oid(a, 0), -1),
    };
    Ok(cx.text(&name))
}

fn index_definition<'a>(a: &[Datum<'a>], column: i64, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let Some(r) = of_relation(a, cx)? else { return Ok(Datum::Null) };
    let system::What::Index(index) = r.what else { return Ok(Datum::Null) };
    let Ok(column) = usize::try_from(column) else { return Ok(Datum::Text("")) };
    let world = cx.env.world()?;
    let printing = world.printing(matches!(a.get(2), Some(Datum::Bool(true))));
    if column == 0 {
        return Ok(cx.text(&printing.index(&r, &index)));
    }
    let key = index.keys().nth(column - 1);
    Ok(key.map_or(Datum::Text(""), |key| cx.text(&printing.index_key(index.table, key))))
}

fn constraint_definition<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let pretty = matches!(a.get(1), Some(Datum::Bool(true)));
    let world = cx.env.world()?;
    let found = constraints::constraint(&world.catalog, oid(a, 0));
    Ok(optional(found.map(|c| world.printing(pretty).constraint(&c)), cx))
}

fn view_definition<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let world = cx.env.world()?;
    let id = match a[0] {
        Datum::Text(name) => reg::find_named(Reg::Class, name, &world.catalog, &world.path)?,
        _ => oid(a, 0),
    };
    let view = world.catalog.view_by_id(varve_engine::ObjectId(id));
    Ok(optional(view.map(|view| world.printing(false).view(view)), cx))
}

/// Returns the state of a sequence. The role needs one of these rights.
fn state_of_sequence(oid: u32, rights: &[Rights], cx: &Cx<'_>) -> Result<SequenceState> {
    let world = cx.env.world()?;
    let Some(sequence) = world.catalog.sequence_ref(SequenceId(oid)) else {
        let name = show::relation_name(&world.catalog, oid, &world.path).unwrap_or_else(|| oid.to_string());
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a sequence")));
    };
    let object = Object::new(sequence.id, Kind::Sequence, &sequence.name);
    if !Holder::of(&world.catalog, world.who).may_any(&world.catalog, &object, rights) {
        return Err(object.denied());
    }
    Ok(world.engine.sequence_state(sequence)?)
}

fn read_sequence(a: &[Datum<'_>], cx: &Cx<'_>) -> Result<SequenceState> {
    state_of_sequence(oid(a, 0), &[Rights::SELECT], cx)
}

fn last_of_sequence<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let state = state_of_sequence(oid(a, 0), &[Rights::SELECT, Rights::USAGE], cx)?;
    Ok(if state.is_called { Datum::Int8(state.last_value) } else { Datum::Null })
}

/// Returns the sequence that a column owns, with its schema.
fn serial_sequence<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let world = cx.env.world()?;
    let catalog = &world.catalog;
    let (schema, name) = world.path.find_text(catalog, text(a, 0));
    let table = catalog.table(&schema, &name).ok_or_else(|| {
        SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{}\" does not exist", text(a, 0)))
    })?;
    let column = table.column(text(a, 1)).ok_or_else(|| {
        let message = format!("column \"{}\" of relation \"{name}\" does not exist", text(a, 1));
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    })?;
    let owned = catalog.sequences().find(|s| s.owned_by == Some((table.id, column)));
    let shown = owned.map(|s| format!("{}.{}", names::quoted(&s.schema), names::quoted(&s.name)));
    Ok(optional(shown, cx))
}

fn comment<'a>(a: &[Datum<'a>], column: Option<usize>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    Ok(optional(show::relation_comment(&cx.env.world()?.catalog, oid(a, 0), column), cx))
}

/// Returns the comment on an object of a system table.
fn described<'a>(a: &[Datum<'a>], class: &str, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let catalog = &cx.env.world()?.catalog;
    let object = match class {
        "pg_class" => return comment(a, None, cx),
        "pg_namespace" if oid(a, 0) == ids::PUBLIC => {
            catalog.schemas().find(|s| s.name == "public").map(|s| s.id)
        }
        "pg_namespace" => catalog.schemas().map(|s| s.id).find(|id| id.0 == oid(a, 0)),
        "pg_constraint" => constraints::constraint(catalog, oid(a, 0)).map(|c| varve_engine::ObjectId(c.oid)),
        _ => None,
    };
    let about = object.and_then(|object| catalog.about(object));
    Ok(optional(about.and_then(|about| about.comment(None)).map(str::to_owned), cx))
}

/// Returns the comment on an object that all databases share.
fn shared_description<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (catalog, object) = (&cx.env.world()?.catalog, varve_engine::ObjectId(oid(a, 0)));
    let is_there = match text(a, 1) {
        "pg_database" => catalog.database_by_id(object).is_some(),
        "pg_authid" => catalog.role_by_id(object).is_some(),
        _ => false,
    };
    let about = catalog.about(object).filter(|_| is_there);
    Ok(optional(about.and_then(|about| about.comment(None)).map(str::to_owned), cx))
}

fn named<'a>(kind: Reg, a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let world = cx.env.world()?;
    let found = reg::lookup(kind, text(a, 0), &world.catalog, &world.path);
    Ok(found.map_or(Datum::Null, |oid| Datum::Int8(i64::from(oid))))
}

fn setting<'a>(a: &[Datum<'a>], missing_ok: bool, cx: &Cx<'a>) -> Result<Datum<'a>> {
    match cx.env.world()?.setting(text(a, 0)) {
        Ok(value) => Ok(cx.text(&value)),
        Err(_) if missing_ok => Ok(Datum::Null),
        Err(e) => Err(e),
    }
}

/// Runs SET. A NULL value means RESET.
fn set_config<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    if a[0].is_null() {
        return Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, "SET requires parameter name"));
    }
    let value = (!a[1].is_null()).then(|| text(a, 1));
    let is_local = matches!(a[2], Datum::Bool(true));
    Ok(cx.text(&cx.env.world()?.set(text(a, 0), value, is_local)?))
}
