//! Names of types.
//!
//! Does not know: which types there are (`ty`).

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, TypeName, a_const::Val};
use sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, Ident, IntervalFields, ObjectName,
    TimezoneInfo,
};

use super::place::{Reader, strings};
use crate::error::{Result, SqlError};

/// What PostgreSQL writes for an interval whose fields are not named.
const ALL_FIELDS: i64 = 0x7FFF;

impl Reader<'_> {
    /// A type as it is written in a cast.
    pub(super) fn data_type(&self, t: &TypeName) -> Result<DataType> {
        if t.setof {
            return Err(SqlError::unsupported("SETOF"));
        }
        if t.pct_type {
            return Err(SqlError::unsupported("%TYPE"));
        }
        let element = self.element_type(t)?;
        let array = |inner, _: &Node| DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(inner), None));
        Ok(t.array_bounds.iter().fold(element, array))
    }

    fn element_type(&self, t: &TypeName) -> Result<DataType> {
        let names = strings(&t.names)?;
        let numbers = modifiers(&t.typmods)?;
        let custom = || {
            let plain = |name: &&str| Ident { quote_style: None, ..self.ident(name, t.location) };
            let name = match names.as_slice() {
                [schema, _] if *schema == "pg_catalog" => names.iter().map(plain).collect(),
                _ => names.iter().map(|n| self.ident(n, t.location)).collect::<Vec<_>>(),
            };
            DataType::Custom(ObjectName::from(name), numbers.iter().map(ToString::to_string).collect())
        };
        let (is_system, name) = match names.as_slice() {
            [schema, name] if *schema == "pg_catalog" => (true, *name),
            [name] => (false, *name),
            _ => return Ok(custom()),
        };
        Ok(plain(name, &numbers, is_system).unwrap_or_else(custom))
    }
}

/// The types that the tree has a place for.
fn plain(name: &str, numbers: &[i64], is_system: bool) -> Option<DataType> {
    let digits = numbers.first().and_then(|n| u64::try_from(*n).ok());
    let length = digits.map(|length| CharacterLength::IntegerLength { length, unit: None });
    Some(match name {
        "bool" => DataType::Boolean,
        "int2" => DataType::SmallInt(None),
        "int4" => DataType::Integer(None),
        "int8" => DataType::BigInt(None),
        "float4" => DataType::Real,
        "float8" => DataType::DoublePrecision,
        "numeric" => DataType::Numeric(exact(numbers)),
        "bpchar" if is_system && length.is_some() => DataType::Character(length),
        "varchar" => DataType::CharacterVarying(length),
        "text" => DataType::Text,
        "bytea" => DataType::Bytea,
        "date" => DataType::Date,
        "time" => DataType::Time(digits, TimezoneInfo::None),
        "timetz" => DataType::Time(digits, TimezoneInfo::WithTimeZone),
        "timestamp" => DataType::Timestamp(digits, TimezoneInfo::None),
        "timestamptz" => DataType::Timestamp(digits, TimezoneInfo::WithTimeZone),
        "interval" => return interval(numbers),
        "uuid" => DataType::Uuid,
        "json" => DataType::JSON,
        "jsonb" => DataType::JSONB,
        "regclass" => DataType::Regclass,
        "bit" if is_system => DataType::Bit(digits),
        "varbit" => DataType::BitVarying(digits),
        _ => return None,
    })
}

fn exact(numbers: &[i64]) -> ExactNumberInfo {
    match numbers {
        [] => ExactNumberInfo::None,
        [precision] => ExactNumberInfo::Precision(u64::try_from(*precision).unwrap_or(0)),
        [precision, scale, ..] => {
            ExactNumberInfo::PrecisionAndScale(u64::try_from(*precision).unwrap_or(0), *scale)
        }
    }
}

fn interval(numbers: &[i64]) -> Option<DataType> {
    let precision = numbers.get(1).and_then(|n| u64::try_from(*n).ok());
    let fields = numbers.first().filter(|mask| **mask != ALL_FIELDS).map(|_| IntervalFields::DayToSecond);
    Some(DataType::Interval { fields, precision })
}

/// The numbers in the parentheses behind a type.
pub fn modifiers(list: &[Node]) -> Result<Vec<i64>> {
    let number = |node: &Node| match &node.node {
        Some(NodeEnum::AConst(c)) => match &c.val {
            Some(Val::Ival(n)) => Ok(i64::from(n.ival)),
            Some(Val::Fval(text)) => text.fval.parse().map_err(|_| refused()),
            _ => Err(refused()),
        },
        _ => Err(refused()),
    };
    list.iter().map(number).collect()
}

fn refused() -> SqlError {
    SqlError::unsupported("this modifier of a type")
}
