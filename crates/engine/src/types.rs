//! Column types and values, which rows, keys and all code above use.
//!
//! Invariants
//! 1. A `Datum` borrows its data, is `Copy` and never allocates. A `Value` is the same value with its own
//!    data.
//! 2. The order `Datum::order` equals the order of encoded keys (`key.rs`). NULL sorts last, text sorts by
//!    bytes ("C" collation), NaN is above every number.
//!
//! This module does not know SQL text, type names, object identifiers or casts.

use std::cmp::Ordering;

use crate::array::{Array, ArrayRef, is_of};
use crate::interval::Interval;
use crate::numeric::{Numeric, NumericRef};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// boolean
    Bool,
    /// smallint
    Int2,
    /// integer
    Int4,
    /// bigint
    Int8,
    /// real
    Float4,
    /// double precision
    Float8,
    /// numeric, with (precision, scale) in decimal digits if declared
    Numeric {
        /// (precision, scale) in decimal digits.
        precision: Option<(u16, i16)>,
    },
    /// char(n): stored padded, compared without its trailing blanks
    Char(u32),
    /// varchar, with its limit in characters if declared
    Varchar(Option<u32>),
    /// text
    Text,
    /// bytea
    Bytea,
    /// date
    Date,
    /// timestamp without time zone
    Timestamp,
    /// timestamp with time zone
    TimestampTz,
    /// time without time zone
    Time,
    /// interval
    Interval,
    /// uuid
    Uuid,
    /// json: the text as the client wrote it
    Json,
    /// oid, stored as bigint
    Oid,
    /// A type of time with this many digits of a second, 0 to 6. For an interval the number also says which
    /// fields are stored (`time/fields.rs` of the SQL crate).
    Rounded(Moment, u8),
    /// An array of values of this type, which is not an array.
    Array(&'static ColumnType),
}

/// Types whose seconds may be declared with fewer digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moment {
    /// timestamp without time zone
    Timestamp,
    /// timestamp with time zone
    TimestampTz,
    /// time without time zone
    Time,
    /// interval
    Interval,
}

impl Moment {
    /// Returns the type with all digits.
    pub const fn unrounded(self) -> ColumnType {
        match self {
            Self::Timestamp => ColumnType::Timestamp,
            Self::TimestampTz => ColumnType::TimestampTz,
            Self::Time => ColumnType::Time,
            Self::Interval => ColumnType::Interval,
        }
    }
}

impl ColumnType {
    /// Returns the number of bytes of a value in a row, if it is the same for all values of the type.
    pub const fn fixed_width_bytes(self) -> Option<usize> {
        match self {
            Self::Bool => Some(1),
            Self::Int2 => Some(2),
            Self::Int4 | Self::Float4 | Self::Date => Some(4),
            Self::Rounded(moment, _) => moment.unrounded().fixed_width_bytes(),
            Self::Int8 | Self::Oid | Self::Float8 | Self::Timestamp | Self::TimestampTz | Self::Time => {
                Some(8)
            }
            Self::Interval | Self::Uuid => Some(16),
            Self::Numeric { .. } | Self::Array(_) => None,
            Self::Char(_) | Self::Varchar(_) | Self::Text | Self::Json | Self::Bytea => None,
        }
    }

    /// Returns whether a datum can be stored in a column of this type without conversion.
    pub fn holds(self, datum: &Datum<'_>) -> bool {
        match (self, datum) {
            (Self::Rounded(moment, _), _) => return moment.unrounded().holds(datum),
            (Self::Oid, Datum::Int8(oid)) => return u32::try_from(*oid).is_ok(),
            (Self::Array(element), Datum::Array(array)) => return is_of(*array, *element),
            _ => {}
        }
        matches!(
            (self, datum),
            (_, Datum::Null)
                | (Self::Bool, Datum::Bool(_))
                | (Self::Int2, Datum::Int2(_))
                | (Self::Int4, Datum::Int4(_))
                | (Self::Int8, Datum::Int8(_))
                | (Self::Float4, Datum::Float4(_))
                | (Self::Float8, Datum::Float8(_))
                | (Self::Numeric { .. }, Datum::Numeric(_))
                | (Self::Char(_) | Self::Varchar(_) | Self::Text | Self::Json, Datum::Text(_))
                | (Self::Bytea, Datum::Bytea(_))
                | (Self::Date, Datum::Date(_))
                | (Self::Timestamp, Datum::Timestamp(_))
                | (Self::TimestampTz, Datum::TimestampTz(_))
                | (Self::Time, Datum::Time(_))
                | (Self::Interval, Datum::Interval(_))
                | (Self::Uuid, Datum::Uuid(_))
        )
    }
}

