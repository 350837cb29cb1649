//! Type OIDs of PostgreSQL's `pg_type`, and the column types of Varve that belong to them.
//!
//! Invariants
//! 1. `of_column` and `column_type` are inverse for every type that a column can have, except for the type
//!    modifier.
//!
//! This module does not know values.

use crate::time::IntervalFields;
use varve_engine::{ColumnType, Moment};

/// `pg_type.oid`.
pub type Oid = u32;

/// The OID for a type that is not known.
pub const UNSPECIFIED: Oid = 0;
/// boolean
pub const BOOL: Oid = 16;
/// bytea
pub const BYTEA: Oid = 17;
/// "char", one byte
pub const CHAR: Oid = 18;
/// name
pub const NAME: Oid = 19;
/// bigint
pub const INT8: Oid = 20;
/// smallint
pub const INT2: Oid = 21;
/// int2vector
pub const INT2VECTOR: Oid = 22;
/// integer
pub const INT4: Oid = 23;
/// text
pub const TEXT: Oid = 25;
/// oid
pub const OID: Oid = 26;
/// regproc
pub const REGPROC: Oid = 24;
/// regclass
pub const REGCLASS: Oid = 2205;
/// regtype
pub const REGTYPE: Oid = 2206;
/// regnamespace
pub const REGNAMESPACE: Oid = 4089;
/// regrole
pub const REGROLE: Oid = 4096;
/// oidvector
pub const OIDVECTOR: Oid = 30;
/// json
pub const JSON: Oid = 114;
/// xml, the type of the result of EXPLAIN (FORMAT XML); no column can have it
pub const XML: Oid = 142;
/// real
pub const FLOAT4: Oid = 700;
/// double precision
pub const FLOAT8: Oid = 701;
/// unknown
pub const UNKNOWN: Oid = 705;
/// character(n), trailing blanks not significant
pub const BPCHAR: Oid = 1042;
/// character varying
pub const VARCHAR: Oid = 1043;
/// date
pub const DATE: Oid = 1082;
/// time without time zone
pub const TIME: Oid = 1083;
/// timestamp without time zone
pub const TIMESTAMP: Oid = 1114;
/// timestamp with time zone
pub const TIMESTAMPTZ: Oid = 1184;
/// interval
pub const INTERVAL: Oid = 1186;
/// numeric
pub const NUMERIC: Oid = 1700;
/// void
pub const VOID: Oid = 2278;
/// uuid
pub const UUID: Oid = 2950;

/// The types of elements and of their arrays. The vectors are arrays with a different text form.
const ARRAYS: [(Oid, Oid); 23] = [
    (BOOL, 1000),
    (BYTEA, 1001),
    (CHAR, 1002),
    (NAME, 1003),
    (INT2, 1005),
    (INT4, 1007),
    (TEXT, 1009),
    (BPCHAR, 1014),
    (VARCHAR, 1015),
    (INT8, 1016),
    (FLOAT4, 1021),
    (FLOAT8, 1022),
    (OID, 1028),
    (TIMESTAMP, 1115),
    (DATE, 1182),
    (TIME, 1183),
    (TIMESTAMPTZ, 1185),
    (INTERVAL, 1187),
    (NUMERIC, 1231),
    (UUID, 2951),
    (JSON, 199),
    (INT2, INT2VECTOR),
    (OID, OIDVECTOR),
];

/// Returns the type of the elements of an array type or vector, or `None` for other types.
pub fn element(array: Oid) -> Option<Oid> {
    ARRAYS.iter().find(|(_, of)| *of == array).map(|(element, _)| *element)
}

/// Returns the type of arrays of this type, or `None` if there is none.
pub fn array_of(element: Oid) -> Option<Oid> {
    ARRAYS.iter().find(|(of, _)| *of == element).map(|(_, array)| *array)
}

/// Returns whether the type is one of the two vectors.
pub fn is_vector(oid: Oid) -> bool {
    matches!(oid, INT2VECTOR | OIDVECTOR)
}

