//! Tests that random values of every type are the same after they were encoded as text and in binary, and
//! decoded.

use proptest::prelude::*;
use varve_engine::{Array, ColumnType, Interval, Numeric, Value};
use varve_sql::oid::{self, Oid};
use varve_sql::{Reading, TimeForms, Zone};

use super::{Wanted, read, write};
use crate::message::Format;

/// Makes dates from 4713-11-24 BC to 5874897-12-31, and the infinities.
fn date() -> impl Strategy<Value = i32> {
    prop_oneof![Just(i32::MIN), Just(i32::MAX), -2_451_545..=2_145_031_948, -40_000..40_000]
}

/// Makes timestamps from 4713-11-24 BC to 294276-12-31, and the infinities.
fn moment() -> impl Strategy<Value = i64> {
    let ends = (-211_813_488_000_000_000_i64, 9_223_371_331_199_999_999_i64);
    prop_oneof![Just(i64::MIN), Just(i64::MAX), ends.0..=ends.1, -(1_i64 << 51)..(1 << 51)]
}

fn numeric() -> impl Strategy<Value = Numeric> {
    let text = prop_oneof![
        "-?[0-9]{1,60}(\\.[0-9]{1,60})?",
        "-?[0-9]{1,5}e-?[0-9]{1,3}",
        Just("NaN".to_owned()),
        Just("1e131071".to_owned()),
        Just("-1e-16383".to_owned()),
    ];
    text.prop_map(|text| text.parse().expect("a numeric"))
}

fn interval() -> impl Strategy<Value = Interval> {
    (any::<i32>(), any::<i32>(), -(1_i64 << 52)..(1 << 52)).prop_map(|(months, days, micros)| Interval {
        months,
        days,
        micros,
    })
}

fn list(element: ColumnType, values: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let values = prop::collection::vec(prop_oneof![1 => Just(Value::Null), 5 => values], 0..5);
    (values, -1..4).prop_map(move |(values, lower_bound)| {
        let mut array = Array::new(element);
        values.iter().for_each(|value| array.push(value.as_datum()));
        Value::Array(array.starting_at(lower_bound))
    })
}

fn value() -> impl Strategy<Value = (Value, Oid, ColumnType)> {
    let text = "[^\0]{0,40}";
    prop_oneof![
        any::<bool>().prop_map(|v| (Value::Bool(v), oid::BOOL, ColumnType::Bool)),
        any::<i16>().prop_map(|v| (Value::Int2(v), oid::INT2, ColumnType::Int2)),
        any::<i32>().prop_map(|v| (Value::Int4(v), oid::INT4, ColumnType::Int4)),
        any::<i64>().prop_map(|v| (Value::Int8(v), oid::INT8, ColumnType::Int8)),
        any::<u64>().prop_map(|v| (Value::Float8(f64::from_bits(v)), oid::FLOAT8, ColumnType::Float8)),
        (-1e6..1e6).prop_map(|v| (Value::Float8(v), oid::FLOAT8, ColumnType::Float8)),
        numeric().prop_map(|v| (Value::Numeric(v), oid::NUMERIC, ColumnType::Numeric { precision: None })),
        text.prop_map(|v| (Value::Text(v), oid::TEXT, ColumnType::Text)),
        text.prop_map(|v| (Value::Text(v), oid::VARCHAR, ColumnType::Varchar(None))),
        any::<Vec<u8>>().prop_map(|v| (Value::Bytea(v), oid::BYTEA, ColumnType::Bytea)),
        date().prop_map(|v| (Value::Date(v), oid::DATE, ColumnType::Date)),
        moment().prop_map(|v| (Value::Timestamp(v), oid::TIMESTAMP, ColumnType::Timestamp)),
        moment().prop_map(|v| (Value::TimestampTz(v), oid::TIMESTAMPTZ, ColumnType::TimestampTz)),
        any::<u32>().prop_map(|v| (Value::Float4(f32::from_bits(v)), oid::FLOAT4, ColumnType::Float4)),
        (-1e6_f32..1e6).prop_map(|v| (Value::Float4(v), oid::FLOAT4, ColumnType::Float4)),
        (0..=86_400_000_000_i64).prop_map(|v| (Value::Time(v), oid::TIME, ColumnType::Time)),
        any::<[u8; 16]>().prop_map(|v| (Value::Uuid(v), oid::UUID, ColumnType::Uuid)),
        interval().prop_map(|v| (Value::Interval(v), oid::INTERVAL, ColumnType::Interval)),
        any::<u32>().prop_map(|v| (Value::Int8(i64::from(v)), oid::OID, ColumnType::Int8)),
        list(ColumnType::Int4, any::<i32>().prop_map(Value::Int4)).prop_map(|v| (v, 1007, ColumnType::Text)),
        list(ColumnType::Text, text.prop_map(Value::Text)).prop_map(|v| (v, 1009, ColumnType::Text)),
        list(ColumnType::TimestampTz, moment().prop_map(Value::TimestampTz)).prop_map(|v| (
            v,
            1185,
            ColumnType::Text
        )),
    ]
}

fn zone() -> impl Strategy<Value = Zone> {
    prop_oneof![
        Just("UTC"),
        Just("Europe/Berlin"),
        Just("America/St_Johns"),
        Just("Asia/Kolkata"),
        Just("Pacific/Apia"),
        Just("-3.5"),
    ]
    .prop_map(|name| Zone::of_setting(name).expect("no interval").expect("a known zone").0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_value_comes_back((value, oid, column_type) in value(), zone in zone()) {
        let forms = TimeForms::of_zone(zone);
        for format in [Format::Text, Format::Binary] {
            let mut raw = Vec::new();
            write(value.as_datum(), format, oid, &forms, &mut raw).expect("a value has both forms");
            let wanted = Wanted { oid, column_type, reading: Reading::of(&forms) };
            let back = read(Some(&raw), format, wanted, 1);
            let back = back.unwrap_or_else(|e| panic!("{value:?} as {}: {e:?}", raw.escape_ascii()));
            prop_assert!(
                back.as_datum().order(&value.as_datum()).is_eq(),
                "{:?} became {:?} by {}", value, back, raw.escape_ascii()
            );
        }
    }
}
