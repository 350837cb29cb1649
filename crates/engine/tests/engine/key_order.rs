//! Encoded keys sort like the values they encode.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cmp::Ordering;

use proptest::prelude::*;
use varve_engine::{Array, ColumnType, Datum, Interval, Numeric, Special, Value, key};

fn any_numeric() -> impl Strategy<Value = Numeric> {
    prop_oneof![
        1 => prop_oneof![Just(Special::NaN), Just(Special::Infinity), Just(Special::NegativeInfinity)]
            .prop_map(Numeric::special),
        8 => (any::<i64>(), 0u16..20).prop_map(|(digits, scale)| Numeric::from_unscaled(digits, scale)),
        8 => (-2000i64..2000, 0u16..4).prop_map(|(digits, scale)| Numeric::from_unscaled(digits, scale)),
        4 => "-?[0-9]{1,60}(\\.[0-9]{1,60})?".prop_map(|text| text.parse().unwrap()),
    ]
}

/// Some intervals are small. These are often equally long, as 30 days and a month are.
fn any_interval() -> impl Strategy<Value = Interval> {
    prop_oneof![
        (any::<i32>(), any::<i32>(), any::<i64>()),
        (-2i32..2, prop_oneof![Just(-30), Just(0), Just(30)], -1i64..1)
    ]
    .prop_map(|(months, days, micros)| Interval { months, days, micros })
}

fn any_value(column: ColumnType) -> BoxedStrategy<Value> {
    let some = match column {
        ColumnType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ColumnType::Int2 => any::<i16>().prop_map(Value::Int2).boxed(),
        ColumnType::Int4 => any::<i32>().prop_map(Value::Int4).boxed(),
        ColumnType::Int8 => any::<i64>().prop_map(Value::Int8).boxed(),
        ColumnType::Float8 => {
            prop_oneof![any::<f64>(), Just(0.0), Just(-0.0), Just(f64::NAN), Just(f64::INFINITY)]
                .prop_map(Value::Float8)
                .boxed()
        }
        ColumnType::Float4 => {
            prop_oneof![any::<f32>(), Just(0.0), Just(-0.0), Just(f32::NAN), Just(f32::INFINITY)]
                .prop_map(Value::Float4)
                .boxed()
        }
        ColumnType::Time => (0i64..=86_400_000_000).prop_map(Value::Time).boxed(),
        ColumnType::Interval => any_interval().prop_map(Value::Interval).boxed(),
        ColumnType::Uuid => {
            prop::array::uniform16(prop_oneof![Just(0u8), any::<u8>()]).prop_map(Value::Uuid).boxed()
        }
        ColumnType::Numeric { .. } => any_numeric().prop_map(Value::Numeric).boxed(),
        ColumnType::Bytea => prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..6)
            .prop_map(Value::Bytea)
            .boxed(),
        ColumnType::Date => any::<i32>().prop_map(Value::Date).boxed(),
        ColumnType::Array(element) => (prop::collection::vec(any_value(*element), 0..3), -1..4)
            .prop_map(move |(values, lower_bound)| {
                let mut array = Array::new(*element);
                values.iter().for_each(|value| array.push(value.as_datum()));
                Value::Array(array.starting_at(lower_bound))
            })
            .boxed(),
        ColumnType::Timestamp => any::<i64>().prop_map(Value::Timestamp).boxed(),
        ColumnType::TimestampTz => any::<i64>().prop_map(Value::TimestampTz).boxed(),
        _ => "[ab\u{1}ÿ]{0,5}".prop_map(Value::Text).boxed(),
    };
    prop_oneof![1 => Just(Value::Null), 12 => some].boxed()
}

fn any_column() -> impl Strategy<Value = ColumnType> {
    prop::sample::select(vec![
        ColumnType::Bool,
        ColumnType::Int2,
        ColumnType::Int4,
        ColumnType::Int8,
        ColumnType::Float8,
        ColumnType::Numeric { precision: None },
        ColumnType::Text,
        ColumnType::Bytea,
        ColumnType::Date,
        ColumnType::Timestamp,
        ColumnType::TimestampTz,
        ColumnType::Float4,
        ColumnType::Time,
        ColumnType::Interval,
        ColumnType::Uuid,
        ColumnType::Json,
        ColumnType::Array(&ColumnType::Int2),
        ColumnType::Array(&ColumnType::Text),
    ])
}

fn encode(columns: &[ColumnType], values: &[Value]) -> Vec<u8> {
    let data: Vec<Datum<'_>> = values.iter().map(Value::as_datum).collect();
    let mut out = Vec::new();
    key::push_all(&mut out, columns, &data);
    out
}

fn order(a: &[Value], b: &[Value]) -> Ordering {
    let pairs = a.iter().zip(b).map(|(a, b)| a.as_datum().order(&b.as_datum()));
    pairs.fold(Ordering::Equal, Ordering::then)
}

