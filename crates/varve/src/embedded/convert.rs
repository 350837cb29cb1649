//! Conversions between Rust's types and the values of SQL: parameters of statements, and columns of rows.
//!
//! Invariants
//! 1. A conversion that succeeds loses nothing: an integer that does not fit is refused (22003).
//! 2. A text is a parameter of any type. It is read as if it were written in the statement as a literal.

use std::time::{Duration, SystemTime};

use varve_engine::{Array, ColumnType, Datum, Numeric, Value};
use varve_sql::oid::{self, Oid};
use varve_sql::{Reading, SqlError, SqlState, array, text, type_name};

/// Seconds from the epoch of Unix to 2000-01-01 UTC, from which timestamps count.
const EPOCH_S: u64 = 946_684_800;
/// The largest integer up to which a double has every integer.
const EXACT_IN_DOUBLE: u64 = 1 << 53;

/// A Rust value that can be a parameter of a statement.
///
/// Implemented for booleans, integers, floats, texts, bytes, [`Numeric`], [`SystemTime`] (timestamptz),
/// `[u8; 16]` (uuid), [`Value`], for `Option` (`None` is NULL), references, and for slices and vectors of
/// these (arrays), except for bytes.
pub trait ToSql {
    /// Returns the value as it is. It is converted to the type of the parameter later.
    fn to_sql(&self) -> Value;
}

/// A Rust type as which a column can be read. Read a column that may be NULL as `Option<T>`.
///
/// Implemented for booleans, integers, floats, `String`, `&str`, `Vec<u8>`, `&[u8]`, [`Numeric`],
/// [`SystemTime`] (timestamptz), `[u8; 16]` (uuid), [`Value`], `&Value`, and for vectors (arrays).
pub trait FromSql<'a>: Sized {
    /// Converts a value.
    fn from_sql(value: &'a Value) -> Result<Self, ConversionError>;
}

/// The reason why a value cannot be read as a Rust type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConversionError {
    /// The value is NULL, and the type has no NULL.
    Null,
    /// Values of this SQL type are not read as the Rust type.
    OtherType,
    /// The Rust type does not have this value.
    OutOfRange,
    /// Another reason, for implementations outside of this crate.
    Other(String),
}

impl<T: ToSql + ?Sized> ToSql for &T {
    fn to_sql(&self) -> Value {
        (**self).to_sql()
    }
}

impl<T: ToSql> ToSql for Option<T> {
    fn to_sql(&self) -> Value {
        self.as_ref().map_or(Value::Null, ToSql::to_sql)
    }
}

impl ToSql for str {
    fn to_sql(&self) -> Value {
        Value::Text(self.to_owned())
    }
}

impl ToSql for [u8] {
    fn to_sql(&self) -> Value {
        Value::Bytea(self.to_vec())
    }
}

impl ToSql for SystemTime {
    fn to_sql(&self) -> Value {
        Value::TimestampTz(microseconds(*self))
    }
}

/// Returns the microseconds since 2000-01-01 UTC, at most those that an `i64` has.
fn microseconds(time: SystemTime) -> i64 {
    let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH_S);
    match time.duration_since(epoch) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(before) => {
            // A part of a microsecond before the epoch belongs to the microsecond below.
            let nanoseconds = before.duration().as_nanos();
            i64::try_from(nanoseconds.div_ceil(1000)).map_or(i64::MIN, |us| -us)
        }
    }
}

macro_rules! parameters {
    ($($rust:ty, |$value:ident| $made:expr;)*) => {
        $(impl ToSql for $rust {
            fn to_sql(&self) -> Value {
                let $value = self;
                $made
            }
        })*
    };
}

parameters! {
    bool, |v| Value::Bool(*v);
    i8, |v| Value::Int2(i16::from(*v));
    i16, |v| Value::Int2(*v);
    i32, |v| Value::Int4(*v);
    i64, |v| Value::Int8(*v);
    u8, |v| Value::Int2(i16::from(*v));
    u16, |v| Value::Int4(i32::from(*v));
    u32, |v| Value::Int8(i64::from(*v));
    f32, |v| Value::Float4(*v);
    f64, |v| Value::Float8(*v);
    String, |v| Value::Text(v.clone());
    Vec<u8>, |v| Value::Bytea(v.clone());
    Numeric, |v| Value::Numeric(v.clone());
    [u8; 16], |v| Value::Uuid(*v);
    Value, |v| v.clone();
}

