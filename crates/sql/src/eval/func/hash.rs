//! The condition that a row is in a partition of a table with PARTITION BY HASH.
//!
//! This module does not know tables, or how a key is hashed (`varve_engine::key_hash`).

use varve_engine::{Datum, key_hash};

use super::{Builtin, Run};
use crate::error::{Result, SqlError};
use crate::eval::Cx;
use crate::ty::Ty;

/// Whether a row is in a part. The arguments are modulus, remainder, then the partition key. Only conditions
/// that the binder makes call this function.
pub static IN_PART: Builtin = Builtin {
    name: "in hash part",
    arguments: &[Ty::Int8, Ty::Int8, Ty::Unknown],
    variadic: true,
    result: Ty::Bool,
    strict: false,
    volatile: false,
    world: false,
    run: in_part as Run,
};

fn in_part<'a>(arguments: &[Datum<'a>], _: &Cx<'a>) -> Result<Datum<'a>> {
    let [Datum::Int8(modulus), Datum::Int8(remainder), key @ ..] = arguments else {
        return Err(SqlError::internal("a part of a table has a modulus and a remainder"));
    };
    Ok(Datum::Bool(key_hash(key.iter().copied()) % (*modulus as u64) == *remainder as u64))
}
