//! Gives the fuzz tests in `crates/fuzzing` access to private decoders of this crate. It is built only with
//! the feature `fuzzing`.

use std::io::Read;

use varve_engine::{ColumnType, Datum, Value};
use varve_sql::Reading;
use varve_sql::oid::Oid;
use varve_sql::time::PLAIN;

use crate::codec::{self, Wanted};
use crate::error::WireError;
use crate::frame::FrameReader;
use crate::message::Format;
use crate::out::Out;
use crate::startup;

/// Reads the opening of a connection. Returns the answer, and whether the connection continues.
pub fn startup<R: Read>(source: R) -> (Vec<u8>, bool) {
    let mut answered = Vec::new();
    let mut out = Out::new(&mut answered);
    let opened = startup::open(&mut FrameReader::new(source), &mut out, None).is_ok();
    // Writing to a Vec does not fail.
    let _ = out.flush();
    drop(out);
    (answered, opened)
}

/// Reads one binary parameter.
pub fn read_binary(raw: &[u8], oid: Oid, column_type: ColumnType) -> Result<Value, WireError> {
    codec::read(Some(raw), Format::Binary, Wanted { oid, column_type, reading: Reading::plain() }, 1)
}

/// Appends a value in its binary form.
pub fn write_binary(datum: Datum<'_>, oid: Oid, out: &mut Vec<u8>) -> Result<(), WireError> {
    codec::write(datum, Format::Binary, oid, &PLAIN, out)
}
