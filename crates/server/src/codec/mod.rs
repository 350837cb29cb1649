//! Decodes the parameters in a client's messages, and encodes the result columns that are sent to the client.
//! A value is in text or in binary format. `varve_sql::{text, binary}` convert the values of each type.
//!
//! Invariants
//! 1. An error in a parameter's value names the number of the parameter.

#[cfg(test)]
mod round_trip;

use std::borrow::Cow;

use varve_engine::{ColumnType, Datum, Value};
use varve_sql::binary::encoded;
use varve_sql::encoding::Encoding;
use varve_sql::oid::{self, Oid};
use varve_sql::{Reading, SqlError, SqlState, TimeForms, binary, text};

use crate::error::WireError;
use crate::message::Format;

/// The type as which a parameter is read.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Its type for the client.
    pub oid: Oid,
    /// Its type for the engine.
    pub column_type: ColumnType,
    /// The session's settings for reading times.
    pub reading: Reading<'a>,
}

/// Reads one parameter. `number` is its number from 1, for the error.
pub fn read(
    raw: Option<&[u8]>,
    format: Format,
    wanted: Wanted<'_>,
    number: usize,
) -> Result<Value, WireError> {
    let Wanted { oid, column_type, reading } = wanted;
    match (raw, format) {
        (None, _) => Ok(Value::Null),
        (Some(raw), Format::Text) => Ok(text::parse_as(binary::utf8(raw)?, oid, &reading)?),
        (Some(raw), Format::Binary) => {
            Ok(binary::read(raw, oid, column_type).map_err(|e| in_parameter(e, number))?)
        }
    }
}

/// Returns a value that the client sent, with its text in UTF-8.
#[inline]
pub fn in_utf8(raw: &[u8], format: Format, oid: Oid, encoding: Encoding) -> Result<Cow<'_, [u8]>, WireError> {
    match format {
        _ if !encoding.converts() => Ok(Cow::Borrowed(raw)),
        Format::Text => Ok(encoding.to_utf8(raw)?),
        Format::Binary => Ok(encoded::to_utf8(raw, oid, encoding)?),
    }
}

/// Converts a value that was written from `start` on to the client's encoding.
pub fn encode(
    out: &mut Vec<u8>,
    start: usize,
    format: Format,
    oid: Oid,
    encoding: Encoding,
) -> Result<(), WireError> {
    let converted = match format {
        Format::Text => encoding.of_utf8(binary::utf8(&out[start..])?)?,
        Format::Binary => encoded::of_utf8(&out[start..], oid, encoding)?,
    };
    if let Cow::Owned(converted) = converted {
        out.truncate(start);
        out.extend_from_slice(&converted);
    }
    Ok(())
}

fn in_parameter(e: SqlError, number: usize) -> SqlError {
    match e.sqlstate {
        SqlState::BAD_BINARY => {
            SqlError { message: format!("{} in bind parameter {number}", e.message).into_boxed_str(), ..e }
        }
        _ => e,
    }
}

