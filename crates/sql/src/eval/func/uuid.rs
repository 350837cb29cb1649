//! The functions of the extension uuid-ossp (RFC 4122).
//!
//! `gen_random_uuid` is in `more_math`.

use std::sync::atomic::{AtomicU64, Ordering};

use md5::{Digest, Md5};
use sha1::Sha1;
use varve_engine::Datum;

use super::clock_us;
use super::more_math::random_uuid;
use super::{Builtin, strict, text, volatile};
use crate::error::{Result, SqlError};
use crate::ty::Ty::{Text, Uuid};

pub const TABLE: &[Builtin] = &[
    volatile("uuid_generate_v1", &[], Uuid, |_, _| by_clock().map(Datum::Uuid)),
    volatile("uuid_generate_v1mc", &[], Uuid, |_, _| by_clock().map(Datum::Uuid)),
    volatile("uuid_generate_v4", &[], Uuid, |_, _| random_uuid().map(Datum::Uuid)),
    strict("uuid_generate_v3", &[Uuid, Text], Uuid, |a, _| {
        Ok(by_name(&Md5::new_with_prefix(space(a)).chain_update(text(a, 1)).finalize(), 3))
    }),
    strict("uuid_generate_v5", &[Uuid, Text], Uuid, |a, _| {
        Ok(by_name(&Sha1::new_with_prefix(space(a)).chain_update(text(a, 1)).finalize(), 5))
    }),
    strict("uuid_nil", &[], Uuid, |_, _| Ok(Datum::Uuid([0; 16]))),
    strict("uuid_ns_dns", &[], Uuid, |_, _| Ok(well_known(0x10))),
    strict("uuid_ns_url", &[], Uuid, |_, _| Ok(well_known(0x11))),
    strict("uuid_ns_oid", &[], Uuid, |_, _| Ok(well_known(0x12))),
    strict("uuid_ns_x500", &[], Uuid, |_, _| Ok(well_known(0x14))),
];

/// The number of units of 100 ns from 1582-10-15, when the Gregorian calendar began, to 2000-01-01.
const GREGORIAN_SHIFT: u64 = 0x01b2_1dd2_1381_4000 + 946_684_800 * 10_000_000;

/// Returns a name space of RFC 4122, appendix C. The name spaces differ in their first word.
fn well_known(number: u8) -> Datum<'static> {
    let mut bytes = 0x6ba7_b810_9dad_11d1_80b4_00c0_4fd4_30c8_u128.to_be_bytes();
    bytes[3] = number;
    Datum::Uuid(bytes)
}

fn space(arguments: &[Datum<'_>]) -> [u8; 16] {
    match arguments.first() {
        Some(Datum::Uuid(bytes)) => *bytes,
        _ => [0; 16],
    }
}

/// Sets the bits of version and variant.
fn marked(mut bytes: [u8; 16], version: u8) -> [u8; 16] {
    bytes[6] = bytes[6] & 0x0f | version << 4;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

fn by_name(hash: &[u8], version: u8) -> Datum<'static> {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    Datum::Uuid(marked(bytes, version))
}

/// Makes a UUID of version 1 from a time that always increases and a random node id. A bit marks the node id
/// as random.
fn by_clock() -> Result<[u8; 16]> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = (clock_us() as u64).wrapping_mul(10).wrapping_add(GREGORIAN_SHIFT);
    let next = |last| Some(now.max(last + 1));
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or(now);
    let time = now.max(last + 1);
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| SqlError::internal("the system gives no random numbers"))?;
    bytes[..4].copy_from_slice(&(time as u32).to_be_bytes());
    bytes[4..6].copy_from_slice(&((time >> 32) as u16).to_be_bytes());
    bytes[6..8].copy_from_slice(&((time >> 48) as u16).to_be_bytes());
    bytes[10] |= 1;
    Ok(marked(bytes, 1))
}