/// Returns the OID and type modifier that a client sees for a column of this type.
pub fn of_column(t: &ColumnType) -> (Oid, i32) {
    match *t {
        ColumnType::Bool => (BOOL, -1),
        ColumnType::Int2 => (INT2, -1),
        ColumnType::Int4 => (INT4, -1),
        ColumnType::Int8 => (INT8, -1),
        ColumnType::Float8 => (FLOAT8, -1),
        ColumnType::Numeric { precision } => (NUMERIC, numeric_typmod(precision)),
        ColumnType::Char(n) => (BPCHAR, n as i32 + 4),
        ColumnType::Varchar(n) => (VARCHAR, n.map_or(-1, |n| n as i32 + 4)),
        ColumnType::Text => (TEXT, -1),
        ColumnType::Bytea => (BYTEA, -1),
        ColumnType::Date => (DATE, -1),
        ColumnType::Timestamp => (TIMESTAMP, -1),
        ColumnType::TimestampTz => (TIMESTAMPTZ, -1),
        ColumnType::Float4 => (FLOAT4, -1),
        ColumnType::Time => (TIME, -1),
        ColumnType::Interval => (INTERVAL, -1),
        ColumnType::Uuid => (UUID, -1),
        ColumnType::Json => (JSON, -1),
        ColumnType::Oid => (OID, -1),
        ColumnType::Rounded(moment, digits) => {
            (of_column(&moment.unrounded()).0, moment_typmod(moment, digits))
        }
        ColumnType::Array(element) => {
            let (element, typmod) = of_column(element);
            (array_of(element).unwrap_or(TEXT), typmod)
        }
    }
}

/// Returns the type modifier of a type of time. The modifier of an interval also says which fields it has.
pub fn moment_typmod(moment: Moment, digits: u8) -> i32 {
    match moment {
        Moment::Interval => IntervalFields::of_code(digits).typmod(),
        _ => i32::from(digits),
    }
}

fn numeric_typmod(precision: Option<(u16, i16)>) -> i32 {
    precision.map_or(-1, |(p, s)| ((i32::from(p) << 16) | (i32::from(s) & 0x7ff)) + 4)
}

/// Returns the column type for values of the type `oid`, without modifier. Returns `None` for arrays, and if
/// Varve has no such type. `name`, `"char"` and `unknown` are text, and `oid` is bigint.
pub fn column_type(oid: Oid) -> Option<ColumnType> {
    Some(match oid {
        BOOL => ColumnType::Bool,
        BYTEA => ColumnType::Bytea,
        INT8 | OID | REGPROC | REGCLASS | REGTYPE | REGNAMESPACE | REGROLE => ColumnType::Int8,
        INT2 => ColumnType::Int2,
        INT4 => ColumnType::Int4,
        TEXT | NAME | CHAR | UNKNOWN => ColumnType::Text,
        FLOAT4 => ColumnType::Float4,
        FLOAT8 => ColumnType::Float8,
        BPCHAR | VARCHAR => ColumnType::Varchar(None),
        DATE => ColumnType::Date,
        TIMESTAMP => ColumnType::Timestamp,
        TIMESTAMPTZ => ColumnType::TimestampTz,
        NUMERIC => ColumnType::Numeric { precision: None },
        TIME => ColumnType::Time,
        INTERVAL => ColumnType::Interval,
        UUID => ColumnType::Uuid,
        JSON => ColumnType::Json,
        _ => return None,
    })
}

/// Returns whether values of this type are OIDs that are shown as names.
pub fn is_reg(oid: Oid) -> bool {
    matches!(oid, REGPROC | REGCLASS | REGTYPE | REGNAMESPACE | REGROLE)
}

/// Returns `pg_type.typlen`: the number of bytes if it is fixed, otherwise -1.
pub fn type_len(oid: Oid) -> i16 {
    match oid {
        BOOL | CHAR => 1,
        INT2 => 2,
        INT4 | FLOAT4 | DATE | OID | VOID => 4,
        REGPROC | REGCLASS | REGTYPE | REGNAMESPACE | REGROLE => 4,
        INT8 | FLOAT8 | TIMESTAMP | TIMESTAMPTZ | TIME => 8,
        INTERVAL | UUID => 16,
        NAME => 64,
        UNKNOWN => -2,
        _ => -1,
    }
}

/// The assumed size of a value of which nothing is known, in bytes.
pub const ASSUMED_BYTES: u32 = 32;

/// The average size of a value of this type that PostgreSQL assumes, in bytes (`get_typavgwidth`).
pub fn assumed_width(oid: Oid, typmod: i32) -> u32 {
    const LONG: u32 = 1000;
    if let fixed @ 1.. = type_len(oid) {
        return fixed.unsigned_abs().into();
    }
    // The modifier counts a header of 4 bytes. A character has up to 4 bytes.
    let bytes_max = u32::try_from(typmod - 4).map_or(LONG, |characters| characters.saturating_mul(4) + 4);
    match oid {
        BPCHAR if typmod >= 4 => bytes_max,
        VARCHAR if typmod >= 4 && bytes_max <= ASSUMED_BYTES => bytes_max,
        VARCHAR if typmod >= 4 => ASSUMED_BYTES + (bytes_max.min(LONG) - ASSUMED_BYTES) / 2,
        _ => ASSUMED_BYTES,
    }
}