macro_rules! arrays {
    ($($rust:ty, $element:expr;)*) => {
        $(impl ToSql for [$rust] {
            fn to_sql(&self) -> Value {
                let mut array = Array::new($element);
                self.iter().for_each(|item| array.push(item.to_sql().as_datum()));
                Value::Array(array)
            }
        }
        impl<const N: usize> ToSql for [$rust; N] {
            fn to_sql(&self) -> Value {
                self.as_slice().to_sql()
            }
        }
        impl ToSql for Vec<$rust> {
            fn to_sql(&self) -> Value {
                self.as_slice().to_sql()
            }
        }
        impl<'a> FromSql<'a> for Vec<$rust> {
            fn from_sql(value: &'a Value) -> Result<Self, ConversionError> {
                match value {
                    Value::Array(array) => {
                        let items = array.as_ref().iter().map(|item| <$rust>::from_sql(&item.to_value()));
                        items.collect()
                    }
                    other => Err(other_type(other)),
                }
            }
        })*
    };
}

arrays! {
    bool, ColumnType::Bool;
    i16, ColumnType::Int2;
    i32, ColumnType::Int4;
    i64, ColumnType::Int8;
    f32, ColumnType::Float4;
    f64, ColumnType::Float8;
    String, ColumnType::Text;
    Option<String>, ColumnType::Text;
    Option<i32>, ColumnType::Int4;
    Option<i64>, ColumnType::Int8;
    [u8; 16], ColumnType::Uuid;
}

impl ToSql for [&str] {
    fn to_sql(&self) -> Value {
        let mut array = Array::new(ColumnType::Text);
        self.iter().for_each(|item| array.push(Datum::Text(item)));
        Value::Array(array)
    }
}

impl<const N: usize> ToSql for [&str; N] {
    fn to_sql(&self) -> Value {
        self.as_slice().to_sql()
    }
}

fn other_type(value: &Value) -> ConversionError {
    if matches!(value, Value::Null) { ConversionError::Null } else { ConversionError::OtherType }
}

macro_rules! columns {
    ($($rust:ty, $($pattern:pat => $read:expr),+;)*) => {
        $(impl<'a> FromSql<'a> for $rust {
            fn from_sql(value: &'a Value) -> Result<Self, ConversionError> {
                match value {
                    $($pattern => $read,)+
                    other => Err(other_type(other)),
                }
            }
        })*
    };
}

columns! {
    bool, Value::Bool(v) => Ok(*v);
    f32, Value::Float4(v) => Ok(*v);
    f64, Value::Float8(v) => Ok(*v), Value::Float4(v) => Ok(f64::from(*v));
    String, Value::Text(v) => Ok(v.clone());
    &'a str, Value::Text(v) => Ok(v);
    Vec<u8>, Value::Bytea(v) => Ok(v.clone());
    &'a [u8], Value::Bytea(v) => Ok(v);
    Numeric, Value::Numeric(v) => Ok(v.clone());
    [u8; 16], Value::Uuid(v) => Ok(*v);
    SystemTime, Value::TimestampTz(v) => system_time(*v);
}

macro_rules! integer_columns {
    ($($rust:ty)*) => {
        $(impl<'a> FromSql<'a> for $rust {
            fn from_sql(value: &'a Value) -> Result<Self, ConversionError> {
                let wide = value.as_datum().as_integer().ok_or_else(|| other_type(value))?;
                <$rust>::try_from(wide).map_err(|_| ConversionError::OutOfRange)
            }
        })*
    };
}

integer_columns! { i8 i16 i32 i64 u8 u16 u32 u64 usize }

impl<'a, T: FromSql<'a>> FromSql<'a> for Option<T> {
    fn from_sql(value: &'a Value) -> Result<Self, ConversionError> {
        if matches!(value, Value::Null) { Ok(None) } else { T::from_sql(value).map(Some) }
    }
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(value: &'a Value) -> Result<Self, ConversionError> {
        Ok(value.clone())
    }
}

impl<'a> FromSql<'a> for &'a Value {
    fn from_sql(value: &'a Value) -> Result<Self, ConversionError> {
        Ok(value)
    }
}

/// Returns a time. The infinities have none.
fn system_time(us: i64) -> Result<SystemTime, ConversionError> {
    if us == i64::MAX || us == i64::MIN {
        return Err(ConversionError::OutOfRange);
    }
    let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH_S);
    let distance = Duration::from_micros(us.unsigned_abs());
    let time = if us < 0 { epoch.checked_sub(distance) } else { epoch.checked_add(distance) };
    time.ok_or(ConversionError::OutOfRange)
}

