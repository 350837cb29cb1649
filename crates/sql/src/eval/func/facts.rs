//! Functions about the server and its catalog that PostgreSQL's clients call, and that need little code in
//! Varve.
//!
//! A function that returns rows is built from array functions: one for each column of its rows. Users cannot
//! call these array functions, because their names are not valid in SQL. FROM makes rows of the arrays.
//!
//! This module does not know names of OIDs (`objects`) or rights that can be granted (`privilege`).

use varve_engine::{Array, ColumnType, Datum, TableId, Value};

use super::objects::{of_relation, oid};
use super::{Builtin, catalog, strict, text};
use crate::encoding::Encoding;
use crate::error::{Result, SqlError};
use crate::eval::{Cx, reg};
use crate::system::{self, Relation, show};
use crate::ty::Reg;
use crate::ty::Ty::{self, Bool, Char1, Int2Vector, Int4, Int8, Name, Oid, OidVector, Text, TimestampTz};

const CLASS: Ty = Ty::Reg(Reg::Class);
const TEXTS: Ty = Ty::Array(&Ty::Text);
const NUMBERS: Ty = Ty::Array(&Ty::Int4);

pub(super) const TABLE: &[Builtin] = &[
    catalog("acldefault", &[Char1, Oid], TEXTS, acl_default),
    strict("pg_options_to_table.option_name", &[TEXTS], TEXTS, |a, cx| options(a, false, cx)),
    strict("pg_options_to_table.option_value", &[TEXTS], TEXTS, |a, cx| options(a, true, cx)),
    strict("_pg_expandarray.x", &[Int2Vector], Ty::Array(&Ty::Int2), elements),
    strict("_pg_expandarray.x", &[OidVector], Ty::Array(&Ty::Oid), elements),
    strict("_pg_expandarray.x", &[Ty::Array(&Ty::Int2)], Ty::Array(&Ty::Int2), elements),
    strict("_pg_expandarray.x", &[NUMBERS], NUMBERS, elements),
    strict("_pg_expandarray.x", &[Ty::Array(&Ty::Int8)], Ty::Array(&Ty::Int8), elements),
    strict("_pg_expandarray.x", &[Ty::Array(&Ty::Oid)], Ty::Array(&Ty::Oid), elements),
    strict("_pg_expandarray.x", &[TEXTS], TEXTS, elements),
    strict("_pg_expandarray.n", &[Int2Vector], NUMBERS, positions),
    strict("_pg_expandarray.n", &[OidVector], NUMBERS, positions),
    strict("_pg_expandarray.n", &[Ty::Array(&Ty::Int2)], NUMBERS, positions),
    strict("_pg_expandarray.n", &[NUMBERS], NUMBERS, positions),
    strict("_pg_expandarray.n", &[Ty::Array(&Ty::Int8)], NUMBERS, positions),
    strict("_pg_expandarray.n", &[Ty::Array(&Ty::Oid)], NUMBERS, positions),
    strict("_pg_expandarray.n", &[TEXTS], NUMBERS, positions),
    strict("name_letter", &[Name, Int4], Char1, letter),
    // Varve has no row security policies, but the relation must exist.
    catalog("row_security_active", &[CLASS], Bool, NO),
    catalog("row_security_active", &[Text], Bool, |a, cx| {
        let world = cx.env.world()?;
        reg::find_named(Reg::Class, text(a, 0), &world.catalog, &world.path).map(|_| Datum::Bool(false))
    }),
    strict("pg_jit_available", &[], Bool, NO),
    strict("pg_trigger_depth", &[], Int4, |_, _| Ok(Datum::Int4(0))),
    catalog("pg_postmaster_start_time", &[], TimestampTz, started),
    catalog("pg_conf_load_time", &[], TimestampTz, started),
    catalog("pg_relation_filenode", &[CLASS], Oid, |a, cx| {
        let has_file = |r: &Relation<'_>| !matches!(r.kind(), 'v' | 'p' | 'I');
        Ok(of_relation(a, cx)?.filter(has_file).map_or(Datum::Null, |_| a[0]))
    }),
    strict("pg_encoding_max_length", &[Int4], Int4, |a, _| {
        let encoding = i32::try_from(super::int(a, 0)).ok().and_then(Encoding::numbered);
        Ok(encoding.map_or(Datum::Null, |encoding| Datum::Int4(encoding.bytes_max())))
    }),
    strict("pg_stat_get_numscans", &[Oid], Int8, ZERO),
    strict("pg_stat_get_tuples_returned", &[Oid], Int8, ZERO),
    strict("pg_stat_get_tuples_fetched", &[Oid], Int8, ZERO),
    strict("pg_stat_get_blocks_fetched", &[Oid], Int8, ZERO),
    strict("pg_stat_get_blocks_hit", &[Oid], Int8, ZERO),
    strict("pg_stat_get_dead_tuples", &[Oid], Int8, ZERO),
    catalog("pg_stat_get_live_tuples", &[Oid], Int8, live_rows),
];