/// A borrowed value.
#[derive(Clone, Copy, Debug)]
pub enum Datum<'a> {
    /// NULL of any type.
    Null,
    /// boolean
    Bool(bool),
    /// smallint
    Int2(i16),
    /// integer
    Int4(i32),
    /// bigint
    Int8(i64),
    /// real
    Float4(f32),
    /// double precision
    Float8(f64),
    /// numeric, as stored
    Numeric(NumericRef<'a>),
    /// char, varchar, text and json
    Text(&'a str),
    /// bytea
    Bytea(&'a [u8]),
    /// Days since 2000-01-01.
    Date(i32),
    /// Microseconds since 2000-01-01 00:00:00, local time.
    Timestamp(i64),
    /// Microseconds since 2000-01-01 00:00:00 UTC.
    TimestampTz(i64),
    /// Microseconds since midnight, 0..=86,400,000,000.
    Time(i64),
    /// interval
    Interval(Interval),
    /// uuid
    Uuid([u8; 16]),
    /// A list of values of one type.
    Array(ArrayRef<'a>),
}

/// An owned value.
#[derive(Clone, Debug)]
pub enum Value {
    /// NULL of any type.
    Null,
    /// boolean
    Bool(bool),
    /// smallint
    Int2(i16),
    /// integer
    Int4(i32),
    /// bigint
    Int8(i64),
    /// real
    Float4(f32),
    /// double precision
    Float8(f64),
    /// numeric
    Numeric(Numeric),
    /// char, varchar, text and json
    Text(String),
    /// bytea
    Bytea(Vec<u8>),
    /// Days since 2000-01-01.
    Date(i32),
    /// Microseconds since 2000-01-01 00:00:00, local time.
    Timestamp(i64),
    /// Microseconds since 2000-01-01 00:00:00 UTC.
    TimestampTz(i64),
    /// Microseconds since midnight, 0..=86,400,000,000.
    Time(i64),
    /// interval
    Interval(Interval),
    /// uuid
    Uuid([u8; 16]),
    /// A list of values of one type.
    Array(Array),
}

impl Value {
    /// Returns the same value, borrowed.
    pub fn as_datum(&self) -> Datum<'_> {
        match self {
            Self::Null => Datum::Null,
            Self::Bool(v) => Datum::Bool(*v),
            Self::Int2(v) => Datum::Int2(*v),
            Self::Int4(v) => Datum::Int4(*v),
            Self::Int8(v) => Datum::Int8(*v),
            Self::Float4(v) => Datum::Float4(*v),
            Self::Float8(v) => Datum::Float8(*v),
            Self::Numeric(v) => Datum::Numeric(v.as_ref()),
            Self::Text(v) => Datum::Text(v),
            Self::Bytea(v) => Datum::Bytea(v),
            Self::Date(v) => Datum::Date(*v),
            Self::Timestamp(v) => Datum::Timestamp(*v),
            Self::TimestampTz(v) => Datum::TimestampTz(*v),
            Self::Time(v) => Datum::Time(*v),
            Self::Interval(v) => Datum::Interval(*v),
            Self::Uuid(v) => Datum::Uuid(*v),
            Self::Array(v) => Datum::Array(v.as_ref()),
        }
    }

    /// Returns whether this is NULL.
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

impl Datum<'_> {
    /// Returns the same value, owned.
    pub fn to_value(&self) -> Value {
        match *self {
            Self::Null => Value::Null,
            Self::Bool(v) => Value::Bool(v),
            Self::Int2(v) => Value::Int2(v),
            Self::Int4(v) => Value::Int4(v),
            Self::Int8(v) => Value::Int8(v),
            Self::Float4(v) => Value::Float4(v),
            Self::Float8(v) => Value::Float8(v),
            Self::Numeric(v) => Value::Numeric(v.to_owned()),
            Self::Text(v) => Value::Text(v.to_owned()),
            Self::Bytea(v) => Value::Bytea(v.to_vec()),
            Self::Date(v) => Value::Date(v),
            Self::Timestamp(v) => Value::Timestamp(v),
            Self::TimestampTz(v) => Value::TimestampTz(v),
            Self::Time(v) => Value::Time(v),
            Self::Interval(v) => Value::Interval(v),
            Self::Uuid(v) => Value::Uuid(v),
            Self::Array(v) => Value::Array(v.to_owned()),
        }
    }

    /// Returns whether this is NULL.
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Returns the integer of any of the three widths.
    pub const fn as_integer(&self) -> Option<i64> {
        match *self {
            Self::Int2(v) => Some(v as i64),
            Self::Int4(v) => Some(v as i64),
            Self::Int8(v) => Some(v),
            _ => None,
        }
    }

    /// Returns the order of two values of one type, which is a total order. Integers of different widths
    /// compare by value. NULL is last, and equal to itself. Panics if the types differ, because the planner
    /// must convert both sides.
    pub fn order(&self, other: &Self) -> Ordering {
        if let (Some(a), Some(b)) = (self.as_integer(), other.as_integer()) {
            return a.cmp(&b);
        }
        match (self, other) {
            (Self::Null, Self::Null) => Ordering::Equal,
            (Self::Null, _) => Ordering::Greater,
            (_, Self::Null) => Ordering::Less,
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Float4(a), Self::Float4(b)) => order_floats(f64::from(*a), f64::from(*b)),
            (Self::Float8(a), Self::Float8(b)) => order_floats(*a, *b),
            (Self::Numeric(a), Self::Numeric(b)) => a.order(*b),
            (Self::Text(a), Self::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Self::Bytea(a), Self::Bytea(b)) => a.cmp(b),
            (Self::Date(a), Self::Date(b)) => a.cmp(b),
            (Self::Timestamp(a), Self::Timestamp(b)) | (Self::TimestampTz(a), Self::TimestampTz(b)) => {
                a.cmp(b)
            }
            (Self::Time(a), Self::Time(b)) => a.cmp(b),
            (Self::Interval(a), Self::Interval(b)) => a.order(*b),
            (Self::Uuid(a), Self::Uuid(b)) => a.cmp(b),
            (Self::Array(a), Self::Array(b)) => a.order(*b),
            _ => panic!("values of different types compared: {self:?} and {other:?}"),
        }
    }
}

/// Compares two values in PostgreSQL's order of double precision: NaN equals itself and is above all other
/// values, and the two zeros are equal.
pub fn order_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