/// Converts a parameter to the type that the statement expects. `number` counts from 1.
pub(super) fn fit(value: Value, oid: Oid, number: usize, reading: &Reading<'_>) -> Result<Value, SqlError> {
    if let Value::Text(given) = &value {
        return text::parse_as(given, oid, reading).map_err(|error| named(error, number));
    }
    if let (Value::Array(given), Some(element)) = (&value, oid::element(oid)) {
        let mut fitted = array::of(element);
        for item in given.as_ref().iter() {
            fitted.push(fit(item.to_value(), element, number, reading)?.as_datum());
        }
        return Ok(Value::Array(fitted));
    }
    let Some(target) = oid::column_type(oid) else { return Err(mismatch(&value, oid, number)) };
    if oid == oid::UNSPECIFIED || target.holds(&value.as_datum()) {
        return Ok(value);
    }
    let out_of_range = || {
        let message = format!("parameter ${number} is out of range for type {}", type_name(oid, -1));
        SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message)
    };
    if let Some(integer) = value.as_datum().as_integer() {
        let is_exact = integer.unsigned_abs() <= EXACT_IN_DOUBLE;
        return match target {
            ColumnType::Int2 => i16::try_from(integer).map(Value::Int2).map_err(|_| out_of_range()),
            ColumnType::Int4 => i32::try_from(integer).map(Value::Int4).map_err(|_| out_of_range()),
            ColumnType::Int8 => Ok(Value::Int8(integer)),
            ColumnType::Numeric { .. } => Ok(Value::Numeric(Numeric::from_i64(integer))),
            ColumnType::Float8 if is_exact => Ok(Value::Float8(integer as f64)),
            ColumnType::Float8 => Err(out_of_range()),
            _ => Err(mismatch(&value, oid, number)),
        };
    }
    match (&value, target) {
        (Value::Float4(float), ColumnType::Float8) => Ok(Value::Float8(f64::from(*float))),
        (Value::Float8(float), ColumnType::Float4) => {
            let narrow = *float as f32;
            let is_same = f64::from(narrow) == *float || float.is_nan();
            if is_same { Ok(Value::Float4(narrow)) } else { Err(out_of_range()) }
        }
        (Value::Float8(float), ColumnType::Numeric { .. }) => {
            Numeric::from_f64(*float).map(Value::Numeric).map_err(|_| out_of_range())
        }
        _ => Err(mismatch(&value, oid, number)),
    }
}

fn named(error: SqlError, number: usize) -> SqlError {
    SqlError { message: format!("parameter ${number}: {}", error.message).into(), position: None, ..error }
}

fn mismatch(value: &Value, oid: Oid, number: usize) -> SqlError {
    let (expected, given) = (type_name(oid, -1), kind(value));
    let message = format!("parameter ${number} has the type {expected}, but the program gives {given}");
    let hint =
        format!("Give a value of {expected}, give it as a text, or write a cast, such as ${number}::text.");
    SqlError::new(SqlState::DATATYPE_MISMATCH, message).with_hint(hint)
}

/// Returns the SQL type of a value, for messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "NULL",
        Value::Bool(_) => "boolean",
        Value::Int2(_) => "smallint",
        Value::Int4(_) => "integer",
        Value::Int8(_) => "bigint",
        Value::Float4(_) => "real",
        Value::Float8(_) => "double precision",
        Value::Numeric(_) => "numeric",
        Value::Text(_) => "text",
        Value::Bytea(_) => "bytea",
        Value::Date(_) => "date",
        Value::Timestamp(_) => "timestamp without time zone",
        Value::TimestampTz(_) => "timestamp with time zone",
        Value::Time(_) => "time without time zone",
        Value::Interval(_) => "interval",
        Value::Uuid(_) => "uuid",
        Value::Array(_) => "an array",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_around_the_epoch_come_back() {
        let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH_S);
        for us in [0, 1, 1_234_567, 86_400_000_000] {
            let distance = Duration::from_micros(us);
            for time in [epoch + distance, epoch - distance] {
                assert_eq!(system_time(microseconds(time)), Ok(time), "{us}");
            }
        }
        assert_eq!(microseconds(epoch - Duration::from_nanos(1)), -1);
        assert_eq!(system_time(i64::MAX), Err(ConversionError::OutOfRange));
    }

    #[test]
    fn a_parameter_fits_only_without_loss() {
        let fit = |value, oid| fit(value, oid, 1, &Reading::plain());
        assert_eq!(fit(Value::Int8(7), oid::INT2).unwrap().as_datum().as_integer(), Some(7));
        let error = fit(Value::Int8(70_000), oid::INT2).unwrap_err();
        assert_eq!(
            (error.sqlstate.0, &*error.message),
            ("22003", "parameter $1 is out of range for type smallint")
        );
        assert_eq!(fit(Value::Int8(i64::MAX), oid::FLOAT8).unwrap_err().sqlstate.0, "22003");
        assert_eq!(fit(Value::Float8(0.1), oid::FLOAT4).unwrap_err().sqlstate.0, "22003");
        let error = fit(Value::Bool(true), oid::DATE).unwrap_err();
        assert_eq!(&*error.message, "parameter $1 has the type date, but the program gives boolean");
        assert!(matches!(fit(Value::Text("2000-01-02".into()), oid::DATE).unwrap(), Value::Date(1)));
        let error = fit(Value::Text("x".into()), oid::INT4).unwrap_err();
        assert_eq!(&*error.message, "parameter $1: invalid input syntax for type integer: \"x\"");
    }
}