const NO: super::Run = |_, _| Ok(Datum::Bool(false));
/// Returns 0 for statistics that Varve does not count.
const ZERO: super::Run = |_, _| Ok(Datum::Int8(0));

fn started<'a>(_: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    Ok(Datum::TimestampTz(cx.env.world()?.watched.start_us()))
}

/// Returns the number of rows that ANALYZE has counted.
fn live_rows<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let world = cx.env.world()?;
    let table = world.catalog.table_ref(TableId(oid(a, 0)));
    let count = table.and_then(|table| world.watched.count(table.id));
    Ok(Datum::Int8(count.map_or(0, |count| i64::try_from(count.rows).unwrap_or(i64::MAX))))
}

/// Returns the rights on an object of a kind before anything is granted: the rights of all roles, and the
/// rights of the owner.
fn acl_default<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (everybody, owners) = match text(a, 0) {
        "c" => ("", ""),
        "r" => ("", "arwdDxt"),
        "s" => ("", "rwU"),
        "d" => ("Tc", "CTc"),
        "f" => ("X", "X"),
        "l" | "T" => ("U", "U"),
        "L" => ("", "rw"),
        "n" => ("", "UC"),
        "p" => ("", "sA"),
        "t" => ("", "C"),
        "F" | "S" => ("", "U"),
        other => {
            let message = format!("unrecognized objtype abbreviation: {other}");
            return Err(SqlError::internal(message));
        }
    };
    let owner = system::names::quoted(&show::role_name(&cx.env.world()?.catalog, oid(a, 1)));
    let mut items = Array::new(ColumnType::Text);
    for (holder, rights) in [("", everybody), (owner.as_str(), owners)] {
        if !rights.is_empty() {
            items.push(Datum::Text(&format!("{holder}={rights}/{owner}")));
        }
    }
    Ok(cx.keep_value(Value::Array(items)))
}

/// Returns the names, or the values, of options in the form `name=value`.
fn options<'a>(a: &[Datum<'a>], values: bool, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let Some(Datum::Array(written)) = a.first() else { return Ok(Datum::Null) };
    let mut out = Array::new(ColumnType::Text);
    for option in written.iter() {
        let Datum::Text(option) = option else { continue };
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        out.push(if values { value.map_or(Datum::Null, Datum::Text) } else { Datum::Text(name) });
    }
    Ok(cx.keep_value(Value::Array(out)))
}

fn elements<'a>(a: &[Datum<'a>], _: &Cx<'a>) -> Result<Datum<'a>> {
    Ok(a[0])
}

/// Returns the positions 1, 2, ... of the elements of an array.
fn positions<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let Some(Datum::Array(array)) = a.first() else { return Ok(Datum::Null) };
    let mut out = Array::new(ColumnType::Int4);
    (1..=array.len()).for_each(|n| out.push(Datum::Int4(i32::try_from(n).unwrap_or(i32::MAX))));
    Ok(cx.keep_value(Value::Array(out)))
}

/// Returns letter `n` of a name, counted from 0. PostgreSQL stores a name in 64 bytes. So the result is an
/// empty string from the end of the name up to position 63, and NULL after it.
fn letter<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    const NAME_BYTES: usize = 64;
    let Ok(n) = usize::try_from(super::int(a, 1)) else { return Ok(Datum::Null) };
    if n >= NAME_BYTES {
        return Ok(Datum::Null);
    }
    Ok(cx.text(&text(a, 0).chars().nth(n).map(String::from).unwrap_or_default()))
}
