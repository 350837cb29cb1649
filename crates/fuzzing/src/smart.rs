//! Fuzzes the messages between a host and a smart device, and scan programs.
//!
//! The input of `smart_protocol` is a message. The input of `smart_program` has these fields, in this order:
//!
//! | field | bytes |
//! |---|---|
//! | the program: its length, and JSON | 2 + n |
//! | for each row, to the end, for each column: 0 for NULL, or the length of the stored value + 1, and the value | 1 + n |

use std::collections::BTreeSet;

use varve_engine::{Datum, RowImage, RowRef};
use varve_smart::{Answer, Evaluator, LeafReader, Program, Request, RowSource, decode};

use crate::input::Input;

/// The most rows of an input.
const ROWS_MAX: usize = 64;
/// The memory for groups.
const GROUP_BYTES: usize = 1 << 20;

/// Checks that a message is refused, or is the same after decoding and encoding.
pub fn smart_protocol(bytes: &[u8]) {
    if let Ok(request) = Request::decode(bytes) {
        let again = request.encode().expect("a request that was read");
        assert_eq!(Request::decode(&again).expect("an encoded request"), request);
    }
    if let Ok(answer) = Answer::decode(bytes) {
        assert_eq!(Answer::decode(&answer.encode()).expect("an encoded answer"), answer);
    }
}

/// Checks that a program is refused, or has the same result for all rows together and for the rows in parts.
pub fn smart_program(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let length = usize::from(input.u16());
    let Ok(Request::Open(open)) = Request::decode(&opening(input.bytes(length))) else { return };
    let program = open.program;
    if program.check().is_err() {
        return;
    }
    let reader = LeafReader::new(&program);
    let images = rows(&program, &reader, &mut input);
    let sources: Vec<RowSource<'_>> = images
        .iter()
        .map(|image| RowSource::Whole(RowRef::checked(reader.schema(), image).expect("an encoded row")))
        .collect();
    let whole = outcome(&program, &[&sources]);
    let middle = sources.len() / 2;
    let halves = outcome(&program, &[&sources[..middle], &sources[middle..]]);
    let single: Vec<&[RowSource<'_>]> = sources.chunks(1).collect();
    let single = outcome(&program, &single);
    if let (Some(whole), Some(halves), Some(single)) = (whole, halves, single) {
        assert_eq!(whole, halves);
        assert_eq!(whole, single);
    }
}

/// Returns a request that opens a scan with this program.
fn opening(program: &[u8]) -> Vec<u8> {
    let length = (program.len() as u32).to_le_bytes();
    [&[1][..], &[0; 32], &[0; 4], &length, program, &[0; 4]].concat()
}

fn rows(program: &Program, reader: &LeafReader, input: &mut Input<'_>) -> Vec<Vec<u8>> {
    let mut images = Vec::new();
    while !input.is_empty() && images.len() < ROWS_MAX {
        let mut value = |kind: &_| match input.byte() {
            0 => Datum::Null,
            length => decode(*kind, input.bytes(usize::from(length) - 1)).unwrap_or(Datum::Null),
        };
        let values: Vec<Datum<'_>> = program.columns.iter().map(&mut value).collect();
        if let Ok(image) = RowImage::encode(reader.schema(), &values) {
            images.push(image.as_bytes().to_vec());
        }
    }
    images
}

/// Returns the rows or the states of groups, after the parts were merged. Returns `None` if the program
/// fails, or if a value can't be compared.
fn outcome(program: &Program, parts: &[&[RowSource<'_>]]) -> Option<(usize, BTreeSet<String>)> {
    let mut merged = Evaluator::new(program, GROUP_BYTES).ok()?;
    let (mut count, mut shown) = (0, BTreeSet::new());
    let mut has_groups = false;
    for part in parts {
        let mut evaluator = Evaluator::new(program, GROUP_BYTES).ok()?;
        if !evaluator.push(part) {
            return None;
        }
        if let Some(batch) = evaluator.evaluate().ok()? {
            count += batch.num_rows();
            shown.extend((0..batch.num_rows()).map(|row| format!("{:?}", batch.slice(row, 1).columns())));
        }
        if let Some(states) = evaluator.finish().ok()? {
            has_groups = true;
            merged.merge(&states).ok()?;
        }
    }
    if let Some(states) = merged.finish().ok()?.filter(|_| has_groups) {
        count += states.num_rows();
        shown.extend((0..states.num_rows()).map(|row| format!("{:?}", states.slice(row, 1).columns())));
    }
    Some((count, shown))
}
