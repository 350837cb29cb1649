//! A row that was encoded is decoded to the same values. Damaged bytes are recognized.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use varve_engine::{
    Array, ColumnType, Datum, Interval, Moment, Numeric, RowError, RowImage, RowRef, RowSchema, Value,
};

const ALL: [ColumnType; 23] = [
    ColumnType::Bool,
    ColumnType::Text,
    ColumnType::Int2,
    ColumnType::Int4,
    ColumnType::Numeric { precision: Some((10, 2)) },
    ColumnType::Int8,
    ColumnType::Float8,
    ColumnType::Char(4),
    ColumnType::Varchar(None),
    ColumnType::Bytea,
    ColumnType::Date,
    ColumnType::Timestamp,
    ColumnType::TimestampTz,
    ColumnType::Float4,
    ColumnType::Time,
    ColumnType::Interval,
    ColumnType::Uuid,
    ColumnType::Json,
    ColumnType::Oid,
    ColumnType::Rounded(Moment::Time, 3),
    ColumnType::Rounded(Moment::Interval, 0),
    ColumnType::Array(&ColumnType::Int4),
    ColumnType::Array(&ColumnType::Json),
];

fn value_of(column: ColumnType) -> BoxedStrategy<Value> {
    let some = match column {
        ColumnType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ColumnType::Int2 => any::<i16>().prop_map(Value::Int2).boxed(),
        ColumnType::Int4 => any::<i32>().prop_map(Value::Int4).boxed(),
        ColumnType::Int8 => any::<i64>().prop_map(Value::Int8).boxed(),
        ColumnType::Float8 => any::<f64>().prop_map(Value::Float8).boxed(),
        ColumnType::Float4 => any::<f32>().prop_map(Value::Float4).boxed(),
        ColumnType::Time => any::<i64>().prop_map(Value::Time).boxed(),
        ColumnType::Interval => (any::<i32>(), any::<i32>(), any::<i64>())
            .prop_map(|(months, days, micros)| Value::Interval(Interval { months, days, micros }))
            .boxed(),
        ColumnType::Uuid => any::<[u8; 16]>().prop_map(Value::Uuid).boxed(),
        ColumnType::Oid => any::<u32>().prop_map(|oid| Value::Int8(i64::from(oid))).boxed(),
        ColumnType::Rounded(moment, _) => value_of(moment.unrounded()),
        ColumnType::Array(element) => (prop::collection::vec(value_of(*element), 0..4), -1..4)
            .prop_map(move |(values, lower_bound)| {
                let mut array = Array::new(*element);
                values.iter().for_each(|value| array.push(value.as_datum()));
                Value::Array(array.starting_at(lower_bound))
            })
            .boxed(),
        ColumnType::Numeric { .. } => (any::<i64>(), 0u16..9)
            .prop_map(|(digits, scale)| Value::Numeric(Numeric::from_unscaled(digits, scale)))
            .boxed(),
        ColumnType::Bytea => prop::collection::vec(any::<u8>(), 0..300).prop_map(Value::Bytea).boxed(),
        ColumnType::Date => any::<i32>().prop_map(Value::Date).boxed(),
        ColumnType::Timestamp => any::<i64>().prop_map(Value::Timestamp).boxed(),
        ColumnType::TimestampTz => any::<i64>().prop_map(Value::TimestampTz).boxed(),
        _ => ".{0,40}".prop_map(Value::Text).boxed(),
    };
    prop_oneof![1 => Just(Value::Null), 4 => some].boxed()
}

fn rows() -> impl Strategy<Value = (Vec<ColumnType>, Vec<Value>)> {
    prop::collection::vec(prop::sample::select(ALL.to_vec()), 0..20).prop_flat_map(|columns| {
        let values = columns.iter().map(|c| value_of(*c)).collect::<Vec<_>>();
        (Just(columns), values)
    })
}

fn assert_same(a: &Datum<'_>, b: &Datum<'_>) {
    assert_eq!(format!("{a:?}"), format!("{b:?}"));
}

fn encode(schema: &RowSchema, values: &[Value]) -> RowImage {
    let data: Vec<Datum<'_>> = values.iter().map(Value::as_datum).collect();
    RowImage::encode(schema, &data).unwrap()
}

proptest! {
    #[test]
    fn what_goes_in_comes_out((columns, values) in rows()) {
        let schema = RowSchema::new(&columns);
        let image = encode(&schema, &values);
        let row = image.as_row(&schema);
        prop_assert_eq!(row.check(), Ok(()));
        for (index, value) in values.iter().enumerate() {
            assert_same(&row.get(index), &value.as_datum());
        }
        prop_assert_eq!(&image, &encode(&schema, &values));
    }

    #[test]
    fn check_never_panics(
        (columns, values) in rows(),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
        cut in any::<prop::sample::Index>(),
    ) {
        let schema = RowSchema::new(&columns);
        let mut bytes = encode(&schema, &values).as_bytes().to_vec();
        let at = at.index(bytes.len());
        if at > 0 {
            bytes[at] ^= flip;
        }
        let _ = RowRef::new(&schema, &bytes).check();
        bytes.truncate(cut.index(bytes.len()).max(1));
        let _ = RowRef::new(&schema, &bytes).check();
    }
}

#[test]
fn rows_up_to_the_limit_are_wide() {
    let schema = RowSchema::new(&[ColumnType::Bytea, ColumnType::Int4, ColumnType::Text]);
    let big = vec![7; (16 << 20) - 100];
    let data = [Datum::Bytea(&big), Datum::Int4(5), Datum::Text("end")];
    let image = RowImage::encode(&schema, &data).unwrap();
    let row = image.as_row(&schema);
    for (index, datum) in data.iter().enumerate() {
        assert_eq!(row.get(index).order(datum), std::cmp::Ordering::Equal);
    }
    let too_big = vec![7; 16 << 20];
    let error = RowImage::encode(&schema, &[Datum::Bytea(&too_big), Datum::Null, Datum::Null]).unwrap_err();
    assert!(matches!(error, RowError::TooLarge { bytes } if bytes > 16 << 20));
}

/// The layout of the table in `row.rs`; stored tables depend on it.
#[test]
fn layout_snapshot() {
    let schema = RowSchema::new(&[ColumnType::Int4, ColumnType::Text, ColumnType::Int2, ColumnType::Bytea]);
    let image =
        RowImage::encode(&schema, &[Datum::Int4(1), Datum::Text("ab"), Datum::Null, Datum::Bytea(&[9])]);
    assert_eq!(image.unwrap().as_bytes(), [1, 0b0100, 1, 0, 0, 0, 0, 0, 14, 0, 15, 0, b'a', b'b', 9]);
}

#[test]
fn bytes_that_are_no_row_are_refused() {
    let schema = RowSchema::new(&[ColumnType::Numeric { precision: None }]);
    let row = RowImage::encode(&schema, &[Datum::Null]).unwrap();
    assert!(RowRef::checked(&schema, row.as_bytes()).is_ok());
    let mut of_nothing = row.as_bytes().to_vec();
    of_nothing[1] = 0;
    let mut stored_outside = row.as_bytes().to_vec();
    stored_outside[0] |= 0x20;
    for bytes in [&[][..], &[0; 12], &row.as_bytes()[..3], &of_nothing, &stored_outside] {
        assert!(matches!(RowRef::checked(&schema, bytes), Err(RowError::Damaged { .. })), "{bytes:?}");
    }
}
