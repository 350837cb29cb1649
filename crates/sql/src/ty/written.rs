//! Type names as SQL writes them.
//!
//! This module does not know what the types mean (`ty`) or which of them a column may have.

use varve_engine::{ColumnType, Moment};

use super::{Reg, Ty, Typed};
use crate::ast::TypeName;
use crate::error::{Result, SqlError, SqlState};
use crate::time::IntervalFields;

/// Reads a type name from the syntax tree.
pub fn of_ast(t: &TypeName) -> Result<Typed> {
    let element = element_of(t)?;
    if t.is_array { array_of(element) } else { Ok(element) }
}

fn element_of(t: &TypeName) -> Result<Typed> {
    let Some(name) = t.system_name() else { return Err(no_type(t)) };
    let digits = t.modifiers.first().copied();
    Ok(match name {
        "time" => moment_of(Moment::Time, digits),
        "timestamp" => moment_of(Moment::Timestamp, digits),
        "timestamptz" => moment_of(Moment::TimestampTz, digits),
        "interval" => return interval_of(&t.modifiers),
        "numeric" => return numeric_of(&t.modifiers),
        "varchar" => return string_of(Ty::Varchar, digits),
        "bpchar" => return string_of(Ty::Char, digits),
        name => match plain(name) {
            Some(ty) if t.modifiers.is_empty() => Typed::plain(ty),
            Some(_) => {
                let message = format!("type modifier is not allowed for type \"{name}\"");
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            None => return Err(foreign(name).unwrap_or_else(|| no_type(t))),
        },
    })
}

/// Returns the type of this name, if it has no modifier.
fn plain(name: &str) -> Option<Ty> {
    Some(match name {
        "bool" => Ty::Bool,
        "int2" => Ty::Int2,
        "int4" => Ty::Int4,
        "int8" => Ty::Int8,
        "float4" => Ty::Float4,
        "float8" => Ty::Float8,
        "text" => Ty::Text,
        "name" => Ty::Name,
        "bytea" => Ty::Bytea,
        "date" => Ty::Date,
        "uuid" => Ty::Uuid,
        "json" => Ty::Json,
        "oid" => Ty::Oid,
        "regclass" => Ty::Reg(Reg::Class),
        "regtype" => Ty::Reg(Reg::Type),
        "regproc" => Ty::Reg(Reg::Proc),
        "regnamespace" => Ty::Reg(Reg::Namespace),
        "regrole" => Ty::Reg(Reg::Role),
        "char" => Ty::Char1,
        "int2vector" => Ty::Int2Vector,
        "oidvector" => Ty::OidVector,
        _ => return None,
    })
}

/// Returns the error 42704: there is no type of this name.
fn no_type(t: &TypeName) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{}\" does not exist", t.name))
}

/// PostgreSQL's types that Varve does not have.
const FOREIGN: [&str; 19] = [
    "xid", "cid", "tid", "money", "inet", "cidr", "macaddr", "point", "line", "lseg", "box", "path",
    "polygon", "circle", "tsvector", "tsquery", "xml", "jsonb", "bit",
];

/// Returns the error 0A000 for a type that Varve does not have, or `None` for other names.
fn foreign(name: &str) -> Option<SqlError> {
    let shown = match name {
        "timetz" => "time with time zone",
        "varbit" => "bit varying",
        name if FOREIGN.contains(&name) => name,
        _ => return None,
    };
    Some(SqlError::unsupported(format!("type {shown}")))
}

/// Returns a type with digits of the second. More than six digits count as six. PostgreSQL does the same with
/// a warning.
fn moment_of(moment: Moment, digits: Option<i64>) -> Typed {
    Typed::of_column(match digits {
        Some(digits) => ColumnType::Rounded(moment, digits.clamp(0, 6) as u8),
        None => moment.unrounded(),
    })
}

fn interval_of(modifiers: &[i64]) -> Result<Typed> {
    let fields = match modifiers {
        [] => None,
        _ => Some(IntervalFields::of_written(modifiers).ok_or_else(invalid_interval)?),
    };
    Ok(Typed {
        ty: Ty::Interval,
        typmod: fields.filter(|f| *f != IntervalFields::ALL).map_or(-1, IntervalFields::typmod),
    })
}

fn invalid_interval() -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "invalid INTERVAL type modifier")
}

/// Returns the type of arrays with these elements. As in PostgreSQL, an array of arrays has the same type,
/// and the modifier belongs to the elements.
fn array_of(element: Typed) -> Result<Typed> {
    if element.fields().is_some_and(IntervalFields::is_partial) {
        return Err(SqlError::unsupported("an array of intervals of which some fields are kept"));
    }
    let Typed { ty: element, typmod } = element;
    let array = if element.element().is_some() { Some(element) } else { element.array() };
    array
        .map(|ty| Typed { ty, typmod })
        .ok_or_else(|| SqlError::unsupported(format!("an array of type {}", element.name())))
}

fn numeric_of(modifiers: &[i64]) -> Result<Typed> {
    let (precision, scale) = match *modifiers {
        [] => return Ok(Typed::plain(Ty::Numeric)),
        [precision] => (precision, 0),
        [precision, scale] => (precision, scale),
        _ => {
            let message = "invalid NUMERIC type modifier";
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
    };
    if !(1..=1000).contains(&precision) {
        let message = format!("NUMERIC precision {precision} must be between 1 and 1000");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    if !(-1000..=1000).contains(&scale) {
        let message = format!("NUMERIC scale {scale} must be between -1000 and 1000");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    let column = ColumnType::Numeric { precision: Some((precision as u16, scale as i16)) };
    Ok(Typed::of_column(column))
}

/// The largest declared length of a string type, as in PostgreSQL.
const LENGTH_MAX: i64 = 10_485_760;

fn string_of(ty: Ty, length: Option<i64>) -> Result<Typed> {
    let Some(length) = length else { return Ok(Typed::plain(ty)) };
    let shown = if ty == Ty::Char { "char" } else { "varchar" };
    let message = match length {
        ..=0 => format!("length for type {shown} must be at least 1"),
        1..=LENGTH_MAX => return Ok(Typed { ty, typmod: length as i32 + 4 }),
        _ => format!("length for type {shown} cannot exceed {LENGTH_MAX}"),
    };
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
}
