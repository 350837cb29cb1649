//! The records of the log.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 4 | length of the body in bytes |
//! | 4 | 4 | crc32c of the body |
//! | 8 | | body: an entry (`lsm/entry.rs`); in a commit there is none |
//!
//! This module does not know where records are kept.

const HEAD_BYTES: usize = 8;

/// Returns the number of bytes of a record with a body of this length. A commit has no body.
pub(super) fn record_bytes(body_bytes: usize) -> usize {
    HEAD_BYTES + body_bytes
}

/// Adds a record to a buffer.
pub(super) fn encode(body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
    out.extend_from_slice(body);
}

/// A record that was read, and the bytes after it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decoded<'r> {
    pub(super) body: &'r [u8],
    pub(super) rest: &'r [u8],
}

/// Reads the record at the start of `bytes`. Returns `None` if it is damaged.
pub(super) fn decode(bytes: &[u8]) -> Option<Decoded<'_>> {
    let (len_bytes, rest) = bytes.split_first_chunk()?;
    let (checksum, rest) = rest.split_first_chunk()?;
    let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*len_bytes) as usize)?;
    (crc32c::crc32c(body) == u32::from_le_bytes(*checksum)).then_some(Decoded { body, rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_damaged_ones_do_not() {
        let mut bytes = Vec::new();
        encode(b"an entry", &mut bytes);
        assert_eq!(bytes.len(), record_bytes(8));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged), None, "byte {at}");
        }
        encode(b"", &mut bytes);
        let Some(first) = decode(&bytes) else { panic!("the entry is there") };
        assert_eq!(
            (first.body, decode(first.rest)),
            (&b"an entry"[..], Some(Decoded { body: b"", rest: b"" }))
        );
    }
}