/// Appends the bytes of a value that is not NULL, without its length. `forms` are the session's output
/// settings.
#[inline]
pub fn write(
    datum: Datum<'_>,
    format: Format,
    oid: Oid,
    forms: &TimeForms,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    match (format, datum) {
        (_, Datum::Text(text)) if oid != oid::CHAR => out.extend_from_slice(text.as_bytes()),
        (Format::Text, datum) => text::write_with(datum, forms, out),
        (Format::Binary, datum) => binary::write(datum, oid, out)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_sql::Zone;
    use varve_sql::time::PLAIN;

    fn round_trip(value: Value, oid: Oid) {
        let Some(column_type) = oid::column_type(oid) else { panic!("{oid} has no column type") };
        let wanted = Wanted { oid, column_type, reading: Reading::plain() };
        let mut raw = Vec::new();
        write(value.as_datum(), Format::Binary, oid, &PLAIN, &mut raw).unwrap();
        let back = read(Some(&raw), Format::Binary, wanted, 1).unwrap();
        assert!(back.as_datum().order(&value.as_datum()).is_eq(), "{value:?} became {back:?}");
        raw.push(0);
        if !matches!(value, Value::Text(_) | Value::Bytea(_)) {
            let error = read(Some(&raw), Format::Binary, wanted, 3).unwrap_err();
            assert_eq!(error.message, "incorrect binary data format in bind parameter 3");
        }
    }

    #[test]
    fn binary_values_come_back() {
        round_trip(Value::Bool(true), oid::BOOL);
        round_trip(Value::Int2(-2), oid::INT2);
        round_trip(Value::Int4(i32::MIN), oid::INT4);
        round_trip(Value::Int8(i64::MAX), oid::INT8);
        round_trip(Value::Float8(-0.1), oid::FLOAT8);
        round_trip(Value::Numeric("-1.50".parse().unwrap()), oid::NUMERIC);
        round_trip(Value::Text("gr\u{fc}n".into()), oid::TEXT);
        round_trip(Value::Text("abc".into()), oid::VARCHAR);
        round_trip(Value::Bytea(vec![0, 255, 1]), oid::BYTEA);
        round_trip(Value::Date(-1), oid::DATE);
        round_trip(Value::Timestamp(86_400_000_000), oid::TIMESTAMP);
        round_trip(Value::TimestampTz(-1), oid::TIMESTAMPTZ);
    }

    #[test]
    fn text_times_are_in_the_zone_of_the_session() {
        let east = TimeForms::of_zone(Zone::Fixed(7200));
        let wanted = Wanted {
            oid: oid::TIMESTAMPTZ,
            column_type: ColumnType::TimestampTz,
            reading: Reading::of(&east),
        };
        let value = read(Some(b"2000-01-01 02:00:00"), Format::Text, wanted, 1).unwrap();
        assert!(matches!(value, Value::TimestampTz(0)), "{value:?}");
        let mut raw = Vec::new();
        write(value.as_datum(), Format::Text, oid::TIMESTAMPTZ, &east, &mut raw).unwrap();
        assert_eq!(raw.escape_ascii().to_string(), "2000-01-01 02:00:00+02");
    }

    /// The expected bytes are those of PostgreSQL 15, by `select interval_send(...)`, `array_send(...)` and
    /// similar queries.
    #[test]
    fn binary_forms_are_those_of_postgresql() {
        for (text, oid, expected) in [
            ("1 year 2 mons -3 days +04:05:06.7", oid::INTERVAL, "000000036c966ee0fffffffd0000000e"),
            ("04:05:06.7", oid::TIME, "000000036c966ee0"),
            ("1.5", oid::FLOAT4, "3fc00000"),
            ("4294967295", oid::OID, "ffffffff"),
            ("r", oid::CHAR, "72"),
            ("", oid::CHAR, "00"),
            ("{\"a\": 1}", oid::JSON, "7b2261223a20317d"),
            ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", oid::UUID, "a0eebc999c0b4ef8bb6d6bb9bd380a11"),
            (
                "{1,NULL,3}",
                1007,
                "00000001000000010000001700000003000000010000000400000001ffffffff0000000400000003",
            ),
            ("{}", 1009, "000000000000000000000019"),
            ("{a,\"b c\"}", 1009, "00000001000000000000001900000002000000010000000161000000036220 63"),
            ("1 2", oid::INT2VECTOR, "00000001000000000000001500000002000000000000000200010000000 20002"),
            ("7", oid::OIDVECTOR, "00000001000000000000001a00000001000000000000000400000007"),
        ] {
            let column_type = oid::column_type(oid).unwrap_or(ColumnType::Text);
            let wanted = Wanted { oid, column_type, reading: Reading::plain() };
            let value = read(Some(text.as_bytes()), Format::Text, wanted, 1).unwrap();
            let mut raw = Vec::new();
            write(value.as_datum(), Format::Binary, oid, &PLAIN, &mut raw).unwrap();
            let hex: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, expected.replace(' ', ""), "{text}");
            let back = read(Some(&raw), Format::Binary, wanted, 1).unwrap();
            assert!(back.as_datum().order(&value.as_datum()).is_eq(), "{text}: {back:?}");
            let mut shown = Vec::new();
            write(back.as_datum(), Format::Text, oid, &PLAIN, &mut shown).unwrap();
            assert_eq!(String::from_utf8_lossy(&shown), text);
        }
    }

    #[test]
    fn binary_arrays_are_checked() {
        let wanted = Wanted { oid: 1007, column_type: ColumnType::Text, reading: Reading::plain() };
        let array = |words: &[i32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_be_bytes()).collect() };
        for (words, state) in [
            (&[1, 0, 23, 1, 1, 4, 9, 0][..], "22P03"),
            (&[1, 0, 23, 2, 1, 4, 9], "22P03"),
            (&[1, 0, 23, i32::MAX, 1], "22P03"),
            (&[1, 0, 23, -1, 1], "22P03"),
            (&[1, 0, 23, 1, 1, -2], "22P03"),
            (&[1, 0, 25, 0, 1], "42804"),
            (&[2, 0, 23, 1, 1, 1, 1, 4, 9], "0A000"),
            (&[], "22P03"),
        ] {
            let error = read(Some(&array(words)), Format::Binary, wanted, 1).unwrap_err();
            assert_eq!(error.sqlstate, state, "{words:?}");
        }
    }

    /// An earlier version refused setFloat of drivers: "parameter $1 of the type with OID 700 is not
    /// supported".
    #[test]
    fn a_float4_is_read_in_both_formats() {
        let wanted = Wanted { oid: oid::FLOAT4, column_type: ColumnType::Float4, reading: Reading::plain() };
        for (raw, format) in [(&b"0.1"[..], Format::Text), (&0.1_f32.to_be_bytes(), Format::Binary)] {
            let value = read(Some(raw), format, wanted, 1).unwrap();
            assert!(matches!(value, Value::Float4(0.1)), "{value:?}");
        }
        for (raw, state) in [(&b"1e39"[..], "22003"), (b"1e-60", "22003"), (b"a", "22P02")] {
            assert_eq!(read(Some(raw), Format::Text, wanted, 1).unwrap_err().sqlstate, state);
        }
        assert!(read(Some(&[0; 8]), Format::Binary, wanted, 1).is_err());
    }

    /// An earlier version stored a zero byte, COPY TO wrote it, and COPY FROM refused it.
    #[test]
    fn a_zero_in_a_text_is_refused_in_both_formats() {
        for oid in [oid::TEXT, oid::VARCHAR, oid::JSON, oid::INT4, 1009] {
            let column_type = oid::column_type(oid).unwrap_or(ColumnType::Text);
            let wanted = Wanted { oid, column_type, reading: Reading::plain() };
            let error = read(Some(b"a\0b"), Format::Text, wanted, 1).unwrap_err();
            assert_eq!(error.sqlstate, "22021", "{oid}");
            assert_eq!(error.message, "invalid byte sequence for encoding \"UTF8\": 0x00");
        }
        let wanted = Wanted { oid: oid::TEXT, column_type: ColumnType::Text, reading: Reading::plain() };
        assert_eq!(read(Some(b"a\0b"), Format::Binary, wanted, 1).unwrap_err().sqlstate, "22021");
    }

    #[test]
    fn integers_take_the_width_of_their_column() {
        let mut raw = Vec::new();
        write(Datum::Int4(7), Format::Binary, oid::INT8, &PLAIN, &mut raw).unwrap();
        assert_eq!(raw, 7_i64.to_be_bytes());
        let error = write(Datum::Int8(1 << 40), Format::Binary, oid::INT4, &PLAIN, &mut raw).unwrap_err();
        assert_eq!(error.sqlstate, "22003");
    }
}
