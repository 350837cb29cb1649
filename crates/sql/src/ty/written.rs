//! Types as they are written in SQL.
//!
//! Does not know: what the types mean (`ty`), nor which of them columns may have.

use sqlparser::ast::{ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, TimezoneInfo};
use varve_engine::{ColumnType, Moment};

use super::{Reg, Ty, Typed};
use crate::error::{Result, SqlError, SqlState};

/// Reads a type name from the syntax tree.
pub fn of_ast(t: &DataType) -> Result<Typed> {
    let ty = match t {
        DataType::Bool | DataType::Boolean => Ty::Bool,
        DataType::SmallInt(None) | DataType::Int2(None) => Ty::Int2,
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => Ty::Int4,
        DataType::BigInt(None) | DataType::Int8(None) => Ty::Int8,
        DataType::Float8 | DataType::DoublePrecision | DataType::Float(ExactNumberInfo::None) => Ty::Float8,
        DataType::Float(ExactNumberInfo::Precision(25..=53)) => Ty::Float8,
        DataType::Float4 | DataType::Real | DataType::Float(ExactNumberInfo::Precision(1..=24)) => Ty::Float4,
        DataType::Uuid => Ty::Uuid,
        DataType::JSON => Ty::Json,
        DataType::Time(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            return Ok(moment_of(Moment::Time, *digits));
        }
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => return array_of(element),
        DataType::Text => Ty::Text,
        DataType::Bytea => Ty::Bytea,
        DataType::Date => Ty::Date,
        DataType::Regclass => Ty::Reg(Reg::Class),
        DataType::Interval { fields: None, precision } => {
            return Ok(moment_of(Moment::Interval, *precision));
        }
        DataType::Timestamp(digits, zone) => {
            let moment = match zone {
                TimezoneInfo::None | TimezoneInfo::WithoutTimeZone => Moment::Timestamp,
                TimezoneInfo::WithTimeZone | TimezoneInfo::Tz => Moment::TimestampTz,
            };
            return Ok(moment_of(moment, *digits));
        }
        DataType::Numeric(p) | DataType::Decimal(p) | DataType::Dec(p) => return numeric_of(*p),
        DataType::Char(n) | DataType::Character(n) => return string_of(Ty::Char, n, Some(1)),
        DataType::Varchar(n) | DataType::CharacterVarying(n) | DataType::CharVarying(n) => {
            return string_of(Ty::Varchar, n, None);
        }
        DataType::Custom(name, arguments) => return custom_of(&name.to_string(), arguments),
        other => return Err(SqlError::unsupported(format!("type {}", other.to_string().to_lowercase()))),
    };
    Ok(Typed::plain(ty))
}

/// Digits beyond a microsecond's are none, as PostgreSQL warns.
fn moment_of(moment: Moment, digits: Option<u64>) -> Typed {
    Typed::of_column(match digits {
        Some(digits) => ColumnType::Rounded(moment, digits.min(6) as u8),
        None => moment.unrounded(),
    })
}

/// Arrays of arrays are arrays, as in PostgreSQL; the modifier is the elements'.
fn array_of(element: &DataType) -> Result<Typed> {
    let Typed { ty: element, typmod } = of_ast(element)?;
    let array = if element.element().is_some() { Some(element) } else { element.array() };
    array
        .map(|ty| Typed { ty, typmod })
        .ok_or_else(|| SqlError::unsupported(format!("an array of type {}", element.name())))
}

fn custom_of(name: &str, arguments: &[String]) -> Result<Typed> {
    let lower = name.to_ascii_lowercase();
    let bare = lower.strip_prefix("pg_catalog.").unwrap_or(&lower);
    let plain = bare.trim_matches('"');
    let ty = match plain {
        "bool" => Ty::Bool,
        "name" => Ty::Name,
        "timestamptz" => Ty::TimestampTz,
        "int2" => Ty::Int2,
        "int4" | "int" | "integer" => Ty::Int4,
        "int8" | "bigint" => Ty::Int8,
        "float4" => Ty::Float4,
        "float8" => Ty::Float8,
        "time" => Ty::Time,
        "timestamp" => Ty::Timestamp,
        "interval" => Ty::Interval,
        "uuid" => Ty::Uuid,
        "json" => Ty::Json,
        "bytea" => Ty::Bytea,
        "oid" => Ty::Oid,
        "regclass" => Ty::Reg(Reg::Class),
        "regtype" => Ty::Reg(Reg::Type),
        "regproc" => Ty::Reg(Reg::Proc),
        "regnamespace" => Ty::Reg(Reg::Namespace),
        "regrole" => Ty::Reg(Reg::Role),
        "char" => Ty::Char1,
        "int2vector" => Ty::Int2Vector,
        "oidvector" => Ty::OidVector,
        "numeric" => Ty::Numeric,
        "text" => Ty::Text,
        "varchar" => return string_of(Ty::Varchar, &length_of(arguments), None),
        "date" => Ty::Date,
        "bpchar" if !arguments.is_empty() => {
            return string_of(Ty::Char, &length_of(arguments), None);
        }
        // What a CHECK over char(n) is shown with.
        "bpchar" => Ty::Char,
        _ if KNOWN_FOREIGN_TYPES.contains(&plain) => {
            return Err(SqlError::unsupported(format!("type {plain}")));
        }
        _ => {
            let message = format!("type \"{}\" does not exist", name.trim_matches('"'));
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        }
    };
    Ok(Typed::plain(ty))
}

/// The length in the parentheses behind a type's name.
fn length_of(arguments: &[String]) -> Option<CharacterLength> {
    let length = arguments.first()?.parse().ok()?;
    Some(CharacterLength::IntegerLength { length, unit: None })
}

/// Types that PostgreSQL has and Varve has not, as far as the parser leaves their names to us.
const KNOWN_FOREIGN_TYPES: [&str; 18] = [
    "xid", "cid", "tid", "money", "inet", "cidr", "macaddr", "point", "line", "lseg", "box", "path",
    "polygon", "circle", "tsvector", "tsquery", "xml", "timetz",
];

fn numeric_of(info: ExactNumberInfo) -> Result<Typed> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok(Typed::plain(Ty::Numeric)),
        ExactNumberInfo::Precision(p) => (p, 0),
        ExactNumberInfo::PrecisionAndScale(p, s) => (p, s),
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

/// Longest declared length of a string type, as in PostgreSQL.
const LENGTH_MAX: u64 = 10_485_760;

fn string_of(ty: Ty, length: &Option<CharacterLength>, default: Option<u64>) -> Result<Typed> {
    let length = match length {
        Some(CharacterLength::IntegerLength { length, .. }) => Some(*length),
        Some(CharacterLength::Max) => return Err(SqlError::unsupported("a length of MAX")),
        None => default,
    };
    let Some(length) = length else { return Ok(Typed::plain(ty)) };
    let shown = if ty == Ty::Char { "char" } else { "varchar" };
    let message = match length {
        0 => format!("length for type {shown} must be at least 1"),
        1..=LENGTH_MAX => return Ok(Typed { ty, typmod: length as i32 + 4 }),
        _ => format!("length for type {shown} cannot exceed {LENGTH_MAX}"),
    };
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
}