fn columns_and_rows() -> impl Strategy<Value = (Vec<ColumnType>, Vec<Value>, Vec<Value>)> {
    prop::collection::vec(any_column(), 1..4).prop_flat_map(|columns| {
        let row = columns.iter().map(|c| any_value(*c)).collect::<Vec<_>>();
        (Just(columns), row.clone(), row)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn bytes_sort_like_values((columns, a, b) in columns_and_rows()) {
        prop_assert_eq!(encode(&columns, &a).cmp(&encode(&columns, &b)), order(&a, &b), "{:?} {:?}", a, b);
    }

    #[test]
    fn prefix_end_is_above_all_extensions((columns, a, b) in columns_and_rows()) {
        let mut bound = encode(&columns, &a);
        let longer = [bound.clone(), encode(&columns, &b)].concat();
        key::prefix_end(&mut bound);
        prop_assert!(longer < bound);
        let next = encode(&columns, &b);
        if order(&a, &b) == Ordering::Less {
            prop_assert!(bound < next);
        }
    }
}

#[test]
fn integers_of_all_widths_have_one_form() {
    let small = encode(&[ColumnType::Int2], &[Value::Int2(-7)]);
    assert_eq!(small, encode(&[ColumnType::Int8], &[Value::Int8(-7)]));
    assert_eq!(small, encode(&[ColumnType::Int4], &[Value::Int4(-7)]));
}

#[test]
fn scale_and_trailing_blanks_do_not_count() {
    let numeric = ColumnType::Numeric { precision: None };
    let key_of = |text: &str| encode(&[numeric], &[Value::Numeric(text.parse().unwrap())]);
    assert_eq!(key_of("1.10"), key_of("1.1"));
    assert_eq!(key_of("-0.00"), key_of("0"));
    let padded = encode(&[ColumnType::Char(4)], &[Value::Text("ab  ".into())]);
    assert_eq!(padded, encode(&[ColumnType::Char(4)], &[Value::Text("ab".into())]));
}

/// A search for one such array does not find the other. An array that begins at 1 has the same key as before
/// arrays had a first subscript.
#[test]
fn arrays_that_differ_in_their_first_subscript_have_keys_apart() {
    let array = |lower_bound| {
        let mut array = Array::new(ColumnType::Int4);
        array.push(Datum::Int4(1));
        encode(&[ColumnType::Text], &[Value::Array(array.starting_at(lower_bound))])
    };
    let plain = [1, 1, 0x80, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(array(1), plain);
    assert_eq!(array(5), [&plain[..], &[4, 0x80, 0, 0, 5]].concat());
    for (low, high) in [(1, 0), (0, 2), (-1, 0)] {
        let mut end = array(low);
        key::prefix_end(&mut end);
        assert!(array(low) < end && end < array(high), "{low} {high}");
    }
}

/// The layout of the table in `key.rs`; stored indexes depend on it.
#[test]
fn layout_snapshot() {
    let cases: [(Value, &[u8]); 13] = [
        (Value::Null, &[2]),
        (Value::Bool(true), &[1, 1]),
        (Value::Int4(1), &[1, 0x80, 0, 0, 0, 0, 0, 0, 1]),
        (Value::Date(-1), &[1, 0x7F, 0xFF, 0xFF, 0xFF]),
        (Value::Float8(-1.0), &[1, 0x40, 0x0F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]),
        (Value::Bytea(vec![7, 0]), &[1, 7, 0, 0xFF, 0, 0]),
        (Value::Numeric("12.5".parse().unwrap()), &[1, 0xC0, 0x80, 0, 0, 2, 13, 51, 0]),
        (Value::Numeric("-12.5".parse().unwrap()), &[1, 0x40, 0x7F, 0xFF, 0xFF, 0xFD, 242, 204, 0xFF]),
        (Value::Text("a".into()), &[1, b'a', 0, 0]),
        (Value::Float4(-1.0), &[1, 0x40, 0x7F, 0xFF, 0xFF]),
        (Value::Time(1), &[1, 0x80, 0, 0, 0, 0, 0, 0, 1]),
        (
            Value::Interval(Interval { months: 0, days: 0, micros: -1 }),
            &[1, 0x7F, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255],
        ),
        (Value::Uuid([9; 16]), &[1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]),
    ];
    for (value, expected) in cases {
        assert_eq!(encode(&[ColumnType::Text], std::slice::from_ref(&value)), expected, "{value:?}");
    }
}

#[test]
fn arrays_sort_by_their_elements_then_by_their_length() {
    let array = |elements: &[Option<i32>]| {
        let mut array = Array::new(ColumnType::Int4);
        elements.iter().for_each(|e| array.push(e.map_or(Datum::Null, Datum::Int4)));
        Value::Array(array)
    };
    let sorted = [&[][..], &[Some(-1), None], &[Some(3)], &[Some(3), Some(1)], &[Some(3), None], &[None]];
    let values: Vec<Value> = sorted.iter().map(|elements| array(elements)).collect();
    for pair in values.windows(2) {
        let (low, high) = (&pair[0..1], &pair[1..2]);
        assert_eq!(order(low, high), Ordering::Less, "{pair:?}");
        assert!(encode(&[ColumnType::Text], low) < encode(&[ColumnType::Text], high), "{pair:?}");
    }
}
